package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/record"
)

// partitionFolder writes two segments of two batches each, with their indexes, and returns the folder.
func partitionFolder(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "orders-0")
	require.NoError(t, os.Mkdir(dir, 0o700))
	offset, ts := int64(0), int64(1_700_000_000_000)
	for range 2 {
		base := offset
		var log, index, timeindex []byte
		for range 2 {
			var b record.Builder
			b.Reset(nil)
			for i := range 3 {
				ts++
				b.Append(&record.Record{Timestamp: ts, Key: []byte{'k'}, Value: fmt.Appendf(nil, "value %d", i)})
			}
			batch := b.Build()
			batch.SetBaseOffset(offset)
			batch.SetLeaderEpoch(0)
			index = binary.BigEndian.AppendUint32(index, uint32(batch.LastOffset()-base))
			index = binary.BigEndian.AppendUint32(index, uint32(len(log)))
			timeindex = binary.BigEndian.AppendUint64(timeindex, uint64(batch.MaxTimestamp()))
			timeindex = binary.BigEndian.AppendUint32(timeindex, uint32(batch.LastOffset()-base))
			log = append(log, batch...)
			offset = batch.NextOffset()
		}
		stem := filepath.Join(dir, fmt.Sprintf("%020d", base))
		require.NoError(t, os.WriteFile(stem+".log", log, 0o600))
		require.NoError(t, os.WriteFile(stem+".index", append(index, make([]byte, 80)...), 0o600)) // not cut: still active
		require.NoError(t, os.WriteFile(stem+".timeindex", timeindex, 0o600))
	}
	return dir
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func runLog(t *testing.T, args ...string) (stdout string, code exitCode) {
	t.Helper()
	var out bytes.Buffer
	c := &cli{out: &out, err: &out}
	root := newRoot(c)
	root.SetArgs(append([]string{"log"}, args...))
	code = exitCode(c.finish(root.ExecuteContext(t.Context())))
	return out.String(), code
}

func verifyOf(t *testing.T, dir string) verified {
	t.Helper()
	files, err := logFiles(dir)
	require.NoError(t, err)
	var v verified
	require.NoError(t, v.files(files))
	return v
}

func TestVerifyFindsNothingInGoodFiles(t *testing.T) {
	dir := partitionFolder(t)
	for _, at := range []string{dir, filepath.Dir(dir)} {
		v := verifyOf(t, at)
		require.Empty(t, v.Damages)
		require.Equal(t, 2, v.Segments)
		require.Equal(t, 4, v.Batches)
		require.Equal(t, int64(12), v.Records)
	}
	_, code := runLog(t, "verify", dir)
	require.Equal(t, exitOK, code)
}

func TestVerifyFindsDamage(t *testing.T) {
	first, second := "00000000000000000000", "00000000000000000006"
	change := func(at int, b byte) func([]byte) []byte {
		return func(text []byte) []byte { text[at] = b; return text }
	}
	for _, c := range []struct {
		name, file string
		change     func([]byte) []byte
		want       string
	}{
		{"a flipped bit in a record", first + ".log", change(70, 0x55), "corrupt"},
		{"a torn end", second + ".log", func(b []byte) []byte { return b[:len(b)-5] }, "torn write"},
		{"a torn header", second + ".log", func(b []byte) []byte { return append(b, 1, 2, 3) }, "torn write"},
		{"an absurd length", first + ".log", change(8, 0x7f), "cannot have"},
		{"an offset taken twice", second + ".log", change(7, 0), "are taken"},
		{"an index entry that points nowhere", first + ".index", change(15, 1), "no batch at position"},
		{"an index that does not rise", first + ".index", change(11, 0), "do not rise"},
		{"a time that is no batch's", first + ".timeindex", change(7, 1), "with timestamp"},
		{"a time index that does not rise", second + ".timeindex", change(12, 0xff), "do not rise"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := partitionFolder(t)
			path := filepath.Join(dir, c.file)
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, c.change(text), 0o600))
			v := verifyOf(t, dir)
			require.NotEmpty(t, v.Damages)
			require.Contains(t, fmt.Sprint(v.Damages), c.want)
			_, code := runLog(t, "verify", dir)
			require.Equal(t, exitDamaged, code)
		})
	}
}

func TestVerifyFindsOverlappingSegments(t *testing.T) {
	dir := partitionFolder(t)
	require.NoError(t, os.Rename(filepath.Join(dir, "00000000000000000006.log"),
		filepath.Join(dir, "00000000000000000004.log")))
	v := verifyOf(t, dir)
	require.Contains(t, fmt.Sprint(v.Damages), "starts at offset 4")
}

func TestVerifyOfNothing(t *testing.T) {
	_, code := runLog(t, "verify", filepath.Join(t.TempDir(), "absent"))
	require.Equal(t, exitNotFound, code)
	_, code = runLog(t, "verify", t.TempDir())
	require.Equal(t, exitNotFound, code)
	_, code = runLog(t, "verify", writeFile(t, "x.txt", ""))
	require.Equal(t, exitUsage, code)
}

// A file may hold anything: reading it ends, without panic, in batches or in damage.
func FuzzScan(f *testing.F) {
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0}, 200))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "00000000000000000000.log")
		require.NoError(t, os.WriteFile(path, text, 0o600))
		require.NoError(t, os.WriteFile(path[:len(path)-4]+".index", text, 0o600))
		s, err := scan(path, func(at int64, b record.Batch) error {
			d := describe(path, at, b, true)
			return d.print(&bytes.Buffer{})
		})
		require.NoError(t, err)
		require.NoError(t, s.checkIndexes())
	})
}

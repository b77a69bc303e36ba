package quorum

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// updateGolden has the golden files written anew.
func updateGolden() bool {
	f := flag.Lookup("update")
	return f != nil && f.Value.String() == "true" || os.Getenv("UPDATE_GOLDEN") != ""
}

// golden compares bytes with those that a version once wrote.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	name = filepath.Join("testdata", name)
	if updateGolden() {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(name, got, 0o644))
	}
	want, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, want, got, name)
}

func someEntries() []*raft.Log {
	return []*raft.Log{
		{Index: 7, Term: 2, Type: raft.LogConfiguration, Data: []byte("members"), AppendedAt: time.Unix(1700000000, 5)},
		{Index: 8, Term: 2, Type: raft.LogCommand, Data: []byte(`{"type":"CreateTopics"}`), Extensions: []byte("ext")},
		{Index: 9, Term: 3, Type: raft.LogNoop, Data: []byte{}},
	}
}

func TestSegmentFormat(t *testing.T) {
	b := appendSegmentHeader(nil, 7)
	for i, l := range someEntries() {
		b = appendEntry(b, l, uint32(i))
	}
	golden(t, "segment.v1", b)
	s, err := scanSegment(b, 7)
	require.NoError(t, err)
	require.False(t, s.torn)
	require.EqualValues(t, len(b), s.end)
	require.Len(t, s.starts, 3)
	for i, want := range someEntries() {
		var got raft.Log
		batch, _, err := readEntry(b[s.starts[i]:], &got)
		require.NoError(t, err)
		require.EqualValues(t, 7, batch)
		require.True(t, want.AppendedAt.Equal(got.AppendedAt))
		got.AppendedAt = want.AppendedAt
		require.Equal(t, *want, got)
	}
}

func TestBallotFormat(t *testing.T) {
	v := ballot{term: 9, voteTerm: 8, candidate: "http://a:8082"}
	golden(t, "vote.v1", v.encode())
	got, err := decodeBallot(v.encode())
	require.NoError(t, err)
	require.Equal(t, v, got)
}

func someSnapshot(t testing.TB) []byte {
	t.Helper()
	a, err := encodeAbout(12, 3, raft.Configuration{Servers: []raft.Server{
		{ID: "1", Address: "http://a:8082"}, {ID: "2", Address: "http://b:8082", Suffrage: raft.Nonvoter},
	}}, 4)
	require.NoError(t, err)
	return append(snapshotInfo{about: a, size: 4, checksum: checksum([]byte("data\x00\x00\x00\x00"), 4)}.encode(), "data"...)
}

func TestSnapshotFormat(t *testing.T) {
	b := someSnapshot(t)
	golden(t, "snapshot.v1", b)
	i, err := decodeSnapshotInfo(b, int64(len(b)))
	require.NoError(t, err)
	require.Equal(t, "data", string(b[i.dataAt():]))
	m, err := i.meta()
	require.NoError(t, err)
	require.EqualValues(t, 12, m.Index)
	require.Equal(t, []raft.Server{
		{ID: "1", Address: "http://a:8082"}, {ID: "2", Address: "http://b:8082", Suffrage: raft.Nonvoter},
	}, m.Configuration.Servers)
}

// A file that a later version wrote is told from a damaged one.
func TestLaterVersionsAreNamed(t *testing.T) {
	later := func(b []byte) []byte {
		b = bytes.Clone(b)
		b[11] = 9
		sum := checksum(b, 12)
		b[12], b[13], b[14], b[15] = byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum)
		return b
	}
	require.ErrorContains(t, checkSegmentHeader(later(appendSegmentHeader(nil, 1)), 1), "version 9")
	_, err := decodeBallot(later(ballot{}.encode()))
	require.ErrorContains(t, err, "version 9")
	i, err := decodeSnapshotInfo(someSnapshot(t), int64(len(someSnapshot(t))))
	require.NoError(t, err)
	i.size = 0
	_, err = decodeSnapshotInfo(later(i.encode()), i.dataAt())
	require.ErrorContains(t, err, "version 9")
}

func FuzzBallot(f *testing.F) {
	f.Add(ballot{term: 9, voteTerm: 8, candidate: "http://a:8082"}.encode())
	f.Add([]byte(ballotMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := decodeBallot(b)
		if err == nil {
			require.Equal(t, b, v.encode())
		}
	})
}

func FuzzSnapshotHeader(f *testing.F) {
	f.Add(someSnapshot(f), int64(0))
	f.Add([]byte(snapshotMagic), int64(5))
	f.Fuzz(func(t *testing.T, b []byte, more int64) {
		i, err := decodeSnapshotInfo(b, int64(len(b))+more)
		if err != nil {
			return
		}
		require.Equal(t, b[:i.dataAt()], i.encode()[:i.dataAt()])
		_, _ = i.meta()
	})
}

func FuzzSegment(f *testing.F) {
	b := appendSegmentHeader(nil, 7)
	for i, l := range someEntries() {
		b = appendEntry(b, l, uint32(i))
	}
	f.Add(b, uint64(7))
	f.Add(append(b, make([]byte, 100)...), uint64(7))
	f.Add(b[:len(b)-5], uint64(7))
	f.Fuzz(func(t *testing.T, b []byte, base uint64) {
		s, err := scanSegment(b, base)
		if err != nil {
			return
		}
		for i, at := range s.starts {
			var l raft.Log
			_, _, err := readEntry(b[at:], &l)
			require.NoError(t, err)
			require.Equal(t, base+uint64(i), l.Index)
		}
		require.LessOrEqual(t, s.end, int64(len(b)))
	})
}

package storage

import (
	"encoding/hex"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"millrace/record"
)

// The entries that Kafka's own classes wrote for a segment with base 42.
func TestIndexEntriesAreKafkas(t *testing.T) {
	for _, test := range []struct {
		kind    fileKind
		entries []entry
		want    string
	}{
		{offsetKind, []entry{{44 - 42, 0}, {120 - 42, 4200}}, "00000002000000000000004e00001068"},
		{timeKind, []entry{{1700000000005, 44 - 42}, {1700000000099, 120 - 42}},
			"0000018bcfe56805000000020000018bcfe568630000004e"},
	} {
		var got []byte
		for _, e := range test.entries {
			got = test.kind.appendEntry(got, e)
		}
		require.Equal(t, test.want, hex.EncodeToString(got))
		for i, e := range test.entries {
			require.Equal(t, e, test.kind.entryAt(got, i))
		}
	}
}

func TestCheckpointText(t *testing.T) {
	keys := []logKey{{"a b", 0}, {"orders", 12}}
	text := encodeOffsets(keys[1:], func(int) int64 { return 77 })
	require.Equal(t, "0\n1\norders 12 77\n", string(text))
	got, err := decodeOffsets(text)
	require.NoError(t, err)
	require.Equal(t, map[logKey]int64{{"orders", 12}: 77}, got)
	empty, err := decodeOffsets([]byte("0\n0\n"))
	require.NoError(t, err)
	require.Empty(t, empty)
	for _, bad := range []string{
		"", "0", "0\n", "1\n0\n", "0\n1\n", "0\n1\norders 1\n", "0\n1\norders 1 2 3\n", "0\n1\norders x 2\n",
		"0\n1\norders 1 -2\n", "0\n2\norders 1 2\n", "0\n1\norders 1 2", "0\n1\norders 01 2\n", "0\n1\norders 1  2\n",
		"0\n0\norders 1 2\n", "0\n-1\n", "\x00\x00\x00",
	} {
		_, err := decodeOffsets([]byte(bad))
		require.Error(t, err, "%q", bad)
	}
}

func TestEpochFile(t *testing.T) {
	entries := []epochStart{{0, 0}, {3, 17}}
	require.Equal(t, "0\n2\n0 0\n3 17\n", string(encodeEpochs(entries)))
	got, err := decodeEpochs(encodeEpochs(entries))
	require.NoError(t, err)
	require.Equal(t, entries, got)
	for _, bad := range []string{"0\n2\n0 0\n0 5\n", "0\n2\n0 5\n1 5\n", "0\n1\n-1 5\n", "0\n1\n1 -5\n", "0\n1\n1\n"} {
		_, err := decodeEpochs([]byte(bad))
		require.Error(t, err, "%q", bad)
	}
}

func TestPartitionMetadata(t *testing.T) {
	id := [16]byte{0xff, 1, 2, 15: 0xee}
	text := encodePartitionMetadata(id)
	require.Equal(t, "version: 0\ntopic_id: _wECAAAAAAAAAAAAAAAA7g\n", string(text))
	got, err := decodePartitionMetadata(text)
	require.NoError(t, err)
	require.Equal(t, id, got)
	for _, none := range []string{"", "\x00\x00\x00"} {
		got, err := decodePartitionMetadata([]byte(none))
		require.NoError(t, err)
		require.Equal(t, noTopicID, got)
	}
	for _, bad := range []string{
		"version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n", "version: 0\n", "version: 0\ntopic_id: AA\n",
	} {
		_, err := decodePartitionMetadata([]byte(bad))
		require.Error(t, err, "%q", bad)
	}
}

func TestMetaProperties(t *testing.T) {
	m := Meta{ClusterID: "x=y", NodeID: 3, DirectoryID: "d"}
	got, err := decodeMeta(append([]byte("#a comment\n"), encodeMeta(m)...))
	require.NoError(t, err)
	require.Equal(t, m, got)
	for _, bad := range []string{"", "version=0\nnode.id=1\n", "version=1\n", "version=1\nnode.id=x\n", "nonsense"} {
		_, err := decodeMeta([]byte(bad))
		require.Error(t, err, "%q", bad)
	}
}

func TestFolderNames(t *testing.T) {
	for name, want := range map[string]string{
		"orders-0": "orders 0", "a-b-12": "a-b 12", "orders--1": "orders- 1",
		"-1": "", "orders": "", "orders-": "", "orders-01": "", "metadata": "",
		"orders-0.0123456789abcdef0123456789abcdef-delete": "", "orders-1.x-stray": "", "orders-1.x-future": "",
	} {
		n, ok := parseFolder(name)
		require.Equal(t, want != "", ok, name)
		if ok {
			topic, partition, _ := strings.Cut(want, " ")
			require.Equal(t, topic, n.Topic)
			require.Equal(t, name, n.String())
			require.Equal(t, topic+"-"+partition, n.String())
		}
	}
	d := &Dir{}
	long := strings.Repeat("x", 249) + "-12"
	require.Len(t, d.retiredName(long, deleteSuffix), 255)
	require.Regexp(t, `^orders-0\.[0-9a-f]{32}-delete$`, d.retiredName("orders-0", deleteSuffix))
	for name, ok := range map[string]bool{
		"00000000000000000042.log": true, "42.log": false, "-0000000000000000042.log": false,
		"+0000000000000000042.log": false, "99999999999999999999.log": false, "0000000000000000004x.log": false,
		"leader-epoch-checkpoint": false,
	} {
		_, suffix, got := parseOffsetFile(name)
		require.Equal(t, ok, got, name)
		if ok {
			require.Equal(t, logSuffix, suffix)
		}
	}
}

// The epoch cache against a list of what each offset was written in.
func TestEpochCacheAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c epochCache
		written := map[int64]int32{} // offsets from start to end
		start, end, latest := int64(0), int64(0), int32(-1)
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				latest += int32(rapid.IntRange(1, 3).Draw(t, "epoch"))
				c.assign(latest, end)
			case 1, 2, 3:
				if latest < 0 {
					continue
				}
				c.assign(latest, end)
				for range rapid.IntRange(1, 4).Draw(t, "records") {
					written[end] = latest
					end++
				}
			case 4:
				end = rapid.Int64Range(start, end).Draw(t, "truncate")
				c.truncateEnd(end)
				latest = max(c.latest(), -1)
			case 5:
				start = rapid.Int64Range(start, end).Draw(t, "start")
				c.truncateStart(start)
			}
			for o := start; o < end; o++ {
				if got := c.at(o); got != written[o] {
					t.Fatalf("epoch at %d is %d, not %d: %v", o, got, written[o], c.entries)
				}
			}
			for i, e := range c.entries {
				if i > 0 && (e.epoch <= c.entries[i-1].epoch || e.start <= c.entries[i-1].start) {
					t.Fatalf("entries do not rise: %v", c.entries)
				}
			}
			for asked := int32(0); asked <= latest; asked++ {
				found, stop, ok := c.endOf(asked, end)
				if len(c.entries) == 0 || asked > c.latest() {
					if ok {
						t.Fatalf("epoch %d is unknown but ends at %d", asked, stop)
					}
					continue
				}
				for o := start; o < end; o++ { // all that the asked epoch or older ones wrote lies before
					if ok && written[o] <= asked && o >= stop || ok && written[o] > asked && o < stop {
						t.Fatalf("epoch %d (%d) ends at %d, but %d wrote %d: %v",
							asked, found, stop, written[o], o, c.entries)
					}
				}
			}
		}
	})
}

func TestSyncCost(t *testing.T) {
	var c syncCost
	require.False(t, c.preferAll(1))
	require.True(t, c.preferAll(2), "before anything was measured")
	for range 50 {
		c.tookEach(200*time.Microsecond, 1)
		c.tookAll(250 * time.Microsecond)
	}
	require.True(t, c.preferAll(2))
	for range 50 {
		c.tookAll(time.Second) // somebody else writes a lot
	}
	require.False(t, c.preferAll(100))
	tries := 0
	for !c.preferAll(100) {
		tries++
		require.Less(t, tries, 200, "it is never tried again")
	}
}

func TestFileCacheKeepsWhatIsUsed(t *testing.T) {
	c := fileCache{limit: 3}
	owners := make([]atomic.Pointer[openFile], 6)
	open := func(i int) *openFile {
		o := &openFile{file: nopFile{}, owner: &owners[i], slot: -1}
		owners[i].Store(o)
		c.admit(o)
		return o
	}
	first := open(0)
	open(1)
	open(2)
	for i := 3; i < 6; i++ {
		first.recent.Store(true)
		open(i)
		require.NotNil(t, owners[0].Load(), "the file in use was closed")
	}
	require.Equal(t, 3, c.count())
	c.release(first)
	c.release(first)
	require.Equal(t, 2, c.count())
	require.NotNil(t, owners[0].Load())
	c.close()
	require.Nil(t, open(1).owner.Load(), "a file was kept after the cache was closed")
	require.Zero(t, c.count())
}

type nopFile struct{ File }

func (nopFile) Close() error { return nil }

// A read of a log that was deleted meanwhile never meets the files of the next one of that name.
func TestReadsDoNotMeetTheNextLog(t *testing.T) {
	fsys, err := OSFS(t.TempDir())
	require.NoError(t, err)
	d, err := OpenDir(DirOptions{FS: fsys})
	require.NoError(t, err)
	name := PartitionName{Topic: "t"}
	write := func(value string) *Log {
		l, err := d.CreateLog(name, DefaultConfig())
		require.NoError(t, err)
		var b record.Builder
		b.Append(&record.Record{Timestamp: 1, Value: []byte(value)})
		_, err = l.Append(b.Build())
		require.NoError(t, err)
		return l
	}
	old := write("old")
	s := (*old.segments.Load())[0] // as a read has it that looked before whether the log is there
	require.NoError(t, d.DeleteLog(old))
	next := write("new")
	require.ErrorIs(t, s.readAt(logKind, make([]byte, 1), 0), ErrClosed)
	r, err := next.Read(0, 1000, 1, nil)
	require.NoError(t, err)
	require.Contains(t, string(r.Batches), "new")
	require.NoError(t, d.Close())
}

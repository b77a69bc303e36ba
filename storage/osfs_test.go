package storage_test

import (
	"encoding/binary"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/record"
	"millrace/storage"
)

func TestOSFS(t *testing.T) {
	root := filepath.Join(t.TempDir(), "a", "data")
	fsys, err := storage.OSFS(root)
	require.NoError(t, err)
	_, err = fsys.Open("none", 0)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, fsys.Mkdir("d"))
	require.ErrorIs(t, fsys.Mkdir("d"), fs.ErrExist)
	f, err := fsys.Open("d/b", storage.OpenWrite|storage.OpenCreate|storage.OpenExclusive)
	require.NoError(t, err)
	_, err = fsys.Open("d/b", storage.OpenWrite|storage.OpenCreate|storage.OpenExclusive)
	require.ErrorIs(t, err, fs.ErrExist)
	_, err = f.WriteAt([]byte("12345"), 3)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(6))
	size, err := f.Size()
	require.NoError(t, err)
	require.EqualValues(t, 6, size)
	buf := make([]byte, 10)
	n, err := f.ReadAt(buf, 0)
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, "\x00\x00\x00123", string(buf[:n]))
	require.NoError(t, f.Sync())
	require.NoError(t, fsys.SyncDir("d"))
	require.NoError(t, fsys.SyncAll())
	require.NoError(t, f.Close())
	_, err = f.ReadAt(buf, 0)
	require.ErrorIs(t, err, fs.ErrClosed)
	require.ErrorIs(t, f.Sync(), fs.ErrClosed)

	require.NoError(t, fsys.Rename("d/b", "d/c"))
	require.NoError(t, fsys.Mkdir("a"))
	entries, err := fsys.List(".")
	require.NoError(t, err)
	require.Equal(t, []storage.Entry{{Name: "a", Dir: true}, {Name: "d", Dir: true}}, entries)
	e, err := fsys.Stat("d/c")
	require.NoError(t, err)
	require.EqualValues(t, 6, e.Size)
	require.Error(t, fsys.Remove("d"))
	require.NoError(t, fsys.RemoveAll("d"))
	require.NoError(t, fsys.RemoveAll("d"))
	require.ErrorIs(t, fsys.Remove("d"), fs.ErrNotExist)

	lock, err := fsys.Lock(".lock")
	require.NoError(t, err)
	other, err := storage.OSFS(root)
	require.NoError(t, err)
	_, err = other.Lock(".lock")
	require.ErrorIs(t, err, storage.ErrLocked)
	require.NoError(t, lock.Close())
	lock, err = other.Lock(".lock")
	require.NoError(t, err)
	require.NoError(t, lock.Close())
}

// Nobody but the owner may look into a data directory.
func TestModes(t *testing.T) {
	root := filepath.Join(t.TempDir(), "data")
	fsys, err := storage.OSFS(root)
	require.NoError(t, err)
	d, l := newLog(t, fsys, smallConfig())
	appendBatches(t, l, 20)
	require.NoError(t, l.SaveProducerSnapshot(20, []byte("x")))
	require.NoError(t, d.SetMeta(storage.Meta{}))
	require.NoError(t, d.Close())
	require.NoError(t, filepath.Walk(root, func(path string, info fs.FileInfo, err error) error {
		require.NoError(t, err)
		want := fs.FileMode(0o600)
		if info.IsDir() {
			want = 0o700
		}
		require.Equal(t, want, info.Mode().Perm(), path)
		return nil
	}))
}

// A log in use holds one file open; what readers need beside it is bounded.
func TestOpenFiles(t *testing.T) {
	fsys, err := storage.OSFS(t.TempDir())
	require.NoError(t, err)
	const logs, cached = 30, 8
	d := openDir(t, fsys, func(o *storage.DirOptions) { o.OpenFiles = cached })
	open := func() int {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("open files cannot be counted here")
		}
		return len(fds)
	}
	before := open()
	for p := range int32(logs) {
		n := orders
		n.Partition = p
		l, err := d.CreateLog(n, smallConfig())
		require.NoError(t, err)
		appendBatches(t, l, 20)
		readAll(t, l)
		require.NoError(t, l.Sync(t.Context()))
	}
	require.Eventually(t, func() bool { // a commit may have a folder open for a moment
		return open()-before <= logs+cached
	}, time.Minute, time.Millisecond)
	require.LessOrEqual(t, d.Stats().OpenFiles, int64(logs+cached))
	require.NoError(t, d.Close())
	require.LessOrEqual(t, open(), before)
}

// What Kafka's dump tool checks of a segment's files.
func TestFilesAreAsKafkasToolsWantThem(t *testing.T) {
	for seed := range uint64(20) {
		disk := newDisk()
		rng := rand.New(rand.NewPCG(seed, 1))
		c := smallConfig()
		c.SegmentBytes, c.IndexInterval = int64(500+rng.IntN(5000)), rng.IntN(600)
		d, l := newLog(t, disk, c)
		for range 10 + rng.IntN(100) {
			_, err := l.Append(makeBatch(l.EndOffset(), 0, rng.Int64N(1000), 1+rng.IntN(3), rng.IntN(300)))
			require.NoError(t, err)
			switch rng.IntN(30) {
			case 0:
				require.NoError(t, d.Close())
				d, l = reopen(t, disk, c)
			case 1:
				d.Close()
				disk = disk.Crash(0, rng)
				d, l = reopen(t, disk, c)
			case 2:
				require.NoError(t, l.TruncateTo(l.EndOffset()-rng.Int64N(3)))
			}
		}
		require.NoError(t, d.Close())
		for _, name := range disk.Files() {
			if base, ok := strings.CutSuffix(name, ".log"); ok {
				checkSegment(t, disk.ReadFile, base)
			}
		}
	}
}

func checkSegment(t *testing.T, read func(string) ([]byte, error), name string) {
	data, err := read(name + ".log")
	require.NoError(t, err)
	ends := map[int64]record.Batch{} // by last offset
	at := map[int64]record.Batch{}   // by position
	first, greatest := int64(-1), int64(-1)
	for rest := data; len(rest) > 0; {
		var b record.Batch
		pos := int64(len(data) - len(rest))
		b, rest, err = record.Next(rest)
		require.NoError(t, err)
		require.NoError(t, b.Verify())
		ends[b.LastOffset()], at[pos] = b, b
		greatest = max(greatest, b.MaxTimestamp())
		if first < 0 {
			first = b.BaseOffset()
		}
	}
	index, err := read(name + ".index")
	require.NoError(t, err)
	require.Zero(t, len(index)%8)
	lastOffset, lastPos := int64(-1), int64(-1)
	for ; len(index) > 0; index = index[8:] {
		offset := first + int64(binary.BigEndian.Uint32(index))
		pos := int64(binary.BigEndian.Uint32(index[4:]))
		require.Contains(t, at, pos)
		require.Equal(t, offset, at[pos].LastOffset())
		require.True(t, offset > lastOffset && pos > lastPos)
		lastOffset, lastPos = offset, pos
	}
	times, err := read(name + ".timeindex")
	require.NoError(t, err)
	require.Zero(t, len(times)%12)
	lastTime, lastOffset := int64(-1), int64(-1)
	for ; len(times) > 0; times = times[12:] {
		ts := int64(binary.BigEndian.Uint64(times))
		offset := first + int64(binary.BigEndian.Uint32(times[8:]))
		require.Contains(t, ends, offset)
		require.Equal(t, ts, ends[offset].MaxTimestamp())
		require.True(t, ts > lastTime && offset > lastOffset)
		lastTime, lastOffset = ts, offset
	}
	require.Equal(t, greatest, lastTime, "the last entry is the greatest timestamp")
}

// Runs large enough to bypass the page cache are in the file like all others: small and large ones follow each other,
// none ends with a page.
func TestFollowersLargeWrites(t *testing.T) {
	fsys, err := storage.OSFS(t.TempDir())
	require.NoError(t, err)
	c := storage.DefaultConfig()
	d, l := newLog(t, fsys, c)
	var all []record.Batch
	offset := int64(0)
	for _, sizes := range [][]int{{100}, {300 << 10, 77}, {13}, {1 << 20, 1 << 20}, {400 << 10}, {5}} {
		var run []record.Batch
		for _, n := range sizes {
			b := makeBatch(offset, 0, 1000, 1, n)
			run, offset = append(run, b), b.NextOffset()
		}
		_, err := l.AppendFollower(join(run))
		require.NoError(t, err)
		all = append(all, run...)
	}
	require.Equal(t, all, readAll(t, l))
	require.NoError(t, l.Close())
	require.NoError(t, d.Close())
	_, l = reopen(t, fsys, c)
	require.Equal(t, all, readAll(t, l))
}

package storage_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/record"
	"millrace/storage"
)

func TestAppendAndRead(t *testing.T) {
	_, l := newLog(t, newDisk(), smallConfig())
	require.EqualValues(t, 0, l.StartOffset())
	require.EqualValues(t, 0, l.EndOffset())
	r, err := l.Read(0, 100, math.MaxInt64, nil)
	require.NoError(t, err)
	require.Empty(t, r.Batches)

	require.EqualValues(t, 40, appendBatches(t, l, 40))
	n, err := l.Segments()
	require.NoError(t, err)
	require.Greater(t, n, 3)
	batches := readAll(t, l)
	require.Len(t, batches, 40)
	for i, b := range batches {
		require.Equal(t, makeBatch(int64(i), 1, 1000+int64(i), 1, 50), b)
	}
	size, err := l.Size()
	require.NoError(t, err)
	require.EqualValues(t, 40*len(batches[0]), size)
}

func TestReadFromWithinABatchGivesTheBatch(t *testing.T) {
	_, l := newLog(t, newDisk(), smallConfig())
	for _, n := range []int{3, 5, 2} {
		_, err := l.Append(makeBatch(l.EndOffset(), 0, 1, n, 10))
		require.NoError(t, err)
	}
	for offset, base := range map[int64]int64{0: 0, 2: 0, 3: 3, 7: 3, 8: 8, 9: 8} {
		r, err := l.Read(offset, 1, math.MaxInt64, nil)
		require.NoError(t, err)
		b, rest, err := record.Next(r.Batches)
		require.NoError(t, err)
		require.Empty(t, rest, "more than one batch for one byte")
		require.Equal(t, base, b.BaseOffset())
	}
}

func TestReadStopsAtItsLimits(t *testing.T) {
	c := smallConfig()
	c.SegmentBytes = 1 << 20
	_, l := newLog(t, newDisk(), c)
	appendBatches(t, l, 20)
	one := len(makeBatch(0, 1, 0, 1, 50))
	for _, test := range []struct {
		from     int64
		maxBytes int
		limit    int64
		want     int
	}{
		{0, 10 * one, 20, 10}, {0, 10*one + one/2, 20, 10}, {0, 0, 20, 1}, {0, 1 << 20, 7, 7},
		{5, 1 << 20, 7, 2}, {7, 1 << 20, 7, 0}, {9, 1 << 20, 7, 0}, {20, 1 << 20, 30, 0}, {19, 1 << 20, 30, 1},
	} {
		r, err := l.Read(test.from, test.maxBytes, test.limit, nil)
		require.NoError(t, err)
		require.Len(t, r.Batches, test.want*one, "%+v", test)
		require.Equal(t, test.from+int64(test.want), r.NextOffset)
	}
	for _, from := range []int64{-1, 21} {
		_, err := l.Read(from, 100, 100, nil)
		require.ErrorIs(t, err, storage.ErrOutOfRange)
		var out *storage.OutOfRangeError
		require.ErrorAs(t, err, &out)
		require.Equal(t, storage.OutOfRangeError{Offset: from, Start: 0, End: 20}, *out)
	}
}

func TestRollBySize(t *testing.T) {
	c := smallConfig()
	one := int64(len(makeBatch(0, 1, 0, 1, 50)))
	c.SegmentBytes = 3 * one
	_, l := newLog(t, newDisk(), c)
	for i := range int64(7) {
		r, err := l.Append(makeBatch(i, 1, 0, 1, 50))
		require.NoError(t, err)
		require.Equal(t, i == 3 || i == 6, r.Rolled, "batch %d", i)
		if r.Rolled {
			require.Equal(t, i, r.NewSegmentBase)
		}
	}
	_, err := l.Append(makeBatch(7, 1, 0, 1, 5000)) // larger than a segment: one of its own
	require.NoError(t, err)
	r, err := l.Append(makeBatch(8, 1, 0, 1, 10))
	require.NoError(t, err)
	require.True(t, r.Rolled)
	require.Len(t, readAll(t, l), 9)
}

func TestRollByAge(t *testing.T) {
	c := smallConfig()
	c.SegmentBytes, c.SegmentAge = 1<<20, time.Second
	now := &clock{time.UnixMilli(5_000_000)}
	d := openDir(t, newDisk(), now.set)
	l, err := d.CreateLog(orders, c)
	require.NoError(t, err)
	rolls := func(ts int64) bool {
		r, err := l.Append(makeBatch(l.EndOffset(), 0, ts, 1, 1))
		require.NoError(t, err)
		return r.Rolled
	}
	require.False(t, rolls(10_000))
	require.False(t, rolls(11_000))
	require.False(t, rolls(500), "timestamps may go back")
	require.True(t, rolls(11_001))
	require.False(t, rolls(11_001))
	require.True(t, rolls(20_000))
	require.True(t, rolls(math.MaxInt64-5))
	require.False(t, rolls(-1))
	c.SegmentBytes = 1
	l.Reconfigure(c)
	require.True(t, rolls(-1)) // now the first batch has no timestamp, and the clock counts
	c.SegmentBytes = 1 << 20
	l.Reconfigure(c)
	now.now = now.now.Add(time.Second)
	require.False(t, rolls(-1))
	now.now = now.now.Add(time.Millisecond)
	require.True(t, rolls(-1))
}

func TestRollWhenAnIndexIsFull(t *testing.T) {
	for _, indexBytes := range []int{24, 40} {
		c := smallConfig()
		c.SegmentBytes, c.IndexInterval, c.IndexBytes = 1<<20, 0, indexBytes
		_, l := newLog(t, newDisk(), c)
		rolled := []int64{}
		for i := range int64(20) {
			r, err := l.Append(makeBatch(i, 0, 100-i, 1, 1)) // one time entry at most
			require.NoError(t, err)
			if r.Rolled {
				rolled = append(rolled, i)
			}
		}
		require.NotEmpty(t, rolled)
		if indexBytes == 40 { // five offset entries, for the second batch to the sixth
			require.Equal(t, []int64{6, 12, 18}, rolled)
		}
		require.Len(t, readAll(t, l), 20)
	}
}

func TestRollWhenOffsetsSpanTooFar(t *testing.T) {
	c := smallConfig()
	c.SegmentBytes = 1 << 20
	_, l := newLog(t, newDisk(), c)
	for range 3 {
		b := makeBatch(l.EndOffset(), 0, 1, 1, 1)
		putLastOffsetDelta(b, 1<<30)
		_, err := l.Append(b)
		require.NoError(t, err)
	}
	n, err := l.Segments()
	require.NoError(t, err)
	require.Equal(t, 3, n)
}

// putLastOffsetDelta makes a batch span more offsets than it has records.
func putLastOffsetDelta(b record.Batch, delta int32) {
	b[23], b[24], b[25], b[26] = byte(delta>>24), byte(delta>>16), byte(delta>>8), byte(delta)
	b.Seal()
}

func TestCleanStopAndStart(t *testing.T) {
	disk := newDisk()
	d, l := newLog(t, disk, smallConfig())
	appendBatches(t, l, 25)
	l.SetHighWatermark(23)
	require.NoError(t, l.SetStart(3))
	want := readAll(t, l)
	require.NoError(t, d.Close())
	_, err := l.Append(makeBatch(25, 1, 0, 1, 1))
	require.ErrorIs(t, err, storage.ErrClosed)
	_, err = l.Read(5, 1, 100, nil)
	require.ErrorIs(t, err, storage.ErrClosed)
	require.ErrorIs(t, d.Close(), storage.ErrClosed)

	d, l = reopen(t, disk, smallConfig())
	require.True(t, d.WasClean())
	require.EqualValues(t, 3, l.StartOffset())
	require.EqualValues(t, 25, l.EndOffset())
	require.EqualValues(t, 25, l.SyncedOffset())
	require.EqualValues(t, 23, l.HighWatermark())
	require.Equal(t, want, readAll(t, l))
	appendBatches(t, l, 5)
	require.Len(t, readAll(t, l), len(want)+5)
	epoch, err := l.LatestEpoch()
	require.NoError(t, err)
	require.EqualValues(t, 1, epoch)
}

func TestOneLogIsClosedAndOpenedAgain(t *testing.T) {
	d, l := newLog(t, newDisk(), smallConfig())
	appendBatches(t, l, 25)
	want := readAll(t, l)
	require.NoError(t, l.Close())
	require.ErrorIs(t, l.Close(), storage.ErrClosed)
	l, err := d.OpenLog(orders, smallConfig())
	require.NoError(t, err)
	require.Equal(t, want, readAll(t, l))
	_, err = d.OpenLog(orders, smallConfig())
	require.ErrorContains(t, err, "it is open")
}

func TestOpeningAfterACleanStopTouchesNoFile(t *testing.T) {
	disk := newDisk()
	d := openDir(t, disk)
	for p := range int32(50) {
		n := orders
		n.Partition = p
		l, err := d.CreateLog(n, smallConfig())
		require.NoError(t, err)
		appendBatches(t, l, int(p))
	}
	require.NoError(t, d.Close())
	d = openDir(t, disk)
	disk.SetFault(failAll)
	names, err := d.Partitions()
	require.NoError(t, err)
	require.Len(t, names, 50)
	logs := map[int32]*storage.Log{}
	for _, n := range names {
		require.Equal(t, orders.TopicID, n.TopicID)
		l, err := d.OpenLog(n, smallConfig())
		require.NoError(t, err)
		require.EqualValues(t, n.Partition, l.EndOffset())
		require.NoError(t, l.AssignEpoch(7, l.EndOffset()))
		_, err = l.Read(l.EndOffset(), 1, 1000, nil)
		require.NoError(t, err)
		logs[n.Partition] = l
	}
	disk.SetFault(nil)
	for p, l := range logs {
		require.Len(t, readAll(t, l), int(p))
		epoch, err := l.LatestEpoch()
		require.NoError(t, err)
		require.EqualValues(t, 7, epoch)
	}
}

func TestNothingIsReadOfALogThatWasNotUsed(t *testing.T) {
	disk := newDisk()
	d, l := newLog(t, disk, smallConfig())
	appendBatches(t, l, 10)
	require.NoError(t, d.Close())
	for range 3 { // through stops and starts
		d, l = reopen(t, disk, smallConfig())
		require.EqualValues(t, 10, l.EndOffset())
		require.NoError(t, d.Close())
	}
	_, l = reopen(t, disk, smallConfig())
	require.Len(t, readAll(t, l), 10)
}

func TestEpochs(t *testing.T) {
	disk := newDisk()
	d, l := newLog(t, disk, smallConfig())
	for _, epoch := range []int32{0, 0, 3, 3, 4} {
		_, err := l.Append(makeBatch(l.EndOffset(), epoch, 1, 2, 1))
		require.NoError(t, err)
	}
	require.NoError(t, l.AssignEpoch(6, 10))
	check := func(latest int32) {
		t.Helper()
		for asked, want := range map[int32][3]int64{
			-1: {-1, -1, 0}, 0: {0, 4, 1}, 1: {0, 4, 1}, 2: {0, 4, 1}, 3: {3, 8, 1}, 7: {-1, -1, 0},
		} {
			found, end, ok, err := l.EndOffsetForEpoch(asked)
			require.NoError(t, err)
			require.Equal(t, want, [3]int64{int64(found), end, map[bool]int64{true: 1}[ok]}, "epoch %d", asked)
		}
		for offset, want := range map[int64]int32{0: 0, 3: 0, 4: 3, 7: 3, 8: 4, 9: 4, 10: latest} {
			epoch, err := l.EpochFor(offset)
			require.NoError(t, err)
			require.Equal(t, want, epoch, "offset %d", offset)
		}
	}
	check(6)
	require.NoError(t, d.Close())
	_, l = reopen(t, disk, smallConfig())
	check(4) // an epoch that wrote nothing is forgotten
	require.NoError(t, l.AssignEpoch(6, 10))
	check(6)
	require.NoError(t, l.AssignEpoch(5, 10)) // older: ignored
	require.NoError(t, l.AssignEpoch(8, 10)) // takes the place of 6, which wrote nothing
	_, end, ok, err := l.EndOffsetForEpoch(6)
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, 10, end)
	require.NoError(t, l.SetStart(5))
	_, end, _, err = l.EndOffsetForEpoch(0) // below all that are known: where those begin
	require.NoError(t, err)
	require.EqualValues(t, 5, end)
	epoch, err := l.EpochFor(4)
	require.NoError(t, err)
	require.EqualValues(t, -1, epoch)
}

func TestScan(t *testing.T) {
	_, l := newLog(t, newDisk(), smallConfig())
	for i := range 30 {
		_, err := l.Append(makeBatch(l.EndOffset(), 0, 1, 2, 20*i))
		require.NoError(t, err)
	}
	next := int64(10)
	require.NoError(t, l.Scan(11, func(b record.Batch) error {
		require.GreaterOrEqual(t, len(b), record.HeaderSize)
		require.Equal(t, next, b.BaseOffset())
		next = b.NextOffset()
		return nil
	}))
	require.EqualValues(t, 60, next)
	stop := errors.New("enough")
	require.ErrorIs(t, l.Scan(0, func(record.Batch) error { return stop }), stop)
	require.NoError(t, l.Scan(60, func(record.Batch) error { return stop }))
}

func TestProducerSnapshots(t *testing.T) {
	disk := newDisk()
	d, l := newLog(t, disk, smallConfig())
	_, _, ok, err := l.LoadProducerSnapshot()
	require.NoError(t, err)
	require.False(t, ok)
	require.ErrorIs(t, l.SaveProducerSnapshot(1, nil), storage.ErrOutOfRange)
	for range 30 {
		end := l.EndOffset()
		r, err := l.Append(makeBatch(end, 0, 1, 1, 50))
		require.NoError(t, err)
		if r.Rolled {
			require.NoError(t, l.SaveProducerSnapshot(end, []byte{byte(end)}))
		}
	}
	require.NoError(t, l.SaveProducerSnapshot(29, []byte("last but one")))
	require.NoError(t, l.SaveProducerSnapshot(30, []byte("longer than it will be")))
	require.NoError(t, l.SaveProducerSnapshot(30, []byte("last")))
	load := func(offset int64, payload string) {
		t.Helper()
		at, got, ok, err := l.LoadProducerSnapshot()
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, offset, at)
		require.Equal(t, payload, string(got))
	}
	load(30, "last")
	require.NoError(t, d.Close())
	_, l = reopen(t, disk, smallConfig())
	load(30, "last")
	require.NoError(t, l.DropProducerSnapshotsAfter(29))
	load(29, "last but one")
	require.NoError(t, l.TruncateTo(28))
	at, _, ok, err := l.LoadProducerSnapshot()
	require.NoError(t, err)
	require.True(t, ok)
	require.Less(t, at, int64(28))
	require.NoError(t, l.DropProducerSnapshotsAfter(0))
	_, _, ok, err = l.LoadProducerSnapshot()
	require.NoError(t, err)
	require.False(t, ok)
	for _, name := range disk.Files() {
		require.False(t, strings.HasSuffix(name, ".snapshot"), name)
	}
}

func TestSync(t *testing.T) {
	_, l := newLog(t, newDisk(), smallConfig())
	synced := make(chan int64, 10)
	l.OnSynced(func(offset int64) { synced <- offset })
	appendBatches(t, l, 3)
	require.EqualValues(t, 0, l.SyncedOffset())
	require.NoError(t, l.Sync(context.Background()))
	require.EqualValues(t, 3, l.SyncedOffset())
	require.EqualValues(t, 3, <-synced)
	require.NoError(t, l.Sync(context.Background()))
	appendBatches(t, l, 2)
	l.RequestSync()
	require.EqualValues(t, 5, <-synced)
}

func TestMeta(t *testing.T) {
	disk := newDisk()
	d := openDir(t, disk)
	_, ok := d.Meta()
	require.False(t, ok)
	m := storage.Meta{ClusterID: "c-1", NodeID: 7, DirectoryID: "d-1"}
	require.NoError(t, d.SetMeta(m))
	require.NoError(t, d.Close())
	d = openDir(t, disk)
	got, ok := d.Meta()
	require.True(t, ok)
	require.Equal(t, m, got)
	_, err := storage.OpenDir(storage.DirOptions{FS: disk})
	require.ErrorIs(t, err, storage.ErrLocked)
}

func TestTopicIDs(t *testing.T) {
	disk := newDisk()
	d, _ := newLog(t, disk, smallConfig())
	_, err := d.CreateLog(orders, smallConfig())
	require.ErrorIs(t, err, storage.ErrExists)
	require.NoError(t, d.Close())
	for _, clean := range []bool{true, false} {
		if !clean {
			disk = disk.Crash(0, nil)
		}
		d = openDir(t, disk)
		other := orders
		other.TopicID[0]++
		_, err = d.OpenLog(other, smallConfig())
		require.ErrorIs(t, err, storage.ErrTopicID)
		missing := orders
		missing.Partition = 9
		_, err = d.OpenLog(missing, smallConfig())
		require.ErrorIs(t, err, storage.ErrNotFound)
		if clean {
			require.NoError(t, d.Close())
		}
	}
	require.NoError(t, d.SetAside(orders))
	names, err := d.Partitions()
	require.NoError(t, err)
	require.Empty(t, names)
	anonymous := orders
	anonymous.TopicID = [16]byte{}
	l, err := d.CreateLog(orders, smallConfig())
	require.NoError(t, err)
	require.NoError(t, l.Close())
	l, err = d.OpenLog(anonymous, smallConfig())
	require.NoError(t, err)
	require.Equal(t, orders, l.Name())
}

// A folder that lost its topic id in a crash held nothing that was synced, and may be a deleted topic's.
func TestAFolderWithoutTopicIDIsSetAside(t *testing.T) {
	for _, metadata := range []string{"none", "", "\x00\x00\x00\x00"} {
		disk := newDisk()
		if metadata != "none" {
			disk.WriteFile("orders-0/partition.metadata", []byte(metadata))
		}
		disk.WriteFile("orders-0/00000000000000000000.log", makeBatch(0, 0, 0, 1, 1))
		disk.WriteFile("log-start-offset-checkpoint", []byte("0\n1\norders 0 5\n"))
		d, l := reopen(t, disk, smallConfig())
		require.Equal(t, orders, l.Name())
		require.EqualValues(t, 0, l.StartOffset())
		require.EqualValues(t, 0, l.EndOffset())
		appendBatches(t, l, 3)
		require.Len(t, readAll(t, l), 3)
		require.NoError(t, d.Close())
		names := strings.Join(disk.Files(), " ")
		require.Regexp(t, `orders-0\.[0-9a-f]{32}-stray/0{20}\.log`, names)
		_, l = reopen(t, disk, smallConfig())
		require.Len(t, readAll(t, l), 3)
	}
	disk := newDisk()
	disk.WriteFile("orders-0/partition.metadata", []byte("garbage"))
	d := openDir(t, disk)
	names, err := d.Partitions()
	require.NoError(t, err)
	require.Len(t, names, 1)
	_, err = d.OpenLog(orders, smallConfig())
	var damage *storage.CorruptionError
	require.ErrorAs(t, err, &damage)
	require.Equal(t, "orders-0/partition.metadata", damage.File)
}

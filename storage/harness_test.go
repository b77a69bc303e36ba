package storage_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/record"
	"millrace/storage"
	"millrace/storage/storagetest"
)

var orders = storage.PartitionName{Topic: "orders", TopicID: [16]byte{1, 2, 3}, Partition: 0}

// smallConfig rolls after a few batches, so that short tests see many segments.
func smallConfig() storage.Config {
	c := storage.DefaultConfig()
	c.SegmentBytes = 1000
	c.IndexInterval = 200
	c.FileDeleteDelay = 0
	return c
}

// makeBatch builds a batch at an offset: n records with timestamps from ts on, one apart.
func makeBatch(base int64, epoch int32, ts int64, n, valueBytes int) record.Batch {
	var b record.Builder
	value := make([]byte, valueBytes)
	for i := range n {
		for j := range value {
			value[j] = byte(base + int64(i+j))
		}
		b.Append(&record.Record{Timestamp: ts + int64(i), Key: fmt.Appendf(nil, "k%06d", base+int64(i)), Value: value})
	}
	batch := b.Build()
	batch.SetBaseOffset(base)
	batch.SetLeaderEpoch(epoch)
	return batch
}

// openDir opens a directory that the test closes when it ends, if it has not done so.
func openDir(t testing.TB, fsys storage.FS, change ...func(*storage.DirOptions)) *storage.Dir {
	t.Helper()
	o := storage.DirOptions{FS: fsys}
	for _, c := range change {
		c(&o)
	}
	d, err := storage.OpenDir(o)
	require.NoError(t, err)
	t.Cleanup(func() { d.Close() })
	return d
}

// newLog makes a log in a new directory.
func newLog(t testing.TB, fsys storage.FS, c storage.Config) (*storage.Dir, *storage.Log) {
	t.Helper()
	d := openDir(t, fsys)
	l, err := d.CreateLog(orders, c)
	require.NoError(t, err)
	return d, l
}

// reopen opens the log in another process's place.
func reopen(t testing.TB, fsys storage.FS, c storage.Config) (*storage.Dir, *storage.Log) {
	t.Helper()
	d := openDir(t, fsys)
	l, err := d.OpenLog(orders, c)
	require.NoError(t, err)
	return d, l
}

// appendBatches appends count batches of one record each and gives the offset after them.
func appendBatches(t testing.TB, l *storage.Log, count int) int64 {
	t.Helper()
	for range count {
		end := l.EndOffset()
		_, err := l.Append(makeBatch(end, 1, 1000+end, 1, 50))
		require.NoError(t, err)
	}
	return l.EndOffset()
}

// readAll reads the log from its start to its end and checks that batches are whole and dense.
func readAll(t testing.TB, l *storage.Log) []record.Batch {
	t.Helper()
	all, err := tryReadAll(l, l.StartOffset())
	require.NoError(t, err)
	return all
}

func tryReadAll(l *storage.Log, from int64) ([]record.Batch, error) {
	all, err := readBatches(l, from)
	next := from
	for i, b := range all {
		if b.BaseOffset() > next || b.BaseOffset() < next && i > 0 {
			return all, fmt.Errorf("offset %d follows %d", b.BaseOffset(), next)
		}
		next = b.NextOffset()
	}
	return all, err
}

// readBatches reads a log that may have gaps.
func readBatches(l *storage.Log, from int64) ([]record.Batch, error) {
	var all []record.Batch
	for next := from; next < l.EndOffset(); {
		r, err := l.Read(next, 700, math.MaxInt64, nil)
		if err != nil {
			return all, err
		}
		if len(r.Batches) == 0 {
			return all, fmt.Errorf("nothing at offset %d of %d", next, l.EndOffset())
		}
		for rest := r.Batches; len(rest) > 0; {
			var b record.Batch
			if b, rest, err = record.Next(rest); err != nil {
				return all, err
			}
			if err := b.Verify(); err != nil {
				return all, err
			}
			next = b.NextOffset()
			all = append(all, b)
		}
		if next != r.NextOffset {
			return all, fmt.Errorf("next offset is %d, not %d", r.NextOffset, next)
		}
	}
	return all, nil
}

// clock is a wall clock that a test moves.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func (c *clock) set(o *storage.DirOptions) { o.Now = c.Now }

// newDisk gives a disk in memory.
func newDisk() *storagetest.FS { return storagetest.New() }

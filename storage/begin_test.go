package storage_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/record"
	"millrace/storage"
	"millrace/storage/storagetest"
)

// startsWithin is a log that starts at offset 12, in the midst of the batch that it is to begin with.
func startsWithin(t *testing.T) (*storagetest.FS, *storage.Dir, *storage.Log, record.Batch) {
	t.Helper()
	disk := newDisk()
	d, l := newLog(t, disk, smallConfig())
	appendBatches(t, l, 5)
	require.NoError(t, l.TruncateFullyAndStartAt(12))
	return disk, d, l, makeBatch(10, 4, 1000, 4, 50)
}

func TestBeginWithinABatch(t *testing.T) {
	disk, d, l, b := startsWithin(t)
	require.NoError(t, l.BeginWithin(b))
	require.Equal(t, []int64{12, 14}, []int64{l.StartOffset(), l.EndOffset()})
	require.Equal(t, b, readAll(t, l)[0])
	_, err := l.Append(makeBatch(14, 5, 1000, 1, 50))
	require.NoError(t, err)
	epoch, end, ok, err := l.EndOffsetForEpoch(4)
	require.NoError(t, err)
	require.Equal(t, []any{int32(4), int64(14), true}, []any{epoch, end, ok})
	require.NoError(t, l.Sync(context.Background()))
	_, again := reopen(t, disk.Copy().Crash(storagetest.LoseAll, rand.New(rand.NewPCG(1, 1))), smallConfig())
	require.Len(t, readAll(t, again), 2)
	require.NoError(t, d.Close())
	_, again = reopen(t, disk, smallConfig())
	require.Len(t, readAll(t, again), 2)
	require.Equal(t, int64(12), again.StartOffset())
}

// Wherever a crash comes, the log starts where it did, and holds the batch or nothing.
func TestBeginWithinABatchAndCrash(t *testing.T) {
	for _, mode := range storagetest.Modes() {
		k := 1
		for ; ; k++ {
			disk, d, l, b := startsWithin(t)
			disk.StopAt(k, storagetest.Moment(k%2))
			if l.BeginWithin(b) == nil {
				_ = l.Sync(context.Background())
			}
			stopped := disk.Stopped()
			next := disk.Crash(mode, rand.New(rand.NewPCG(uint64(k), 1)))
			_ = d.Close()
			_, l = reopen(t, next, smallConfig())
			require.Equal(t, int64(12), l.StartOffset(), "%v at %d", mode, k)
			switch l.EndOffset() {
			case 12:
				require.Empty(t, readAll(t, l))
				require.NoError(t, l.BeginWithin(b))
			case 14:
			default:
				t.Fatalf("%v at %d: the log ends at %d", mode, k, l.EndOffset())
			}
			require.Equal(t, b, readAll(t, l)[0])
			if !stopped {
				break
			}
		}
		require.Greater(t, k, 5)
	}
}

func TestBeginWithinABatchOnADiskThatIsFull(t *testing.T) {
	disk, d, l, b := startsWithin(t)
	for room := 1; ; room += 7 {
		disk.SetQuota(disk.Used() + int64(room))
		err := l.BeginWithin(b)
		disk.SetQuota(0)
		if err == nil {
			break
		}
		require.ErrorIs(t, err, storage.ErrDiskFull)
		require.Equal(t, []int64{12, 12}, []int64{l.StartOffset(), l.EndOffset()})
		require.Empty(t, readAll(t, l))
	}
	require.Equal(t, b, readAll(t, l)[0])
	require.NoError(t, d.Close())
	_, l = reopen(t, disk, smallConfig())
	require.Equal(t, b, readAll(t, l)[0])
}

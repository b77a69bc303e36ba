package storage_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/record"
	"millrace/storage"
)

// One writer and many readers, with everything else that may go on meanwhile. Each batch says its
// offset in its records, and the epoch says which truncation it came after, so a reader that is given
// bytes of two lives of the log notices.
func TestConcurrentUse(t *testing.T) {
	t.Run("memory", func(t *testing.T) { useConcurrently(t, newDisk(), 150) })
	t.Run("disk", func(t *testing.T) {
		fsys, err := storage.OSFS(t.TempDir())
		require.NoError(t, err)
		useConcurrently(t, fsys, 150)
	})
}

func useConcurrently(t *testing.T, fsys storage.FS, rounds int) {
	if testing.Short() {
		rounds /= 4
	}
	c := smallConfig()
	c.SegmentBytes = 3000
	d := openDir(t, fsys, func(o *storage.DirOptions) { o.OpenFiles = 4 }) // files close under their readers
	l, err := d.CreateLog(orders, c)
	require.NoError(t, err)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for seed := range uint64(3) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 3))
			for !stop.Load() {
				if err := readSomewhere(l, rng); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Go(func() {
		for !stop.Load() {
			if err := d.Checkpoint(); err != nil {
				t.Error(err)
			}
			if _, _, err := l.OffsetForTime(500); err != nil {
				t.Error(err)
			}
			if _, _, err := l.MaxTimestampOffset(); err != nil {
				t.Error(err)
			}
		}
	})
	write(t, l, rounds)
	stop.Store(true)
	wg.Wait()
	require.NoError(t, d.Close())
	_, l = reopen(t, fsys, c)
	readAll(t, l)
}

// write appends, and now and then cuts the log at one of its ends.
func write(t *testing.T, l *storage.Log, rounds int) {
	rng := rand.New(rand.NewPCG(9, 9))
	epoch := int32(0)
	for i := range rounds {
		for range 5 {
			_, err := l.Append(makeBatch(l.EndOffset(), epoch, rng.Int64N(1000), 1+rng.IntN(3), rng.IntN(400)))
			require.NoError(t, err)
		}
		span := l.EndOffset() - l.StartOffset()
		switch i % 20 {
		case 3, 13:
			require.NoError(t, l.Sync(context.Background()))
		case 7:
			epoch++
			require.NoError(t, l.TruncateTo(l.EndOffset()-rng.Int64N(span/2)))
		case 11:
			require.NoError(t, l.SetStart(l.StartOffset()+rng.Int64N(span/2)))
		case 17:
			l.RequestSync()
			_, err := l.ApplyRetention(time.UnixMilli(math.MaxInt32), l.StartOffset()+span/3)
			require.NoError(t, err)
		case 19:
			if i%100 == 99 {
				epoch++
				require.NoError(t, l.TruncateFullyAndStartAt(l.EndOffset()+5))
			}
		}
	}
}

// readSomewhere reads a piece and checks that it is a piece of one life of the log.
func readSomewhere(l *storage.Log, rng *rand.Rand) error {
	start, end := l.StartOffset(), l.EndOffset()
	if start >= end {
		return nil
	}
	from := start + rng.Int64N(end-start)
	r, err := l.Read(from, 1+rng.IntN(3000), end, nil)
	if errors.Is(err, storage.ErrOutOfRange) {
		return nil // it moved
	}
	if err != nil {
		return err
	}
	next, epoch := int64(-1), int32(-1)
	for rest := r.Batches; len(rest) > 0; {
		var b record.Batch
		if b, rest, err = record.Next(rest); err != nil {
			return err
		}
		if err := b.Verify(); err != nil {
			return err
		}
		if next < 0 && (b.BaseOffset() > from || b.LastOffset() < from) {
			return errors.New("the first batch does not hold the offset")
		}
		if next >= 0 && b.BaseOffset() != next || b.LeaderEpoch() < epoch {
			return errors.New("batches do not follow each other")
		}
		next, epoch = b.NextOffset(), b.LeaderEpoch()
	}
	return nil
}

// Many writers on many logs share commits, and each is told when its own data is durable.
func TestGroupCommit(t *testing.T) {
	d := openDir(t, newDisk())
	const logs, writers, each = 5, 8, 20
	var wg sync.WaitGroup
	for p := range int32(logs) {
		n := orders
		n.Partition = p
		l, err := d.CreateLog(n, smallConfig())
		require.NoError(t, err)
		var last atomic.Int64
		l.OnSynced(func(synced int64) {
			if last.Swap(synced) >= synced {
				t.Error("synced offsets do not rise")
			}
			if l.SyncedOffset() < synced {
				t.Error("told of more than is synced")
			}
		})
		var mu sync.Mutex
		for range writers {
			wg.Go(func() {
				for range each {
					mu.Lock()
					end := l.EndOffset()
					_, err := l.Append(makeBatch(end, 0, 1, 1, 20))
					mu.Unlock()
					if err == nil {
						err = l.Sync(context.Background())
					}
					if err != nil || l.SyncedOffset() <= end {
						t.Errorf("synced to %d after appending %d: %v", l.SyncedOffset(), end, err)
					}
				}
			})
		}
	}
	wg.Wait()
	s := d.Stats()
	require.EqualValues(t, logs*writers*each, s.AppendedBatches)
	require.Positive(t, s.Commits)
}

func TestSyncEndsWithItsContextAndWithTheLog(t *testing.T) {
	disk := newDisk()
	_, l := newLog(t, disk, smallConfig())
	hold := make(chan struct{})
	disk.SetFault(holdSyncs(hold))
	appendBatches(t, l, 1)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, l.Sync(ctx), context.Canceled)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := l.Sync(context.Background()); err != nil {
			t.Error(err)
		}
	})
	close(hold)
	wg.Wait()
}

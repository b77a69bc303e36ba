package partition_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/server/partition"
	"millrace/storage"
	"millrace/storage/storagetest"
)

// segmented is a partition of so many records, each in a segment of its own.
func segmented(t *testing.T, records int) *host {
	h := newHost(t)
	h.fs = storagetest.New()
	h.policy = storage.SyncNever
	h.settings.SegmentBytes = 200
	h.start()
	for range records {
		_, err := h.append(&partition.AppendRequest{
			Batch: batch(-1, 0, 0, h.now, strings.Repeat("v", 120)), Expected: -1, Epoch: -1,
		})
		require.NoError(t, err)
	}
	return h
}

// requireSound checks that an answer which says that an offset is outside the log gives bounds which say so too.
func requireSound(t *testing.T, offset int64, f *partition.Fetched, err error) {
	if partition.Explain(err).Code == kerr.OffsetOutOfRange.Code {
		require.False(t, f.LogStart <= offset && offset <= f.LogEnd, "offset %d, bounds %+v", offset, f.Bounds)
	}
}

// A log that is trimmed while it is read, once the bounds were looked at, tells the bounds that it has then.
func TestReadOfALogThatIsTrimmedMeanwhile(t *testing.T) {
	for _, committed := range []bool{false, true} {
		for start := range int64(9) {
			h := segmented(t, 8)
			trim := func(n int) []byte {
				low, err := h.leader.DeleteRecords(start)
				require.NoError(t, err)
				require.Equal(t, start, low)
				return make([]byte, n)
			}
			const offset = 4
			f, err := h.leader.Fetch(partition.FetchRequest{
				Offset: offset, LeaderEpoch: -1, MaxBytes: 1, Alloc: trim, ReadCommitted: committed,
			})
			requireSound(t, offset, &f, err)
			if start <= offset {
				require.NoError(t, err, "trimmed to %d", start)
				require.Equal(t, int64(offset+1), f.Next)
			} else {
				require.ErrorIs(t, err, storage.ErrOutOfRange, "trimmed to %d", start)
				require.Equal(t, partition.Bounds{LogStart: start, LastStable: 8, HighWatermark: 8, LogEnd: 8}, f.Bounds)
				require.Empty(t, f.Records)
			}
			h.stop()
		}
	}
}

// Retention takes the files away before it moves the log start, and a slow disk makes that a long moment: a read waits
// for it, and is judged by the bounds of after.
func TestReadWaitsForRetentionOnASlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := segmented(t, 8)
		h.settings.RetentionBytes = 1
		h.replica.Reconfigure(partition.NewSettings(&h.settings))
		slow := h.fs.(*storagetest.FS)
		var moved atomic.Bool
		slow.SetFault(func(op storagetest.Op, _ string) (delay time.Duration, err error) {
			if op == storagetest.OpSyncDir && moved.Load() {
				delay = 5 * time.Second
			}
			if op == storagetest.OpRename {
				moved.Store(true)
			}
			return delay, nil
		})
		var wg sync.WaitGroup
		var retained error
		wg.Go(func() { retained = h.leader.ApplyRetention() })
		time.Sleep(time.Second)
		began := time.Now()
		require.Zero(t, h.leader.Bounds().LogStart)
		f, err := h.leader.Fetch(partition.FetchRequest{Offset: 2, LeaderEpoch: -1, MaxBytes: 1})
		require.Greater(t, time.Since(began), time.Second)
		require.ErrorIs(t, err, storage.ErrOutOfRange)
		requireSound(t, 2, &f, err)
		wg.Wait()
		require.NoError(t, retained)
		slow.SetFault(nil)
		h.stop()
	})
}

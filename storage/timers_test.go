package storage_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/storage"
	"millrace/storage/storagetest"
)

// holdSyncs makes syncs wait for a channel to close.
func holdSyncs(hold chan struct{}) storagetest.Fault {
	return func(op storagetest.Op, _ string) (time.Duration, error) {
		if op == storagetest.OpSync || op == storagetest.OpSyncAll {
			<-hold
		}
		return 0, nil
	}
}

// after lets time pass and everything that it sets off end.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestSyncByInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := openDir(t, newDisk(), func(o *storage.DirOptions) {
			o.SyncPolicy, o.SyncInterval = storage.SyncInterval, 100*time.Millisecond
		})
		var logs []*storage.Log
		for p := range int32(5) {
			n := orders
			n.Partition = p
			l, err := d.CreateLog(n, smallConfig())
			require.NoError(t, err)
			logs = append(logs, l)
		}
		for round := range int64(3) {
			for i, l := range logs {
				appendBatches(t, l, 1)
				after(time.Duration(i) * time.Millisecond)
				require.EqualValues(t, round, l.SyncedOffset())
			}
			after(100 * time.Millisecond)
			for _, l := range logs {
				require.EqualValues(t, round+1, l.SyncedOffset())
			}
			require.EqualValues(t, round+1, d.Stats().Commits, "one commit for all logs")
		}
		after(time.Hour)
		require.EqualValues(t, 3, d.Stats().Commits, "nothing to sync")
	})
}

func TestNeverSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := openDir(t, newDisk(), func(o *storage.DirOptions) { o.SyncPolicy = storage.SyncNever })
		l, err := d.CreateLog(orders, smallConfig())
		require.NoError(t, err)
		appendBatches(t, l, 3)
		after(time.Hour)
		require.EqualValues(t, 0, l.SyncedOffset())
		appendBatches(t, l, 20) // but what is sealed is
		synctest.Wait()
		require.Greater(t, l.SyncedOffset(), int64(10))
		require.Less(t, l.SyncedOffset(), l.EndOffset())
	})
}

func TestFlushSettingsOfATopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := openDir(t, newDisk(), func(o *storage.DirOptions) { o.SyncPolicy = storage.SyncNever })
		c := smallConfig()
		c.SegmentBytes, c.FlushMessages, c.FlushInterval = 1<<20, 10, time.Second
		l, err := d.CreateLog(orders, c)
		require.NoError(t, err)
		appendBatches(t, l, 9)
		synctest.Wait()
		require.EqualValues(t, 0, l.SyncedOffset())
		appendBatches(t, l, 1)
		synctest.Wait()
		require.EqualValues(t, 10, l.SyncedOffset())
		appendBatches(t, l, 1)
		after(time.Second)
		require.EqualValues(t, 11, l.SyncedOffset())
	})
}

func TestCheckpointsByTimeAndBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newDisk()
		d := openDir(t, disk, func(o *storage.DirOptions) {
			o.CheckpointInterval, o.CheckpointBytes, o.WatermarkInterval = time.Minute, 5000, 5*time.Second
		})
		l, err := d.CreateLog(orders, smallConfig())
		require.NoError(t, err)
		appendBatches(t, l, 2)
		require.NoError(t, l.Sync(context.Background()))
		saved := func(file, want string) {
			t.Helper()
			data, err := disk.ReadFile(file)
			if want == "" {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "0\n1\n"+want+"\n", string(data))
		}
		saved("recovery-point-offset-checkpoint", "")
		l.SetHighWatermark(2)
		after(5 * time.Second)
		saved("replication-offset-checkpoint", "orders 0 2")
		saved("recovery-point-offset-checkpoint", "")
		after(55 * time.Second)
		saved("recovery-point-offset-checkpoint", "orders 0 2")
		appendBatches(t, l, 60)
		require.NoError(t, l.Sync(context.Background()))
		appendBatches(t, l, 60)
		synctest.Wait()
		data, err := disk.ReadFile("recovery-point-offset-checkpoint")
		require.NoError(t, err)
		require.NotContains(t, string(data), "orders 0 2\n")
		before := d.Stats().Checkpoints
		appendBatches(t, l, 1) // there may be nothing else left to write
		after(2 * time.Minute)
		require.Positive(t, d.Stats().Checkpoints-before)
		n, ops := d.Stats().Checkpoints, disk.Ops()
		after(time.Hour)
		require.Equal(t, n, d.Stats().Checkpoints)
		require.Equal(t, ops, disk.Ops(), "an idle directory writes nothing")
	})
}

func TestSegmentsAreUnlinkedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newDisk()
		d := openDir(t, disk)
		c := smallConfig()
		c.FileDeleteDelay = time.Minute
		l, err := d.CreateLog(orders, c)
		require.NoError(t, err)
		appendBatches(t, l, 30)
		require.NoError(t, l.SetStart(20))
		deleted := func() (n int) {
			for _, name := range disk.Files() {
				if strings.HasSuffix(name, ".deleted") || strings.Contains(name, "-delete/") {
					n++
				}
			}
			return n
		}
		require.Positive(t, deleted())
		after(59 * time.Second)
		require.Positive(t, deleted())
		after(time.Second)
		require.Zero(t, deleted())

		require.NoError(t, d.DeleteLog(l))
		require.ErrorIs(t, d.DeleteLog(l), storage.ErrClosed)
		_, err = l.Read(25, 1, 100, nil)
		require.ErrorIs(t, err, storage.ErrClosed)
		require.Positive(t, deleted())
		l, err = d.CreateLog(orders, c) // the name is free at once
		require.NoError(t, err)
		appendBatches(t, l, 1)
		after(time.Minute)
		require.Zero(t, deleted())
		require.Len(t, readAll(t, l), 1)

		require.NoError(t, l.SetStart(1))
		require.NoError(t, d.DeleteLog(l))
		require.NoError(t, d.Close()) // what was left to remove is removed
		require.Zero(t, deleted())
	})
}

// A folder that was being removed when the process died is removed by the next.
func TestDeletionGoesOnAfterACrash(t *testing.T) {
	disk := newDisk()
	disk.WriteFile("orders-0.0123456789abcdef0123456789abcdef-delete/00000000000000000000.log", []byte("x"))
	synctest.Test(t, func(t *testing.T) {
		d := openDir(t, disk)
		synctest.Wait()
		require.Empty(t, disk.Files())
		names, err := d.Partitions()
		require.NoError(t, err)
		require.Empty(t, names)
		require.NoError(t, d.Close())
	})
}

package storage_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/record"
	"millrace/storage"
	"millrace/storage/storagetest"
)

// failAll makes every call fail.
func failAll(storagetest.Op, string) (time.Duration, error) { return 0, syscall.EIO }

// failOn makes one kind of call on files with a suffix fail.
func failOn(op storagetest.Op, suffix string, err error) storagetest.Fault {
	return func(o storagetest.Op, name string) (time.Duration, error) {
		if o == op && strings.HasSuffix(name, suffix) {
			return 0, err
		}
		return 0, nil
	}
}

// twoLogs makes two logs of which one is to fail.
func twoLogs(t *testing.T, disk *storagetest.FS) (d *storage.Dir, bad, good *storage.Log) {
	t.Helper()
	d, bad = newLog(t, disk, smallConfig())
	other := orders
	other.Topic = "payments"
	good, err := d.CreateLog(other, smallConfig())
	require.NoError(t, err)
	return d, bad, good
}

// requireOffline makes sure that every call answers with the cause, and that other logs live on.
func requireOffline(t *testing.T, bad, good *storage.Log) {
	t.Helper()
	_, err := bad.Append(makeBatch(bad.EndOffset(), 1, 0, 1, 1))
	require.ErrorIs(t, err, storage.ErrOffline)
	require.ErrorIs(t, err, syscall.EIO)
	_, err = bad.Read(0, 1, math.MaxInt64, nil)
	require.ErrorIs(t, err, storage.ErrOffline)
	require.ErrorIs(t, bad.Sync(context.Background()), storage.ErrOffline)
	require.ErrorIs(t, bad.TruncateTo(0), storage.ErrOffline)
	require.ErrorIs(t, bad.SetStart(1), storage.ErrOffline)
	require.ErrorIs(t, bad.Offline(), storage.ErrOffline)
	require.ErrorContains(t, err, "orders-0")
	appendBatches(t, good, 3)
	require.NoError(t, good.Sync(context.Background()))
}

func TestAFailedWriteTakesTheLogOffline(t *testing.T) {
	disk := newDisk()
	d, bad, good := twoLogs(t, disk)
	appendBatches(t, bad, 3)
	require.NoError(t, bad.Sync(context.Background()))
	told := make(chan error, 1)
	bad.OnOffline(func(err error) { told <- err })
	disk.SetFault(failOn(storagetest.OpWrite, "orders-0/00000000000000000000.log", syscall.EIO))
	_, err := bad.Append(makeBatch(3, 1, 0, 1, 1))
	require.ErrorIs(t, err, storage.ErrOffline)
	require.ErrorIs(t, <-told, syscall.EIO)
	disk.SetFault(nil)
	requireOffline(t, bad, good)
	require.EqualValues(t, 1, d.Stats().OfflineLogs)
	require.ErrorIs(t, d.Close(), storage.ErrOffline)

	d, bad = reopen(t, disk, smallConfig()) // the next process recovers it
	require.True(t, d.WasClean())
	require.Len(t, readAll(t, bad), 3)
}

func TestAFailedSyncTakesTheLogOffline(t *testing.T) {
	disk := newDisk()
	_, bad, good := twoLogs(t, disk)
	appendBatches(t, bad, 3)
	require.NoError(t, bad.Sync(context.Background()))
	appendBatches(t, bad, 1)
	told := make(chan error, 1)
	bad.OnOffline(func(err error) { told <- err })
	disk.SetFault(failOn(storagetest.OpSync, "orders-0/00000000000000000000.log", syscall.EIO))
	require.ErrorIs(t, bad.Sync(context.Background()), storage.ErrOffline)
	require.ErrorIs(t, <-told, syscall.EIO)
	disk.SetFault(nil)
	require.EqualValues(t, 3, bad.SyncedOffset())
	requireOffline(t, bad, good)
}

// Nobody knows whose data a sync of the whole file system failed for.
func TestAFailedSyncOfEverythingTakesAllItsLogsOffline(t *testing.T) {
	disk := newDisk()
	d, one, two := twoLogs(t, disk)
	third := orders
	third.Topic = "untouched"
	good, err := d.CreateLog(third, smallConfig())
	require.NoError(t, err)
	appendBatches(t, good, 1)
	appendBatches(t, one, 1)
	appendBatches(t, two, 1)
	syncing, goOn := make(chan struct{}), make(chan struct{})
	disk.SetFault(func(op storagetest.Op, _ string) (time.Duration, error) {
		if op == storagetest.OpSyncAll {
			syncing <- struct{}{}
			<-goOn
		}
		return 0, nil
	})
	good.RequestSync()
	<-syncing
	one.RequestSync() // both wait for the next commit
	two.RequestSync()
	disk.SetFault(failOn(storagetest.OpSyncAll, "", syscall.EIO))
	goOn <- struct{}{}
	require.ErrorIs(t, one.Sync(context.Background()), syscall.EIO)
	require.ErrorIs(t, two.Sync(context.Background()), syscall.EIO)
	disk.SetFault(nil)
	appendBatches(t, good, 1)
	require.NoError(t, good.Sync(context.Background()))
}

func TestADiskThatIsFull(t *testing.T) {
	disk := newDisk()
	d, l := newLog(t, disk, smallConfig())
	appendBatches(t, l, 20)
	want := readAll(t, l)
	disk.SetQuota(1)
	for range 3 {
		_, err := l.Append(makeBatch(20, 1, 0, 1, 50))
		require.ErrorIs(t, err, storage.ErrDiskFull)
		require.ErrorIs(t, err, syscall.ENOSPC)
		require.Equal(t, want, readAll(t, l))
	}
	require.NoError(t, l.Offline())
	require.NoError(t, l.Sync(context.Background()))
	require.Error(t, d.Checkpoint())
	disk.SetQuota(0)
	appendBatches(t, l, 20)
	require.Len(t, readAll(t, l), 40)
	require.NoError(t, d.Checkpoint())
	require.NoError(t, d.Close())
	_, l = reopen(t, disk, smallConfig())
	require.Len(t, readAll(t, l), 40)
}

// Every amount of room: within a batch, at a roll, in an index.
func TestEveryAmountOfRoom(t *testing.T) {
	full := newDisk()
	d, l := newLog(t, full, smallConfig())
	appendBatches(t, l, 20)
	require.NoError(t, d.Close())
	total := 0
	for _, name := range full.Files() {
		data, err := full.ReadFile(name)
		require.NoError(t, err)
		total += len(data)
	}
	for quota := 60; quota < total+100; quota += 37 {
		disk := newDisk()
		d, l := newLog(t, disk, smallConfig())
		disk.SetQuota(int64(quota))
		for i := 0; l.EndOffset() < 20; i++ {
			_, err := l.Append(makeBatch(l.EndOffset(), 1, l.EndOffset(), 1, 50))
			if err != nil {
				require.ErrorIs(t, err, storage.ErrDiskFull)
				require.Len(t, readAll(t, l), int(l.EndOffset()))
				disk.SetQuota(0)
			}
		}
		disk.SetQuota(0)
		require.NoError(t, l.Offline())
		require.NoError(t, d.Close())
		_, l = reopen(t, disk, smallConfig())
		require.Len(t, readAll(t, l), 20)
	}
}

// A log that is to begin anew on a disk with any amount of room does so or stays as it is, and does it when there is
// room.
func TestBeginningAnewOnADiskThatFills(t *testing.T) {
	begin := map[string]func(l *storage.Log) error{
		"above":    func(l *storage.Log) error { return l.TruncateFullyAndStartAt(128) },
		"below":    func(l *storage.Log) error { return l.TruncateFullyAndStartAt(3) },
		"at start": func(l *storage.Log) error { return l.TruncateTo(5) },
	}
	for name, begin := range begin {
		t.Run(name, func(t *testing.T) {
			refused, room := 0, 0
			for ; ; room++ {
				disk := newDisk()
				d, l := newLog(t, disk, smallConfig())
				appendBatches(t, l, 30)
				require.NoError(t, l.AssignEpoch(7, 30))
				appendBatches7(t, l, 3)
				require.NoError(t, d.Checkpoint())
				require.NoError(t, l.SetStart(5))
				want := readAll(t, l)
				disk.SetQuota(disk.Used() + int64(room) - 1)
				if room == 0 {
					disk.SetQuota(1)
				}
				err := begin(l)
				disk.SetQuota(0)
				if err == nil {
					require.Equal(t, l.StartOffset(), l.EndOffset())
					require.NoError(t, d.Close())
					break
				}
				refused++
				require.ErrorIs(t, err, storage.ErrDiskFull)
				require.NoError(t, l.Offline())
				require.Equal(t, []int64{5, 33, 5}, []int64{l.StartOffset(), l.EndOffset(), l.HighWatermark()})
				require.Equal(t, want, readAll(t, l))
				epoch, end, ok, err := l.EndOffsetForEpoch(1)
				require.NoError(t, err)
				require.Equal(t, []any{int32(1), int64(30), true}, []any{epoch, end, ok})
				appendBatches7(t, l, 1)
				require.NoError(t, l.Sync(context.Background()))
				if room%2 == 0 {
					require.NoError(t, d.Checkpoint())
				}
				disk = disk.Crash(storagetest.LoseAll, rand.New(rand.NewPCG(1, 1)))
				_ = d.Close()
				_, l = reopen(t, disk, smallConfig())
				require.Equal(t, []int64{5, 34}, []int64{l.StartOffset(), l.EndOffset()})
				latest, err := l.LatestEpoch()
				require.NoError(t, err)
				require.Equal(t, int32(7), latest)
				require.NoError(t, begin(l))
				require.Equal(t, l.StartOffset(), l.EndOffset())
			}
			require.Greater(t, refused, 4, "there was room at once")
		})
	}
}

func appendBatches7(t *testing.T, l *storage.Log, count int) {
	for range count {
		_, err := l.Append(makeBatch(l.EndOffset(), 7, 1000, 1, 50))
		require.NoError(t, err)
	}
}

// A log that cannot be opened for want of room says so, and can be opened once there is.
func TestOpenOnADiskThatIsFull(t *testing.T) {
	disk := newDisk()
	_, l := newLog(t, disk, smallConfig())
	appendBatches(t, l, 5)
	require.NoError(t, l.Sync(context.Background()))
	disk = disk.Crash(storagetest.KeepAll, rand.New(rand.NewPCG(1, 1)))
	d := openDir(t, disk)
	disk.SetFault(failOn(storagetest.OpTruncate, ".log", syscall.ENOSPC))
	_, err := d.OpenLog(orders, smallConfig())
	require.ErrorIs(t, err, storage.ErrDiskFull)
	disk.SetFault(nil)
	l, err = d.OpenLog(orders, smallConfig())
	require.NoError(t, err)
	require.Len(t, readAll(t, l), 5)
}

// A close that finds no room says so, and leaves the log to be recovered.
func TestCloseOnADiskThatIsFull(t *testing.T) {
	disk := newDisk()
	d, l := newLog(t, disk, smallConfig())
	appendBatches(t, l, 5)
	disk.SetQuota(1)
	require.ErrorIs(t, l.Close(), storage.ErrDiskFull)
	require.ErrorIs(t, l.SetStart(2), storage.ErrDiskFull)
	require.Error(t, d.Close())
	disk.SetQuota(0)
	_, l = reopen(t, disk, smallConfig())
	require.Len(t, readAll(t, l), 5)
}

// fewFiles is a disk of a process that may have no file left to open, where each file is synced by itself.
type fewFiles struct {
	*storagetest.FS
	none atomic.Bool
}

func (f *fewFiles) Open(name string, flag storage.OpenFlag) (storage.File, error) {
	if f.none.Load() {
		return nil, syscall.EMFILE
	}
	return f.FS.Open(name, flag)
}

func (f *fewFiles) SyncDir(name string) error {
	if f.none.Load() {
		return syscall.EMFILE
	}
	return f.FS.SyncDir(name)
}

func (f *fewFiles) SyncAll() error { return errors.ErrUnsupported }

// Having no file left to open is no fault of the disk: what was to be synced is synced once there is one, and whoever
// waits for it waits until then.
func TestTooManyOpenFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &fewFiles{FS: newDisk()}
		d, l := newLog(t, disk, smallConfig())
		appendBatches(t, l, 1) // the file is open from here on, its folder is not synced
		disk.none.Store(true)
		start := time.Now()
		time.AfterFunc(10*time.Second, func() {
			require.NoError(t, l.Offline())
			for range 100 { // until the indexes are due, and a new segment
				if _, err := l.Append(makeBatch(l.EndOffset(), 1, 0, 1, 50)); err != nil {
					require.ErrorIs(t, err, syscall.EMFILE)
				}
			}
			require.Error(t, d.Checkpoint())
			require.NoError(t, l.Offline())
			disk.none.Store(false)
		})
		require.NoError(t, l.Sync(context.Background()))
		require.GreaterOrEqual(t, time.Since(start), 10*time.Second)
		appendBatches(t, l, 20)
		want := readAll(t, l)
		require.NoError(t, l.Sync(context.Background()))
		require.NoError(t, d.Checkpoint())
		disk.FS = disk.Crash(storagetest.LoseAll, rand.New(rand.NewPCG(1, 1)))
		_ = d.Close() // of the process that has crashed
		_, l = reopen(t, disk, smallConfig())
		require.Equal(t, want, readAll(t, l))
	})
}

// A partial write that cannot be undone would leave a hole, so the log goes offline.
func TestADiskThatIsFullAndCannotCut(t *testing.T) {
	disk := newDisk()
	_, l := newLog(t, disk, smallConfig())
	appendBatches(t, l, 2)
	disk.SetFault(func(op storagetest.Op, _ string) (time.Duration, error) {
		switch op {
		case storagetest.OpWrite:
			return 0, syscall.ENOSPC
		case storagetest.OpTruncate:
			return 0, syscall.EIO
		}
		return 0, nil
	})
	_, err := l.Append(makeBatch(2, 1, 0, 1, 50))
	require.ErrorIs(t, err, storage.ErrOffline)
	require.ErrorIs(t, err, syscall.EIO)
}

func TestAReadThatFailsIsAnErrorOfThatRead(t *testing.T) {
	disk := newDisk()
	_, l := newLog(t, disk, smallConfig())
	appendBatches(t, l, 20)
	disk.SetFault(failOn(storagetest.OpRead, ".log", syscall.EIO))
	_, err := l.Read(3, 100, 100, nil)
	require.ErrorIs(t, err, syscall.EIO)
	require.NotErrorIs(t, err, storage.ErrOffline)
	disk.SetFault(nil)
	require.Len(t, readAll(t, l), 20)
}

func TestAFailedIndexWriteTakesTheLogOffline(t *testing.T) {
	disk := newDisk()
	_, bad, good := twoLogs(t, disk)
	disk.SetFault(failOn(storagetest.OpWrite, "orders-0/00000000000000000000.index", syscall.EIO))
	var err error
	for err == nil { // until it rolls
		_, err = bad.Append(makeBatch(bad.EndOffset(), 1, 0, 1, 50))
	}
	require.ErrorIs(t, err, storage.ErrOffline)
	disk.SetFault(nil)
	requireOffline(t, bad, good)
}

// A commit that is slow holds up neither appends nor reads.
func TestAppendsOverlapWithASlowSync(t *testing.T) {
	disk := newDisk()
	_, l := newLog(t, disk, smallConfig())
	appendBatches(t, l, 1)
	require.NoError(t, l.Sync(context.Background()))
	appendBatches(t, l, 1)
	syncing, goOn := make(chan struct{}), make(chan struct{})
	disk.SetFault(func(op storagetest.Op, name string) (time.Duration, error) {
		if op == storagetest.OpSync {
			syncing <- struct{}{}
			<-goOn
		}
		return 0, nil
	})
	l.RequestSync()
	<-syncing
	appendBatches(t, l, 3)
	require.Len(t, readAll(t, l), 5)
	require.EqualValues(t, 1, l.SyncedOffset())
	synced := make(chan int64, 2)
	l.OnSynced(func(offset int64) { synced <- offset })
	l.RequestSync()
	disk.SetFault(nil)
	goOn <- struct{}{}
	require.EqualValues(t, 2, <-synced) // what was written before the sync began
	require.EqualValues(t, 5, <-synced)
}

// Without a time for syncs there are none, also where the time is written as the longest there is.
func TestNoSyncWithoutATimeForIt(t *testing.T) {
	for _, interval := range []time.Duration{0, math.MaxInt64} {
		synctest.Test(t, func(t *testing.T) {
			c := smallConfig()
			c.SegmentBytes, c.FlushInterval = 1<<20, interval
			d := openDir(t, newDisk(), func(o *storage.DirOptions) { o.SyncPolicy = storage.SyncNever })
			l, err := d.CreateLog(orders, c)
			require.NoError(t, err)
			time.Sleep(time.Minute)
			appendBatches(t, l, 5)
			synctest.Wait()
			require.Zero(t, l.SyncedOffset())
			require.Zero(t, d.Stats().Commits)
		})
	}
}

// A log that is offline makes room for another one, which a replica is fetched into anew.
func TestAnOfflineLogCanBeSetAside(t *testing.T) {
	disk := newDisk()
	d, bad, _ := twoLogs(t, disk)
	appendBatches(t, bad, 3)
	require.ErrorIs(t, d.SetAside(orders), storage.ErrNotFound, "it is open")
	disk.SetFault(failOn(storagetest.OpWrite, "orders-0/00000000000000000000.log", syscall.EIO))
	_, err := bad.Append(makeBatch(3, 1, 0, 1, 1))
	require.ErrorIs(t, err, storage.ErrOffline)
	disk.SetFault(nil)
	require.ErrorIs(t, bad.Close(), storage.ErrOffline)
	require.ErrorIs(t, bad.Close(), storage.ErrClosed)
	require.NoError(t, d.SetAside(orders))
	l, err := d.CreateLog(orders, smallConfig())
	require.NoError(t, err)
	appendBatches(t, l, 1)
	require.NoError(t, l.Sync(context.Background()))
	require.NoError(t, d.Close())
}

// So does one that is not closed in order for other reasons than its disk's failing.
func TestALogThatCannotBeClosedIsSetAside(t *testing.T) {
	for name, ruin := range map[string]func(l *txnLog) error{
		"markers lack their entries": func(l *txnLog) error {
			_, err := l.log.AppendFollower(slices.Concat(l.data(1), l.marker(1, record.ControlAbort)))
			require.NoError(t, err)
			return storage.ErrAbortedLost
		},
		"no room": func(l *txnLog) error {
			l.disk.SetQuota(1)
			return storage.ErrDiskFull
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newTxnLog(t, newDisk())
			require.NoError(t, l.append(l.data(-1)))
			want := ruin(l)
			require.ErrorIs(t, l.log.Close(), want)
			require.NoError(t, l.dir.SetAsideLog(l.log))
			require.ErrorIs(t, l.log.Close(), storage.ErrClosed)
			l.disk.SetQuota(0)
			_, err := l.dir.OpenLog(orders, smallConfig())
			require.ErrorIs(t, err, storage.ErrNotFound)
			again, err := l.dir.CreateLog(orders, smallConfig())
			require.NoError(t, err)
			appendBatches(t, again, 1)
			require.NoError(t, again.Sync(t.Context()))
			require.NoError(t, l.dir.Close())
		})
	}
}

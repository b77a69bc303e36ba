package storage_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/storage"
	"millrace/storage/storagetest"
)

// failNth makes the n-th sync of any kind fail, counted from 1, and says afterwards whether it came.
func failNth(disk *storagetest.FS, n int) (failed *bool) {
	failed = new(bool)
	disk.SetFault(func(op storagetest.Op, _ string) (time.Duration, error) {
		if op == storagetest.OpSync || op == storagetest.OpSyncDir || op == storagetest.OpSyncAll {
			if n--; n == 0 {
				*failed = true
				return 0, syscall.EIO
			}
		}
		return 0, nil
	})
	return failed
}

// life has a directory with two logs at work until something fails, or to a stop in order. It notes in synced what it
// was told to be durable.
type life struct {
	t      *testing.T
	disk   *storagetest.FS
	synced map[string]int64
	killed bool // at the end, instead of closed
	policy storage.SyncPolicy
}

func (w *life) config() storage.Config {
	c := smallConfig()
	c.SegmentBytes = 400
	return c
}

func (w *life) live() (err error) {
	d, err := storage.OpenDir(storage.DirOptions{FS: w.disk, SyncPolicy: w.policy})
	if err != nil {
		return err
	}
	defer func() {
		if w.killed {
			w.t.Cleanup(func() { d.Close() })
		} else if e := d.Close(); err == nil {
			err = e
		}
	}()
	if err := d.SetMeta(storage.Meta{ClusterID: "c", NodeID: 1}); err != nil {
		return err
	}
	for _, topic := range []string{"orders", "payments"} {
		if err = w.work(d, topic); err != nil {
			return err
		}
	}
	return nil
}

func (w *life) work(d *storage.Dir, topic string) error {
	l, err := w.open(d, topic)
	if err != nil {
		return err
	}
	for round := range 3 {
		for range 3 {
			if _, err := l.Append(makeBatch(l.EndOffset(), 1, 1000+l.EndOffset(), 1, 50)); err != nil {
				return err
			}
		}
		if err := l.Sync(context.Background()); err != nil {
			return err
		}
		w.synced[topic] = l.SyncedOffset()
		if err := l.SaveProducerSnapshot(l.EndOffset(), []byte("state")); err != nil {
			return err
		}
		if round == 1 {
			if err := d.Checkpoint(); err != nil {
				return err
			}
		}
	}
	return nil
}

// open opens or makes a log and holds it to what was told before.
func (w *life) open(d *storage.Dir, topic string) (*storage.Log, error) {
	n := orders
	n.Topic = topic
	for _, known := range must(d.Partitions()) {
		if known.Topic == topic {
			l, err := d.OpenLog(n, w.config())
			if err != nil {
				return nil, err
			}
			require.GreaterOrEqual(w.t, l.EndOffset(), w.synced[topic], topic)
			require.Len(w.t, readAll(w.t, l), int(l.EndOffset()), topic)
			if l.EndOffset() > 0 {
				require.EqualValues(w.t, 1, must(l.EpochFor(0)))
			}
			if err := l.Sync(context.Background()); err != nil {
				return nil, err
			}
			w.synced[topic] = l.SyncedOffset()
			return l, nil
		}
	}
	require.Zero(w.t, w.synced[topic], topic)
	return d.CreateLog(n, w.config())
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A sync fails, whichever it is, in the first or the second life; the process goes and another one comes, which finds
// everything as if nothing had happened, works on, and loses power. Nothing that was said to be durable is lost.
func TestAFailedSyncLosesNothingAfterARestart(t *testing.T) {
	for k := 1; ; k++ {
		reached := false
		for seed := range uint64(24) {
			t.Run(fmt.Sprintf("sync=%d/%d", k, seed), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, uint64(k)))
				w := &life{t: t, disk: newDisk(), synced: map[string]int64{}}
				if seed >= 12 { // what is in doubt is written again later
					w.policy = storage.SyncNever
				}
				if seed%3 == 2 { // the first life is well
					require.NoError(t, w.live())
					w.disk = w.disk.Crash(storagetest.KeepAll, rng)
				}
				failed := failNth(w.disk, k)
				_ = w.live()
				reached = reached || *failed
				w.disk = w.disk.Crash(storagetest.KeepAll, rng)
				if seed%4 < 3 {
					w.killed = seed%4 == 0
					require.NoError(t, w.live())
					w.killed = false
				} else {
					d := openDir(t, w.disk, func(o *storage.DirOptions) { o.SyncPolicy = w.policy })
					for _, n := range must(d.Partitions()) {
						_, err := w.open(d, n.Topic)
						require.NoError(t, err)
					}
				}
				w.disk = w.disk.Crash(storagetest.Modes()[1+rng.IntN(3)], rng)
				require.NoError(t, w.live())
			})
		}
		if !reached {
			require.Greater(t, k, 20)
			return
		}
	}
}

// The recovery point is lowered before a log is cut. Where that could not be synced, the next attempt writes it again,
// in this life or the next.
func TestAFailedSyncOfTheRecoveryPointBeforeACut(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart=", restart), func(t *testing.T) {
			disk := newDisk()
			d, l := newLog(t, disk, smallConfig())
			appendBatches(t, l, 9)
			require.NoError(t, l.Sync(context.Background()))
			require.NoError(t, d.Checkpoint())
			disk.SetFault(failOn(storagetest.OpSyncDir, ".", syscall.EIO))
			require.ErrorIs(t, l.TruncateTo(4), syscall.EIO)
			require.EqualValues(t, 9, l.EndOffset())
			disk.SetFault(nil)
			if restart {
				disk = disk.Crash(storagetest.KeepAll, nil)
				_, l = reopen(t, disk, smallConfig())
			}
			require.NoError(t, l.TruncateTo(4))
			_, l = reopen(t, disk.Crash(storagetest.LoseAll, nil), smallConfig())
			require.EqualValues(t, 4, l.EndOffset())
			require.Len(t, readAll(t, l), 4)
		})
	}
}

// What a failed sync of the whole file system lost may be of a log that did not ask for it.
func TestAFailedSyncOfEverythingTakesUnsyncedLogsOffline(t *testing.T) {
	disk := newDisk()
	d, one, two := twoLogs(t, disk)
	other := orders
	other.Topic = "idle"
	idle, err := d.CreateLog(other, smallConfig())
	require.NoError(t, err)
	appendBatches(t, idle, 1)
	require.NoError(t, idle.Sync(context.Background()))
	appendBatches(t, two, 1)
	disk.SetFault(failOn(storagetest.OpSyncAll, "", syscall.EIO))
	appendBatches(t, one, 1)
	require.ErrorIs(t, one.Sync(context.Background()), syscall.EIO)
	require.ErrorIs(t, two.Sync(context.Background()), syscall.EIO)
	disk.SetFault(nil)
	appendBatches(t, idle, 1)
	require.NoError(t, idle.Sync(context.Background()))
}

// A log of which nothing but a folder came to be, or no more than a part of its topic id, is made anew: nothing was
// ever appended to it.
func TestAnUnfinishedFolderIsMadeAnew(t *testing.T) {
	for _, text := range []string{"", "version: 0\ntop", "-"} {
		t.Run(text, func(t *testing.T) {
			disk := newDisk()
			d, _ := newLog(t, disk, smallConfig())
			other := orders
			other.Topic = "payments"
			write := func() {
				if text == "-" {
					disk.WriteFile("payments-0/partition.metadata.tmp", nil)
					return
				}
				disk.WriteFile("payments-0/partition.metadata", []byte(text))
			}
			write()
			l, err := d.CreateLog(other, smallConfig()) // the folder of an attempt before
			require.NoError(t, err)
			require.NoError(t, d.DeleteLog(l))
			require.NoError(t, d.Close())
			write()
			for _, stop := range []func(){
				func() { require.NoError(t, d.Close()) },
				func() { disk = disk.Crash(storagetest.KeepAll, nil) },
			} {
				d = openDir(t, disk)
				require.Len(t, must(d.Partitions()), 2)
				stop()
			}
			d = openDir(t, disk)
			l, err = d.OpenLog(other, smallConfig())
			require.NoError(t, err)
			appendBatches(t, l, 2)
			require.NoError(t, l.Sync(context.Background()))
			disk = disk.Crash(storagetest.LoseAll, nil)
			l, err = openDir(t, disk).OpenLog(other, smallConfig())
			require.NoError(t, err)
			require.Len(t, readAll(t, l), 2)
		})
	}
}

// A sync that falls just before the first file of a log is made does not count for that file's name.
func TestASyncBeforeTheFirstFile(t *testing.T) {
	disk := newDisk()
	d, l := newLog(t, disk, smallConfig())
	done := false
	disk.SetFault(func(op storagetest.Op, name string) (time.Duration, error) {
		if op == storagetest.OpCreate && strings.HasSuffix(name, ".log") && !done {
			done = true
			l.RequestSync()
			require.Eventually(t, func() bool { return d.Stats().Commits > 0 }, time.Minute, time.Millisecond)
		}
		return 0, nil
	})
	appendBatches(t, l, 2)
	require.NoError(t, l.Sync(t.Context()))
	require.True(t, done)
	l, err := openDir(t, disk.Crash(storagetest.LoseAll, nil)).OpenLog(orders, smallConfig())
	require.NoError(t, err)
	require.Len(t, readAll(t, l), 2)
}

// Whatever fails while a log is made, and whatever a power cut then leaves of it, the next process can make it.
func TestAFailedCreationLeavesNothingInTheWay(t *testing.T) {
	for _, mode := range storagetest.Modes() {
		for seed := range uint64(60) {
			t.Run(fmt.Sprintf("%s/%d", mode, seed), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 7))
				disk := newDisk()
				d, _ := newLog(t, disk, smallConfig())
				other := orders
				other.Topic = "payments"
				if seed%3 == 0 {
					disk.SetQuota(disk.Used() + 1 + rng.Int64N(40))
				} else {
					n := rng.IntN(5)
					disk.SetFault(func(op storagetest.Op, _ string) (time.Duration, error) {
						if n--; op >= storagetest.OpCreate && n < 0 && (seed%3 == 1 || op != storagetest.OpRemove) {
							return 0, syscall.EIO
						}
						return 0, nil
					})
				}
				_, _ = d.CreateLog(other, smallConfig())
				disk = disk.Crash(mode, rng)
				d = openDir(t, disk)
				l, err := d.OpenLog(other, smallConfig())
				if errors.Is(err, storage.ErrNotFound) {
					l, err = d.CreateLog(other, smallConfig())
				}
				require.NoError(t, err)
				appendBatches(t, l, 1)
				require.NoError(t, l.Sync(context.Background()))
			})
		}
	}
}

// A log that is deleted while it is flushed does not fail for that.
func TestDeletedWhileItIsFlushed(t *testing.T) {
	disk := newDisk()
	d, l := newLog(t, disk, smallConfig())
	appendBatches(t, l, 20)
	require.NoError(t, l.Sync(context.Background()))
	deleted := false
	disk.SetFault(func(op storagetest.Op, name string) (time.Duration, error) {
		if op == storagetest.OpSyncDir && name == "orders-0" && !deleted {
			deleted = true
			require.NoError(t, d.DeleteLog(l))
		}
		return 0, nil
	})
	require.NoError(t, d.Checkpoint())
	require.True(t, deleted)
	require.NoError(t, l.Offline())
	require.NoError(t, d.Close())
}

package storage_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/record"
	"millrace/storage"
	"millrace/storage/storagetest"
)

var (
	compactSeed = flag.Uint64("compact.seed", 0, "run one seed of the model test of compaction")
	compactRuns = flag.Int("compact.runs", 60, "how many seeds the model test of compaction runs")
)

func TestCompactionAgainstAModel(t *testing.T) {
	if *compactSeed != 0 {
		compactionModel(t, *compactSeed)
		return
	}
	for seed := range uint64(*compactRuns) {
		t.Run(fmt.Sprint(seed+1), func(t *testing.T) { compactionModel(t, seed+1) })
	}
}

// compactionModel appends, compacts, truncates nothing, restarts and crashes at random. Readers that pause meanwhile,
// but not for longer than tombstones stay, see the same in the end.
func compactionModel(t *testing.T, seed uint64) {
	k := newKeyedLog(t, seed)
	slow, began := newView(), k.clock.now
	for range 120 {
		for range k.rng.IntN(12) {
			k.random()
		}
		switch k.rng.IntN(6) {
		case 0, 1:
			k.compact(func(o *storage.CompactOptions) {
				if k.rng.IntN(3) == 0 {
					o.MapBytes = 24 * (1 + k.rng.IntN(10)) // full soon
				}
			})
			k.check()
		case 2:
			k.clock.now = k.clock.now.Add(time.Duration(k.rng.IntN(40)) * time.Minute)
		case 3:
			if k.rng.IntN(4) > 0 {
				continue
			}
			require.NoError(t, k.dir.Close())
			k.reopen()
			k.check()
		case 4:
			require.NoError(t, slow.readSome(k.log, slow.next+(k.stable()-slow.next)/2, k.stable()))
		}
		if k.clock.now.Sub(began) > 55*time.Minute {
			require.NoError(t, slow.read(k.log, k.stable()))
			require.Equal(t, k.want(k.stable()).latest, slow.latest, "a reader that takes less than delete.retention.ms")
			slow, began = newView(), k.clock.now
		}
	}
	k.check()
	require.NoError(t, k.dir.Close())
}

// A map that the keys do not fit into, taken share by share, leaves the same as one that they fit into, byte for byte.
func TestSharesOfKeys(t *testing.T) {
	same := 0
	for seed := range uint64(40) {
		var left [2][]record.Batch
		var results [2]storage.CompactResult
		for i, bytes := range []int{1 << 20, 20 * (8 + int(seed))} {
			k := newKeyedLog(t, seed+1)
			for range 60 + k.rng.IntN(60) {
				k.random()
			}
			k.seal()
			k.compact(func(o *storage.CompactOptions) { o.Bound = k.stable() - int64(seed)%3 }) // in the midst of a batch
			k.clock.now = k.clock.now.Add(2 * time.Hour)
			for range 60 {
				k.random()
			}
			k.put(-1, false, record.Zstd, "", "key-1", "-key-2", "key-1", "")
			for _, id := range slices.Sorted(maps.Keys(k.open)) {
				k.end(id, id%2 == 0)
			}
			k.seal()
			results[i] = k.compact(func(o *storage.CompactOptions) { o.MapBytes = bytes })
			k.check()
			var err error
			left[i], err = readBatches(k.log, k.log.StartOffset())
			require.NoError(t, err)
			require.NoError(t, k.dir.Close())
		}
		if results[0].To != results[1].To {
			require.Less(t, results[1].To, results[0].To) // too many shares: the round has ended where the map was full
			continue
		}
		require.Equal(t, left[0], left[1], "seed %d", seed)
		require.Equal(t, results[0].Keyless, results[1].Keyless)
		require.Equal(t, results[0].Dropped, results[1].Dropped)
		if results[1].BytesRead > results[0].BytesRead {
			same++
		}
	}
	require.Greater(t, same, 5)
}

// Rounds leave nothing in the end of what was deleted, and of markers and headers only what is of use.
func TestCompactionComesToAnEnd(t *testing.T) {
	k := newKeyedLog(t, 5)
	for range 300 {
		k.random()
	}
	for id := range k.open {
		k.end(id, id%2 == 0)
	}
	k.seal()
	before, err := k.log.Size()
	require.NoError(t, err)
	k.compact()
	k.check()
	for range 7 { // horizons are set, and pass; markers go after the data, headers after the markers
		k.clock.now = k.clock.now.Add(2 * time.Hour)
		k.live = map[int64]int64{}
		k.seal()
		k.compact()
		k.check()
	}
	size, err := k.log.Size()
	require.NoError(t, err)
	all, err := readBatches(k.log, 0)
	require.NoError(t, err)
	counts, ended := map[string]int{}, map[int64]bool{}
	for _, b := range all {
		switch {
		case b.IsControl() && b.Count() > 0:
			require.True(t, ended[b.ProducerID()], "a marker of a transaction of which nothing is left")
			ended[b.ProducerID()] = false
		case b.Count() == 0:
			counts["headers"]++
		case b.IsTransactional():
			ended[b.ProducerID()] = true
		}
		rd := record.NewReader(b, 1<<20)
		for rec := (record.Record{}); rd.Next(&rec); {
			if rec.Value == nil {
				counts["tombstones"]++
			}
		}
	}
	require.Zero(t, counts["tombstones"])
	segments, err := k.log.Segments()
	require.NoError(t, err)
	require.LessOrEqual(t, counts["headers"], segments)
	require.Less(t, size, before)
	aborted, err := k.log.Aborted(0, everything)
	require.NoError(t, err)
	require.Empty(t, aborted)
}

// crashable is a log with something of everything for compaction to do, at the moment before a round.
func crashable(t *testing.T, seed uint64) *keyedLog {
	k := newKeyedLog(t, seed)
	for range 60 {
		k.random()
	}
	k.seal()
	k.compact()
	k.clock.now = k.clock.now.Add(2 * time.Hour)
	for range 25 {
		k.random()
	}
	k.seal()
	require.NoError(t, k.log.Sync(context.Background()))
	return k
}

func TestCrashAtEveryOperationOfARound(t *testing.T) {
	k := crashable(t, 77)
	began := k.disk.Ops()
	k.compact()
	ops := k.disk.Ops() - began
	require.NoError(t, k.dir.Close())
	require.Greater(t, ops, 30)
	for n := 1; n <= ops; n++ {
		for _, mode := range storagetest.Modes() {
			for _, moment := range []storagetest.Moment{storagetest.Before, storagetest.After} {
				t.Run(fmt.Sprintf("%d %v %d", n, mode, moment), func(t *testing.T) { crashRound(t, n, mode, moment) })
			}
		}
	}
}

func crashRound(t *testing.T, n int, mode storagetest.Mode, moment storagetest.Moment) {
	k := crashable(t, 77)
	k.tried = k.stable()
	k.disk.StopAt(n, moment)
	_, err := k.work.Run(context.Background(), k.log, k.options())
	if err == nil {
		k.log.Size() // the last operation's moment may lie behind the round
	}
	old := k.dir
	k.disk = k.disk.Crash(mode, rand.New(rand.NewPCG(uint64(n), uint64(mode))))
	old.Close()
	k.reopen()
	k.check()
	for _, e := range list(t, k.disk) {
		require.False(t, strings.HasSuffix(e, ".swap") || strings.HasSuffix(e, ".cleaned"), e)
	}
	k.compact()
	k.check()
	require.NoError(t, k.dir.Close())
	k.reopen()
	k.check()
	require.NoError(t, k.dir.Close())
}

func list(t *testing.T, fsys storage.FS) (names []string) {
	entries, err := fsys.List(orders.String())
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name)
	}
	return names
}

// A crash while recovery completes what a crash of a round has left.
func TestCrashWhileASwapIsCompleted(t *testing.T) {
	for n := 1; n < 200; n++ {
		k := crashable(t, 77)
		renames := 0
		k.disk.SetFault(func(op storagetest.Op, name string) (time.Duration, error) {
			if op == storagetest.OpRename && strings.HasSuffix(name, ".log.swap") {
				if renames++; renames == 2 {
					return 0, syscall.EIO
				}
			}
			return 0, nil
		})
		_, err := k.work.Run(context.Background(), k.log, k.options())
		require.ErrorIs(t, err, storage.ErrOffline)
		k.disk.SetFault(nil)
		old := k.dir
		k.disk = k.disk.Crash(storagetest.KeepAll, k.rng)
		old.Close()
		k.disk.StopAt(n, storagetest.After)
		d, err := storage.OpenDir(storage.DirOptions{FS: k.disk, Now: k.clock.Now})
		if err == nil {
			_, err = d.OpenLog(orders, k.conf)
		}
		done := err == nil
		k.disk = k.disk.Crash(storagetest.Prefix, k.rng)
		if d != nil {
			d.Close()
		}
		k.tried = k.stable()
		k.reopen()
		k.check()
		require.NoError(t, k.dir.Close())
		if done {
			return
		}
	}
	t.Fatal("recovery takes too many operations")
}

func TestDiskFullInARound(t *testing.T) {
	for _, free := range []int64{0, 100, 500, 2500} {
		t.Run(fmt.Sprint(free), func(t *testing.T) {
			k := crashable(t, 3)
			require.NoError(t, k.dir.Checkpoint())
			k.conf.FileDeleteDelay = time.Hour // nothing makes room meanwhile
			k.log.Reconfigure(k.conf)
			require.Eventually(t, func() bool { // nor is any room still to be made of the rounds before
				return !slices.ContainsFunc(list(t, k.disk), func(e string) bool { return strings.HasSuffix(e, ".deleted") })
			}, time.Minute, time.Millisecond)
			k.disk.SetQuota(k.disk.Used() + free)
			k.tried = k.stable()
			_, err := k.work.Run(context.Background(), k.log, k.options())
			require.ErrorIs(t, err, storage.ErrDiskFull)
			require.NoError(t, k.log.Offline())
			for _, e := range list(t, k.disk) {
				require.False(t, strings.HasSuffix(e, ".swap") || strings.HasSuffix(e, ".cleaned"), e)
			}
			k.check()
			k.disk.SetQuota(0)
			res := k.compact()
			require.Positive(t, res.Dropped)
			k.check()
			require.NoError(t, k.dir.Close())
		})
	}
}

// A failed write or sync of what compaction makes costs the round and nothing else.
func TestFailedFilesOfARound(t *testing.T) {
	for _, op := range []storagetest.Op{storagetest.OpCreate, storagetest.OpWrite, storagetest.OpSync} {
		for _, suffix := range []string{".log.cleaned", ".index.cleaned", ".timeindex.cleaned", ".txnindex.cleaned"} {
			t.Run(op.String()+suffix, func(t *testing.T) {
				k := crashable(t, 77)
				k.disk.SetFault(func(o storagetest.Op, name string) (time.Duration, error) {
					if o == op && strings.HasSuffix(name, suffix) {
						return 0, syscall.EIO
					}
					return 0, nil
				})
				k.tried = k.stable()
				_, err := k.work.Run(context.Background(), k.log, k.options())
				require.ErrorIs(t, err, syscall.EIO)
				require.NoError(t, k.log.Offline())
				k.disk.SetFault(nil)
				k.check()
				k.compact()
				k.check()
				require.NoError(t, k.dir.Close())
			})
		}
	}
}

func TestReadersBesideRounds(t *testing.T) {
	k := newKeyedLog(t, 11)
	for range 400 {
		k.random()
	}
	for id := range k.open {
		k.end(id, true)
	}
	k.seal()
	to := k.stable()
	want := k.want(to).latest
	var (
		wg      sync.WaitGroup
		stopped atomic.Bool
		reads   atomic.Int64
		failed  = make(chan error, 4)
	)
	for i := range 4 {
		wg.Go(func() {
			for !stopped.Load() || reads.Load() < 8 {
				v := newView()
				err := v.read(k.log, to)
				if err == nil && i == 0 {
					err = k.log.Scan(0, func(record.Batch) error { return nil })
				}
				if err == nil && i == 1 {
					_, _, err = k.log.OffsetForTime(k.clock.now.UnixMilli() - 1000)
				}
				if err == nil && fmt.Sprint(v.latest) != fmt.Sprint(want) {
					err = errors.New("the latest values differ")
				}
				if err != nil {
					failed <- err
					return
				}
				reads.Add(1)
			}
		})
	}
	for range 30 {
		k.compact(func(o *storage.CompactOptions) { o.MapBytes = 24 * 6; o.DeleteRetention = 1000 * time.Hour })
	}
	for range 5 { // now that all is clean, every round merges and sets horizons
		k.put(-1, false, record.None, "one more")
		k.seal()
		k.compact(func(o *storage.CompactOptions) { o.DeleteRetention = 1000 * time.Hour })
	}
	stopped.Store(true)
	wg.Wait()
	select {
	case err := <-failed:
		t.Fatal(err)
	default:
	}
	require.NoError(t, k.dir.Close())
}

// A truncation ends the round under way, lowers the cleaner checkpoint, and leaves a log that can be recovered.
func TestTruncationStopsARound(t *testing.T) {
	k := crashable(t, 21)
	cut := k.batches[len(k.batches)/2].BaseOffset()
	reached, truncated := make(chan struct{}), make(chan error, 1)
	var once sync.Once
	var wg sync.WaitGroup
	o := k.options()
	o.Pace = func(ctx context.Context, _ int) error {
		once.Do(func() { close(reached) })
		<-ctx.Done()
		return ctx.Err()
	}
	k.put(-1, false, record.None, "large-"+strings.Repeat("x", 100_000)) // so that there is a pace
	k.seal()
	wg.Go(func() {
		<-reached
		truncated <- k.log.TruncateTo(cut)
	})
	o.Bound = k.log.EndOffset()
	_, err := k.work.Run(context.Background(), k.log, o)
	require.ErrorIs(t, err, storage.ErrCompactionStopped)
	require.NoError(t, <-truncated)
	wg.Wait()
	require.LessOrEqual(t, k.log.CleanedOffset(), k.log.EndOffset())
	require.LessOrEqual(t, k.log.EndOffset(), cut)
	require.NoError(t, k.dir.Close())
}

// Cut in the midst of what compaction has thinned out, a log ends behind the batch before, at every moment of a crash.
func TestTruncationIntoGaps(t *testing.T) {
	for n := 1; n < 60; n++ {
		k := newKeyedLog(t, 2)
		k.put(-1, false, record.None, "first")
		for i := range 40 {
			k.put(-1, false, record.None, fmt.Sprintf("k%d", i%7))
		}
		k.seal()
		k.compact()
		all := readGapped(t, k.log)
		cut := int64(-1)
		for i := 1; i < len(all); i++ {
			if gap := all[i].BaseOffset() - all[i-1].NextOffset(); gap > 2 {
				cut = all[i-1].NextOffset() + gap/2
			}
		}
		require.Positive(t, cut)
		require.NoError(t, k.dir.Checkpoint())
		k.disk.StopAt(n, storagetest.After)
		err := k.log.TruncateTo(cut)
		old := k.dir
		k.disk = k.disk.Crash(storagetest.Prefix, k.rng)
		old.Close()
		k.openDir()
		var opened error
		k.log, opened = k.dir.OpenLog(orders, k.conf)
		require.NoError(t, opened)
		readGapped(t, k.log)
		require.LessOrEqual(t, k.log.CleanedOffset(), max(k.log.EndOffset(), cut))
		require.NoError(t, k.dir.Close())
		if err == nil {
			return
		}
	}
	t.Fatal("a truncation takes too many operations")
}

func readGapped(t *testing.T, l *storage.Log) []record.Batch {
	all, err := readBatches(l, l.StartOffset())
	require.NoError(t, err)
	return all
}

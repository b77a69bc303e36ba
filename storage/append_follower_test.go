package storage_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"millrace/record"
	"millrace/storage"
	"millrace/storage/storagetest"
)

// join gives batches as a leader sends them.
func join(batches []record.Batch) (all []byte) {
	for _, b := range batches {
		all = append(all, b...)
	}
	return all
}

// readSparse reads a whole log that may have gaps.
func readSparse(t testing.TB, l *storage.Log) []record.Batch {
	t.Helper()
	all, err := readBatches(l, l.StartOffset())
	require.NoError(t, err)
	return all
}

// leaderLog draws batches as a leader's log holds them after compaction: with gaps, and epochs that grow.
func leaderLog(rng *rand.Rand, count int) (all []record.Batch) {
	offset, epoch, ts := int64(0), int32(0), int64(1000)
	for range count {
		if rng.IntN(8) == 0 {
			offset += int64(rng.IntN(5))
		}
		if rng.IntN(10) == 0 {
			epoch += int32(1 + rng.IntN(2))
		}
		ts += int64(rng.IntN(3000)) - 500
		b := makeBatch(offset, epoch, ts, 1+rng.IntN(3), rng.IntN(80))
		all, offset = append(all, b), b.NextOffset()
	}
	return all
}

// A follower that takes a leader's batches, however they are cut, has the leader's files: log and indexes, batch
// by batch, and epochs.
func TestFollowersFilesAreTheLeaders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		c := storage.DefaultConfig()
		c.SegmentBytes = int64(rapid.IntRange(200, 3000).Draw(t, "segment"))
		c.IndexInterval = rapid.SampledFrom([]int{-1, 100, 1000}).Draw(t, "interval")
		c.IndexBytes = rapid.SampledFrom([]int{24, 48, 4096}).Draw(t, "index")
		var batches []record.Batch
		for _, b := range leaderLog(rng, 40) { // without gaps: a leader that appends leaves none
			b.SetBaseOffset(int64(len(batches)))
			if n := len(batches); n > 0 {
				b.SetBaseOffset(batches[n-1].NextOffset())
			}
			batches = append(batches, b)
		}
		one, other := storagetest.New(), storagetest.New()
		write := func(disk *storagetest.FS, do func(l *storage.Log)) {
			d, err := storage.OpenDir(storage.DirOptions{FS: disk})
			require.NoError(t, err)
			l, err := d.CreateLog(orders, c)
			require.NoError(t, err)
			do(l)
			require.NoError(t, d.Close())
		}
		write(one, func(l *storage.Log) {
			for _, b := range batches {
				_, err := l.Append(b)
				require.NoError(t, err)
			}
		})
		write(other, func(l *storage.Log) {
			for at := 0; at < len(batches); {
				n := min(1+rng.IntN(20), len(batches)-at)
				_, err := l.AppendFollower(join(batches[at : at+n]))
				require.NoError(t, err)
				at += n
			}
		})
		require.Equal(t, one.Files(), other.Files())
		for _, name := range one.Files() {
			want, err := one.ReadFile(name)
			require.NoError(t, err)
			got, err := other.ReadFile(name)
			require.NoError(t, err)
			require.Equal(t, want, got, name)
		}
	})
}

func TestFollowerTakesGaps(t *testing.T) {
	disk := storagetest.New()
	d, l := newLog(t, disk, smallConfig())
	batches := leaderLog(rand.New(rand.NewPCG(3, 3)), 60)
	res, err := l.AppendFollower(join(batches))
	require.NoError(t, err)
	require.True(t, res.Rolled)
	require.Equal(t, batches, readSparse(t, l))
	require.NoError(t, l.Sync(t.Context()))
	next := disk.Crash(storagetest.LoseAll, rand.New(rand.NewPCG(1, 1)))
	d.Close()
	_, l = reopen(t, next, smallConfig())
	require.Equal(t, batches, readSparse(t, l))
	for _, b := range batches {
		epoch, err := l.EpochFor(b.BaseOffset())
		require.NoError(t, err)
		require.Equal(t, b.LeaderEpoch(), epoch)
	}
}

// What does not fit, or is damaged, is refused before anything is written.
func TestFollowerRefuses(t *testing.T) {
	_, l := newLog(t, storagetest.New(), smallConfig())
	_, err := l.AppendFollower(makeBatch(0, 4, 1000, 3, 10))
	require.NoError(t, err)
	good := func() record.Batch { return makeBatch(3, 4, 1000, 2, 10) }
	for name, change := range map[string]func(b record.Batch) []byte{
		"offset below the end": func(b record.Batch) []byte { b.SetBaseOffset(2); return b },
		"negative offset":      func(b record.Batch) []byte { b.SetBaseOffset(-5); return b },
		"offset at its limit":  func(b record.Batch) []byte { b.SetBaseOffset(1<<63 - 2); return b },
		"offset far away":      func(b record.Batch) []byte { b.SetBaseOffset(1 << 40); return b },
		"older epoch":          func(b record.Batch) []byte { b.SetLeaderEpoch(3); return b },
		"no epoch":             func(b record.Batch) []byte { b.SetLeaderEpoch(-1); return b },
		"a bit":                func(b record.Batch) []byte { b[70] ^= 4; return b },
		"cut":                  func(b record.Batch) []byte { return b[:len(b)-1] },
		"too long":             func(b record.Batch) []byte { return append(b, 0) },
		"magic":                func(b record.Batch) []byte { b[16] = 1; return b },
		"negative delta":       func(b record.Batch) []byte { putLastOffsetDelta(b, -1); b.Seal(); return b },
		"second overlaps":      func(b record.Batch) []byte { return append(b, makeBatch(4, 4, 1000, 1, 1)...) },
		"second is older": func(b record.Batch) []byte {
			b.SetLeaderEpoch(6)
			return append(b, makeBatch(5, 5, 1000, 1, 1)...)
		},
	} {
		_, err := l.AppendFollower(change(good()))
		require.ErrorIs(t, err, record.ErrCorrupt, name)
		require.EqualValues(t, 3, l.EndOffset(), name)
	}
	_, err = l.AppendFollower(nil)
	require.NoError(t, err)
	_, err = l.AppendFollower(good())
	require.NoError(t, err)
	require.Len(t, readSparse(t, l), 2)
}

// A disk that takes part of what the leader sent keeps whole batches of it, and goes on when there is room.
func TestFollowerOnADiskThatFills(t *testing.T) {
	batches := leaderLog(rand.New(rand.NewPCG(5, 5)), 40)
	for quota := int64(1); ; quota += 97 {
		disk := storagetest.New()
		d, l := newLog(t, disk, smallConfig())
		disk.SetQuota(disk.Used() + quota)
		_, err := l.AppendFollower(join(batches))
		if err != nil {
			require.ErrorIs(t, err, storage.ErrDiskFull)
		}
		have := readSparse(t, l)
		require.Equal(t, batches[:len(have)], append([]record.Batch{}, have...))
		disk.SetQuota(0)
		_, again := l.AppendFollower(join(batches[len(have):]))
		require.NoError(t, again)
		require.Equal(t, batches, readSparse(t, l))
		require.NoError(t, d.Close())
		if err == nil {
			return
		}
	}
}

// follow is a follower's life on a disk that may stop: it takes batches, syncs, is told to truncate, and takes what
// comes instead.
func follow(l *storage.Log, all []record.Batch, rng *rand.Rand, synced *int64) error {
	take := func(from, n int) error {
		if _, err := l.AppendFollower(join(all[from:min(from+n, len(all))])); err != nil {
			return err
		}
		if rng.IntN(2) == 0 {
			return nil
		}
		if err := l.Sync(context.Background()); err != nil {
			return err
		}
		*synced = l.SyncedOffset()
		return nil
	}
	for at := 0; at < len(all); {
		n := 1 + rng.IntN(9)
		if err := take(at, n); err != nil {
			return err
		}
		at = min(at+n, len(all))
		if rng.IntN(4) == 0 && at > 0 {
			at -= rng.IntN(min(at, 6))
			offset := all[max(at-1, 0)].NextOffset()
			if at == 0 {
				offset = 0
			}
			*synced = min(*synced, offset)
			if err := l.TruncateTo(offset); err != nil {
				return err
			}
		}
	}
	return nil
}

// Wherever a follower's disk stops, what it had synced and not been told to truncate is there, and nothing that is
// not the leader's.
func TestFollowerCrashesAtEveryOperation(t *testing.T) {
	all := leaderLog(rand.New(rand.NewPCG(9, 9)), 50)
	for _, mode := range storagetest.Modes() {
		t.Run(mode.String(), func(t *testing.T) {
			for k := 1; ; k++ {
				if testing.Short() {
					k += 4
				}
				if !followAndCrash(t, all, mode, k) {
					require.Greater(t, k, 60, "the workload does too little")
					return
				}
			}
		})
	}
}

// followAndCrash stops the disk at its k-th operation and tells whether it came so far.
func followAndCrash(t *testing.T, all []record.Batch, mode storagetest.Mode, k int) bool {
	disk, rng := storagetest.New(), rand.New(rand.NewPCG(uint64(k), uint64(mode)))
	d, l := newLog(t, disk, smallConfig())
	disk.StopAt(k, storagetest.Moment(k%2))
	var synced int64
	err := follow(l, all, rng, &synced)
	stopped := disk.Stopped()
	require.True(t, err == nil || stopped, "%v", err)
	next := disk.Crash(mode, rng)
	d.Close()
	d, err = storage.OpenDir(storage.DirOptions{FS: next})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	l, err = d.OpenLog(orders, smallConfig())
	if errors.Is(err, storage.ErrNotFound) {
		require.Zero(t, synced)
		return stopped
	}
	require.NoError(t, err, "k=%d", k)
	have := readSparse(t, l)
	require.Equal(t, all[:len(have)], append([]record.Batch{}, have...), "k=%d", k)
	require.GreaterOrEqual(t, l.EndOffset(), synced, "k=%d", k)
	_, err = l.AppendFollower(join(all[len(have):]))
	require.NoError(t, err)
	require.Equal(t, all, readSparse(t, l), "k=%d", k)
	return stopped
}

// Whatever bytes come, a follower takes whole and sound batches or nothing, and can be opened again.
func FuzzAppendFollower(f *testing.F) {
	sound := makeBatch(0, 1, 1000, 2, 20)
	f.Add([]byte(sound), []byte(nil))
	f.Add([]byte(sound), []byte(makeBatch(2, 1, 1000, 1, 3)))
	f.Add([]byte(sound), []byte(makeBatch(900, 7, -1, 1, 3)))
	f.Add([]byte(sound)[:40], []byte(sound))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		disk := storagetest.New()
		d, l := newLog(t, disk, smallConfig())
		for _, p := range [][]byte{first, second} {
			before := l.EndOffset()
			_, err := l.AppendFollower(p)
			if err != nil {
				require.ErrorIs(t, err, record.ErrCorrupt, fmt.Sprintf("%x", p))
				require.Equal(t, before, l.EndOffset())
			}
		}
		all := readSparse(t, l)
		next := disk.Crash(storagetest.KeepAll, rand.New(rand.NewPCG(1, 1)))
		d.Close()
		_, l = reopen(t, next, smallConfig())
		require.Equal(t, all, readSparse(t, l))
	})
}

// A log start that a follower took over from its leader is not lost when the segments below it are gone.
func TestRaisedStartOutlivesItsSegments(t *testing.T) {
	disk := newDisk()
	_, l := newLog(t, disk, smallConfig())
	end := appendBatches(t, l, 40)
	require.NoError(t, l.Sync(t.Context()))
	require.NoError(t, l.RaiseStart(end-12))
	removed, err := l.ApplyRetention(time.UnixMilli(2000), end)
	require.NoError(t, err)
	require.Positive(t, removed)
	for _, mode := range storagetest.Modes() {
		_, again := reopen(t, disk.Copy().Crash(mode, rand.New(rand.NewPCG(1, 1))), smallConfig())
		require.Equal(t, end-12, again.StartOffset(), "%v", mode)
		require.Equal(t, end, again.EndOffset(), "%v", mode)
	}
}

// A raised log start counts as saved once a crash does not bring back the one before.
func TestSavedStart(t *testing.T) {
	disk := newDisk()
	d, l := newLog(t, disk, smallConfig())
	end := appendBatches(t, l, 40)
	require.NoError(t, l.Sync(t.Context()))
	require.Zero(t, l.SavedStart())
	saved := func() {
		t.Helper()
		for _, mode := range storagetest.Modes() {
			_, again := reopen(t, disk.Copy().Crash(mode, rand.New(rand.NewPCG(1, 1))), smallConfig())
			require.GreaterOrEqual(t, again.StartOffset(), l.SavedStart(), "%v", mode)
		}
	}
	require.NoError(t, l.RaiseStart(end-12))
	require.Zero(t, l.SavedStart())
	require.NoError(t, d.SaveLogStarts())
	require.Equal(t, end-12, l.SavedStart())
	saved()
	disk.SetFault(func(storagetest.Op, string) (time.Duration, error) { return 0, syscall.EIO })
	require.NoError(t, l.RaiseStart(end-6))
	require.Error(t, d.SaveLogStarts())
	disk.SetFault(nil)
	require.Equal(t, end-12, l.SavedStart())
	saved()
	require.NoError(t, l.SetStart(end-3))
	require.Equal(t, end-3, l.SavedStart())
	saved()
	require.NoError(t, l.TruncateFullyAndStartAt(5))
	require.Equal(t, int64(5), l.SavedStart())
	saved()
	require.NoError(t, d.Close())
	_, l = reopen(t, disk, smallConfig())
	require.Equal(t, int64(5), l.SavedStart())
}

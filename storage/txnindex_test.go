package storage_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/record"
	"millrace/storage"
	"millrace/storage/storagetest"
)

// txnLog is a log with transactions on it, and what was written to it.
type txnLog struct {
	disk *storagetest.FS
	dir  *storage.Dir
	log  *storage.Log
	all  []record.Batch // what is in the log, as far as anybody knows
	now  int64
}

func newTxnLog(t testing.TB, disk *storagetest.FS) *txnLog {
	l := &txnLog{disk: disk, now: 1000}
	l.dir, l.log = newLog(t, disk, smallConfig())
	return l
}

func (l *txnLog) end() int64 {
	if n := len(l.all); n > 0 {
		return l.all[n-1].NextOffset()
	}
	return l.log.StartOffset()
}

// data builds a batch of a producer's transaction, or of none where the id is -1.
func (l *txnLog) data(id int64) record.Batch {
	var b record.Builder
	if id >= 0 {
		b.SetProducer(id, 0, 0)
		b.SetTransactional()
	}
	l.now++
	for i := range 2 {
		b.Append(&record.Record{Timestamp: l.now, Key: []byte("k"), Value: fmt.Appendf(nil, "%d of %d", i, id)})
	}
	return l.place(b.Build())
}

func (l *txnLog) marker(id int64, kind record.ControlType) record.Batch {
	l.now++
	return l.place(record.AppendEndTxnMarker(nil, record.EndTxnMarker{Type: kind, ProducerID: id, Timestamp: l.now}))
}

func (l *txnLog) place(b record.Batch) record.Batch {
	b.SetBaseOffset(l.end())
	b.SetLeaderEpoch(1)
	l.all = append(l.all, b)
	return b
}

// append writes the newest of all as a leader does.
func (l *txnLog) append(b record.Batch) error {
	var err error
	if t := l.ended(b); t != nil {
		_, err = l.log.AppendAborting(b, *t)
	} else {
		_, err = l.log.Append(b)
	}
	return err
}

// follow writes batches, the newest of all, as a follower does.
func (l *txnLog) follow(batches ...record.Batch) error {
	res, err := l.log.AppendFollower(slices.Concat(batches...))
	if err != nil {
		return err
	}
	for _, b := range batches {
		if t := l.ended(b); t != nil {
			if err := l.log.AppendAborted(*t); err != nil {
				return err
			}
		}
	}
	if res.Aborts {
		l.log.SettleAborted()
	}
	return nil
}

// ended is the entry of a marker, nil for other batches.
func (l *txnLog) ended(b record.Batch) *storage.AbortedTxn {
	for _, t := range abortedIn(l.all) {
		if t.LastOffset == b.BaseOffset() {
			return &t
		}
	}
	return nil
}

// abortedIn finds the aborted transactions of a log from its batches.
func abortedIn(all []record.Batch) (found []storage.AbortedTxn) {
	open := map[int64]int64{}
	for _, b := range all {
		id := b.ProducerID()
		m, ends := b.EndTxnMarker()
		first, known := open[id]
		switch {
		case ends && known:
			delete(open, id)
			if m.Type == record.ControlAbort {
				t := storage.AbortedTxn{ProducerID: id, FirstOffset: first, LastOffset: b.BaseOffset(), LastStable: b.NextOffset()}
				for _, other := range open {
					t.LastStable = min(t.LastStable, other)
				}
				found = append(found, t)
			}
		case !ends && b.IsTransactional() && !known:
			open[id] = b.BaseOffset()
		}
	}
	return found
}

// rebuild is what a log's owner does when entries are missing.
func (l *txnLog) rebuild() error {
	return l.log.RebuildAborted(func(from int64) error {
		for _, t := range abortedIn(l.all) {
			if t.LastOffset >= max(from, l.log.StartOffset()) {
				if err := l.log.AppendAborted(t); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// check compares the index with the log, in ranges of all kinds.
func (l *txnLog) check(t testing.TB) {
	t.Helper()
	truth := abortedIn(l.all)
	if slices.ContainsFunc(l.all, record.Batch.IsTransactional) {
		transactional, err := l.log.Transactional()
		require.NoError(t, err)
		require.True(t, transactional)
	}
	start := l.log.StartOffset()
	for from := start; from <= l.end(); from += 3 {
		for _, to := range []int64{from + 1, from + 7, l.end()} {
			got, err := l.log.Aborted(from, to)
			if errors.Is(err, storage.ErrAbortedLost) {
				require.NoError(t, l.rebuild())
				got, err = l.log.Aborted(from, to)
			}
			require.NoError(t, err)
			var want []storage.AbortedTxn
			for _, a := range truth {
				if a.FirstOffset < to && a.LastOffset >= from {
					want = append(want, a)
				}
			}
			require.Equal(t, want, got, "%d to %d", from, to)
		}
	}
}

// The file is Kafka's, byte for byte.
func TestTxnIndexBytes(t *testing.T) {
	disk := newDisk()
	l := newTxnLog(t, disk)
	for range 21 { // 42 records
		require.NoError(t, l.append(l.data(-1)))
	}
	data := l.data(1000)
	require.NoError(t, l.append(data))
	require.NoError(t, l.append(l.data(-1)))
	abort := l.marker(1000, record.ControlAbort)
	_, err := l.log.AppendAborting(abort, storage.AbortedTxn{
		ProducerID: 1000, FirstOffset: 42, LastOffset: 46, LastStable: 40,
	})
	require.NoError(t, err)
	require.NoError(t, l.dir.Close())
	names := slices.DeleteFunc(disk.Files(), func(n string) bool { return !strings.HasSuffix(n, ".txnindex") })
	require.Len(t, names, 1, "an index without entries has no file")
	file, err := disk.ReadFile(names[0])
	require.NoError(t, err)
	require.Equal(t, "000000000000000003e8000000000000002a000000000000002e0000000000000028", hex.EncodeToString(file))
}

// A transaction without data, or one that was committed, has no entry; others are found wherever their data is.
func TestAbortedTransactions(t *testing.T) {
	l := newTxnLog(t, newDisk())
	transactional, err := l.log.Transactional()
	require.NoError(t, err)
	require.False(t, transactional)
	require.NoError(t, l.append(l.data(-1)))
	transactional, err = l.log.Transactional()
	require.NoError(t, err)
	require.False(t, transactional)
	for i := range int64(40) {
		require.NoError(t, l.append(l.data(i%4)))
		require.NoError(t, l.append(l.data(4)))
		if i%3 == 0 {
			require.NoError(t, l.append(l.marker(i%4, record.ControlType(i%2))))
		}
	}
	require.NoError(t, l.append(l.marker(4, record.ControlAbort)))
	require.NoError(t, l.append(l.marker(5, record.ControlAbort)))
	n, err := l.log.Segments()
	require.NoError(t, err)
	require.Greater(t, n, 5)
	l.check(t)
	require.NoError(t, l.dir.Close())
	l.dir, l.log = reopen(t, l.disk, smallConfig())
	transactional, err = l.log.Transactional()
	require.NoError(t, err)
	require.True(t, transactional)
	require.False(t, l.log.AbortedLost())
	l.check(t)
	require.NoError(t, l.truncate(60))
	l.check(t)
	require.NoError(t, l.log.SetStart(20))
	l.check(t)
	require.NoError(t, l.log.TruncateFullyAndStartAt(100))
	l.all = nil
	require.NoError(t, l.append(l.data(1)))
	require.NoError(t, l.append(l.marker(1, record.ControlAbort)))
	l.check(t)
}

func (l *txnLog) truncate(to int64) error {
	if err := l.log.TruncateTo(to); err != nil {
		return err
	}
	l.all = slices.DeleteFunc(l.all, func(b record.Batch) bool { return b.BaseOffset() >= l.log.EndOffset() })
	return nil
}

// Damage to an index is noticed, and the index made anew.
func TestDamagedTxnIndex(t *testing.T) {
	for name, spoil := range map[string]func(file []byte) []byte{
		"cut":       func(file []byte) []byte { return file[:len(file)-1] },
		"version":   func(file []byte) []byte { file[35] = 1; return file },
		"offsets":   func(file []byte) []byte { file[len(file)-20] ^= 0xff; return file },
		"order":     func(file []byte) []byte { return append(slices.Clone(file[34:68]), file[:34]...) },
		"zeros":     func(file []byte) []byte { return make([]byte, len(file)) },
		"no entry":  func(file []byte) []byte { return append(file, make([]byte, 34)...) },
		"other log": func(file []byte) []byte { file[34+2+16] = 0x7f; return file },
	} {
		t.Run(name, func(t *testing.T) {
			disk := newDisk()
			l := newTxnLog(t, disk)
			for i := range int64(30) {
				require.NoError(t, l.append(l.data(i)))
				require.NoError(t, l.append(l.marker(i, record.ControlAbort)))
			}
			require.NoError(t, l.dir.Close())
			file := "orders-0/00000000000000000000.txnindex"
			data, err := disk.ReadFile(file)
			require.NoError(t, err)
			require.GreaterOrEqual(t, len(data), 68)
			disk.WriteFile(file, spoil(data))
			l.dir, l.log = reopen(t, disk, smallConfig())
			_, err = l.log.Aborted(0, l.end())
			require.ErrorIs(t, err, storage.ErrAbortedLost)
			require.NoError(t, l.append(l.data(99)))
			require.NoError(t, l.append(l.marker(99, record.ControlAbort)))
			l.check(t)
			require.NoError(t, l.dir.Close())
			l.dir, l.log = reopen(t, disk, smallConfig())
			require.False(t, l.log.AbortedLost())
			l.check(t)
		})
	}
}

// step does one random thing.
func (l *txnLog) step(rng *rand.Rand) error {
	id := int64(rng.IntN(4))
	switch n := rng.IntN(20); {
	case n < 7:
		return l.append(l.data(id - 1))
	case n < 11:
		return l.append(l.marker(id, record.ControlType(rng.IntN(2))))
	case n < 14:
		return l.follow(l.data(id), l.marker(id, record.ControlAbort), l.data(id))
	case n < 15:
		return l.log.Sync(context.Background())
	case n < 17:
		return l.dir.Checkpoint()
	case n < 18:
		return l.truncate(max(l.end()-int64(rng.IntN(12)), l.log.StartOffset()))
	case n < 19:
		return l.log.SetStart(l.log.StartOffset() + int64(rng.IntN(3)))
	default:
		if err := l.dir.Close(); err != nil {
			return err
		}
		return l.open()
	}
}

func (l *txnLog) open() error {
	d, err := storage.OpenDir(storage.DirOptions{FS: l.disk})
	if err != nil {
		return err
	}
	l.dir = d
	if l.log, err = d.OpenLog(orders, smallConfig()); err != nil {
		return err
	}
	l.all = slices.DeleteFunc(l.all, func(b record.Batch) bool { return b.BaseOffset() >= l.log.EndOffset() })
	return nil
}

// A crash at any moment loses no entry for good.
func TestTxnIndexAtEveryCrash(t *testing.T) {
	const steps = 60
	course := func(t *testing.T, seed uint64, k int, when storagetest.Moment) *txnLog {
		l := newTxnLog(t, newDisk())
		l.disk.StopAt(k, when)
		rng := rand.New(rand.NewPCG(seed, 7))
		for range steps {
			if err := l.step(rng); err != nil {
				require.True(t, l.disk.Stopped(), "%v", err)
				break
			}
			synctest.Wait()
		}
		return l
	}
	lost := 0
	for seed := range uint64(2) {
		total := 0
		synctest.Test(t, func(t *testing.T) {
			l := course(t, seed, 1<<30, storagetest.Before)
			total = l.disk.Ops()
			l.check(t)
			_ = l.dir.Close()
		})
		stride := 1
		if testing.Short() {
			stride = 11
		}
		for k := 30; k <= total; k += stride {
			for _, mode := range storagetest.Modes() {
				synctest.Test(t, func(t *testing.T) {
					l := course(t, seed, k, storagetest.Moment(k%2))
					crashed := l.disk.Crash(mode, rand.New(rand.NewPCG(uint64(k), 1)))
					_ = l.dir.Close()
					synctest.Wait()
					l.disk = crashed
					if err := l.open(); err != nil && errors.Is(err, storage.ErrNotFound) {
						return // the crash came before anything was durable
					} else {
						require.NoError(t, err, "operation %d", k)
					}
					defer func() { _ = l.dir.Close() }()
					if l.log.AbortedLost() {
						lost++
						require.NoError(t, l.rebuild())
					}
					l.check(t)
					require.NoError(t, l.append(l.data(9)))
					require.NoError(t, l.append(l.marker(9, record.ControlAbort)))
					require.NoError(t, l.dir.Close())
					require.NoError(t, l.open())
					l.check(t)
				})
			}
		}
	}
	require.NotZero(t, lost, "no crash lost an entry")
}

// The recovery point of a follower waits for the entries of its markers.
func TestRecoveryPointWaitsForEntries(t *testing.T) {
	disk := newDisk()
	l := newTxnLog(t, disk)
	batches := []record.Batch{l.data(1), l.marker(1, record.ControlAbort), l.data(2)}
	res, err := l.log.AppendFollower(slices.Concat(batches...))
	require.NoError(t, err)
	require.True(t, res.Aborts)
	require.NoError(t, l.log.Sync(t.Context()))
	require.NoError(t, l.dir.Checkpoint())
	after := &txnLog{disk: disk.Copy().Crash(storagetest.LoseAll, rand.New(rand.NewPCG(1, 1))), all: slices.Clone(l.all)}
	require.NoError(t, after.open())
	require.Equal(t, int64(5), after.log.EndOffset())
	require.True(t, after.log.AbortedLost())
	after.check(t)
	require.NoError(t, after.dir.Close())
	require.NoError(t, l.log.AppendAborted(*l.ended(batches[1])))
	l.log.SettleAborted()
	require.NoError(t, l.dir.Checkpoint())
	after = &txnLog{disk: disk.Copy().Crash(storagetest.LoseAll, rand.New(rand.NewPCG(1, 1))), all: slices.Clone(l.all)}
	require.NoError(t, after.open())
	require.False(t, after.log.AbortedLost())
	after.check(t)
	require.NoError(t, after.dir.Close())
}

// A log whose index is not complete is not closed as if it were.
func TestCloseWithoutEntries(t *testing.T) {
	l := newTxnLog(t, newDisk())
	_, err := l.log.AppendFollower(slices.Concat(l.data(1), l.marker(1, record.ControlAbort)))
	require.NoError(t, err)
	require.ErrorIs(t, l.dir.Close(), storage.ErrAbortedLost)
	require.NoError(t, l.open())
	require.True(t, l.log.AbortedLost())
	l.check(t)
	require.NoError(t, l.dir.Close())
}

// Retention takes the entries of what it removes.
func TestRetentionOfTxnIndexes(t *testing.T) {
	l := newTxnLog(t, newDisk())
	for i := range int64(40) {
		require.NoError(t, l.append(l.data(i)))
		require.NoError(t, l.append(l.marker(i, record.ControlAbort)))
	}
	c := smallConfig()
	c.RetentionBytes = 2000
	l.log.Reconfigure(c)
	removed, err := l.log.ApplyRetention(time.UnixMilli(l.now), l.end())
	require.NoError(t, err)
	require.Positive(t, removed)
	l.check(t)
	require.NoError(t, l.dir.Close())
	bases := map[string]bool{}
	for _, n := range l.disk.Files() {
		if strings.HasSuffix(n, ".log") {
			bases[strings.TrimSuffix(n, ".log")] = true
		}
	}
	for _, n := range l.disk.Files() {
		if base, ok := strings.CutSuffix(n, ".txnindex"); ok {
			require.True(t, bases[base], "%s is left", n)
		}
	}
}

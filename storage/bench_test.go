package storage_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/record"
	"millrace/storage"
)

// benchDir opens a directory on the real disk.
func benchDir(b *testing.B, policy storage.SyncPolicy) *storage.Dir {
	b.Helper()
	fsys, err := storage.OSFS(b.TempDir())
	require.NoError(b, err)
	return openDir(b, fsys, func(o *storage.DirOptions) { o.SyncPolicy = policy })
}

func benchLog(b *testing.B, policy storage.SyncPolicy) (*storage.Dir, *storage.Log) {
	b.Helper()
	d := benchDir(b, policy)
	c := storage.DefaultConfig()
	c.SegmentBytes = 64 << 20
	c.RetentionBytes = 64 << 20 // the disk's pages are used again and again
	c.FileDeleteDelay = 0
	l, err := d.CreateLog(orders, c)
	require.NoError(b, err)
	return d, l
}

// appendNext stamps and appends a batch, and bounds what the log keeps.
func appendNext(b testing.TB, l *storage.Log, batch record.Batch) {
	batch.SetBaseOffset(l.EndOffset())
	r, err := l.Append(batch)
	if err != nil {
		b.Fatal(err)
	}
	if r.Rolled {
		if _, err := l.ApplyRetention(time.Time{}, math.MaxInt64); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{1 << 10, 100 << 10} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			_, l := benchLog(b, storage.SyncNever)
			batch := makeBatch(0, 1, 1, 1, size)
			b.SetBytes(int64(len(batch)))
			b.ReportAllocs()
			for b.Loop() {
				appendNext(b, l, batch)
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	_, l := benchLog(b, storage.SyncNever)
	batch := makeBatch(0, 1, 1, 1, 1<<10)
	for range 60_000 {
		appendNext(b, l, batch)
	}
	buf := make([]byte, 1<<20)
	alloc := func(n int) []byte { return buf[:n] }
	b.Run("1MiB onward", func(b *testing.B) { // as a consumer that catches up
		b.SetBytes(1 << 20)
		b.ReportAllocs()
		from := l.StartOffset()
		for b.Loop() {
			r, err := l.Read(from, 1<<20, math.MaxInt64, alloc)
			if err != nil {
				b.Fatal(err)
			}
			if from = r.NextOffset; from+2000 > l.EndOffset() {
				from = l.StartOffset()
			}
		}
	})
	b.Run("one batch anywhere", func(b *testing.B) { // the index is searched each time
		b.ReportAllocs()
		span := l.EndOffset() - l.StartOffset()
		from := int64(0)
		for b.Loop() {
			from = (from + 7919) % span
			if _, err := l.Read(l.StartOffset()+from, 1, math.MaxInt64, alloc); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("tail", func(b *testing.B) { // the batch just appended
		b.ReportAllocs()
		from := l.EndOffset() - 1
		for b.Loop() {
			if _, err := l.Read(from, 1<<20, math.MaxInt64, alloc); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// Writers that append to one log and wait until it is durable, as a leader does it.
func BenchmarkGroupCommit(b *testing.B) {
	for _, writers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("%d writers", writers), func(b *testing.B) {
			d, l := benchLog(b, storage.SyncAck)
			var mu sync.Mutex
			waiters := newWaiterList(l)
			var left atomic.Int64
			left.Store(int64(b.N))
			b.SetBytes(1 << 10)
			b.ResetTimer()
			var wg sync.WaitGroup
			for range writers {
				wg.Go(func() {
					batch := makeBatch(0, 1, 1, 1, 1<<10)
					done := make(chan struct{}, 1)
					for left.Add(-1) >= 0 {
						mu.Lock()
						appendNext(b, l, batch)
						end := l.EndOffset()
						waiters.add(end, done)
						mu.Unlock()
						l.RequestSync()
						<-done
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/float64(d.Stats().Commits), "appends/commit")
		})
	}
}

// waiterList wakes, in one sweep, who waits for offsets that are now durable.
type waiterList struct {
	mu      sync.Mutex
	offsets []int64
	done    []chan struct{}
}

func newWaiterList(l *storage.Log) *waiterList {
	w := &waiterList{}
	l.OnSynced(func(synced int64) {
		w.mu.Lock()
		defer w.mu.Unlock()
		n := 0
		for n < len(w.offsets) && w.offsets[n] <= synced {
			w.done[n] <- struct{}{}
			n++
		}
		w.offsets = append(w.offsets[:0], w.offsets[n:]...)
		w.done = append(w.done[:0], w.done[n:]...)
	})
	return w
}

func (w *waiterList) add(offset int64, done chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.offsets, w.done = append(w.offsets, offset), append(w.done, done)
}

// One batch to each of many logs, then durable.
func BenchmarkCommitManyLogs(b *testing.B) {
	for _, count := range []int{1, 2, 4, 100, 1000} {
		b.Run(fmt.Sprintf("%d logs", count), func(b *testing.B) {
			d := benchDir(b, storage.SyncAck)
			logs := make([]*storage.Log, count)
			for i := range logs {
				n := orders
				n.Partition = int32(i)
				var err error
				logs[i], err = d.CreateLog(n, storage.DefaultConfig())
				require.NoError(b, err)
			}
			batch := makeBatch(0, 1, 1, 1, 1<<10)
			b.SetBytes(int64(count * len(batch)))
			b.ReportAllocs()
			for b.Loop() {
				for _, l := range logs {
					appendNext(b, l, batch)
					l.RequestSync()
				}
				for _, l := range logs {
					if err := l.Sync(context.Background()); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// Start with many partitions after a clean stop, and what an idle one costs.
func BenchmarkOpenClean(b *testing.B) {
	const count = 10_000
	root := b.TempDir()
	fsys, err := storage.OSFS(root)
	require.NoError(b, err)
	d := openDir(b, fsys)
	batch := makeBatch(0, 1, 1, 1, 10)
	began := time.Now()
	for i := range count {
		n := orders
		n.Partition = int32(i)
		l, err := d.CreateLog(n, storage.DefaultConfig())
		require.NoError(b, err)
		if i%2 == 0 {
			appendNext(b, l, batch)
		}
	}
	b.Logf("%d logs made in %v", count, time.Since(began))
	began = time.Now()
	require.NoError(b, d.Close())
	b.Logf("closed in %v", time.Since(began))
	for b.Loop() {
		b.StopTimer()
		before := heap()
		b.StartTimer()
		d, err := storage.OpenDir(storage.DirOptions{FS: fsys})
		require.NoError(b, err)
		names, err := d.Partitions()
		require.NoError(b, err)
		logs := make([]*storage.Log, count)
		for i, n := range names {
			logs[i], err = d.OpenLog(n, storage.DefaultConfig())
			require.NoError(b, err)
		}
		b.StopTimer()
		b.ReportMetric(float64(heap()-before)/count, "B/log")
		runtime.KeepAlive(logs)
		require.NoError(b, d.Close())
		b.StartTimer()
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Start after a kill with so much past the recovery point.
func BenchmarkRecover(b *testing.B) {
	const size = 256 << 20
	root := b.TempDir()
	fsys, err := storage.OSFS(root)
	require.NoError(b, err)
	d, err := storage.OpenDir(storage.DirOptions{FS: fsys, SyncPolicy: storage.SyncNever, CheckpointBytes: 1 << 40})
	require.NoError(b, err)
	l, err := d.CreateLog(orders, storage.DefaultConfig())
	require.NoError(b, err)
	batch := makeBatch(0, 1, 1, 1, 16<<10)
	for l.EndOffset()*int64(len(batch)) < size {
		appendNext(b, l, batch)
	}
	require.NoError(b, d.Close())
	b.SetBytes(size)
	for b.Loop() {
		b.StopTimer()
		require.NoError(b, os.Remove(root+"/.kafka_cleanshutdown"))
		require.NoError(b, os.Remove(root+"/recovery-point-offset-checkpoint"))
		b.StartTimer()
		d, err := storage.OpenDir(storage.DirOptions{FS: fsys})
		require.NoError(b, err)
		l, err := d.OpenLog(orders, storage.DefaultConfig())
		require.NoError(b, err)
		b.StopTimer()
		require.Positive(b, l.EndOffset())
		require.NoError(b, d.Close())
		b.StartTimer()
	}
}

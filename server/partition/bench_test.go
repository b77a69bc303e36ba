package partition_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/record"
	"millrace/server/metadata"
	"millrace/server/partition"
	"millrace/storage"
)

// benchStore makes a store on a directory of its own.
func benchStore(b *testing.B) (*partition.Store, *partition.Settings) {
	fs, err := storage.OSFS(b.TempDir())
	require.NoError(b, err)
	dir, err := storage.OpenDir(storage.DirOptions{FS: fs, SyncPolicy: storage.SyncNever})
	require.NoError(b, err)
	b.Cleanup(func() { dir.Close() })
	m, err := metadata.NewMachine(metadata.Options{NodeID: 1})
	require.NoError(b, err)
	store := partition.NewStore(partition.Config{Dir: dir, Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
	return store, partition.NewSettings(defaults(b, m))
}

func benchName(i int) partition.Name {
	return partition.Name{Topic: fmt.Sprintf("t%d", i), TopicID: testTopicID()}
}

// One batch of one record goes from the leader to a follower, and the follower's next fetch commits it.
func BenchmarkReplicate(b *testing.B) {
	for _, batches := range []int{1, 100} {
		b.Run(fmt.Sprintf("%dx1KiB", batches), func(b *testing.B) { replicate(b, batches) })
	}
}

func replicate(b *testing.B, batches int) {
	role := partition.Role{Leader: 1, Replicas: []int32{1, 2}, ISR: []int32{1, 2}}
	store, settings := benchStore(b)
	one, err := store.Open(benchName(1), settings)
	require.NoError(b, err)
	l := one.Lead(role)
	store, settings = benchStore(b)
	two, err := store.Open(benchName(1), settings)
	require.NoError(b, err)
	f := two.Follow(role)
	var build record.Builder
	build.Append(&record.Record{Timestamp: 1_700_000_000_000, Value: make([]byte, 1024)})
	r := &partition.AppendRequest{Batch: build.Build(), AllInSync: true, Expected: -1, Epoch: -1}
	arena := make([]byte, 1<<20)
	fetch := func() {
		pos, err := f.Position()
		require.NoError(b, err)
		got, err := l.FetchFollower(partition.FollowerFetch{
			Replica: 2, Offset: pos.Offset, LastFetchedEpoch: pos.LastFetchedEpoch, LogStart: pos.LogStart,
			HighWatermark: math.MaxInt64, MaxBytes: 1 << 20, Alloc: func(n int) []byte { return arena[:n] },
		})
		require.NoError(b, err)
		_, err = f.Take(pos, partition.LeaderAnswer{
			HighWatermark: got.HighWatermark, LogStart: got.LogStart, Records: got.Records,
		})
		require.NoError(b, err)
	}
	b.SetBytes(int64(batches * len(r.Batch)))
	b.ReportAllocs()
	for b.Loop() {
		var a partition.Appended
		for range batches {
			record.Batch(r.Batch).SetBaseOffset(0)
			a, err = l.Append(context.Background(), r)
			require.NoError(b, err)
		}
		fetch()
		fetch()
		if !l.Committed(a.Next) {
			b.Fatal("not committed")
		}
	}
}

// A round of fetches over partitions in which nothing happens.
func BenchmarkIdlePosition(b *testing.B) {
	store, settings := benchStore(b)
	r, err := store.Open(benchName(1), settings)
	require.NoError(b, err)
	f := r.Follow(partition.Role{Leader: 2, Replicas: []int32{1, 2}, ISR: []int32{1, 2}})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.Position(); err != nil {
			b.Fatal(err)
		}
	}
}

// What an idle partition costs in memory, in each role; a follower asks for its position now and then.
func BenchmarkIdleMemory(b *testing.B) {
	const count = 1000
	for name, take := range map[string]func(r *partition.Replica){
		"leader of one": func(r *partition.Replica) {
			r.Lead(partition.Role{Leader: 1, Replicas: []int32{1}, ISR: []int32{1}})
		},
		"leader of three": func(r *partition.Replica) {
			r.Lead(partition.Role{Leader: 1, Replicas: []int32{1, 2, 3}, ISR: []int32{1, 2, 3}})
		},
		"follower": func(r *partition.Replica) {
			f := r.Follow(partition.Role{Leader: 2, Replicas: []int32{1, 2, 3}, ISR: []int32{1, 2, 3}})
			_, err := f.Position()
			require.NoError(b, err)
		},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				idleMemory(b, count, take)
			}
		})
	}
}

// idleMemory opens partitions that hold a batch each, after a clean stop.
func idleMemory(b *testing.B, count int, take func(r *partition.Replica)) {
	disk, err := storage.OSFS(b.TempDir())
	require.NoError(b, err)
	m, err := metadata.NewMachine(metadata.Options{NodeID: 1})
	require.NoError(b, err)
	settings := partition.NewSettings(defaults(b, m))
	open := func(each func(r *partition.Replica)) {
		dir, err := storage.OpenDir(storage.DirOptions{FS: disk, SyncPolicy: storage.SyncNever})
		require.NoError(b, err)
		store := partition.NewStore(partition.Config{Dir: dir, Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
		before := heapBytes()
		all := make([]*partition.Replica, count)
		for i := range all {
			all[i], err = store.Open(benchName(i), settings)
			require.NoError(b, err)
			each(all[i])
		}
		b.ReportMetric(float64(heapBytes()-before)/float64(count), "heap-B/partition")
		runtime.KeepAlive(all)
		require.NoError(b, dir.Close())
	}
	open(func(r *partition.Replica) {
		l := r.Lead(partition.Role{Leader: 1, Replicas: []int32{1}, ISR: []int32{1}})
		_, err := l.Append(context.Background(), &partition.AppendRequest{
			Batch: batch(-1, 0, 0, time.Now(), "v"), Expected: -1, Epoch: -1,
		})
		require.NoError(b, err)
	})
	open(take)
}

func heapBytes() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

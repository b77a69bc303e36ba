package coordinator_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/server/coordinator"
	"millrace/storage"
)

// BenchmarkCommits is commits of so many callers at a time, each answered when it is on disk.
func BenchmarkCommits(b *testing.B) {
	for _, callers := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("%d callers", callers), func(b *testing.B) {
			fs, err := storage.OSFS(b.TempDir())
			require.NoError(b, err)
			n := start(b, fs, internalSettings(b))
			r := runtime(nil)
			defer n.stop()
			defer r.Close()
			r.Lead(0, n.replica.Lead(alone(0)), 0)
			require.Eventually(b, func() bool { return !r.Loading() }, time.Minute, time.Millisecond)
			work := make(chan coordinator.KV, callers)
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for one := range work {
						if err := put(context.Background(), r, one); err != nil {
							b.Error(err)
						}
					}
				})
			}
			value := make([]byte, 40)
			i := 0
			for b.Loop() {
				work <- coordinator.KV{Key: fmt.Appendf(nil, "group %d topic", i%1000), Value: value}
				i++
			}
			close(work)
			wg.Wait()
			b.ReportMetric(float64(i)/b.Elapsed().Seconds(), "commits/s")
		})
	}
}

// BenchmarkLoad is the reading of a partition with a million records, each in a batch of its own, as commits are.
func BenchmarkLoad(b *testing.B) {
	fs, err := storage.OSFS(b.TempDir())
	require.NoError(b, err)
	n := start(b, fs, internalSettings(b))
	r := runtime(nil)
	defer n.stop()
	r.Lead(0, n.replica.Lead(alone(0)), 0)
	require.Eventually(b, func() bool { return !r.Loading() }, time.Minute, time.Millisecond)
	const records = 1_000_000
	value := make([]byte, 40)
	for from := 0; from < records; from += 10_000 {
		_, err := look(r, func(c *counts) error {
			for i := range 10_000 {
				key := fmt.Appendf(nil, "group %d topic", (from+i)%100_000)
				if err := c.shard.Append(coordinator.KV{Key: key, Value: value}); err != nil {
					return err
				}
			}
			return nil
		})
		require.NoError(b, err)
	}
	require.NoError(b, r.Close())
	epoch := int32(0)
	for b.Loop() {
		epoch++
		two := runtime(nil)
		two.Lead(0, n.replica.Lead(alone(epoch)), epoch)
		require.Eventually(b, func() bool { return !two.Loading() }, time.Minute, time.Millisecond)
		b.StopTimer()
		require.Equal(b, int64(records), n.replica.Leader().Bounds().LogEnd)
		require.NoError(b, two.Close())
		b.StartTimer()
	}
}

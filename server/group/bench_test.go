package group

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/coordinator"
	"millrace/storage"
)

// diskLab is a lab of one node on a real disk, in real time.
func diskLab(b *testing.B) *lab {
	l := openLab(b, labOptions{fs: func() storage.FS {
		fs, err := storage.OSFS(b.TempDir())
		require.NoError(b, err)
		return fs
	}})
	l.createTopic("t", 200)
	l.awaitLoaded("any")
	return l
}

// awaitLoaded waits until the partition of a group answers.
func (l *lab) awaitLoaded(group string) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group = group
	for {
		resp, err := l.of(group).Request(context.Background(), req)
		require.NoError(l.t, err)
		e := kerr.ErrorForCode(resp.(*kmsg.OffsetFetchResponse).ErrorCode)
		if !errors.Is(e, kerr.CoordinatorLoadInProgress) {
			require.NoError(l.t, e)
			return
		}
		pause(context.Background(), time.Millisecond)
	}
}

// Many consumers commit, one partition each, and wait for the answer.
func BenchmarkCommits(b *testing.B) {
	for _, clients := range []int{1, 16, 128} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			l := diskLab(b)
			defer l.close()
			var next atomic.Int64
			b.SetParallelism(clients)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				group := fmt.Sprintf("group-%d", next.Add(1))
				for offset := int64(0); pb.Next(); offset++ {
					l.commit(group, "t", offset)
				}
			})
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
		})
	}
}

// Where a thousand groups stand, on some topic of 20 partitions, in one request.
func BenchmarkFetchGroups(b *testing.B) {
	l := diskLab(b)
	defer l.close()
	req := kmsg.NewPtrOffsetFetchRequest()
	for i := range 1000 {
		in := kmsg.NewOffsetFetchRequestGroup()
		in.Group = fmt.Sprintf("group-%d", i)
		l.commit(in.Group, "t", make([]int64, 20)...)
		req.Groups = append(req.Groups, in)
	}
	for b.Loop() {
		resp := ask[*kmsg.OffsetFetchResponse](l, "any", req)
		require.Len(b, resp.Groups, 1000)
		require.Len(b, resp.Groups[999].Topics[0].Partitions, 20)
	}
}

// A partition with a million commits, of a thousand groups, is read.
func BenchmarkLoad(b *testing.B) {
	const records = 1_000_000
	l := diskLab(b)
	defer l.close()
	l.inspect("any", func(s *shard) {
		var batch []coordinator.KV
		for i := range records {
			o := &committed{offset: int64(i), leaderEpoch: 1, commitTimestamp: s.millis()}
			key := offsetKey(fmt.Sprintf("group-%d", i%1000), "t", int32(i/1000%200))
			if batch = append(batch, coordinator.KV{Key: key, Value: encodeOffset(o)}); len(batch) == 1000 || i == records-1 {
				require.NoError(b, s.run.Append(batch...))
				batch = batch[:0]
			}
		}
	})
	for b.Loop() {
		l.lead(0, 1)
		l.awaitLoaded("any")
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/load")
	l.inspect("any", func(s *shard) {
		require.Len(b, s.groups, 1000)
		require.EqualValues(b, 200_000, s.offsets)
	})
}

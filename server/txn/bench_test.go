package txn

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// BenchmarkTransactions measures transactions over two partitions from the first to the next one's first partition, by
// so many producers at a time, over disks in memory.
func BenchmarkTransactions(b *testing.B) {
	for _, producers := range []int{1, 32} {
		b.Run(fmt.Sprint("producers=", producers), func(b *testing.B) {
			l := openLab(b, labOptions{})
			defer l.close()
			c := l.nodes[0].coordinator
			sessions := make([]session, producers)
			for i := range sessions {
				for {
					resp, err := c.Request(context.Background(), initRequest(fmt.Sprint(i)))
					require.NoError(b, err)
					r := resp.(*kmsg.InitProducerIDResponse)
					if r.ErrorCode == 0 {
						sessions[i] = session{fmt.Sprint(i), r.ProducerID, r.ProducerEpoch}
						break
					}
				}
			}
			for b.Loop() {
				var wg sync.WaitGroup
				for i := range sessions {
					wg.Go(func() { sessions[i] = cycle(b, c, sessions[i]) })
				}
				wg.Wait()
			}
			b.ReportMetric(float64(b.N*producers)/b.Elapsed().Seconds(), "txn/s")
		})
	}
}

func cycle(b *testing.B, c *Coordinator, s session) session {
	resp, err := c.Request(context.Background(), addRequest(s, t0, u0))
	if err != nil || resp.(*kmsg.AddPartitionsToTxnResponse).Transactions[0].Topics[0].Partitions[0].ErrorCode != 0 {
		b.Error("not added", err)
	}
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = s.id, s.producerID, s.epoch, true
	ended, err := c.Request(context.Background(), req)
	if err != nil || ended.(*kmsg.EndTxnResponse).ErrorCode != 0 {
		b.Error("not ended", err)
		return s
	}
	e := ended.(*kmsg.EndTxnResponse)
	return session{s.id, e.ProducerID, e.ProducerEpoch}
}

// BenchmarkReplay measures the reading of a log of transactional ids.
func BenchmarkReplay(b *testing.B) {
	v := value{
		producerID: 7, epoch: 3, previousID: -1, nextID: -1, timeout: 60000, state: ongoing, version: 2,
		partitions: partitions{{"topic", []int32{0, 1, 2, 3}}, {"__consumer_offsets", []int32{17}}},
	}
	key, bytes := encodeKey("transactional-id"), encodeValue(&v)
	b.SetBytes(int64(len(key) + len(bytes)))
	for b.Loop() {
		_, _ = decodeKey(key)
		_, _ = decodeValue(bytes, lastEpoch)
	}
}

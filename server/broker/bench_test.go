package broker_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/record"
	"millrace/storage"
)

func benchBatch(records, size int) record.Batch {
	var b record.Builder
	value := make([]byte, size)
	for range records {
		b.Append(&record.Record{Timestamp: 1_700_000_000_000, Value: value})
	}
	return b.Build()
}

// benchNode is a node with topics t0, t1... of one partition each.
func benchNode(b *testing.B, policy storage.SyncPolicy, topics int) *node {
	n := newNode(b, options{policy: policy})
	b.Cleanup(n.stop)
	for i := range topics {
		n.create(fmt.Sprintf("t%d", i), 1, "retention.ms", "-1", "segment.ms", "9223372036854775807")
	}
	return n
}

// cpu reports the processor time of an operation: on a busy machine it tells more than the clock.
func cpu(b *testing.B) func() {
	used := func() int64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	start := used()
	return func() { b.ReportMetric(float64(used()-start)/float64(b.N), "cpu-ns/op") }
}

// again makes a request that was answered fit to be sent once more.
func again(req *kmsg.ProduceRequest) {
	record.Batch(req.Topics[0].Partitions[0].Records).SetBaseOffset(0)
}

type produceCase struct {
	name    string
	policy  storage.SyncPolicy
	acks    int16
	records int
}

func produceCases() []produceCase {
	return []produceCase{
		{"never/acks=1/1x1KiB", storage.SyncNever, 1, 1},
		{"never/acks=all/1x1KiB", storage.SyncNever, -1, 1},
		{"ack/acks=1/1x1KiB", storage.SyncAck, 1, 1},
		{"ack/acks=all/1x1KiB", storage.SyncAck, -1, 1},
		{"never/acks=1/100x1KiB", storage.SyncNever, 1, 100},
		{"ack/acks=all/100x1KiB", storage.SyncAck, -1, 100},
	}
}

func BenchmarkProduce(b *testing.B) {
	for _, c := range produceCases() {
		b.Run(c.name, func(b *testing.B) {
			n := benchNode(b, c.policy, 1)
			req := n.produceRequest("t0", 0, benchBatch(c.records, 1024))
			req.Acks = c.acks
			b.SetBytes(int64(len(req.Topics[0].Partitions[0].Records)))
			b.ReportAllocs()
			defer cpu(b)()
			for b.Loop() {
				again(req)
				resp, err := req.RequestWith(context.Background(), n.r)
				if err != nil || resp.Topics[0].Partitions[0].ErrorCode != 0 {
					b.Fatal(err, resp)
				}
			}
		})
	}
}

// BenchmarkProduceParallel has 64 clients with one request each on its way.
func BenchmarkProduceParallel(b *testing.B) {
	for _, c := range produceCases() {
		for _, topics := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/topics=%d", c.name, topics), func(b *testing.B) {
				n := benchNode(b, c.policy, topics)
				var clients atomic.Int32
				b.SetBytes(int64(len(benchBatch(c.records, 1024))))
				b.ReportAllocs()
				b.SetParallelism(64 / runtime.GOMAXPROCS(0))
				defer cpu(b)()
				b.RunParallel(func(pb *testing.PB) {
					topic := int(clients.Add(1)) % topics
					req := n.produceRequest(fmt.Sprintf("t%d", topic), 0, benchBatch(c.records, 1024))
					req.Acks = c.acks
					for pb.Next() {
						again(req)
						resp, err := req.RequestWith(context.Background(), n.r)
						if err != nil || resp.Topics[0].Partitions[0].ErrorCode != 0 {
							b.Error(err, resp)
							return
						}
					}
				})
			})
		}
	}
}

// BenchmarkFetch reads 1 MiB that is in the page cache.
func BenchmarkFetch(b *testing.B) {
	n := benchNode(b, storage.SyncNever, 1)
	for range 40 {
		n.produce("t0", 0, benchBatch(100, 1024))
	}
	pool := record.NewPool(16 << 20)
	for _, size := range []int{1 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			req := n.fetchRequest("t0", 0)
			req.MaxBytes = int32(size)
			b.ReportAllocs()
			bytes := 0
			for b.Loop() {
				arena := pool.Arena()
				resp, err := req.RequestWith(record.WithArena(context.Background(), arena), n.r)
				if err != nil || resp.Topics[0].Partitions[0].ErrorCode != 0 {
					b.Fatal(err, resp)
				}
				bytes = len(resp.Topics[0].Partitions[0].RecordBatches)
				arena.Free()
			}
			b.SetBytes(int64(bytes))
		})
	}
}

// BenchmarkTail has readers that wait at the end of one partition, each of which gets every batch.
func BenchmarkTail(b *testing.B) {
	for _, readers := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("readers=%d", readers), func(b *testing.B) {
			n := benchNode(b, storage.SyncNever, 1)
			pool := record.NewPool(16 << 20)
			ctx, cancel := context.WithCancel(context.Background())
			var readersEnd, got sync.WaitGroup
			for range readers {
				readersEnd.Go(func() {
					for offset := int64(0); ; {
						req := n.fetchRequest("t0", offset)
						req.MaxWaitMillis = 60_000
						arena := pool.Arena()
						resp, err := req.RequestWith(record.WithArena(ctx, arena), n.r)
						if err != nil {
							return
						}
						for rest := resp.Topics[0].Partitions[0].RecordBatches; len(rest) > 0; {
							one, after, _ := record.Next(rest)
							offset, rest = one.NextOffset(), after
							got.Done()
						}
						arena.Free()
					}
				})
			}
			req := n.produceRequest("t0", 0, benchBatch(1, 1024))
			stop := cpu(b)
			for b.Loop() {
				again(req)
				got.Add(readers)
				if _, err := req.RequestWith(ctx, n.r); err != nil {
					b.Fatal(err)
				}
				got.Wait()
			}
			stop()
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*readers), "ns/delivery")
			cancel()
			readersEnd.Wait()
		})
	}
}

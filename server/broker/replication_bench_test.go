package broker_test

import (
	"fmt"
	"testing"

	"millrace/server/metadata"
	"millrace/storage"
)

// BenchmarkCatchUp fills a replica that has nothing from its leader, on real files.
func BenchmarkCatchUp(b *testing.B) {
	const size = 256 << 20
	for name, policy := range map[string]storage.SyncPolicy{"ack": storage.SyncAck, "never": storage.SyncNever} {
		b.Run(name, func(b *testing.B) {
			c := newCluster(b, clusterOptions{members: 2, policy: policy, real: true})
			defer c.close()
			c.create("t", [][]int32{{1}}, "retention.ms", "-1", "file.delete.delay.ms", "0")
			req := c.members[1].produceRequest("t", 1, benchBatch(256, 1024))
			for range size / len(req.Topics[0].Partitions[0].Records) {
				resp, err := req.RequestWith(b.Context(), c.members[1].broker)
				if err != nil || resp.Topics[0].Partitions[0].ErrorCode != 0 {
					b.Fatal(err, resp)
				}
				again(req)
			}
			b.SetBytes(size)
			defer cpu(b)()
			for b.Loop() {
				c.move("t", 1, 2)
				c.members[2].awaitPartition("t", func(p metadata.Partition) bool { return len(p.ISR) == 2 })
				b.StopTimer()
				c.move("t", 1)
				b.StartTimer()
			}
		})
	}
}

// BenchmarkIdleRound is one round of a fetch loop over partitions in which nothing happens: the request
// built, encoded and decoded, each partition looked at and waited for by the leader, and the answer back. With
// 1,000 partitions on three nodes a node follows 667, in two loops, and makes two such rounds a second
// in each.
func BenchmarkIdleRound(b *testing.B) {
	const partitions = 667
	for _, topics := range []int{1, partitions} {
		b.Run(fmt.Sprintf("topics=%d", topics), func(b *testing.B) {
			c := newCluster(b, clusterOptions{
				members: 2, policy: storage.SyncAck, static: map[string]string{"replica.fetch.wait.max.ms": "1"},
			})
			defer c.close()
			replicas := make([][]int32, partitions/topics)
			for i := range replicas {
				replicas[i] = []int32{1, 2}
			}
			for i := range topics {
				c.create(fmt.Sprintf("t%d", i), replicas)
			}
			leader := c.members[1]
			rounds := func(n int) {
				for range n {
					<-leader.pulse
				}
			}
			rounds(10)
			b.ResetTimer()
			b.ReportAllocs()
			stop := cpu(b)
			rounds(b.N)
			stop()
		})
	}
}

// BenchmarkProduceReplicated is one record with acks=all to three replicas on real files, alone and beside
// partitions that rest.
func BenchmarkProduceReplicated(b *testing.B) {
	for _, resting := range []int{0, 333} {
		b.Run(fmt.Sprintf("resting=%d", resting), func(b *testing.B) {
			c := newCluster(b, clusterOptions{members: 3, policy: storage.SyncAck, real: true})
			defer c.close()
			c.create("t", three(), "min.insync.replicas", "2")
			if resting > 0 {
				replicas := make([][]int32, resting)
				for i := range replicas {
					replicas[i] = []int32{1, 2, 3}
				}
				c.create("rests", replicas)
			}
			req := c.members[1].produceRequest("t", -1, benchBatch(1, 1024))
			defer cpu(b)()
			for b.Loop() {
				again(req)
				resp, err := req.RequestWith(b.Context(), c.members[1].broker)
				if err != nil || resp.Topics[0].Partitions[0].ErrorCode != 0 {
					b.Fatal(err, resp)
				}
			}
		})
	}
}

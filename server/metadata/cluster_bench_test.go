package metadata_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/server/metadata"
)

// benchmarkCluster returns three active brokers with so many topics and partitions, each of three
// replicas; the brokers lead a third each.
func benchmarkCluster(b *testing.B, topics, partitions int) *metadata.Image {
	b.Helper()
	m := newMachine(b, nil)
	change := &metadata.ChangeBrokers{}
	for id := range int32(3) {
		r := apply(b, m, &metadata.RegisterBroker{
			NewClusterID: "c", ID: id + 1, Incarnation: metadata.UUID{byte(id + 1)}, Fenced: true,
			Defaults: metadata.Defaults{MinISR: 2},
		})
		change.Changes = append(change.Changes, metadata.BrokerChange{
			ID: id + 1, Epoch: r.Epoch, State: metadata.BrokerActive,
		})
	}
	apply(b, m, change)
	c := newTopics(0, topics, nil)
	for i := range c.Topics {
		c.Topics[i].Partitions = nil
	}
	for i := range partitions {
		first := int32(i)
		t := &c.Topics[i%topics]
		t.Partitions = append(t.Partitions, []int32{1 + first%3, 1 + (first+1)%3, 1 + (first+2)%3})
	}
	apply(b, m, c)
	return m.Image()
}

// BenchmarkFence fences a broker that leads a third of all partitions and follows the rest.
func BenchmarkFence(b *testing.B) {
	for _, size := range []struct{ topics, partitions int }{{300, 1_000}, {1, 1_000}, {5_000, 50_000}} {
		b.Run(fmt.Sprint(size.topics, " topics ", size.partitions, " partitions"), func(b *testing.B) {
			image := benchmarkCluster(b, size.topics, size.partitions)
			c := &metadata.ChangeBrokers{Changes: []metadata.BrokerChange{
				{ID: 1, Epoch: image.BrokerEpoch(1), State: metadata.BrokerFenced},
			}}
			b.ReportAllocs()
			for b.Loop() {
				now, r := image.Apply(image.Index+1, c)
				if !r.Changed || now.Topic("topic.00000").Partitions[0].Leader != 2 {
					b.Fatal(r)
				}
			}
		})
	}
}

// BenchmarkAlterPartition shrinks the ISR of all partitions that a broker leads, of 1,000.
func BenchmarkAlterPartition(b *testing.B) {
	image := benchmarkCluster(b, 1, 1_000)
	c := &metadata.AlterPartition{BrokerID: 1, BrokerEpoch: image.BrokerEpoch(1)}
	topic := image.Topic("topic.00000")
	for i, p := range topic.Partitions {
		if p.Leader == 1 {
			c.Partitions = append(c.Partitions, metadata.AlteredPartition{
				TopicID: topic.ID, Partition: int32(i),
				ISR: []metadata.ISRMember{{ID: 1, Epoch: c.BrokerEpoch}, {ID: 2, Epoch: -1}},
			})
		}
	}
	entry, err := metadata.Encode(c)
	require.NoError(b, err)
	b.ReportMetric(float64(len(entry)), "B/entry")
	for b.Loop() {
		if _, r := image.Apply(image.Index+1, c); !r.Changed {
			b.Fatal(r)
		}
	}
}

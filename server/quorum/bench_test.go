package quorum_test

import (
	"testing"

	"millrace/server/metadata"
)

// BenchmarkOpen measures the start of a node that was stopped cleanly, from Open to leading.
func BenchmarkOpen(b *testing.B) {
	disk := realDisk(b, b.TempDir())
	n := open(b, disk)
	n.register(b)
	if err := n.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		n, err := tryOpen(b, disk)
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := n.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func BenchmarkPropose(b *testing.B) {
	n := open(b, realDisk(b, b.TempDir()))
	n.register(b)
	epoch := n.machine.Image().Broker(1).Epoch
	for b.Loop() {
		n.propose(b, &metadata.AllocateProducerIDs{BrokerID: 1, BrokerEpoch: epoch, Count: 1000})
	}
}

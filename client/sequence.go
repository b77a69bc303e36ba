package client

import (
	"context"
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
)

// checkSequence finds a gap in a named producer's requests when all records go to one partition of
// several: that partition sees only some of the requests, so the greatest sequence of all counts. With
// one partition the leader itself is strict; with records for several, each takes what it lacks.
func (s *Sender) checkSequence(ctx context.Context) error {
	np := s.opts.Producer
	if np == nil || np.Once || len(s.topic.Partitions) == 1 || len(s.pieces) != 1 {
		return nil
	}
	partitions := make([]int32, len(s.topic.Partitions))
	for i := range partitions {
		partitions[i] = int32(i)
	}
	id := ktag.NamedProducerID(np.Name)
	producers, err := s.client.producers(ctx, s.topic, partitions, func(r *kmsg.DescribeProducersRequest) {
		ktag.SetProducerFilter(&r.UnknownTags, id)
	})
	if err != nil {
		return err
	}
	return sequenceFault(producers, id, np, s.topic.Name, s.pieces[0].partition)
}

// sequenceFault says what is wrong with a producer's epoch and sequence, given what all partitions
// remember of it.
func sequenceFault(known []ActiveProducer, id int64, np *NamedProducer, topic string, partition int32) error {
	epoch, last := int32(-1), int32(-1)
	for _, p := range known {
		switch {
		case p.ProducerID != id || p.Epoch < epoch:
		case p.Epoch > epoch:
			epoch, last = p.Epoch, p.LastSequence
		default:
			last = max(last, p.LastSequence)
		}
	}
	if epoch > int32(np.Epoch) {
		f := newFault(kerr.InvalidProducerEpoch, "", topic, partition)
		f.CurrentEpoch = int16(epoch)
		return f
	}
	if epoch < int32(np.Epoch) {
		last = -1 // a new epoch begins at 0
	}
	if last == math.MaxInt32 || np.Seq <= last+1 {
		return nil
	}
	f := newFault(kerr.OutOfOrderSequenceNumber, "", topic, partition)
	f.ExpectedSequence = last + 1
	return f
}

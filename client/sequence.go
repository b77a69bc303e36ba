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
func (c *Client) checkSequence(ctx context.Context, topic *Topic, partition int32, np *NamedProducer) error {
	if np.Once || len(topic.Partitions) == 1 {
		return nil
	}
	known, err := c.knownSequence(ctx, topic, np)
	if err != nil {
		return err
	}
	return sequenceFault(known, np, topic.Name, partition)
}

// sequence is the last one of a producer's newest epoch; both are -1 when nothing is known of it.
type sequence struct{ epoch, last int32 }

// add takes in what one partition knows.
func (s *sequence) add(epoch, last int32) {
	switch {
	case epoch > s.epoch:
		s.epoch, s.last = epoch, last
	case epoch == s.epoch:
		s.last = max(s.last, last)
	}
}

// knownSequence asks all partitions what they know of a named producer.
func (c *Client) knownSequence(ctx context.Context, topic *Topic, np *NamedProducer) (sequence, error) {
	known, id := sequence{epoch: -1, last: -1}, ktag.NamedProducerID(np.Name)
	req := kmsg.NewPtrDescribeProducersRequest()
	ktag.SetProducerFilter(&req.UnknownTags, id)
	t := kmsg.NewDescribeProducersRequestTopic()
	t.Topic = topic.Name
	for p := range topic.Partitions {
		t.Partitions = append(t.Partitions, int32(p))
	}
	req.Topics = append(req.Topics, t)
	resp, err := call(ctx, "producers of "+topic.Name, req.RequestWith, c.requestor)
	if err != nil {
		return known, err
	}
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			p := &resp.Topics[i].Partitions[j]
			if err := fault(p.ErrorCode, p.ErrorMessage, topic.Name, p.Partition); err != nil {
				c.forgetOn(err, topic.Name)
				return known, err
			}
			for _, a := range p.ActiveProducers {
				if a.ProducerID == id { // a foreign broker knows no filter
					known.add(a.ProducerEpoch, a.LastSequence)
				}
			}
		}
	}
	return known, nil
}

// sequenceFault says what is wrong with a producer's epoch and sequence, given what is known of it.
func sequenceFault(known sequence, np *NamedProducer, topic string, partition int32) error {
	last := known.last
	switch {
	case known.epoch > int32(np.Epoch):
		f := newFault(kerr.InvalidProducerEpoch, "", topic, partition)
		f.CurrentEpoch = int16(known.epoch)
		return f
	case known.epoch < int32(np.Epoch):
		last = -1 // a new epoch begins at 0
	}
	if last == math.MaxInt32 || np.Seq <= last+1 {
		return nil
	}
	f := newFault(kerr.OutOfOrderSequenceNumber, "", topic, partition)
	f.ExpectedSequence = last + 1
	return f
}

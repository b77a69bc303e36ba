package client

import (
	"context"
	"math"
	"slices"

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
	var fault error
	for _, sure := range [...]sureness{likely, certain} {
		known, err := c.knownSequences(ctx, topic, np, topic.numbers(), sure)
		if err != nil {
			return err
		}
		if fault = sequenceFault(known, np, topic.Name, partition); fault == nil {
			return nil
		}
	}
	return fault
}

// checkSequence is the client's for the only piece of a request. Records that the producer's name placed are moved
// to where the same request was stored before partitions were added to the topic.
func (s *Sender) checkSequence(ctx context.Context, p *piece) error {
	np, n := s.opts.Producer, int32(len(s.topic.Partitions))
	if s.byName < len(s.records) || n == 1 {
		return s.client.checkSequence(ctx, s.topic, p.partition, np)
	}
	places := np.places(n)
	ask := s.topic.numbers()
	if np.Once {
		ask = places
	}
	// A node that knew of more partitions, or of fewer, may have stored this very request a moment ago.
	known, err := s.client.knownSequences(ctx, s.topic, np, ask, certain)
	if err != nil {
		return err
	}
	if !np.Once {
		if err := sequenceFault(known, np, s.topic.Name, p.partition); err != nil {
			return err
		}
	}
	p.partition = np.holder(known, places)
	for i := range s.partition {
		s.partition[i] = p.partition
	}
	return nil
}

// places is where the producer's name leads with n partitions, last, and where it led with fewer, the fewest first:
// jump consistent hashing, which moves a name only to a partition that is new. There are about ln n of them.
func (np *NamedProducer) places(n int32) []int32 {
	var out []int32
	h := uint64(ktag.NamedProducerID(np.Name))
	for at := int64(0); at < int64(n); {
		out = append(out, int32(at))
		h = h*2862933555777941757 + 1
		at = int64(float64(at+1) * (float64(1<<31) / float64(h>>33+1)))
	}
	return out
}

// holder is the partition of places that has this very request; else, where the last one knows nothing of the
// producer, one that has a later request; else the last.
func (np *NamedProducer) holder(known map[int32]sequence, places []int32) int32 {
	last := places[len(places)-1]
	later := last
	for _, p := range slices.Backward(places) {
		k, ok := known[p]
		switch {
		case !ok || k.epoch != int32(np.Epoch) || k.last < np.Seq:
		case k.last == np.Seq:
			return p
		case later == last:
			later = p
		}
	}
	if k, ok := known[last]; ok && k.epoch == int32(np.Epoch) {
		return last
	}
	return later
}

// sureness says what partitions' answers are worth.
type sureness bool

const (
	// likely: a leader that was replaced may answer for a while, as of then.
	likely sureness = false
	// certain: what is missing in an answer was missing when the question was asked. It costs a heartbeat of each leader.
	certain sureness = true
)

// sequence is the last one of a producer's newest epoch.
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

// numbers are those of all partitions.
func (t *Topic) numbers() []int32 {
	out := make([]int32, len(t.Partitions))
	for p := range out {
		out[p] = int32(p)
	}
	return out
}

// knownSequences asks partitions what they know of a named producer. The answer holds those that know it.
func (c *Client) knownSequences(ctx context.Context, topic *Topic, np *NamedProducer, ask []int32, sure sureness) (
	map[int32]sequence, error,
) {
	known, id := map[int32]sequence{}, np.id()
	req := kmsg.NewPtrDescribeProducersRequest()
	ktag.SetProducerFilter(&req.UnknownTags, id)
	if sure == certain {
		ktag.SetCertain(&req.UnknownTags)
	}
	t := kmsg.NewDescribeProducersRequestTopic()
	t.Topic, t.Partitions = topic.Name, ask
	ktag.SetPartitionCount(&t.UnknownTags, int32(len(topic.Partitions)))
	req.Topics = append(req.Topics, t)
	resp, err := call(ctx, "producers of "+topic.Name, req.RequestWith, c.requestor)
	if err != nil {
		return nil, err
	}
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			p := &resp.Topics[i].Partitions[j]
			if err := fault(p.ErrorCode, p.ErrorMessage, topic.Name, p.Partition); err != nil {
				err.(*KafkaError).PartitionCount, _ = ktag.PartitionCount(&p.UnknownTags)
				c.forgetOn(err, topic.Name)
				return nil, err
			}
			for _, a := range p.ActiveProducers {
				if a.ProducerID == id { // a foreign broker knows no filter
					known[p.Partition] = sequence{a.ProducerEpoch, a.LastSequence}
				}
			}
		}
	}
	return known, nil
}

// sequenceFault says what is wrong with a producer's epoch and sequence, given what the partitions know of it.
func sequenceFault(known map[int32]sequence, np *NamedProducer, topic string, partition int32) error {
	newest := sequence{epoch: -1, last: -1}
	for _, k := range known {
		newest.add(k.epoch, k.last)
	}
	last := newest.last
	switch {
	case newest.epoch > int32(np.Epoch):
		f := newFault(kerr.InvalidProducerEpoch, "", topic, partition)
		f.CurrentEpoch = int16(newest.epoch)
		return f
	case newest.epoch < int32(np.Epoch):
		last = -1 // a new epoch begins at 0
	}
	if last == math.MaxInt32 || np.Seq <= last+1 {
		return nil
	}
	f := newFault(kerr.OutOfOrderSequenceNumber, "", topic, partition)
	f.ExpectedSequence = last + 1
	return f
}

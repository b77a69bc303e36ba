package client

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TopicPartition names one partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// String is the name of the partition's folder: orders-0.
func (p TopicPartition) String() string { return p.Topic + "-" + strconv.Itoa(int(p.Partition)) }

// Compare orders partitions by topic and number.
func (p TopicPartition) Compare(q TopicPartition) int {
	return cmp.Or(strings.Compare(p.Topic, q.Topic), cmp.Compare(p.Partition, q.Partition))
}

// byTopic groups partitions by their topic, in their order. Topics come in the order of their names: what is sent
// does not depend on chance.
func byTopic(partitions []TopicPartition) iter.Seq2[string, []int32] {
	groups := make(map[string][]int32)
	for _, p := range partitions {
		groups[p.Topic] = append(groups[p.Topic], p.Partition)
	}
	return func(yield func(string, []int32) bool) {
		for _, topic := range slices.Sorted(maps.Keys(groups)) {
			if !yield(topic, groups[topic]) {
				return
			}
		}
	}
}

// Reassignment is a change of a partition's replicas that is under way. Replicas are all of now, those to come and
// those to go included.
type Reassignment struct {
	TopicPartition
	Replicas, Adding, Removing []int32
}

// Target is the replicas that the reassignment leads to.
func (r *Reassignment) Target() []int32 {
	return slices.DeleteFunc(slices.Clone(r.Replicas), func(id int32) bool { return slices.Contains(r.Removing, id) })
}

// Reassignments lists the reassignments under way, by topic and partition: all, or those of the partitions named.
// What is named and does not exist is left out.
func (c *Client) Reassignments(ctx context.Context, of ...TopicPartition) ([]Reassignment, error) {
	req := kmsg.NewPtrListPartitionReassignmentsRequest()
	req.TimeoutMillis = c.adminMillis()
	for topic, numbers := range byTopic(of) {
		t := kmsg.NewListPartitionReassignmentsRequestTopic()
		t.Topic, t.Partitions = topic, numbers
		req.Topics = append(req.Topics, t)
	}
	resp, err := call(ctx, "list reassignments", req.RequestWith, c.requestor)
	if err != nil {
		return nil, err
	}
	if err := fault(resp.ErrorCode, resp.ErrorMessage, "", -1); err != nil {
		if len(of) > 0 && errors.Is(err, kerr.UnknownTopicOrPartition) {
			return nil, nil
		}
		return nil, err
	}
	var out []Reassignment
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			if len(p.AddingReplicas)+len(p.RemovingReplicas) == 0 {
				continue
			}
			out = append(out, Reassignment{
				TopicPartition: TopicPartition{t.Topic, p.Partition},
				Replicas:       p.Replicas, Adding: p.AddingReplicas, Removing: p.RemovingReplicas,
			})
		}
	}
	slices.SortFunc(out, func(a, b Reassignment) int { return a.Compare(b.TopicPartition) })
	return out, nil
}

// Move asks for new replicas of one partition, the preferred leader first; without any it cancels the
// reassignment of the partition that is under way.
type Move struct {
	TopicPartition
	Replicas []int32
}

// maxMoves bounds the moves of one message to the controller; more go in several.
const maxMoves = 500

// Reassign starts moves, or cancels them. The errors (nil, a *KafkaError or ErrNoAnswer) are in the order of the
// moves, which are independent of each other.
func (c *Client) Reassign(ctx context.Context, moves []Move) []error {
	out := make([]error, 0, len(moves))
	for part := range slices.Chunk(moves, maxMoves) {
		out = append(out, c.reassign(ctx, part)...)
	}
	return out
}

func (c *Client) reassign(ctx context.Context, moves []Move) []error {
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.Version = 1
	req.TimeoutMillis = c.adminMillis()
	places := make(map[string]int) // in req.Topics
	for _, m := range moves {
		p := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		p.Partition, p.Replicas = m.Partition, m.Replicas
		i, known := places[m.Topic]
		if !known {
			i = len(req.Topics)
			places[m.Topic] = i
			req.Topics = append(req.Topics, kmsg.AlterPartitionAssignmentsRequestTopic{Topic: m.Topic})
		}
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
	}
	out := make([]error, len(moves))
	resp, err := call(ctx, "reassign partitions", req.RequestWith, c.requestor)
	if err == nil {
		err = fault(resp.ErrorCode, resp.ErrorMessage, "", -1)
	}
	for name := range places {
		c.Forget(name)
	}
	if err != nil {
		for i := range out {
			out[i] = err
		}
		return out
	}
	answers := make(map[TopicPartition]error)
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for _, p := range t.Partitions {
			answers[TopicPartition{t.Topic, p.Partition}] = fault(p.ErrorCode, p.ErrorMessage, t.Topic, p.Partition)
		}
	}
	for i, m := range moves {
		err, answered := answers[m.TopicPartition]
		if !answered {
			err = noAnswer("reassign "+m.String(), errMissing)
		}
		out[i] = err
	}
	return out
}

// ElectionType says which replica an election makes the leader.
type ElectionType int8

const (
	ElectPreferred ElectionType = 0 // the first replica, if it is in sync
	ElectUnclean   ElectionType = 1 // the first live replica, in sync or not: records may be lost
)

// Election is what became of one partition in an election; Err is nil when it has a new leader.
type Election struct {
	TopicPartition
	Err error // nil or a *KafkaError: ELECTION_NOT_NEEDED and so on
}

// ElectLeaders asks for an election in the partitions named, or in all if none is. The answers are sorted by topic
// and partition; of an election in all a cluster may leave out the partitions that need none.
func (c *Client) ElectLeaders(ctx context.Context, kind ElectionType, in []TopicPartition) ([]Election, error) {
	req := kmsg.NewPtrElectLeadersRequest()
	req.Version = 2
	req.ElectionType, req.TimeoutMillis = int8(kind), c.adminMillis()
	for topic, numbers := range byTopic(in) {
		t := kmsg.NewElectLeadersRequestTopic()
		t.Topic, t.Partitions = topic, numbers
		req.Topics = append(req.Topics, t)
	}
	resp, err := call(ctx, "elect leaders", req.RequestWith, c.requestor)
	if err != nil {
		return nil, err
	}
	if err := fault(resp.ErrorCode, nil, "", -1); err != nil {
		return nil, err
	}
	var out []Election
	for i := range resp.Topics {
		t := &resp.Topics[i]
		c.Forget(t.Topic)
		for _, p := range t.Partitions {
			out = append(out, Election{
				TopicPartition: TopicPartition{t.Topic, p.Partition},
				Err:            fault(p.ErrorCode, p.ErrorMessage, t.Topic, p.Partition),
			})
		}
	}
	slices.SortFunc(out, func(a, b Election) int { return a.Compare(b.TopicPartition) })
	return out, nil
}

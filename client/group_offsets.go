package client

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
)

// CommittedOffset is where a group stands in a partition: the next offset to read. Offset is -1 where nothing is
// committed.
type CommittedOffset struct {
	TopicPartition
	Offset      int64
	LeaderEpoch int32 // of the record before; -1 if it is not known
	Metadata    string
	Err         error // nil, a *KafkaError (UNSTABLE_OFFSET_COMMIT), or ErrNoAnswer
	// From is of commits only: commit if that is what is committed, -1: nothing, and else answer an
	// *OffsetMovedError; nil: whatever is committed. Clusters of our own alone compare; a commit to another one is
	// of unknown outcome.
	From *int64
}

// OffsetMovedError says that something else is committed than CommittedOffset.From.
type OffsetMovedError struct {
	TopicPartition
	From, Committed int64 // -1: nothing
}

func (e *OffsetMovedError) Error() string {
	if e.Committed < 0 {
		return "the group has committed nothing for " + e.TopicPartition.String() + ", where " + fmt.Sprint(e.From) +
			" was to be"
	}
	if e.From < 0 {
		return fmt.Sprintf("the group has committed %d for %v, where nothing was to be", e.Committed, e.TopicPartition)
	}
	return fmt.Sprintf("the group has committed %d for %v, not %d", e.Committed, e.TopicPartition, e.From)
}

// GroupOffsets is what a group committed, or why that cannot be told.
type GroupOffsets struct {
	ID      string
	Offsets []CommittedOffset // by topic and partition
	Err     error             // nil, a *KafkaError, or ErrNoAnswer
}

// Committed reads what a group committed: for the partitions named, in their order, or for all that there are, by
// topic and partition. A group that does not exist has committed nothing. With stable, a partition that an open
// transaction may still change is UNSTABLE_OFFSET_COMMIT.
func (c *Client) Committed(ctx context.Context, group string, stable bool, of ...TopicPartition) (
	[]CommittedOffset, error,
) {
	one := kmsg.NewOffsetFetchRequestGroup()
	one.Group = group
	for topic, numbers := range byTopic(of) {
		t := kmsg.NewOffsetFetchRequestGroupTopic()
		t.Topic, t.Partitions = topic, numbers
		one.Topics = append(one.Topics, t)
	}
	found, err := c.fetchOffsets(ctx, []kmsg.OffsetFetchRequestGroup{one}, stable)
	if err != nil {
		return nil, err
	}
	if found[0].Err != nil || len(of) == 0 {
		return found[0].Offsets, found[0].Err
	}
	out := make([]CommittedOffset, len(of))
	for i, at := range of {
		j, ok := slices.BinarySearchFunc(found[0].Offsets, at, func(o CommittedOffset, at TopicPartition) int {
			return o.Compare(at)
		})
		if ok {
			out[i] = found[0].Offsets[j]
		} else {
			out[i] = CommittedOffset{TopicPartition: at, Offset: -1, LeaderEpoch: -1,
				Err: noAnswer("offsets of group "+group, errMissing)}
		}
	}
	return out, nil
}

// CommittedOfAll reads all that several groups committed, in their order. One group's failure is its own.
func (c *Client) CommittedOfAll(ctx context.Context, groups []string, stable bool) ([]GroupOffsets, error) {
	if len(groups) == 0 {
		return nil, nil
	}
	of := make([]kmsg.OffsetFetchRequestGroup, len(groups))
	for i, id := range groups {
		of[i] = kmsg.NewOffsetFetchRequestGroup() // no list of topics asks for all
		of[i].Group = id
	}
	return c.fetchOffsets(ctx, of, stable)
}

// fetchOffsets asks for offsets by the names of topics, for one that is no more has no id. Version 8 is the first with
// several groups, 10 the first without names.
func (c *Client) fetchOffsets(ctx context.Context, of []kmsg.OffsetFetchRequestGroup, stable bool) (
	[]GroupOffsets, error,
) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version = 9
	req.Groups, req.RequireStable = of, stable
	resp, err := call(ctx, "offsets of groups", req.RequestWith, c.requestor)
	if err != nil {
		return nil, err
	}
	answers := make(map[string]*kmsg.OffsetFetchResponseGroup, len(of))
	for i := range resp.Groups {
		answers[resp.Groups[i].Group] = &resp.Groups[i]
	}
	out := make([]GroupOffsets, len(of))
	for i := range of {
		out[i].ID = of[i].Group
		if g := answers[of[i].Group]; g == nil {
			out[i].Err = noAnswer("offsets of group "+of[i].Group, errMissing)
		} else if g.ErrorCode != kerr.GroupIDNotFound.Code { // which some say of a group without offsets
			out[i].Offsets, out[i].Err = committedOffsets(g), groupFault(g.Group, g.ErrorCode, nil)
		}
	}
	return out, nil
}

func committedOffsets(g *kmsg.OffsetFetchResponseGroup) []CommittedOffset {
	n := 0
	for i := range g.Topics {
		n += len(g.Topics[i].Partitions)
	}
	out := make([]CommittedOffset, 0, n)
	for i := range g.Topics {
		t := &g.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			o := CommittedOffset{
				TopicPartition: TopicPartition{t.Topic, p.Partition}, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch,
				Err: fault(p.ErrorCode, nil, t.Topic, p.Partition),
			}
			if p.Metadata != nil {
				o.Metadata = *p.Metadata
			}
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b CommittedOffset) int { return a.Compare(b.TopicPartition) })
	return out
}

// GroupCommit sets where a group stands. Epoch is the member's: its generation in a classic group, its member epoch in
// a consumer group; below 0 it is nobody's, which a group allows while it has no members. A group that does not exist
// is made.
type GroupCommit struct {
	Group    string
	Member   string
	Instance *string
	Epoch    int32
	Offsets  []CommittedOffset
	// Held asks that the member have the partitions; FENCED_MEMBER_EPOCH where the group has given them to others.
	Held bool
}

// answered is what came of one offset of a commit.
type answered struct {
	code int16
	tags kmsg.Tags
}

// commitErrors are the errors (nil, a *KafkaError, an *OffsetMovedError or ErrNoAnswer) in the order of the offsets.
func (g *GroupCommit) commitErrors(answers map[TopicPartition]answered) []error {
	out := make([]error, len(g.Offsets))
	for i := range g.Offsets {
		o := &g.Offsets[i]
		what := "commit of " + o.TopicPartition.String()
		a, ok := answers[o.TopicPartition]
		if !ok {
			out[i] = noAnswer(what, errMissing)
			continue
		}
		at, compared := ktag.ActualOffset(&a.tags)
		switch {
		case o.From != nil && compared && a.code == kerr.InvalidUpdateVersion.Code:
			out[i] = &OffsetMovedError{o.TopicPartition, *o.From, at}
		case o.From != nil && !compared && a.code == 0:
			out[i] = noAnswer(what, errNotCompared)
		default:
			out[i] = fault(a.code, nil, o.Topic, o.Partition)
		}
	}
	return out
}

var errNotCompared = errors.New("the cluster does not compare offsets, and has committed whatever there was")

// CommitOffsets commits. The errors (nil, a *KafkaError, an *OffsetMovedError or ErrNoAnswer) are in the order of the
// offsets.
func (c *Client) CommitOffsets(ctx context.Context, g GroupCommit) ([]error, error) {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version = 9 // the last that names topics by name
	req.Group, req.MemberID, req.InstanceID, req.Generation = g.Group, g.Member, g.Instance, g.Epoch
	if g.Held {
		ktag.SetHeld(&req.UnknownTags)
	}
	places := make(map[string]int) // in req.Topics
	for i := range g.Offsets {
		o := &g.Offsets[i]
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = o.Partition, o.Offset, o.LeaderEpoch, &o.Metadata
		if o.From != nil {
			ktag.SetCommitFrom(&p.UnknownTags, *o.From)
		}
		at, ok := places[o.Topic]
		if !ok {
			at = len(req.Topics)
			places[o.Topic] = at
			t := kmsg.NewOffsetCommitRequestTopic()
			t.Topic = o.Topic
			req.Topics = append(req.Topics, t)
		}
		req.Topics[at].Partitions = append(req.Topics[at].Partitions, p)
	}
	resp, err := call(ctx, "commit of group "+g.Group, req.RequestWith, c.requestor)
	if err != nil {
		return nil, err
	}
	answers := make(map[TopicPartition]answered, len(g.Offsets))
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for _, p := range t.Partitions {
			answers[TopicPartition{t.Topic, p.Partition}] = answered{p.ErrorCode, p.UnknownTags}
		}
	}
	return g.commitErrors(answers), nil
}

// DeleteOffsets forgets what a group committed for partitions; GROUP_SUBSCRIBED_TO_TOPIC where a member reads the
// topic. The errors (nil, a *KafkaError or ErrNoAnswer) are in the order of the partitions.
func (c *Client) DeleteOffsets(ctx context.Context, group string, of []TopicPartition) ([]error, error) {
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = group
	for topic, numbers := range byTopic(of) {
		t := kmsg.NewOffsetDeleteRequestTopic()
		t.Topic = topic
		for _, n := range numbers {
			t.Partitions = append(t.Partitions, kmsg.OffsetDeleteRequestTopicPartition{Partition: n})
		}
		req.Topics = append(req.Topics, t)
	}
	resp, err := call(ctx, "delete offsets of group "+group, req.RequestWith, c.requestor)
	if err != nil {
		return nil, err
	}
	if err := groupFault(group, resp.ErrorCode, nil); err != nil {
		return nil, err
	}
	answers := make(map[TopicPartition]int16, len(of))
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for _, p := range t.Partitions {
			answers[TopicPartition{t.Topic, p.Partition}] = p.ErrorCode
		}
	}
	out := make([]error, len(of))
	for i, at := range of {
		if code, answered := answers[at]; answered {
			out[i] = fault(code, nil, at.Topic, at.Partition)
		} else {
			out[i] = noAnswer("delete offsets of "+at.String(), errMissing)
		}
	}
	return out, nil
}

// OffsetLookup asks for the first offset of a partition whose timestamp is at or after Timestamp, or a special one.
type OffsetLookup struct {
	TopicPartition
	Timestamp int64 // milliseconds, or Latest, Earliest, MaxTimestamp
}

// FoundOffset answers an OffsetLookup. Offset is -1 when no record is that late.
type FoundOffset struct {
	TopicPartition
	Offset      int64
	Timestamp   int64 // of the record found; -1 for Latest and Earliest
	LeaderEpoch int32
	Err         error // nil, a *KafkaError, or ErrNoAnswer
}

// maxLookups bounds the partitions of one message to the leaders; more go in several.
const maxLookups = 10_000

// EndOffsets looks up where partitions of any topics end. The answers are in the order of the partitions, which must
// all differ.
func (c *Client) EndOffsets(ctx context.Context, of []TopicPartition, level Isolation) ([]FoundOffset, error) {
	return c.LookUpOffsets(ctx, lookups(of, Latest), level)
}

// StartOffsets looks up where partitions of any topics start, as EndOffsets does.
func (c *Client) StartOffsets(ctx context.Context, of []TopicPartition) ([]FoundOffset, error) {
	return c.LookUpOffsets(ctx, lookups(of, Earliest), ReadUncommitted)
}

// OffsetsForTimes looks up the first offsets at or after a time, as EndOffsets does.
func (c *Client) OffsetsForTimes(ctx context.Context, of []TopicPartition, ms int64, level Isolation) (
	[]FoundOffset, error,
) {
	return c.LookUpOffsets(ctx, lookups(of, ms), level)
}

func lookups(of []TopicPartition, timestamp int64) []OffsetLookup {
	out := make([]OffsetLookup, len(of))
	for i, at := range of {
		out[i] = OffsetLookup{at, timestamp}
	}
	return out
}

// LookUpOffsets looks offsets up in any topics. The answers are in the order of the look-ups, which must all be about
// different partitions.
func (c *Client) LookUpOffsets(ctx context.Context, of []OffsetLookup, level Isolation) ([]FoundOffset, error) {
	out := make([]FoundOffset, 0, len(of))
	for part := range slices.Chunk(of, maxLookups) {
		some, err := c.lookUpOffsets(ctx, part, level)
		if err != nil {
			return nil, err
		}
		out = append(out, some...)
	}
	return out, nil
}

func (c *Client) lookUpOffsets(ctx context.Context, of []OffsetLookup, level Isolation) ([]FoundOffset, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	req.IsolationLevel = int8(level)
	places := make(map[string]int) // in req.Topics
	for _, q := range of {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = q.Partition, q.Timestamp
		at, ok := places[q.Topic]
		if !ok {
			at = len(req.Topics)
			places[q.Topic] = at
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = q.Topic
			req.Topics = append(req.Topics, t)
		}
		req.Topics[at].Partitions = append(req.Topics[at].Partitions, p)
	}
	resp, err := call(ctx, "offsets of partitions", req.RequestWith, c.requestor)
	if err != nil {
		return nil, err
	}
	answers := make(map[TopicPartition]*kmsg.ListOffsetsResponseTopicPartition, len(of))
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			answers[TopicPartition{t.Topic, t.Partitions[j].Partition}] = &t.Partitions[j]
		}
	}
	out := make([]FoundOffset, len(of))
	for i, q := range of {
		out[i] = FoundOffset{TopicPartition: q.TopicPartition, Offset: -1, Timestamp: -1, LeaderEpoch: -1}
		p := answers[q.TopicPartition]
		if p == nil {
			out[i].Err = noAnswer("offsets of "+q.String(), errMissing)
			continue
		}
		out[i].Offset, out[i].Timestamp, out[i].LeaderEpoch = p.Offset, p.Timestamp, p.LeaderEpoch
		if out[i].Err = fault(p.ErrorCode, nil, q.Topic, q.Partition); out[i].Err != nil {
			c.forgetOn(out[i].Err, q.Topic)
		}
	}
	return out, nil
}

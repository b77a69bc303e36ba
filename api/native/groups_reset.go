package native

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/api"
	"millrace/client"
)

// maxCommits bounds the offsets of one commit; more go in several.
const maxCommits = 1000

// UnmarshalJSON reads the body strictly.
func (r *OffsetReset) UnmarshalJSON(b []byte) error {
	type plain OffsetReset
	if err := api.Decode(b, (*plain)(r)); err != nil {
		return err
	}
	switch {
	case r.Topics != nil && len(r.Topics) == 0:
		return api.Refuse(api.MalformedBody, "topics is empty; leave it out to reset all that the group has offsets of")
	case r.Partitions != nil && len(r.Partitions) == 0:
		return api.Refuse(api.MalformedBody, "partitions is empty; leave it out to reset all that the group has offsets of")
	case len(r.Topics) > maxListed:
		return api.Refuse(api.MalformedBody, "topics has %d items; at most %d go at once", len(r.Topics), maxListed)
	case len(r.Partitions) > maxListed:
		return api.Refuse(api.MalformedBody, "partitions has %d items; at most %d go at once", len(r.Partitions), maxListed)
	}
	return nil
}

// goal is where a reset leads: to a special timestamp or a time, to an offset, or by a number of offsets.
type goal struct {
	timestamp int64
	offset    *int64
	shift     *int64
}

func goalOf(r *OffsetReset) (g goal, err error) {
	given := 0
	if r.To != nil {
		given++
		switch *r.To {
		case "earliest":
			g.timestamp = client.Earliest
		case "latest":
			g.timestamp = client.Latest
		default:
			return g, api.Refuse(api.MalformedBody, "to is earliest or latest, not %.40q", *r.To)
		}
	}
	if r.Timestamp != nil {
		given++
		if g.timestamp, err = parseTimestamp(*r.Timestamp); err != nil {
			return g, api.Refuse(api.MalformedBody,
				"timestamp is RFC 3339 or milliseconds since 1970, not %.40q", *r.Timestamp)
		}
	}
	if r.Offset != nil {
		given++
		if g.offset = r.Offset; *r.Offset < 0 {
			return g, api.Refuse(api.MalformedBody, "offset is at least 0, not %d", *r.Offset)
		}
	}
	if r.Shift != nil {
		given++
		g.shift = r.Shift
	}
	if given != 1 {
		return g, api.Refuse(api.MalformedBody, "give just one of to, timestamp, offset and shift")
	}
	return g, nil
}

// ResetGroupOffsets sets where a group reads on.
func (s *Server) ResetGroupOffsets(ctx context.Context, req ResetGroupOffsetsRequestObject) (
	ResetGroupOffsetsResponseObject, error,
) {
	to, err := goalOf(req.Body)
	if err != nil {
		return nil, err
	}
	dry := req.Body.DryRun != nil && *req.Body.DryRun
	g, err := s.client.DescribeGroup(ctx, req.Group)
	switch {
	case errors.Is(err, kerr.GroupIDNotFound):
		g = &client.Group{ID: req.Group}
	case err != nil:
		return nil, err
	case len(g.Members) > 0 && !dry:
		return nil, hasMembers(g)
	}
	committed, err := s.client.Committed(ctx, req.Group, false)
	if err != nil {
		return nil, err
	}
	of, err := s.resetScope(ctx, req.Group, req.Body, committed)
	if err != nil {
		return nil, err
	}
	plan, err := s.planReset(ctx, of, committed, to)
	if err != nil {
		return nil, err
	}
	if !dry {
		if err := s.commitReset(ctx, g, plan); err != nil {
			return nil, err
		}
	}
	return ResetGroupOffsets200JSONResponse{
		Group: req.Group, DryRun: dry, Members: int32(len(g.Members)), Count: int32(len(plan)),
		Partitions: plan[:min(len(plan), maxGroupPartitions)],
	}, nil
}

// resetScope is the partitions that a reset is about, by topic and number.
func (s *Server) resetScope(ctx context.Context, group string, r *OffsetReset, committed []client.CommittedOffset) (
	[]client.TopicPartition, error,
) {
	var of []client.TopicPartition
	for _, name := range r.Topics {
		t, err := s.client.Topic(ctx, name, client.Refuse)
		if err != nil {
			return nil, err
		}
		for i := range t.Partitions {
			of = append(of, client.TopicPartition{Topic: t.Name, Partition: int32(i)})
		}
	}
	for _, p := range r.Partitions {
		t, err := s.client.Topic(ctx, p.Topic, client.Refuse)
		if err != nil {
			return nil, err
		}
		if err := t.Has(p.Partition); err != nil {
			return nil, err
		}
		of = append(of, client.TopicPartition{Topic: p.Topic, Partition: p.Partition})
	}
	if len(r.Topics)+len(r.Partitions) == 0 {
		if len(committed) == 0 {
			return nil, api.Refuse(api.UnprocessableBody,
				"group %s has no offsets, so topics or partitions must name what to reset", group)
		}
		for i := range committed {
			of = append(of, committed[i].TopicPartition)
		}
	}
	slices.SortFunc(of, client.TopicPartition.Compare)
	for i := range of[1:] {
		if of[i] == of[i+1] {
			return nil, api.Refuse(api.MalformedBody, "%s is there twice", of[i])
		}
	}
	return of, nil
}

// planReset says where each partition is and where it is to be. As Kafka's own tool has it, what is outside the log
// becomes its nearest end.
func (s *Server) planReset(
	ctx context.Context, of []client.TopicPartition, committed []client.CommittedOffset, to goal,
) ([]ResetOffset, error) {
	plan := make([]ResetOffset, len(of))
	for i, at := range of {
		plan[i] = ResetOffset{Topic: at.Topic, Partition: at.Partition}
		j, ok := slices.BinarySearchFunc(committed, at, func(o client.CommittedOffset, at client.TopicPartition) int {
			return o.Compare(at)
		})
		if ok && committed[j].Offset >= 0 {
			plan[i].From = &committed[j].Offset
		}
		switch {
		case to.offset != nil:
			plan[i].To = *to.offset
		case to.shift != nil && plan[i].From == nil:
			return nil, api.Refuse(api.UnprocessableBody,
				"the group has no offset of %s to shift; reset it to earliest, latest, a time or an offset first", at)
		case to.shift != nil:
			plan[i].To = addOffsets(*plan[i].From, *to.shift)
		}
	}
	if to.offset != nil || to.shift != nil {
		return plan, s.clamp(ctx, of, plan)
	}
	return plan, s.lookUp(ctx, of, plan, to.timestamp)
}

// addOffsets adds without overflow.
func addOffsets(a, b int64) int64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < -b:
		return -1
	}
	return a + b
}

// lookUp finds the offsets of a time, or the special ones. What is later than all there is leads to the end.
func (s *Server) lookUp(ctx context.Context, of []client.TopicPartition, plan []ResetOffset, timestamp int64) error {
	found, err := s.client.OffsetsForTimes(ctx, of, timestamp, client.ReadCommitted)
	if err != nil {
		return err
	}
	var late []client.TopicPartition
	var places []int
	for i := range found {
		if found[i].Err != nil {
			return found[i].Err
		}
		if plan[i].To = found[i].Offset; plan[i].To < 0 {
			late, places = append(late, of[i]), append(places, i)
		}
	}
	ends, err := s.client.EndOffsets(ctx, late, client.ReadCommitted)
	if err != nil {
		return err
	}
	for i, place := range places {
		if ends[i].Err != nil {
			return ends[i].Err
		}
		plan[place].To = ends[i].Offset
	}
	return nil
}

// clamp keeps a plan within the logs.
func (s *Server) clamp(ctx context.Context, of []client.TopicPartition, plan []ResetOffset) error {
	starts, err := s.client.StartOffsets(ctx, of)
	if err != nil {
		return err
	}
	ends, err := s.client.EndOffsets(ctx, of, client.ReadUncommitted)
	if err != nil {
		return err
	}
	for i := range plan {
		if err := errors.Join(starts[i].Err, ends[i].Err); err != nil {
			return err
		}
		within := max(min(plan[i].To, ends[i].Offset), starts[i].Offset)
		plan[i].To, plan[i].Clamped = within, within != plan[i].To
	}
	return nil
}

// commitReset commits a plan in the name of nobody, which a group allows while it has no members.
func (s *Server) commitReset(ctx context.Context, g *client.Group, plan []ResetOffset) error {
	var changes []change
	for part := range slices.Chunk(plan, maxCommits) {
		commit := client.GroupCommit{Group: g.ID, Epoch: -1}
		for i := range part {
			commit.Offsets = append(commit.Offsets, client.CommittedOffset{
				TopicPartition: client.TopicPartition{Topic: part[i].Topic, Partition: part[i].Partition},
				Offset:         part[i].To, LeaderEpoch: -1,
			})
		}
		errs, err := s.client.CommitOffsets(ctx, commit)
		for i := range part {
			failed := err
			if err == nil {
				failed = joined(g.ID, errs[i])
			}
			changes = append(changes, change{commit.Offsets[i].TopicPartition, failed})
		}
	}
	return failureOf(changes)
}

// joined says of a commit that was refused for the members of the group that there are some: they came meanwhile.
func joined(group string, err error) error {
	if errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.StaleMemberEpoch) ||
		errors.Is(err, kerr.RebalanceInProgress) || errors.Is(err, kerr.IllegalGeneration) {
		return client.Fault(kerr.NonEmptyGroup, "a member joined group %s meanwhile", group)
	}
	return err
}

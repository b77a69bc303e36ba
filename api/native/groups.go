package native

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/api"
	"millrace/client"
)

// maxGroupPartitions bounds the partitions of a group that an answer lists.
const maxGroupPartitions = 10_000

// groupWord is a state or a type of groups, in Kafka's word and in ours.
type groupWord struct{ kafka, ours string }

func groupStates() []groupWord {
	return []groupWord{
		{client.GroupEmpty, "empty"}, {client.GroupStable, "stable"}, {client.GroupPreparing, "preparing_rebalance"},
		{client.GroupCompleting, "completing_rebalance"}, {client.GroupAssigning, "assigning"},
		{client.GroupReconciling, "reconciling"}, {client.GroupDead, "dead"},
	}
}

func groupTypes() []groupWord {
	return []groupWord{{client.ClassicGroup, "classic"}, {client.ConsumerGroup, "consumer"}}
}

// ourWord translates Kafka's word; one that is new stays as it is, in lower case.
func ourWord(words []groupWord, kafka string) string {
	for _, w := range words {
		if w.kafka == kafka {
			return w.ours
		}
	}
	return strings.ToLower(kafka)
}

// groupFilter is a filter of a list in Kafka's words; none where no word is given.
func groupFilter(name string, words []groupWord, ours *string) ([]string, error) {
	if ours == nil {
		return nil, nil
	}
	var known []string
	for _, w := range words {
		if w.ours == *ours {
			return []string{w.kafka}, nil
		}
		known = append(known, w.ours)
	}
	return nil, api.BadParameter(name, *ours, "one of "+strings.Join(known, ", "))
}

// lagIsolation reads which records count for lag.
func lagIsolation(v *string) (client.Isolation, error) {
	switch {
	case v == nil || *v == "read_committed":
		return client.ReadCommitted, nil
	case *v == "read_uncommitted":
		return client.ReadUncommitted, nil
	}
	return 0, api.BadParameter("isolation", *v, "read_committed or read_uncommitted")
}

// groupCursor reads a cursor, which is the id of the last group before.
func groupCursor(cursor *string) (string, error) {
	if cursor == nil {
		return "", nil
	}
	b, err := base64.RawURLEncoding.DecodeString(*cursor)
	if err != nil || len(b) == 0 || !utf8.Valid(b) || len(b) > maxCursorBytes {
		return "", api.Refuse(api.InvalidParameter, "cursor is not one that a page gave")
	}
	return string(b), nil
}

// maxCursorBytes bounds a group id in a cursor. Other systems may have left longer ones than can be made here.
const maxCursorBytes = 32 << 10

// ListGroups answers with a page of groups by id.
func (s *Server) ListGroups(ctx context.Context, req ListGroupsRequestObject) (ListGroupsResponseObject, error) {
	p := &req.Params
	limit, err := pageLimit(p.Limit)
	if err != nil {
		return nil, err
	}
	after, err := groupCursor(p.Cursor)
	if err != nil {
		return nil, err
	}
	states, err := groupFilter("state", groupStates(), (*string)(p.State))
	if err != nil {
		return nil, err
	}
	types, err := groupFilter("type", groupTypes(), (*string)(p.Type))
	if err != nil {
		return nil, err
	}
	level, err := lagIsolation((*string)(p.Isolation))
	if err != nil {
		return nil, err
	}
	groups, err := s.client.Groups(ctx, states, types)
	if err != nil {
		return nil, err
	}
	first, found := slices.BinarySearchFunc(groups, after, func(g client.GroupListing, id string) int {
		return strings.Compare(g.ID, id)
	})
	if found {
		first++
	}
	shown := groups[first:min(first+limit, len(groups))]
	out := ListGroups200JSONResponse{Items: make([]GroupSummary, len(shown))}
	for i := range shown {
		out.Items[i] = groupSummary(&shown[i])
	}
	if first+len(shown) < len(groups) {
		next := base64.RawURLEncoding.EncodeToString([]byte(shown[len(shown)-1].ID))
		out.NextCursor = &next
	}
	if p.Lag != nil && *p.Lag {
		err = s.addLags(ctx, out.Items, level)
	}
	return out, err
}

func groupSummary(g *client.GroupListing) GroupSummary {
	return GroupSummary{
		Group: g.ID, Type: ourWord(groupTypes(), g.Type), State: ourWord(groupStates(), g.State),
		ProtocolType: g.ProtocolType,
	}
}

// addLags tells how far groups are behind. One whose coordinator does not tell goes without.
func (s *Server) addLags(ctx context.Context, groups []GroupSummary, level client.Isolation) error {
	ids := make([]string, len(groups))
	for i := range groups {
		ids[i] = groups[i].Group
	}
	lags, err := s.client.Lags(ctx, ids, level)
	if err != nil {
		return err
	}
	for i := range lags {
		if l := &lags[i]; l.Err == nil {
			groups[i].Lag = &GroupLagTotal{
				Partitions: int32(l.Partitions), Records: l.Records, MaxRecords: l.MaxRecords, Unknown: int32(l.Unknown),
			}
		}
	}
	return nil
}

// GetGroup describes a group.
func (s *Server) GetGroup(ctx context.Context, req GetGroupRequestObject) (GetGroupResponseObject, error) {
	g, err := s.client.DescribeGroup(ctx, req.Group)
	if err != nil {
		return nil, err
	}
	out := GetGroup200JSONResponse{
		Group: g.ID, Type: ourWord(groupTypes(), g.Type), State: ourWord(groupStates(), g.State),
		ProtocolType: g.Protocol, Assignor: g.Assignor, Epoch: notNegative(g.Epoch), Coordinator: notNegative(g.Coordinator),
		Members: make([]GroupMember, len(g.Members)),
	}
	for i := range g.Members {
		out.Members[i] = groupMember(&g.Members[i])
	}
	return out, nil
}

// notNegative is a number that is not known where it is below 0.
func notNegative(n int32) *int32 {
	if n < 0 {
		return nil
	}
	return &n
}

func groupMember(m *client.GroupMember) GroupMember {
	out := GroupMember{
		Member: m.ID, Instance: m.InstanceID, ClientId: m.ClientID, Host: strings.TrimPrefix(m.Host, "/"),
		Epoch: notNegative(m.Epoch), Subscription: append([]string{}, m.Subscription...),
		Assignment: groupAssignment(m.Assignment), Target: groupAssignment(m.Target),
	}
	if m.Pattern != "" {
		out.Pattern = &m.Pattern
	}
	return out
}

// groupAssignment gathers partitions, which are sorted, by their topics.
func groupAssignment(of []client.TopicPartition) []GroupAssignment {
	out := []GroupAssignment{}
	for _, at := range of {
		if n := len(out); n == 0 || out[n-1].Topic != at.Topic {
			out = append(out, GroupAssignment{Topic: at.Topic})
		}
		last := &out[len(out)-1]
		last.Partitions = append(last.Partitions, at.Partition)
	}
	return out
}

// DeleteGroup deletes a group.
func (s *Server) DeleteGroup(ctx context.Context, req DeleteGroupRequestObject) (DeleteGroupResponseObject, error) {
	if err := s.client.DeleteGroup(ctx, req.Group); err != nil {
		return nil, err
	}
	return DeleteGroup204Response{}, nil
}

// GetGroupOffsets lists what a group committed.
func (s *Server) GetGroupOffsets(ctx context.Context, req GetGroupOffsetsRequestObject) (
	GetGroupOffsetsResponseObject, error,
) {
	committed, err := s.committed(ctx, req.Group)
	if err != nil {
		return nil, err
	}
	out := GetGroupOffsets200JSONResponse{Group: req.Group, Partitions: make([]GroupOffset, len(committed))}
	for i := range committed {
		o := &committed[i]
		out.Partitions[i] = GroupOffset{
			Topic: o.Topic, Partition: o.Partition, Offset: o.Offset, LeaderEpoch: notNegative(o.LeaderEpoch),
			Metadata: o.Metadata,
		}
	}
	return out, nil
}

// committed is what a group committed; one that has nothing must exist.
func (s *Server) committed(ctx context.Context, group string) ([]client.CommittedOffset, error) {
	committed, err := s.client.Committed(ctx, group, false)
	if err == nil && len(committed) == 0 {
		_, err = s.client.DescribeGroup(ctx, group)
	}
	return committed, err
}

// DeleteGroupOffsets forgets a group's offsets of one topic.
func (s *Server) DeleteGroupOffsets(ctx context.Context, req DeleteGroupOffsetsRequestObject) (
	DeleteGroupOffsetsResponseObject, error,
) {
	if err := client.CheckTopicName(req.Topic); err != nil {
		return nil, err
	}
	committed, err := s.committed(ctx, req.Group)
	if err != nil {
		return nil, err
	}
	out := DeleteGroupOffsets200JSONResponse{Deleted: []PartitionRef{}}
	var of []client.TopicPartition
	for i := range committed {
		if committed[i].Topic == req.Topic {
			of = append(of, committed[i].TopicPartition)
		}
	}
	if len(of) == 0 { // there is nothing to do, if the name is right
		_, err := s.client.Topic(ctx, req.Topic, client.Refuse)
		return out, err
	}
	errs, err := s.client.DeleteOffsets(ctx, req.Group, of)
	if err != nil {
		return nil, err
	}
	changes := make([]change, len(of))
	for i, err := range errs {
		changes[i] = change{of[i], err}
		if err == nil {
			out.Count++
			if len(out.Deleted) < maxListed {
				out.Deleted = append(out.Deleted, PartitionRef{of[i].Partition, of[i].Topic})
			}
		}
	}
	if err := failureOf(changes); err != nil {
		return nil, err
	}
	return out, nil
}

// GetGroupLag tells how far a group is behind in each partition.
func (s *Server) GetGroupLag(ctx context.Context, req GetGroupLagRequestObject) (GetGroupLagResponseObject, error) {
	level, err := lagIsolation((*string)(req.Params.Isolation))
	if err != nil {
		return nil, err
	}
	g, err := s.client.DescribeGroup(ctx, req.Group)
	if err != nil {
		return nil, err
	}
	var assigned []client.TopicPartition
	for i := range g.Members {
		assigned = append(assigned, g.Members[i].Assignment...)
	}
	lags, err := s.client.Lag(ctx, req.Group, level, assigned...)
	if err != nil {
		return nil, err
	}
	total := sumOf(lags)
	out := GetGroupLag200JSONResponse{Group: g.ID, State: ourWord(groupStates(), g.State), Count: int32(len(lags))}
	lags = lags[:min(len(lags), maxGroupPartitions)]
	out.Partitions = make([]GroupPartitionLag, len(lags))
	owners := g.Owners()
	for i := range lags {
		out.Partitions[i] = partitionLag(&lags[i], owners[lags[i].TopicPartition])
	}
	times, err := s.nextTimes(ctx, lags, level)
	if err != nil {
		return nil, err
	}
	now := s.client.Now().UnixMilli()
	for i := range out.Partitions {
		p := &out.Partitions[i]
		if t := times[i]; t >= 0 {
			at := time.UnixMilli(t).UTC()
			p.NextTimestamp = &at
			p.LagMs = new(max(now-t, 0))
		} else if p.Lag != nil && *p.Lag == 0 {
			p.LagMs = new(int64)
		}
	}
	total.MaxLagMs = maxAge(out.Partitions)
	out.Total = total
	return out, nil
}

// sumOf is the lag of all partitions together.
func sumOf(lags []client.PartitionLag) (out GroupLagSummary) {
	for i := range lags {
		lag, ok := lags[i].Lag()
		if !ok {
			out.Unknown++
		}
		out.Records += lag
		out.MaxRecords = max(out.MaxRecords, lag)
	}
	return out
}

func partitionLag(l *client.PartitionLag, owner *client.GroupMember) GroupPartitionLag {
	out := GroupPartitionLag{Topic: l.Topic, Partition: l.Partition}
	if l.Committed >= 0 {
		out.Committed = &l.Committed
	}
	if l.Err != nil {
		detail := api.ForRead(l.Err).Text()
		out.Detail = &detail
	} else if l.End >= 0 {
		out.End = &l.End
	}
	if lag, ok := l.Lag(); ok {
		out.Lag = &lag
	}
	if owner != nil {
		host := strings.TrimPrefix(owner.Host, "/")
		out.Member, out.Instance, out.ClientId, out.Host = &owner.ID, owner.InstanceID, &owner.ClientID, &host
	}
	return out
}

// nextTimes looks up the times of what the group reads next where it is behind.
func (s *Server) nextTimes(ctx context.Context, lags []client.PartitionLag, level client.Isolation) ([]int64, error) {
	out := make([]int64, len(lags))
	var of []client.CommittedOffset
	var places []int
	for i := range lags {
		out[i] = -1
		if lag, ok := lags[i].Lag(); ok && lag > 0 {
			of = append(of, client.CommittedOffset{TopicPartition: lags[i].TopicPartition, Offset: lags[i].Committed})
			places = append(places, i)
		}
	}
	times, err := s.client.NextTimes(ctx, of, level)
	if err != nil {
		return nil, err
	}
	for i, place := range places {
		out[place] = times[i]
	}
	return out, nil
}

// maxAge is the greatest age of what is next in partitions; nil where one is not known and the others are 0.
func maxAge(partitions []GroupPartitionLag) *int64 {
	var most int64
	unknown := false
	for i := range partitions {
		if age := partitions[i].LagMs; age == nil {
			unknown = true
		} else {
			most = max(most, *age)
		}
	}
	if unknown && most == 0 {
		return nil
	}
	return &most
}

// hasMembers is the refusal of a change that members would undo.
func hasMembers(g *client.Group) error {
	detail := "group " + g.ID + " has 1 member, "
	if n := len(g.Members); n > 1 {
		detail = "group " + g.ID + " has members, one of them "
	}
	m := &g.Members[0]
	detail += m.ID
	if m.ClientID != "" {
		detail += " of client " + m.ClientID
	}
	if m.Host != "" {
		detail += " at " + strings.TrimPrefix(m.Host, "/")
	}
	return client.Fault(kerr.NonEmptyGroup, "%s", detail)
}

package client

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
)

// The types of groups, as Kafka names them.
const (
	ClassicGroup  = "Classic"  // the members choose who gets what
	ConsumerGroup = "Consumer" // the coordinator does
)

// The states of groups, as Kafka names them.
const (
	GroupPreparing   = "PreparingRebalance"
	GroupCompleting  = "CompletingRebalance"
	GroupAssigning   = "Assigning"
	GroupReconciling = "Reconciling"
	GroupStable      = "Stable"
	GroupEmpty       = "Empty"
	GroupDead        = "Dead"
)

// consumerProtocol is the protocol type of classic groups whose members consume topics.
const consumerProtocol = "consumer"

// GroupListing is a group in a list.
type GroupListing struct {
	ID           string
	ProtocolType string // empty where there are only offsets
	State        string // empty if the cluster does not say
	Type         string // empty if the cluster does not say
	Coordinator  int32  // the broker; -1 if it is not known
}

// Group is a group with its members.
type Group struct {
	ID          string
	Type        string // ClassicGroup or ConsumerGroup
	State       string
	Protocol    string // the protocol type; empty where there are only offsets
	Assignor    string // who distributes the partitions; empty while nobody does
	Epoch       int32  // of a consumer group; else -1
	Coordinator int32  // the broker; -1 if it is not known
	Members     []GroupMember
}

// GroupMember is a member of a group.
type GroupMember struct {
	ID           string
	InstanceID   *string
	ClientID     string
	Host         string
	Epoch        int32            // of a consumer group; else -1
	Assignment   []TopicPartition // by topic and partition
	Target       []TopicPartition // what it is to have, in a consumer group
	Subscription []string         // by name
	Pattern      string           // a regular expression of further topics
	State        []byte           // the member's own, which ktag.SetMemberState set
}

// Owners are the members that partitions are assigned to.
func (g *Group) Owners() map[TopicPartition]*GroupMember {
	out := make(map[TopicPartition]*GroupMember)
	for i := range g.Members {
		for _, at := range g.Members[i].Assignment {
			out[at] = &g.Members[i]
		}
	}
	return out
}

// Groups lists the groups, by id, in the states and of the types named, in Kafka's words; all where none are named. It
// fails where a coordinator does not tell its groups: a list that lacks some says nothing.
func (c *Client) Groups(ctx context.Context, states, types []string) ([]GroupListing, error) {
	req := kmsg.NewPtrListGroupsRequest()
	req.StatesFilter, req.TypesFilter = states, types
	resp, err := call(ctx, "list of groups", req.RequestWith, c.requestor)
	if err != nil {
		return nil, err
	}
	if err := fault(resp.ErrorCode, nil, "", -1); err != nil {
		return nil, err
	}
	out := make([]GroupListing, len(resp.Groups))
	for i := range resp.Groups {
		g := &resp.Groups[i]
		out[i] = GroupListing{
			ID: g.Group, ProtocolType: g.ProtocolType, State: g.GroupState, Type: titled(g.GroupType), Coordinator: -1,
		}
	}
	slices.SortFunc(out, func(a, b GroupListing) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

// titled is a type as Kafka names it: it is listed in lower case by some.
func titled(kind string) string {
	for _, name := range []string{ClassicGroup, ConsumerGroup} {
		if strings.EqualFold(kind, name) {
			return name
		}
	}
	return kind
}

// Coordinators finds the brokers that coordinate groups. What is not known is left out.
func (c *Client) Coordinators(ctx context.Context, groups []string) (map[string]int32, error) {
	out := make(map[string]int32, len(groups))
	if len(groups) == 0 {
		return out, nil
	}
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.Version = 4 // the first with several
	req.CoordinatorKeys = groups
	resp, err := call(ctx, "coordinators of groups", req.RequestWith, c.requestor)
	if err != nil {
		return nil, err
	}
	for i := range resp.Coordinators {
		if k := &resp.Coordinators[i]; k.ErrorCode == 0 {
			out[k.Key] = k.NodeID
		}
	}
	return out, nil
}

// DescribedGroup is a group, or why it cannot be told.
type DescribedGroup struct {
	*Group
	Err error // nil, a *KafkaError (GROUP_ID_NOT_FOUND), or ErrNoAnswer
}

// DescribeGroup describes a group of either type; GROUP_ID_NOT_FOUND where there is none.
func (c *Client) DescribeGroup(ctx context.Context, id string) (*Group, error) {
	out, err := c.DescribeGroups(ctx, []string{id})
	if err != nil {
		return nil, err
	}
	return out[0].Group, out[0].Err
}

// DescribeGroups describes several groups, in their order.
func (c *Client) DescribeGroups(ctx context.Context, ids []string) ([]DescribedGroup, error) {
	out := make([]DescribedGroup, len(ids))
	if len(ids) == 0 {
		return out, nil
	}
	if err := c.describeConsumerGroups(ctx, ids, out); err != nil {
		return nil, err
	}
	var classic []string
	var places []int
	for i := range out {
		if notOfType(out[i].Err) {
			classic, places = append(classic, ids[i]), append(places, i)
		}
	}
	if len(classic) > 0 {
		some, err := c.describeClassicGroups(ctx, classic)
		if err != nil {
			return nil, err
		}
		for i, place := range places {
			out[place] = some[i]
		}
	}
	where, err := c.Coordinators(ctx, known(out))
	if err != nil {
		return nil, err
	}
	for i := range out {
		if node, ok := where[ids[i]]; ok && out[i].Group != nil {
			out[i].Coordinator = node
		}
	}
	return out, nil
}

// notOfType says that another type of group may have that id. An old cluster knows one type only.
func notOfType(err error) bool {
	return errors.Is(err, kerr.GroupIDNotFound) || errors.Is(err, kerr.UnsupportedVersion)
}

func known(groups []DescribedGroup) (ids []string) {
	for i := range groups {
		if g := groups[i].Group; g != nil {
			ids = append(ids, g.ID)
		}
	}
	return ids
}

func (c *Client) describeConsumerGroups(ctx context.Context, ids []string, out []DescribedGroup) error {
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Version = 1
	req.Groups = ids
	resp, err := call(ctx, "description of groups", req.RequestWith, c.requestor)
	if err != nil {
		return err
	}
	answers := make(map[string]*kmsg.ConsumerGroupDescribeResponseGroup, len(ids))
	for i := range resp.Groups {
		answers[resp.Groups[i].Group] = &resp.Groups[i]
	}
	for i, id := range ids {
		g := answers[id]
		switch {
		case g == nil:
			out[i].Err = noAnswer("description of group "+id, errMissing)
		case g.ErrorCode != 0:
			out[i].Err = groupFault(id, g.ErrorCode, nil)
		default:
			out[i].Group = consumerGroup(g)
		}
	}
	return nil
}

func consumerGroup(g *kmsg.ConsumerGroupDescribeResponseGroup) *Group {
	out := &Group{
		ID: g.Group, Type: ConsumerGroup, State: g.State, Protocol: consumerProtocol, Assignor: g.AssignorName,
		Epoch: g.Epoch, Coordinator: -1,
	}
	for i := range g.Members {
		m := &g.Members[i]
		member := GroupMember{
			ID: m.MemberID, InstanceID: m.InstanceID, ClientID: m.ClientID, Host: m.ClientHost, Epoch: m.MemberEpoch,
			Subscription: slices.Sorted(slices.Values(m.SubscribedTopics)),
			Assignment:   assigned(&m.Assignment), Target: assigned(&m.TargetAssignment),
		}
		if m.SubscribedTopicRegex != nil {
			member.Pattern = *m.SubscribedTopicRegex
		}
		member.State, _ = ktag.MemberState(&m.UnknownTags)
		out.Members = append(out.Members, member)
	}
	out.sort()
	return out
}

// assigned is an assignment by topic and partition, but for topics that are no more.
func assigned(a *kmsg.Assignment) (out []TopicPartition) {
	for _, t := range a.TopicPartitions {
		for _, p := range t.Partitions {
			if t.Topic != "" {
				out = append(out, TopicPartition{t.Topic, p})
			}
		}
	}
	slices.SortFunc(out, TopicPartition.Compare)
	return out
}

func (g *Group) sort() {
	slices.SortFunc(g.Members, func(a, b GroupMember) int { return cmp.Compare(a.ID, b.ID) })
}

func (c *Client) describeClassicGroups(ctx context.Context, ids []string) ([]DescribedGroup, error) {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = ids
	resp, err := call(ctx, "description of groups", req.RequestWith, c.requestor)
	if err != nil {
		return nil, err
	}
	answers := make(map[string]*kmsg.DescribeGroupsResponseGroup, len(ids))
	for i := range resp.Groups {
		answers[resp.Groups[i].Group] = &resp.Groups[i]
	}
	out := make([]DescribedGroup, len(ids))
	for i, id := range ids {
		g := answers[id]
		switch {
		case g == nil:
			out[i].Err = noAnswer("description of group "+id, errMissing)
		case g.ErrorCode != 0:
			out[i].Err = groupFault(id, g.ErrorCode, nil)
		case g.State == GroupDead: // an old cluster has no other word for a group that there is not
			out[i].Err = groupFault(id, kerr.GroupIDNotFound.Code, nil)
		default:
			out[i].Group = classicGroup(g)
		}
	}
	return out, nil
}

func classicGroup(g *kmsg.DescribeGroupsResponseGroup) *Group {
	out := &Group{
		ID: g.Group, Type: ClassicGroup, State: g.State, Protocol: g.ProtocolType, Assignor: g.Protocol,
		Epoch: -1, Coordinator: -1,
	}
	for i := range g.Members {
		m := &g.Members[i]
		member := GroupMember{
			ID: m.MemberID, InstanceID: m.InstanceID, ClientID: m.ClientID, Host: m.ClientHost, Epoch: -1,
		}
		if g.ProtocolType == consumerProtocol { // the bytes of others are their own
			member.Assignment, member.Subscription = consumerBytes(m)
		}
		out.Members = append(out.Members, member)
	}
	out.sort()
	return out
}

// consumerBytes reads what consumers say in the classic protocol; what is no such thing is left out.
func consumerBytes(m *kmsg.DescribeGroupsResponseGroupMember) (assignment []TopicPartition, topics []string) {
	var a kmsg.ConsumerMemberAssignment
	if len(m.MemberAssignment) > 0 && a.ReadFrom(m.MemberAssignment) == nil {
		for _, t := range a.Topics {
			for _, p := range t.Partitions {
				assignment = append(assignment, TopicPartition{t.Topic, p})
			}
		}
	}
	var s kmsg.ConsumerMemberMetadata
	if len(m.ProtocolMetadata) > 0 && s.ReadFrom(m.ProtocolMetadata) == nil {
		topics = slices.Sorted(slices.Values(s.Topics))
	}
	slices.SortFunc(assignment, TopicPartition.Compare)
	return assignment, topics
}

// groupFault is an error code about a group. It names the group where the cluster says no more.
func groupFault(id string, code int16, message *string) error {
	text := ""
	switch {
	case code == kerr.GroupIDNotFound.Code:
		text = "group " + id + " does not exist"
	case code == kerr.NonEmptyGroup.Code:
		text = "group " + id + " has members"
	case message != nil:
		text = *message
	}
	return fault(code, &text, "", -1)
}

// DeleteGroup forgets a group with all that it committed; NON_EMPTY_GROUP while it has members.
func (c *Client) DeleteGroup(ctx context.Context, id string) error {
	req := kmsg.NewPtrDeleteGroupsRequest()
	req.Groups = []string{id}
	resp, err := call(ctx, "delete group "+id, req.RequestWith, c.requestor)
	if err != nil {
		return err
	}
	for i := range resp.Groups {
		if g := &resp.Groups[i]; g.Group == id {
			return groupFault(id, g.ErrorCode, g.ErrorMessage)
		}
	}
	return noAnswer("delete group "+id, errMissing)
}

package restv3

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/api"
	"millrace/client"
)

// maxDescribed bounds the groups that one message asks about.
const maxDescribed = 500

func groupPath(group string) string { return "/consumer-groups/" + url.PathEscape(group) }

func consumerPath(group, consumer string) string {
	return groupPath(group) + "/consumers/" + url.PathEscape(consumer)
}

func groupCRN(group string) string { return "/consumer-group=" + group }

func consumerCRN(group, consumer string) string { return groupCRN(group) + "/consumer=" + consumer }

// lagPath is the path of a lag, or of an assignment, below a group or a consumer.
func lagPath(owner, kind string, at client.TopicPartition) string {
	return owner + "/" + kind + partitionPath(at.Topic, at.Partition)[len("/topics"):]
}

// upperSnake is a word of Kafka's as this API spells it: PreparingRebalance is PREPARING_REBALANCE.
func upperSnake(word string) string {
	if word == "" {
		return "UNKNOWN"
	}
	var out strings.Builder
	for i, r := range word {
		if i > 0 && unicode.IsUpper(r) {
			out.WriteByte('_')
		}
		out.WriteRune(unicode.ToUpper(r))
	}
	return out.String()
}

// consumes says whether a group is one of consumers, and not of something else that uses the protocol.
func consumes(protocol string) bool { return protocol == "" || protocol == "consumer" }

func (a *API) ListKafkaConsumerGroups(ctx context.Context, _ ListKafkaConsumerGroupsRequestObject) (
	ListKafkaConsumerGroupsResponseObject, error) {
	l := linksFrom(ctx)
	out := ListKafkaConsumerGroups200JSONResponse{
		Kind: "KafkaConsumerGroupList", Metadata: l.collection("/consumer-groups"), Data: []KafkaConsumerGroup{},
	}
	listed, err := a.client.Groups(ctx, nil, nil)
	if err != nil {
		return nil, err
	}
	listed = slices.DeleteFunc(listed, func(g client.GroupListing) bool { return !consumes(g.ProtocolType) })
	for part := range slices.Chunk(listed, maxDescribed) {
		ids := make([]string, len(part))
		for i := range part {
			ids[i] = part[i].ID
		}
		groups, err := a.client.DescribeGroups(ctx, ids)
		if err != nil {
			return nil, err
		}
		for _, g := range groups {
			switch {
			case g.Err == nil:
				out.Data = append(out.Data, groupResponse(l, g.Group))
			case !errors.Is(g.Err, kerr.GroupIDNotFound): // which is deleted meanwhile
				return nil, g.Err
			}
		}
	}
	return out, nil
}

func (a *API) GetKafkaConsumerGroup(ctx context.Context, r GetKafkaConsumerGroupRequestObject) (
	GetKafkaConsumerGroupResponseObject, error) {
	g, err := a.group(ctx, r.ConsumerGroupId)
	if err != nil {
		return nil, err
	}
	return GetKafkaConsumerGroup200JSONResponse(groupResponse(linksFrom(ctx), g)), nil
}

// group describes a group. One that cannot exist is one that is not there, as all that stands in a path.
func (a *API) group(ctx context.Context, id string) (*client.Group, error) {
	g, err := a.client.DescribeGroup(ctx, id)
	if errors.Is(err, kerr.GroupIDNotFound) || errors.Is(err, kerr.InvalidGroupID) || err == nil && !consumes(g.Protocol) {
		return nil, api.RefuseCompat(http.StatusNotFound, "Consumer group %s could not be found.", shown(id))
	}
	return g, err
}

// shown cuts a name that is too long for a message.
func shown(name string) string {
	const most = 255
	if len(name) > most {
		return name[:most] + "..."
	}
	return name
}

func groupResponse(l links, g *client.Group) KafkaConsumerGroup {
	path := groupPath(g.ID)
	out := KafkaConsumerGroup{
		Kind: "KafkaConsumerGroup", Metadata: l.resource(path, groupCRN(g.ID)), ClusterId: l.cluster, ConsumerGroupId: g.ID,
		IsSimple: g.Protocol == "", PartitionAssignor: g.Assignor, State: upperSnake(g.State), Type: upperSnake(g.Type),
		Coordinator: l.to("/brokers"), Consumers: l.to(path + "/consumers"), LagSummary: l.to(path + "/lag-summary"),
	}
	if g.Coordinator >= 0 {
		out.Coordinator = l.to(brokerPath(g.Coordinator))
	}
	return out
}

func (a *API) ListKafkaConsumers(ctx context.Context, r ListKafkaConsumersRequestObject) (
	ListKafkaConsumersResponseObject, error) {
	g, err := a.group(ctx, r.ConsumerGroupId)
	if err != nil {
		return nil, err
	}
	l := linksFrom(ctx)
	out := ListKafkaConsumers200JSONResponse{
		Kind: "KafkaConsumerList", Metadata: l.collection(groupPath(g.ID) + "/consumers"),
		Data: make([]KafkaConsumer, len(g.Members)),
	}
	for i := range g.Members {
		out.Data[i] = consumerResponse(l, g.ID, &g.Members[i])
	}
	return out, nil
}

func (a *API) GetKafkaConsumer(ctx context.Context, r GetKafkaConsumerRequestObject) (
	GetKafkaConsumerResponseObject, error) {
	m, err := a.consumer(ctx, r.ConsumerGroupId, r.ConsumerId)
	if err != nil {
		return nil, err
	}
	return GetKafkaConsumer200JSONResponse(consumerResponse(linksFrom(ctx), r.ConsumerGroupId, m)), nil
}

func (a *API) consumer(ctx context.Context, group, id string) (*client.GroupMember, error) {
	g, err := a.group(ctx, group)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(g.Members, func(m client.GroupMember) bool { return m.ID == id })
	if i < 0 {
		return nil, api.RefuseCompat(http.StatusNotFound,
			"Consumer %s could not be found in group %s.", shown(id), shown(group))
	}
	return &g.Members[i], nil
}

func consumerResponse(l links, group string, m *client.GroupMember) KafkaConsumer {
	path := consumerPath(group, m.ID)
	return KafkaConsumer{
		Kind: "KafkaConsumer", Metadata: l.resource(path, consumerCRN(group, m.ID)), ClusterId: l.cluster,
		ConsumerGroupId: group, ConsumerId: m.ID, InstanceId: m.InstanceID, ClientId: m.ClientID,
		Assignments: l.to(path + "/assignments"),
	}
}

func (a *API) ListKafkaConsumerAssignments(ctx context.Context, r ListKafkaConsumerAssignmentsRequestObject) (
	ListKafkaConsumerAssignmentsResponseObject, error) {
	m, err := a.consumer(ctx, r.ConsumerGroupId, r.ConsumerId)
	if err != nil {
		return nil, err
	}
	l := linksFrom(ctx)
	out := ListKafkaConsumerAssignments200JSONResponse{
		Kind:     "KafkaConsumerAssignmentList",
		Metadata: l.collection(consumerPath(r.ConsumerGroupId, m.ID) + "/assignments"),
		Data:     make([]KafkaConsumerAssignment, len(m.Assignment)),
	}
	for i, at := range m.Assignment {
		out.Data[i] = assignmentResponse(l, r.ConsumerGroupId, m.ID, at)
	}
	return out, nil
}

func (a *API) GetKafkaConsumerAssignment(ctx context.Context, r GetKafkaConsumerAssignmentRequestObject) (
	GetKafkaConsumerAssignmentResponseObject, error) {
	m, err := a.consumer(ctx, r.ConsumerGroupId, r.ConsumerId)
	if err != nil {
		return nil, err
	}
	at := client.TopicPartition{Topic: r.TopicName, Partition: r.PartitionId}
	if !slices.Contains(m.Assignment, at) {
		return nil, api.RefuseCompat(http.StatusNotFound,
			"Consumer %s does not read partition %d of topic %s.", shown(m.ID), r.PartitionId, shown(r.TopicName))
	}
	return GetKafkaConsumerAssignment200JSONResponse(
		assignmentResponse(linksFrom(ctx), r.ConsumerGroupId, m.ID, at)), nil
}

func assignmentResponse(l links, group, consumer string, at client.TopicPartition) KafkaConsumerAssignment {
	crn := consumerCRN(group, consumer) + "/assignment=" + partitionCRN(at.Topic, at.Partition)[len("/topic="):]
	return KafkaConsumerAssignment{
		Kind:      "KafkaConsumerAssignment",
		Metadata:  l.resource(lagPath(consumerPath(group, consumer), "assignments", at), crn),
		ClusterId: l.cluster, ConsumerGroupId: group, ConsumerId: consumer, TopicName: at.Topic, PartitionId: at.Partition,
		Partition: l.to(partitionPath(at.Topic, at.Partition)), Lag: l.to(lagPath(groupPath(group), "lags", at)),
	}
}

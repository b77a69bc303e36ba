package restv3

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"millrace/api"
	"millrace/client"
)

// groupLags are the lags of a group and who reads the partitions.
type groupLags struct {
	id     string
	lags   []client.PartitionLag // the greatest first, then by topic and partition
	owners map[client.TopicPartition]*client.GroupMember
}

// lags looks up how far a group is behind the ends that readers of committed records see. A partition whose end is not
// known is left out.
func (a *API) lags(ctx context.Context, id string) (*groupLags, error) {
	g, err := a.group(ctx, id)
	if err != nil {
		return nil, err
	}
	lags, err := a.client.Lag(ctx, g.ID, client.ReadCommitted)
	if err != nil {
		return nil, err
	}
	lags = slices.DeleteFunc(lags, func(p client.PartitionLag) bool {
		_, known := p.Lag()
		return !known
	})
	if len(lags) == 0 {
		return nil, api.RefuseCompat(http.StatusNotFound, "Consumer group offsets could not be found.")
	}
	slices.SortFunc(lags, func(p, q client.PartitionLag) int {
		return cmp.Or(cmp.Compare(lagOf(&q), lagOf(&p)), p.Compare(q.TopicPartition))
	})
	return &groupLags{g.ID, lags, g.Owners()}, nil
}

// lagOf is a lag that is known.
func lagOf(p *client.PartitionLag) int64 {
	lag, _ := p.Lag()
	return lag
}

func (a *API) ListKafkaConsumerLags(ctx context.Context, r ListKafkaConsumerLagsRequestObject) (
	ListKafkaConsumerLagsResponseObject, error) {
	g, err := a.lags(ctx, r.ConsumerGroupId)
	if err != nil {
		return nil, err
	}
	l := linksFrom(ctx)
	out := ListKafkaConsumerLags200JSONResponse{
		Kind: "KafkaConsumerLagList", Metadata: l.collection(groupPath(g.id) + "/lags"),
		Data: make([]KafkaConsumerLag, len(g.lags)),
	}
	for i := range g.lags {
		out.Data[i] = g.response(l, &g.lags[i])
	}
	return out, nil
}

func (a *API) GetKafkaConsumerLag(ctx context.Context, r GetKafkaConsumerLagRequestObject) (
	GetKafkaConsumerLagResponseObject, error) {
	g, err := a.lags(ctx, r.ConsumerGroupId)
	if err != nil {
		return nil, err
	}
	at := client.TopicPartition{Topic: r.TopicName, Partition: r.PartitionId}
	i := slices.IndexFunc(g.lags, func(p client.PartitionLag) bool { return p.TopicPartition == at })
	if i < 0 {
		return nil, api.RefuseCompat(http.StatusNotFound, "Consumer lag could not be found.")
	}
	return GetKafkaConsumerLag200JSONResponse(g.response(linksFrom(ctx), &g.lags[i])), nil
}

// owner is who reads a partition, in the fields of an answer: nobody has empty names.
func (g *groupLags) owner(at client.TopicPartition) (id string, instance *string, clientID string) {
	m := g.owners[at]
	if m == nil {
		return "", nil, ""
	}
	return m.ID, m.InstanceID, m.ClientID
}

func (g *groupLags) response(l links, p *client.PartitionLag) KafkaConsumerLag {
	crn := groupCRN(g.id) + "/lag=" + partitionCRN(p.Topic, p.Partition)[len("/topic="):]
	out := KafkaConsumerLag{
		Kind: "KafkaConsumerLag", Metadata: l.resource(lagPath(groupPath(g.id), "lags", p.TopicPartition), crn),
		ClusterId: l.cluster, ConsumerGroupId: g.id, TopicName: p.Topic, PartitionId: p.Partition,
		CurrentOffset: p.Committed, LogEndOffset: p.End, Lag: lagOf(p),
	}
	out.ConsumerId, out.InstanceId, out.ClientId = g.owner(p.TopicPartition)
	return out
}

func (a *API) GetKafkaConsumerGroupLagSummary(ctx context.Context, r GetKafkaConsumerGroupLagSummaryRequestObject) (
	GetKafkaConsumerGroupLagSummaryResponseObject, error) {
	g, err := a.lags(ctx, r.ConsumerGroupId)
	if err != nil {
		return nil, err
	}
	l, most := linksFrom(ctx), &g.lags[0]
	out := GetKafkaConsumerGroupLagSummary200JSONResponse{
		Kind:      "KafkaConsumerGroupLagSummary",
		Metadata:  l.resource(groupPath(g.id)+"/lag-summary", groupCRN(g.id)+"/lag-summary"),
		ClusterId: l.cluster, ConsumerGroupId: g.id, MaxLagTopicName: most.Topic, MaxLagPartitionId: most.Partition,
		MaxLag: lagOf(most), MaxLagPartition: l.to(partitionPath(most.Topic, most.Partition)),
	}
	out.MaxLagConsumerId, out.MaxLagInstanceId, out.MaxLagClientId = g.owner(most.TopicPartition)
	out.MaxLagConsumer = l.to(groupPath(g.id) + "/consumers")
	if out.MaxLagConsumerId != "" {
		out.MaxLagConsumer = l.to(consumerPath(g.id, out.MaxLagConsumerId))
	}
	for i := range g.lags {
		out.TotalLag += lagOf(&g.lags[i])
	}
	return out, nil
}

package restv3

import (
	"context"

	"millrace/client"
)

func (a *API) ListKafkaClusters(ctx context.Context, _ ListKafkaClustersRequestObject) (
	ListKafkaClustersResponseObject, error) {
	cluster, err := a.client.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	l := linksFrom(ctx)
	return ListKafkaClusters200JSONResponse{
		Kind: "KafkaClusterList", Metadata: CollectionMetadata{Self: l.root + "/clusters"},
		Data: []KafkaCluster{clusterResponse(l, cluster)},
	}, nil
}

func (a *API) GetKafkaCluster(ctx context.Context, _ GetKafkaClusterRequestObject) (
	GetKafkaClusterResponseObject, error) {
	cluster, err := a.client.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	return GetKafkaCluster200JSONResponse(clusterResponse(linksFrom(ctx), cluster)), nil
}

func clusterResponse(l links, c *client.Cluster) KafkaCluster {
	l.cluster = c.ID
	out := KafkaCluster{
		Kind: "KafkaCluster", Metadata: l.resource("", ""), ClusterId: c.ID,
		Acls: l.to("/acls"), Brokers: l.to("/brokers"), BrokerConfigs: l.to("/broker-configs"),
		ConsumerGroups: l.to("/consumer-groups"), Topics: l.to("/topics"),
		PartitionReassignments: l.to("/topics/-/partitions/-/reassignment"),
	}
	if c.Controller >= 0 {
		controller := l.to(brokerPath(c.Controller))
		out.Controller = &controller
	}
	return out
}

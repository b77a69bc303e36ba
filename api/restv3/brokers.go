package restv3

import (
	"context"
	"net/http"

	"millrace/api"
	"millrace/client"
)

func (a *API) ListKafkaBrokers(ctx context.Context, _ ListKafkaBrokersRequestObject) (
	ListKafkaBrokersResponseObject, error) {
	cluster, err := a.client.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	return ListKafkaBrokers200JSONResponse(brokersResponse(linksFrom(ctx), cluster)), nil
}

func (a *API) GetKafkaBroker(ctx context.Context, r GetKafkaBrokerRequestObject) (
	GetKafkaBrokerResponseObject, error) {
	broker, err := a.broker(ctx, r.BrokerId)
	if err != nil {
		return nil, err
	}
	return GetKafkaBroker200JSONResponse(brokerResponse(linksFrom(ctx), broker)), nil
}

func (a *API) ListKafkaBrokerReplicas(ctx context.Context, r ListKafkaBrokerReplicasRequestObject) (
	ListKafkaBrokerReplicasResponseObject, error) {
	if _, err := a.broker(ctx, r.BrokerId); err != nil {
		return nil, err
	}
	topics, err := a.client.Topics(ctx)
	if err != nil {
		return nil, err
	}
	return ListKafkaBrokerReplicas200JSONResponse(brokerReplicasResponse(linksFrom(ctx), r.BrokerId, topics)), nil
}

// broker finds a live broker; an unknown one is a 404.
func (a *API) broker(ctx context.Context, id int32) (client.Broker, error) {
	cluster, err := a.client.Cluster(ctx)
	if err != nil {
		return client.Broker{}, err
	}
	for _, b := range cluster.Brokers {
		if b.ID == id {
			return b, nil
		}
	}
	return client.Broker{}, api.RefuseCompat(http.StatusNotFound,
		"Broker %d cannot be found in cluster %s.", id, cluster.ID)
}

func brokersResponse(l links, c *client.Cluster) KafkaBrokerList {
	out := KafkaBrokerList{
		Kind: "KafkaBrokerList", Metadata: l.collection("/brokers"), Data: make([]KafkaBroker, len(c.Brokers)),
	}
	for i, b := range c.Brokers {
		out.Data[i] = brokerResponse(l, b)
	}
	return out
}

func brokerResponse(l links, b client.Broker) KafkaBroker {
	out := KafkaBroker{
		Kind: "KafkaBroker", Metadata: l.resource(brokerPath(b.ID), brokerCRN(b.ID)), ClusterId: l.cluster,
		BrokerId: b.ID, Rack: b.Rack,
		Configs:           l.to(brokerPath(b.ID) + "/configs"),
		PartitionReplicas: l.to(brokerPath(b.ID) + "/partition-replicas"),
	}
	if b.Host != "" {
		out.Host, out.Port = &b.Host, &b.Port
	}
	return out
}

func brokerReplicasResponse(l links, broker int32, topics []*client.Topic) KafkaReplicaList {
	out := KafkaReplicaList{
		Kind: "KafkaReplicaList", Metadata: l.collection(brokerPath(broker) + "/partition-replicas"),
		Data: []KafkaReplica{},
	}
	for _, t := range topics {
		for p := range t.Partitions {
			for _, replica := range t.Partitions[p].Replicas {
				if replica == broker {
					out.Data = append(out.Data, replicaResponse(l, t, int32(p), broker))
				}
			}
		}
	}
	return out
}

package restv3

import (
	"context"
	"slices"

	"millrace/client"
)

// maxStates bounds the partitions of one question about replicas.
const maxStates = 1000

func (a *API) ListKafkaReplicaStatuses(ctx context.Context, _ ListKafkaReplicaStatusesRequestObject) (
	ListKafkaReplicaStatusesResponseObject, error) {
	topics, err := a.client.Topics(ctx)
	if err != nil {
		return nil, err
	}
	out, err := a.replicaStatuses(ctx, "/topics/-/partitions/-/replica-status", partitionsOf(topics...))
	return ListKafkaReplicaStatuses200JSONResponse(out), err
}

func (a *API) ListKafkaTopicReplicaStatuses(ctx context.Context, r ListKafkaTopicReplicaStatusesRequestObject) (
	ListKafkaTopicReplicaStatusesResponseObject, error) {
	topic, err := a.client.Renew(ctx, r.TopicName)
	if err != nil {
		return nil, err
	}
	out, err := a.replicaStatuses(ctx, topicPath(topic.Name)+"/partitions/-/replica-status", partitionsOf(topic))
	return ListKafkaTopicReplicaStatuses200JSONResponse(out), err
}

func (a *API) ListKafkaPartitionReplicaStatuses(ctx context.Context,
	r ListKafkaPartitionReplicaStatusesRequestObject) (ListKafkaPartitionReplicaStatusesResponseObject, error) {
	topic, err := a.partition(ctx, r.TopicName, r.PartitionId)
	if err != nil {
		return nil, err
	}
	path := partitionPath(topic.Name, r.PartitionId) + "/replica-status"
	out, err := a.replicaStatuses(ctx, path, []numbered{{topic, r.PartitionId}})
	return ListKafkaPartitionReplicaStatuses200JSONResponse(out), err
}

// numbered is one partition of a topic.
type numbered struct {
	topic  *client.Topic
	number int32
}

func partitionsOf(topics ...*client.Topic) (out []numbered) {
	for _, t := range topics {
		for i := range t.Partitions {
			out = append(out, numbered{t, int32(i)})
		}
	}
	return out
}

// replicaStatuses asks the leaders of partitions for their replicas. Where a leader does not answer, the metadata has
// to do.
func (a *API) replicaStatuses(ctx context.Context, path string, of []numbered) (KafkaReplicaStatusList, error) {
	l := linksFrom(ctx)
	out := KafkaReplicaStatusList{
		Kind: "KafkaReplicaStatusList", Metadata: l.collection(path), Data: []KafkaReplicaStatus{},
	}
	cluster, err := a.client.ClusterState(ctx)
	if err != nil {
		return out, err
	}
	now := a.edge.Now().UnixMilli()
	for part := range slices.Chunk(of, maxStates) {
		names := make([]client.TopicPartition, len(part))
		for i, p := range part {
			names[i] = client.TopicPartition{Topic: p.topic.Name, Partition: p.number}
		}
		states, err := a.client.ReplicaStates(ctx, names)
		if ctx.Err() != nil {
			return out, err
		}
		for i, p := range part {
			s := status{links: l, cluster: cluster, at: p, now: now}
			if err == nil && states[i].Err == nil {
				s.known = &states[i]
			}
			for _, id := range p.topic.Partitions[p.number].Replicas {
				out.Data = append(out.Data, s.response(id))
			}
		}
	}
	return out, nil
}

// status is what the status of a partition's replicas is made from.
type status struct {
	links   links
	cluster *client.ClusterState
	at      numbered
	known   *client.PartitionReplicas // what the leader says; nil if it does not answer
	now     int64
}

func (s *status) response(broker int32) KafkaReplicaStatus {
	t, number := s.at.topic, s.at.number
	p := &t.Partitions[number]
	b := s.cluster.Broker(broker)
	out := KafkaReplicaStatus{
		Kind:      "KafkaReplicaStatus",
		Metadata:  s.links.resource(replicaPath(t.Name, number, broker), replicaCRN(t.Name, number, broker)),
		ClusterId: s.links.cluster, TopicName: t.Name, PartitionId: number, BrokerId: broker,
		IsLeader: p.Leader == broker, IsInIsr: slices.Contains(p.ISR, broker), IsIsrEligible: b != nil && b.Active(),
		LogStartOffset: -1, LogEndOffset: -1, LastCaughtUpTimeMs: -1, LastFetchTimeMs: -1,
	}
	out.IsCaughtUp = out.IsInIsr
	if s.known == nil {
		return out
	}
	out.IsLeader = s.known.Leader == broker
	for _, r := range s.known.Replicas {
		if r.ID != broker {
			continue
		}
		out.IsInIsr, out.LogStartOffset, out.LogEndOffset = r.InSync, r.LogStartOffset, r.LogEndOffset
		out.LastCaughtUpTimeMs, out.LastFetchTimeMs = r.LastCaughtUp, r.LastFetch
		out.IsCaughtUp = r.LogEndOffset >= 0 && r.LogEndOffset >= s.known.HighWatermark
	}
	if out.IsLeader {
		out.IsCaughtUp, out.LastCaughtUpTimeMs, out.LastFetchTimeMs = true, s.now, s.now
	}
	return out
}

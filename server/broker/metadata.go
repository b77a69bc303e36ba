package broker

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
)

// Metadata (key 3).
//
// Topics are all (nil), or by id, or by name. A name that does not exist is created when both the
// request and auto.create.topics.enable allow it; the answer then describes the new topic, since the
// controller answers only once this node knows it. Internal topics are never created that way. Brokers
// that are fenced are not listed; replicas on them are offline, and a partition that one of them leads has
// no leader and LEADER_NOT_AVAILABLE.

func (b *Broker) handleMetadata(ctx context.Context, v *view,
	req *kmsg.MetadataRequest) (*kmsg.MetadataResponse, error) {
	refused, err := b.autoCreate(ctx, v, req)
	if err != nil {
		return nil, err
	}
	v = b.view.Load()
	resp := kmsg.NewPtrMetadataResponse()
	resp.Version = req.Version
	resp.ClusterID, resp.ControllerID = &v.image.ClusterID, b.cfg.ControllerID()
	resp.AuthorizedOperations = noOperations
	for _, m := range v.image.Brokers() {
		if m.Fenced {
			continue
		}
		n := kmsg.NewMetadataResponseBroker()
		n.NodeID, n.Rack = m.ID, rack(m)
		n.Host, n.Port = address(m)
		resp.Brokers = append(resp.Brokers, n)
	}
	if req.Topics == nil {
		for t := range v.image.Topics() {
			resp.Topics = append(resp.Topics, describeTopic(v.image, t))
		}
		return resp, nil
	}
	for i := range req.Topics {
		resp.Topics = append(resp.Topics, findTopic(v.image, &req.Topics[i], refused))
	}
	return resp, nil
}

// findTopic describes the topic asked for, or says why there is none.
func findTopic(image *metadata.Image, in *kmsg.MetadataRequestTopic,
	refused map[string]int16) kmsg.MetadataResponseTopic {
	out := kmsg.NewMetadataResponseTopic()
	out.Topic, out.TopicID, out.AuthorizedOperations = in.Topic, in.TopicID, noOperations
	if in.Topic == nil || in.TopicID != ([16]byte{}) {
		if t := image.TopicByID(in.TopicID); t != nil {
			return describeTopic(image, t)
		}
		out.ErrorCode = kerr.UnknownTopicID.Code
		return out
	}
	name := *in.Topic
	if t := image.Topic(name); t != nil {
		return describeTopic(image, t)
	}
	out.IsInternal = metadata.IsInternal(name)
	switch code, ok := refused[name]; {
	case ok:
		out.ErrorCode = code
	case metadata.ValidateTopicName(name) != nil:
		out.ErrorCode = kerr.InvalidTopicException.Code
	default:
		out.ErrorCode = kerr.UnknownTopicOrPartition.Code
	}
	return out
}

func describeTopic(image *metadata.Image, t *metadata.Topic) kmsg.MetadataResponseTopic {
	out := kmsg.NewMetadataResponseTopic()
	out.Topic, out.TopicID, out.IsInternal = &t.Name, t.ID, t.Internal()
	out.AuthorizedOperations = noOperations
	out.Partitions = make([]kmsg.MetadataResponseTopicPartition, len(t.Partitions))
	for i := range t.Partitions {
		in, p := &t.Partitions[i], &out.Partitions[i]
		p.Default()
		p.Partition, p.Leader, p.LeaderEpoch = int32(i), in.Leader, in.LeaderEpoch
		p.Replicas, p.ISR = in.Replicas, in.ISR
		p.OfflineReplicas = offline(image, in.Replicas)
		if in.Leader == metadata.NoLeader || slices.Contains(p.OfflineReplicas, in.Leader) {
			p.Leader, p.ErrorCode = metadata.NoLeader, kerr.LeaderNotAvailable.Code
		}
	}
	return out
}

// offline are those replicas whose broker is fenced or not known.
func offline(image *metadata.Image, replicas []int32) (ids []int32) {
	for _, id := range replicas {
		if m := image.Broker(id); m == nil || m.Fenced {
			ids = append(ids, id)
		}
	}
	return ids
}

// autoCreate creates the topics that the request names and that do not exist, if that is allowed. It
// returns the error codes of those that could not be.
func (b *Broker) autoCreate(ctx context.Context, v *view, req *kmsg.MetadataRequest) (map[string]int16, error) {
	if !req.AllowAutoTopicCreation || !v.image.Settings().AutoCreateTopics {
		return nil, nil
	}
	create := kmsg.NewPtrCreateTopicsRequest()
	for i := range req.Topics {
		if name := req.Topics[i].Topic; name != nil && creatable(v.image, *name) {
			t := kmsg.NewCreateTopicsRequestTopic()
			t.Topic, t.NumPartitions, t.ReplicationFactor = *name, -1, -1
			create.Topics = append(create.Topics, t)
		}
	}
	if len(create.Topics) == 0 {
		return nil, nil
	}
	resp, err := create.RequestWith(ctx, b.cfg.Controller)
	if err != nil {
		return nil, err
	}
	refused := make(map[string]int16)
	for i := range resp.Topics {
		switch t := &resp.Topics[i]; t.ErrorCode {
		case 0, kerr.TopicAlreadyExists.Code:
			b.awaitTopic(ctx, t.Topic)
		default:
			refused[t.Topic] = t.ErrorCode
		}
	}
	return refused, nil
}

// viewLag bounds how long a request waits for this node to learn what the controller knows.
const viewLag = 5 * time.Second

// awaitTopic waits until this broker knows a topic that exists: another request may have created it
// a moment ago, and its logs may be in the making.
func (b *Broker) awaitTopic(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, viewLag)
	defer cancel()
	for {
		v := b.view.Load()
		if v.image.Topic(name) != nil {
			return
		}
		select {
		case <-v.superseded:
		case <-ctx.Done():
			return
		}
	}
}

func creatable(image *metadata.Image, name string) bool {
	return image.Topic(name) == nil && !metadata.IsInternal(name) && metadata.ValidateTopicName(name) == nil
}

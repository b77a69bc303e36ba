package route

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/server/metadata"
)

// makeInternal makes an internal topic with the controller, and waits until this node knows it, at most until end. It
// is false when that did not work, for a reason that may pass. One request at a time does so: the first ones of many
// clients come together.
func (r *Router) makeInternal(ctx context.Context, name string, end time.Time) bool {
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	select {
	case r.making <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-r.making }()
	if r.cfg.Image().Topic(name) != nil {
		return true
	}
	resp, err := toController(ctx, r, r.internalTopic(name))
	if err != nil {
		return false
	}
	for _, t := range resp.(*kmsg.CreateTopicsResponse).Topics {
		if t.ErrorCode != 0 && t.ErrorCode != kerr.TopicAlreadyExists.Code {
			return false
		}
	}
	return r.awaitTopic(ctx, name)
}

// awaitTopic waits until this node knows a topic that there is: another node may have made it.
func (r *Router) awaitTopic(ctx context.Context, name string) bool {
	t := time.NewTicker(lastPause)
	defer t.Stop()
	for {
		changed := r.changed()
		if r.cfg.Image().Topic(name) != nil {
			return true
		}
		select {
		case <-changed:
		case <-t.C:
		case <-ctx.Done():
			return false
		}
	}
}

// createTopics sends a CreateTopicsRequest to the controller. A topic of the cluster's own, which part of it wants
// made, has as many replicas as the others.
func createTopics(ctx context.Context, r *Router, req kmsg.Request) (kmsg.Response, error) {
	create := req.(*kmsg.CreateTopicsRequest)
	if !ktag.Internal(&create.UnknownTags) {
		return toController(ctx, r, req)
	}
	made := *create
	made.Topics = slices.Clone(create.Topics)
	for i := range made.Topics {
		t := &made.Topics[i]
		t.ReplicationFactor = r.replicas(t.Topic).ReplicationFactor
	}
	return toController(ctx, r, &made)
}

// replicas is how an internal topic is to be made in the cluster as it is.
func (r *Router) replicas(name string) metadata.InternalTopic {
	nodes := len(r.cfg.Image().Brokers())
	if r.cfg.Nodes != nil {
		nodes = max(nodes, r.cfg.Nodes())
	}
	return r.cfg.Image().InternalTopic(name, nodes)
}

// internalTopic asks for an internal topic as this node's settings have it.
func (r *Router) internalTopic(name string) *kmsg.CreateTopicsRequest {
	want := r.replicas(name)
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, want.Partitions, want.ReplicationFactor
	for _, key := range slices.Sorted(maps.Keys(want.Configs)) {
		c, value := kmsg.NewCreateTopicsRequestTopicConfig(), want.Configs[key]
		c.Name, c.Value = key, &value
		t.Configs = append(t.Configs, c)
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(budget.Milliseconds())
	req.Topics = append(req.Topics, t)
	return req
}

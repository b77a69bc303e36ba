package client

import (
	"context"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
)

// ClusterState is who the cluster is and every broker that is registered, fenced ones too. It is never cached.
type ClusterState struct {
	ID         string
	Controller int32         // -1 if there is none
	Brokers    []BrokerState // ordered by id
}

// BrokerState is a registered broker and whether it takes part.
type BrokerState struct {
	Broker
	Fenced       bool // it does not answer the controller: it leads nothing and is in no ISR
	ShuttingDown bool // it is about to stop
}

// Active says whether the broker may lead partitions and be in sync.
func (b *BrokerState) Active() bool { return !b.Fenced && !b.ShuttingDown }

// Broker finds a broker by its id; nil if it is not registered.
func (s *ClusterState) Broker(id int32) *BrokerState {
	i := slices.IndexFunc(s.Brokers, func(b BrokerState) bool { return b.ID == id })
	if i < 0 {
		return nil
	}
	return &s.Brokers[i]
}

// ClusterState asks for the cluster's brokers, fenced ones included.
func (c *Client) ClusterState(ctx context.Context) (*ClusterState, error) {
	req := kmsg.NewPtrDescribeClusterRequest()
	req.Version = 2 // the first with fenced brokers
	req.IncludeFencedBrokers = true
	resp, err := call(ctx, "describe cluster", req.RequestWith, c.requestor)
	if err != nil {
		return nil, err
	}
	if err := fault(resp.ErrorCode, resp.ErrorMessage, "", -1); err != nil {
		return nil, err
	}
	out := &ClusterState{ID: resp.ClusterID, Controller: resp.ControllerID}
	for i := range resp.Brokers {
		b := &resp.Brokers[i]
		out.Brokers = append(out.Brokers, BrokerState{
			Broker: Broker{ID: b.NodeID, Host: b.Host, Port: b.Port, Rack: b.Rack},
			Fenced: b.IsFenced, ShuttingDown: ktag.ShuttingDown(&b.UnknownTags),
		})
	}
	slices.SortFunc(out.Brokers, func(a, b BrokerState) int { return int(a.ID) - int(b.ID) })
	return out, nil
}

// UnregisterBroker makes the cluster forget a broker, which must have stopped and hold no replica.
func (c *Client) UnregisterBroker(ctx context.Context, id int32) error {
	req := kmsg.NewPtrUnregisterBrokerRequest()
	req.BrokerID = id
	resp, err := call(ctx, "unregister broker "+strconv.Itoa(int(id)), req.RequestWith, c.requestor)
	if err != nil {
		return err
	}
	message := resp.ErrorMessage
	if text, ok := ktag.ErrorMessage(&resp.UnknownTags); ok && message == nil {
		message = &text
	}
	return fault(resp.ErrorCode, message, "", -1)
}

// DiskUse is what a broker's data directories hold.
type DiskUse struct {
	Bytes       int64 // of all partitions
	TotalBytes  int64 // of the file systems; -1 if the broker does not say
	UsableBytes int64 // free on them; -1 if the broker does not say
}

// DiskUse asks a broker what its data takes.
func (c *Client) DiskUse(ctx context.Context, broker int32) (DiskUse, error) {
	req := kmsg.NewPtrDescribeLogDirsRequest()
	ktag.SetBroker(&req.UnknownTags, broker)
	resp, err := call(ctx, "log directories of broker "+strconv.Itoa(int(broker)), req.RequestWith, c.requestor)
	if err != nil {
		return DiskUse{}, err
	}
	if err := fault(resp.ErrorCode, nil, "", -1); err != nil {
		return DiskUse{}, err
	}
	var out DiskUse
	for i := range resp.Dirs {
		d := &resp.Dirs[i]
		out.TotalBytes += d.TotalBytes
		out.UsableBytes += d.UsableBytes
		for _, t := range d.Topics {
			for _, p := range t.Partitions {
				out.Bytes += max(p.Size, 0)
			}
		}
	}
	out.TotalBytes, out.UsableBytes = max(out.TotalBytes, -1), max(out.UsableBytes, -1)
	return out, nil
}

// PartitionReplicas is what a partition's leader knows of its replicas, or why it could not be asked.
type PartitionReplicas struct {
	TopicPartition
	Leader        int32
	LeaderEpoch   int32
	HighWatermark int64
	Replicas      []ReplicaState // in the leader's order
	Err           error          // nil, a *KafkaError, or ErrNoAnswer
}

// ReplicaState is one replica as its leader sees it.
type ReplicaState struct {
	ID             int32
	InSync         bool
	LogStartOffset int64 // -1 if it is not known
	LogEndOffset   int64 // -1 if it is not known
	LastFetch      int64 // when it fetched last, in epoch milliseconds; -1 for the leader itself, and if not known
	LastCaughtUp   int64 // when it had all that there was; as LastFetch
}

// Lag is how many offsets of the leader's log the replica lacks; ok is false if that is not known.
func (p *PartitionReplicas) Lag(replica int32) (lag int64, ok bool) {
	leader, follower := p.state(p.Leader), p.state(replica)
	if p.Err != nil || leader == nil || follower == nil || leader.LogEndOffset < 0 || follower.LogEndOffset < 0 {
		return 0, false
	}
	return max(leader.LogEndOffset-follower.LogEndOffset, 0), true
}

func (p *PartitionReplicas) state(id int32) *ReplicaState {
	i := slices.IndexFunc(p.Replicas, func(r ReplicaState) bool { return r.ID == id })
	if i < 0 {
		return nil
	}
	return &p.Replicas[i]
}

// ReplicaStates asks the leaders of partitions how far their replicas are. The answers are in the order of the
// partitions.
func (c *Client) ReplicaStates(ctx context.Context, partitions []TopicPartition) ([]PartitionReplicas, error) {
	req := kmsg.NewPtrDescribeQuorumRequest()
	req.Version = 1 // the first with times
	for topic, numbers := range byTopic(partitions) {
		t := kmsg.NewDescribeQuorumRequestTopic()
		t.Topic = topic
		for _, n := range numbers {
			p := kmsg.NewDescribeQuorumRequestTopicPartition()
			p.Partition = n
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	resp, err := call(ctx, "replica states", req.RequestWith, c.requestor)
	if err != nil {
		return nil, err
	}
	if err := fault(resp.ErrorCode, resp.ErrorMessage, "", -1); err != nil {
		return nil, err
	}
	answers := make(map[TopicPartition]*kmsg.DescribeQuorumResponseTopicPartition)
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			answers[TopicPartition{t.Topic, t.Partitions[j].Partition}] = &t.Partitions[j]
		}
	}
	out := make([]PartitionReplicas, len(partitions))
	for i, at := range partitions {
		if p := answers[at]; p != nil {
			out[i] = replicasOf(at, p)
		} else {
			out[i] = PartitionReplicas{TopicPartition: at, Leader: -1, Err: noAnswer("replicas of "+at.String(), errMissing)}
		}
	}
	return out, nil
}

func replicasOf(at TopicPartition, p *kmsg.DescribeQuorumResponseTopicPartition) PartitionReplicas {
	out := PartitionReplicas{
		TopicPartition: at, Leader: p.LeaderID, LeaderEpoch: p.LeaderEpoch, HighWatermark: p.HighWatermark,
		Err: fault(p.ErrorCode, p.ErrorMessage, at.Topic, at.Partition),
	}
	add := func(states []kmsg.DescribeQuorumResponseTopicPartitionReplicaState, inSync bool) {
		for i := range states {
			s := &states[i]
			r := ReplicaState{
				ID: s.ReplicaID, InSync: inSync, LogStartOffset: -1, LogEndOffset: s.LogEndOffset,
				LastFetch: s.LastFetchTimestamp, LastCaughtUp: s.LastCaughtUpTimestamp,
			}
			if start, ok := ktag.ReplicaLogStart(&s.UnknownTags); ok {
				r.LogStartOffset = start
			}
			out.Replicas = append(out.Replicas, r)
		}
	}
	add(p.CurrentVoters, true)
	add(p.Observers, false)
	return out
}

// TopicSetting reads one config of many topics: its effective value by topic. A topic that could not be read, or
// that does not know the config, is left out.
func (c *Client) TopicSetting(ctx context.Context, topics []string, name string) (map[string]Config, error) {
	out := make(map[string]Config, len(topics))
	if len(topics) == 0 {
		return out, nil
	}
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, t := range topics {
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceType(TopicResource), t, []string{name}
		req.Resources = append(req.Resources, r)
	}
	resp, err := call(ctx, "config "+name+" of topics", req.RequestWith, c.requestor)
	if err != nil {
		return nil, err
	}
	for i := range resp.Resources {
		r := &resp.Resources[i]
		for _, k := range resourceConfigs(Resource{TopicResource, r.ResourceName}, r).Configs {
			if k.Name == name && r.ErrorCode == 0 {
				out[r.ResourceName] = k
			}
		}
	}
	return out, nil
}

package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/record"
)

// maxCachedTopics bounds the metadata cache; past it the cache starts anew.
const maxCachedTopics = 50_000

// Topic is the metadata of one topic. It is shared and must not be changed.
type Topic struct {
	Name       string
	ID         [16]byte
	Internal   bool
	Partitions []Partition // ordered by number, which is the index

	sticky *record.Sticky // places records without a key; the same in all renewals of the metadata
	limits *topicLimits
}

// Partition is the metadata of one partition.
type Partition struct {
	Leader      int32 // -1 if there is none
	LeaderEpoch int32
	Replicas    []int32
	ISR         []int32
	Err         error // nil or a *KafkaError, such as LEADER_NOT_AVAILABLE
}

// Has says whether the topic has partition p, and returns UNKNOWN_TOPIC_OR_PARTITION if not.
func (t *Topic) Has(p int32) error {
	if p >= 0 && int(p) < len(t.Partitions) {
		return nil
	}
	var message string
	switch n := len(t.Partitions); n {
	case 0:
		message = fmt.Sprintf("topic %s has no partitions", t.Name)
	case 1:
		message = fmt.Sprintf("topic %s has partition 0 only", t.Name)
	default:
		message = fmt.Sprintf("topic %s has partitions 0 to %d, not %d", t.Name, n-1, p)
	}
	return newFault(kerr.UnknownTopicOrPartition, message, t.Name, p)
}

// is says whether an answer that names topics by name, by id or by both is about t.
func (t *Topic) is(name string, id [16]byte) bool {
	if name != "" {
		return name == t.Name
	}
	return id == t.ID
}

// Cluster is who the cluster is and which brokers it has.
type Cluster struct {
	ID         string
	Controller int32    // -1 if there is none
	Brokers    []Broker // ordered by id
}

// Broker is one registered broker.
type Broker struct {
	ID   int32
	Host string
	Port int32
	Rack *string
}

// cachedTopic is a cache entry. asked is the time of the newest answer in Unix nanoseconds; refreshing
// is 1 while one caller asks again, so that the others go on with what is there.
type cachedTopic struct {
	topic      atomic.Pointer[Topic]
	asked      atomic.Int64
	refreshing atomic.Bool
}

type cachedCluster struct {
	cluster *Cluster
	asked   time.Time
}

// Topic returns the metadata of the topic, at most MetadataTTL old; while one caller asks again, the others
// go on with what is there. With Create an unknown topic is created if the cluster allows that; otherwise
// it is UNKNOWN_TOPIC_OR_PARTITION.
func (c *Client) Topic(ctx context.Context, name string, missing Missing) (*Topic, error) {
	v, ok := c.topics.Load(name)
	if !ok {
		return c.loadTopic(ctx, name, missing)
	}
	e := v.(*cachedTopic)
	if c.fresh(c.now().Sub(time.Unix(0, e.asked.Load()))) || !e.refreshing.CompareAndSwap(false, true) {
		return e.topic.Load(), nil
	}
	defer e.refreshing.Store(false)
	return c.loadTopic(ctx, name, missing)
}

// fresh says whether metadata of an age is new enough. An age below zero is a clock that was set back: nothing is known
// of how old that is.
func (c *Client) fresh(age time.Duration) bool { return age >= 0 && age < c.ttl }

// Renew is Topic with metadata that is asked for now, for those who show who leads and what is in sync.
func (c *Client) Renew(ctx context.Context, name string) (*Topic, error) {
	return c.loadTopic(ctx, name, Refuse)
}

// Missing says what to do about a topic that does not exist.
type Missing bool

const (
	Refuse Missing = false // answer UNKNOWN_TOPIC_OR_PARTITION
	Create Missing = true  // create it if auto.create.topics.enable allows
)

// Forget drops what is cached about a topic, so that the next call asks again.
func (c *Client) Forget(name string) {
	if _, ok := c.topics.LoadAndDelete(name); ok {
		c.cached.Add(-1)
	}
}

// forgetOn drops a topic's metadata when err shows that it is out of date.
func (c *Client) forgetOn(err error, name string) {
	if errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.NotLeaderForPartition) ||
		errors.Is(err, kerr.UnknownTopicID) {
		c.Forget(name)
	}
}

// loadTopic asks for one topic. A topic that is just being created may have no leader yet; a foreign
// cluster says so by an error, which is asked about again a few times.
func (c *Client) loadTopic(ctx context.Context, name string, missing Missing) (*Topic, error) {
	if err := CheckTopicName(name); err != nil {
		return nil, err
	}
	wait := 10 * time.Millisecond
	for try := 0; ; try++ {
		t, err := c.askTopic(ctx, name, missing)
		if err == nil {
			c.keep(t)
			return t, nil
		}
		if missing != Create || !errors.Is(err, kerr.LeaderNotAvailable) || try == 6 {
			c.Forget(name)
			if missing == Create {
				err = c.explainCreation(ctx, name, err)
			}
			if own := checkNewTopicName(name); own != nil && missing == Create {
				err = own
			}
			return nil, err
		}
		if err := sleep(ctx, wait); err != nil {
			return nil, noAnswer("metadata of topic "+name, err)
		}
		wait *= 2
	}
}

func (c *Client) askTopic(ctx context.Context, name string, missing Missing) (*Topic, error) {
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = &name
	req.Topics = append(req.Topics, rt)
	req.AllowAutoTopicCreation = bool(missing)
	resp, err := call(ctx, "metadata of topic "+name, req.RequestWith, c.requestor)
	if err != nil {
		return nil, err
	}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if t.Topic == nil || *t.Topic != name {
			continue
		}
		if err := fault(t.ErrorCode, nil, name, -1); err != nil {
			return nil, explainMissing(err)
		}
		return topicOf(t), nil
	}
	return nil, explainMissing(newFault(kerr.UnknownTopicOrPartition, "", name, -1))
}

// PlannedTopic is the topic that Create would make: its number of partitions is what is known of it. Nothing is made.
func (c *Client) PlannedTopic(ctx context.Context, name string) (*Topic, error) {
	made, err := c.CreateTopic(ctx, NewTopic{Name: name, Partitions: -1, ReplicationFactor: -1, Mode: ValidateOnly})
	if err != nil {
		return nil, err
	}
	return &Topic{
		Name: name, Partitions: make([]Partition, max(made.Partitions, 1)),
		sticky: record.NewSticky(c.newRand()), limits: &topicLimits{},
	}, nil
}

// explainCreation finds out why a topic could not be created, for which an answer of metadata has no room.
func (c *Client) explainCreation(ctx context.Context, name string, err error) error {
	var was, now *KafkaError
	if !errors.As(err, &was) || was.Err == kerr.UnknownTopicOrPartition || was.Message != "" {
		return err
	}
	if _, err := c.PlannedTopic(ctx, name); errors.As(err, &now) && now.Err == was.Err {
		return now
	}
	return err
}

// explainMissing says what a caller can do about a topic that is not there.
func explainMissing(err error) error {
	var f *KafkaError
	if errors.As(err, &f) && f.Err == kerr.UnknownTopicOrPartition {
		f.Message = "topic " + f.Topic + " does not exist"
	}
	return err
}

// keep caches t in place of what was there.
func (c *Client) keep(t *Topic) {
	now := c.now().UnixNano()
	fresh := &cachedTopic{}
	t.sticky = record.NewSticky(c.newRand())
	fresh.topic.Store(t)
	fresh.asked.Store(now)
	v, loaded := c.topics.LoadOrStore(t.Name, fresh)
	if loaded {
		e := v.(*cachedTopic)
		t.sticky = e.topic.Load().sticky
		e.topic.Store(t)
		e.asked.Store(now)
		return
	}
	if c.cached.Add(1) > maxCachedTopics {
		c.topics.Clear()
		c.cached.Store(0)
	}
}

func topicOf(t *kmsg.MetadataResponseTopic) *Topic {
	out := &Topic{ID: t.TopicID, Internal: t.IsInternal, limits: &topicLimits{}}
	if t.Topic != nil {
		out.Name = *t.Topic
	}
	slices.SortFunc(t.Partitions, func(a, b kmsg.MetadataResponseTopicPartition) int {
		return int(a.Partition) - int(b.Partition)
	})
	out.Partitions = make([]Partition, len(t.Partitions))
	for i := range t.Partitions {
		p := &t.Partitions[i]
		out.Partitions[i] = Partition{
			Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, Replicas: p.Replicas, ISR: p.ISR,
			Err: fault(p.ErrorCode, nil, out.Name, p.Partition),
		}
	}
	return out
}

// Topics lists all topics by name, internal ones too. It is not cached.
func (c *Client) Topics(ctx context.Context) ([]*Topic, error) {
	req := kmsg.NewPtrMetadataRequest() // no list of topics asks for all
	resp, err := call(ctx, "list of topics", req.RequestWith, c.requestor)
	if err != nil {
		return nil, err
	}
	out := make([]*Topic, 0, len(resp.Topics))
	for i := range resp.Topics {
		if resp.Topics[i].ErrorCode == 0 && resp.Topics[i].Topic != nil {
			out = append(out, topicOf(&resp.Topics[i]))
		}
	}
	slices.SortFunc(out, func(a, b *Topic) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Cluster returns the cluster's identity and brokers, at most MetadataTTL old.
func (c *Client) Cluster(ctx context.Context) (*Cluster, error) {
	if k := c.cluster.Load(); k != nil && c.fresh(c.now().Sub(k.asked)) {
		return k.cluster, nil
	}
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // an empty list asks for no topic
	resp, err := call(ctx, "cluster metadata", req.RequestWith, c.requestor)
	if err != nil {
		return nil, err
	}
	if err := fault(resp.ErrorCode, nil, "", -1); err != nil {
		return nil, err
	}
	out := &Cluster{Controller: resp.ControllerID}
	if resp.ClusterID != nil {
		out.ID = *resp.ClusterID
	}
	for _, b := range resp.Brokers {
		out.Brokers = append(out.Brokers, Broker{ID: b.NodeID, Host: b.Host, Port: b.Port, Rack: b.Rack})
	}
	slices.SortFunc(out.Brokers, func(a, b Broker) int { return int(a.ID) - int(b.ID) })
	c.cluster.Store(&cachedCluster{cluster: out, asked: c.now()})
	return out, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

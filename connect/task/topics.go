package task

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/client"
	"millrace/record"
)

// Bounds of what is known of topics.
const (
	batchBytes   = 1_000_000        // of one batch: just below the default of max.message.bytes
	limitsAge    = 10 * time.Second // how old the limits of a topic may be
	newTopicWait = 30 * time.Second // for a topic that was made to be there
)

// target is a topic that records are written to.
type target struct {
	topic   *client.Topic
	sticky  *record.Sticky
	limits  record.Limits // with Now, which is set for each round
	known   bool          // limits are
	asked   time.Time     // when the limits were
	round   int           // in which it was looked at
	batch   int           // most bytes of a batch
	slots   []*slot       // batches under way, by partition
	noted   bool          // it was told that the connector uses the topic
	written bool          // in this transaction
}

// topics are the topics that a task writes to. They are looked at anew in each round. It is not safe for concurrent
// use.
type topics struct {
	client   *client.Client
	now      func() time.Time
	rand     *rand.Rand
	log      *slog.Logger
	groups   []topicGroup
	mayMake  bool
	internal []string // that no record may be aimed at
	known    map[string]*target
	round    int
}

// begin begins a round. With fresh, nothing that was known of limits counts any more.
func (t *topics) begin(fresh bool) {
	t.round++
	for _, k := range t.known {
		if fresh {
			t.client.Forget(k.topic.Name)
			k.asked = time.Time{}
		}
	}
}

// errAimed says that a record is aimed at a topic that is none of its business.
var errAimed = errors.New("records of connectors must not go into this topic")

// get is a topic by its name, which is made if it is not there. A *fault is of the record that names it.
func (t *topics) get(ctx context.Context, name string) (*target, error) {
	k := t.known[name]
	if k != nil && k.round == t.round {
		return k, nil
	}
	if slices.Contains(t.internal, name) {
		return nil, fmt.Errorf("topic %s: %w", name, errAimed)
	}
	topic, err := t.client.Topic(ctx, name, client.Refuse)
	if isMissing(err) {
		topic, err = t.make(ctx, name)
	}
	if err != nil {
		return nil, err
	}
	if topic.Internal {
		return nil, fmt.Errorf("topic %s: %w", name, errAimed)
	}
	if k == nil {
		k = &target{sticky: record.NewSticky(rand.New(rand.NewPCG(t.rand.Uint64(), t.rand.Uint64())))}
		t.known[name] = k
	}
	if k.topic == nil || k.topic.ID != topic.ID {
		k.asked = time.Time{}
	}
	k.topic, k.round = topic, t.round
	if len(k.slots) != len(topic.Partitions) {
		k.slots = make([]*slot, len(topic.Partitions)) // nothing is under way between rounds
	}
	if time.Since(k.asked) > limitsAge {
		k.limits, k.known = t.client.Limits(ctx, topic)
		k.asked = time.Now()
	}
	k.batch = batchBytes
	if k.known {
		k.batch = min(k.batch, k.limits.MaxMessageBytes, k.limits.SegmentBytes)
		k.limits.Now = t.now().UnixMilli()
	}
	return k, nil
}

// make makes a topic by the first rule that matches it, and waits until it is there.
func (t *topics) make(ctx context.Context, name string) (*client.Topic, error) {
	if !t.mayMake {
		return t.client.Topic(ctx, name, client.Create)
	}
	spec := client.NewTopic{Name: name, Partitions: -1, ReplicationFactor: -1}
	for i := range t.groups {
		if g := &t.groups[i]; g.matches(name) {
			spec.Partitions, spec.ReplicationFactor, spec.Configs = g.partitions, g.replication, g.configs
			break
		}
	}
	return createTopic(ctx, t.client, spec, t.log)
}

// createTopic makes a topic, unless it is there already, and waits until it is.
func createTopic(ctx context.Context, c *client.Client, spec client.NewTopic, log *slog.Logger) (*client.Topic, error) {
	ctx, cancel := context.WithTimeout(ctx, newTopicWait)
	defer cancel()
	pause := backoff{first: 20 * time.Millisecond, longest: time.Second}
	for {
		_, err := c.CreateTopic(ctx, spec)
		switch {
		case err == nil:
			log.Info("made a topic", "topic", spec.Name)
		case errors.Is(err, kerr.TopicAlreadyExists):
		case !transient(err):
			return nil, fmt.Errorf("make topic %s: %w", spec.Name, err)
		}
		topic, missing := c.Topic(ctx, spec.Name, client.Refuse)
		if missing == nil {
			return topic, nil
		}
		if !transient(missing) {
			return nil, missing
		}
		if sleep(ctx, pause.delay()) != nil {
			if err == nil {
				err = missing
			}
			return nil, fmt.Errorf("make topic %s: %w", spec.Name, err)
		}
	}
}

// place chooses the partition of a record, which must exist.
func (k *target) place(partition int32, r *record.Record) (int32, error) {
	n := int32(len(k.topic.Partitions))
	switch {
	case partition >= 0:
		return partition, k.topic.Has(partition)
	case n <= 1:
		return 0, k.topic.Has(0)
	case r.Key != nil:
		return record.KeyPartition(r.Key, n), nil
	}
	return k.sticky.Partition(n, record.RecordSize(r)), nil
}

// check says what a leader would refuse a record for, as far as that is known.
func (k *target) check(r *record.Record) error {
	if !k.known {
		if size := record.HeaderSize + record.RecordSize(r); size > math.MaxInt32 {
			return fmt.Errorf("the record takes %d bytes", size)
		}
		return nil
	}
	f := k.limits.CheckRecord(r)
	switch {
	case f == nil:
		return nil
	case errors.Is(f, record.ErrTooLarge):
		return fmt.Errorf("topic %s: %w: raise the limit, millrace topic alter %[1]s --config max.message.bytes=BYTES, or "+
			"set errors.tolerance=all to go on without such records", k.topic.Name, f)
	}
	return fmt.Errorf("topic %s: %w", k.topic.Name, f)
}

// transient says of an error that the same may go well a little later.
func transient(err error) bool {
	var k *client.KafkaError
	if errors.As(err, &k) {
		return k.Err.Retriable
	}
	return errors.Is(err, client.ErrNoAnswer)
}

// isMissing says of an error that there is no such topic.
func isMissing(err error) bool { return errors.Is(err, kerr.UnknownTopicOrPartition) }

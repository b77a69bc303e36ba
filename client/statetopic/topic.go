package statetopic

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/client"
)

// Forgets reports whether the topic is known to lose records that count: it must be compacted, and nothing else.
func (t *Tail) Forgets(ctx context.Context) bool {
	topic, err := t.opts.Client.Topic(ctx, t.opts.Topic, client.Refuse)
	if err != nil {
		return false // the write itself tells
	}
	compacted, _ := t.opts.Client.Compacted(ctx, topic)
	expires, known := t.opts.Client.Expires(ctx, topic)
	return known && (expires || !compacted)
}

// maxReplicas is how many replicas a topic gets where nothing else is asked for, and there are so many brokers. A
// cluster of ours gives it as many as all topics of its own have, also for brokers that have yet to register.
const maxReplicas = 3

// Make makes the topic, compacted, and waits for the brokers that it needs. One that is there already is as good.
// Replicas of 0 or less are as many as the cluster thinks best.
func (t *Tail) Make(ctx context.Context, partitions int32, replicas int16) error {
	for wait := retryWait; ; wait = min(2*wait, maxRetryWait) {
		err := t.askForTopic(ctx, partitions, replicas)
		if err == nil || errors.Is(err, kerr.TopicAlreadyExists) {
			t.kick()
			return nil
		}
		again := errors.Is(err, client.ErrNoAnswer) || kerr.IsRetriable(err) ||
			errors.Is(err, kerr.InvalidReplicationFactor) // brokers have yet to register
		if !again || pause(ctx, wait) != nil {
			return err
		}
	}
}

func (t *Tail) askForTopic(ctx context.Context, partitions int32, replicas int16) error {
	unset := replicas <= 0
	if unset {
		cluster, err := t.opts.Client.Cluster(ctx)
		if err != nil {
			return err
		}
		replicas = int16(min(maxReplicas, len(cluster.Brokers)))
	}
	policy, anyTime := "compact", fmt.Sprint(math.MaxInt64)
	_, err := t.opts.Client.CreateTopic(ctx, client.NewTopic{
		Name: t.opts.Topic, Partitions: partitions, ReplicationFactor: replicas, Internal: unset,
		Configs: []client.NewConfig{
			{Name: "cleanup.policy", Value: &policy},
			{Name: "message.timestamp.after.max.ms", Value: &anyTime}, // the leader's clock may be behind ours
		},
	})
	return err
}

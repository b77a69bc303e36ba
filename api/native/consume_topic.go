package native

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/api"
	"millrace/client"
)

// Another node may know more of a topic than this one, for a moment: that it has more partitions, or that it was made
// anew. A reader that comes from there with its position is right.
const (
	heardTries = 20
	heardPause = 50 * time.Millisecond
)

// topicToRead is the topic of a read, as new as the read shows it to be.
func topicToRead(
	ctx context.Context, c *client.Client, name string, partition int32, q *readQuery,
) (*client.Topic, error) {
	t, err := c.Topic(ctx, name, client.Refuse)
	if err != nil || knows(t, partition, q) {
		return t, err
	}
	for range heardTries {
		if t, err = c.Renew(ctx, name); err != nil {
			return nil, err
		}
		if knows(t, partition, q) || !lacks(t, q) {
			return t, nil
		}
		select {
		case <-time.After(heardPause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, api.Refuse(api.KafkaFault(kerr.LeaderNotAvailable), "this node has not heard yet of all %d partitions of "+
		"topic %s that the position is of; ask again, or another node", len(q.origin.position.offsets), name)
}

// knows tells whether all that a read names is in the metadata.
func knows(t *client.Topic, partition int32, q *readQuery) bool {
	if partition != allPartitions && t.Has(partition) != nil {
		return false
	}
	p := &q.origin.position
	tag := topicTag(t.ID)
	other := p.tag != "" && tag != "" && p.tag != tag
	return q.origin.kind != originPosition || !other && len(p.offsets) <= len(t.Partitions)
}

// lacks tells whether the metadata is certainly too old: a node gave a position of this topic with more partitions.
func lacks(t *client.Topic, q *readQuery) bool {
	p := &q.origin.position
	return q.origin.kind == originPosition && p.tag != "" && p.tag == topicTag(t.ID) && len(p.offsets) > len(t.Partitions)
}

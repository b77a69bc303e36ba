package client

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"millrace/record"
)

// topicLimits is what a topic's leaders check batches by, as far as it was asked for. It is nil until then and lives
// as long as the topic's metadata.
type topicLimits struct {
	read atomic.Pointer[knownLimits]
}

// knownLimits is an answer; without ok the cluster did not tell.
type knownLimits struct {
	record.Limits
	expires bool // records are dropped for their age, or where there are too many
	ok      bool
}

// Limits is what the leaders of t check batches by, at most as old as the metadata of t; ok is false if the cluster
// does not tell.
func (c *Client) Limits(ctx context.Context, t *Topic) (l record.Limits, ok bool) {
	return c.limits(ctx, t)
}

// limits is what the leaders of t check batches by, at most as old as the metadata of t; ok is false if the cluster
// does not tell. The leaders have the last word.
func (c *Client) limits(ctx context.Context, t *Topic) (l record.Limits, ok bool) {
	known := c.knownLimits(ctx, t)
	l = known.Limits
	l.Now, l.Codecs = c.now().UnixMilli(), c.codecs
	return l, known.ok
}

func (c *Client) knownLimits(ctx context.Context, t *Topic) *knownLimits {
	known := t.limits.read.Load()
	if known == nil {
		known = c.askLimits(ctx, t.Name)
		if ctx.Err() == nil {
			t.limits.read.Store(known)
		}
	}
	return known
}

func (c *Client) askLimits(ctx context.Context, topic string) *knownLimits {
	answers, err := c.DescribeConfigs(ctx, []Resource{{Type: TopicResource, Name: topic}},
		"max.message.bytes", "segment.bytes", "cleanup.policy", "message.timestamp.type",
		"message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
	if err != nil || answers[0].Err != nil {
		return &knownLimits{}
	}
	expires := slices.ContainsFunc(answers[0].Configs, func(k Config) bool {
		return k.Name == "cleanup.policy" && k.Value != nil && strings.Contains(*k.Value, "delete")
	})
	return &knownLimits{limitsOf(answers[0].Configs), expires, true}
}

// limitsOf reads limits from a topic's configs; one that is missing, or not understood, demands nothing.
func limitsOf(configs []Config) record.Limits {
	l := record.Limits{
		MaxMessageBytes: math.MaxInt32, SegmentBytes: math.MaxInt32, ZstdAllowed: true,
		TimestampBefore: math.MaxInt64, TimestampAfter: math.MaxInt64,
	}
	for _, k := range configs {
		if k.Value == nil {
			continue
		}
		n, err := strconv.ParseInt(*k.Value, 10, 64)
		number := err == nil
		switch {
		case k.Name == "max.message.bytes" && number:
			l.MaxMessageBytes = int(n)
		case k.Name == "segment.bytes" && number:
			l.SegmentBytes = int(n)
		case k.Name == "message.timestamp.before.max.ms" && number:
			l.TimestampBefore = n
		case k.Name == "message.timestamp.after.max.ms" && number:
			l.TimestampAfter = n
		case k.Name == "cleanup.policy":
			l.Compacted = strings.Contains(*k.Value, "compact")
		case k.Name == "message.timestamp.type" && *k.Value == "LogAppendTime":
			l.TimestampType = record.LogAppendTime
		}
	}
	return l
}

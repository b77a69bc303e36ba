package group

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/server/coordinator"
)

// Bounds of a burial.
const (
	maxBuried   = 10_000 // topics that are remembered; others' offsets are found when they expire
	buryTries   = 6
	buryBackoff = 100 * time.Millisecond
)

// burial removes the offsets of deleted topics, in the background, for the loops may be busy when a topic is deleted.
type burial struct {
	coordinator *Coordinator
	wake        chan struct{} // capacity 1

	mu     sync.Mutex
	topics map[string]bool // guarded by mu
}

func newBurial(c *Coordinator) *burial {
	return &burial{coordinator: c, wake: make(chan struct{}, 1), topics: make(map[string]bool)}
}

func (b *burial) add(topic string) {
	b.mu.Lock()
	if len(b.topics) < maxBuried {
		b.topics[topic] = true
	}
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *burial) take() map[string]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	topics := b.topics
	b.topics = make(map[string]bool)
	return topics
}

func (b *burial) serve(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.wake:
		}
		topics := b.take()
		for _, number := range b.coordinator.run.Led() {
			b.bury(ctx, number, topics)
		}
	}
}

// bury starts the removal in one partition. While that is busy or loads it is tried again some times.
func (b *burial) bury(ctx context.Context, number int32, topics map[string]bool) {
	start := func(st coordinator.State, reply *coordinator.Reply[struct{}]) {
		st.(*shard).removeTopics(topics)
		reply.Now(struct{}{})
	}
	for try := range buryTries {
		_, err := coordinator.Do(ctx, b.coordinator.run, number, start)
		if !errors.Is(err, kerr.CoordinatorLoadInProgress) {
			return
		}
		pause := time.NewTimer(buryBackoff << try)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
}

// removeTopics removes the offsets of topics that are no more.
func (s *shard) removeTopics(topics map[string]bool) {
	var groups []*group
	for _, g := range s.groups {
		for topic := range g.offsets {
			if topics[topic] {
				groups = append(groups, g)
				break
			}
		}
	}
	w := &sweep{
		shard: s, groups: groups,
		doomed: func(g *group, topic string, partition int32, o *committed) bool {
			if !topics[topic] || g.unstable(topic, partition) {
				return false
			}
			now := s.image().Topic(topic) // it may have been made again since the sweep began
			return now == nil || o.topicID != now.ID
		},
		done: func(removed int) {
			if removed > 0 {
				s.log.Info("offsets of deleted topics removed", "offsets", removed)
			}
		},
	}
	w.begin()
}

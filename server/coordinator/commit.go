package coordinator

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/server/partition"
)

// commits is the answers of a shard that wait until the log is committed as far as it was when they were given. One
// goroutine waits for the oldest of them, and lets go of all that the high watermark has passed then: so a hundred
// commits of groups cost one sync of the log.
type commits struct {
	shard *Shard
	eased chan struct{} // capacity 1: there is room again
	added chan struct{} // capacity 1: there is something to wait for

	mu    sync.Mutex
	queue []held // guarded by mu; in the order of their offsets
	full  bool   // guarded by mu: the loop waits for room
}

// held is one answer.
type held struct {
	next  int64 // the end of what the state held when it was given
	since time.Time
	give  func(error) // must not wait
}

func newCommits(s *Shard) *commits {
	return &commits{shard: s, eased: make(chan struct{}, 1), added: make(chan struct{}, 1)}
}

// hold gives an answer as soon as all is committed that the state holds now. It does not ask the log, which may have
// been cut since, and written by the next leader.
func (s *Shard) hold(give func(error)) {
	next := s.end
	if s.leader.Committed(next) {
		give(nil)
		return
	}
	c := s.commit
	c.mu.Lock()
	c.queue = append(c.queue, held{next: next, since: time.Now(), give: give})
	c.mu.Unlock()
	signal(c.added)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// crowded says that no more requests are to be taken. Then eased tells when that is over.
func (c *commits) crowded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.full = len(c.queue) >= maxHeld
	return c.full
}

// run waits for the log to be committed until the shard ends.
func (c *commits) run() {
	ctx := c.shard.ctx
	w := partition.NewWaiter()
	for {
		first, ok := c.first()
		if !ok {
			select {
			case <-c.added:
				continue
			case <-ctx.Done():
				return
			}
		}
		err := c.await(ctx, w, first)
		if ctx.Err() != nil {
			return // the rest is told by the end of the shard
		}
		c.release(err)
	}
}

func (c *commits) first() (held, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		return held{}, false
	}
	return c.queue[0], true
}

func (c *commits) await(ctx context.Context, w *partition.Waiter, h held) error {
	s := c.shard
	w.Start(s.runtime.cfg.CommitTimeout - time.Since(h.since))
	defer w.Stop()
	return s.leader.AwaitCommitted(ctx, w, &partition.Appended{Next: h.next, Epoch: s.epoch})
}

// release gives the first answer, and all others that are committed too.
func (c *commits) release(err error) {
	s := c.shard
	n := 1
	c.mu.Lock()
	for err == nil && n < len(c.queue) && s.leader.Committed(c.queue[n].next) {
		n++
	}
	due := c.queue[:n:n]
	if c.queue = c.queue[n:]; len(c.queue) == 0 {
		c.queue = nil
	}
	if c.full && len(c.queue) < maxHeld {
		signal(c.eased)
	}
	c.mu.Unlock()
	if err != nil {
		s.runtime.cfg.Failed(s.leader.Name(), err)
	}
	if err = refusal(err); errors.Is(err, kerr.NotCoordinator) {
		s.resign(kerr.NotCoordinator)
	}
	for i := range due {
		due[i].give(err)
	}
}

package simtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
)

// Clients of groups and transactions send Kafka's messages to a node in the process, as if they had a connection to it:
// what they send and hear takes time, waits where the ways between the node and clients are cut, and is lost when the
// node dies.

var (
	errUnsent = errors.New("nobody listens there") // certainly not done
	errLost   = errors.New("there is no answer")   // may have been done, now or later
)

// versionOf is the version of a request as clients send it.
func versionOf(key kmsg.Key) int16 {
	switch key {
	case kmsg.Produce, kmsg.Fetch:
		return 12
	case kmsg.ListOffsets:
		return 10
	case kmsg.OffsetCommit, kmsg.OffsetFetch, kmsg.JoinGroup:
		return 9
	case kmsg.InitProducerID, kmsg.EndTxn, kmsg.TxnOffsetCommit, kmsg.SyncGroup, kmsg.LeaveGroup:
		return 5
	case kmsg.Heartbeat:
		return 4
	case kmsg.ConsumerGroupHeartbeat:
		return 1
	}
	panic(fmt.Sprint("a request without a version: ", key))
}

// carry gives a request as it comes out of the network.
func carry(r kmsg.Request) kmsg.Request {
	out := kmsg.RequestForKey(r.Key())
	out.SetVersion(r.GetVersion())
	if err := out.ReadFrom(r.AppendTo(nil)); err != nil {
		panic(fmt.Sprintf("a request that does not decode: %v", err))
	}
	return out
}

// ask sends a request to some node and waits for the answer. The way there is as good as the plan says: an answer is
// lost, or the request arrives much later, or once more, then or later and elsewhere. errUnsent says that certainly no
// node has seen it.
func ask[R kmsg.Response](c *client, wait time.Duration, r kmsg.Request) (resp R, err error) {
	r.SetVersion(versionOf(kmsg.Key(r.Key())))
	ctx, cancel := context.WithTimeout(c.ctx, wait)
	defer cancel()
	lost := false
	if c.s.plan.exact.chaos > 0 && c.rng.Float64() < c.s.plan.exact.chaos {
		switch c.rng.IntN(4) {
		case 0:
			lost = true
		case 1:
			c.again(r, around(c.rng, 10*time.Second))
			sleep(ctx, around(c.rng, wait/4))
			return resp, errLost
		default:
			// A commit that comes late takes the group back, as it must: only one that was given up may.
			if kmsg.Key(r.Key()) != kmsg.OffsetCommit {
				c.again(r, around(c.rng, pick(c.rng, 10*time.Millisecond, time.Second, 10*time.Second)))
			}
		}
	}
	got, err := c.exchange(ctx, r)
	if err != nil {
		return resp, err
	}
	if lost {
		return resp, errLost
	}
	return got.(R), nil
}

// again sends a request to some node after a while.
func (c *client) again(r kmsg.Request, after time.Duration) {
	ctx, rest := c.ctx, *c
	rest.rng = nil
	to := c.node()
	c.s.clients.Go(func() {
		if sleep(ctx, after) {
			limited, cancel := context.WithTimeout(ctx, 30*time.Second)
			defer cancel()
			_, _ = rest.visit(limited, to, carry(r)) // nobody waits for it
		}
	})
}

// exchange sends a request to some node.
func (c *client) exchange(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	c.s.step(r)
	return c.visit(ctx, c.node(), carry(r))
}

// visit is one exchange of messages with a node.
func (c *client) visit(ctx context.Context, m *machine, r kmsg.Request) (kmsg.Response, error) {
	if !c.way(ctx, m) {
		return nil, errUnsent
	}
	node := m.alive()
	if node == nil {
		return nil, errUnsent
	}
	resp, err := node.Requestor().Request(ctx, r)
	if err != nil || !c.way(ctx, m) || m.alive() != node {
		return nil, errLost
	}
	return resp, nil
}

// way lets a message be under way between a client and a machine. It says whether it arrives in time.
func (c *client) way(ctx context.Context, m *machine) bool {
	for d := c.s.plan.link.Latency; sleep(ctx, d); d = 50 * time.Millisecond {
		if m.cuts.Load() == 0 {
			return true
		}
	}
	return false
}

// steps are the requests at which coordinators are killed.
func steps() []kmsg.Key {
	return []kmsg.Key{
		kmsg.InitProducerID, kmsg.Produce, kmsg.TxnOffsetCommit, kmsg.TxnOffsetCommit, kmsg.EndTxn, kmsg.EndTxn, kmsg.EndTxn,
		kmsg.JoinGroup, kmsg.SyncGroup, kmsg.Heartbeat, kmsg.OffsetCommit, kmsg.OffsetFetch, kmsg.ConsumerGroupHeartbeat,
	}
}

// trap waits for a client to send a request of a kind.
type trap struct {
	key kmsg.Key
	hit chan *machine // has room for one
}

// step springs the trap, if it is for such a request: it is told who coordinates what the request is about.
func (s *sim) step(r kmsg.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trap == nil || s.trap.key != kmsg.Key(r.Key()) {
		return
	}
	if m := s.coordinator(r); m != nil {
		s.trap.hit <- m
		s.trap = nil
	}
}

// coordinator is the machine that leads the partition of a request's group or transactional id, nil if nobody does.
func (s *sim) coordinator(r kmsg.Request) *machine {
	topic, id := metadata.GroupTopic, ""
	switch r := r.(type) {
	case *kmsg.InitProducerIDRequest:
		topic, id = metadata.TxnTopic, *r.TransactionalID
	case *kmsg.ProduceRequest:
		topic, id = metadata.TxnTopic, *r.TransactionID
	case *kmsg.EndTxnRequest:
		topic, id = metadata.TxnTopic, r.TransactionalID
	case *kmsg.TxnOffsetCommitRequest:
		id = r.Group
	case *kmsg.JoinGroupRequest:
		id = r.Group
	case *kmsg.SyncGroupRequest:
		id = r.Group
	case *kmsg.HeartbeatRequest:
		id = r.Group
	case *kmsg.OffsetCommitRequest:
		id = r.Group
	case *kmsg.OffsetFetchRequest:
		id = r.Groups[0].Group
	case *kmsg.ConsumerGroupHeartbeatRequest:
		id = r.Group
	default:
		return nil
	}
	image := s.image()
	if image == nil || image.Topic(topic) == nil {
		return nil
	}
	t := image.Topic(topic)
	leader := t.Partitions[metadata.CoordinatorPartition(id, int32(len(t.Partitions)))].Leader
	if leader < 1 || int(leader) > len(s.nodes) {
		return nil
	}
	return s.nodes[leader-1]
}

// killAtStep kills a coordinator in the midst of something.
func (s *sim) killAtStep(length time.Duration) {
	t := &trap{key: pick(s.rng, steps()...), hit: make(chan *machine, 1)}
	delay := time.Duration(s.rng.Int64N(int64(4*s.plan.link.Latency + 10*time.Millisecond)))
	mode, power := modeKill, s.rng.IntN(2) == 0
	if power {
		mode = pick(s.rng, powerModes()...)
	}
	s.mu.Lock()
	s.trap = t
	s.mu.Unlock()
	s.ends.Go(func() {
		patience, cancel := context.WithTimeout(s.healing, 5*time.Second)
		defer cancel()
		select {
		case m := <-t.hit:
			sleep(s.healing, delay)
			s.note("kill %s, power %t, %v after %s, for %v", m.name, power, delay, t.key.Name(), length)
			m.fence(mode, power)
			m.kill(mode, power)
			sleep(s.healing, length)
			m.tryStart()
			s.note("%s is started", m.name)
		case <-patience.Done():
		}
	})
}

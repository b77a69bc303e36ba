package group

import (
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/coordinator"
)

// retryPause is the time after which a timer tries again what could not be appended.
const retryPause = time.Second

// seat is what the coordinator knows of a member beside the log: its timers, and what it has heard.
type seat struct {
	c      *consumer
	member string

	session    *coordinator.Timer
	revocation *coordinator.Timer // runs while the member has to give something up
	parked     *parked            // its heartbeat that waits for news, or nil
	// confirmed is the last epoch that the member came with: it heard of that.
	confirmed int32
	// untold says that the last change of what the member has assigned may not have been heard: it is told again once.
	untold bool
}

// parked is a heartbeat that waits for news.
type parked struct {
	req   *kmsg.ConsumerGroupHeartbeatRequest
	owned *assignment
	reply *coordinator.Reply[*kmsg.ConsumerGroupHeartbeatResponse]
	end   *coordinator.Timer
}

// seat is the seat of a member, which is made when it is first asked for.
func (c *consumer) seat(member string) *seat {
	s := c.seats[member]
	if s == nil {
		s = &seat{c: c, member: member}
		c.seats[member] = s
		c.shard.watch.seats++
		c.shard.watch.start()
	}
	return s
}

// unseat drops the seat of a member that is removed.
func (c *consumer) unseat(member string) {
	s := c.seats[member]
	if s == nil {
		return
	}
	delete(c.seats, member)
	c.shard.watch.seats--
	s.session.Stop()
	s.revocation.Stop()
	if p := s.unpark(); p != nil {
		p.reply.Send(notAMember(c.id, member).response())
	}
}

// moved takes note that what the member has was changed.
func (s *seat) moved(old, now *current) {
	if !old.assigned.equal(now.assigned) {
		s.untold = true
	}
	if now.state != memberUnrevoked {
		s.revocation.Stop()
		s.revocation = nil
		return
	}
	if old.state != memberUnrevoked || !old.pending.equal(now.pending) {
		s.allow()
	}
}

// allow gives the member its rebalance timeout to give up what it must, if there is something.
func (s *seat) allow() {
	s.revocation.Stop()
	s.revocation = nil
	if s.c.current(s.member).state != memberUnrevoked {
		return
	}
	m := s.c.members[s.member]
	if m == nil {
		return
	}
	timeout := time.Duration(m.rebalanceTimeoutMs) * time.Millisecond
	s.revocation = s.c.shard.run.After(timeout, func() { s.expel("it did not give up what it had to in time") })
}

// timeout is the session timeout of the member.
func (s *seat) timeout() time.Duration {
	if m := s.c.members[s.member]; m != nil && m.sessionTimeoutMs > 0 {
		return time.Duration(m.sessionTimeoutMs) * time.Millisecond
	}
	return s.c.shard.settings().ConsumerSessionTimeout
}

// listen begins the session anew: the member was heard of, or was answered.
func (s *seat) listen() {
	s.session.Stop()
	s.session = s.c.shard.run.After(s.timeout(), func() { s.expel("its session timeout passed without a heartbeat") })
}

// expel removes the member.
func (s *seat) expel(why string) {
	c := s.c
	d := newDraft(c)
	d.remove(s.member)
	d.dropPatterns()
	d.bump(true)
	d.makeTarget(true)
	if err := d.commit(); err != nil {
		s.session.Stop()
		s.session = c.shard.run.After(retryPause, func() { s.expel(why) })
		return
	}
	c.shard.log.Info("a member of a group was removed", "group", c.id, "member", s.member, "why", why)
	c.settle()
}

// park keeps a heartbeat until there is news for the member.
func (s *seat) park(p *parked, wait time.Duration) {
	s.parked = p
	p.end = s.c.shard.run.After(wait, func() { s.giveUp() })
}

// unpark takes the heartbeat that waits, if there is one.
func (s *seat) unpark() *parked {
	p := s.parked
	if s.parked = nil; p != nil {
		p.end.Stop()
	}
	return p
}

// giveUp answers the heartbeat that waits, if there is one, without news.
func (s *seat) giveUp() {
	if p := s.unpark(); p != nil {
		s.tell(p.req, p.owned, p.reply, false)
	}
}

// tell answers a heartbeat of the member by what it has now, with the assignment if that is news or may be.
func (s *seat) tell(req *kmsg.ConsumerGroupHeartbeatRequest, owned *assignment,
	reply *coordinator.Reply[*kmsg.ConsumerGroupHeartbeatResponse], news bool,
) {
	now := s.c.current(s.member)
	resp := kmsg.NewPtrConsumerGroupHeartbeatResponse()
	resp.MemberID, resp.MemberEpoch = kmsg.StringPtr(s.member), now.epoch
	interval := min(s.c.shard.settings().ConsumerHeartbeatInterval, s.timeout()/3)
	resp.HeartbeatIntervalMillis = int32(interval.Milliseconds())
	if news || req.MemberEpoch != now.epoch || isFull(req) || owned != nil && !owned.equal(now.assigned) {
		resp.Assignment = assignmentOf(now.assigned)
	}
	if !reply.Gone() {
		s.listen()
	}
	reply.Send(resp)
}

// isFull says whether a heartbeat tells everything, so that everything is to be answered.
func isFull(req *kmsg.ConsumerGroupHeartbeatRequest) bool {
	return req.RebalanceTimeoutMillis != -1 && req.Topics != nil &&
		(req.SubscribedTopicNames != nil || req.SubscribedTopicRegex != nil)
}

func assignmentOf(a assignment) *kmsg.ConsumerGroupHeartbeatResponseAssignment {
	out := new(kmsg.ConsumerGroupHeartbeatResponseAssignment)
	out.Topics = make([]kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic, len(a))
	for i := range a {
		out.Topics[i] = kmsg.NewConsumerGroupHeartbeatResponseAssignmentTopic()
		out.Topics[i].TopicID, out.Topics[i].Partitions = a[i].topicID, slices.Clone(a[i].partitions)
	}
	return out
}

// settle gives parked heartbeats the news that a change has for them. What one member gives up by that another may get,
// so it goes on until nothing changes. While the log takes nothing they stay parked.
func (c *consumer) settle() {
	for c.stirred {
		c.stirred = false
		d, bytes := newDraft(c), 0
		for _, member := range slices.Sorted(maps.Keys(c.seats)) {
			s := c.seats[member]
			if bytes >= maxDraftBytes {
				break // the rest has its turn when this is written
			}
			if s.parked == nil {
				continue
			}
			if s.parked.reply.Gone() {
				s.unpark()
				continue
			}
			if d.advance(member, s.parked.owned, s.parked.req.MemberEpoch) {
				bytes += len(c.id) + len(member) + 4*d.current(member).assigned.count() + 64
			}
		}
		moved := slices.Sorted(maps.Keys(d.currents))
		if err := d.commit(); err != nil {
			c.retry.Stop()
			c.retry = c.shard.run.After(retryPause, func() {
				c.stirred = true
				c.settle()
			})
			return
		}
		for _, member := range moved {
			s := c.seats[member]
			p := s.unpark()
			s.tell(p.req, p.owned, p.reply, true)
		}
	}
}

// assignLater makes the assignment that is due as soon as the interval between two has passed.
func (c *consumer) assignLater() {
	c.assign.Stop()
	wait := c.shard.settings().ConsumerAssignmentInterval - time.Since(c.assigned)
	c.assign = c.shard.run.After(wait, c.refresh)
}

// refresh looks whether topics have changed, and makes the assignment that is due.
func (c *consumer) refresh() {
	if c.shard.consumerIf(c.id) != c || c.empty() {
		return
	}
	d := newDraft(c)
	d.bump(false)
	d.makeTarget(false)
	if err := d.commit(); err != nil {
		c.assign.Stop()
		c.assign = c.shard.run.After(retryPause, c.refresh)
		return
	}
	c.settle()
}

package group

import (
	"encoding/hex"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/coordinator"
)

// JoinGroup (key 11).
//
// A member joins, or joins again, and waits until all have: the answer is the generation that follows, and for the
// leader who is in it. Since version 4 whoever is new is given a member id first, so that one whose answer is lost can
// ask again by it. An instance id makes a static member: started again it takes its own place, under a new member id,
// without a rebalance, and the former one under that name is fenced.
//
// A join with nothing new is answered at once when the generation stands: the former answer may have been lost.

func (s *shard) handleJoinGroup(
	req *kmsg.JoinGroupRequest, who caller, reply *coordinator.Reply[*kmsg.JoinGroupResponse],
) {
	if e := s.checkJoin(req); e != nil {
		reply.Now(refuseJoinGroup(req, e))
		return
	}
	g := s.groups[req.Group]
	switch {
	case g != nil && g.consumer != nil:
		reply.Send(refuseJoinGroup(req, kerr.InconsistentGroupProtocol))
		return
	case (g == nil || g.classic == nil) && req.MemberID != "":
		reply.Send(refuseJoinGroup(req, kerr.UnknownMemberID))
		return
	}
	if g = s.ensure(req.Group); g.classic == nil {
		g.classic = newClassic(s, req.Group)
		g.classic.live = true
	}
	c := g.classic
	if e := c.join(&join{JoinGroupRequest: req, who: who, reply: reply}); e != nil {
		reply.Send(refuseJoinGroup(req, e))
	}
	c.tidy()
}

// join is one request to join.
type join struct {
	*kmsg.JoinGroupRequest
	who   caller
	reply *joinReply
}

// The workers that run connectors are a group of the classic protocol too. There are few of them, they live with the
// nodes, and what they run has to move fast when one is gone: they may have shorter sessions than consumers, and a
// rebalance of them does not wait for more than a moment for others to come.
const (
	workerType    = "connect"
	workerSession = time.Second
	workerDelay   = 200 * time.Millisecond
)

// checkJoin refuses what no group would take.
func (s *shard) checkJoin(req *kmsg.JoinGroupRequest) *kerr.Error {
	of := s.settings()
	session, _ := timeouts(req.SessionTimeoutMillis, -1)
	least := of.MinSessionTimeout
	if req.ProtocolType == workerType {
		least = min(least, workerSession)
	}
	switch {
	case session < least || session > of.MaxSessionTimeout:
		return kerr.InvalidSessionTimeout
	case req.ProtocolType == "" || len(req.Protocols) == 0:
		return kerr.InconsistentGroupProtocol
	case !isName(req.ProtocolType), req.InstanceID != nil && !isName(*req.InstanceID):
		return kerr.InvalidRequest
	}
	for i := range req.Protocols {
		if !isName(req.Protocols[i].Name) {
			return kerr.InvalidRequest
		}
	}
	return nil
}

// isName says whether a text may be the name of something that a group has.
func isName(s string) bool { return s != "" && len(s) <= maxName && utf8.ValidString(s) }

// join lets somebody join, or says why not. The answer is given unless it is refused.
func (c *classic) join(j *join) *kerr.Error {
	_, pending := c.pending[j.MemberID]
	switch {
	case c.full(j.MemberID):
		if m := c.members[j.MemberID]; m != nil {
			c.remove(m)
		}
		return kerr.GroupMaxSizeReached
	case !c.supports(j.JoinGroupRequest):
		return kerr.InconsistentGroupProtocol
	case j.MemberID == "":
		return c.joinAnew(j)
	case pending && j.InstanceID == nil:
		c.dropPending(j.MemberID)
		c.admit(j.MemberID, j)
		return nil
	}
	m, e := c.find(j.MemberID, j.InstanceID)
	if e == nil {
		c.rejoin(m, j)
	}
	return e
}

// full says whether there is no place for a member. One that is there already has it, unless the group is larger than
// is allowed now: then those stay who join first.
func (c *classic) full(id string) bool {
	limit := c.shard.settings().MaxSize
	if len(c.members) < limit {
		return false
	}
	m := c.members[id]
	if m == nil || m.joining != nil || c.phase != statePreparing || len(c.members) == limit {
		return m == nil
	}
	waiting := 0
	for _, other := range c.members {
		if other.joining != nil {
			waiting++
		}
	}
	return waiting >= limit
}

// supports says whether somebody has a protocol in common with all members.
func (c *classic) supports(req *kmsg.JoinGroupRequest) bool {
	if len(c.members) == 0 {
		return true
	}
	return req.ProtocolType == c.kind && slices.ContainsFunc(req.Protocols, func(p kmsg.JoinGroupRequestProtocol) bool {
		return c.votes[p.Name] == len(c.members)
	})
}

// joinAnew is for who has no member id.
func (c *classic) joinAnew(j *join) *kerr.Error {
	if j.InstanceID != nil {
		if old := c.static[*j.InstanceID]; old != nil {
			return c.replace(old, j)
		}
	}
	if c.shard.arrivals >= maxArrivals {
		return kerr.CoordinatorLoadInProgress
	}
	id := c.newID(j)
	if j.InstanceID != nil || j.Version < 4 {
		c.admit(id, j)
		return nil
	}
	session, _ := timeouts(j.SessionTimeoutMillis, -1)
	c.shard.arrivals++
	c.pending[id] = c.shard.run.After(session, func() {
		c.dropPending(id)
		c.advance()
		c.tidy()
	})
	resp := refuseJoinGroup(j.JoinGroupRequest, kerr.MemberIDRequired)
	resp.MemberID = id
	j.reply.Send(resp)
	return nil
}

// newID draws a member id, which begins with the name of the instance, or of the client.
func (c *classic) newID(j *join) string {
	name := cut(j.who.clientID)
	if j.InstanceID != nil {
		name = *j.InstanceID
	}
	var b [16]byte
	for i := range b {
		b[i] = byte(c.shard.rand.Uint32())
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return name + "-" + h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// admit makes somebody a member.
func (c *classic) admit(id string, j *join) {
	m := newMember(id, j.InstanceID)
	m.describeSelf(j.JoinGroupRequest, j.who)
	m.arrives = true
	c.shard.arrivals++
	if len(c.members) == 0 {
		c.kind = j.ProtocolType
	}
	c.add(m)
	m.park(j.reply)
	c.startSession(m)
	c.grew = true
	c.changed()
}

// rejoin lets a member join again.
func (c *classic) rejoin(m *member, j *join) {
	same := m.says(j.Protocols)
	c.update(m, j.JoinGroupRequest, j.who)
	if c.phase == stateCompleting && same || c.phase == stateStable && same && m.id != c.leader {
		c.startSession(m)
		j.reply.Send(c.joinAnswer(m))
		return
	}
	m.park(j.reply)
	c.changed()
}

// replace puts a static member that has started again in the place of the former one.
func (c *classic) replace(old *member, j *join) *kerr.Error {
	m := newMember(c.newID(j), j.InstanceID)
	m.describeSelf(j.JoinGroupRequest, j.who)
	m.assignment = old.assignment
	members := c.sorted()
	members[slices.Index(members, old)] = m
	if c.phase == stateStable && vote(members) == c.protocol {
		return c.replaceQuietly(old, members, j)
	}
	if c.leader == old.id {
		c.leader = m.id
	}
	old.failJoin(kerr.FencedInstanceID)
	old.failSync(kerr.FencedInstanceID)
	c.swap(old, m)
	m.park(j.reply)
	c.changed()
	return nil
}

// replaceQuietly does so without a rebalance. The members are those with the new one among them. It is told its
// assignment when it syncs; a leader has nothing to assign. Before version 9 that cannot be said, so a leader is told
// that the former one leads.
func (c *classic) replaceQuietly(old *member, members []*member, j *join) *kerr.Error {
	leader, m := c.leader, members[slices.IndexFunc(members, func(m *member) bool { return c.members[m.id] == nil })]
	if leader == old.id {
		c.leader = m.id
	}
	if e := c.append(members); e != nil {
		c.leader = leader
		return e
	}
	order := old.order
	m = c.members[m.id]
	m.order = order
	c.update(m, j.JoinGroupRequest, j.who)
	c.startSession(m)
	resp := c.joinAnswer(m)
	if j.Version >= 9 {
		resp.SkipAssignment = m.id == c.leader
	} else {
		resp.LeaderID, resp.Members = leader, nil
	}
	j.reply.Send(resp)
	return nil
}

// swap puts a member in the place of another.
func (c *classic) swap(old, m *member) {
	order := old.order
	c.drop(old)
	c.add(m)
	m.order = order
	c.startSession(m)
}

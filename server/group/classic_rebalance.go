package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// add takes a member in. Of two of one instance the later counts.
func (c *classic) add(m *member) {
	c.joined++
	m.order = c.joined
	c.members[m.id] = m
	if m.instance != nil {
		c.static[*m.instance] = m
	}
	if c.leader == "" {
		c.leader = m.id
	}
	c.count(m, 1)
}

// drop takes a member out. What waits of it is told that there is no such member. The caller elects a leader when it
// has dropped all that go.
func (c *classic) drop(m *member) {
	m.timer.Stop()
	m.failJoin(kerr.UnknownMemberID)
	m.failSync(kerr.UnknownMemberID)
	c.arrived(m)
	c.count(m, -1)
	delete(c.members, m.id)
	if m.instance != nil && c.static[*m.instance] == m {
		delete(c.static, *m.instance)
	}
	if c.leader == m.id {
		c.leader = ""
	}
}

// count adds a member's protocols to those that the members have, or takes them away.
func (c *classic) count(m *member, n int) {
	c.topics = nil
	for i, p := range m.protocols {
		if hasProtocol(m.protocols[:i], p.Name) {
			continue
		}
		if c.votes[p.Name] += n; c.votes[p.Name] == 0 {
			delete(c.votes, p.Name)
		}
	}
}

// hasProtocol says whether a protocol of that name is in the list.
func hasProtocol(list []kmsg.JoinGroupRequestProtocol, name string) bool {
	for i := range list {
		if list[i].Name == name {
			return true
		}
	}
	return false
}

// update takes up what a member says of itself now.
func (c *classic) update(m *member, req *kmsg.JoinGroupRequest, who caller) {
	c.count(m, -1)
	m.describeSelf(req, who)
	c.count(m, 1)
}

// arrived notes that a member takes part now, or is gone.
func (c *classic) arrived(m *member) {
	if m.arrives {
		m.arrives = false
		c.shard.arrivals--
	}
}

// dropPending forgets a member id that was given out.
func (c *classic) dropPending(id string) {
	c.pending[id].Stop()
	delete(c.pending, id)
	c.shard.arrivals--
}

// remove takes a member out for good, and has the others share what it had.
func (c *classic) remove(m *member) {
	c.drop(m)
	c.changed()
}

// changed goes on after members have come or gone.
func (c *classic) changed() {
	c.elect()
	switch c.phase {
	case stateStable, stateCompleting:
		c.prepare()
	case statePreparing:
		c.advance()
	case stateEmpty:
		if len(c.members) > 0 {
			c.prepare()
		}
	}
}

// tidy forgets a group that the log does not have and nobody is about to join.
func (c *classic) tidy() {
	g := c.shard.groups[c.id]
	if c.phase == stateEmpty && !c.stored && c.empty() && g != nil && g.classic == c {
		g.classic = nil
		c.shard.forget(g)
	}
}

// elect makes the longest member the leader, if there is none.
func (c *classic) elect() {
	if c.leader != "" {
		return
	}
	var first *member
	for _, m := range c.members {
		if first == nil || m.order < first.order {
			first = m
		}
	}
	if first != nil {
		c.leader = first.id
	}
}

// electJoined sees to it that the leader is a member that waits; false if none does.
func (c *classic) electJoined() bool {
	if m := c.members[c.leader]; m != nil && m.joining != nil {
		return true
	}
	for _, m := range c.sorted() {
		if m.joining != nil {
			c.leader = m.id
			return true
		}
	}
	return false
}

// prepare has all members join again. A group that was Empty waits for more of them than the first.
func (c *classic) prepare() {
	if c.phase == stateCompleting {
		for _, m := range c.members {
			m.failSync(kerr.RebalanceInProgress)
		}
	}
	c.timers.sync.Stop()
	c.initial = c.phase == stateEmpty
	c.phase = statePreparing
	if c.initial {
		c.grew = false
		delay := c.initialDelay()
		c.delay(delay, max(c.rebalanceTimeout()-delay, 0))
		return
	}
	c.setJoinTimer(c.rebalanceTimeout(), c.complete)
	c.advance()
}

// delay waits for more members of a group that was Empty: for some time, and again when there were some, until what is
// left of the rebalance timeout is over.
func (c *classic) delay(d, left time.Duration) {
	c.setJoinTimer(d, func() {
		if !c.grew || left <= 0 {
			c.complete()
			return
		}
		c.grew = false
		next := min(c.initialDelay(), left)
		c.delay(next, left-next)
	})
}

// initialDelay is how long a group that was Empty waits for somebody else.
func (c *classic) initialDelay() time.Duration {
	delay := c.shard.settings().InitialRebalanceDelay
	if c.kind == workerType {
		delay = min(delay, workerDelay)
	}
	return delay
}

func (c *classic) setJoinTimer(d time.Duration, fn func()) {
	c.timers.join.Stop()
	c.timers.join = c.shard.run.After(d, fn)
}

// rebalanceTimeout is how long the others are waited for: as long as one of the members may take.
func (c *classic) rebalanceTimeout() (longest time.Duration) {
	for _, m := range c.members {
		longest = max(longest, m.rebalance)
	}
	return longest
}

// advance ends the wait for the others when there is nobody to wait for.
func (c *classic) advance() {
	if c.phase != statePreparing || c.initial || len(c.pending) > 0 {
		return
	}
	for _, m := range c.members {
		if m.joining == nil {
			return
		}
	}
	c.complete()
}

// complete ends the wait for the others. Members that have not joined are gone, but for static ones, which have their
// session to come back in.
func (c *classic) complete() {
	c.timers.join.Stop()
	c.initial = false
	for _, m := range c.members {
		if m.joining == nil && m.instance == nil {
			c.drop(m)
		}
	}
	switch {
	case len(c.members) == 0:
		c.becomeEmpty()
	case !c.electJoined(): // there are but static ones, until their sessions end
		c.setJoinTimer(c.rebalanceTimeout(), c.complete)
	default:
		c.begin()
	}
}

// becomeEmpty is the end of a group's members. It stands also where the log does not take it: a later coordinator then
// finds out for itself that they are gone.
func (c *classic) becomeEmpty() {
	c.generation++
	c.phase, c.protocol, c.chosen, c.leader, c.since = stateEmpty, "", false, "", c.shard.millis()
	if err := c.shard.run.Append(c.record(nil)); err != nil {
		c.shard.log.Debug("the end of a group's members was not written", "group", c.id, "err", err)
		c.tidy()
	}
}

// begin begins a generation of those who have joined. They are told of it, and have as long to sync as they had to
// join: who does not holds up the others (or holds partitions without reading them).
func (c *classic) begin() {
	members := c.sorted()
	c.generation++
	c.protocol, c.chosen = vote(members), true
	c.phase, c.topics = stateCompleting, nil
	for _, m := range members {
		m.unsynced = m.joining != nil
		if m.joining != nil {
			c.arrived(m)
			m.answerJoin(c.joinAnswer(m))
			c.startSession(m)
		}
	}
	c.timers.sync.Stop()
	c.timers.sync = c.shard.run.After(c.rebalanceTimeout(), c.expireSyncs)
}

// joinAnswer tells a member of the generation; the leader is told of the others.
func (c *classic) joinAnswer(m *member) *kmsg.JoinGroupResponse {
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.Generation, resp.LeaderID, resp.MemberID = c.generation, c.leader, m.id
	kind, protocol := c.kind, c.protocol
	resp.ProtocolType, resp.Protocol = &kind, &protocol
	if m.id == c.leader {
		for _, other := range c.sorted() {
			out := kmsg.NewJoinGroupResponseMember()
			out.MemberID, out.InstanceID, out.ProtocolMetadata = other.id, other.instance, other.metadata(c.protocol)
			resp.Members = append(resp.Members, out)
		}
	}
	return resp
}

// expireSyncs removes members that have not synced in time.
func (c *classic) expireSyncs() {
	late := false
	for _, m := range c.members {
		if m.unsynced {
			late = true
			c.drop(m)
		}
	}
	if late {
		c.changed()
	}
}

// startSession starts a member's session anew.
func (c *classic) startSession(m *member) {
	m.timer.Stop()
	d := m.session
	if m.arrives {
		d = newMemberTimeout
	}
	m.timer = c.shard.run.After(d, func() { c.expireSession(m) })
}

// expireSession ends a session, unless the member waits for the others: then it starts anew with the answer.
func (c *classic) expireSession(m *member) {
	if m.arrives || m.joining == nil && m.syncing == nil {
		c.remove(m)
	}
}

// vote is the protocol that most members like best among those that all have; of several, the one that the longest
// member likes best.
func vote(members []*member) string {
	have := make(map[string]int)
	for _, m := range members {
		for i, p := range m.protocols {
			if !hasProtocol(m.protocols[:i], p.Name) {
				have[p.Name]++
			}
		}
	}
	votes := make(map[string]int)
	for _, m := range members {
		for _, p := range m.protocols {
			if have[p.Name] == len(members) {
				votes[p.Name]++
				break
			}
		}
	}
	best := ""
	for _, p := range members[0].protocols {
		if votes[p.Name] > votes[best] {
			best = p.Name
		}
	}
	return best
}

// append writes the group as it is with these members to the log, which makes it so.
func (c *classic) append(members []*member) *kerr.Error {
	if err := c.shard.run.Append(c.record(members)); err != nil {
		return appendRefusal(err)
	}
	return nil
}

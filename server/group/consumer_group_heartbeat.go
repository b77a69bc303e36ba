package group

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/server/coordinator"
)

// ConsumerGroupHeartbeat (key 68).
//
// The one request of the consumer protocol: with epoch 0 a member joins under an id of its own choice, with its epoch
// it says that it is alive, what it subscribes to and what it has, with -1 it leaves, and with -2 a static member
// leaves to come back within its session. The answer says what the member has now; when that shrinks, the member gives
// up what is missing and says so by its next heartbeat.
//
// Beyond Kafka: a member may keep state with the coordinator and have a session timeout of its own
// (ktag.SetMemberState, ktag.SetSessionTimeout), and a heartbeat may wait for news (ktag.SetHeartbeatWait). A heartbeat
// with the epoch before is taken for one whose answer was lost also if it does not say what the member has. An
// assignment that changed is told twice unless the member shows that it heard.

// Bounds of a member.
const (
	maxMembers          = 10_000 // of one group, whatever group.consumer.max.size says
	maxMemberID         = 255    // bytes of ids, racks and client names
	maxSubscribedTopics = 1000
	maxSubscribedBytes  = 128 << 10
	maxPattern          = 1024 // bytes
	maxMemberState      = 64 << 10
	minSessionTimeout   = time.Second
	maxSessionTimeout   = 30 * time.Minute
)

// refusal is why a heartbeat is refused, and the text that tells.
type refusal struct {
	err  *kerr.Error
	text string
}

func refuse(e *kerr.Error, format string, args ...any) *refusal {
	return &refusal{e, fmt.Sprintf(format, args...)}
}

func notAMember(group, member string) *refusal {
	return refuse(kerr.UnknownMemberID, "%q is not a member of group %q: join it again", member, group)
}

func (r *refusal) response() *kmsg.ConsumerGroupHeartbeatResponse {
	resp := kmsg.NewPtrConsumerGroupHeartbeatResponse()
	resp.ErrorCode, resp.ErrorMessage = r.err.Code, &r.text
	return resp
}

// heartbeat is one at work.
type heartbeat struct {
	shard *shard
	req   *kmsg.ConsumerGroupHeartbeatRequest
	who   caller
	reply *coordinator.Reply[*kmsg.ConsumerGroupHeartbeatResponse]
	owned *assignment
}

func (s *shard) handleConsumerGroupHeartbeat(
	req *kmsg.ConsumerGroupHeartbeatRequest, who caller,
	reply *coordinator.Reply[*kmsg.ConsumerGroupHeartbeatResponse],
) {
	h := &heartbeat{shard: s, req: req, who: who, reply: reply, owned: owned(req.Topics)}
	why := h.check()
	if why != nil {
		reply.Now(why.response())
		return
	}
	switch {
	case req.MemberEpoch < 0:
		why = h.leave()
	case req.MemberEpoch == 0:
		why = h.join()
	default:
		why = h.beat()
	}
	if why != nil {
		reply.Send(why.response())
	}
}

// check refuses what is wrong whatever the group is.
func (h *heartbeat) check() *refusal {
	req := h.req
	bad := func(text string, args ...any) *refusal { return refuse(kerr.InvalidRequest, text, args...) }
	names := []*string{&req.MemberID, req.InstanceID, req.RackID}
	for i, what := range []string{"member id", "instance id", "rack id"} {
		if name := names[i]; name != nil && (*name == "" || len(*name) > maxMemberID || !utf8.ValidString(*name)) {
			return bad("the %s must be UTF-8 of 1 to %d bytes", what, maxMemberID)
		}
	}
	switch {
	case req.MemberEpoch < awayEpoch:
		return bad("member epoch %d: it is -2 or more", req.MemberEpoch)
	case req.MemberEpoch == awayEpoch && req.InstanceID == nil:
		return bad("only a member with an instance id leaves by epoch -2")
	case req.MemberEpoch < 0:
		return nil
	case req.RebalanceTimeoutMillis < -1:
		return bad("rebalance timeout of %d ms", req.RebalanceTimeoutMillis)
	}
	if req.MemberEpoch == 0 {
		switch {
		case req.RebalanceTimeoutMillis <= 0:
			return bad("who joins must give a rebalance timeout above 0")
		case req.SubscribedTopicNames == nil && req.SubscribedTopicRegex == nil:
			return bad("who joins must give topics or a pattern to subscribe to")
		case req.Topics == nil || len(req.Topics) > 0:
			return bad("who joins must say that it owns no partitions, by an empty list")
		}
	}
	if name := req.ServerAssignor; name != nil {
		if known := h.shard.settings().ConsumerAssignors; !slices.Contains(known, *name) {
			return refuse(kerr.UnsupportedAssignor, "assignor %q: there are %s", *name, strings.Join(known, ", "))
		}
	}
	if why := checkSubscription(req); why != nil {
		return why
	}
	return checkExtras(req)
}

func checkSubscription(req *kmsg.ConsumerGroupHeartbeatRequest) *refusal {
	if len(req.SubscribedTopicNames) > maxSubscribedTopics {
		return refuse(kerr.InvalidRequest, "a member subscribes to at most %d topics", maxSubscribedTopics)
	}
	total := 0
	for _, name := range req.SubscribedTopicNames {
		if total += len(name); name == "" || total > maxSubscribedBytes {
			return refuse(kerr.InvalidRequest, "names of topics are not empty and together at most %d bytes", maxSubscribedBytes)
		}
	}
	if p := req.SubscribedTopicRegex; p != nil {
		if len(*p) > maxPattern || !utf8.ValidString(*p) {
			return refuse(kerr.InvalidRegularExpression, "a pattern is UTF-8 of at most %d bytes", maxPattern)
		}
		if _, err := compilePattern(*p); err != nil {
			return refuse(kerr.InvalidRegularExpression, "%v: patterns are RE2 expressions", err)
		}
	}
	return nil
}

// checkExtras looks at what Kafka does not have.
func checkExtras(req *kmsg.ConsumerGroupHeartbeatRequest) *refusal {
	if state, _ := ktag.MemberState(&req.UnknownTags); len(state) > maxMemberState {
		return refuse(kerr.InvalidRequest, "the state of a member is at most %d bytes", maxMemberState)
	}
	ms, ok := ktag.SessionTimeout(&req.UnknownTags)
	if d := time.Duration(ms) * time.Millisecond; ok && ms != 0 && (d < minSessionTimeout || d > maxSessionTimeout) {
		return refuse(kerr.InvalidSessionTimeout, "a session timeout of %v: it is from %v to %v", d, minSessionTimeout,
			maxSessionTimeout)
	}
	return nil
}

// group is the group that the heartbeat is for, as a draft. A member that joins makes it, also of a group of the
// classic protocol without members.
func (h *heartbeat) group() (*draft, *refusal) {
	id := h.req.Group
	g := h.shard.groups[id]
	switch {
	case g != nil && g.classic != nil && (h.req.MemberEpoch != 0 || !g.classic.empty()):
		return nil, refuse(kerr.GroupIDNotFound, "group %q is one of the classic protocol", id)
	case g != nil && g.consumer != nil:
		return newDraft(g.consumer), nil
	case h.req.MemberEpoch != 0:
		return nil, refuse(kerr.GroupIDNotFound, "there is no group %q of the consumer protocol", id)
	}
	d := newDraft(newConsumer(h.shard, id))
	if g != nil && g.classic != nil {
		d.before = g.tombstones()
	}
	return d, nil
}

// heard says whether the member may come with the epoch of the heartbeat: its present one, or the one before when the
// answer with the present one was lost. Who has shown that it knows the present epoch cannot have lost that.
func (h *heartbeat) heard(d *draft) *refusal {
	now, seat := d.current(h.req.MemberID), d.c.seats[h.req.MemberID]
	epoch := h.req.MemberEpoch
	switch {
	case epoch == now.epoch:
		return nil
	case epoch < now.epoch && epoch == now.previous && (seat == nil || seat.confirmed < now.epoch) &&
		(h.owned == nil || len(h.owned.minus(now.assigned)) == 0):
		return nil
	case epoch == 0:
		return refuse(kerr.FencedMemberEpoch, "member %q is in the group: join under another id", h.req.MemberID)
	}
	return refuse(kerr.FencedMemberEpoch, "member %q is in epoch %d: give up all partitions and join again",
		h.req.MemberID, now.epoch)
}

// holder finds the member of an instance id for who is in the group already.
func (h *heartbeat) holder(d *draft) *refusal {
	if h.req.InstanceID != nil {
		switch holder := d.c.static[*h.req.InstanceID]; {
		case holder == "":
			return notAMember(d.c.id, h.req.MemberID)
		case holder != h.req.MemberID:
			return refuse(kerr.FencedInstanceID, "instance %q is another member now", *h.req.InstanceID)
		}
	}
	if d.member(h.req.MemberID) == nil {
		return notAMember(d.c.id, h.req.MemberID)
	}
	return nil
}

// beat is the heartbeat of a member.
func (h *heartbeat) beat() *refusal {
	d, why := h.group()
	if why == nil {
		why = h.holder(d)
	}
	if why == nil {
		why = h.heard(d)
	}
	if why != nil {
		return why
	}
	now, changed := h.merge(d.member(h.req.MemberID))
	if changed {
		d.members[h.req.MemberID] = now
	}
	return h.finish(d, changed && !sameSubscription(d.c.members[h.req.MemberID], now))
}

// join is the heartbeat of who becomes a member, or comes back.
func (h *heartbeat) join() *refusal {
	d, why := h.group()
	if why != nil {
		return why
	}
	id, holder := h.req.MemberID, ""
	if h.req.InstanceID != nil {
		holder = d.c.static[*h.req.InstanceID]
	}
	old := d.member(id)
	switch {
	case holder != "" && d.c.current(holder).epoch == awayEpoch && (old == nil || holder == id):
		return h.comeBack(d, holder)
	case old != nil:
		if why := h.heard(d); why != nil {
			return why
		}
		return h.beat() // its answer was lost
	case holder != "":
		return refuse(kerr.UnreleasedInstanceID, "instance %q has not left: it is member %q", *h.req.InstanceID, holder)
	}
	if most := min(h.shard.settings().ConsumerMaxSize, maxMembers); len(d.c.members) >= most {
		return refuse(kerr.GroupMaxSizeReached, "group %q has %d members, the most that there may be", d.c.id, most)
	}
	d.members[id], _ = h.merge(&memberMetadata{})
	d.currents[id] = &current{}
	return h.finish(d, true)
}

// comeBack is a static member that left to come back: it, or another in its place, gets what it had.
func (h *heartbeat) comeBack(d *draft, holder string) *refusal {
	id := h.req.MemberID
	old, had, target := d.c.members[holder], d.c.current(holder), d.c.targets[holder]
	now, changed := h.merge(old)
	if holder != id {
		d.remove(holder)
		d.targets[id] = target
		changed = true
	}
	if changed {
		d.members[id] = now
	}
	d.setCurrent(id, &current{assigned: had.assigned})
	return h.finish(d, !sameSubscription(old, now))
}

// merge is a member with what the heartbeat says of it, and whether that changes anything.
func (h *heartbeat) merge(old *memberMetadata) (*memberMetadata, bool) {
	req, now := h.req, *old
	if h.who.clientID != "" || h.who.host != "" {
		now.clientID, now.clientHost = clip(h.who.clientID), clip(h.who.host)
	}
	if req.InstanceID != nil {
		now.instanceID = req.InstanceID
	}
	if req.RackID != nil {
		now.rackID = req.RackID
	}
	if req.RebalanceTimeoutMillis > 0 {
		now.rebalanceTimeoutMs = req.RebalanceTimeoutMillis
	}
	if req.SubscribedTopicNames != nil {
		now.topics = slices.Compact(slices.Sorted(slices.Values(req.SubscribedTopicNames)))
	}
	if p := req.SubscribedTopicRegex; p != nil {
		if now.topicRegex = p; *p == "" {
			now.topicRegex = nil
		}
	}
	if req.ServerAssignor != nil {
		now.serverAssignor = req.ServerAssignor
	}
	if state, ok := ktag.MemberState(&req.UnknownTags); ok {
		if now.state = state; len(state) == 0 {
			now.state = nil
		}
	}
	if ms, ok := ktag.SessionTimeout(&req.UnknownTags); ok {
		now.sessionTimeoutMs = ms
	}
	return &now, !bytes.Equal(encodeMember(old), encodeMember(&now))
}

// clip shortens the name of a client to what is kept of it.
func clip(name string) string {
	return strings.ToValidUTF8(name[:min(len(name), maxMemberID)], "")
}

// sameSubscription says whether two states of a member are assigned alike.
func sameSubscription(a, b *memberMetadata) bool {
	return slices.Equal(a.topics, b.topics) && equalText(a.topicRegex, b.topicRegex) &&
		equalText(a.serverAssignor, b.serverAssignor)
}

func equalText(a, b *string) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// finish does what all heartbeats of members have in common: a new epoch and a new assignment where it takes one, and
// what the member gets of it.
func (h *heartbeat) finish(d *draft, changed bool) *refusal {
	id := h.req.MemberID
	if changed {
		d.dropPatterns()
	}
	d.bump(changed)
	d.makeTarget(false)
	d.advance(id, h.owned, h.req.MemberEpoch)
	before := d.c.current(id)
	if h.req.MemberEpoch == 0 {
		before = &current{}
	}
	if err := d.commit(); err != nil {
		return unwritten(err)
	}
	c := h.shard.consumerIf(d.c.id)
	s := c.seat(id)
	h.answer(s, !before.assigned.equal(c.current(id).assigned))
	if p := c.members[id].topicRegex; p != nil &&
		(c.patterns[*p] == nil || time.Since(c.matched) >= h.shard.settings().ConsumerRegexRefreshInterval) {
		c.match()
	}
	c.settle()
	return nil
}

// answer answers, or parks the heartbeat when there is no news and it may wait for some.
func (h *heartbeat) answer(s *seat, news bool) {
	s.giveUp() // the member is here now
	now := s.c.current(s.member)
	s.confirmed = h.req.MemberEpoch
	if h.owned != nil && h.owned.equal(now.assigned) {
		s.untold = false
	}
	if !news && s.untold {
		news, s.untold = true, false
	}
	wait := h.wait(s)
	if news || h.req.MemberEpoch != now.epoch || wait <= 0 {
		s.tell(h.req, h.owned, h.reply, news)
		return
	}
	s.listen()
	s.park(&parked{req: h.req, owned: h.owned, reply: h.reply}, wait)
}

// wait is how long the heartbeat may wait for news.
func (h *heartbeat) wait(s *seat) time.Duration {
	ms, _ := ktag.HeartbeatWait(&h.req.UnknownTags)
	return min(time.Duration(ms)*time.Millisecond, s.timeout()/2)
}

// unwritten is what is said of records that could not be appended.
func unwritten(err error) *refusal {
	return refuse(appendRefusal(err), "the change could not be written: %v", err)
}

// leave is the heartbeat of a member that leaves.
func (h *heartbeat) leave() *refusal {
	d, why := h.group()
	if why == nil {
		why = h.holder(d)
	}
	if why != nil {
		return why
	}
	c, id := d.c, h.req.MemberID
	if h.req.MemberEpoch == awayEpoch {
		had := c.current(id)
		d.setCurrent(id, &current{epoch: awayEpoch, previous: had.previous, assigned: had.assigned})
	} else {
		d.remove(id)
		d.dropPatterns()
		d.bump(true)
		d.makeTarget(true)
	}
	if err := d.commit(); err != nil {
		return unwritten(err)
	}
	if s := c.seats[id]; s != nil { // it is away: its session runs on
		s.confirmed = 0
		s.giveUp()
		s.listen()
	}
	resp := kmsg.NewPtrConsumerGroupHeartbeatResponse()
	resp.MemberID, resp.MemberEpoch = &id, h.req.MemberEpoch
	h.reply.Send(resp)
	c.settle()
	return nil
}

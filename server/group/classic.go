package group

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/coordinator"
)

// A group of the classic protocol: its members join, one of them, the leader, assigns to all what they are to do, and
// each of them syncs to be told. What they say to each other is theirs; the coordinator carries it.
//
//	Empty ── a first member joins ──> PreparingRebalance: members join and wait
//	PreparingRebalance ── all have joined, or the time is over ──> CompletingRebalance: they sync and wait
//	PreparingRebalance ── nobody is left ──> Empty
//	CompletingRebalance ── the leader syncs, the assignment is in the log ──> Stable
//	Stable, CompletingRebalance ── members come, go or change ──> PreparingRebalance
//
// The log holds groups that are Stable or Empty alone. So nobody is given an assignment that a later coordinator does
// not know, and one that finds a group in its log finds it with the last generation that was given any: members that
// are further ahead are refused and join again.

// Names of the states of classic groups, beside those that other groups have too.
const (
	statePreparing  = "PreparingRebalance"
	stateCompleting = "CompletingRebalance"
)

// Bounds that are constants in Kafka too, or that it lacks.
const (
	// newMemberTimeout is how long somebody who joins anew may wait for the others: his caller may be gone.
	newMemberTimeout = 5 * time.Minute
	// maxArrivals bounds, in one shard, who was given a member id, or has joined, and never took part yet.
	maxArrivals = 20_000
	// maxName bounds, in bytes, what else is called by a name: instances, protocols and their type, clients, hosts.
	maxName = 255
)

// classic is a group of the classic protocol. It belongs to the shard's loop.
//
// Invariants: in Empty there are no members; in Stable all have an assignment that the log has; leader is a member
// unless there is none; each member has a protocol in common with all others.
type classic struct {
	shard *shard
	id    string

	live       bool   // it is served: what the log does not have of members is known
	phase      string // one of the states
	stored     bool   // the log has it
	generation int32
	kind       string // the protocol type
	protocol   string // what the members chose for the generation
	chosen     bool   // they did
	leader     string
	since      int64 // when it became Stable or Empty, in milliseconds

	members map[string]*member
	static  map[string]*member                      // by instance id
	pending map[string]*coordinator.Timer           // ids that were given out and not used yet
	votes   map[string]int                          // how many members have each protocol
	topics  map[string]bool                         // what the members are subscribed to; nil: not looked up
	known   bool                                    // topics is all
	timers  struct{ join, sync *coordinator.Timer } // of the state
	initial bool                                    // the first rebalance of a group that was Empty
	grew    bool                                    // somebody came in the last delay of an initial rebalance
	joined  uint64                                  // members so far, which orders them
}

func newClassic(s *shard, id string) *classic {
	return &classic{
		shard: s, id: id, phase: stateEmpty,
		members: make(map[string]*member), static: make(map[string]*member),
		pending: make(map[string]*coordinator.Timer), votes: make(map[string]int),
	}
}

// classicOf finds a classic group, which may be nil.
func (s *shard) classicOf(id string) *classic {
	if g := s.groups[id]; g != nil {
		return g.classic
	}
	return nil
}

// replayGroupMetadata takes up the record of a group, or its end.
func (s *shard) replayGroupMetadata(id string, v *groupMetadata) {
	if v == nil {
		if g := s.groups[id]; g != nil && g.classic != nil {
			g.classic.dissolve()
			g.classic = nil
		}
		return
	}
	g := s.ensure(id)
	if g.classic == nil {
		g.classic = newClassic(s, id)
	}
	g.classic.take(v)
}

// take takes up a record of the group, which is as that says. In a group that is served what the log does not have of
// members is left as it is.
func (c *classic) take(v *groupMetadata) {
	c.stored, c.generation, c.kind, c.since = true, v.Generation, v.ProtocolType, v.CurrentStateTimestamp
	c.protocol, c.chosen, c.leader = "", v.Protocol != nil, ""
	if v.Protocol != nil {
		c.protocol = *v.Protocol
	}
	if v.Leader != nil {
		c.leader = *v.Leader
	}
	for _, m := range c.members {
		if !c.live {
			c.drop(m)
		}
	}
	before := maps.Clone(c.members)
	for i := range v.Members {
		r := &v.Members[i]
		m := before[r.MemberID]
		delete(before, r.MemberID)
		if m == nil {
			m = newMember(r.MemberID, r.InstanceID)
			m.clientID, m.host = r.ClientID, r.ClientHost
			m.session, m.rebalance = timeouts(r.SessionTimeoutMillis, r.RebalanceTimeoutMillis)
			m.protocols = []kmsg.JoinGroupRequestProtocol{{Name: c.protocol, Metadata: r.Subscription}}
			c.add(m)
		}
		m.assignment = r.Assignment
	}
	for _, m := range before {
		c.drop(m)
	}
	if c.phase = stateStable; len(c.members) == 0 {
		c.phase = stateEmpty
	}
	if c.members[c.leader] == nil {
		c.leader = ""
	}
	c.elect()
}

// record is the record of the group as it would be with these members, in the state that follows from them. Its
// timestamp is now.
func (c *classic) record(members []*member) coordinator.KV {
	v := &groupMetadata{ProtocolType: c.kind, Generation: c.generation, CurrentStateTimestamp: c.shard.millis()}
	if len(members) > 0 {
		v.Protocol, v.Leader = &c.protocol, &c.leader
	}
	for _, m := range members {
		v.Members = append(v.Members, kmsg.GroupMetadataValueMember{
			MemberID: m.id, InstanceID: m.instance, ClientID: m.clientID, ClientHost: m.host,
			RebalanceTimeoutMillis: int32(m.rebalance.Milliseconds()), SessionTimeoutMillis: int32(m.session.Milliseconds()),
			Subscription: m.metadata(c.protocol), Assignment: m.assignment,
		})
	}
	return coordinator.KV{Key: groupKey(kindGroupMetadata, c.id), Value: encodeGroupMetadata(v)}
}

// sorted lists the members in the order in which they came.
func (c *classic) sorted() []*member {
	return slices.SortedFunc(maps.Values(c.members), func(a, b *member) int { return cmp.Compare(a.order, b.order) })
}

// loaded starts the members' sessions. A group of more members than are allowed now is made to shrink.
func (c *classic) loaded() {
	c.live = true
	for _, m := range c.sorted() {
		c.startSession(m)
	}
	if len(c.members) > c.shard.settings().MaxSize {
		c.prepare()
	}
}

// dissolve ends the group.
func (c *classic) dissolve() {
	c.timers.join.Stop()
	c.timers.sync.Stop()
	for _, m := range c.members {
		c.drop(m)
	}
	for id := range c.pending {
		c.dropPending(id)
	}
}

func (c *classic) state() string { return c.phase }

// empty says whether nobody is a member, or about to be.
func (c *classic) empty() bool { return len(c.members) == 0 && len(c.pending) == 0 }

func (c *classic) protocolType() string { return c.kind }

func (c *classic) emptySince() time.Time { return time.UnixMilli(c.since) }

// describe tells what is known of the group; what the members have chosen and said only while that stands.
func (c *classic) describe(out *kmsg.DescribeGroupsResponseGroup) {
	out.State, out.ProtocolType = c.phase, c.kind
	if c.phase == stateStable {
		out.Protocol = c.protocol
	}
	for _, m := range c.sorted() {
		d := kmsg.NewDescribeGroupsResponseGroupMember()
		d.MemberID, d.InstanceID, d.ClientID, d.ClientHost = m.id, m.instance, m.clientID, m.host
		d.MemberAssignment = m.assignment
		if c.phase == stateStable {
			d.ProtocolMetadata = m.metadata(c.protocol)
		}
		out.Members = append(out.Members, d)
	}
}

// checkCommit says why somebody may not commit offsets.
func (c *classic) checkCommit(id string, instance *string, generation int32, txn bool) *kerr.Error {
	switch anonymous := generation < 0 && id == "" && instance == nil; {
	case generation < 0 && c.phase == stateEmpty:
		return nil
	case anonymous && txn: // a producer that knows of the group by its name alone
		return nil
	case anonymous:
		return kerr.UnknownMemberID
	}
	if _, e := c.find(id, instance); e != nil {
		return e
	}
	switch {
	case generation != c.generation:
		return kerr.IllegalGeneration
	case c.phase == stateCompleting && !txn:
		return kerr.RebalanceInProgress
	}
	return nil
}

// touch starts a member's session anew.
func (c *classic) touch(id string) {
	if m := c.members[id]; m != nil {
		c.startSession(m)
	}
}

// find finds a member by its id. An instance of that name has to be that member.
func (c *classic) find(id string, instance *string) (*member, *kerr.Error) {
	if instance != nil {
		switch m := c.static[*instance]; {
		case m == nil:
			return nil, kerr.UnknownMemberID
		case m.id != id:
			return nil, kerr.FencedInstanceID
		default:
			return m, nil
		}
	}
	if m := c.members[id]; m != nil {
		return m, nil
	}
	return nil, kerr.UnknownMemberID
}

// subscribed is what the members are subscribed to; known if they all say so in the way of consumers.
func (c *classic) subscribed() (topics map[string]bool, known bool) {
	if c.topics != nil {
		return c.topics, c.known
	}
	c.topics, c.known = make(map[string]bool), c.kind == typeConsumer
	for _, m := range c.members {
		if !c.known {
			break
		}
		c.known = addTopics(c.topics, m.metadata(c.protocol))
	}
	if !c.known {
		clear(c.topics)
	}
	return c.topics, c.known
}

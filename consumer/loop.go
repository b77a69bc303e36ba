package consumer

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/internal/ktag"
)

// Times of the loop.
const (
	longestWait = 30 * time.Second // of a heartbeat for news
	beatLimit   = 20 * time.Second // of a heartbeat, beyond its wait
	leaveLimit  = 5 * time.Second
	firstPause  = 20 * time.Millisecond
	lastPause   = time.Second
	nameTries   = 20
	// quickAnswer is how soon a heartbeat that was to wait comes back without news, to be followed by a pause.
	quickAnswer = 500 * time.Millisecond
)

// ownedTopic is what a member has of a topic.
type ownedTopic struct {
	id         [16]byte
	partitions []int32
}

// beat is one heartbeat.
type beat struct {
	req     *kmsg.ConsumerGroupHeartbeatRequest
	version int
	wait    time.Duration
}

// run joins, or takes over from another node, and speaks with the coordinator until the member is no more.
func (m *Member) run(from *described) {
	defer close(m.done)
	defer m.parent.forget(m)
	if from != nil {
		m.mu.Lock()
		m.epoch, m.claimed = from.epoch, from.owned
		m.mu.Unlock()
	}
	l := &loop{m: m, takeover: from != nil}
	for l.step() {
	}
}

// loop is what the loop of a member remembers between heartbeats. Only its goroutine touches it.
type loop struct {
	m        *Member
	takeover bool // the member is of another node, and the coordinator has not confirmed it yet
	joined   bool
	pause    time.Duration
	interval time.Duration // that the coordinator asks for
	names    map[[16]byte]string
}

// step is one heartbeat with what goes before and after it; false: the member has ended.
func (l *loop) step() bool {
	m := l.m
	m.settleRevoked(m.parent.life)
	local := m.parent.o.Local(m.group)
	m.mu.Lock()
	switch {
	case m.parent.life.Err() != nil && !m.cfg.Here, !local && l.joined:
		here := m.cfg.Here
		m.mu.Unlock()
		if here { // nobody takes it over
			l.leave()
		}
		m.finish(ErrMoved)
		return false
	case m.end == ErrFenced:
		m.mu.Unlock()
		return l.tell()
	case m.end != nil:
		m.mu.Unlock()
		m.finish(nil)
		return false
	case m.leaving, m.parent.life.Err() != nil, m.calls == 0 && !time.Now().Before(m.lease):
		m.leaving = true
		m.mu.Unlock()
		l.leave()
		m.finish(ErrUnknownMember)
		return false
	}
	b, err := m.beatLocked(l.takeover)
	if err != nil {
		m.mu.Unlock()
		m.finish(err)
		return false
	}
	ctx, cancel := context.WithTimeout(m.parent.life, beatLimit+b.wait)
	if b.wait > 0 {
		m.cancel = cancel
	}
	m.mu.Unlock()
	start := time.Now()
	resp, err := b.req.RequestWith(ctx, m.parent.o.Requests)
	cancelled := ctx.Err() != nil
	cancel()
	m.mu.Lock()
	m.cancel = nil
	m.mu.Unlock()
	if err != nil {
		return l.failed(err, cancelled)
	}
	return l.heard(b, resp, time.Since(start))
}

// tell keeps a member that was fenced for whom it is to be told, until its lease ends.
func (l *loop) tell() bool {
	m := l.m
	m.mu.Lock()
	left := time.Until(m.lease)
	over := m.calls == 0 && left <= 0 || m.end != ErrFenced || m.leaving
	changed := m.changed
	m.mu.Unlock()
	if over {
		m.finish(ErrUnknownMember)
		return false
	}
	t := time.NewTimer(max(left, firstPause))
	defer t.Stop()
	select {
	case <-t.C:
	case <-changed:
	case <-m.woken:
	case <-m.parent.life.Done():
		m.finish(ErrMoved)
		return false
	}
	return true
}

// beatLocked makes the next heartbeat. One that tells something new, or joins, does not wait for news.
func (m *Member) beatLocked(full bool) (*beat, error) {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch = m.group, m.id, m.epoch
	b := &beat{req: req, version: m.version}
	req.Topics = m.ownedLocked()
	if full || m.epoch == 0 || m.told < m.version {
		state, err := encodeState(m.stateLocked())
		if err != nil {
			return nil, err
		}
		ktag.SetMemberState(&req.UnknownTags, state)
		ktag.SetSessionTimeout(&req.UnknownTags, int32(m.cfg.Session.Milliseconds()))
		ktag.SetClient(&req.UnknownTags, m.cfg.ClientID, m.cfg.ClientHost)
		revocation := min(m.cfg.Lease, maxRevocation) + revocationSlack
		req.RebalanceTimeoutMillis = int32(revocation.Milliseconds())
		req.SubscribedTopicNames = append([]string{}, m.cfg.Topics...)
		req.SubscribedTopicRegex = kmsg.StringPtr(m.cfg.Pattern)
		if m.cfg.Pattern == "" && m.epoch == 0 {
			req.SubscribedTopicRegex = nil
		}
		if m.cfg.Rack != "" {
			req.RackID = &m.cfg.Rack
		}
		return b, nil
	}
	b.wait = min(longestWait, m.cfg.Session/2)
	if m.calls == 0 {
		b.wait = min(b.wait, max(time.Until(m.lease), time.Millisecond))
	}
	ktag.SetHeartbeatWait(&req.UnknownTags, int32(b.wait.Milliseconds()))
	return b, nil
}

// ownedLocked is what the member says that it has: all that it has not given up.
func (m *Member) ownedLocked() []kmsg.ConsumerGroupHeartbeatRequestTopic {
	byID := make(map[[16]byte][]int32)
	for _, of := range []map[client.TopicPartition]*part{m.parts, m.revoking} {
		for _, p := range of {
			if p.byGroup {
				byID[p.topicID] = append(byID[p.topicID], p.Partition)
			}
		}
	}
	for _, t := range m.claimed {
		byID[t.id] = append(byID[t.id], t.partitions...)
	}
	out := []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	for _, id := range slices.SortedFunc(maps.Keys(byID), func(a, b [16]byte) int { return slices.Compare(a[:], b[:]) }) {
		t := kmsg.NewConsumerGroupHeartbeatRequestTopic()
		t.TopicID, t.Partitions = id, slices.Compact(slices.Sorted(slices.Values(byID[id])))
		out = append(out, t)
	}
	return out
}

// failed goes on after a heartbeat without an answer.
func (l *loop) failed(err error, cancelled bool) bool {
	switch {
	case l.m.parent.life.Err() != nil || cancelled:
		return true
	case !l.joined:
		l.leave() // it may have joined
		l.m.finish(noAnswer("heartbeat of a member of group "+l.m.group, err))
		return false
	}
	l.rest(lastPause)
	return true
}

// rest waits a little longer each time, at most most, or until the loop is woken.
func (l *loop) rest(most time.Duration) {
	l.pause = min(max(2*l.pause, firstPause), max(most, firstPause))
	t := time.NewTimer(l.pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.m.woken:
	case <-l.m.parent.life.Done():
	}
}

// heard takes in what the coordinator answered.
func (l *loop) heard(b *beat, resp *kmsg.ConsumerGroupHeartbeatResponse, took time.Duration) bool {
	if e := kerr.TypedErrorForCode(resp.ErrorCode); e != nil {
		return l.refused(b, e, resp.ErrorMessage)
	}
	m := l.m
	var parts map[client.TopicPartition][16]byte
	if resp.Assignment != nil {
		parts = l.resolve(resp.Assignment.Topics)
	}
	m.mu.Lock()
	m.epoch = resp.MemberEpoch
	if b.version > m.told {
		m.told = b.version
	}
	if parts != nil {
		m.assignLocked(parts)
	}
	m.notifyLocked()
	m.mu.Unlock()
	l.joined, l.takeover = true, false
	m.signalJoined()
	if l.interval = time.Duration(resp.HeartbeatIntervalMillis) * time.Millisecond; parts != nil || b.wait == 0 {
		l.pause = 0
		return true
	}
	if took >= min(quickAnswer, b.wait/2) {
		l.pause = 0
		return true
	}
	select {
	case <-m.woken: // the heartbeat was cut short
		return true
	default:
	}
	l.rest(l.interval)
	return true
}

// refused goes on after a heartbeat that the coordinator refused.
func (l *loop) refused(b *beat, e *kerr.Error, message *string) bool {
	m := l.m
	text := e.Description
	if message != nil && *message != "" {
		text = *message
	}
	fault := client.Fault(e, "%s", text)
	switch e {
	case kerr.NotCoordinator, kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable, kerr.NetworkException,
		kerr.RequestTimedOut:
		if !l.joined {
			l.leave()
			m.finish(fault)
			return false
		}
		l.rest(lastPause)
		return true
	case kerr.UnknownMemberID, kerr.FencedMemberEpoch, kerr.GroupIDNotFound, kerr.UnreleasedInstanceID:
		return l.fenced(e, fault)
	}
	if !l.joined {
		m.finish(fault)
		return false
	}
	m.mu.Lock()
	if b.version > m.told {
		m.told, m.refused = b.version, fault
	}
	m.notifyLocked()
	m.mu.Unlock()
	l.rest(lastPause)
	return true
}

// fenced goes on after the coordinator said that the member is none, or another one.
func (l *loop) fenced(e *kerr.Error, fault error) bool {
	m := l.m
	switch {
	case l.takeover:
		m.mu.Lock()
		m.epoch = 0
		m.mu.Unlock()
		m.finish(ErrUnknownMember)
		return false
	case !l.joined && e == kerr.FencedMemberEpoch:
		m.finish(ErrTaken)
		return false
	case !l.joined:
		m.finish(fault)
		return false
	}
	m.parent.o.Logger.Info("a member of a group was fenced", "group", m.group, "member", m.id, "err", fault)
	if m.cfg.Rejoin {
		l.leave()
	}
	m.mu.Lock()
	m.dropLocked()
	m.claimed, m.assigned, m.since = nil, false, time.Now()
	if m.setManualLocked(m.manual); m.cfg.Rejoin {
		m.epoch = 0
	} else {
		m.end = ErrFenced
	}
	m.notifyLocked()
	m.mu.Unlock()
	return true
}

// leave says that the member leaves, whatever comes of it: else its session ends it.
func (l *loop) leave() {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch = l.m.group, l.m.id, -1
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.m.parent.life), leaveLimit)
	defer cancel()
	if _, err := req.RequestWith(ctx, l.m.parent.o.Requests); err != nil {
		l.m.parent.o.Logger.Debug("a member could not say that it leaves", "group", l.m.group, "member", l.m.id, "err", err)
	}
}

// resolve finds the names of assigned topics. One that is not found was deleted.
func (l *loop) resolve(topics []kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic) map[client.TopicPartition][16]byte {
	out := make(map[client.TopicPartition][16]byte)
	pause := firstPause
	for try := 0; ; try++ {
		missing := false
		for i := range topics {
			name := l.names[topics[i].TopicID]
			if name == "" {
				missing = true
				continue
			}
			for _, n := range topics[i].Partitions {
				out[client.TopicPartition{Topic: name, Partition: n}] = topics[i].TopicID
			}
		}
		if !missing || try == nameTries || l.m.parent.life.Err() != nil {
			return out
		}
		if try > 1 { // this node may learn of a topic a little later
			t := time.NewTimer(pause)
			select {
			case <-t.C:
			case <-l.m.parent.life.Done():
			}
			t.Stop()
		}
		l.learn(try > 0)
	}
}

// learn asks for the names of topics: of those that the member subscribes to, or of all.
func (l *loop) learn(all bool) {
	m, o := l.m, &l.m.parent.o
	ctx, cancel := context.WithTimeout(m.parent.life, beatLimit)
	defer cancel()
	if l.names == nil {
		l.names = make(map[[16]byte]string)
	}
	if topics, _ := m.Subscription(); !all {
		for _, name := range topics {
			if t, err := o.Client.Topic(ctx, name, client.Refuse); err == nil {
				l.names[t.ID] = name
			}
		}
		return
	}
	topics, err := o.Client.Topics(ctx)
	if err != nil {
		return
	}
	clear(l.names)
	for _, t := range topics {
		l.names[t.ID] = t.Name
	}
}

// assignLocked takes up an assignment.
func (m *Member) assignLocked(now map[client.TopicPartition][16]byte) {
	m.claimed, m.assigned = nil, true
	for tp, p := range m.parts {
		if id, ok := now[tp]; p.byGroup && (!ok || id != p.topicID) {
			delete(m.parts, tp)
			p.revoked = time.Now()
			m.revoking[tp] = p
		}
	}
	for tp, id := range now {
		switch p := m.revoking[tp]; {
		case m.parts[tp] != nil:
		case p != nil && p.topicID == id:
			delete(m.revoking, tp)
			m.parts[tp] = p
		default: // what is to be given up of a topic that was deleted is gone
			delete(m.revoking, tp)
			m.parts[tp] = m.newPartLocked(tp, id, true)
		}
	}
}

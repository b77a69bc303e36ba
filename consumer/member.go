package consumer

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"millrace/client"
)

// Member is one member of a group. Its methods are safe for concurrent use, and each renews the lease.
//
// Its loop (run) alone speaks with the coordinator about membership. Calls change what the coordinator is to know
// and wait until the loop has told it.
type Member struct {
	parent *Members
	group  string
	id     string
	joined chan struct{} // closed when the member has joined, or ended before that
	done   chan struct{} // closed when the loop has ended
	woken  chan struct{} // has an element when the loop is to look again
	turn   chan struct{} // one slot: the poll at work has it

	mu  sync.Mutex
	cfg Config // guarded by mu; all but Topics and Pattern never change
	end error  // guarded by mu: why the member is no more, nil while it is
	// manual are the partitions assigned by hand, nil without such an assignment. Guarded by mu.
	manual   []client.TopicPartition
	seeks    map[client.TopicPartition]int64 // guarded by mu: positions set and not committed since
	epoch    int32                           // guarded by mu: member epoch, 0 before it has joined
	claimed  []ownedTopic                    // guarded by mu: what a member that is taken over had
	version  int                             // guarded by mu: of what the coordinator is to know
	told     int                             // guarded by mu: <= version, what the coordinator knows
	refused  error                           // guarded by mu: why the coordinator did not take version told
	assigned bool                            // guarded by mu: an assignment has come
	since    time.Time                       // guarded by mu: when it began to wait for partitions

	parts    map[client.TopicPartition]*part // guarded by mu: may be read
	revoking map[client.TopicPartition]*part // guarded by mu: to be given up, and disjoint from parts

	rivals   int           // guarded by mu: polls that wait for the turn
	delivery int64         // guarded by mu: number of the last delivery
	commits  time.Time     // guarded by mu: when offsets were committed last
	changed  chan struct{} // guarded by mu: closed at the next change of parts, told or end
	cancel   func()        // guarded by mu: ends the heartbeat that waits, or nil
	stop     func()        // guarded by mu: ends the fetch that waits, or nil
	leaving  bool          // guarded by mu
	calls    int           // guarded by mu: under way
	lease    time.Time     // guarded by mu: when it ends, while there are no calls
}

// part is how it stands with one partition that the member has. It is guarded by the member's mu.
type part struct {
	client.TopicPartition
	topicID   [16]byte
	byGroup   bool  // assigned by the coordinator, not by hand
	position  int64 // of the next record to hand out, -1: not known
	committed int64 // what this member knows to be committed, -1: nothing
	lost      bool  // position was outside the log
	// handed says that records were handed out and the client has not come back since, in the delivery of that
	// number, from start on.
	handed   bool
	delivery int64
	start    int64
	// base is what the offsets of the next delivery come from: where the last one came to, or what was committed
	// since; -1: nothing was committed, unsure: that is not known. startBase is what it was at start.
	base, startBase int64
	committing      int       // commits under way
	later           time.Time // not to be fetched before: it could not be read
	revoked         time.Time // since when it is to be given up
}

// unsure is the base of a partition of which it is not known what is committed.
const unsure int64 = -2

func newMember(parent *Members, c Config) *Member {
	return &Member{
		parent: parent, group: c.Group, id: c.ID, cfg: c, joined: make(chan struct{}), done: make(chan struct{}),
		woken: make(chan struct{}, 1), turn: make(chan struct{}, 1), changed: make(chan struct{}),
		seeks: make(map[client.TopicPartition]int64), parts: make(map[client.TopicPartition]*part),
		revoking: make(map[client.TopicPartition]*part), version: 1,
		// Numbers of deliveries go on when another node takes the member over.
		delivery: parent.o.Now().UnixMicro(), lease: time.Now().Add(c.Lease), since: time.Now(),
	}
}

func (m *Member) key() memberKey { return memberKey{m.group, m.id} }

// ID is the member's id.
func (m *Member) ID() string { return m.id }

// Group is the id of the member's group.
func (m *Member) Group() string { return m.group }

// Config is what the member is now.
func (m *Member) Config() Config {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.cfg
	c.Topics = slices.Clone(c.Topics)
	return c
}

// await waits until the member has joined.
func (m *Member) await(ctx context.Context) (*Member, error) {
	select {
	case <-m.joined:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.end != nil && m.epoch == 0 {
		return nil, m.end // it never was
	}
	return m, nil
}

// finish ends the member. Calls fail with why from now on.
func (m *Member) finish(why error) {
	m.mu.Lock()
	if m.end == nil {
		m.end = why
	}
	m.dropLocked()
	m.notifyLocked()
	m.mu.Unlock()
	m.signalJoined()
}

func (m *Member) signalJoined() {
	select {
	case <-m.joined:
	default:
		close(m.joined) // the loop alone does this, or who did not start it
	}
}

// dropLocked forgets all partitions.
func (m *Member) dropLocked() {
	clear(m.parts)
	clear(m.revoking)
}

// notifyLocked wakes those who wait for a change.
func (m *Member) notifyLocked() {
	close(m.changed)
	m.changed = make(chan struct{})
	if m.stop != nil {
		m.stop()
	}
}

// wakeLocked makes the loop look again: its heartbeat waits no longer.
func (m *Member) wakeLocked() {
	if m.cancel != nil {
		m.cancel()
	}
	select {
	case m.woken <- struct{}{}:
	default:
	}
}

// enter begins a call.
func (m *Member) enter() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.goneLocked(); err != nil {
		return err
	}
	m.calls++
	return nil
}

// goneLocked says why the member is no more. That it was fenced is told once.
func (m *Member) goneLocked() error {
	switch {
	case m.end == ErrFenced:
		m.end = ErrUnknownMember
		m.parent.forget(m)
		m.wakeLocked()
		return ErrFenced
	case m.end != nil:
		return m.end
	case m.leaving:
		return ErrUnknownMember
	}
	return nil
}

// Touch renews the lease and does nothing else.
func (m *Member) Touch() error {
	if err := m.enter(); err != nil {
		return err
	}
	m.exit()
	return nil
}

// exit ends a call.
func (m *Member) exit() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls--
	m.lease = time.Now().Add(m.cfg.Lease)
}

// give ends the turn of a poll.
func (m *Member) give() { <-m.turn }

// Subscription is what the member is subscribed to.
func (m *Member) Subscription() (topics []string, pattern string) {
	c := m.Config()
	return c.Topics, c.Pattern
}

// Subscribe makes topics or a pattern the subscription of the member, in place of the one before.
func (m *Member) Subscribe(ctx context.Context, topics []string, pattern string) error {
	if err := checkSubscription(topics, pattern); err != nil {
		return err
	}
	topics = sorted(topics)
	return m.update(ctx, func() (func(), error) {
		oldTopics, oldPattern := m.cfg.Topics, m.cfg.Pattern
		if m.manual != nil || pattern != "" && oldPattern == "" && oldTopics != nil ||
			pattern == "" && len(topics) > 0 && oldPattern != "" {
			return nil, ErrSubscribedOtherwise
		}
		m.cfg.Topics, m.cfg.Pattern, m.since = topics, pattern, time.Now()
		m.cameLocked()
		return func() { m.cfg.Topics, m.cfg.Pattern = oldTopics, oldPattern }, nil
	})
}

// Unsubscribe ends the subscription, or the assignment by hand.
func (m *Member) Unsubscribe(ctx context.Context) error {
	return m.update(ctx, func() (func(), error) {
		m.cfg.Topics, m.cfg.Pattern = nil, ""
		m.cameLocked()
		m.setManualLocked(nil)
		clear(m.seeks)
		return func() {}, nil
	})
}

// Assign gives the member partitions by hand, in place of those it has; none end that.
func (m *Member) Assign(ctx context.Context, partitions []client.TopicPartition) error {
	if len(partitions) > MaxAssigned {
		return bad("at most %d partitions can be assigned by hand, not %d", MaxAssigned, len(partitions))
	}
	partitions = slices.Clone(partitions)
	slices.SortFunc(partitions, client.TopicPartition.Compare)
	partitions = slices.Compact(partitions)
	ids := make(map[string][16]byte)
	for _, p := range partitions {
		t, err := m.parent.o.Client.Topic(ctx, p.Topic, client.Refuse)
		if err == nil {
			err = t.Has(p.Partition)
		}
		if err != nil {
			return err
		}
		ids[p.Topic] = t.ID
	}
	return m.update(ctx, func() (func(), error) {
		if len(m.cfg.Topics) > 0 || m.cfg.Pattern != "" {
			return nil, ErrSubscribedOtherwise
		}
		old := m.manual
		m.cameLocked()
		m.setManualLocked(partitions)
		for _, p := range m.parts {
			p.topicID = ids[p.Topic]
		}
		return func() { m.setManualLocked(old) }, nil
	})
}

// setManualLocked makes an assignment by hand the member's. Places in partitions that it keeps stay.
func (m *Member) setManualLocked(partitions []client.TopicPartition) {
	if len(partitions) == 0 {
		partitions = nil
	}
	for tp, p := range m.parts {
		if !p.byGroup && !slices.Contains(partitions, tp) {
			delete(m.parts, tp)
			delete(m.seeks, tp)
		}
	}
	for _, tp := range partitions {
		if m.parts[tp] == nil {
			m.parts[tp] = m.newPartLocked(tp, [16]byte{}, false)
		}
	}
	m.manual = partitions
	m.notifyLocked()
}

func (m *Member) newPartLocked(tp client.TopicPartition, id [16]byte, byGroup bool) *part {
	p := &part{TopicPartition: tp, topicID: id, byGroup: byGroup, position: -1, committed: -1, base: unsure}
	if at, ok := m.seeks[tp]; ok {
		p.position = at
	}
	return p
}

// update changes what the coordinator is to know, and waits until it knows it. change is called with mu held; what it
// returns undoes the change when the coordinator refuses it.
func (m *Member) update(ctx context.Context, change func() (undo func(), err error)) error {
	if err := m.enter(); err != nil {
		return err
	}
	defer m.exit()
	m.mu.Lock()
	defer m.mu.Unlock()
	undo, err := change()
	if err != nil {
		return err
	}
	if _, err := encodeState(m.stateLocked()); err != nil {
		undo()
		return err
	}
	m.version++
	version := m.version
	m.wakeLocked()
	for m.told < version {
		changed := m.changed
		if err := m.goneLocked(); err != nil {
			return err
		}
		m.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		m.mu.Lock()
		if m.told < version && ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if err := m.refused; err != nil {
		m.refused = nil
		undo()
		m.version++
		m.wakeLocked()
		return err
	}
	return nil
}

// stateLocked is what the coordinator is to keep of the member.
func (m *Member) stateLocked() *state {
	s := &state{Config: m.cfg}
	for _, tp := range m.manual {
		s.Assigned = append(s.Assigned, place{Topic: tp.Topic, Partition: tp.Partition})
	}
	for _, tp := range slices.SortedFunc(maps.Keys(m.seeks), client.TopicPartition.Compare) {
		s.Seeks = append(s.Seeks, place{tp.Topic, tp.Partition, m.seeks[tp]})
	}
	return s
}

// restore makes the member what another node knew of it.
func (m *Member) restore(s *state) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range s.Seeks {
		m.seeks[client.TopicPartition{Topic: p.Topic, Partition: p.Partition}] = p.Offset
	}
	var manual []client.TopicPartition
	for _, p := range s.Assigned {
		manual = append(manual, client.TopicPartition{Topic: p.Topic, Partition: p.Partition})
	}
	m.setManualLocked(manual)
}

// Assignment is what the member may read, in order. It waits for the first assignment of a subscription.
func (m *Member) Assignment(ctx context.Context) ([]client.TopicPartition, error) {
	if err := m.enter(); err != nil {
		return nil, err
	}
	defer m.exit()
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.subscribedLocked() && !m.assigned && m.end == nil {
		changed := m.changed
		m.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		m.mu.Lock()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return slices.SortedFunc(maps.Keys(m.parts), client.TopicPartition.Compare), nil
}

// Assigned is what the member may read at the moment, in order.
func (m *Member) Assigned() []client.TopicPartition {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.SortedFunc(maps.Keys(m.parts), client.TopicPartition.Compare)
}

func (m *Member) subscribedLocked() bool { return len(m.cfg.Topics) > 0 || m.cfg.Pattern != "" }

// Leave takes the member out of its group. With AutoCommit what was handed out is committed before, but for a delivery
// that by ack has not come: the client is done with it.
func (m *Member) Leave(ctx context.Context, ack Ack) error {
	if err := m.enter(); err != nil {
		return err
	}
	err := m.came(ack)
	if err == nil && m.Config().AutoCommit {
		_ = m.commitHandedOut(ctx) // the group goes on from where it knows
	}
	m.exit()
	if err != nil {
		return err
	}
	return m.Abandon(ctx)
}

// desert makes the member leave its group, some time.
func (m *Member) desert() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leaving = true
	m.wakeLocked()
	m.notifyLocked()
}

// Abandon takes the member out of its group without committing anything.
func (m *Member) Abandon(ctx context.Context) error {
	m.desert()
	select {
	case <-m.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

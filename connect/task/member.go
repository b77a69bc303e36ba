package task

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/internal/ktag"
)

// Times of a member.
const (
	memberSession = 3 * time.Second  // the default of Options.Session
	rebalanceTime = 60 * time.Second // that a member has to give partitions up
	beatLimit     = 10 * time.Second // of a heartbeat, beyond its wait
	leaveLimit    = 2 * time.Second
	namePause     = 50 * time.Millisecond
	quickAnswer   = 200 * time.Millisecond
	beatPause     = 250 * time.Millisecond // after a heartbeat that brought nothing and did not wait
)

// member is the membership of a sink's task in its group, by the consumer protocol (KIP-848). Its loop alone speaks
// with the coordinator; the task looks at what it is to have, and says what it has let go of.
type member struct {
	client   *client.Client
	requests kmsg.Requestor
	log      *slog.Logger
	group    string
	draw     func() string // draws a member id
	name     string        // told to those who look at the group
	host     string
	topics   []string
	pattern  string
	mark     string        // of commits; of the task, not of the loop
	session  time.Duration // after which the group goes on without the member if it is not heard of
	woken    chan struct{} // has an element when the loop is to look again

	mu       sync.Mutex
	id       string                             // guarded by mu
	epoch    int32                              // guarded by mu: 0 while it is no member
	told     bool                               // guarded by mu: the coordinator knows the subscription
	target   map[client.TopicPartition][16]byte // guarded by mu: what it is to have, with the ids of the topics
	held     map[client.TopicPartition][16]byte // guarded by mu: what it has not let go of, which may be in target too
	lost     int                                // guarded by mu: how often the group went on without it
	beats    int                                // guarded by mu: heartbeats that were answered
	begun    int                                // guarded by mu: heartbeats that were sent
	fatal    error                              // guarded by mu: why it cannot be a member
	released bool                               // guarded by mu: the coordinator does not know yet what was let go of
	changed  chan struct{}                      // guarded by mu: closed at the next change of target, lost or fatal
	cancel   func()                             // guarded by mu: ends the heartbeat that waits, or nil

	names map[[16]byte]string // of the loop
	pause backoff             // of the loop
}

// view is how it stands with a member.
type view struct {
	target  map[client.TopicPartition][16]byte // not to be changed
	lost    int
	fatal   error
	changed <-chan struct{}
}

func (m *member) look() view {
	m.mu.Lock()
	defer m.mu.Unlock()
	return view{m.target, m.lost, m.fatal, m.changed}
}

// current is who the member is in commits.
func (m *member) current() (id string, epoch int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.id, m.epoch
}

func (m *member) notifyLocked() {
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *member) wakeLocked() {
	if m.cancel != nil {
		m.cancel()
	}
	select {
	case m.woken <- struct{}{}:
	default:
	}
}

// release lets go of partitions.
func (m *member) release(of []client.TopicPartition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, at := range of {
		delete(m.held, at)
	}
	m.released = true
	m.wakeLocked()
}

// hold takes hold of partitions: the group does not give them to others until they are released. False: the group has
// gone on without the member since it was looked at.
func (m *member) hold(of map[client.TopicPartition][16]byte, seen view) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost != seen.lost {
		return false
	}
	maps.Copy(m.held, of)
	return true
}

// confirm waits until the coordinator has answered a heartbeat that was sent after the call, or for a while.
func (m *member) confirm(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	m.mu.Lock()
	want := m.begun + 1
	m.released = true // so that the heartbeat does not wait
	m.wakeLocked()
	for m.beats < want && m.fatal == nil && ctx.Err() == nil {
		changed := m.changed
		m.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		m.mu.Lock()
	}
	m.mu.Unlock()
}

// run is a member until ctx ends; then it leaves.
func (m *member) run(ctx context.Context) {
	m.pause = backoff{first: firstPause, longest: longestPause}
	for ctx.Err() == nil {
		if !m.step(ctx) {
			break
		}
	}
	m.leave(ctx)
}

// step is one heartbeat; false: there will be no other.
func (m *member) step(ctx context.Context) bool {
	m.mu.Lock()
	req, wait := m.beatLocked()
	limited, cancel := context.WithTimeout(ctx, wait+beatLimit)
	if wait > 0 {
		m.cancel = cancel
	}
	m.begun++
	number := m.begun
	m.released = false
	m.mu.Unlock()
	start := time.Now()
	resp, err := req.RequestWith(limited, m.requests)
	cut := limited.Err() != nil
	cancel()
	m.mu.Lock()
	m.cancel = nil
	m.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil && cut && time.Since(start) < wait+beatLimit: // it was woken
		return true
	case err != nil:
		m.log.Debug("a heartbeat of a sink was not answered", "group", m.group, "err", err)
		m.unheard()
		m.rest(ctx, m.pause.delay())
		return true
	}
	if e := kerr.TypedErrorForCode(resp.ErrorCode); e != nil {
		return m.refused(ctx, e, resp.ErrorMessage)
	}
	m.pause.reset()
	var target map[client.TopicPartition][16]byte
	if resp.Assignment != nil {
		target = m.resolve(ctx, resp.Assignment.Topics)
	}
	m.mu.Lock()
	m.epoch, m.told = resp.MemberEpoch, true
	if target != nil {
		m.target = target
	}
	m.beats = number
	m.notifyLocked()
	m.mu.Unlock()
	if wait > 0 && target == nil && time.Since(start) < min(quickAnswer, wait/2) {
		m.rest(ctx, beatPause) // a coordinator that does not wait for news
	}
	return true
}

// beatLocked is the next heartbeat, and how long the coordinator may take to answer where there is nothing new.
func (m *member) beatLocked() (*kmsg.ConsumerGroupHeartbeatRequest, time.Duration) {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch = m.group, m.id, m.epoch
	req.Topics = m.ownedLocked()
	if m.told {
		if m.released {
			return req, 0
		}
		wait := m.session / 2
		ktag.SetHeartbeatWait(&req.UnknownTags, int32(wait.Milliseconds()))
		return req, wait
	}
	ktag.SetSessionTimeout(&req.UnknownTags, int32(m.session.Milliseconds()))
	ktag.SetClient(&req.UnknownTags, m.name, m.host)
	req.RebalanceTimeoutMillis = int32(rebalanceTime.Milliseconds())
	req.SubscribedTopicNames = append([]string{}, m.topics...)
	if m.pattern != "" {
		req.SubscribedTopicRegex = &m.pattern
	}
	return req, 0
}

// ownedLocked is what the member says that it has: what it was given and has not let go of.
func (m *member) ownedLocked() []kmsg.ConsumerGroupHeartbeatRequestTopic {
	byID := make(map[[16]byte][]int32)
	for _, of := range []map[client.TopicPartition][16]byte{m.target, m.held} {
		for at, id := range of {
			byID[id] = append(byID[id], at.Partition)
		}
	}
	out := []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	for _, id := range slices.SortedFunc(maps.Keys(byID), func(a, b [16]byte) int { return slices.Compare(a[:], b[:]) }) {
		t := kmsg.NewConsumerGroupHeartbeatRequestTopic()
		t.TopicID, t.Partitions = id, slices.Compact(slices.Sorted(slices.Values(byID[id])))
		out = append(out, t)
	}
	return out
}

// refused goes on after a heartbeat that the coordinator refused.
func (m *member) refused(ctx context.Context, e *kerr.Error, message *string) bool {
	text := e.Description
	if message != nil && *message != "" {
		text = *message
	}
	_, epoch := m.current()
	switch e {
	case kerr.UnknownMemberID, kerr.FencedMemberEpoch, kerr.GroupIDNotFound, kerr.UnreleasedInstanceID:
		if e == kerr.GroupIDNotFound && epoch == 0 { // it has members of the classic protocol
			break
		}
		m.log.Info("the group went on without a sink's task, which joins again", "group", m.group, "err", text)
		m.leave(ctx)
		m.lose()
		m.rest(ctx, m.pause.delay())
		return true
	case kerr.NotCoordinator, kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable, kerr.NetworkException,
		kerr.RequestTimedOut:
		m.rest(ctx, m.pause.delay())
		return true
	}
	if e.Retriable {
		m.rest(ctx, m.pause.delay())
		return true
	}
	m.mu.Lock()
	m.fatal = fmt.Errorf("group %s: %w: %s", m.group, e, text)
	m.notifyLocked()
	m.mu.Unlock()
	return false
}

// lose takes note that the group went on without the member, which joins again.
func (m *member) lose() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.id, m.epoch, m.told, m.target = m.draw(), 0, false, nil
	clear(m.held)
	m.lost++
	m.notifyLocked()
}

// unheard takes note of a heartbeat without an answer: the coordinator may not know what it said.
func (m *member) unheard() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.released = true
	if m.epoch == 0 {
		m.told = false
	}
}

func (m *member) rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-m.woken:
	case <-ctx.Done():
	}
}

// leave says that the member leaves, whatever comes of it: else its session ends it.
func (m *member) leave(ctx context.Context) {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	id, _ := m.current()
	req.Group, req.MemberID, req.MemberEpoch = m.group, id, -1
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveLimit)
	defer cancel()
	if _, err := req.RequestWith(ctx, m.requests); err != nil {
		m.log.Debug("a sink's task could not say that it leaves its group", "group", m.group, "err", err)
	}
}

// resolve finds the names of assigned topics. One that is not found after a while was deleted.
func (m *member) resolve(ctx context.Context, topics []kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic,
) map[client.TopicPartition][16]byte {
	out := make(map[client.TopicPartition][16]byte)
	for try := 0; ; try++ {
		missing := false
		for i := range topics {
			name := m.names[topics[i].TopicID]
			missing = missing || name == ""
			for _, n := range topics[i].Partitions {
				if name != "" {
					out[client.TopicPartition{Topic: name, Partition: n}] = topics[i].TopicID
				}
			}
		}
		if !missing || try == 10 || ctx.Err() != nil {
			return out
		}
		if try > 1 && sleep(ctx, namePause) != nil { // this node may learn of a topic a little later
			return out
		}
		m.learn(ctx)
	}
}

// learn asks for the names of all topics.
func (m *member) learn(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, beatLimit)
	defer cancel()
	topics, err := m.client.Topics(ctx)
	if err != nil {
		return
	}
	m.names = make(map[[16]byte]string, len(topics))
	for _, t := range topics {
		m.names[t.ID] = t.Name
	}
}

// errUnassigned says of a commit that the member does not have the partitions any more.
var errUnassigned = errors.New("the group went on without this task")

// commit commits offsets of partitions that the member has. What may pass is tried again as long as ctx lasts.
func (m *member) commit(ctx context.Context, offsets map[client.TopicPartition]int64) error {
	pause := backoff{first: firstPause, longest: longestPause}
	for {
		id, epoch := m.current()
		req := client.GroupCommit{Group: m.group, Member: id, Epoch: epoch}
		for _, at := range slices.SortedFunc(maps.Keys(offsets), client.TopicPartition.Compare) {
			req.Offsets = append(req.Offsets, client.CommittedOffset{
				TopicPartition: at, Offset: offsets[at], LeaderEpoch: -1, Metadata: m.mark,
			})
		}
		errs, err := m.client.CommitOffsets(ctx, req)
		for i := 0; err == nil && i < len(errs); i++ {
			if !errors.Is(errs[i], kerr.UnknownTopicOrPartition) { // of a topic that was deleted nothing is left
				err = errs[i]
			}
		}
		switch {
		case err == nil:
			return nil
		case isAny(err, kerr.UnknownMemberID, kerr.FencedMemberEpoch, kerr.GroupIDNotFound, kerr.IllegalGeneration):
			m.mu.Lock()
			m.wakeLocked()
			m.mu.Unlock()
			return fmt.Errorf("%w: %v", errUnassigned, err)
		case isAny(err, kerr.StaleMemberEpoch, kerr.RebalanceInProgress):
			m.mu.Lock()
			m.released = true
			m.wakeLocked()
			m.mu.Unlock()
		case errors.Is(err, kerr.OffsetMetadataTooLarge) && m.mark != "": // offsets count for more
			m.mark = ""
			continue
		case !transient(err):
			return err
		}
		if sleep(ctx, pause.delay()) != nil {
			return err
		}
	}
}

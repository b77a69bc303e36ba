package connect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The group of the workers is one of Kafka's classic protocol: all join, the leader divides the work, all sync to learn
// what theirs is. What they say of themselves when they join, and what they are told, is JSON.
const (
	groupType     = "connect"
	groupProtocol = "millrace"
)

// Versions of the messages: the last ones of the classic protocol.
const (
	joinVersion      = 9
	syncVersion      = 5
	heartbeatVersion = 4
	leaveVersion     = 5
	describeVersion  = 5
)

const (
	// firstPause and longestPause bound the wait before the group is asked again after a failure.
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second
	// leaveTimeout bounds how long a worker that stops tries to leave.
	leaveTimeout = 2 * time.Second
)

// claim is what a worker says of itself when it joins.
type claim struct {
	Node     int32  `json:"node"`
	WorkerID string `json:"worker_id"`
	Offset   int64  `json:"config_offset"` // up to which it has read the configs
	Owned    []held `json:"owned"`
}

// share is what a worker is told when it syncs.
type share struct {
	Leader  string   `json:"leader"`        // the worker id of the leader
	Offset  int64    `json:"config_offset"` // of the configs that were divided
	Run     []workID `json:"run"`
	Workers []peer   `json:"workers"` // all of them
}

// peer is a worker as the others see it.
type peer struct {
	Member   string `json:"member"`
	Node     int32  `json:"node"`
	WorkerID string `json:"worker_id"`
}

// tenure is a time in the group: from one assignment to the next, or to the end of the membership.
type tenure struct {
	share
	claimed    []held // by this worker, for it to be assigned
	generation int32
	leads      bool
}

// membership is a worker's place in the group. Its loop speaks with the coordinator, which the requestor finds; another
// one sends heartbeats all the while, and so knows when the worker must be taken for gone.
type membership struct {
	settings Settings
	requests kmsg.Requestor
	log      *slog.Logger
	rand     *rand.Rand // of the loop
	// claim says what the worker says of itself. Fresh: it was put out of the group, so that others may have what it ran.
	claim func(fresh bool) claim
	// divide divides the work, if the worker leads. It may wait.
	divide func(ctx context.Context, claims map[string]claim) map[string]share
	// joins is told when the worker begins to join, assigned of every new tenure, and lost of the end of one without a
	// next: nothing may run any more.
	joins    func()
	assigned func(tenure)
	lost     func(why error)

	woken chan struct{} // has an element when the worker is to join again

	mu         sync.Mutex
	session    time.Duration // guarded by mu
	id         string        // guarded by mu: the member id, "" without one
	generation int32         // guarded by mu: -1 before the first
	heard      time.Time     // guarded by mu: when the coordinator certainly took it for a member last
	holding    bool          // guarded by mu: there was an assignment, and no loss since
	joining    bool          // guarded by mu: a join or sync is under way
	since      time.Time     // guarded by mu: when it began
	abort      func()        // guarded by mu: ends it
	expelled   bool          // guarded by mu: put out of the group, and not assigned anything since
}

func newMembership(s Settings, requests kmsg.Requestor, log *slog.Logger, r *rand.Rand) *membership {
	return &membership{
		settings: s, requests: requests, log: log, rand: r, woken: make(chan struct{}, 1), generation: -1,
		session: s.SessionTimeout,
	}
}

// run is a member of the group until ctx ends, and leaves it then unless leave says no.
func (m *membership) run(ctx context.Context, leave func() bool) {
	var beating sync.WaitGroup
	beats, stop := context.WithCancel(ctx)
	beating.Go(func() { m.beat(beats) })
	pause := firstPause
	for ctx.Err() == nil {
		again, err := m.join(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			m.log.Debug("the group of workers is asked again", "err", err)
			wait(ctx, pause/2+time.Duration(m.rand.Int64N(int64(pause))))
			pause = min(2*pause, longestPause)
		case again:
			wait(ctx, firstPause/5)
		default:
			pause = firstPause
			select {
			case <-m.woken:
			case <-ctx.Done():
			}
		}
	}
	stop()
	beating.Wait()
	if leave() {
		m.leave()
	}
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// rejoin has the worker join again.
func (m *membership) rejoin() {
	select {
	case m.woken <- struct{}{}:
	default:
	}
}

// join joins and syncs once. It says whether to do so again at once.
func (m *membership) join(ctx context.Context) (again bool, err error) {
	select {
	case <-m.woken: // what woke the loop is part of this join
	default:
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m.setJoining(true, cancel)
	m.joins()
	defer m.setJoining(false, nil)
	joined, claimed, err := m.sendJoin(ctx)
	if err != nil || joined == nil {
		return err == nil, err
	}
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version = syncVersion
	req.Group, req.Generation, req.MemberID = m.settings.GroupID, joined.Generation, joined.MemberID
	kind, protocol := groupType, groupProtocol
	req.ProtocolType, req.Protocol = &kind, &protocol
	leads := joined.LeaderID == joined.MemberID
	if leads {
		if req.GroupAssignment, err = m.divideAmong(ctx, joined.Members); err != nil {
			return false, err
		}
	}
	sent := time.Now()
	short, cancel := context.WithTimeout(ctx, m.settings.RebalanceTimeout)
	defer cancel()
	resp, err := req.RequestWith(short, m.requests)
	if err != nil {
		return false, fmt.Errorf("sync: %w", err)
	}
	switch e := kerr.ErrorForCode(resp.ErrorCode); {
	case errors.Is(e, kerr.RebalanceInProgress), errors.Is(e, kerr.IllegalGeneration):
		return true, nil
	case errors.Is(e, kerr.UnknownMemberID):
		m.expel(e)
		return true, nil
	case e != nil:
		return false, fmt.Errorf("sync: %w", e)
	}
	t := tenure{claimed: claimed, generation: joined.Generation, leads: leads}
	if err := json.Unmarshal(resp.MemberAssignment, &t.share); err != nil {
		return false, fmt.Errorf("what this worker was assigned cannot be read: %w", err)
	}
	if m.begin(sent) {
		m.assigned(t)
	}
	return false, nil
}

// sendJoin joins, and says with what claim. Without an answer or an error it is to be done once more.
func (m *membership) sendJoin(ctx context.Context) (resp *kmsg.JoinGroupResponse, claimed []held, err error) {
	m.mu.Lock()
	id, expelled, session := m.id, m.expelled, m.session
	m.mu.Unlock()
	c := m.claim(expelled)
	text, err := json.Marshal(c)
	if err != nil {
		return nil, nil, err
	}
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version = joinVersion
	req.Group, req.MemberID, req.ProtocolType = m.settings.GroupID, id, groupType
	req.SessionTimeoutMillis = int32(session.Milliseconds())
	req.RebalanceTimeoutMillis = int32(m.settings.RebalanceTimeout.Milliseconds())
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = groupProtocol, text
	req.Protocols = append(req.Protocols, p)
	long, cancel := context.WithTimeout(ctx, m.settings.RebalanceTimeout+longestPause)
	defer cancel()
	resp, err = req.RequestWith(long, m.requests)
	if err != nil {
		return nil, nil, fmt.Errorf("join: %w", err)
	}
	switch e := kerr.ErrorForCode(resp.ErrorCode); {
	case errors.Is(e, kerr.MemberIDRequired):
		m.mu.Lock()
		m.id = resp.MemberID
		m.mu.Unlock()
		return nil, nil, nil
	case errors.Is(e, kerr.UnknownMemberID):
		m.expel(e)
		return nil, nil, nil
	case errors.Is(e, kerr.RebalanceInProgress):
		return nil, nil, nil
	case errors.Is(e, kerr.InvalidSessionTimeout):
		if m.raiseSession() {
			return nil, nil, nil
		}
		return nil, nil, fmt.Errorf("join: %w", e)
	case e != nil:
		return nil, nil, fmt.Errorf("join: %w", e)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.id, m.generation, m.heard = resp.MemberID, resp.Generation, time.Now()
	return resp, c.Owned, nil
}

// foreignSession is the least session time that Kafka takes as it is set up.
const foreignSession = 6 * time.Second

// raiseSession makes do with a cluster that does not allow sessions as short as this worker would have them.
func (m *membership) raiseSession() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.session >= foreignSession {
		return false
	}
	m.session = foreignSession
	return true
}

// divideAmong divides the work among those who have joined. A worker whose claim cannot be read is given nothing.
func (m *membership) divideAmong(
	ctx context.Context, members []kmsg.JoinGroupResponseMember,
) (out []kmsg.SyncGroupRequestGroupAssignment, err error) {
	claims := make(map[string]claim, len(members))
	for i := range members {
		var c claim
		if err := json.Unmarshal(members[i].ProtocolMetadata, &c); err != nil {
			m.log.Warn("what a worker says of itself cannot be read", "member", members[i].MemberID, "err", err)
			continue
		}
		claims[members[i].MemberID] = c
	}
	for id, s := range m.divide(ctx, claims) {
		a := kmsg.NewSyncGroupRequestGroupAssignment()
		a.MemberID = id
		if a.MemberAssignment, err = json.Marshal(s); err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b kmsg.SyncGroupRequestGroupAssignment) int {
		return slices.Compare([]byte(a.MemberID), []byte(b.MemberID))
	})
	return out, nil
}

func (m *membership) setJoining(joining bool, abort func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.joining, m.since, m.abort = joining, time.Now(), abort
}

// begin begins a tenure; false if the membership ended meanwhile.
func (m *membership) begin(sent time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.id == "" {
		return false
	}
	if sent.After(m.heard) {
		m.heard = sent
	}
	if time.Since(m.heard) > m.session {
		m.rejoin() // the answer lay around for too long: somebody may have been assigned the same since
		return false
	}
	m.holding, m.expelled = true, false
	return true
}

// expel notes that the coordinator does not know the worker any more.
func (m *membership) expel(why error) {
	m.mu.Lock()
	m.id, m.generation, m.expelled = "", -1, true
	m.mu.Unlock()
	m.lose(why)
}

// lose ends the tenure, if there is one.
func (m *membership) lose(why error) {
	m.mu.Lock()
	held := m.holding
	m.holding = false
	m.mu.Unlock()
	if held {
		m.lost(why)
	}
	m.rejoin()
}

// leave takes the worker out of the group, so that nobody waits for it.
func (m *membership) leave() {
	m.mu.Lock()
	id := m.id
	m.id = ""
	m.mu.Unlock()
	if id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	if err := m.remove(ctx, id); err != nil {
		m.log.Warn("the worker could not leave its group, which notices by the end of the session", "err", err)
		return
	}
	m.awaitSuccession(ctx)
}

// remove takes a member out of the group. One that is not in it is as good.
func (m *membership) remove(ctx context.Context, id string) error {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Version = leaveVersion
	req.Group, req.MemberID = m.settings.GroupID, id
	member := kmsg.NewLeaveGroupRequestMember()
	member.MemberID = id
	req.Members = append(req.Members, member)
	resp, err := req.RequestWith(ctx, m.requests)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}

// awaitSuccession waits until the others share what the worker had. Only then does a coordinator know that it has left
// who takes over from this one: a group is in its log as it was when it was stable last.
func (m *membership) awaitSuccession(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*m.settings.HeartbeatInterval)
	defer cancel()
	for ctx.Err() == nil {
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Version = describeVersion
		req.Groups = []string{m.settings.GroupID}
		resp, err := req.RequestWith(ctx, m.requests)
		if err != nil || len(resp.Groups) != 1 || resp.Groups[0].ErrorCode != 0 {
			return
		}
		switch resp.Groups[0].State {
		case "PreparingRebalance", "CompletingRebalance":
			wait(ctx, firstPause/2)
		default:
			return
		}
	}
}

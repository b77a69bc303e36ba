package connect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// errSilence ends a tenure of which the coordinator has not said for the session time that it goes on: others may have
// been given the work.
var errSilence = errors.New("the coordinator of the group of workers was not heard for the session time")

// errNotMember says that a worker is, for all it knows, no member of its group.
var errNotMember = errors.New("the worker is no member of its group")

// beat sends heartbeats until ctx ends, also while a join is under way, and ends the tenure when none is answered for
// the session time. One that hangs is given up when the session is over.
func (m *membership) beat(ctx context.Context) {
	tick := time.NewTicker(m.settings.HeartbeatInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		m.mu.Lock()
		left, session, holding := m.session-time.Since(m.heard), m.session, m.holding
		if m.joining && m.generation >= 0 && left <= 0 && time.Since(m.since) > session {
			m.abort() // whoever was asked to be joined is not there any more
		}
		m.mu.Unlock()
		switch {
		case holding && left <= 0:
			m.lose(errSilence)
		case holding:
			m.beatOnce(ctx, min(left, session/3))
		default:
			m.beatOnce(ctx, session/3) // so that a session that it joins with does not end
		}
	}
}

// beatOnce sends one heartbeat.
func (m *membership) beatOnce(ctx context.Context, timeout time.Duration) {
	m.mu.Lock()
	id, generation := m.id, m.generation
	m.mu.Unlock()
	if id == "" || generation < 0 {
		return
	}
	sent := time.Now()
	answer, err := m.heartbeat(ctx, id, generation, timeout)
	if err != nil {
		return
	}
	m.mu.Lock()
	current := m.id == id && m.generation == generation
	joining := m.joining
	if current && (answer == nil || errors.Is(answer, kerr.RebalanceInProgress)) && sent.After(m.heard) {
		m.heard = sent
	}
	m.mu.Unlock()
	switch {
	case !current: // of a tenure that is over
	case errors.Is(answer, kerr.UnknownMemberID) && !joining:
		m.expel(answer)
	case errors.Is(answer, kerr.RebalanceInProgress) && !joining, errors.Is(answer, kerr.IllegalGeneration) && !joining:
		m.rejoin()
	}
}

// heartbeat asks the coordinator about a tenure: answer is what it says, err that it did not answer.
func (m *membership) heartbeat(
	ctx context.Context, id string, generation int32, timeout time.Duration,
) (answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version = heartbeatVersion
	req.Group, req.MemberID, req.Generation = m.settings.GroupID, id, generation
	resp, err := req.RequestWith(ctx, m.requests)
	if err != nil {
		return nil, err
	}
	switch answer = kerr.ErrorForCode(resp.ErrorCode); {
	case errors.Is(answer, kerr.CoordinatorNotAvailable), errors.Is(answer, kerr.CoordinatorLoadInProgress),
		errors.Is(answer, kerr.NotCoordinator):
		return nil, answer
	}
	return answer, nil
}

// verify asks the coordinator whether the worker is in the group still, so that what it was assigned is its own. An
// assignment that is being made anew does not take anything away before this worker has let go of it.
func (m *membership) verify(ctx context.Context) error {
	for {
		m.mu.Lock()
		id, generation, holding, session := m.id, m.generation, m.holding, m.session
		m.mu.Unlock()
		if !holding {
			return errNotMember
		}
		answer, err := m.heartbeat(ctx, id, generation, session)
		if err != nil {
			return fmt.Errorf("ask whether this worker is a member of its group: %w", err)
		}
		m.mu.Lock()
		changed := m.generation != generation
		m.mu.Unlock()
		switch {
		case answer == nil, errors.Is(answer, kerr.RebalanceInProgress):
			return nil
		case errors.Is(answer, kerr.UnknownMemberID):
			return errNotMember
		case errors.Is(answer, kerr.IllegalGeneration):
			if !changed { // a join is under way, and its answer as well
				wait(ctx, firstPause)
			}
		default:
			return fmt.Errorf("ask whether this worker is a member of its group: %w", answer)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

package quorum

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"
)

// Member is a node that gets the metadata log, and has a say in it if it is a voter.
type Member struct {
	ID      int32
	Address string // base URL, "" if it never had one
	Voter   bool
	Leader  bool
}

// The reasons why members are not changed.
var (
	ErrNotMember = errors.New("the node is no member of the metadata quorum")
	// ErrRefused means that the change would leave a quorum that cannot be, one without a voter for example.
	ErrRefused = errors.New("this change of the metadata quorum is not possible")
)

// membershipTimeout bounds how long a change waits for the one before it.
const membershipTimeout = 30 * time.Second

// servers are the members as raft has them. The list is the caller's own: raft shares what it gives.
func (q *Raft) servers() []raft.Server {
	f := q.raft.GetConfiguration()
	if f.Error() != nil { // it has no reason to fail
		return nil
	}
	return slices.Clone(f.Configuration().Servers)
}

// Members lists the members as far as this node knows, by the order in which they came.
func (q *Raft) Members() ([]Member, error) {
	f := q.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return nil, err
	}
	leader := q.Leader()
	var all []Member
	for _, s := range f.Configuration().Servers {
		m := Member{ID: nodeID(s.ID), Address: baseURL(s.Address), Voter: s.Suffrage == raft.Voter}
		m.Leader = m.ID == leader
		all = append(all, m)
	}
	return all, nil
}

// member looks a member up.
func (q *Raft) member(id int32) (raft.Server, error) {
	for _, s := range q.servers() {
		if s.ID == serverID(id) {
			return s, nil
		}
	}
	return raft.Server{}, fmt.Errorf("%w: node %d", ErrNotMember, id)
}

// changeable looks a member up as the leader, whose list is the newest: another node would call one that was added a
// moment ago unknown.
func (q *Raft) changeable(id int32) (raft.Server, error) {
	if err := q.usable(); err != nil {
		return raft.Server{}, err
	}
	return q.member(id)
}

// AddNonvoter makes a node a member that only listens. Of one that is a member already it sets the address.
func (q *Raft) AddNonvoter(ctx context.Context, id int32, address string) error {
	if address == "" {
		return fmt.Errorf("%w: node %d needs an address", ErrRefused, id)
	}
	if err := q.change(ctx, func() raft.Future { return q.setOwnAddress() }); err != nil {
		return err
	}
	if s, err := q.member(id); err == nil && s.Address == raft.ServerAddress(address) {
		return q.usable()
	}
	return q.change(ctx, func() raft.Future {
		return q.raft.AddNonvoter(serverID(id), raft.ServerAddress(address), 0, membershipTimeout)
	})
}

// Unplace takes a member's address away, since another node is there now. Its node tells the new one when it starts.
func (q *Raft) Unplace(ctx context.Context, id int32) error {
	s, err := q.changeable(id)
	if err != nil {
		return err
	}
	return q.change(ctx, func() raft.Future {
		return q.raft.AddNonvoter(s.ID, raft.ServerAddress(s.ID), 0, membershipTimeout)
	})
}

// Promote gives a member a vote. It had better have caught up: until it has, it counts for the majority and does not
// contribute to it.
func (q *Raft) Promote(ctx context.Context, id int32) error {
	s, err := q.changeable(id)
	if err != nil || s.Suffrage == raft.Voter {
		return err
	}
	err = q.change(ctx, func() raft.Future { return q.raft.AddVoter(s.ID, s.Address, 0, membershipTimeout) })
	if err == nil {
		q.warnOfEvenNumber()
	}
	return err
}

// Demote takes a member's vote away.
func (q *Raft) Demote(ctx context.Context, id int32) error {
	s, err := q.changeable(id)
	if err != nil || s.Suffrage != raft.Voter {
		return err
	}
	err = q.change(ctx, func() raft.Future { return q.raft.DemoteVoter(s.ID, 0, membershipTimeout) })
	if err == nil {
		q.warnOfEvenNumber()
	}
	return err
}

// Remove takes a node out of the quorum. It goes on with the metadata it has, and hears of nothing more.
func (q *Raft) Remove(ctx context.Context, id int32) error {
	s, err := q.changeable(id)
	if err != nil {
		return err
	}
	err = q.change(ctx, func() raft.Future { return q.raft.RemoveServer(s.ID, 0, membershipTimeout) })
	if err == nil && s.Suffrage == raft.Voter {
		q.warnOfEvenNumber()
	}
	return err
}

// Transfer hands the leadership to a voter, or to the one that is the least behind if id is -1.
func (q *Raft) Transfer(ctx context.Context, id int32) error {
	if id < 0 {
		return q.change(ctx, q.raft.LeadershipTransfer)
	}
	s, err := q.changeable(id)
	switch {
	case err != nil:
		return err
	case s.Suffrage != raft.Voter:
		return fmt.Errorf("%w: node %d is no voter", ErrRefused, id)
	case id == q.config.NodeID:
		return nil
	}
	return q.change(ctx, func() raft.Future { return q.raft.LeadershipTransferToServer(s.ID, s.Address) })
}

// change has the leader do something to the members.
func (q *Raft) change(ctx context.Context, do func() raft.Future) error {
	if err := q.usable(); err != nil {
		return err
	}
	select {
	case q.slots <- struct{}{}:
	default:
		return ErrBusy
	}
	done := make(chan error, 1)
	if !q.start(func() {
		done <- q.endable(do()).Error()
		<-q.slots
	}) {
		<-q.slots
		return ErrClosed
	}
	select {
	case err := <-done:
		return q.changeError(err)
	case <-q.stores.log.offline:
		return q.stores.log.failure()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// endable has a future fail when raft has ended, at the latest. Raft forgets that for the transfer of leadership: one
// that lies in its queue when it ends is never answered, and Close would wait for it.
func (q *Raft) endable(f raft.Future) raft.Future {
	v := reflect.ValueOf(f)
	if v.Kind() != reflect.Pointer {
		return f // it is answered already
	}
	if ends := v.Elem().FieldByName("ShutdownCh"); ends.IsValid() && ends.CanSet() && ends.IsNil() {
		ends.Set(reflect.ValueOf(q.ended))
	}
	return f
}

func (q *Raft) changeError(err error) error {
	failed := q.stores.log.failure()
	switch {
	case err == nil:
		return nil
	case failed != nil:
		return failed
	case notProposed(err):
		return ErrNotLeader
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return fmt.Errorf("%w: the change of members before this one is not agreed on yet", ErrBusy)
	case errors.Is(err, raft.ErrRaftShutdown), errors.Is(err, raft.ErrLeadershipLost), mayTransfer(err):
		return fmt.Errorf("change of members with unknown outcome: %w", err)
	default:
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
}

// mayTransfer tells the errors of raft after which a transfer may happen all the same: the message may be on its way.
func mayTransfer(err error) bool {
	text := err.Error()
	return strings.HasPrefix(text, "leadership transfer timeout") ||
		strings.HasPrefix(text, "failed to make TimeoutNow RPC")
}

// warnOfEvenNumber tells that an even number of voters survives no more than one voter less.
func (q *Raft) warnOfEvenNumber() {
	voters := 0
	for _, s := range q.servers() {
		if s.Suffrage == raft.Voter {
			voters++
		}
	}
	if voters%2 == 0 {
		q.config.Logger.Warn("the metadata quorum has an even number of voters: it survives the loss of no more of them "+
			"than with one voter less", "voters", voters)
	}
}

// correctAddress sets the own address if there are others who need to know it.
func (q *Raft) correctAddress() {
	if len(q.servers()) < 2 {
		return
	}
	q.start(func() {
		if err := q.setOwnAddress().Error(); err != nil {
			q.config.Logger.Warn("the other members do not learn the address of this node", "err", err)
		}
	})
}

// setOwnAddress sets the address of this node where the members have another one.
func (q *Raft) setOwnAddress() raft.Future {
	self, err := q.member(q.config.NodeID)
	if err != nil || q.config.Address == "" || self.Address == raft.ServerAddress(q.config.Address) {
		return nothing{}
	}
	return q.raft.AddNonvoter(self.ID, raft.ServerAddress(q.config.Address), 0, membershipTimeout)
}

// nothing is the future of what needs not be done.
type nothing struct{}

// Error implements raft.Future.
func (nothing) Error() error { return nil }

package simtest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/server/servertest/history"
)

// member is a member of a group that reads the list topic, by one of Kafka's two protocols.
type member struct {
	*client
	group    string
	protocol string
	lives    int
	id       string
	epoch    int32 // or generation; 0, or -1 in the classic protocol: it is to join
	beaten   time.Duration
	why      error // it did not join or learn something last
	assigned []history.Partition
	session  string              // of the history, since it joined
	told     *history.Membership // what the history knows of the assignment
}

func newMember(c *client, group, protocol string) *member {
	m := &member{client: c, group: group, protocol: protocol}
	m.forget()
	return m
}

// forget has the member begin anew, as another one.
func (m *member) forget() {
	m.lives++
	m.epoch, m.assigned, m.beaten = 0, nil, 0
	m.session = fmt.Sprintf("%s.%d", m.name, m.lives)
	m.id = m.session
	if m.protocol == history.Classic {
		m.id, m.epoch = "", -1
	}
}

// joined says whether the member has taken part in the group.
func (m *member) joined() bool { return m.epoch > 0 }

// beatEvery is how often a member is heard of.
func (m *member) beatEvery() time.Duration { return m.s.plan.exact.session / 5 }

// keep keeps the member in the group: it joins, or says that it is alive, if it is time to. It says whether the member
// is in.
func (m *member) keep() bool {
	if m.joined() && m.s.h.Now() < m.beaten+m.beatEvery() {
		return true
	}
	began := m.s.h.Now()
	var err error
	switch {
	case m.protocol == history.Consumer:
		err = m.heartbeat()
	case m.joined():
		if err = m.stillIn(); errors.Is(err, kerr.RebalanceInProgress) {
			err = m.join()
		}
	default:
		err = m.join()
	}
	m.why = err
	switch {
	case err == nil:
		m.beaten = began
	case m.isOut(err):
		m.forget()
	}
	return m.joined()
}

// isOut says of an error that the group goes on without the member.
func (m *member) isOut(err error) bool {
	for _, e := range []error{
		kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.FencedMemberEpoch, kerr.StaleMemberEpoch,
		kerr.GroupIDNotFound, kerr.InconsistentGroupProtocol, kerr.UnreleasedInstanceID, kerr.FencedInstanceID,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// tell takes into the history what the member has been told.
func (m *member) tell(invoke time.Duration) {
	m.told = &history.Membership{
		Group: m.group, Member: m.id, Epoch: m.epoch, Protocol: m.protocol, Assigned: slices.Clone(m.assigned),
	}
	m.s.h.Add(&history.Op{
		Kind: history.Assign, Client: m.name, Session: m.session, Invoke: invoke, Return: m.s.h.Now(), Outcome: history.OK,
		Group: m.told,
	})
}

// heartbeat is the whole of the consumer protocol.
func (m *member) heartbeat() error {
	r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	r.Group, r.MemberID, r.MemberEpoch, r.RebalanceTimeoutMillis = m.group, m.id, m.epoch, 5000
	r.SubscribedTopicNames = []string{listTopic}
	r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	ktag.SetSessionTimeout(&r.UnknownTags, int32(m.s.plan.exact.session.Milliseconds()))
	if len(m.assigned) > 0 {
		t := kmsg.NewConsumerGroupHeartbeatRequestTopic()
		t.TopicID = m.s.idOf(listTopic)
		for _, p := range m.assigned {
			t.Partitions = append(t.Partitions, p.Number)
		}
		r.Topics = append(r.Topics, t)
	}
	invoke := m.s.h.Now()
	resp, err := ask[*kmsg.ConsumerGroupHeartbeatResponse](m.client, m.s.plan.patience, r)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	if m.epoch = resp.MemberEpoch; resp.Assignment != nil {
		m.assigned = nil
		for _, t := range resp.Assignment.Topics {
			for _, number := range t.Partitions {
				m.assigned = append(m.assigned, history.Partition{Topic: listTopic, Number: number})
			}
		}
	}
	m.tell(invoke)
	return nil
}

// join takes part in the next generation of a classic group.
func (m *member) join() error {
	m.assigned = nil // what it had, others may have next
	r := kmsg.NewPtrJoinGroupRequest()
	r.Group, r.MemberID, r.ProtocolType = m.group, m.id, "consumer"
	r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = int32(m.s.plan.exact.session.Milliseconds()), 5000
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Topics = []string{listTopic}
	r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "robin", Metadata: meta.AppendTo(nil)}}
	resp, err := ask[*kmsg.JoinGroupResponse](m.client, 12*time.Second, r)
	if err != nil {
		return err
	}
	switch err := kerr.ErrorForCode(resp.ErrorCode); {
	case errors.Is(err, kerr.MemberIDRequired):
		m.id = resp.MemberID
		return err
	case err != nil:
		return err
	}
	m.id, m.epoch = resp.MemberID, resp.Generation
	return m.sync(resp)
}

// sync hands out partitions, if the member leads its generation, and learns which it has.
func (m *member) sync(joined *kmsg.JoinGroupResponse) error {
	invoke := m.s.h.Now()
	r := kmsg.NewPtrSyncGroupRequest()
	r.Group, r.MemberID, r.Generation = m.group, m.id, m.epoch
	if joined.LeaderID == m.id {
		for i := range joined.Members {
			a := kmsg.NewConsumerMemberAssignment()
			t := kmsg.NewConsumerMemberAssignmentTopic()
			t.Topic = listTopic
			for number := i; number < m.s.partitionsOf(listTopic); number += len(joined.Members) {
				t.Partitions = append(t.Partitions, int32(number))
			}
			a.Topics = append(a.Topics, t)
			ra := kmsg.NewSyncGroupRequestGroupAssignment()
			ra.MemberID, ra.MemberAssignment = joined.Members[i].MemberID, a.AppendTo(nil)
			r.GroupAssignment = append(r.GroupAssignment, ra)
		}
	}
	resp, err := ask[*kmsg.SyncGroupResponse](m.client, 12*time.Second, r)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	var a kmsg.ConsumerMemberAssignment
	if err == nil && len(resp.MemberAssignment) > 0 {
		err = a.ReadFrom(resp.MemberAssignment)
	}
	if err != nil {
		m.epoch = -1 // it joins again, under its id
		return err
	}
	for _, t := range a.Topics {
		for _, number := range t.Partitions {
			m.assigned = append(m.assigned, history.Partition{Topic: t.Topic, Number: number})
		}
	}
	m.tell(invoke)
	return nil
}

// stillIn is a heartbeat of the classic protocol.
func (m *member) stillIn() error {
	r := kmsg.NewPtrHeartbeatRequest()
	r.Group, r.MemberID, r.Generation = m.group, m.id, m.epoch
	resp, err := ask[*kmsg.HeartbeatResponse](m.client, m.s.plan.patience, r)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}

// depart leaves the group in order.
func (m *member) depart() {
	if !m.joined() {
		return
	}
	if m.protocol == history.Consumer {
		r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		r.Group, r.MemberID, r.MemberEpoch = m.group, m.id, -1
		_, _ = ask[*kmsg.ConsumerGroupHeartbeatResponse](m.client, m.s.plan.patience, r) // else its session ends
	} else {
		r := kmsg.NewPtrLeaveGroupRequest()
		r.Group = m.group
		one := kmsg.NewLeaveGroupRequestMember()
		one.MemberID = m.id
		r.Members = append(r.Members, one)
		_, _ = ask[*kmsg.LeaveGroupResponse](m.client, m.s.plan.patience, r)
	}
	m.forget()
}

// committed asks where the group has come to in a partition, 0 if nowhere.
func (m *member) committed(p history.Partition) (offset int64, ok bool) {
	r := kmsg.NewPtrOffsetFetchRequest()
	r.RequireStable = true
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = m.group
	t := kmsg.NewOffsetFetchRequestGroupTopic()
	t.Topic, t.Partitions = p.Topic, []int32{p.Number}
	g.Topics = append(g.Topics, t)
	r.Groups = append(r.Groups, g)
	o := &history.Op{
		Kind: history.Committed, Client: m.name, Session: m.session, Invoke: m.s.h.Now(), Partition: p,
		Group: &history.Membership{Group: m.group, Offset: -1},
	}
	resp, err := ask[*kmsg.OffsetFetchResponse](m.client, m.s.plan.patience, r)
	if err == nil {
		err = kerr.ErrorForCode(resp.Groups[0].ErrorCode)
	}
	if err == nil {
		err = kerr.ErrorForCode(resp.Groups[0].Topics[0].Partitions[0].ErrorCode)
	}
	if o.Return, m.why = m.s.h.Now(), err; err != nil {
		return 0, false
	}
	got := &resp.Groups[0].Topics[0].Partitions[0]
	if o.Outcome, o.Group.Offset = history.OK, got.Offset; got.Metadata != nil {
		o.Group.Token = *got.Metadata
	}
	m.s.h.Add(o)
	return max(got.Offset, 0), true
}

// commitOp is the record of a commit that is about to be asked for.
func (m *member) commitOp(p history.Partition, offset int64, txn *history.Op) *history.Op {
	m.s.mu.Lock()
	m.s.tokens++
	token := fmt.Sprintf("%s-%d", m.session, m.s.tokens)
	m.s.mu.Unlock()
	return &history.Op{
		Kind: history.Commit, Client: m.name, Session: m.session, Invoke: m.s.h.Now(), Partition: p,
		Group: &history.Membership{
			Group: m.group, Member: m.id, Epoch: m.epoch, Protocol: m.protocol, Offset: offset, Token: token, Txn: txn,
		},
	}
}

// commit commits an offset.
func (m *member) commit(p history.Partition, offset int64) error {
	o := m.commitOp(p, offset, nil)
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Group, r.MemberID, r.Generation = m.group, m.id, m.epoch
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = p.Topic
	rp := kmsg.NewOffsetCommitRequestTopicPartition()
	rp.Partition, rp.Offset, rp.Metadata = p.Number, offset, &o.Group.Token
	t.Partitions = append(t.Partitions, rp)
	r.Topics = append(r.Topics, t)
	resp, err := ask[*kmsg.OffsetCommitResponse](m.client, m.s.plan.patience, r)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	return m.s.outcome(o, err)
}

// outcome takes an operation into the history, with what came of it.
func (s *sim) outcome(o *history.Op, err error) error {
	o.Return = s.h.Now()
	switch {
	case err == nil:
		o.Outcome = history.OK
	case errors.Is(err, errUnsent):
		o.Outcome = history.Fail
	}
	// A refusal is the answer to the last try of the node that was asked: another one before may have come through.
	if err != nil {
		o.Note = err.Error()
	}
	s.h.Add(o)
	return err
}

// commitWith commits an offset with the transaction that is open.
func (m *member) commitWith(t *transactor, p history.Partition, offset int64) error {
	o := m.commitOp(p, offset, t.op)
	var err, before error
	for range 10 {
		r := kmsg.NewPtrTxnOffsetCommitRequest()
		r.TransactionalID, r.Group, r.MemberID, r.Generation = t.id, m.group, m.id, m.epoch
		r.ProducerID, r.ProducerEpoch = t.producer, t.epoch
		rt := kmsg.NewTxnOffsetCommitRequestTopic()
		rt.Topic = p.Topic
		rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset, rp.Metadata = p.Number, offset, &o.Group.Token
		rt.Partitions = append(rt.Partitions, rp)
		r.Topics = append(r.Topics, rt)
		var resp *kmsg.TxnOffsetCommitResponse
		resp, err = ask[*kmsg.TxnOffsetCommitResponse](m.client, m.s.plan.patience, r)
		if err == nil {
			err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
		}
		if err == nil || !again(err) || !sleep(m.ctx, around(m.rng, 100*time.Millisecond)) {
			break
		}
		if !errors.Is(err, errUnsent) {
			before = err
		}
	}
	if before != nil && errors.Is(err, errUnsent) {
		err = before
	}
	return m.s.outcome(o, err)
}

package group

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/coordinator"
)

type (
	joinReply = coordinator.Reply[*kmsg.JoinGroupResponse]
	syncReply = coordinator.Reply[*kmsg.SyncGroupResponse]
)

// member is a member of a classic group.
type member struct {
	id        string
	instance  *string // of a static member: its name, which it keeps when it starts again
	clientID  string
	host      string
	session   time.Duration
	rebalance time.Duration
	// protocols are those that the member knows, the one it likes best first, each with what it says to the others.
	protocols  []kmsg.JoinGroupRequestProtocol
	assignment []byte

	order uint64
	timer *coordinator.Timer // of the session
	// arrives says that the member has never got the answer to a join; whoever does not wait for it any more cannot
	// be told from who does, so such a one has newMemberTimeout.
	arrives  bool
	unsynced bool // it was told of the generation, and has not synced

	joining *joinReply // who waits for the others to join
	syncing *syncReply // who waits for the assignment
}

func newMember(id string, instance *string) *member { return &member{id: id, instance: instance} }

// timeouts are those of a member. One that says nothing about rebalances has the time of its session for them.
func timeouts(sessionMillis, rebalanceMillis int32) (session, rebalance time.Duration) {
	if rebalanceMillis <= 0 {
		rebalanceMillis = sessionMillis
	}
	return time.Duration(sessionMillis) * time.Millisecond, time.Duration(rebalanceMillis) * time.Millisecond
}

// describeSelf takes up what a request says of the member.
func (m *member) describeSelf(req *kmsg.JoinGroupRequest, who caller) {
	m.session, m.rebalance = timeouts(req.SessionTimeoutMillis, req.RebalanceTimeoutMillis)
	m.protocols = slices.Clone(req.Protocols)
	for i := range m.protocols {
		m.protocols[i].Metadata = bytes.Clone(m.protocols[i].Metadata)
	}
	m.clientID, m.host = cut(who.clientID), cut(who.host)
}

// cut keeps as much of a name as is kept of names.
func cut(name string) string { return strings.ToValidUTF8(name[:min(len(name), maxName)], "") }

// metadata is what the member says to the others in a protocol.
func (m *member) metadata(protocol string) []byte {
	for i := range m.protocols {
		if m.protocols[i].Name == protocol {
			return m.protocols[i].Metadata
		}
	}
	if len(m.protocols) > 0 {
		return m.protocols[0].Metadata // none is chosen yet
	}
	return nil
}

// says reports whether a request says the same to the others as before.
func (m *member) says(protocols []kmsg.JoinGroupRequestProtocol) bool {
	return slices.EqualFunc(m.protocols, protocols, func(a, b kmsg.JoinGroupRequestProtocol) bool {
		return a.Name == b.Name && bytes.Equal(a.Metadata, b.Metadata)
	})
}

// park keeps a join until the others have joined. An earlier one that waits is given up by its caller, or was sent
// twice.
func (m *member) park(reply *joinReply) {
	m.failJoin(kerr.RebalanceInProgress)
	m.joining = reply
}

// answerJoin gives the answer to a join that waits.
func (m *member) answerJoin(resp *kmsg.JoinGroupResponse) {
	if m.joining != nil {
		m.joining.Send(resp)
		m.joining = nil
	}
}

func (m *member) failJoin(e *kerr.Error) {
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.ErrorCode, resp.Generation, resp.MemberID = e.Code, -1, m.id
	m.answerJoin(resp)
}

// parkSync keeps a sync until there is an assignment.
func (m *member) parkSync(reply *syncReply) {
	m.failSync(kerr.RebalanceInProgress)
	m.syncing = reply
}

func (m *member) answerSync(resp *kmsg.SyncGroupResponse) {
	if m.syncing != nil {
		m.syncing.Send(resp)
		m.syncing = nil
	}
}

func (m *member) failSync(e *kerr.Error) { m.answerSync(refuseSyncGroup(nil, e)) }

// addTopics adds the topics that a consumer's subscription names. It reads as little of it as it can,
//
//	i16 version | i32 count | count strings | and more, which later versions may change
//
// and reports whether that is there.
func addTopics(topics map[string]bool, subscription []byte) bool {
	b := kbin.Reader{Src: subscription}
	if version := b.Int16(); version < 0 {
		return false
	}
	for n := b.ArrayLen(); n > 0 && b.Ok(); n-- {
		if topic := b.String(); b.Ok() {
			topics[topic] = true
		}
	}
	return b.Ok()
}

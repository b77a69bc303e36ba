package group

import (
	"bytes"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/coordinator"
)

// SyncGroup (key 14).
//
// A member that knows of a generation asks what it is to do in it. The leader says what all are to do; when that is in
// the log, all are told. Members that the leader forgot have nothing to do, and those it made up are nobody. A sync
// while the assignment stands is answered at once.

func (s *shard) handleSyncGroup(
	req *kmsg.SyncGroupRequest, _ caller, reply *coordinator.Reply[*kmsg.SyncGroupResponse],
) {
	c := s.classicOf(req.Group)
	m, e := c.checkSync(req)
	if e != nil {
		reply.Send(refuseSyncGroup(req, e))
		return
	}
	m.unsynced = false
	m.parkSync(reply)
	switch {
	case c.phase == stateStable:
		c.answerSync(m)
	case m.id == c.leader:
		c.assign(req.GroupAssignment)
	}
}

// checkSync says who syncs, or why he may not.
func (c *classic) checkSync(req *kmsg.SyncGroupRequest) (*member, *kerr.Error) {
	if c == nil {
		return nil, kerr.UnknownMemberID
	}
	m, e := c.find(req.MemberID, req.InstanceID)
	switch {
	case e != nil:
		return nil, e
	case req.Generation != c.generation:
		return nil, kerr.IllegalGeneration
	case req.ProtocolType != nil && *req.ProtocolType != c.kind, req.Protocol != nil && *req.Protocol != c.protocol:
		return nil, kerr.InconsistentGroupProtocol
	case c.phase == statePreparing:
		return nil, kerr.RebalanceInProgress
	}
	return m, nil
}

// assign takes up what the leader assigns. Without a place in the log it counts for nothing, and all join again.
func (c *classic) assign(given []kmsg.SyncGroupRequestGroupAssignment) {
	members := c.sorted()
	for _, m := range members {
		m.assignment = []byte{}
	}
	for i := range given {
		if m := c.members[given[i].MemberID]; m != nil {
			m.assignment = bytes.Clone(given[i].MemberAssignment)
		}
	}
	if e := c.append(members); e != nil {
		for _, m := range members {
			m.assignment = nil
			m.failSync(e)
		}
		c.prepare()
		return
	}
	for _, m := range members {
		if m.syncing != nil {
			c.answerSync(m)
		}
	}
}

// answerSync tells a member that waits what it is to do.
func (c *classic) answerSync(m *member) {
	kind, protocol := c.kind, c.protocol
	resp := kmsg.NewPtrSyncGroupResponse()
	resp.ProtocolType, resp.Protocol, resp.MemberAssignment = &kind, &protocol, m.assignment
	m.answerSync(resp)
	c.startSession(m)
}

package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/coordinator"
)

// LeaveGroup (key 13).
//
// Members are taken out of the group at once: one that leaves, or, since version 3, any number of them, named by member
// id, by instance id, or by both, each with a result of its own. The others share what those had.

func (s *shard) handleLeaveGroup(
	req *kmsg.LeaveGroupRequest, _ caller, reply *coordinator.Reply[*kmsg.LeaveGroupResponse],
) {
	members := req.Members
	if req.Version < 3 {
		members = []kmsg.LeaveGroupRequestMember{{MemberID: req.MemberID}}
	}
	c := s.classicOf(req.Group)
	before := c.size()
	resp := kmsg.NewPtrLeaveGroupResponse()
	for i := range members {
		out := kmsg.NewLeaveGroupResponseMember()
		out.MemberID, out.InstanceID = members[i].MemberID, members[i].InstanceID
		out.ErrorCode = codeOf(c.leave(&members[i]))
		resp.Members = append(resp.Members, out)
	}
	if req.Version < 3 {
		resp.ErrorCode, resp.Members = resp.Members[0].ErrorCode, nil
	}
	switch {
	case c == nil:
	case c.size() < before:
		c.changed()
	default:
		c.advance()
		c.tidy()
	}
	reply.Send(resp)
}

// size is the number of members.
func (c *classic) size() int {
	if c == nil {
		return 0
	}
	return len(c.members)
}

// leave takes a member out, or says why not. What follows from that is left to the caller.
func (c *classic) leave(who *kmsg.LeaveGroupRequestMember) *kerr.Error {
	if c == nil {
		return kerr.UnknownMemberID
	}
	if _, ok := c.pending[who.MemberID]; ok && who.InstanceID == nil {
		c.dropPending(who.MemberID)
		return nil
	}
	id := who.MemberID
	if m := c.byInstance(who.InstanceID); id == "" && m != nil {
		id = m.id // an operator has him go, whoever he is now
	}
	m, e := c.find(id, who.InstanceID)
	if e == nil {
		c.drop(m)
	}
	return e
}

func (c *classic) byInstance(name *string) *member {
	if name == nil {
		return nil
	}
	return c.static[*name]
}

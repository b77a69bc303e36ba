package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/coordinator"
)

// Heartbeat (key 12).
//
// A member says that it is there, and hears whether it has to join again. While the others sync it has not: it knows of
// that generation already.

func (s *shard) handleHeartbeat(
	req *kmsg.HeartbeatRequest, _ caller, reply *coordinator.Reply[*kmsg.HeartbeatResponse],
) {
	resp := kmsg.NewPtrHeartbeatResponse()
	resp.ErrorCode = codeOf(s.classicOf(req.Group).heartbeat(req))
	reply.Send(resp)
}

func (c *classic) heartbeat(req *kmsg.HeartbeatRequest) *kerr.Error {
	if c == nil {
		return kerr.UnknownMemberID
	}
	m, e := c.find(req.MemberID, req.InstanceID)
	switch {
	case e != nil:
		return e
	case req.Generation != c.generation:
		return kerr.IllegalGeneration
	}
	c.startSession(m)
	if c.phase == statePreparing {
		return kerr.RebalanceInProgress
	}
	return nil
}

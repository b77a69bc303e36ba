package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/coordinator"
)

// classic is a group of the classic protocol, as the log has it.
type classic struct{ meta *groupMetadata }

func (s *shard) replayGroupMetadata(id string, v *groupMetadata) {
	if v != nil {
		s.ensure(id).classic = &classic{meta: v}
		return
	}
	if g := s.groups[id]; g != nil {
		g.classic = nil
	}
}

func (s *shard) handleJoinGroup(
	req *kmsg.JoinGroupRequest, _ caller, reply *coordinator.Reply[*kmsg.JoinGroupResponse],
) {
	reply.Now(refuseJoinGroup(req, kerr.UnsupportedVersion))
}

func (s *shard) handleSyncGroup(
	req *kmsg.SyncGroupRequest, _ caller, reply *coordinator.Reply[*kmsg.SyncGroupResponse],
) {
	reply.Now(refuseSyncGroup(req, kerr.UnsupportedVersion))
}

func (s *shard) handleHeartbeat(
	req *kmsg.HeartbeatRequest, _ caller, reply *coordinator.Reply[*kmsg.HeartbeatResponse],
) {
	reply.Now(refuseHeartbeat(req, kerr.UnsupportedVersion))
}

func (s *shard) handleLeaveGroup(
	req *kmsg.LeaveGroupRequest, _ caller, reply *coordinator.Reply[*kmsg.LeaveGroupResponse],
) {
	reply.Now(refuseLeaveGroup(req, kerr.UnsupportedVersion))
}

func (c *classic) loaded()   {}
func (c *classic) unloaded() {}

func (c *classic) state() string {
	if c.empty() {
		return stateEmpty
	}
	return stateStable
}

func (c *classic) empty() bool          { return len(c.meta.Members) == 0 }
func (c *classic) protocolType() string { return c.meta.ProtocolType }
func (c *classic) emptySince() time.Time {
	return time.UnixMilli(c.meta.CurrentStateTimestamp)
}

func (c *classic) describe(out *kmsg.DescribeGroupsResponseGroup) {
	out.State, out.ProtocolType = c.state(), c.protocolType()
}

// subscribed is known if every member's subscription is.
func (c *classic) subscribed() (topics map[string]bool, known bool) {
	topics = make(map[string]bool)
	for i := range c.meta.Members {
		var of kmsg.ConsumerMemberMetadata
		if c.meta.ProtocolType != typeConsumer || of.ReadFrom(c.meta.Members[i].Subscription) != nil {
			return nil, false
		}
		for _, topic := range of.Topics {
			topics[topic] = true
		}
	}
	return topics, true
}

func (c *classic) checkCommit(_ string, _ *string, generation int32, _ bool) *kerr.Error {
	if generation < 0 && c.empty() {
		return nil
	}
	return kerr.UnknownMemberID
}

func (c *classic) touch(string) {}

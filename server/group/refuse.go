package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Answers that refuse a whole request, each at the place where Kafka has the code.

func refuseJoinGroup(req *kmsg.JoinGroupRequest, e *kerr.Error) *kmsg.JoinGroupResponse {
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.ErrorCode, resp.Generation, resp.MemberID = e.Code, -1, req.MemberID
	return resp
}

func refuseSyncGroup(_ *kmsg.SyncGroupRequest, e *kerr.Error) *kmsg.SyncGroupResponse {
	resp := kmsg.NewPtrSyncGroupResponse()
	resp.ErrorCode = e.Code
	return resp
}

func refuseHeartbeat(_ *kmsg.HeartbeatRequest, e *kerr.Error) *kmsg.HeartbeatResponse {
	resp := kmsg.NewPtrHeartbeatResponse()
	resp.ErrorCode = e.Code
	return resp
}

func refuseLeaveGroup(_ *kmsg.LeaveGroupRequest, e *kerr.Error) *kmsg.LeaveGroupResponse {
	resp := kmsg.NewPtrLeaveGroupResponse()
	resp.ErrorCode = e.Code
	return resp
}

func refuseConsumerGroupHeartbeat(
	req *kmsg.ConsumerGroupHeartbeatRequest, e *kerr.Error,
) *kmsg.ConsumerGroupHeartbeatResponse {
	if req.Group == "" {
		e = kerr.InvalidRequest // which is what this request alone says of it
	}
	resp := kmsg.NewPtrConsumerGroupHeartbeatResponse()
	resp.ErrorCode, resp.ErrorMessage = e.Code, kmsg.StringPtr(e.Description)
	return resp
}

func refuseOffsetCommit(req *kmsg.OffsetCommitRequest, e *kerr.Error) *kmsg.OffsetCommitResponse {
	resp := kmsg.NewPtrOffsetCommitResponse()
	for i := range req.Topics {
		in, out := &req.Topics[i], kmsg.NewOffsetCommitResponseTopic()
		out.Topic, out.TopicID = in.Topic, in.TopicID
		for j := range in.Partitions {
			p := kmsg.NewOffsetCommitResponseTopicPartition()
			p.Partition, p.ErrorCode = in.Partitions[j].Partition, e.Code
			out.Partitions = append(out.Partitions, p)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func refuseTxnOffsetCommit(req *kmsg.TxnOffsetCommitRequest, e *kerr.Error) *kmsg.TxnOffsetCommitResponse {
	resp := kmsg.NewPtrTxnOffsetCommitResponse()
	for i := range req.Topics {
		in, out := &req.Topics[i], kmsg.NewTxnOffsetCommitResponseTopic()
		out.Topic, out.TopicID = in.Topic, in.TopicID
		for j := range in.Partitions {
			p := kmsg.NewTxnOffsetCommitResponseTopicPartition()
			p.Partition, p.ErrorCode = in.Partitions[j].Partition, e.Code
			out.Partitions = append(out.Partitions, p)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func refuseOffsetDelete(_ *kmsg.OffsetDeleteRequest, e *kerr.Error) *kmsg.OffsetDeleteResponse {
	resp := kmsg.NewPtrOffsetDeleteResponse()
	resp.ErrorCode = e.Code
	return resp
}

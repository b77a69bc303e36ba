package route

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/server/metadata"
)

// Where ids and codes stand in the messages of the keys that coordinators serve.

// What a member of a group may wait for the others.
const (
	joinSlack = 10 * time.Second
	syncLimit = 5 * time.Minute // longer than groups rebalance; the request does not say
	// heartbeatLimit is half of the longest session: no heartbeat waits longer for news.
	heartbeatLimit = 15 * time.Minute
)

// single is a request about one id whose answer has one code, and which changes what is known of the id.
func single[Q kmsg.Request, S kmsg.Response](topic string, id func(Q) string,
	code func(S) *int16) coordinated[kmsg.Request, kmsg.Response] {
	return coordinated[kmsg.Request, kmsg.Response]{
		topic:   topic,
		asked:   func(r kmsg.Request) []kmsg.Request { return []kmsg.Request{r} },
		about:   func(r kmsg.Request, _ []kmsg.Request) kmsg.Request { return r },
		id:      func(r *kmsg.Request) string { return id((*r).(Q)) },
		answers: func(r kmsg.Response) []kmsg.Response { return []kmsg.Response{r} },
		code:    func(r *kmsg.Response) int16 { return *code((*r).(S)) },
		refuse: func(r *kmsg.Request, c int16) kmsg.Response {
			resp := (*r).ResponseKind()
			*code(resp.(S)) = c
			return resp
		},
		whole:  func(_ kmsg.Request, answers []kmsg.Response) kmsg.Response { return answers[0] },
		writes: true,
	}
}

// unlessDone replaces a refusal of what an earlier try may have done.
func unlessDone(code *int16) {
	if *code != 0 {
		*code = kerr.NetworkException.Code
	}
}

func joinGroup() way {
	c := single(metadata.GroupTopic, func(r *kmsg.JoinGroupRequest) string { return r.Group },
		func(r *kmsg.JoinGroupResponse) *int16 { return &r.ErrorCode })
	c.limit = func(r kmsg.Request) time.Duration {
		req := r.(*kmsg.JoinGroupRequest)
		return time.Duration(max(req.RebalanceTimeoutMillis, req.SessionTimeoutMillis))*time.Millisecond + joinSlack
	}
	return byCoordinators(c)
}

func syncGroup() way {
	c := single(metadata.GroupTopic, func(r *kmsg.SyncGroupRequest) string { return r.Group },
		func(r *kmsg.SyncGroupResponse) *int16 { return &r.ErrorCode })
	c.limit = func(kmsg.Request) time.Duration { return syncLimit }
	return byCoordinators(c)
}

func heartbeat() way {
	c := single(metadata.GroupTopic, func(r *kmsg.HeartbeatRequest) string { return r.Group },
		func(r *kmsg.HeartbeatResponse) *int16 { return &r.ErrorCode })
	c.writes = false
	return byCoordinators(c)
}

// leaveGroup routes LeaveGroup. A member that is not there any more when it is asked for again has left.
func leaveGroup() way {
	c := single(metadata.GroupTopic, func(r *kmsg.LeaveGroupRequest) string { return r.Group },
		func(r *kmsg.LeaveGroupResponse) *int16 { return &r.ErrorCode })
	left := func(code *int16) {
		if *code == kerr.UnknownMemberID.Code {
			*code = 0
		}
	}
	c.twice = func(r *kmsg.Response) {
		resp := (*r).(*kmsg.LeaveGroupResponse)
		left(&resp.ErrorCode)
		for i := range resp.Members {
			left(&resp.Members[i].ErrorCode)
		}
	}
	return byCoordinators(c)
}

func consumerGroupHeartbeat() way {
	c := single(metadata.GroupTopic, func(r *kmsg.ConsumerGroupHeartbeatRequest) string { return r.Group },
		func(r *kmsg.ConsumerGroupHeartbeatResponse) *int16 { return &r.ErrorCode })
	c.limit = func(r kmsg.Request) time.Duration {
		wait, _ := ktag.HeartbeatWait(&r.(*kmsg.ConsumerGroupHeartbeatRequest).UnknownTags)
		return min(time.Duration(wait)*time.Millisecond, heartbeatLimit) + budget
	}
	return byCoordinators(c)
}

func offsetDelete() way {
	c := single(metadata.GroupTopic, func(r *kmsg.OffsetDeleteRequest) string { return r.Group },
		func(r *kmsg.OffsetDeleteResponse) *int16 { return &r.ErrorCode })
	c.twice = func(r *kmsg.Response) {
		resp := (*r).(*kmsg.OffsetDeleteResponse)
		unlessDone(&resp.ErrorCode)
		for i := range resp.Topics {
			for j := range resp.Topics[i].Partitions {
				unlessDone(&resp.Topics[i].Partitions[j].ErrorCode)
			}
		}
	}
	return byCoordinators(c)
}

// initProducerID routes InitProducerID: to the coordinator of its transactional id, to the node asked without one.
func initProducerID() way {
	transactional := byCoordinators(single(metadata.TxnTopic,
		func(r *kmsg.InitProducerIDRequest) string { return *r.TransactionalID },
		func(r *kmsg.InitProducerIDResponse) *int16 { return &r.ErrorCode }))
	return eitherWay(func(r kmsg.Request) bool { return r.(*kmsg.InitProducerIDRequest).TransactionalID != nil },
		transactional, local)
}

// addOffsetsToTxn routes AddOffsetsToTxn, which speaks of a partition of the groups' topic: that may be its first use.
func addOffsetsToTxn() way {
	c := single(metadata.TxnTopic, func(r *kmsg.AddOffsetsToTxnRequest) string { return r.TransactionalID },
		func(r *kmsg.AddOffsetsToTxnResponse) *int16 { return &r.ErrorCode })
	c.writes = false // a partition without data does no harm
	send := byCoordinators(c)
	return func(ctx context.Context, r *Router, req kmsg.Request) (kmsg.Response, error) {
		if r.cfg.Image().Topic(metadata.GroupTopic) == nil {
			r.makeInternal(ctx, metadata.GroupTopic, within(ctx, time.Now().Add(budget)))
		}
		return send(ctx, r, req)
	}
}

// endTxn routes EndTxn. A producer that is fenced when it is asked for again may have ended its transaction at the
// first try: the answer to that is lost.
func endTxn() way {
	c := single(metadata.TxnTopic, func(r *kmsg.EndTxnRequest) string { return r.TransactionalID },
		func(r *kmsg.EndTxnResponse) *int16 { return &r.ErrorCode })
	c.twice = func(r *kmsg.Response) {
		switch resp := (*r).(*kmsg.EndTxnResponse); resp.ErrorCode {
		case kerr.ProducerFenced.Code, kerr.InvalidProducerIDMapping.Code:
			resp.ErrorCode = kerr.NetworkException.Code
		}
	}
	return byCoordinators(c)
}

// offsetCommit routes OffsetCommit, whose codes stand with the partitions.
func offsetCommit() way {
	c := single(metadata.GroupTopic, func(r *kmsg.OffsetCommitRequest) string { return r.Group },
		func(*kmsg.OffsetCommitResponse) *int16 { return new(int16) })
	c.code = func(r *kmsg.Response) int16 {
		for _, t := range (*r).(*kmsg.OffsetCommitResponse).Topics {
			for _, p := range t.Partitions {
				if moving(p.ErrorCode) {
					return p.ErrorCode
				}
			}
		}
		return 0
	}
	c.refuse = func(r *kmsg.Request, code int16) kmsg.Response {
		req := (*r).(*kmsg.OffsetCommitRequest)
		resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
		for _, t := range req.Topics {
			out := kmsg.NewOffsetCommitResponseTopic()
			out.Topic, out.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				answer := kmsg.NewOffsetCommitResponseTopicPartition()
				answer.Partition, answer.ErrorCode = p.Partition, code
				out.Partitions = append(out.Partitions, answer)
			}
			resp.Topics = append(resp.Topics, out)
		}
		return resp
	}
	c.twice = func(r *kmsg.Response) {
		resp := (*r).(*kmsg.OffsetCommitResponse)
		for i := range resp.Topics {
			for j := range resp.Topics[i].Partitions {
				unlessDone(&resp.Topics[i].Partitions[j].ErrorCode)
			}
		}
	}
	return byCoordinators(c)
}

// txnOffsetCommit routes TxnOffsetCommit as offsetCommit does OffsetCommit.
func txnOffsetCommit() way {
	c := single(metadata.GroupTopic, func(r *kmsg.TxnOffsetCommitRequest) string { return r.Group },
		func(*kmsg.TxnOffsetCommitResponse) *int16 { return new(int16) })
	c.code = func(r *kmsg.Response) int16 {
		for _, t := range (*r).(*kmsg.TxnOffsetCommitResponse).Topics {
			for _, p := range t.Partitions {
				if moving(p.ErrorCode) {
					return p.ErrorCode
				}
			}
		}
		return 0
	}
	c.refuse = func(r *kmsg.Request, code int16) kmsg.Response {
		req := (*r).(*kmsg.TxnOffsetCommitRequest)
		resp := req.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
		for _, t := range req.Topics {
			out := kmsg.NewTxnOffsetCommitResponseTopic()
			out.Topic, out.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				answer := kmsg.NewTxnOffsetCommitResponseTopicPartition()
				answer.Partition, answer.ErrorCode = p.Partition, code
				out.Partitions = append(out.Partitions, answer)
			}
			resp.Topics = append(resp.Topics, out)
		}
		return resp
	}
	c.twice = func(r *kmsg.Response) {
		resp := (*r).(*kmsg.TxnOffsetCommitResponse)
		for i := range resp.Topics {
			for j := range resp.Topics[i].Partitions {
				unlessDone(&resp.Topics[i].Partitions[j].ErrorCode)
			}
		}
	}
	return byCoordinators(c)
}

// fetchedOffsets are the offsets of one group.
type fetchedOffsets = kmsg.OffsetFetchResponseGroup

func offsetFetch() way {
	return byCoordinators(coordinated[kmsg.OffsetFetchRequestGroup, fetchedOffsets]{
		topic: metadata.GroupTopic,
		asked: func(r kmsg.Request) []kmsg.OffsetFetchRequestGroup { return r.(*kmsg.OffsetFetchRequest).Groups },
		about: func(r kmsg.Request, groups []kmsg.OffsetFetchRequestGroup) kmsg.Request {
			part := *r.(*kmsg.OffsetFetchRequest)
			part.Groups = groups
			return &part
		},
		id:       func(g *kmsg.OffsetFetchRequestGroup) string { return g.Group },
		answers:  func(r kmsg.Response) []fetchedOffsets { return r.(*kmsg.OffsetFetchResponse).Groups },
		answered: func(g *fetchedOffsets) string { return g.Group },
		code:     func(g *fetchedOffsets) int16 { return g.ErrorCode },
		refuse: func(g *kmsg.OffsetFetchRequestGroup, code int16) fetchedOffsets {
			out := kmsg.NewOffsetFetchResponseGroup()
			out.Group, out.ErrorCode = g.Group, code
			return out
		},
		whole: func(r kmsg.Request, groups []fetchedOffsets) kmsg.Response {
			resp := r.ResponseKind().(*kmsg.OffsetFetchResponse)
			resp.Groups = groups
			return resp
		},
	})
}

// described is a group of the classic protocol.
type described = kmsg.DescribeGroupsResponseGroup

func describeGroups() way {
	return byCoordinators(coordinated[string, described]{
		topic: metadata.GroupTopic,
		asked: func(r kmsg.Request) []string { return r.(*kmsg.DescribeGroupsRequest).Groups },
		about: func(r kmsg.Request, groups []string) kmsg.Request {
			part := *r.(*kmsg.DescribeGroupsRequest)
			part.Groups = groups
			return &part
		},
		id:       func(id *string) string { return *id },
		answers:  func(r kmsg.Response) []described { return r.(*kmsg.DescribeGroupsResponse).Groups },
		answered: func(g *described) string { return g.Group },
		code:     func(g *described) int16 { return g.ErrorCode },
		refuse: func(id *string, code int16) described {
			out := kmsg.NewDescribeGroupsResponseGroup()
			out.Group, out.ErrorCode = *id, code
			return out
		},
		whole: func(r kmsg.Request, groups []described) kmsg.Response {
			resp := r.ResponseKind().(*kmsg.DescribeGroupsResponse)
			resp.Groups = groups
			return resp
		},
	})
}

// describedConsumers is a group of the consumer protocol.
type describedConsumers = kmsg.ConsumerGroupDescribeResponseGroup

func consumerGroupDescribe() way {
	return byCoordinators(coordinated[string, describedConsumers]{
		topic: metadata.GroupTopic,
		asked: func(r kmsg.Request) []string { return r.(*kmsg.ConsumerGroupDescribeRequest).Groups },
		about: func(r kmsg.Request, groups []string) kmsg.Request {
			part := *r.(*kmsg.ConsumerGroupDescribeRequest)
			part.Groups = groups
			return &part
		},
		id: func(id *string) string { return *id },
		answers: func(r kmsg.Response) []describedConsumers {
			return r.(*kmsg.ConsumerGroupDescribeResponse).Groups
		},
		answered: func(g *describedConsumers) string { return g.Group },
		code:     func(g *describedConsumers) int16 { return g.ErrorCode },
		refuse: func(id *string, code int16) describedConsumers {
			out := kmsg.NewConsumerGroupDescribeResponseGroup()
			out.Group, out.ErrorCode = *id, code
			return out
		},
		whole: func(r kmsg.Request, groups []describedConsumers) kmsg.Response {
			resp := r.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
			resp.Groups = groups
			return resp
		},
	})
}

// deleted is what became of a group to delete.
type deleted = kmsg.DeleteGroupsResponseGroup

// deleteGroups routes DeleteGroups. A group that is not there any more when it is asked for again is deleted.
func deleteGroups() way {
	return byCoordinators(coordinated[string, deleted]{
		topic: metadata.GroupTopic,
		asked: func(r kmsg.Request) []string { return r.(*kmsg.DeleteGroupsRequest).Groups },
		about: func(r kmsg.Request, groups []string) kmsg.Request {
			part := *r.(*kmsg.DeleteGroupsRequest)
			part.Groups = groups
			return &part
		},
		id:       func(id *string) string { return *id },
		answers:  func(r kmsg.Response) []deleted { return r.(*kmsg.DeleteGroupsResponse).Groups },
		answered: func(g *deleted) string { return g.Group },
		code:     func(g *deleted) int16 { return g.ErrorCode },
		refuse: func(id *string, code int16) deleted {
			out := kmsg.NewDeleteGroupsResponseGroup()
			out.Group, out.ErrorCode = *id, code
			return out
		},
		whole: func(r kmsg.Request, groups []deleted) kmsg.Response {
			resp := r.ResponseKind().(*kmsg.DeleteGroupsResponse)
			resp.Groups = groups
			return resp
		},
		writes: true,
		twice: func(g *deleted) {
			if g.ErrorCode == kerr.GroupIDNotFound.Code {
				g.ErrorCode, g.ErrorMessage = 0, nil
			}
			unlessDone(&g.ErrorCode)
		},
	})
}

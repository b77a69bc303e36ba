package route

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// byLeaders is the way of requests that the leaders of their partitions answer: to one of them as it is, or
// to each its share. Each partition has its own answer, so some may be done where others are not. What this node leads
// alone, which is what clients that know the leaders ask for, costs no more than a look at the answer.
func byLeaders[QT, QP, ST, SP any](s split[QT, QP, ST, SP], e envelope[QT, ST]) way {
	return func(ctx context.Context, r *Router, req kmsg.Request) (kmsg.Response, error) {
		start, topics, changed, l := time.Now(), e.asked(req), r.changed(), r.leaders()
		node, ok := s.whole(l, topics)
		var first kmsg.Response
		if ok && node == r.cfg.NodeID {
			resp, err := r.cfg.Broker.Request(ctx, req)
			if err != nil || s.clean(*e.answers(resp)) {
				return resp, err
			}
			first = resp
		}
		work := &errand[QT, QP, ST, SP]{
			router: r, split: &s, envelope: &e, req: req, topics: topics, end: within(ctx, start.Add(limitOf(req))),
		}
		work.last, work.heardBy = lastMoment(ctx, work.end), start.Add(hearsay)
		work.open()
		slots := work.slots
		if first != nil {
			_ = groups(l, slots, byLeader[SP]) // notes who was asked
			work.take(slots, *e.answers(first))
			if slots = work.unsettled(slots); len(slots) == 0 && !work.leftOpen() {
				return first, nil
			}
			if len(slots) > 0 && !work.pause(ctx, slots, changed, firstPause) {
				slots = nil
			}
		}
		work.drive(ctx, slots)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		resp := req.ResponseKind()
		*e.answers(resp) = work.merge()
		return resp, nil
	}
}

// limitOf is how long a request may be tried.
func limitOf(req kmsg.Request) time.Duration {
	switch r := req.(type) {
	case *kmsg.ProduceRequest:
		return max(time.Duration(r.TimeoutMillis)*time.Millisecond, 0)
	case *kmsg.DeleteRecordsRequest:
		return max(time.Duration(r.TimeoutMillis)*time.Millisecond, 0)
	}
	return budget
}

// within moves the end of trying before that of ctx, so that the last answers still arrive.
func within(ctx context.Context, end time.Time) time.Time {
	deadline, ok := ctx.Deadline()
	if !ok {
		return end
	}
	if early := deadline.Add(-min(time.Until(deadline)/10, slack)); early.Before(end) {
		return early
	}
	return end
}

// lastMoment is how long a node may still answer what was sent before the end of trying.
func lastMoment(ctx context.Context, end time.Time) time.Time {
	late := end.Add(slack)
	if deadline, ok := ctx.Deadline(); ok {
		if d := end.Add(deadline.Sub(end) / 2); d.Before(late) {
			return d
		}
	}
	return late
}

func produce() way {
	return byLeaders(produceSplit(), envelope[kmsg.ProduceRequestTopic, kmsg.ProduceResponseTopic]{
		asked: func(r kmsg.Request) []kmsg.ProduceRequestTopic {
			return r.(*kmsg.ProduceRequest).Topics
		},
		about: func(r kmsg.Request, topics []kmsg.ProduceRequestTopic) kmsg.Request {
			part := *r.(*kmsg.ProduceRequest)
			part.Topics = topics
			return &part
		},
		limit: func(r kmsg.Request, left time.Duration) {
			part := r.(*kmsg.ProduceRequest)
			part.TimeoutMillis = min(part.TimeoutMillis, int32(left.Milliseconds()))
		},
		answers: func(r kmsg.Response) *[]kmsg.ProduceResponseTopic {
			return &r.(*kmsg.ProduceResponse).Topics
		},
	})
}

func listOffsets() way {
	return byLeaders(listOffsetsSplit(), envelope[kmsg.ListOffsetsRequestTopic, kmsg.ListOffsetsResponseTopic]{
		asked: func(r kmsg.Request) []kmsg.ListOffsetsRequestTopic {
			return r.(*kmsg.ListOffsetsRequest).Topics
		},
		about: func(r kmsg.Request, topics []kmsg.ListOffsetsRequestTopic) kmsg.Request {
			part := *r.(*kmsg.ListOffsetsRequest)
			part.Topics = topics
			return &part
		},
		answers: func(r kmsg.Response) *[]kmsg.ListOffsetsResponseTopic {
			return &r.(*kmsg.ListOffsetsResponse).Topics
		},
	})
}

func deleteRecords() way {
	return byLeaders(deleteRecordsSplit(), envelope[kmsg.DeleteRecordsRequestTopic, kmsg.DeleteRecordsResponseTopic]{
		asked: func(r kmsg.Request) []kmsg.DeleteRecordsRequestTopic {
			return r.(*kmsg.DeleteRecordsRequest).Topics
		},
		about: func(r kmsg.Request, topics []kmsg.DeleteRecordsRequestTopic) kmsg.Request {
			part := *r.(*kmsg.DeleteRecordsRequest)
			part.Topics = topics
			return &part
		},
		limit: func(r kmsg.Request, left time.Duration) {
			part := r.(*kmsg.DeleteRecordsRequest)
			part.TimeoutMillis = min(part.TimeoutMillis, int32(left.Milliseconds()))
		},
		answers: func(r kmsg.Response) *[]kmsg.DeleteRecordsResponseTopic {
			return &r.(*kmsg.DeleteRecordsResponse).Topics
		},
	})
}

func offsetForLeaderEpoch() way {
	return byLeaders(offsetForLeaderEpochSplit(), envelope[
		kmsg.OffsetForLeaderEpochRequestTopic, kmsg.OffsetForLeaderEpochResponseTopic,
	]{
		asked: func(r kmsg.Request) []kmsg.OffsetForLeaderEpochRequestTopic {
			return r.(*kmsg.OffsetForLeaderEpochRequest).Topics
		},
		about: func(r kmsg.Request, topics []kmsg.OffsetForLeaderEpochRequestTopic) kmsg.Request {
			part := *r.(*kmsg.OffsetForLeaderEpochRequest)
			part.Topics = topics
			return &part
		},
		answers: func(r kmsg.Response) *[]kmsg.OffsetForLeaderEpochResponseTopic {
			return &r.(*kmsg.OffsetForLeaderEpochResponse).Topics
		},
	})
}

func describeProducers() way {
	return byLeaders(describeProducersSplit(), envelope[
		kmsg.DescribeProducersRequestTopic, kmsg.DescribeProducersResponseTopic,
	]{
		asked: func(r kmsg.Request) []kmsg.DescribeProducersRequestTopic {
			return r.(*kmsg.DescribeProducersRequest).Topics
		},
		about: func(r kmsg.Request, topics []kmsg.DescribeProducersRequestTopic) kmsg.Request {
			part := *r.(*kmsg.DescribeProducersRequest)
			part.Topics = topics
			return &part
		},
		answers: func(r kmsg.Response) *[]kmsg.DescribeProducersResponseTopic {
			return &r.(*kmsg.DescribeProducersResponse).Topics
		},
	})
}

func describeQuorum() way {
	return byLeaders(describeQuorumSplit(), envelope[
		kmsg.DescribeQuorumRequestTopic, kmsg.DescribeQuorumResponseTopic,
	]{
		asked: func(r kmsg.Request) []kmsg.DescribeQuorumRequestTopic {
			return r.(*kmsg.DescribeQuorumRequest).Topics
		},
		about: func(r kmsg.Request, topics []kmsg.DescribeQuorumRequestTopic) kmsg.Request {
			part := *r.(*kmsg.DescribeQuorumRequest)
			part.Topics = topics
			return &part
		},
		answers: func(r kmsg.Response) *[]kmsg.DescribeQuorumResponseTopic {
			return &r.(*kmsg.DescribeQuorumResponse).Topics
		},
	})
}

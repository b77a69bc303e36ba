package route

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// envelope says where the topics stand in the messages of one key.
type envelope[QT, ST any] struct {
	asked   func(kmsg.Request) []QT
	about   func(kmsg.Request, []QT) kmsg.Request // a copy of the request about other topics
	answers func(kmsg.Response) *[]ST
}

// byLeaders is the way of requests that the leaders of their partitions answer: to one of them as it is, or
// to each its share. Each partition has its own answer, so some may be done where others are not.
func byLeaders[QT, QP, ST, SP any](s split[QT, QP, ST, SP], e envelope[QT, ST]) way {
	return func(ctx context.Context, r *Router, req kmsg.Request) (kmsg.Response, error) {
		topics, l := e.asked(req), r.leaders()
		if to := s.whole(r, l, topics); to != nil {
			return to.Request(ctx, req)
		}
		shares := s.byLeader(l, topics)
		ask(ctx, r, shares, func(ctx context.Context, to kmsg.Requestor, part *share[QT, ST]) error {
			resp, err := to.Request(ctx, e.about(req, part.topics))
			if err != nil {
				return err
			}
			part.answer = *e.answers(resp)
			return nil
		})
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		resp := req.ResponseKind()
		*e.answers(resp) = s.merge(topics, l, shares)
		return resp, nil
	}
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

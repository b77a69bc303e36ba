package route

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// produce routes Produce. The batches of one request may so be committed at several nodes; each
// partition has its own answer.
func produce(ctx context.Context, r *Router, request kmsg.Request) (kmsg.Response, error) {
	req := request.(*kmsg.ProduceRequest)
	s, l := produceSplit(), r.leaders()
	if to := s.whole(r, l, req.Topics); to != nil {
		return to.Request(ctx, req)
	}
	topics, err := s.apart(ctx, r, l, req.Topics, func(
		ctx context.Context, to kmsg.Requestor, topics []kmsg.ProduceRequestTopic,
	) ([]kmsg.ProduceResponseTopic, error) {
		part := *req
		part.Topics = topics
		resp, err := part.RequestWith(ctx, to)
		if err != nil {
			return nil, err
		}
		return resp.Topics, nil
	})
	if err != nil {
		return nil, err
	}
	resp := kmsg.NewPtrProduceResponse()
	resp.Version, resp.Topics = req.Version, topics
	return resp, nil
}

// listOffsets routes ListOffsets.
func listOffsets(ctx context.Context, r *Router, request kmsg.Request) (kmsg.Response, error) {
	req := request.(*kmsg.ListOffsetsRequest)
	s, l := listOffsetsSplit(), r.leaders()
	if to := s.whole(r, l, req.Topics); to != nil {
		return to.Request(ctx, req)
	}
	topics, err := s.apart(ctx, r, l, req.Topics, func(
		ctx context.Context, to kmsg.Requestor, topics []kmsg.ListOffsetsRequestTopic,
	) ([]kmsg.ListOffsetsResponseTopic, error) {
		part := *req
		part.Topics = topics
		resp, err := part.RequestWith(ctx, to)
		if err != nil {
			return nil, err
		}
		return resp.Topics, nil
	})
	if err != nil {
		return nil, err
	}
	resp := kmsg.NewPtrListOffsetsResponse()
	resp.Version, resp.Topics = req.Version, topics
	return resp, nil
}

// deleteRecords routes DeleteRecords.
func deleteRecords(ctx context.Context, r *Router, request kmsg.Request) (kmsg.Response, error) {
	req := request.(*kmsg.DeleteRecordsRequest)
	s, l := deleteRecordsSplit(), r.leaders()
	if to := s.whole(r, l, req.Topics); to != nil {
		return to.Request(ctx, req)
	}
	topics, err := s.apart(ctx, r, l, req.Topics, func(
		ctx context.Context, to kmsg.Requestor, topics []kmsg.DeleteRecordsRequestTopic,
	) ([]kmsg.DeleteRecordsResponseTopic, error) {
		part := *req
		part.Topics = topics
		resp, err := part.RequestWith(ctx, to)
		if err != nil {
			return nil, err
		}
		return resp.Topics, nil
	})
	if err != nil {
		return nil, err
	}
	resp := kmsg.NewPtrDeleteRecordsResponse()
	resp.Version, resp.Topics = req.Version, topics
	return resp, nil
}

// offsetForLeaderEpoch routes OffsetForLeaderEpoch.
func offsetForLeaderEpoch(ctx context.Context, r *Router, request kmsg.Request) (kmsg.Response, error) {
	req := request.(*kmsg.OffsetForLeaderEpochRequest)
	s, l := offsetForLeaderEpochSplit(), r.leaders()
	if to := s.whole(r, l, req.Topics); to != nil {
		return to.Request(ctx, req)
	}
	topics, err := s.apart(ctx, r, l, req.Topics, func(
		ctx context.Context, to kmsg.Requestor, topics []kmsg.OffsetForLeaderEpochRequestTopic,
	) ([]kmsg.OffsetForLeaderEpochResponseTopic, error) {
		part := *req
		part.Topics = topics
		resp, err := part.RequestWith(ctx, to)
		if err != nil {
			return nil, err
		}
		return resp.Topics, nil
	})
	if err != nil {
		return nil, err
	}
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	resp.Version, resp.Topics = req.Version, topics
	return resp, nil
}

// describeProducers routes DescribeProducers.
func describeProducers(ctx context.Context, r *Router, request kmsg.Request) (kmsg.Response, error) {
	req := request.(*kmsg.DescribeProducersRequest)
	s, l := describeProducersSplit(), r.leaders()
	if to := s.whole(r, l, req.Topics); to != nil {
		return to.Request(ctx, req)
	}
	topics, err := s.apart(ctx, r, l, req.Topics, func(
		ctx context.Context, to kmsg.Requestor, topics []kmsg.DescribeProducersRequestTopic,
	) ([]kmsg.DescribeProducersResponseTopic, error) {
		part := *req
		part.Topics = topics
		resp, err := part.RequestWith(ctx, to)
		if err != nil {
			return nil, err
		}
		return resp.Topics, nil
	})
	if err != nil {
		return nil, err
	}
	resp := kmsg.NewPtrDescribeProducersResponse()
	resp.Version, resp.Topics = req.Version, topics
	return resp, nil
}

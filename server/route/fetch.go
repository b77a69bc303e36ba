package route

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetch routes Fetch. Where several nodes lead the partitions, each gets an equal part of MaxBytes.
// All are asked at once without waiting; if what they have is less than MinBytes, all are asked to
// wait, each for more than it has, and the first answer ends the waiting of the others, until there
// is enough or MaxWaitMillis are over. So MinBytes counts over all nodes, as it does on one.
func fetch(ctx context.Context, r *Router, request kmsg.Request) (kmsg.Response, error) {
	req := request.(*kmsg.FetchRequest)
	s, l := fetchSplit(), r.leaders()
	if to := s.whole(r, l, req.Topics); to != nil {
		return to.Request(ctx, req)
	}
	deadline := time.Now().Add(time.Duration(req.MaxWaitMillis) * time.Millisecond)
	shares := s.byLeader(l, req.Topics)
	f := splitFetch{router: r, req: req, maxBytes: max(req.MaxBytes/int32(max(len(shares), 1)), 1)}
	ask(ctx, r, shares, func(ctx context.Context, to kmsg.Requestor, part *fetchShare) error {
		return f.send(ctx, to, part, 0)
	})
	for ctx.Err() == nil && !f.enough(shares) {
		wait := time.Until(deadline)
		if wait < time.Millisecond {
			break
		}
		f.wait(ctx, shares, wait)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = req.Version
	resp.Topics = s.merge(req.Topics, l, shares)
	return resp, nil
}

type fetchShare = share[kmsg.FetchRequestTopic, kmsg.FetchResponseTopic]

// splitFetch is one fetch from several nodes at work.
type splitFetch struct {
	router   *Router
	req      *kmsg.FetchRequest
	maxBytes int32 // of each node
}

// send asks one node for its share; it may wait until it has more than the share's last answer.
func (f *splitFetch) send(ctx context.Context, to kmsg.Requestor, part *fetchShare, wait time.Duration) error {
	sub := *f.req
	sub.Topics, sub.MaxBytes = part.topics, f.maxBytes
	sub.MaxWaitMillis = int32(wait.Milliseconds())
	size, _ := weigh(part.answer)
	sub.MinBytes = int32(size + 1)
	resp, err := sub.RequestWith(ctx, to)
	if err != nil {
		return err
	}
	part.answer, part.code = resp.Topics, resp.ErrorCode
	return nil
}

// wait asks all nodes to wait and returns when one has answered: the others are called off and keep
// the answers they gave before.
func (f *splitFetch) wait(ctx context.Context, shares []*fetchShare, limit time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ask(ctx, f.router, shares, func(ctx context.Context, to kmsg.Requestor, part *fetchShare) error {
		err := f.send(ctx, to, part, limit)
		if err != nil && ctx.Err() != nil {
			return nil // called off
		}
		cancel()
		return err
	})
}

// enough tells whether the answers together can be given: there are MinBytes, or a partition or node
// has an error, which is news of its own.
func (f *splitFetch) enough(shares []*fetchShare) bool {
	total := 0
	for _, part := range shares {
		size, failed := weigh(part.answer)
		if failed || part.code != 0 {
			return true
		}
		total += size
	}
	return total >= int(f.req.MinBytes)
}

// weigh adds up the records of an answer and tells whether a partition has an error.
func weigh(topics []kmsg.FetchResponseTopic) (size int, failed bool) {
	for i := range topics {
		for j := range topics[i].Partitions {
			size += len(topics[i].Partitions[j].RecordBatches)
			failed = failed || topics[i].Partitions[j].ErrorCode != 0
		}
	}
	return size, failed
}

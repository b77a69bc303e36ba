package route

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
)

// listing is the place of things and codes in the answers of a key that asks all coordinators what they have.
type listing[S any] struct {
	topic  string
	things func(kmsg.Response) *[]S
	id     func(*S) string
	code   func(kmsg.Response) *int16
	// merge takes up what else an answer says; may be nil.
	merge func(into, from kmsg.Response)
}

// byAllCoordinators is the way of such a request. Every node that leads a partition of the internal topic is asked, and
// asked again while it cannot say or partitions move meanwhile, until the time is over. What there is then is answered
// with the code of those that are missing. Where there is no topic there is nothing to list.
func byAllCoordinators[S any](l listing[S]) way {
	return func(ctx context.Context, r *Router, req kmsg.Request) (kmsg.Response, error) {
		end := within(ctx, time.Now().Add(budget))
		for pause := firstPause; ; pause = min(2*pause, lastPause) {
			before := r.leadersOf(l.topic)
			resp, err := l.ask(ctx, r, req, before, end)
			switch {
			case ctx.Err() != nil:
				return nil, context.Cause(ctx)
			case err != nil:
				return nil, err
			}
			if *l.code(resp) == 0 && !slices.Equal(before, r.leadersOf(l.topic)) {
				*l.code(resp) = kerr.NotCoordinator.Code // one may have been missed on its way
			}
			if !moving(*l.code(resp)) || time.Until(end) <= pause {
				return resp, nil
			}
			if !sleep(ctx, pause) {
				return nil, context.Cause(ctx)
			}
		}
	}
}

// leadersOf lists the leaders of an internal topic's partitions.
func (r *Router) leadersOf(topic string) []int32 {
	t := r.cfg.Image().Topic(topic)
	if t == nil {
		return nil
	}
	out := make([]int32, len(t.Partitions))
	for i := range t.Partitions {
		out[i] = t.Partitions[i].Leader
	}
	return out
}

// ask asks each node once, all at the same time, and puts together what they say.
func (l *listing[S]) ask(ctx context.Context, r *Router, req kmsg.Request, leaders []int32, end time.Time) (
	kmsg.Response, error,
) {
	nodes := slices.Compact(slices.Sorted(slices.Values(leaders)))
	answers, errs := make([]kmsg.Response, len(nodes)), make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, node := range nodes {
		wg.Go(func() { answers[i], errs[i] = l.askNode(ctx, r, node, req, end) })
	}
	wg.Wait()
	resp := req.ResponseKind()
	seen := make(map[string]bool)
	for i, node := range nodes {
		if errs[i] != nil && node == r.cfg.NodeID && !notSent(errs[i]) {
			return nil, errs[i] // this node is closing
		}
		code := kerr.CoordinatorNotAvailable.Code
		if errs[i] == nil {
			code = *l.code(answers[i])
			for _, thing := range *l.things(answers[i]) {
				if id := l.id(&thing); !seen[id] {
					seen[id] = true
					*l.things(resp) = append(*l.things(resp), thing)
				}
			}
			if l.merge != nil {
				l.merge(resp, answers[i])
			}
		}
		if *l.code(resp) == 0 {
			*l.code(resp) = code
		}
	}
	return resp, nil
}

func (l *listing[S]) askNode(ctx context.Context, r *Router, node int32, req kmsg.Request, end time.Time) (
	kmsg.Response, error,
) {
	to := r.coordinatorAt(l.topic, node)
	switch {
	case to == nil:
		return nil, unreachable(node)
	case node == r.cfg.NodeID:
		return to.Request(ctx, req)
	}
	limit := max(time.Until(lastMoment(ctx, end)), leastLimit)
	return r.ask(ctx, to, cloneList(req), limit, 0, func() bool {
		return !slices.Contains(r.leadersOf(l.topic), node)
	})
}

// cloneList copies a request, for each message has its version set when it is sent.
func cloneList(req kmsg.Request) kmsg.Request {
	switch req := req.(type) {
	case *kmsg.ListGroupsRequest:
		own := *req
		return &own
	case *kmsg.ListTransactionsRequest:
		own := *req
		return &own
	}
	return req
}

func listGroups() way {
	return byAllCoordinators(listing[kmsg.ListGroupsResponseGroup]{
		topic: metadata.GroupTopic,
		things: func(r kmsg.Response) *[]kmsg.ListGroupsResponseGroup {
			return &r.(*kmsg.ListGroupsResponse).Groups
		},
		id:   func(g *kmsg.ListGroupsResponseGroup) string { return g.Group },
		code: func(r kmsg.Response) *int16 { return &r.(*kmsg.ListGroupsResponse).ErrorCode },
	})
}

func listTransactions() way {
	return byAllCoordinators(listing[kmsg.ListTransactionsResponseTransactionState]{
		topic: metadata.TxnTopic,
		things: func(r kmsg.Response) *[]kmsg.ListTransactionsResponseTransactionState {
			return &r.(*kmsg.ListTransactionsResponse).TransactionStates
		},
		id:   func(t *kmsg.ListTransactionsResponseTransactionState) string { return t.TransactionalID },
		code: func(r kmsg.Response) *int16 { return &r.(*kmsg.ListTransactionsResponse).ErrorCode },
		merge: func(into, from kmsg.Response) {
			to := into.(*kmsg.ListTransactionsResponse)
			for _, filter := range from.(*kmsg.ListTransactionsResponse).UnknownStateFilters {
				if !slices.Contains(to.UnknownStateFilters, filter) {
					to.UnknownStateFilters = append(to.UnknownStateFilters, filter)
				}
			}
		},
	})
}

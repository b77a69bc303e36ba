package route

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
)

// toController sends to the controller, and again while there is none or it is on the move: nothing was done then. When
// the time for that is over the node's own controller answers: it says that it is not the one.
//
// An answer of another node is passed on once this node has applied what it tells of, so that whoever asked finds it in
// the next answer from here too. After applyLimit it is passed on all the same, but for AlterPartition: a leader with a
// smaller ISR that still goes by an older min.insync.replicas could acknowledge what the next leader lacks.
func toController(ctx context.Context, r *Router, req kmsg.Request) (kmsg.Response, error) {
	end := within(ctx, time.Now().Add(budget))
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		id := r.cfg.ControllerID()
		resp, err := r.askController(ctx, id, req)
		switch {
		case err == nil && !refusedByController(resp):
			if id == r.cfg.NodeID || r.awaitApplied(ctx, resp) || req.Key() != kmsg.AlterPartition.Int16() {
				return resp, nil
			}
			return nil, errNotShown
		case ctx.Err() != nil:
			return resp, err
		case err != nil && !notSent(err) && (id == r.cfg.NodeID || !askedTwice(req)):
			return nil, err // it may have been done
		}
		if time.Until(end) <= pause {
			if notSent(err) {
				return r.cfg.Controller.Request(ctx, req)
			}
			return resp, err
		}
		if !sleep(ctx, pause) {
			return nil, context.Cause(ctx)
		}
	}
}

// askController asks the node of that id, or this one when none is known.
func (r *Router) askController(ctx context.Context, id int32, req kmsg.Request) (kmsg.Response, error) {
	if id == r.cfg.NodeID || id == nobody {
		return r.cfg.Controller.Request(ctx, req)
	}
	peer := r.cfg.Peer(id)
	if peer == nil {
		return nil, unreachable(id)
	}
	wait, limit := grace, budget
	if askedTwice(req) {
		wait = 0
	}
	if t, ok := req.(kmsg.TimeoutRequest); ok {
		limit = max(limit, time.Duration(t.Timeout())*time.Millisecond)
	}
	return r.ask(ctx, peer, req, limit+slack, wait, func() bool { return r.cfg.ControllerID() != id })
}

// unreachable is the error for a node that there is no way to.
type unreachable int32

func (u unreachable) Error() string { return fmt.Sprintf("node %d cannot be reached", int32(u)) }

// NotSent marks the error: nothing was done.
func (u unreachable) NotSent() bool { return true }

// askedTwice says of a request to the controller that it may be made again although it may have been done.
func askedTwice(req kmsg.Request) bool {
	switch req.(type) {
	case *kmsg.BrokerRegistrationRequest, *kmsg.BrokerHeartbeatRequest, *kmsg.AllocateProducerIDsRequest,
		*kmsg.ListPartitionReassignmentsRequest:
		return true
	}
	return false
}

// refusedByController tells whether all of an answer is that the node is not the controller.
func refusedByController(resp kmsg.Response) bool {
	refused := kerr.NotController.Code
	switch resp := resp.(type) {
	case *kmsg.CreateTopicsResponse:
		return all(resp.Topics, func(t *kmsg.CreateTopicsResponseTopic) bool { return t.ErrorCode == refused })
	case *kmsg.DeleteTopicsResponse:
		return all(resp.Topics, func(t *kmsg.DeleteTopicsResponseTopic) bool { return t.ErrorCode == refused })
	case *kmsg.CreatePartitionsResponse:
		return all(resp.Topics, func(t *kmsg.CreatePartitionsResponseTopic) bool { return t.ErrorCode == refused })
	case *kmsg.IncrementalAlterConfigsResponse:
		return all(resp.Resources, func(r *kmsg.IncrementalAlterConfigsResponseResource) bool {
			return r.ErrorCode == refused
		})
	case *kmsg.ElectLeadersResponse:
		return resp.ErrorCode == refused
	case *kmsg.AlterPartitionAssignmentsResponse:
		return resp.ErrorCode == refused
	case *kmsg.ListPartitionReassignmentsResponse:
		return resp.ErrorCode == refused
	case *kmsg.AlterPartitionResponse:
		return resp.ErrorCode == refused
	case *kmsg.BrokerRegistrationResponse:
		return resp.ErrorCode == refused
	case *kmsg.BrokerHeartbeatResponse:
		return resp.ErrorCode == refused
	case *kmsg.UnregisterBrokerResponse:
		return resp.ErrorCode == refused
	case *kmsg.AllocateProducerIDsResponse:
		return resp.ErrorCode == refused
	}
	return false
}

func all[T any](items []T, is func(*T) bool) bool {
	for i := range items {
		if !is(&items[i]) {
			return false
		}
	}
	return len(items) > 0
}

// errNotShown keeps an answer back that this node's metadata does not show yet.
var errNotShown = errors.New("the controller made the change, and this node has not heard of it yet")

// awaitApplied waits until this node has applied the change that an answer of the controller speaks of. It gives up
// after a while, and reports whether it did not have to.
func (r *Router) awaitApplied(ctx context.Context, resp kmsg.Response) bool {
	tags := tagsOf(resp)
	if tags == nil {
		return true
	}
	index, ok := ktag.AppliedIndex(tags)
	if !ok || index <= 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, applyLimit)
	defer cancel()
	if r.cfg.AwaitApplied != nil {
		return r.cfg.AwaitApplied(ctx, uint64(index)) == nil
	}
	for r.cfg.Image().Index < uint64(index) {
		if !sleep(ctx, firstPause) {
			return false
		}
	}
	return true
}

// tagsOf is where an answer of the controller has room for what Kafka has no field for.
func tagsOf(resp kmsg.Response) *kmsg.Tags {
	switch resp := resp.(type) {
	case *kmsg.CreateTopicsResponse:
		return &resp.UnknownTags
	case *kmsg.DeleteTopicsResponse:
		return &resp.UnknownTags
	case *kmsg.CreatePartitionsResponse:
		return &resp.UnknownTags
	case *kmsg.IncrementalAlterConfigsResponse:
		return &resp.UnknownTags
	case *kmsg.ElectLeadersResponse:
		return &resp.UnknownTags
	case *kmsg.AlterPartitionAssignmentsResponse:
		return &resp.UnknownTags
	case *kmsg.AlterPartitionResponse:
		return &resp.UnknownTags
	case *kmsg.BrokerRegistrationResponse:
		return &resp.UnknownTags
	case *kmsg.UnregisterBrokerResponse:
		return &resp.UnknownTags
	}
	return nil
}

// sleep waits; false when ctx ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

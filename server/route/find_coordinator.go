package route

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
)

// The types of coordinators.
const (
	groupCoordinator = 0
	txnCoordinator   = 1
)

// findCoordinator answers FindCoordinator by this node's image. It waits for the internal topic and a leader as any
// other request to a coordinator does, and says COORDINATOR_NOT_AVAILABLE when the time is over.
func findCoordinator(ctx context.Context, r *Router, request kmsg.Request) (kmsg.Response, error) {
	req := request.(*kmsg.FindCoordinatorRequest)
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	topic := metadata.GroupTopic
	if req.CoordinatorType == txnCoordinator {
		topic = metadata.TxnTopic
	}
	end := within(ctx, time.Now().Add(budget))
	for _, key := range req.CoordinatorKeys {
		c := kmsg.NewFindCoordinatorResponseCoordinator()
		c.Key, c.NodeID, c.Port = key, -1, -1
		switch {
		case req.CoordinatorType != groupCoordinator && req.CoordinatorType != txnCoordinator:
			c.ErrorCode = kerr.InvalidRequest.Code
		case key == "" && req.CoordinatorType == groupCoordinator:
			c.ErrorCode = kerr.InvalidGroupID.Code
		case key == "":
			c.ErrorCode = kerr.InvalidRequest.Code
		default:
			r.find(ctx, topic, &c, end)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		resp.Coordinators = append(resp.Coordinators, c)
	}
	return resp, nil
}

// find looks for the coordinator of one id.
func (r *Router) find(ctx context.Context, topic string, c *kmsg.FindCoordinatorResponseCoordinator, end time.Time) {
	t := time.NewTimer(max(time.Until(end), 0))
	defer t.Stop()
	for {
		changed := r.changed()
		at := r.homeOf(topic, c.Key)
		if at.number < 0 && r.makeInternal(ctx, topic, end) {
			at = r.homeOf(topic, c.Key)
		}
		if b := r.cfg.Image().Broker(at.node); b != nil && len(b.Endpoints) > 0 {
			c.NodeID, c.Host, c.Port = at.node, b.Endpoints[0].Host, b.Endpoints[0].Port
			return
		}
		again := time.NewTimer(lastPause)
		select {
		case <-changed:
		case <-again.C:
		case <-t.C:
			again.Stop()
			c.ErrorCode = kerr.CoordinatorNotAvailable.Code
			return
		case <-ctx.Done():
			again.Stop()
			return
		}
		again.Stop()
	}
}

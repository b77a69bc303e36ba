package route

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
)

// describeLogDirs routes DescribeLogDirs: to the broker that a tag of the request names, else to the node asked.
func describeLogDirs(ctx context.Context, r *Router, request kmsg.Request) (kmsg.Response, error) {
	req := request.(*kmsg.DescribeLogDirsRequest)
	id, ok := ktag.Broker(&req.UnknownTags)
	if !ok || id == r.cfg.NodeID {
		return r.cfg.Broker.Request(ctx, req)
	}
	resp, err := r.askBroker(ctx, id, req)
	if err != nil && ctx.Err() == nil {
		refusal := kmsg.NewPtrDescribeLogDirsResponse()
		refusal.Version, refusal.ErrorCode = req.Version, kerr.BrokerNotAvailable.Code
		return refusal, nil
	}
	return resp, err
}

// askBroker asks one broker for something about itself. A broker that the image has no longer in service is not waited
// for.
func (r *Router) askBroker(ctx context.Context, id int32, req kmsg.Request) (kmsg.Response, error) {
	to := r.node(id)
	if to == nil {
		return nil, unreachable(id)
	}
	if id == r.cfg.NodeID {
		return to.Request(ctx, req)
	}
	return r.ask(ctx, to, req, budget, grace, func() bool { return !r.cfg.Image().Active(id) })
}

package controller

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
)

// handleUnregisterBroker forgets a broker that will not come back. It must be out of service and have no
// replicas.
func (c *Controller) handleUnregisterBroker(
	ctx context.Context, r *kmsg.UnregisterBrokerRequest,
) (*kmsg.UnregisterBrokerResponse, error) {
	o, err := c.decide(ctx, &metadata.UnregisterBroker{ID: r.BrokerID})
	if err != nil {
		return nil, err
	}
	resp := r.ResponseKind().(*kmsg.UnregisterBrokerResponse)
	setIndex(&resp.UnknownTags, o.index)
	resp.ErrorCode, resp.ErrorMessage = o.refusal.Code, message(o.refusal)
	if o.refusal.Code == 0 {
		c.logger.Info("broker unregistered", "node", r.BrokerID)
	}
	return resp, nil
}

package controller

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
)

// producerIDBlock is the number of producer ids that a broker gets at a time.
const producerIDBlock = 1000

// handleAllocateProducerIDs gives a broker a block of producer ids that nobody else gets.
func (c *Controller) handleAllocateProducerIDs(
	ctx context.Context, r *kmsg.AllocateProducerIDsRequest,
) (*kmsg.AllocateProducerIDsResponse, error) {
	o, err := c.decide(ctx, &metadata.AllocateProducerIDs{
		BrokerID: r.BrokerID, BrokerEpoch: r.BrokerEpoch, Count: producerIDBlock,
	})
	if err != nil {
		return nil, err
	}
	resp := r.ResponseKind().(*kmsg.AllocateProducerIDsResponse)
	setIndex(&resp.UnknownTags, o.index)
	if resp.ErrorCode = o.refusal.Code; o.refusal.Code == 0 {
		resp.ProducerIDStart, resp.ProducerIDLen = o.FirstProducerID, producerIDBlock
	}
	return resp, nil
}

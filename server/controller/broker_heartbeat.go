package controller

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/server/metadata"
)

// handleBrokerHeartbeat keeps a broker's session alive and moves the broker between its states:
//
//	FENCED -> UNFENCED               it knows the metadata up to its registration, and does not want to be fenced
//	UNFENCED -> CONTROLLED_SHUTDOWN  it wants to stop and leads partitions
//	any -> SHUTDOWN_NOW, FENCED      it wants to stop, leads nothing that another could lead, and the others know
//
// A broker that may have been replaced as the leader of something asks with Certain (package ktag): then this node
// makes sure first that it leads the quorum still.
//
// A broker that has asked to stop stays fenced until it registers anew, whatever old heartbeats still come, and under
// the next controller as well.
func (c *Controller) handleBrokerHeartbeat(
	ctx context.Context, r *kmsg.BrokerHeartbeatRequest,
) (*kmsg.BrokerHeartbeatResponse, error) {
	resp := r.ResponseKind().(*kmsg.BrokerHeartbeatResponse)
	if !c.leads() || ktag.Certain(&r.UnknownTags) && c.config.Verify != nil && c.config.Verify() != nil {
		resp.ErrorCode = kerr.NotController.Code
		return resp, nil
	}
	b := c.machine.Image().Broker(r.BrokerID)
	switch {
	case b == nil:
		resp.ErrorCode = kerr.BrokerIDNotRegistered.Code
		return resp, nil
	case b.Epoch != r.BrokerEpoch:
		resp.ErrorCode = kerr.StaleBrokerEpoch.Code
		return resp, nil
	}
	c.mu.Lock()
	s := c.live.hear(b.ID, b.Epoch, r.CurrentMetadataOffset, time.Now())
	stopping := s.shutdown > 0
	c.mu.Unlock()
	for _, id := range ktag.RefusedBrokers(&r.UnknownTags) {
		c.Suspect(id)
	}
	var o outcome
	var err error
	switch {
	case r.WantShutdown:
		resp.ShouldShutdown, o, err = c.shutDown(ctx, b)
	case r.WantFence && !b.Fenced:
		o, err = c.changeBroker(ctx, b, fence(b), "it wants to be")
	case !r.WantFence && !stopping && !b.Stopping && b.Fenced && r.CurrentMetadataOffset >= b.Epoch:
		o, err = c.changeBroker(ctx, b, metadata.BrokerChange{State: metadata.BrokerActive}, "it knows the metadata")
	}
	if err != nil {
		return nil, err
	}
	image := c.machine.Image()
	resp.ErrorCode = o.refusal.Code
	resp.IsCaughtUp = r.CurrentMetadataOffset >= b.Epoch
	resp.IsFenced = !serves(image, b)
	setIndex(&resp.UnknownTags, int64(image.Index))
	return resp, nil
}

// serves reports whether that registration of a broker is in service.
func serves(image *metadata.Image, b *metadata.Broker) bool {
	now := image.Broker(b.ID)
	return now != nil && now.Epoch == b.Epoch && !now.Fenced
}

// fence is the change that takes a broker out of service, one that shuts down for good.
func fence(b *metadata.Broker) metadata.BrokerChange {
	return metadata.BrokerChange{State: metadata.BrokerFenced, Stopping: b.ShuttingDown}
}

// changeBroker moves a broker to another state and logs why.
func (c *Controller) changeBroker(
	ctx context.Context, b *metadata.Broker, change metadata.BrokerChange, why string,
) (outcome, error) {
	change.ID, change.Epoch = b.ID, b.Epoch
	o, err := c.decide(ctx, &metadata.ChangeBrokers{
		Changes: []metadata.BrokerChange{change}, Defaults: c.machine.Image().StaticDefaults(),
	})
	if err != nil || o.refusal.Code != 0 {
		return o, err
	}
	if change.State == metadata.BrokerFenced {
		c.mu.Lock()
		c.live.fenced(b)
		c.mu.Unlock()
	}
	if o.Changed {
		c.logger.Info("broker changed", "node", b.ID, "epoch", b.Epoch, "state", string(change.State), "why", why)
	}
	return o, nil
}

// shutDown takes a broker that wants to stop one step further and reports whether it may go. One that leads
// partitions hands them over first, and may go when no other broker can take what it still leads and those in
// service know who leads now. A broker that nobody can stand in for goes at once and leaves no trace.
func (c *Controller) shutDown(ctx context.Context, b *metadata.Broker) (bool, outcome, error) {
	image := c.machine.Image()
	if len(image.Brokers()) == 1 || b.Stopping {
		c.beginShutdown(b, int64(image.Index))
		return true, outcome{}, nil
	}
	if !b.Fenced && !b.ShuttingDown && leadsAny(image, b.ID) {
		shuttingDown := metadata.BrokerChange{State: metadata.BrokerShuttingDown}
		o, err := c.changeBroker(ctx, b, shuttingDown, "it wants to stop")
		if err == nil && o.refusal.Code == 0 {
			c.beginShutdown(b, o.index)
		}
		return false, o, err
	}
	began := c.beginShutdown(b, int64(image.Index))
	c.mu.Lock()
	known := c.live.allReached(began, image, b.ID, time.Now())
	c.mu.Unlock()
	if b.ShuttingDown && (!known || leadsForNoReason(image, b.ID)) {
		return false, outcome{}, nil
	}
	stopped := metadata.BrokerChange{State: metadata.BrokerFenced, Stopping: true}
	o, err := c.changeBroker(ctx, b, stopped, "it stops")
	return err == nil && o.refusal.Code == 0, o, err
}

// beginShutdown notes since which index of the metadata a broker is in shutdown, and returns the first one noted.
func (c *Controller) beginShutdown(b *metadata.Broker, index int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.live.session(b.ID, b.Epoch)
	if s.shutdown == 0 {
		s.shutdown = max(index, 1)
	}
	return s.shutdown
}

func leadsAny(image *metadata.Image, id int32) bool {
	return anyPartition(image, func(p *metadata.Partition) bool { return p.Leader == id })
}

// leadsForNoReason reports whether the broker leads a partition that another one could lead.
func leadsForNoReason(image *metadata.Image, id int32) bool {
	return anyPartition(image, func(p *metadata.Partition) bool {
		return p.Leader == id && slices.ContainsFunc(p.ISR, func(r int32) bool { return r != id && image.Active(r) })
	})
}

func anyPartition(image *metadata.Image, is func(*metadata.Partition) bool) bool {
	for t := range image.Topics() {
		for i := range t.Partitions {
			if is(&t.Partitions[i]) {
				return true
			}
		}
	}
	return false
}

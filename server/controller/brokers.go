package controller

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
)

// Registration is what a broker tells of itself when it starts.
type Registration struct {
	// ClusterID is the cluster that the broker's data is of; empty when it has none yet.
	ClusterID   string
	ID          int32
	Incarnation [16]byte // random for every start
	Endpoints   []metadata.Endpoint
	Rack        string
	// PreviousEpoch is the epoch of the run that ended cleanly before this one, or -1.
	PreviousEpoch int64
}

// RegisterBroker registers a broker of this cluster and returns its epoch. The first broker gives the
// cluster its id. A refusal is a *kerr.Error wrapped with what to do.
func (c *Controller) RegisterBroker(ctx context.Context, r Registration) (int64, error) {
	result, refusal, err := c.decide(ctx, &metadata.RegisterBroker{
		ClusterID: r.ClusterID, NewClusterID: c.newUUID().String(), ID: r.ID, Incarnation: r.Incarnation,
		Endpoints: r.Endpoints, Rack: r.Rack, PreviousEpoch: r.PreviousEpoch,
	})
	if err != nil {
		return -1, fmt.Errorf("register broker %d: %w", r.ID, err)
	}
	if refusal.Code != 0 {
		return -1, fmt.Errorf("register broker %d: %w: %s", r.ID, refusal.Err(), refusal.Message)
	}
	return result.Epoch, nil
}

// decide proposes a command with a single item, unless it would fail or change nothing.
func (c *Controller) decide(ctx context.Context, command metadata.Command) (metadata.Result, metadata.Item, error) {
	if !c.quorum.IsLeader() {
		return metadata.Result{}, c.notController(), nil
	}
	r := c.machine.Image().Evaluate(command)
	if r.Items[0].Code == 0 && r.Changed {
		var refusal metadata.Item
		var err error
		if r, refusal, err = c.propose(ctx, command, 0); err != nil || refusal.Code != 0 {
			return r, refusal, err
		}
	}
	return r, r.Items[0], nil
}

// handleBrokerRegistration is RegisterBroker for a broker on another node.
func (c *Controller) handleBrokerRegistration(
	ctx context.Context, r *kmsg.BrokerRegistrationRequest,
) (*kmsg.BrokerRegistrationResponse, error) {
	command := &metadata.RegisterBroker{
		ClusterID: r.ClusterID, NewClusterID: c.newUUID().String(), ID: r.BrokerID, Incarnation: r.IncarnationID,
		PreviousEpoch: r.PreviousBrokerEpoch,
	}
	if r.Rack != nil {
		command.Rack = *r.Rack
	}
	for _, l := range r.Listeners {
		command.Endpoints = append(command.Endpoints, metadata.Endpoint{Name: l.Name, Host: l.Host, Port: int32(l.Port)})
	}
	result, refusal, err := c.decide(ctx, command)
	if err != nil {
		return nil, err
	}
	resp := r.ResponseKind().(*kmsg.BrokerRegistrationResponse)
	if resp.ErrorCode = refusal.Code; refusal.Code == 0 {
		resp.BrokerEpoch = result.Epoch
	}
	return resp, nil
}

// producerIDBlock is the number of producer ids that a broker gets at a time.
const producerIDBlock = 1000

// handleAllocateProducerIDs gives a broker a block of producer ids that nobody else gets.
func (c *Controller) handleAllocateProducerIDs(
	ctx context.Context, r *kmsg.AllocateProducerIDsRequest,
) (*kmsg.AllocateProducerIDsResponse, error) {
	result, refusal, err := c.decide(ctx, &metadata.AllocateProducerIDs{
		BrokerID: r.BrokerID, BrokerEpoch: r.BrokerEpoch, Count: producerIDBlock,
	})
	if err != nil {
		return nil, err
	}
	resp := r.ResponseKind().(*kmsg.AllocateProducerIDsResponse)
	if resp.ErrorCode = refusal.Code; refusal.Code == 0 {
		resp.ProducerIDStart, resp.ProducerIDLen = result.FirstProducerID, producerIDBlock
	}
	return resp, nil
}

var _ kmsg.Requestor = (*Controller)(nil)

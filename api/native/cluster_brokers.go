package native

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/api"
	"millrace/client"
)

const (
	// diskUseTimeout bounds how long a list of brokers waits for what their data takes.
	diskUseTimeout = 3 * time.Second
	// maxListed bounds lists in answers that tell what was done.
	maxListed = 1000
)

// UnmarshalJSON reads the body strictly.
func (d *BrokerDrain) UnmarshalJSON(b []byte) error {
	type plain BrokerDrain
	return api.Decode(b, (*plain)(d))
}

// ListBrokers lists the brokers with what they hold.
func (s *Server) ListBrokers(ctx context.Context, _ ListBrokersRequestObject) (ListBrokersResponseObject, error) {
	state, err := s.client.ClusterState(ctx)
	if err != nil {
		return nil, err
	}
	topics, err := s.client.Topics(ctx)
	if err != nil {
		return nil, err
	}
	out := ListBrokers200JSONResponse{Items: make([]ClusterBroker, len(state.Brokers))}
	at := make(map[int32]*ClusterBroker)
	for i := range state.Brokers {
		out.Items[i] = brokerResponse(&state.Brokers[i], state.Controller)
		at[state.Brokers[i].ID] = &out.Items[i]
	}
	for _, t := range topics {
		for i := range t.Partitions {
			countReplicas(at, &t.Partitions[i])
		}
	}
	s.addDiskUse(ctx, out.Items)
	return out, nil
}

func brokerResponse(b *client.BrokerState, controller int32) ClusterBroker {
	out := ClusterBroker{
		Id: b.ID, Host: b.Host, Port: b.Port, Rack: b.Rack, State: Active, Controller: b.ID == controller,
	}
	switch {
	case b.Fenced:
		out.State = Fenced
	case b.ShuttingDown:
		out.State = ShuttingDown
	}
	return out
}

// countReplicas counts one partition for the brokers that have it.
func countReplicas(at map[int32]*ClusterBroker, p *client.Partition) {
	for _, id := range p.Replicas {
		b := at[id]
		if b == nil {
			continue
		}
		b.Replicas++
		if slices.Contains(p.ISR, id) {
			b.InSync++
		}
		if p.Leader == id {
			b.Leaders++
		}
	}
}

// addDiskUse asks the brokers that answer what their data takes, all at once.
func (s *Server) addDiskUse(ctx context.Context, brokers []ClusterBroker) {
	ctx, cancel := context.WithTimeout(ctx, diskUseTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for i := range brokers {
		b := &brokers[i]
		if b.State == Fenced {
			continue
		}
		wg.Go(func() {
			use, err := s.client.DiskUse(ctx, b.Id)
			if err != nil {
				return
			}
			b.Bytes = &use.Bytes
			if use.TotalBytes >= 0 {
				b.DiskBytes = &use.TotalBytes
			}
			if use.UsableBytes >= 0 {
				b.DiskFreeBytes = &use.UsableBytes
			}
		})
	}
	wg.Wait()
}

// registered refuses a broker that the cluster does not know.
func registered(state *client.ClusterState, id int32) error {
	if state.Broker(id) != nil {
		return nil
	}
	ids := make([]int32, len(state.Brokers))
	for i := range state.Brokers {
		ids[i] = state.Brokers[i].ID
	}
	return client.Fault(kerr.BrokerIDNotRegistered, "%d is none of the brokers %s", id, idList(ids))
}

// DecommissionBroker makes the cluster forget a broker.
func (s *Server) DecommissionBroker(ctx context.Context, req DecommissionBrokerRequestObject) (
	DecommissionBrokerResponseObject, error,
) {
	id := req.BrokerId
	state, err := s.client.ClusterState(ctx)
	if err != nil {
		return nil, err
	}
	if err := registered(state, id); err != nil {
		return nil, err
	}
	topics, err := s.client.Topics(ctx)
	if err != nil {
		return nil, err
	}
	if held := replicasOn(topics, id); len(held) > 0 {
		return nil, api.Refuse(api.ClusterConflict, "broker %d still holds %s (%s): move them off first, with "+
			"`millrace cluster drain %d --wait` or POST /v1/cluster/brokers/%d/drain", id,
			count(len(held), "replica", "replicas"), firstFew(held), id, id)
	}
	if !state.Broker(id).Fenced {
		return nil, api.Refuse(api.ClusterConflict, "broker %d is alive and would register again: stop its node first, "+
			"and send this again when GET /v1/cluster/brokers shows it as fenced", id)
	}
	if err := s.client.UnregisterBroker(ctx, id); err != nil {
		return nil, err
	}
	return DecommissionBroker204Response{}, nil
}

// replicasOn names the partitions that a broker holds a replica of.
func replicasOn(topics []*client.Topic, broker int32) (held []string) {
	for _, t := range topics {
		for i := range t.Partitions {
			if slices.Contains(t.Partitions[i].Replicas, broker) {
				held = append(held, client.TopicPartition{Topic: t.Name, Partition: int32(i)}.String())
			}
		}
	}
	return held
}

// DrainBroker moves all replicas off a broker, or tells how it would.
func (s *Server) DrainBroker(ctx context.Context, req DrainBrokerRequestObject) (DrainBrokerResponseObject, error) {
	rate, err := throttleRate(req.Body.ThrottleBytesPerSecond)
	if err != nil {
		return nil, err
	}
	v, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	if err := registered(v.state, req.BrokerId); err != nil {
		return nil, err
	}
	plan := v.drain(req.BrokerId)
	dry := req.Body.DryRun != nil && *req.Body.DryRun
	out := plan.response(req.BrokerId)
	if dry {
		out.DryRun = true
		return DrainBroker200JSONResponse(out), nil
	}
	if len(plan.unmovable) > 0 {
		return nil, plan.refusal(req.BrokerId)
	}
	if err := s.move(ctx, plan.moves, rate); err != nil {
		return nil, err
	}
	return DrainBroker202JSONResponse(out), nil
}

func (p *drainPlan) response(broker int32) DrainPlan {
	out := DrainPlan{
		Broker: broker, Count: int32(len(p.moves)), Moves: []PlannedMove{},
		Unmovable: UnmovableList{Count: int32(len(p.unmovable)), Items: []UnmovablePartition{}},
	}
	for _, m := range p.moves[:min(len(p.moves), maxListed)] {
		out.Moves = append(out.Moves, PlannedMove{
			Topic: m.Topic, Partition: m.Partition, Replicas: m.replicas, To: m.to,
		})
	}
	for _, u := range p.unmovable[:min(len(p.unmovable), maxListed)] {
		out.Unmovable.Items = append(out.Unmovable.Items, UnmovablePartition{
			Topic: u.Topic, Partition: u.Partition, Detail: u.why,
		})
	}
	return out
}

// refusal says why a plan cannot be carried out: the partitions that have nowhere to go, by reason.
func (p *drainPlan) refusal(broker int32) error {
	var whys []string
	held := map[string][]string{}
	for _, u := range p.unmovable {
		if held[u.why] == nil {
			whys = append(whys, u.why)
		}
		held[u.why] = append(held[u.why], u.String())
	}
	parts := make([]string, len(whys))
	for i, why := range whys {
		n := len(held[why])
		parts[i] = fmt.Sprintf("%s (%s) %s nowhere to go, since %s",
			count(n, "partition", "partitions"), firstFew(held[why]), hasHave(n), why)
	}
	return api.Refuse(api.ClusterConflict, "broker %s cannot be drained: %s",
		strconv.Itoa(int(broker)), strings.Join(parts, "; "))
}

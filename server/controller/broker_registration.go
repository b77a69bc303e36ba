package controller

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/server/metadata"
)

const (
	// maxEndpoints bounds the endpoints of a broker, and maxEndpointText each of their texts.
	maxEndpoints    = 16
	maxEndpointText = 255
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
	// DataEpoch is the epoch under which the data directory was written last, -1 for a new one, 0 when not told.
	DataEpoch int64
	// Intact says that the data directory holds all that the broker acknowledged under DataEpoch.
	Intact bool
	// Fenced brokers serve once a heartbeat says that they know the metadata up to their registration.
	Fenced bool
}

// RegisterBroker registers a broker of this cluster and returns its epoch. The first broker gives the
// cluster its id. A refusal is a *kerr.Error wrapped with what to do.
func (c *Controller) RegisterBroker(ctx context.Context, r Registration) (int64, error) {
	o, err := c.register(ctx, r)
	if err != nil {
		return -1, fmt.Errorf("register broker %d: %w", r.ID, err)
	}
	if o.refusal.Code != 0 {
		return -1, fmt.Errorf("register broker %d: %w: %s", r.ID, o.refusal.Err(), o.refusal.Message)
	}
	return o.Epoch, nil
}

// handleBrokerRegistration is RegisterBroker for a broker on any node. The broker starts fenced. The same
// incarnation again keeps its epoch.
func (c *Controller) handleBrokerRegistration(
	ctx context.Context, r *kmsg.BrokerRegistrationRequest,
) (*kmsg.BrokerRegistrationResponse, error) {
	reg := Registration{
		ClusterID: r.ClusterID, ID: r.BrokerID, Incarnation: r.IncarnationID,
		PreviousEpoch: r.PreviousBrokerEpoch, Intact: ktag.Intact(&r.UnknownTags), Fenced: true,
	}
	if r.Rack != nil {
		reg.Rack = *r.Rack
	}
	reg.DataEpoch, _ = ktag.DataEpoch(&r.UnknownTags)
	for _, l := range r.Listeners {
		reg.Endpoints = append(reg.Endpoints, metadata.Endpoint{Name: l.Name, Host: l.Host, Port: int32(l.Port)})
	}
	o, err := c.register(ctx, reg)
	if err != nil {
		return nil, err
	}
	resp := r.ResponseKind().(*kmsg.BrokerRegistrationResponse)
	setIndex(&resp.UnknownTags, o.index)
	if resp.ErrorCode = o.refusal.Code; resp.ErrorCode != 0 {
		ktag.SetErrorMessage(&resp.UnknownTags, o.refusal.Message)
		return resp, nil
	}
	resp.BrokerEpoch = o.Epoch
	return resp, nil
}

func (c *Controller) register(ctx context.Context, r Registration) (outcome, error) {
	if !c.leads() {
		return outcome{refusal: c.notController()}, nil
	}
	if refusal := checkRegistration(r); refusal.Code != 0 {
		return outcome{refusal: refusal}, nil
	}
	c.awaitCertainty(ctx, r.ID)
	old := c.machine.Image().Broker(r.ID)
	if refusal := c.checkSession(ctx, old, r); refusal.Code != 0 {
		return outcome{refusal: refusal}, nil
	}
	o, err := c.decide(ctx, &metadata.RegisterBroker{
		ClusterID: r.ClusterID, NewClusterID: c.newUUID().String(), ID: r.ID, Incarnation: r.Incarnation,
		Endpoints: r.Endpoints, Rack: r.Rack, PreviousEpoch: r.PreviousEpoch, Fenced: r.Fenced,
		Intact: r.Intact, DataEpoch: r.DataEpoch, Defaults: c.machine.Image().StaticDefaults(),
	})
	if err != nil || o.refusal.Code != 0 || !c.leads() {
		return o, err
	}
	c.mu.Lock()
	c.live.hear(r.ID, o.Epoch, 0, time.Now())
	c.mu.Unlock()
	c.alert()
	if o.Changed {
		c.logger.Info("broker registered", "node", r.ID, "epoch", o.Epoch, "intact", r.Intact)
	}
	return o, nil
}

// certaintyLimit bounds how long a registration waits for probes of other brokers.
const certaintyLimit = 500 * time.Millisecond

// awaitCertainty waits until probes under way have told which brokers are gone. A broker that registers loses its
// leaderships and its place in the ISRs, to others that had better be there: most of all after all have started anew.
func (c *Controller) awaitCertainty(ctx context.Context, id int32) {
	if c.config.Probe == nil {
		return
	}
	for limit := time.Now().Add(certaintyLimit); time.Now().Before(limit); {
		image := c.machine.Image()
		c.mu.Lock()
		uncertain := len(image.Brokers()) > 1 && c.live.uncertain(image, id)
		c.mu.Unlock()
		if !uncertain || !sleep(ctx, probePause/10) {
			return
		}
	}
}

func checkRegistration(r Registration) metadata.Item {
	if len(r.Endpoints) > maxEndpoints {
		return refuse(kerr.InvalidRegistration, "broker %d gives %d endpoints: at most %d are allowed",
			r.ID, len(r.Endpoints), maxEndpoints)
	}
	texts := []string{r.Rack, r.ClusterID}
	for _, e := range r.Endpoints {
		texts = append(texts, e.Name, e.Host)
	}
	for _, text := range texts {
		if len(text) > maxEndpointText {
			return refuse(kerr.InvalidRegistration, "broker %d gives a text of %d bytes for an endpoint, a rack or a "+
				"cluster id: at most %d are allowed", r.ID, len(text), maxEndpointText)
		}
	}
	return metadata.Item{}
}

// checkSession refuses a broker whose id belongs to another process that lives. The other one is gone for
// certain when the new one answers at its address, or when nobody does any more.
func (c *Controller) checkSession(ctx context.Context, old *metadata.Broker, r Registration) metadata.Item {
	same := old != nil && slices.Equal(old.Endpoints, r.Endpoints)
	if old == nil || old.Incarnation == r.Incarnation || same && c.config.Probe == nil {
		return metadata.Item{}
	}
	p := paceOf(c.machine.Image())
	c.mu.Lock()
	live := c.live.live(old, c.config.NodeID, p, time.Now())
	probing := live && c.freeProbes() > 0
	if probing {
		c.probes++
	}
	c.mu.Unlock()
	gone := probing && (same && c.answers(ctx, old, r) || c.refuses(ctx, old))
	if probing {
		c.mu.Lock()
		c.probes--
		c.mu.Unlock()
	}
	switch {
	case !live || gone:
		return metadata.Item{}
	case same:
		return refuse(kerr.DuplicateBrokerRegistration, "broker id %d belongs to a running process, which answers at %s, "+
			"where this one says that it is: give this one an address of its own, and another --node-id, or stop the other "+
			"one; if it is gone already, its id is free %v after its last heartbeat", r.ID, addressOf(old), p.session)
	}
	return refuse(kerr.DuplicateBrokerRegistration,
		"broker id %d belongs to a running process at %s: give this one another --node-id, or stop the other one; "+
			"if it is gone already, its id is free %v after its last heartbeat", r.ID, addressOf(old), p.session)
}

// answers reports whether the process that registers answers at the address of the one before.
func (c *Controller) answers(ctx context.Context, old *metadata.Broker, r Registration) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	wanted := *old
	wanted.Incarnation = r.Incarnation
	return c.config.Probe(ctx, &wanted) == nil
}

// addressOf says in words where a broker answers.
func addressOf(b *metadata.Broker) string {
	if len(b.Endpoints) == 0 {
		return "an address that is not known"
	}
	return net.JoinHostPort(b.Endpoints[0].Host, strconv.Itoa(int(b.Endpoints[0].Port)))
}

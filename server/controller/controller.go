// Package controller answers the requests that change the cluster: topics, partitions, configuration,
// producer ids, broker registration. It places replicas, fills in defaults, and proposes metadata
// commands to the quorum; it keeps no state of its own, so any leader of the quorum can be it.
//
// It promises that an answer of success was applied on this node, so that the very next request here
// sees it. Its callers reach it as a kmsg.Requestor.
package controller

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
	"millrace/server/quorum"
)

// Config is what a Controller works with.
type Config struct {
	Machine *metadata.Machine
	Quorum  quorum.Quorum
	// Rand supplies topic ids and placement; the controller alone uses it from then on.
	Rand *rand.Rand
	// Limits bounds the metadata; the zero value means metadata.DefaultLimits.
	Limits metadata.Limits
	Logger *slog.Logger
}

// Controller is a kmsg.Requestor for the keys that change the cluster.
type Controller struct {
	config Config

	mu   sync.Mutex
	rand *rand.Rand // guarded by mu
}

// New returns a controller.
func New(c Config) *Controller {
	if c.Limits == (metadata.Limits{}) {
		c.Limits = metadata.DefaultLimits()
	}
	return &Controller{config: c, rand: c.Rand}
}

// Keys returns the request keys that Request answers.
func Keys() []kmsg.Key {
	return []kmsg.Key{
		kmsg.CreateTopics, kmsg.DeleteTopics, kmsg.CreatePartitions, kmsg.IncrementalAlterConfigs,
		kmsg.BrokerRegistration, kmsg.AllocateProducerIDs,
	}
}

// Request answers one request. An error means that there is no answer: the outcome is unknown.
func (c *Controller) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	return nil, fmt.Errorf("controller: no handler for %s", kmsg.NameForKey(r.Key()))
}

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

// RegisterBroker registers a broker of this cluster and returns its epoch. A refusal is a *kerr.Error
// wrapped with what to do.
func (c *Controller) RegisterBroker(ctx context.Context, r Registration) (int64, error) {
	return 0, fmt.Errorf("controller: register broker %d", r.ID)
}

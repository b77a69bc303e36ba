// Package controller answers the requests that change the cluster: topics, partitions, replicas and their
// leaders, configuration, producer ids, brokers. It places replicas, fills in defaults, and proposes
// metadata commands to the quorum. While this node leads the quorum it also keeps watch over the brokers:
// it fences those that fall silent or whose port refuses, and gives leaderships back to preferred leaders.
//
// What was agreed on is in the metadata alone. The controller's own state is soft, which brokers it has
// heard of and when; every term starts it anew, so any leader of the quorum can be the controller.
//
// It promises that an answer of success was applied on this node, so that the very next request here
// sees it, and tells the index of the metadata at which other nodes see it too (ktag.AppliedIndex). Its
// callers reach it as a kmsg.Requestor.
package controller

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/server/metadata"
	"millrace/server/quorum"
)

// Config is what a Controller works with.
type Config struct {
	// NodeID is this node's own: its port is not probed.
	NodeID  int32
	Machine *metadata.Machine
	Quorum  quorum.Quorum
	// Rand supplies ids and placement; the controller alone uses it from then on.
	Rand *rand.Rand
	// Limits bounds the metadata; the zero value means metadata.DefaultLimits.
	Limits metadata.Limits
	// Logger gets a line for each change; nil is none.
	Logger *slog.Logger
	// Probe asks at a broker's address for the process of that incarnation; the error is a syscall.ECONNREFUSED
	// when nobody listens there, or another process answers. It is called from several goroutines, with a
	// deadline. Nil: nothing is probed, and only the session timeout tells that a broker is gone.
	Probe func(ctx context.Context, b *metadata.Broker) error
	// Changed returns a channel that is closed when the quorum's leader changes; nil: the controller
	// looks once a second.
	Changed func() <-chan struct{}
	// Term is the quorum's term; it tells one leadership of this node from the next. It may be nil.
	Term func() uint64
	// Verify asks a majority of the quorum whether this node leads still; nil: what it knows itself counts.
	Verify func() error
}

// Controller is a kmsg.Requestor for the keys that change the cluster.
type Controller struct {
	config  Config
	machine *metadata.Machine
	quorum  quorum.Quorum
	limits  metadata.Limits
	logger  *slog.Logger

	wake chan struct{} // has room for one; see alert
	stop context.CancelFunc
	wg   sync.WaitGroup // the watch and its probes

	mu        sync.Mutex
	rand      *rand.Rand // guarded by mu
	live      liveness   // guarded by mu
	probes    int        // on their way; guarded by mu
	balanceAt time.Time  // when leaders are balanced next; guarded by mu
}

// Open returns a controller that keeps watch over the brokers whenever this node leads the quorum.
func Open(c Config) *Controller {
	if c.Limits == (metadata.Limits{}) {
		c.Limits = metadata.DefaultLimits()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	ctl := &Controller{
		config: c, machine: c.Machine, quorum: c.Quorum, limits: c.Limits, logger: c.Logger, rand: c.Rand,
		wake: make(chan struct{}, 1),
	}
	var ctx context.Context
	ctx, ctl.stop = context.WithCancel(context.Background())
	ctl.wg.Go(func() { ctl.watch(ctx) })
	return ctl
}

// Close ends the watch. Requests are still answered as long as the quorum does.
func (c *Controller) Close() error {
	c.stop()
	c.wg.Wait()
	return nil
}

// Keys returns the request keys that Request answers.
func Keys() []kmsg.Key {
	return []kmsg.Key{
		kmsg.CreateTopics, kmsg.DeleteTopics, kmsg.CreatePartitions, kmsg.IncrementalAlterConfigs,
		kmsg.ElectLeaders, kmsg.AlterPartitionAssignments, kmsg.ListPartitionReassignments,
		kmsg.AlterPartition, kmsg.BrokerRegistration, kmsg.BrokerHeartbeat, kmsg.UnregisterBroker,
		kmsg.AllocateProducerIDs,
	}
}

// Request answers one request. An error means that there is no answer: the outcome is unknown.
func (c *Controller) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	switch r := r.(type) {
	case *kmsg.CreateTopicsRequest:
		return answer(c.handleCreateTopics(ctx, r))
	case *kmsg.DeleteTopicsRequest:
		return answer(c.handleDeleteTopics(ctx, r))
	case *kmsg.CreatePartitionsRequest:
		return answer(c.handleCreatePartitions(ctx, r))
	case *kmsg.IncrementalAlterConfigsRequest:
		return answer(c.handleIncrementalAlterConfigs(ctx, r))
	case *kmsg.ElectLeadersRequest:
		return answer(c.handleElectLeaders(ctx, r))
	case *kmsg.AlterPartitionAssignmentsRequest:
		return answer(c.handleAlterPartitionAssignments(ctx, r))
	case *kmsg.ListPartitionReassignmentsRequest:
		return c.handleListPartitionReassignments(r), nil
	case *kmsg.AlterPartitionRequest:
		return answer(c.handleAlterPartition(ctx, r))
	case *kmsg.BrokerRegistrationRequest:
		return answer(c.handleBrokerRegistration(ctx, r))
	case *kmsg.BrokerHeartbeatRequest:
		return answer(c.handleBrokerHeartbeat(ctx, r))
	case *kmsg.UnregisterBrokerRequest:
		return answer(c.handleUnregisterBroker(ctx, r))
	case *kmsg.AllocateProducerIDsRequest:
		return answer(c.handleAllocateProducerIDs(ctx, r))
	default:
		return nil, fmt.Errorf("controller: no handler for %s", kmsg.NameForKey(r.Key()))
	}
}

// answer makes no answer nil, which a typed nil pointer in an interface would not be.
func answer[R kmsg.Response](r R, err error) (kmsg.Response, error) {
	if err != nil {
		return nil, err
	}
	return r, nil
}

// notController says who else can help. Where nobody can until an operator does, trying again would be no advice.
func (c *Controller) notController() metadata.Item {
	leader := c.quorum.Leader()
	if leader >= 0 {
		return refuse(kerr.NotController, "this node is not the controller: node %d is", leader)
	}
	if err := c.quorum.Offline(); err != nil {
		return offline(err)
	}
	return refuse(kerr.NotController, "this node is not the controller, and none is known: a majority of the "+
		"voters of the metadata quorum must run and reach each other; then try again")
}

func offline(err error) metadata.Item {
	return refuse(kerr.KafkaStorageError, "%v: repair the disk of the controller and start it anew", err)
}

func refuse(e *kerr.Error, format string, args ...any) metadata.Item {
	return metadata.Item{Code: e.Code, Message: fmt.Sprintf(format, args...)}
}

// message is the text of a response's error field.
func message(item metadata.Item) *string {
	if item.Code == 0 {
		return nil
	}
	return &item.Message
}

// setIndex tells in an answer at which index of the metadata it can be seen; zero is not told.
func setIndex(tags *kmsg.Tags, index int64) {
	if index > 0 {
		ktag.SetAppliedIndex(tags, index)
	}
}

func timeout(millis int32) time.Duration { return time.Duration(max(millis, 0)) * time.Millisecond }

// newUUID returns a random id that Kafka allows.
func (c *Controller) newUUID() metadata.UUID {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		var random [16]byte
		binary.BigEndian.PutUint64(random[:8], c.rand.Uint64())
		binary.BigEndian.PutUint64(random[8:], c.rand.Uint64())
		if id, ok := metadata.MakeUUID(random); ok {
			return id
		}
	}
}

// duplicates returns what is in the list more than once.
func duplicates[K comparable](list []K) map[K]bool {
	seen, twice := make(map[K]bool, len(list)), make(map[K]bool)
	for _, k := range list {
		if seen[k] {
			twice[k] = true
		}
		seen[k] = true
	}
	return twice
}

var _ kmsg.Requestor = (*Controller)(nil)

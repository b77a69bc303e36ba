// Package controller answers the requests that change the cluster: topics, partitions, configuration,
// producer ids, broker registration. It places replicas, fills in defaults, and proposes metadata
// commands to the quorum; it keeps no state of its own, so any leader of the quorum can be it.
//
// It promises that an answer of success was applied on this node, so that the very next request here
// sees it. Its callers reach it as a kmsg.Requestor.
package controller

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
	"millrace/server/quorum"
)

// Config is what a Controller works with.
type Config struct {
	Machine *metadata.Machine
	Quorum  quorum.Quorum
	// Rand supplies ids and placement; the controller alone uses it from then on.
	Rand *rand.Rand
	// Limits bounds the metadata; the zero value means metadata.DefaultLimits.
	Limits metadata.Limits
	// Logger gets a line for each change; nil is none.
	Logger *slog.Logger
}

// Controller is a kmsg.Requestor for the keys that change the cluster.
type Controller struct {
	machine *metadata.Machine
	quorum  quorum.Quorum
	limits  metadata.Limits
	logger  *slog.Logger

	mu   sync.Mutex
	rand *rand.Rand // guarded by mu
}

// New returns a controller.
func New(c Config) *Controller {
	if c.Limits == (metadata.Limits{}) {
		c.Limits = metadata.DefaultLimits()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Controller{machine: c.Machine, quorum: c.Quorum, limits: c.Limits, logger: c.Logger, rand: c.Rand}
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
	switch r := r.(type) {
	case *kmsg.CreateTopicsRequest:
		return answer(c.handleCreateTopics(ctx, r))
	case *kmsg.DeleteTopicsRequest:
		return answer(c.handleDeleteTopics(ctx, r))
	case *kmsg.CreatePartitionsRequest:
		return answer(c.handleCreatePartitions(ctx, r))
	case *kmsg.IncrementalAlterConfigsRequest:
		return answer(c.handleIncrementalAlterConfigs(ctx, r))
	case *kmsg.BrokerRegistrationRequest:
		return answer(c.handleBrokerRegistration(ctx, r))
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

// plan is a request on its way to a command and back.
type plan struct {
	// answers has one entry for each entry of the response. Entries that fail before the command
	// is made are filled in at once.
	answers []metadata.Item
	// entries holds the response entry of each item of the command.
	entries []int
	// done says in words what happened to an item that succeeded, for the log.
	done string
	// command makes the command of those items, by their place in entries.
	command      func(items []int) metadata.Command
	timeout      time.Duration // 0: none
	validateOnly bool
}

// add makes a response entry; a refused one has no item in the command.
func (p *plan) add(answer metadata.Item) {
	if answer.Code == 0 {
		p.entries = append(p.entries, len(p.answers))
	}
	p.answers = append(p.answers, answer)
}

// addTopics makes an entry for each topic of a request and returns their names. item is called for each place
// in names and gives the answer to add. A topic that is named twice is refused and has one entry.
func (p *plan) addTopics(names []string, item func(i int) metadata.Item) (entries []string) {
	twice, done := duplicates(names), map[string]bool{}
	for i, name := range names {
		switch {
		case done[name]:
			continue
		case twice[name]:
			done[name] = true
			p.add(refuse(kerr.InvalidRequest, "topic %q is in the request more than once", name))
		default:
			p.add(item(i))
		}
		entries = append(entries, name)
	}
	return entries
}

// refuseAll answers every entry alike.
func (p *plan) refuseAll(answer metadata.Item) {
	for i := range p.answers {
		p.answers[i] = answer
	}
}

// run answers the entries of the plan. Items that would fail or alter nothing as things are now go
// into no command, so the log holds changes only; what is left can fail just by a race.
func (c *Controller) run(ctx context.Context, p *plan) error {
	if !c.quorum.IsLeader() {
		p.refuseAll(c.notController())
		return nil
	}
	if len(p.entries) == 0 {
		return nil
	}
	all := make([]int, len(p.entries))
	for i := range all {
		all[i] = i
	}
	r := c.machine.Image().Evaluate(p.command(all))
	var good []int
	for i, item := range r.Items {
		p.answers[p.entries[i]] = item
		if item.Code == 0 {
			good = append(good, i)
		}
	}
	if p.validateOnly || !r.Changed {
		return nil
	}
	r, refusal, err := c.propose(ctx, p.command(good), p.timeout)
	if err != nil {
		return err
	}
	for i, item := range good {
		if refusal.Code != 0 {
			p.answers[p.entries[item]] = refusal
			continue
		}
		p.answers[p.entries[item]] = r.Items[i]
		if r.Items[i].Code == 0 {
			c.logChange(p.done, r.Items[i].Topic)
		}
	}
	return nil
}

func (c *Controller) logChange(what string, topic *metadata.Topic) {
	if topic == nil {
		c.logger.Info(what)
		return
	}
	c.logger.Info(what, "topic", topic.Name, "partitions", len(topic.Partitions))
}

// propose has a command agreed on and applied here. The refusal says why that did not happen or is not
// known, in Kafka's words; an error means that the caller is not there any more or this node is at
// its end.
func (c *Controller) propose(
	ctx context.Context, command metadata.Command, timeout time.Duration,
) (metadata.Result, metadata.Item, error) {
	entry, err := metadata.Encode(command)
	if err != nil {
		return metadata.Result{}, metadata.Item{}, err
	}
	limited := ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	r, _, err := c.quorum.Propose(limited, entry)
	switch {
	case err == nil:
		return r, metadata.Item{}, nil
	case ctx.Err() != nil:
		return r, metadata.Item{}, ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		return r, refuse(kerr.RequestTimedOut, "no agreement within %v: the change may still happen", timeout), nil
	case errors.Is(err, quorum.ErrNotLeader), errors.Is(err, quorum.ErrClosed):
		return r, c.notController(), nil
	case errors.Is(err, quorum.ErrBusy):
		return r, refuse(kerr.ThrottlingQuotaExceeded, "too many changes of the cluster are on their way: try again"), nil
	case errors.Is(err, quorum.ErrTooLarge):
		return r, refuse(kerr.PolicyViolation, "the request is too large for one change: %v: split it", err), nil
	case errors.Is(err, quorum.ErrOffline):
		return r, offline(err), nil
	default:
		return r, metadata.Item{}, err
	}
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
	return refuse(kerr.NotController, "this node is not the controller, and none is known: try again")
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

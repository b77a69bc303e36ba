package controller

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/server/metadata"
	"millrace/server/quorum"
)

// plan is a request on its way to a command and back.
type plan struct {
	// answers has one entry for each entry of the response. Entries that fail before the command
	// is made are filled in at once.
	answers []metadata.Item
	// entries holds the response entry of each item of the command.
	entries []int
	// done says in words what happened to an item that succeeded, for the log; empty: nothing is logged.
	done string
	// command makes the command of those items, by their place in entries.
	command      func(items []int) metadata.Command
	timeout      time.Duration // 0: none
	validateOnly bool

	// index is set by run: where in the metadata the answers can be seen; 0 when this node cannot tell.
	index int64
	// refusal is set by run where all items were refused together, by the quorum and not for what is in them.
	refusal metadata.Item
	// changed is set by run: how many items were agreed on.
	changed int
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
	p.refusal = answer
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
	image := c.machine.Image()
	p.index = int64(image.Index)
	if len(p.entries) == 0 {
		return nil
	}
	all := make([]int, len(p.entries))
	for i := range all {
		all[i] = i
	}
	r := image.Evaluate(p.command(all))
	var good []int
	for i, item := range r.Items {
		p.answers[p.entries[i]] = item
		if applied(item) {
			good = append(good, i)
		}
	}
	if p.validateOnly || !r.Changed {
		return nil
	}
	o, err := c.propose(ctx, p.command(good), p.timeout)
	if err != nil {
		return err
	}
	if o.refusal.Code != 0 {
		p.refusal, p.index = o.refusal, 0
		for _, item := range good {
			p.answers[p.entries[item]] = o.refusal
		}
		return nil
	}
	p.index = o.index
	for i, item := range good {
		p.answers[p.entries[item]] = o.Items[i]
		if applied(o.Items[i]) {
			p.changed++
			c.logChange(p.done, o.Items[i].Topic)
		}
	}
	return nil
}

// applied reports whether an item changes what it was about. NEW_LEADER_ELECTED is an answer of success that
// tells the sender that it leads no more.
func applied(item metadata.Item) bool {
	return item.Code == 0 || item.Code == kerr.NewLeaderElected.Code
}

func (c *Controller) logChange(what string, topic *metadata.Topic) {
	switch {
	case what == "":
	case topic == nil:
		c.logger.Info(what)
	default:
		c.logger.Info(what, "topic", topic.Name, "partitions", len(topic.Partitions))
	}
}

// outcome is what became of one command.
type outcome struct {
	metadata.Result
	// index is where in the metadata the outcome can be seen; 0 when this node cannot tell.
	index int64
	// refusal says why nothing was agreed on or why that is not known, or why the command's single item was
	// refused.
	refusal metadata.Item
}

// decide proposes a command with a single item, unless it would fail or change nothing.
func (c *Controller) decide(ctx context.Context, command metadata.Command) (outcome, error) {
	if !c.quorum.IsLeader() {
		return outcome{refusal: c.notController()}, nil
	}
	image := c.machine.Image()
	o := outcome{Result: image.Evaluate(command), index: int64(image.Index)}
	if o.Items[0].Code == 0 && o.Changed {
		var err error
		if o, err = c.propose(ctx, command, 0); err != nil || o.refusal.Code != 0 {
			return o, err
		}
	}
	o.refusal = o.Items[0]
	return o, nil
}

// propose has a command agreed on and applied here. The refusal says why that did not happen or is not
// known, in Kafka's words; an error means that the caller is not there any more or this node is at
// its end.
func (c *Controller) propose(
	ctx context.Context, command metadata.Command, timeout time.Duration,
) (outcome, error) {
	entry, err := metadata.Encode(command)
	if err != nil {
		return outcome{}, err
	}
	limited := ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	r, index, err := c.quorum.Propose(limited, entry)
	switch {
	case err == nil:
		return outcome{Result: r, index: int64(index)}, nil
	case ctx.Err() != nil:
		return outcome{}, ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		return refused(kerr.RequestTimedOut, "no agreement within %v: the change may still happen", timeout), nil
	case errors.Is(err, quorum.ErrNotLeader), errors.Is(err, quorum.ErrClosed):
		return outcome{refusal: c.notController()}, nil
	case errors.Is(err, quorum.ErrBusy):
		return refused(kerr.ThrottlingQuotaExceeded, "too many changes of the cluster are on their way: try again"), nil
	case errors.Is(err, quorum.ErrTooLarge):
		return refused(kerr.PolicyViolation, "the request is too large for one change: %v: split it", err), nil
	case errors.Is(err, quorum.ErrOffline):
		return outcome{refusal: offline(err)}, nil
	default:
		return outcome{}, err
	}
}

func refused(e *kerr.Error, format string, args ...any) outcome {
	return outcome{refusal: refuse(e, format, args...)}
}

package route

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
)

// Requests about groups and transactions go to the coordinators of their ids. The coordinator of an id leads the
// partition of an internal topic in which the id has its place; the topic is made when it is first needed. A
// coordinator that is not there, that reads its partition still, or that is it no more is looked for again until the
// time is over; so is one of which no answer came, for none of these requests does harm twice.

// coordinated is the place of ids and codes in the messages of one key. Q is what a request says of an id, S what the
// answer does.
type coordinated[Q, S any] struct {
	topic string // the internal topic
	asked func(kmsg.Request) []Q
	about func(kmsg.Request, []Q) kmsg.Request // the request about some of what was asked
	id    func(*Q) string

	answers  func(kmsg.Response) []S
	answered func(*S) string // the id in an answer; nil where a request is about one id
	code     func(*S) int16  // what the coordinator says of itself, where it does, else any of the codes
	refuse   func(*Q, int16) S
	whole    func(kmsg.Request, []S) kmsg.Response // the answer to the request
	// limit is how long the request may take; nil: budget.
	limit func(kmsg.Request) time.Duration
	// writes says that it matters whether the request was done: a coordinator that is it no more, or for which a commit
	// took too long, may have done it before it said so.
	writes bool
	// twice makes the answer to a request whose first try may have been done that of the first; nil: it is that.
	twice func(*S)
}

// inquiry is what is asked about one id, at work.
type inquiry[Q, S any] struct {
	index  int
	asked  *Q
	answer *S
	code   int16 // in place of an answer
	open   bool  // a try may have taken effect, of which the answer was lost or did not say so
	home   home  // who was asked last
}

// home is where an id has its coordinator, by one image.
type home struct {
	number int32 // of the partition, -1: there is no topic
	node   int32
	epoch  int32
}

// homeOf looks up the coordinator of an id.
func (r *Router) homeOf(topic, id string) home {
	t := r.cfg.Image().Topic(topic)
	if t == nil {
		return home{-1, metadata.NoLeader, -1}
	}
	number := metadata.CoordinatorPartition(id, int32(len(t.Partitions)))
	return home{number, t.Partitions[number].Leader, t.Partitions[number].LeaderEpoch}
}

// coordinatorAt is the way to the coordinators on a node; nil when there is none.
func (r *Router) coordinatorAt(topic string, node int32) kmsg.Requestor {
	switch {
	case node == metadata.NoLeader:
		return nil
	case node != r.cfg.NodeID:
		return r.cfg.Peer(node)
	case topic == metadata.TxnTopic:
		return r.cfg.Txns
	default:
		return r.cfg.Groups
	}
}

// moving says of a code that another try may find the coordinator.
func moving(code int16) bool {
	return code == kerr.CoordinatorLoadInProgress.Code || code == kerr.CoordinatorNotAvailable.Code ||
		code == kerr.NotCoordinator.Code
}

// search is a request to coordinators, at work.
type search[Q, S any] struct {
	router *Router
	of     *coordinated[Q, S]
	req    kmsg.Request
	all    []*inquiry[Q, S]
	end    time.Time // of trying again
	last   time.Time // when what is not answered then is given up

	mu   sync.Mutex
	fail error // guarded by mu: this node is closing
}

// byCoordinators is the way of such a request: each coordinator is asked about its own ids, all at once.
func byCoordinators[Q, S any](c coordinated[Q, S]) way {
	return func(ctx context.Context, r *Router, req kmsg.Request) (kmsg.Response, error) {
		limit := budget
		if c.limit != nil {
			limit = max(c.limit(req), budget)
		}
		w := &search[Q, S]{router: r, of: &c, req: req, end: within(ctx, time.Now().Add(limit))}
		w.last = lastMoment(ctx, w.end)
		asked := c.asked(req)
		for i := range asked {
			w.all = append(w.all, &inquiry[Q, S]{index: i, asked: &asked[i], code: kerr.CoordinatorNotAvailable.Code})
		}
		w.drive(ctx, w.all)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case w.fail != nil:
			return nil, w.fail
		}
		return c.whole(req, w.merge()), nil
	}
}

// merge puts the answers together in the order of the request.
func (w *search[Q, S]) merge() []S {
	out := make([]S, len(w.all))
	for i, q := range w.all {
		switch {
		case q.answer == nil && q.open:
			out[i] = w.of.refuse(q.asked, kerr.NetworkException.Code)
		case q.answer == nil:
			out[i] = w.of.refuse(q.asked, q.code)
		default:
			if out[i] = *q.answer; q.open && w.of.twice != nil {
				w.of.twice(&out[i])
			}
		}
	}
	return out
}

// drive asks about ids until each has an answer that stands, or the time is over. Where several nodes are asked, each
// goes its own way from there, so none waits for another.
func (w *search[Q, S]) drive(ctx context.Context, open []*inquiry[Q, S]) {
	for pause := firstPause; len(open) > 0; pause = min(2*pause, lastPause) {
		changed := w.router.changed()
		if w.router.cfg.Image().Topic(w.of.topic) == nil {
			w.router.makeInternal(ctx, w.of.topic, w.end)
		}
		byNode := w.locate(open)
		if len(byNode) > 1 {
			var wg sync.WaitGroup
			for _, mine := range byNode {
				wg.Go(func() { w.drive(ctx, mine) })
			}
			wg.Wait()
			return
		}
		if open = w.attempt(ctx, open); len(open) > 0 && !w.pause(ctx, open, changed, pause) {
			return
		}
	}
}

// locate notes where the ids have their coordinators, and says which have the same node.
func (w *search[Q, S]) locate(open []*inquiry[Q, S]) [][]*inquiry[Q, S] {
	var byNode [][]*inquiry[Q, S]
next:
	for _, q := range open {
		q.home = w.router.homeOf(w.of.topic, w.of.id(q.asked))
		for i := range byNode {
			if byNode[i][0].home.node == q.home.node {
				byNode[i] = append(byNode[i], q)
				continue next
			}
		}
		byNode = append(byNode, []*inquiry[Q, S]{q})
	}
	return byNode
}

// attempt asks one node, and returns what to ask about again.
func (w *search[Q, S]) attempt(ctx context.Context, open []*inquiry[Q, S]) (again []*inquiry[Q, S]) {
	node := open[0].home.node
	resp, err := w.send(ctx, node, open)
	switch {
	case err == nil:
		return w.take(open, w.of.answers(resp))
	case notSent(err):
		for _, q := range open {
			q.answer, q.code = nil, kerr.CoordinatorNotAvailable.Code
		}
		return open
	case node == w.router.cfg.NodeID:
		w.mu.Lock()
		w.fail = err
		w.mu.Unlock()
		return nil
	}
	for _, q := range open {
		q.answer, q.open = nil, true
	}
	return open
}

// send makes one try. Another node has the time that is left, and no longer than it coordinates what it is asked about.
func (w *search[Q, S]) send(ctx context.Context, node int32, open []*inquiry[Q, S]) (kmsg.Response, error) {
	r := w.router
	to := r.coordinatorAt(w.of.topic, node)
	if to == nil {
		return nil, unreachable(node)
	}
	sub := w.req
	if len(open) < len(w.all) {
		asked := make([]Q, len(open))
		for i, q := range open {
			asked[i] = *q.asked
		}
		sub = w.of.about(w.req, asked)
	}
	if node == r.cfg.NodeID {
		return to.Request(ctx, sub)
	}
	return r.ask(ctx, to, sub, max(time.Until(w.last), leastLimit), 0, func() bool {
		for _, q := range open {
			if r.homeOf(w.of.topic, w.of.id(q.asked)).node == node {
				return false
			}
		}
		return true
	})
}

// take notes what a node answered, and returns what to ask about again. An id that the answer leaves out counts as not
// answered.
func (w *search[Q, S]) take(open []*inquiry[Q, S], answers []S) (again []*inquiry[Q, S]) {
	for i, q := range open {
		q.answer, q.code = w.find(i, w.of.id(q.asked), answers), kerr.UnknownServerError.Code
		if q.answer == nil {
			continue
		}
		if code := w.of.code(q.answer); moving(code) {
			q.answer, q.code = nil, code
			q.open = q.open || w.of.writes && code != kerr.CoordinatorLoadInProgress.Code
			again = append(again, q)
		}
	}
	return again
}

// find looks for the answer about an id, which mostly stands where the id does in the request.
func (w *search[Q, S]) find(i int, id string, answers []S) *S {
	if w.of.answered == nil {
		return &answers[0]
	}
	if i < len(answers) && w.of.answered(&answers[i]) == id {
		return &answers[i]
	}
	for i := range answers {
		if w.of.answered(&answers[i]) == id {
			return &answers[i]
		}
	}
	return nil
}

// pause waits before the next try: until the image names another coordinator for one of the ids, or for a while. It is
// false when the time for trying is over.
func (w *search[Q, S]) pause(ctx context.Context, open []*inquiry[Q, S], changed <-chan struct{},
	d time.Duration) bool {
	if time.Until(w.end) <= d {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		for _, q := range open {
			if w.router.homeOf(w.of.topic, w.of.id(q.asked)) != q.home {
				return true
			}
		}
		select {
		case <-t.C:
			return true
		case <-ctx.Done():
			return false
		case <-changed:
			changed = w.router.changed()
		}
	}
}

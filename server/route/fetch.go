package route

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetch routes Fetch. What this node leads alone it answers itself.
//
// Where several nodes lead the partitions, each gets an equal part of MaxBytes. All are asked at once without waiting;
// if what they have is less than MinBytes, all are asked to wait, each for more than it has, and the first answer ends
// the waiting of the others, until there is enough or MaxWaitMillis are over. So MinBytes counts over all nodes, as it
// does on one.
//
// A partition whose leader cannot answer at the moment is asked about again beside that, for 15 s at least. It does not
// hold up the others: when they have enough, the answer goes out with its error. A node that does not answer at all is
// passed over a little later than that.
//
// A request with a rack is answered by replicas there: by this node where it is one, else by the one with the lowest
// id; by the leader where there is none, or where that one cannot answer.
func fetch(ctx context.Context, r *Router, request kmsg.Request) (kmsg.Response, error) {
	req := request.(*kmsg.FetchRequest)
	s, start, l := fetchSplit(), time.Now(), r.leaders()
	var first *kmsg.FetchResponse
	if node, ok := s.whole(l, req.Topics); ok && node == r.cfg.NodeID && req.Rack == "" || len(req.Topics) == 0 {
		resp, err := r.cfg.Broker.Request(ctx, req)
		if err != nil {
			return nil, err
		}
		if first = resp.(*kmsg.FetchResponse); first.ErrorCode != 0 || s.clean(first.Topics) {
			return first, nil
		}
	}
	f := newFetching(ctx, r, req, start)
	f.split, f.req, f.topics = &s, req, req.Topics
	f.open()
	f.states, f.done = make([]fetchState, len(f.slots)), make(chan *fetchCall, len(f.slots))
	if first != nil {
		g := group[fetched]{r.cfg.NodeID, f.slots}
		_ = groups(l, f.slots, f.place) // notes who was asked
		f.share = req.MaxBytes
		f.take(&fetchCall{group: g, answer: first})
	}
	f.run()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = req.Version
	resp.Topics = f.merge()
	return resp, nil
}

type fetched = kmsg.FetchResponseTopicPartition

// fetching is one fetch at work. Only its own goroutine touches it; calls tell it what came of them.
type fetching struct {
	errand[kmsg.FetchRequestTopic, kmsg.FetchRequestTopicPartition, kmsg.FetchResponseTopic, fetched]
	ctx    context.Context // of the calls
	cancel context.CancelFunc
	ask    *kmsg.FetchRequest
	states []fetchState // by slot
	start  time.Time
	until  time.Time       // of waiting for records
	share  int32           // of MaxBytes, for each node; 0 before the first calls
	done   chan *fetchCall // has room for all that can be under way
	wg     sync.WaitGroup

	enoughAt time.Time // when there was enough first
}

// fetchState is how it stands with one slot.
type fetchState struct {
	busy   bool          // a call is under way
	told   bool          // a call has come back
	failed bool          // to be asked about again, at
	at     time.Time     //
	pause  time.Duration // before the next try
	final  bool          // its error stands
}

// fetchCall is one request to one node.
type fetchCall struct {
	group  group[fetched]
	answer *kmsg.FetchResponse
	err    error
}

func newFetching(ctx context.Context, r *Router, req *kmsg.FetchRequest, start time.Time) *fetching {
	wait := max(time.Duration(req.MaxWaitMillis)*time.Millisecond, 0)
	f := &fetching{ask: req, start: start, until: within(ctx, start.Add(wait))}
	f.router, f.end = r, within(ctx, start.Add(max(wait, budget)))
	f.last, f.heardBy = lastMoment(ctx, f.end), start.Add(hearsay)
	f.ctx, f.cancel = context.WithCancel(ctx)
	return f
}

// run asks until the answer is complete. Calls that are still under way then are called off.
func (f *fetching) run() {
	defer f.wg.Wait()
	defer f.cancel()
	timer := time.NewTimer(0)
	defer timer.Stop()
	changed := f.router.changed()
	for f.ctx.Err() == nil {
		now := time.Now()
		f.fence()
		if f.complete(now) {
			return
		}
		f.launch(now)
		timer.Reset(max(f.next(now).Sub(now), 0))
		select {
		case c := <-f.done:
			f.take(c)
		case <-changed:
			changed = f.router.changed()
			f.hurry()
		case <-timer.C:
		case <-f.ctx.Done():
		}
	}
}

// fence settles what cannot succeed with the leader epochs that the request names.
func (f *fetching) fence() {
	l := f.router.leaders()
	for i, s := range f.slots {
		if st := &f.states[i]; !st.busy && !st.final && (!st.told || st.failed) && f.fenced(l, s) {
			st.told, st.failed, st.final = true, false, true
		}
	}
}

// complete tells whether to answer.
func (f *fetching) complete(now time.Time) bool {
	waiting, failed, early := false, false, false
	for i := range f.states {
		st := &f.states[i]
		waiting = waiting || st.busy
		failed = failed || st.failed
		early = early || !st.told
	}
	if f.enough() {
		if f.enoughAt.IsZero() {
			f.enoughAt = now
		}
		return !early || now.Sub(f.enoughAt) >= patience
	}
	switch {
	case !now.Before(f.last):
		return true
	case !now.Before(f.end) && !waiting:
		return true
	case now.Before(f.until) || failed || early:
		return false
	}
	return !waiting || !now.Before(f.until.Add(slack)) // who was asked to wait until then answers any moment
}

// enough tells whether there are MinBytes, or an error that stands, which is news of its own.
func (f *fetching) enough() bool {
	total := 0
	for i, s := range f.slots {
		if f.states[i].final {
			return true
		}
		if s.answer != nil {
			total += len(s.answer.RecordBatches)
		}
	}
	return total >= int(f.ask.MinBytes) && f.share > 0
}

// next is when to look again, should nothing happen before.
func (f *fetching) next(now time.Time) time.Time {
	next := f.end
	if !now.Before(f.end) {
		next = f.last
	}
	sooner := func(t time.Time) {
		if t.After(now) && t.Before(next) {
			next = t
		}
	}
	sooner(f.until)
	sooner(f.until.Add(slack))
	if !f.enoughAt.IsZero() {
		sooner(f.enoughAt.Add(patience))
	}
	for i := range f.states {
		if st := &f.states[i]; st.failed && !st.busy {
			sooner(st.at)
		}
	}
	return next
}

// launch asks about all that nobody is asked about: first, and after an error, without waiting; then, once all nodes
// have been heard or passed over, for more than they had.
func (f *fetching) launch(now time.Time) {
	var fresh, wait []*slot[fetched]
	early := false
	for i, s := range f.slots {
		st := &f.states[i]
		early = early || st.busy && !st.told
		switch {
		case st.busy || st.final || st.failed && st.at.After(now):
		case !st.told || st.failed:
			fresh = append(fresh, s)
		default:
			wait = append(wait, s)
		}
	}
	l := f.router.leaders()
	gs := groups(l, fresh, f.place)
	single := f.share == 0 && len(gs) == 1
	if f.share == 0 {
		f.share = max(f.ask.MaxBytes/int32(max(len(gs), 1)), 1)
	}
	for _, g := range gs {
		if single {
			f.call(g, f.until.Sub(now), int(f.ask.MinBytes))
		} else {
			f.call(g, 0, 0)
		}
	}
	limit := f.waitEnd(now)
	if early && now.Sub(f.start) < patience || !limit.After(now) || f.enough() {
		return
	}
	for _, g := range groups(l, wait, f.place) {
		size := 0
		for _, s := range g.slots {
			if s.answer != nil {
				size += len(s.answer.RecordBatches)
			}
		}
		f.call(g, limit.Sub(now), size+1)
	}
}

// waitEnd is how long nodes are asked to wait: while some partition fails, the others are not left alone.
func (f *fetching) waitEnd(now time.Time) time.Time {
	if now.Before(f.until) {
		return f.until
	}
	for i := range f.states {
		if f.states[i].failed {
			return f.end
		}
	}
	return f.until
}

// call asks one node.
func (f *fetching) call(g group[fetched], wait time.Duration, minBytes int) {
	to := f.router.node(g.node)
	for _, s := range g.slots {
		f.states[s.index].busy = true
	}
	c := &fetchCall{group: g}
	if to == nil {
		c.err = unreachable(g.node)
		f.done <- c
		return
	}
	sub := *f.ask
	sub.Topics, sub.MaxBytes = f.cut(g.slots), f.share
	sub.MaxWaitMillis, sub.MinBytes = int32((max(wait, 0) + time.Millisecond - 1).Milliseconds()), int32(minBytes)
	f.wg.Go(func() {
		var resp kmsg.Response
		if g.node == f.router.cfg.NodeID {
			resp, c.err = to.Request(f.ctx, &sub)
		} else {
			resp, c.err = f.router.ask(f.ctx, to, &sub, f.limit(), 0, f.stale(g))
		}
		if c.err == nil {
			c.answer = resp.(*kmsg.FetchResponse)
		}
		f.done <- c
	})
}

// stale tells whether a node is no longer the right one to ask.
func (f *fetching) stale(g group[fetched]) func() bool {
	if f.ask.Rack == "" {
		return stale(f.router, g)
	}
	return func() bool { return !f.router.cfg.Image().Active(g.node) }
}

// take notes what came of a call.
func (f *fetching) take(c *fetchCall) {
	now, l := time.Now(), f.router.leaders()
	var at cursor
	for _, s := range c.group.slots {
		st := &f.states[s.index]
		st.busy, st.told, st.failed = false, true, false
		var a *fetched
		if c.err == nil && c.answer.ErrorCode == 0 {
			a = f.split.find(c.answer.Topics, s.key, s.number, &at)
		}
		switch {
		case c.err != nil:
			f.lost(s, c)
		case a == nil:
			s.answer, s.code, st.final = nil, kerr.UnknownServerError.Code, true
			if c.answer.ErrorCode != 0 {
				s.code = c.answer.ErrorCode
			}
		case a.ErrorCode == 0:
			s.answer, st.pause = a, 0
		default:
			f.refused(s, a, l)
		}
		if st.failed {
			st.pause = min(max(2*st.pause, firstPause), lastPause)
			if st.at = now.Add(st.pause); moved(l, []*slot[fetched]{s}) || s.fixed && s.node != byLeader(l, s) {
				st.at = now
			}
		}
	}
}

// lost notes that a node did not answer. What it answered before stays.
func (f *fetching) lost(s *slot[fetched], c *fetchCall) {
	st := &f.states[s.index]
	if c.group.node == f.router.cfg.NodeID {
		st.final = true // this node is closing
	}
	st.failed, s.fixed = !st.final, true
	if s.answer != nil && len(s.answer.RecordBatches) > 0 {
		return
	}
	s.answer, s.code = nil, kerr.NetworkException.Code
	if notSent(c.err) {
		s.code = kerr.LeaderNotAvailable.Code
	}
}

// refused notes that a node answered with an error.
func (f *fetching) refused(s *slot[fetched], a *fetched, l leaders) {
	st := &f.states[s.index]
	follower := s.node != byLeader(l, s) && !s.fixed && f.ask.Rack != ""
	st.failed = follower || !s.overtaken(a.ErrorCode) &&
		judge(a.ErrorCode, l.partition(s.key, s.number) != nil, false, false) == again
	st.final, s.fixed = !st.failed, s.fixed || follower
	if s.answer == nil || len(s.answer.RecordBatches) == 0 {
		s.answer = a
	}
}

// hurry makes slots that wait for a newer image due when there is one that names another leader.
func (f *fetching) hurry() {
	now, l := time.Now(), f.router.leaders()
	for i, s := range f.slots {
		if st := &f.states[i]; st.failed && !st.busy && l.epoch(s.key, s.number) != s.epoch {
			st.at = now
		}
	}
}

// place is the node to ask about a slot.
func (f *fetching) place(l leaders, s *slot[fetched]) int32 {
	leader := byLeader(l, s)
	p := l.partition(s.key, s.number)
	if f.ask.Rack == "" || s.fixed || p == nil || f.ask.ReplicaState.ID >= 0 {
		return leader
	}
	inRack := func(id int32) bool {
		b := l.image.Broker(id)
		return b != nil && b.Rack == f.ask.Rack && slices.Contains(p.ISR, id)
	}
	if inRack(l.self) {
		return l.self
	}
	best := leader
	for _, id := range p.ISR {
		if inRack(id) && (best == leader && !inRack(leader) || id < best) {
			best = id
		}
	}
	return best
}

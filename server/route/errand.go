package route

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
)

// slot is one partition of a request that leaders answer. One goroutine at a time works on it.
type slot[SP any] struct {
	index       int // of the slot
	topic, part int // where it stands in the request
	key         topicKey
	number      int32
	repeatable  bool  // asking twice does no harm
	claims      int32 // the leader epoch that the request names, -1: none

	answer  *SP    // the last one; nil without
	code    int16  // in place of an answer
	message string // beside code, possibly empty

	// open is set once a try may have taken effect: only a success tells then what became of the request.
	open bool

	node  int32 // who was asked last
	epoch int32 // the leader epoch at that time, -1 for a partition that does not exist
	fixed bool  // only the leader will do: a follower has said that it cannot answer
}

// errand is a request that leaders answer, at work. It asks the leader of each partition, and where that is not the
// right one any more, asks again by a newer image, until there is an answer that stands or the time is over.
type errand[QT, QP, ST, SP any] struct {
	router   *Router
	split    *split[QT, QP, ST, SP]
	envelope *envelope[QT, ST]
	req      kmsg.Request
	topics   []QT
	slots    []*slot[SP]
	end      time.Time // of trying again
	last     time.Time // when what is not answered then is given up
	heardBy  time.Time // when an image should have the leader epochs that the request names
}

// open makes a slot for each partition of the request.
func (e *errand[QT, QP, ST, SP]) open() {
	n := 0
	for i := range e.topics {
		n += len(*e.split.partitions(&e.topics[i]))
	}
	memory := make([]slot[SP], n)
	e.slots = make([]*slot[SP], 0, n)
	for i := range e.topics {
		key, parts := e.split.topic(&e.topics[i]), *e.split.partitions(&e.topics[i])
		for j := range parts {
			s := &memory[len(e.slots)]
			s.index, s.topic, s.part = len(e.slots), i, j
			s.key, s.number = key, e.split.number(&parts[j])
			s.repeatable = e.split.repeatable == nil || e.split.repeatable(&parts[j])
			if s.claims = -1; e.split.claims != nil {
				s.claims = e.split.claims(&parts[j])
			}
			s.code = kerr.LeaderNotAvailable.Code
			e.slots = append(e.slots, s)
		}
	}
}

// overtaken says of a code that the leader is past the leader epoch which the request names: epochs only rise.
func (s *slot[SP]) overtaken(code int16) bool {
	return s.claims >= 0 && code == kerr.FencedLeaderEpoch.Code
}

// group is the slots that one node is asked about.
type group[SP any] struct {
	node  int32
	slots []*slot[SP]
}

// groups says whom to ask about slots, by one image. The groups stand in the order in which their nodes first come up.
func groups[SP any](l leaders, slots []*slot[SP], place func(leaders, *slot[SP]) int32) []group[SP] {
	var out []group[SP]
next:
	for _, s := range slots {
		s.node, s.epoch = place(l, s), l.epoch(s.key, s.number)
		for i := range out {
			if out[i].node == s.node {
				out[i].slots = append(out[i].slots, s)
				continue next
			}
		}
		out = append(out, group[SP]{s.node, []*slot[SP]{s}})
	}
	return out
}

// fenced settles a slot whose request names a leader epoch with which asking again cannot help: one that has ended, or
// one that no image had in time.
func (e *errand[QT, QP, ST, SP]) fenced(l leaders, s *slot[SP]) bool {
	known := l.epoch(s.key, s.number)
	switch {
	case s.claims < 0 || known < 0 || s.claims == known:
		return false
	case s.claims < known:
		s.code = kerr.FencedLeaderEpoch.Code
	case time.Now().Before(e.heardBy):
		return false
	default:
		s.code = kerr.UnknownLeaderEpoch.Code
	}
	s.answer, s.message = nil, ""
	return true
}

// unfenced is slots without those that are fenced.
func (e *errand[QT, QP, ST, SP]) unfenced(l leaders, slots []*slot[SP]) []*slot[SP] {
	isFenced := func(s *slot[SP]) bool { return e.fenced(l, s) }
	if !slices.ContainsFunc(slots, isFenced) {
		return slots
	}
	return slices.DeleteFunc(slices.Clone(slots), isFenced)
}

// byLeader places a slot with the leader of its partition.
func byLeader[SP any](l leaders, s *slot[SP]) int32 { return l.of(l.topic(s.key), s.number) }

// drive asks about slots until each has an answer that stands, or the time is over. Where several nodes are asked,
// each goes its own way from there, so none waits for another.
func (e *errand[QT, QP, ST, SP]) drive(ctx context.Context, slots []*slot[SP]) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		changed, l := e.router.changed(), e.router.leaders()
		slots = e.unfenced(l, slots)
		gs := groups(l, slots, byLeader[SP])
		if len(gs) > 1 {
			var wg sync.WaitGroup
			for _, g := range gs {
				wg.Go(func() { e.drive(ctx, g.slots) })
			}
			wg.Wait()
			return
		}
		if len(gs) == 0 {
			return
		}
		slots = e.attempt(ctx, gs[0])
		if len(slots) == 0 || !e.pause(ctx, slots, changed, pause) {
			return
		}
	}
}

// pause waits before the next try: until the image names another leader for one of the slots, or for a while. It is
// false when the time for trying is over.
func (e *errand[QT, QP, ST, SP]) pause(ctx context.Context, slots []*slot[SP], changed <-chan struct{},
	pause time.Duration) bool {
	if time.Until(e.end) <= pause {
		return false
	}
	t := time.NewTimer(pause)
	defer t.Stop()
	for {
		if moved(e.router.leaders(), slots) {
			return true
		}
		select {
		case <-t.C:
			return true
		case <-ctx.Done():
			return false
		case <-changed:
			changed = e.router.changed()
		}
	}
}

// moved tells whether an image names another leader of a slot than when it was asked about.
func moved[SP any](l leaders, slots []*slot[SP]) bool {
	for _, s := range slots {
		if l.epoch(s.key, s.number) != s.epoch {
			return true
		}
	}
	return false
}

// attempt asks one node about slots, and returns those to ask about again.
func (e *errand[QT, QP, ST, SP]) attempt(ctx context.Context, g group[SP]) []*slot[SP] {
	to := e.router.node(g.node)
	if to == nil {
		fail(g.slots, kerr.LeaderNotAvailable.Code, "")
		return g.slots
	}
	left := max(time.Until(e.end), 0)
	sub := e.envelope.about(e.req, e.cut(g.slots))
	if e.envelope.limit != nil {
		e.envelope.limit(sub, left)
	}
	resp, err := e.send(ctx, g, to, sub)
	switch {
	case err == nil:
		e.take(g.slots, *e.envelope.answers(resp))
		return e.unsettled(g.slots)
	case notSent(err):
		fail(g.slots, kerr.LeaderNotAvailable.Code, err.Error())
		return g.slots
	}
	fail(g.slots, kerr.NetworkException.Code, err.Error())
	if g.node == e.router.cfg.NodeID {
		return nil // this node is closing
	}
	var retry []*slot[SP]
	for _, s := range g.slots {
		if s.open = true; s.repeatable {
			retry = append(retry, s)
		}
	}
	return retry
}

// send sends one request. Another node has the time that is left for it, and no longer than it leads what it is asked
// about.
func (e *errand[QT, QP, ST, SP]) send(ctx context.Context, g group[SP], to kmsg.Requestor, req kmsg.Request) (
	kmsg.Response, error,
) {
	if g.node == e.router.cfg.NodeID {
		return to.Request(ctx, req)
	}
	wait := time.Duration(0)
	for _, s := range g.slots {
		if !s.repeatable {
			wait = grace
		}
	}
	return e.router.ask(ctx, to, req, e.limit(), wait, stale(e.router, g))
}

// limit is how long a request to another node may take.
func (e *errand[QT, QP, ST, SP]) limit() time.Duration { return max(time.Until(e.last), leastLimit) }

// stale tells whether a node leads none of the slots any more.
func stale[SP any](r *Router, g group[SP]) func() bool {
	seen := r.cfg.Image()
	return func() bool {
		image := r.cfg.Image()
		if image == seen {
			return false
		}
		l := leaders{image: image, self: r.cfg.NodeID}
		for _, s := range g.slots {
			if byLeader(l, s) == g.node {
				seen = image
				return false
			}
		}
		return true
	}
}

// ask sends a request to another node.
func (r *Router) ask(ctx context.Context, to kmsg.Requestor, req kmsg.Request, limit, grace time.Duration,
	stale func() bool) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, context.DeadlineExceeded)
	defer cancel()
	ctx, stop := watched(ctx, stale, grace)
	defer stop()
	return to.Request(ctx, req)
}

func fail[SP any](slots []*slot[SP], code int16, message string) {
	for _, s := range slots {
		s.answer, s.code, s.message = nil, code, message
	}
}

// cut is the topics of the request with the partitions of the slots alone.
func (e *errand[QT, QP, ST, SP]) cut(slots []*slot[SP]) []QT {
	if len(slots) == len(e.slots) {
		return e.topics
	}
	var out []QT
	last := -1
	for _, s := range slots {
		if s.topic != last {
			last = s.topic
			out = append(out, e.topics[last])
			*e.split.partitions(&out[len(out)-1]) = nil
		}
		parts := e.split.partitions(&out[len(out)-1])
		*parts = append(*parts, (*e.split.partitions(&e.topics[last]))[s.part])
	}
	return out
}

// take notes what a node answered. A partition that the answer leaves out counts as not answered.
func (e *errand[QT, QP, ST, SP]) take(slots []*slot[SP], answer []ST) {
	var c cursor
	for _, s := range slots {
		s.answer, s.message = e.split.find(answer, s.key, s.number, &c), ""
		s.code = kerr.UnknownServerError.Code
	}
}

// unsettled are the slots whose answer does not stand.
func (e *errand[QT, QP, ST, SP]) unsettled(slots []*slot[SP]) []*slot[SP] {
	var out []*slot[SP]
	l := e.router.leaders()
	for _, s := range slots {
		if s.answer == nil || e.split.code(s.answer) == 0 ||
			s.overtaken(e.split.code(s.answer)) || e.fenced(l, s) {
			continue
		}
		if e.split.counted != nil {
			if count, ok := e.split.counted(s.answer); ok {
				if topic := l.topic(s.key); topic != nil && int(count) != len(topic.Partitions) {
					out = append(out, s) // this node or the leader has not heard of the newest partitions
				} // else whoever made the request has not
				continue
			}
		}
		refused := e.split.notWritten != nil && e.split.notWritten(s.answer)
		switch judge(e.split.code(s.answer), l.partition(s.key, s.number) != nil, e.split.notWritten != nil, refused) {
		case again:
			out = append(out, s)
		case open:
			if s.open = true; s.repeatable {
				out = append(out, s)
			}
		}
	}
	return out
}

// leftOpen says whether some try may have taken effect.
func (e *errand[QT, QP, ST, SP]) leftOpen() bool {
	return slices.ContainsFunc(e.slots, func(s *slot[SP]) bool { return s.open })
}

// merge puts the answers together in the order of the request.
func (e *errand[QT, QP, ST, SP]) merge() []ST {
	merged := make([]ST, len(e.topics))
	for i := range e.topics {
		merged[i] = e.split.newTopic(e.split.topic(&e.topics[i]))
	}
	for _, s := range e.slots {
		out := e.split.answers(&merged[s.topic])
		if s.answer != nil && (!s.open || e.split.notWritten == nil || leavesOpen(e.split.code(s.answer))) {
			*out = append(*out, *s.answer)
			continue
		}
		*out = append(*out, e.unanswered(s))
	}
	return merged
}

// unanswered is what is said of a slot that has no answer, or none to go by: a refusal tells only of the last try,
// where an earlier one may have taken effect.
func (e *errand[QT, QP, ST, SP]) unanswered(s *slot[SP]) SP {
	code := s.code
	if s.open && e.split.notWritten != nil {
		if code = kerr.NetworkException.Code; s.answer != nil {
			s.message = "it may have been stored; the last answer was " +
				kerr.TypedErrorForCode(e.split.code(s.answer)).Message
		}
	}
	p := e.split.unanswered(s.number, code)
	if e.split.explain != nil && s.message != "" {
		e.split.explain(&p, s.message)
	}
	return p
}

// leaders looks up who leads partitions, in one image.
type leaders struct {
	image *metadata.Image
	self  int32
}

func (r *Router) leaders() leaders { return leaders{image: r.cfg.Image(), self: r.cfg.NodeID} }

func (l leaders) topic(t topicKey) *metadata.Topic {
	if t.id != ([16]byte{}) {
		return l.image.TopicByID(t.id)
	}
	return l.image.Topic(t.name)
}

// of is the leader of a partition. What does not exist goes to this node, which says so.
func (l leaders) of(topic *metadata.Topic, number int32) int32 {
	if topic == nil || number < 0 || int(number) >= len(topic.Partitions) {
		return l.self
	}
	return topic.Partitions[number].Leader
}

// partition is what is known of a partition, nil when it does not exist.
func (l leaders) partition(t topicKey, number int32) *metadata.Partition {
	topic := l.topic(t)
	if topic == nil || number < 0 || int(number) >= len(topic.Partitions) {
		return nil
	}
	return &topic.Partitions[number]
}

// epoch is the leader epoch of a partition, -1 when it does not exist.
func (l leaders) epoch(t topicKey, number int32) int32 {
	if p := l.partition(t, number); p != nil {
		return p.LeaderEpoch
	}
	return -1
}

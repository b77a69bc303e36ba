package native

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/api"
	"millrace/client"
	"millrace/record"
)

// Patience of a hub with a cluster that cannot answer at the moment.
const (
	firstRetry   = 100 * time.Millisecond
	lastRetry    = time.Second
	failingLimit = 30 * time.Second
)

// A hub reads the tail of a topic for all streams of one kind. Its goroutine owns members and the writing to them;
// what others touch is guarded by mu, which is never held while anything is written or waited for.
type hub struct {
	tails *tails
	key   hubKey
	users int // guarded by tails.mu: streams, and calls that are about to make one

	ctx    context.Context
	cancel context.CancelFunc
	opened chan struct{} // closed once the hub stands at the tail, or openErr says why not
	// openErr is set before opened is closed.
	openErr error
	ended   chan struct{} // closed at the end
	err     error         // set before ended is closed: why
	comment frame

	mu      sync.Mutex
	seq     uint64               // number of the next frame; guarded by mu
	offsets []int64              // before the next frame; guarded by mu, replaced but never changed
	ring    []ringEntry          // the frames before seq, as far as kept; guarded by mu
	held    int                  // bytes in ring; guarded by mu
	others  map[*stream]struct{} // streams that have a goroutine; guarded by mu
	joining []*stream            // members since the last frame; guarded by mu
	over    bool                 // no more members; guarded by mu

	// What follows belongs to the hub's goroutine.
	topic    *client.Topic
	members  []*stream
	writers  []*directWriter
	helpers  []*helper
	parallel int
	spare    []byte // memory of a frame that nobody holds any more
	fetches  uint64
	sent     time.Time // last time that members were written to
	swept    time.Time // when the last sweep began
	sweepAt  int       // members from here on are still to be looked at; -1 between sweeps
	quiet    bool      // of the sweep under way: members are sent a comment
	failing  time.Time // since when fetches fail; zero if they do not
	retry    time.Duration
}

// ringEntry is a frame and the offsets behind it.
type ringEntry struct {
	frame frame
	after []int64
}

func newHub(t *tails, key hubKey, topic *client.Topic) *hub {
	h := &hub{
		tails: t, key: key, topic: topic, opened: make(chan struct{}), ended: make(chan struct{}),
		others: map[*stream]struct{}{}, comment: commentFrame(), sweepAt: -1,
		writers: []*directWriter{newDirectWriter()}, parallel: runtime.GOMAXPROCS(0),
	}
	h.ctx, h.cancel = context.WithCancel(t.ctx)
	return h
}

// partition is the number of the partition at index i of offsets; index is its inverse.
func (h *hub) partition(i int) int32 {
	if h.key.partition != allPartitions {
		return h.key.partition
	}
	return int32(i)
}

func (h *hub) index(partition int32) int {
	if h.key.partition != allPartitions {
		return 0
	}
	return int(partition)
}

// join counts s among the streams that have a goroutine: it is woken when there is more.
func (h *hub) join(s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.kick = make(chan struct{}, 1)
	h.others[s] = struct{}{}
}

// leave forgets a stream that has a goroutine.
func (h *hub) leave(s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.others, s)
}

// admit makes a stream at the tail a member. It fails when the hub has moved on or ended.
func (h *hub) admit(s *stream) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over || s.seq != h.seq {
		return false
	}
	c := s.sink.(*connSink)
	if c.conn.SetWriteDeadline(time.Time{}) != nil {
		return false
	}
	delete(h.others, s)
	s.kick, s.offsets, s.topic = nil, nil, nil
	h.joining = append(h.joining, s)
	return true
}

// tail is where the hub stands.
func (h *hub) tail() (seq uint64, offsets []int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seq, h.offsets
}

// since returns the next frames from number seq on and where they lead; false when the ring no longer has them.
func (h *hub) since(seq uint64) (frames []frame, next uint64, offsets []int64, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if seq == h.seq {
		return nil, seq, h.offsets, true
	}
	first := h.seq - uint64(len(h.ring))
	if seq < first {
		return nil, 0, nil, false
	}
	next = min(seq+burstFrames, h.seq)
	for _, e := range h.ring[seq-first : next-first] {
		frames = append(frames, e.frame)
		offsets = e.after
	}
	return frames, next, offsets, true
}

// run is the hub's goroutine.
func (h *hub) run() {
	h.openErr = h.open()
	close(h.opened)
	if h.openErr == nil {
		h.err = h.follow()
	} else {
		h.err = h.openErr
	}
	h.finish()
}

// open finds the tail.
func (h *hub) open() error {
	ctx, cancel := context.WithTimeout(h.ctx, openTimeout)
	defer cancel()
	places := placesOf(h.topic, h.key.partition)
	if err := lookUp(ctx, h.tails.consumer.client, h.topic, places, client.Latest, h.key.isolation); err != nil {
		return err
	}
	offsets := make([]int64, len(places))
	for i := range places {
		offsets[i] = places[i].next
	}
	h.mu.Lock()
	h.offsets = offsets
	h.mu.Unlock()
	h.sent, h.swept = time.Now(), time.Now()
	return nil
}

// follow fetches, encodes and sends until the hub is cancelled or cannot go on.
func (h *hub) follow() error {
	for h.ctx.Err() == nil {
		if err := h.fetch(); err != nil {
			return err
		}
		if now := time.Now(); h.sweepAt >= 0 || now.Sub(h.swept) >= sweepEvery {
			if err := h.sweep(now); err != nil {
				return err
			}
		}
	}
	return errStopped
}

// fetch waits for records and passes them on. Its error ends the hub.
func (h *hub) fetch() error {
	k := h.tails.consumer
	arena := k.edge.Arena()
	defer arena.Free()
	results, err := k.client.Fetch(record.WithArena(h.ctx, arena), h.request())
	if err != nil {
		return h.failed(err)
	}
	scratch := k.takeScratch()
	defer k.keepScratch(scratch)
	_, offsets := h.tail()
	e := newEventWriter(h, h.topic, offsets, len(offsets))
	e.spare, h.spare = h.spare, nil
	var fault error
	for i := range results {
		f := &results[i]
		at := h.index(f.Partition)
		switch {
		case errors.Is(f.Err, kerr.OffsetOutOfRange):
			lost := place{partition: f.Partition, next: e.offsets[at]}
			return outOfRange(h.ctx, k.client, h.topic, lost, f.Err)
		case f.Err != nil && !isDamage(f.Err):
			fault = f.Err
			continue
		}
		err := f.Err
		if err == nil {
			err = e.write(&scratch.scanner, at, f, forever)
		}
		if err != nil {
			h.publish(e)
			return e.unreadable(at, f.Partition, err)
		}
	}
	h.publish(e)
	if fault != nil {
		return h.failed(fault)
	}
	h.failing = time.Time{}
	return nil
}

// request asks for whatever comes next. While a sweep is under way it does not wait.
func (h *hub) request() client.FetchRequest {
	_, offsets := h.tail()
	r := client.FetchRequest{
		Topic: h.topic, MinBytes: 1, MaxBytes: tailFetchBytes, MaxWait: sweepEvery,
		ReadCommitted: h.key.isolation == client.ReadCommitted, Rack: h.key.rack,
		Partitions: make([]client.FetchPartition, len(offsets)),
	}
	if h.sweepAt >= 0 {
		r.MaxWait = 0
	}
	h.fetches++
	for i := range offsets {
		j := (i + int(h.fetches%uint64(len(offsets)))) % len(offsets)
		r.Partitions[i] = client.FetchPartition{Partition: h.partition(j), Offset: offsets[j]}
	}
	return r
}

// failed waits a little after a fault that may pass, and returns one that will not or has lasted too long.
func (h *hub) failed(err error) error {
	if h.ctx.Err() != nil {
		return errStopped
	}
	now := time.Now()
	if h.failing.IsZero() {
		h.failing, h.retry = now, firstRetry
	}
	if now.Sub(h.failing) > failingLimit {
		return err
	}
	if gone := h.refresh(); gone != nil {
		return gone
	}
	t := time.NewTimer(h.retry)
	defer t.Stop()
	h.retry = min(2*h.retry, lastRetry)
	select {
	case <-t.C:
	case <-h.ctx.Done():
	}
	return nil
}

// refresh looks whether the topic is still there, and whether it has more partitions, which are read from their
// start. Its error ends the hub.
func (h *hub) refresh() error {
	t, err := h.tails.consumer.client.Topic(h.ctx, h.key.topic, client.Refuse)
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return err
	case err != nil:
		return nil // to be seen by the next fetch, if it lasts
	case t.ID != h.key.id:
		return api.Refuse(api.KafkaFault(kerr.UnknownTopicID), "topic %s was deleted and created again", t.Name).
			With("topic", t.Name)
	}
	h.topic = t
	if _, offsets := h.tail(); h.key.partition == allPartitions && len(t.Partitions) > len(offsets) {
		grown := make([]int64, len(t.Partitions))
		copy(grown, offsets)
		h.mu.Lock()
		h.offsets = grown
		h.mu.Unlock()
	}
	return nil
}

// publish makes the frames of e known and sends them to the members.
func (h *hub) publish(e *eventWriter) {
	frames := e.finish()
	h.mu.Lock()
	h.offsets = e.offsets
	h.seq += uint64(len(frames))
	kept := len(h.others) > 0
	if kept {
		h.keepLocked(frames, e.after)
	} else {
		h.ring, h.held = nil, 0
	}
	h.takeJoiningLocked()
	h.mu.Unlock()
	if len(frames) == 0 {
		return
	}
	h.sent = time.Now()
	if released := h.deliver(frames); released && !kept && cap(frames[0]) <= 2*frameBytes {
		h.spare = frames[0]
	}
}

// keepLocked puts frames into the ring, drops what is beyond its bound, and wakes those who read from it.
func (h *hub) keepLocked(frames []frame, after [][]int64) {
	for i, f := range frames {
		h.ring = append(h.ring, ringEntry{f, after[i]})
		h.held += len(f)
	}
	drop := 0
	for h.held > ringBytes && drop < len(h.ring)-1 {
		h.held -= len(h.ring[drop].frame)
		drop++
	}
	h.ring = slices.Delete(h.ring, 0, drop)
	for s := range h.others {
		select {
		case s.kick <- struct{}{}:
		default: // it has not yet looked at what came before
		}
	}
}

// takeJoiningLocked makes those who joined since the last frame receive from the next one on.
func (h *hub) takeJoiningLocked() {
	h.members = append(h.members, h.joining...)
	clear(h.joining)
	h.joining = h.joining[:0]
}

// finish ends all that is left. New streams find another hub.
func (h *hub) finish() {
	h.tails.mu.Lock()
	h.tails.forgetLocked(h)
	h.tails.mu.Unlock()
	h.cancel()
	close(h.ended)
	h.mu.Lock()
	h.over = true
	h.takeJoiningLocked()
	h.ring = nil
	h.mu.Unlock()
	last := append(farewell(h.err), lastChunk...)
	for _, s := range h.members {
		_, _ = h.writers[0].send(s.sink.raw(), last) // a connection that is full learns of the end by its closing
		h.drop(s)
	}
	h.members = nil
	h.dismiss()
}

// drop ends a member.
func (h *hub) drop(s *stream) {
	_ = s.sink.(*connSink).conn.Close()
	s.done()
	h.tails.release(h)
}

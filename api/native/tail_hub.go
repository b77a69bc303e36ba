package native

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"millrace/api"
	"millrace/client"
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
	readers  []*hubReader
	parts    []hubPart       // by index in offsets
	answers  chan *hubAnswer // of the readers
	fetching sync.WaitGroup  // fetches under way
	rounds   int
	sent     time.Time // last time that members were written to
	swept    time.Time // when the last sweep began
	sweepAt  int       // members from here on are still to be looked at; -1 between sweeps
	quiet    bool      // of the sweep under way: members are sent a comment
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
		writers: []*directWriter{newDirectWriter()}, parallel: runtime.GOMAXPROCS(0), answers: make(chan *hubAnswer),
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
	for {
		err := lookUp(ctx, h.tails.consumer.client, h.topic, places, client.Latest, h.key.isolation)
		if err == nil {
			break
		}
		if !api.FromError(err).Fault.Retryable || !pause(ctx, firstRetry) {
			return err
		}
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

// pause waits; false when ctx ends before.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
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

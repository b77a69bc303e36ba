package native

import (
	"context"
	"net/http"
	"sync"
	"time"

	"millrace/api"
	"millrace/client"
)

// Times and sizes of live streams.
const (
	keepAliveEvery = 15 * time.Second // a stream that has nothing to say sends a comment
	sweepEvery     = 5 * time.Second  // a hub looks for readers that have gone, and for new partitions
	sweepSlice     = 1000             // readers looked at between two fetches
	frameBytes     = 64 << 10         // a frame is ended beyond this
	roundBytes     = 1 << 20          // events made from one fetch, save that one event always fits
	ringBytes      = 1 << 20          // frames that a hub keeps for streams that are not at its tail
	burstFrames    = 4                // frames that a stream takes from the ring at once
	tailFetchBytes = 512 << 10        // of a hub
	catchUpBytes   = 128 << 10        // of a stream that is behind
	catchUpRounds  = 1024             // streams that may hold what they fetched and have not sent
	openTimeout    = 30 * time.Second // for a hub to find the tail: leaders may be on the move
	directMembers  = 64               // up to so many a hub writes to by itself, more with the help of other goroutines
)

// tails owns the live streams. All streams of the same records in the same form share a hub, which reads the topic's
// tail once, encodes each event once, and is the only one that waits for records:
//
//	hub --- one long-poll Fetch after the other of each leader; a frame of events for each answer
//	 |
//	 +-- members: streams at the tail whose connection was taken over. They have no goroutine; the hub writes each
//	 |   frame to all of them without waiting. One that cannot take a whole frame leaves the members.
//	 +-- others: streams that have a goroutine, because they are behind, or because their connection cannot be taken
//	     over (HTTP/2, TLS). They read by fetches of their own up to where the hub is, then from the ring of the
//	     hub's last frames; one that may become a member does so when it has reached the tail.
//
// So a slow reader costs itself a goroutine, and the hub and the other readers nothing.
type tails struct {
	consumer *consumer
	ctx      context.Context // the lifetime of all streams
	cancel   context.CancelFunc
	wg       sync.WaitGroup // hubs, streams that have a goroutine
	rounds   chan struct{}  // one element a stream that holds what it fetched

	mu     sync.Mutex
	hubs   map[hubKey]*hub // guarded by mu
	closed bool            // guarded by mu
}

// hubKey says what streams must have in common to share a hub.
type hubKey struct {
	topic      string
	id         [16]byte
	partition  int32
	isolation  client.Isolation
	rack       string
	key, value form
}

func newTails(k *consumer) *tails {
	t := &tails{consumer: k, hubs: map[hubKey]*hub{}, rounds: make(chan struct{}, catchUpRounds)}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// close ends all streams, each with an event that says so, and waits for them.
func (t *tails) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.cancel()
	t.wg.Wait()
}

// enter counts a goroutine that close waits for; it calls t.wg.Done at its end. After close it may not begin.
func (t *tails) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.wg.Add(1)
	return true
}

// spawn runs fn in a goroutine that close waits for, unless close was called.
func (t *tails) spawn(fn func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.wg.Go(fn)
	return true
}

// errStopped is what those are told who come, or are there, while the server stops.
var errStopped = api.Refuse(api.Overloaded, "the server is stopping")

// hub returns the hub of key, which it starts if there is none. Each call is matched by one of release.
func (t *tails) hub(key hubKey, topic *client.Topic) (*hub, error) {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil, errStopped
	}
	h, found := t.hubs[key]
	if !found {
		h = newHub(t, key, topic)
		t.hubs[key] = h
		t.wg.Go(h.run)
	}
	h.users++
	t.mu.Unlock()
	<-h.opened // at most openTimeout
	if h.openErr != nil {
		t.release(h)
		return nil, h.openErr
	}
	return h, nil
}

// release gives up one use of a hub; the last one ends it.
func (t *tails) release(h *hub) {
	t.mu.Lock()
	h.users--
	last := h.users == 0
	if last {
		t.forgetLocked(h)
	}
	t.mu.Unlock()
	if last {
		h.cancel()
	}
}

// forgetLocked makes sure that nobody else finds h.
func (t *tails) forgetLocked(h *hub) {
	if t.hubs[h.key] == h {
		delete(t.hubs, h.key)
	}
}

// tail answers a read with a live stream of server-sent events. An error means that nothing was written yet.
func (k *consumer) tail(w http.ResponseWriter, r *http.Request, topic *client.Topic, partition int32,
	q *readQuery) error {
	if q.limited || q.sized || q.wait > 0 {
		return badQuery("max_records, max_bytes and wait are for answers that end; a stream of events goes on")
	}
	if q.origin.kind == originUnset {
		q.origin.kind = originLatest
	}
	if api.IsHead(r) {
		setStreamHead(w.Header())
		w.WriteHeader(http.StatusOK)
		return nil
	}
	done, err := k.edge.OpenStream()
	if err != nil {
		return err
	}
	if !k.tails.enter() {
		done()
		return errStopped
	}
	defer k.tails.wg.Done()
	s, err := k.openStream(r.Context(), topic, partition, q)
	if err != nil {
		done()
		return err
	}
	s.done = done
	// What is wrong with where the stream starts is told by the status, so the first fetch comes before the head.
	preface := s.preface() // names where the stream starts, which the fetch moves
	first, _, err := s.step()
	if err != nil {
		s.end()
		return err
	}
	if s.sink, err = openSink(w, r, k.edge.Now()); err != nil {
		s.end()
		return nil // the connection is gone
	}
	s.run(r.Context(), append([]frame{preface}, first...))
	return nil
}

// openStream makes a stream at the place that q asks for.
func (k *consumer) openStream(ctx context.Context, topic *client.Topic, partition int32,
	q *readQuery) (*stream, error) {
	places, err := start(ctx, k.client, topic, partition, q)
	if err != nil {
		return nil, err
	}
	h, err := k.tails.hub(hubKey{
		topic: topic.Name, id: topic.ID, partition: partition, isolation: q.isolation, rack: q.rack,
		key: q.key, value: q.value,
	}, topic)
	if err != nil {
		return nil, err
	}
	s := &stream{hub: h, topic: topic, begun: len(places), fresh: true}
	for i := range places {
		s.offsets = append(s.offsets, places[i].next)
	}
	h.join(s)
	return s, nil
}

package native

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/api"
	"millrace/client"
	"millrace/record"
)

// Patience of streams with a cluster that cannot answer at the moment. A cluster moves the leaderships of a broker
// that is silent after broker.session.timeout.ms, which is 9 s; failingLimit is far beyond that.
const (
	firstRetry   = 100 * time.Millisecond
	lastRetry    = time.Second
	failingLimit = 60 * time.Second
	catchUpLimit = time.Second // of one fetch of a stream that is behind: it has other partitions to read
)

// failingReader is the key of the reader of partitions that could not be read last, or have no leader.
const failingReader int32 = -1

// A hubReader is one of a hub's long-poll fetches: of the partitions that one broker leads, so that each waits for one
// broker alone, or of those that cannot be read at the moment, so that these hold up no others. Each partition is in
// one fetch at most at any time.
type hubReader struct {
	key     int32
	parts   []int // indexes of partitions in the fetch under way, nil when there is none
	cancel  context.CancelFunc
	next    []int // indexes of partitions that wait to be fetched
	stopped bool  // the fetch under way was called off, for the sake of partitions that it lacks
}

// hubPart is how it stands with one partition of a hub.
type hubPart struct {
	busy    bool
	young   bool      // it came after the hub, and was never read: it is read from where its log starts
	failing time.Time // since when it cannot be read; zero while it can
	due     time.Time // while failing: not to be tried before
	retry   time.Duration
	fault   error // why it cannot be read
}

// hubAnswer is what came of a fetch, in memory of its arena.
type hubAnswer struct {
	reader  *hubReader
	arena   *record.Arena
	results []client.FetchResult
	err     error
}

// follow fetches, encodes and sends until the hub is cancelled or cannot go on.
func (h *hub) follow() error {
	defer h.recall()
	tick := time.NewTimer(sweepEvery)
	defer tick.Stop()
	for h.ctx.Err() == nil {
		now := time.Now()
		if h.sweepAt >= 0 || now.Sub(h.swept) >= sweepEvery {
			if err := h.sweep(now); err != nil {
				return err
			}
		}
		next := h.launch(now)
		if h.sweepAt >= 0 {
			next = now // records do not wait for the sweep, nor the sweep for records
		}
		tick.Reset(max(next.Sub(now), 0))
		select {
		case a := <-h.answers:
			if err := h.take(a); err != nil {
				return err
			}
		case <-tick.C:
		case <-h.ctx.Done():
		}
	}
	return errStopped
}

// recall ends all fetches and waits for them.
func (h *hub) recall() {
	h.cancel()
	for _, r := range h.readers {
		if r.parts != nil {
			a := <-h.answers
			a.arena.Free()
		}
	}
	h.fetching.Wait()
}

// launch starts a fetch for each reader that has partitions and none under way. A reader that lacks partitions is
// called off, to start anew with them. It returns when to call it again.
func (h *hub) launch(now time.Time) (next time.Time) {
	next = h.swept.Add(sweepEvery)
	_, offsets := h.tail()
	for len(h.parts) < len(offsets) {
		h.parts = append(h.parts, hubPart{})
	}
	for _, r := range h.readers {
		r.next = r.next[:0]
	}
	h.rounds++
	for k := range h.parts {
		i := (k + h.rounds) % len(h.parts) // the first partition with records may take all the room
		switch p := &h.parts[i]; {
		case p.busy:
		case p.due.After(now):
			if p.due.Before(next) {
				next = p.due
			}
		default:
			r := h.readerOf(i)
			r.next = append(r.next, i)
		}
	}
	for _, r := range h.readers {
		switch {
		case len(r.next) == 0:
		case r.parts == nil:
			h.fetch(r, offsets)
		case !r.stopped:
			r.stopped = true
			r.cancel()
		}
	}
	return next
}

// readerOf is the reader for the partition at index i.
func (h *hub) readerOf(i int) *hubReader {
	key := failingReader
	if n := int(h.partition(i)); h.parts[i].failing.IsZero() && n < len(h.topic.Partitions) {
		key = h.topic.Partitions[n].Leader
	}
	for _, r := range h.readers {
		if r.key == key {
			return r
		}
	}
	r := &hubReader{key: key}
	h.readers = append(h.readers, r)
	return r
}

// fetch starts a fetch of what r.next lists.
func (h *hub) fetch(r *hubReader, offsets []int64) {
	r.parts = append([]int(nil), r.next...)
	req := client.FetchRequest{
		Topic: h.topic, MinBytes: 1, MaxBytes: tailFetchBytes, MaxWait: sweepEvery,
		ReadCommitted: h.key.isolation == client.ReadCommitted, Rack: h.key.rack,
		Partitions: make([]client.FetchPartition, len(r.parts)),
	}
	for k, i := range r.parts {
		h.parts[i].busy = true
		req.Partitions[k] = client.FetchPartition{Partition: h.partition(i), Offset: offsets[i]}
	}
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(h.ctx)
	r.stopped = false
	a := &hubAnswer{reader: r, arena: h.tails.consumer.edge.Arena()}
	h.fetching.Go(func() {
		defer func() { h.answers <- a }() // recall waits for it, whatever becomes of the fetch
		a.results, a.err = h.tails.consumer.client.Fetch(record.WithArena(ctx, a.arena), req)
	})
}

// take takes in what came of a fetch, and passes its records on. Its error ends the hub.
func (h *hub) take(a *hubAnswer) error {
	defer a.arena.Free()
	r, now := a.reader, time.Now()
	parts, stopped := r.parts, r.stopped
	r.cancel()
	r.parts = nil
	for _, i := range parts {
		h.parts[i].busy = false
	}
	if h.ctx.Err() != nil {
		return errStopped
	}
	if a.err != nil {
		if stopped {
			return nil
		}
		for _, i := range parts {
			h.parts[i].fail(now, a.err)
		}
		return h.failed(now)
	}
	k := h.tails.consumer
	scratch := k.takeScratch()
	defer k.keepScratch(scratch)
	_, offsets := h.tail()
	e := newEventWriter(h, h.topic, offsets, len(offsets))
	e.json.decoder = scratch.decoder.begin(h.ctx, h.topic.Name)
	e.spare, h.spare = h.spare, nil
	faulty, err := h.write(e, &scratch.scanner, a.results, now)
	h.publish(e)
	if err == nil && faulty {
		err = h.failed(now)
	}
	return err
}

// write encodes the records of a fetch. faulty says that some partition cannot be read at the moment; an error is one
// that ends the hub.
func (h *hub) write(e *eventWriter, s *scanner, results []client.FetchResult, now time.Time) (faulty bool, err error) {
	for i := range results {
		f := &results[i]
		at := h.index(f.Partition)
		switch {
		case errors.Is(f.Err, kerr.OffsetOutOfRange):
			if h.parts[at].young && e.begin(h.ctx, at, f) {
				continue
			}
			return faulty, h.lost(h.topic, place{partition: f.Partition, next: e.offsets[at]}, f)
		case isDamage(f.Err):
			return faulty, e.unreadable(at, f.Partition, f.Err)
		case f.Err != nil:
			h.parts[at].fail(now, f.Err)
			faulty = true
			continue
		}
		if err := e.write(s, at, f, forever); err != nil {
			return faulty, e.unreadable(at, f.Partition, err)
		}
		if f.HighWatermark >= 0 { // else nobody was asked
			h.parts[at] = hubPart{}
		}
	}
	return faulty, nil
}

// lost is the error for a stream whose place is outside the log. Where the log ends before what the stream has read,
// records are gone that were committed.
func (h *hub) lost(t *client.Topic, at place, f *client.FetchResult) error {
	err := fetchedOutOfRange(h.ctx, h.tails.consumer.client, t, at, f)
	var e *api.Error
	if !errors.As(err, &e) {
		return err
	}
	for _, m := range e.Extra {
		if end, ok := m.Value.(int64); ok && m.Name == "high_watermark" && end < at.next {
			e.Detail += ": records that this stream has read are gone, as after the election of a replica that lacked them"
		}
	}
	return e
}

// fail notes that the partition cannot be read.
func (p *hubPart) fail(now time.Time, fault error) {
	if p.failing.IsZero() {
		p.failing, p.retry = now, firstRetry
	}
	p.fault, p.due = fault, now.Add(p.retry)
	p.retry = min(2*p.retry, lastRetry)
}

// failed looks after a fault whether the topic is still there. Its error ends the hub: once no partition at all could
// be read for failingLimit. As long as one can, the others are tried on.
func (h *hub) failed(now time.Time) error {
	if gone := h.refresh(); gone != nil {
		return gone
	}
	for i := range h.parts {
		if p := &h.parts[i]; p.failing.IsZero() || now.Sub(p.failing) <= failingLimit {
			return nil
		}
	}
	return h.parts[0].fault
}

// refresh looks whether the topic is still there, who leads its partitions, and whether it has more of them, which are
// read from their start. Its error ends the hub.
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
		for len(h.parts) < len(grown) {
			h.parts = append(h.parts, hubPart{young: len(h.parts) >= len(offsets)})
		}
		h.mu.Lock()
		h.offsets = grown
		h.mu.Unlock()
	}
	return nil
}

package schemaregistry

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/client"
	"millrace/record"
)

const (
	fetchBytes   = 4 << 20
	expandBytes  = 64 << 20 // of one compressed batch of a foreign writer
	fetchWait    = 500 * time.Millisecond
	fetchTimeout = 30 * time.Second
	missingWait  = time.Second // between looks for a topic that does not exist
	retryWait    = 20 * time.Millisecond
	maxRetryWait = 2 * time.Second
)

// Run reads the log until ctx ends, and returns nil then. It goes on after errors.
func (r *Registry) Run(ctx context.Context) error {
	var asking sync.WaitGroup
	asking.Go(func() { r.answerAsks(ctx) })
	defer asking.Wait()
	wait := retryWait
	for ctx.Err() == nil {
		before := r.Offset()
		err := r.follow(ctx)
		if ctx.Err() != nil {
			break
		}
		if r.Offset() != before {
			wait = retryWait
		}
		r.log.Debug("reading the log of schemas is interrupted", "topic", r.cfg.Topic, "err", err)
		_ = pause(ctx, wait) // its end ends the loop
		wait = min(2*wait, maxRetryWait)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// follow reads the topic as it is now, from where the state is if that is of this topic, until something is wrong.
func (r *Registry) follow(ctx context.Context) error {
	topic, err := r.client.Renew(ctx, r.cfg.Topic)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		if at, _ := r.place(); at.offset > 0 {
			r.log.Warn("the log of schemas is gone, and all schemas with it", "topic", r.cfg.Topic, "offset", at.offset)
		}
		r.publish(newState(), position{}, 0)
		r.awaitTopic(ctx)
		return nil
	}
	if err != nil {
		return err
	}
	f := &follower{r: r, topic: topic}
	if err := f.begin(ctx); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := f.step(ctx); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// awaitTopic returns when it is time to look for the topic again.
func (r *Registry) awaitTopic(ctx context.Context) {
	t := time.NewTimer(missingWait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.kicked:
	case <-ctx.Done():
	}
}

// kick has the reader look for the topic now.
func (r *Registry) kick() {
	r.client.Forget(r.cfg.Topic)
	select {
	case r.kicked <- struct{}{}:
	default:
	}
}

// follower reads one topic. While it has a fresh state of its own, that one is read up to the end of the log before it
// takes the place of the Registry's.
type follower struct {
	r      *Registry
	topic  *client.Topic
	start  int64  // where the log began when the fold did
	offset int64  // the next one to read
	fresh  *state // nil: the Registry's state is read on
	reader record.Reader
}

// begin finds where to read on.
func (f *follower) begin(ctx context.Context) error {
	start, end, err := f.r.client.Bounds(ctx, f.topic, 0)
	if err != nil {
		return err
	}
	at, began := f.r.place()
	f.start = start
	if at.topic == f.topic.ID && f.r.isLoaded() && began == start && at.offset >= start && at.offset <= end {
		f.offset = at.offset
		return nil
	}
	if f.r.isLoaded() && at.offset > 0 {
		f.r.log.Warn("the log of schemas is another one, or was cut: it is read again from its start",
			"topic", f.r.cfg.Topic, "offset", at.offset, "start", start, "end", end)
	}
	f.fresh, f.offset = newState(), start
	if start >= end {
		f.publish(start)
	}
	return nil
}

// step fetches once.
func (f *follower) step(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	results, err := f.r.client.Fetch(ctx, client.FetchRequest{
		Topic: f.topic, Partitions: []client.FetchPartition{{Offset: f.offset}},
		MaxWait: fetchWait, MinBytes: 1, MaxBytes: fetchBytes,
	})
	if err != nil {
		return err
	}
	got := &results[0]
	var fault *client.KafkaError
	if errors.As(got.Err, &fault) && errors.Is(got.Err, kerr.CorruptMessage) && fault.ResumeOffset > f.offset {
		f.r.skip("a damaged batch", f.offset, got.Err)
		f.take(nil, fault.ResumeOffset, got.HighWatermark)
		return nil
	}
	if got.Err != nil {
		return got.Err
	}
	if got.LogStartOffset > f.start {
		return errors.New("the log was trimmed")
	}
	entries, next, err := f.entries(got.Batches, got.HighWatermark)
	if err != nil {
		return err
	}
	f.take(entries, next, got.HighWatermark)
	return nil
}

// entries reads whole batches below the high watermark. What cannot be understood is counted and passed over.
func (f *follower) entries(batches []byte, end int64) (out []entry, next int64, err error) {
	next = f.offset
	for len(batches) > 0 {
		b, rest, err := record.Next(batches)
		if err != nil { // the last one is cut
			if next == f.offset {
				return nil, next, err
			}
			break
		}
		batches = rest
		if b.NextOffset() <= f.offset || b.BaseOffset() >= end {
			continue
		}
		if !b.IsControl() {
			out = f.batch(out, b)
		}
		next = b.NextOffset()
	}
	return out, next, nil
}

func (f *follower) batch(out []entry, b record.Batch) []entry {
	var rec record.Record
	f.reader.Reset(b, expandBytes)
	for f.reader.Next(&rec) {
		if rec.Offset < f.offset {
			continue
		}
		e, err := readEntry(rec.Key, rec.Value)
		if err != nil {
			f.r.skip("a record", rec.Offset, err)
			continue
		}
		e.timestamp = rec.Timestamp
		for i := range rec.Headers {
			if h := &rec.Headers[i]; h.Key == writeHeader && len(h.Value) == len(writeID{}) {
				e.own, e.write = true, writeID(h.Value)
			}
		}
		out = append(out, e)
	}
	if err := f.reader.Err(); err != nil {
		f.r.skip("a part of a batch", b.BaseOffset(), err)
	}
	return out
}

// skip counts what is passed over.
func (r *Registry) skip(what string, offset int64, err error) {
	r.metrics.skipped.Inc()
	r.log.Warn("something in the log of schemas is not understood, and is passed over",
		"topic", r.cfg.Topic, "what", what, "offset", offset, "err", err)
}

// take folds entries and moves on.
func (f *follower) take(entries []entry, next, end int64) {
	f.offset = max(f.offset, next)
	if f.fresh != nil {
		for i := range entries {
			f.fresh.apply(&entries[i])
		}
		f.r.see(entries)
		if f.offset >= end {
			f.publish(end)
		}
		return
	}
	r := f.r
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard, r.end = time.Now(), end
	conflicts := r.state.conflicts
	for i := range entries {
		r.state.apply(&entries[i])
	}
	r.seeLocked(entries)
	r.metrics.conflicts.Add(float64(r.state.conflicts - conflicts))
	if r.at.offset != f.offset {
		r.at.offset = f.offset
		r.wakeLocked()
	}
}

// see notes which writes under way are read back.
func (r *Registry) see(entries []entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seeLocked(entries)
}

func (r *Registry) seeLocked(entries []entry) {
	for i := range entries {
		e := &entries[i]
		if _, ok := r.pending[e.write]; ok && e.own {
			r.pending[e.write] = true
		}
	}
}

// publish gives the fresh state to the Registry.
func (f *follower) publish(end int64) {
	f.r.metrics.conflicts.Add(float64(f.fresh.conflicts))
	f.fresh.start = f.start
	f.r.publish(f.fresh, position{f.topic.ID, f.offset}, end)
	f.fresh = nil
}

// publish replaces the state.
func (r *Registry) publish(s *state, at position, end int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard, r.end, r.loaded = time.Now(), end, true
	r.state, r.at = s, at
	r.wakeLocked()
}

func (r *Registry) wakeLocked() {
	close(r.moved)
	r.moved = make(chan struct{})
}

// place is where the state is, and where its log began.
func (r *Registry) place() (at position, start int64) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.at, r.state.start
}

func (r *Registry) isLoaded() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.loaded
}

package task

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/client"
	"millrace/connect/data"
	"millrace/connect/plugin"
	"millrace/record"
)

// gather makes a batch of what was fetched, or waits for something to fetch, for news, or for the time of an empty one.
func (s *sink) gather(ctx context.Context, n news) error {
	if len(s.work) == 0 {
		if err := s.await(ctx, n); err != nil || ctx.Err() != nil {
			return err
		}
	}
	s.prefetch(ctx)
	if len(s.work) > 0 {
		if err := s.fill(ctx); err != nil {
			return err
		}
	}
	if s.batch == nil && len(s.parts) > 0 && time.Since(s.putAt) >= emptyEvery {
		s.batch = &plugin.SinkBatch{Next: make(map[client.TopicPartition]int64)}
	}
	return nil
}

// prefetch has the next records be fetched while those in hand are dealt with.
func (s *sink) prefetch(ctx context.Context) {
	if s.fetch.under() || time.Now().Before(s.fetchAt) {
		return
	}
	now := time.Now()
	places := make([]place, 0, len(s.parts))
	for _, p := range s.parts {
		if !p.later.After(now) {
			places = append(places, place{p, p.fetchAt, p.turn})
		}
	}
	if len(places) > 0 {
		s.fetch.start(ctx, places)
	}
}

// await waits for the fetch under way.
func (s *sink) await(ctx context.Context, n news) error {
	s.prefetch(ctx)
	var done chan answer // nil: there is nothing to fetch
	if s.fetch.under() {
		done = s.fetch.done
	}
	until := s.putAt.Add(emptyEvery)
	if len(s.parts) == 0 {
		until = time.Now().Add(emptyEvery)
	}
	for _, t := range []time.Time{s.commitAt, s.openAt, s.fetchAt} {
		if t.After(time.Now()) && t.Before(until) {
			until = t
		}
	}
	if done == nil {
		until = time.Now().Add(min(max(time.Until(until), time.Millisecond), partPause))
	}
	timer := time.NewTimer(max(time.Until(until), 0))
	defer timer.Stop()
	select {
	case a := <-done:
		s.fetch.took()
		return s.heard(ctx, a)
	case <-timer.C:
	case <-n.member:
	case <-n.target:
	case <-ctx.Done():
	}
	return nil
}

// heard takes in what a fetch brought.
func (s *sink) heard(ctx context.Context, a answer) error {
	if a.err != nil {
		if ctx.Err() == nil && !transient(a.err) {
			return a.err
		}
		wait := s.fetches.delay()
		s.fetchAt = time.Now().Add(wait)
		s.log.Debug("a fetch was not answered", "err", a.err, "pause", wait)
		return nil
	}
	s.fetches.reset()
	for _, g := range a.parts {
		p := g.part
		if s.parts[p.TopicPartition] != p || p.turn != g.turn {
			continue
		}
		if g.err != nil {
			if err := s.unread(ctx, p, g.err); err != nil {
				return err
			}
			continue
		}
		if p.end = g.hw; !s.set.uncommitted {
			p.end = g.lso
		}
		if g.end > p.fetchAt || len(g.batches) > 0 {
			p.fetchAt = max(p.fetchAt, g.end)
			s.work = append(s.work, newScan(g, s.codecs))
		}
	}
	s.measure()
	return nil
}

// unread deals with a partition that could not be read.
func (s *sink) unread(ctx context.Context, p *sinkPart, err error) error {
	switch {
	case isOutside(err):
		return s.reset(ctx, p)
	case transient(err), errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		p.later = time.Now().Add(partPause)
		return nil
	}
	return &fault{stageConsume, s.spec.Class.Class, err}
}

// measure notes how far the sink is behind.
func (s *sink) measure() {
	most := int64(0)
	for _, p := range s.parts {
		if p.end >= 0 {
			most = max(most, p.end-p.taken)
		}
	}
	s.metrics.sink.lag.Set(float64(most))
}

// fill makes a batch of what was fetched.
func (s *sink) fill(ctx context.Context) error {
	b := &plugin.SinkBatch{Next: make(map[client.TopicPartition]int64)}
	f := filling{batch: b}
	for len(s.work) > 0 && !f.full(s.set.maxRecords) {
		w := s.work[0]
		if p := w.part; s.parts[p.TopicPartition] != p || p.turn != w.turn {
			s.work = s.work[1:]
			continue
		}
		over, err := s.take(ctx, w, &f)
		if err != nil {
			return err
		}
		if over {
			s.work[0] = nil
			s.work = s.work[1:]
		}
	}
	if err := s.dead.flush(ctx); err != nil { // before a commit can pass over what is in there
		return err
	}
	if len(b.Next) == 0 {
		return nil
	}
	m := s.metrics.sink
	m.read.Add(float64(f.read))
	m.active.Set(float64(len(b.Records)))
	m.actives.add(float64(len(b.Records)))
	s.metrics.batch.add(float64(len(b.Records)))
	s.batch, s.retryAt = b, time.Time{}
	return nil
}

// filling is a batch that is being made.
type filling struct {
	batch *plugin.SinkBatch
	bytes int
	read  int // records, also those that are not in it
}

func (f *filling) full(limit int) bool { return f.read >= limit || f.bytes >= batchLimit }

// take takes records of one partition into a batch until it is full, or there are none left: then it is over.
func (s *sink) take(ctx context.Context, w *scan, f *filling) (over bool, err error) {
	p, before := w.part, w.part.position
	defer func() {
		if p.position > before {
			f.batch.Next[p.TopicPartition] = p.position
		}
	}()
	var rec record.Record
	for !f.full(s.set.maxRecords) {
		behind, ok, err := w.next(p.position, &rec)
		if err != nil {
			return false, &fault{stageConsume, s.spec.Class.Class, err}
		}
		if !ok {
			p.position = max(p.position, behind)
			return true, nil
		}
		f.read++
		f.bytes += len(rec.Key) + len(rec.Value)
		r, err := s.convert(ctx, p, &rec)
		if err != nil {
			return false, err
		}
		p.position = behind
		if r != nil {
			f.batch.Records = append(f.batch.Records, r)
		}
	}
	return false, nil
}

// convert makes what the sink gets of a record; nil: it is passed over.
func (s *sink) convert(ctx context.Context, p *sinkPart, rec *record.Record) (*plugin.SinkRecord, error) {
	if len(s.slab) == 0 {
		s.slab = make([]plugin.SinkRecord, slabSize)
	}
	r := &s.slab[0]
	s.slab = s.slab[1:]
	r.Origin = plugin.Origin{TopicPartition: p.TopicPartition, Offset: rec.Offset}
	r.Raw = plugin.RawRecord{Key: rec.Key, Value: rec.Value, Timestamp: rec.Timestamp}
	if len(rec.Headers) > 0 {
		r.Raw.Headers = slices.Clone(rec.Headers)
	}
	r.Record = data.Record{Topic: p.Topic, Partition: p.Partition, Timestamp: rec.Timestamp, Offset: rec.Offset}
	f := s.chain.decode(ctx, &r.Raw, &r.Record)
	if f == nil {
		var out *data.Record
		if out, f = s.chain.apply(ctx, &r.Record); f == nil {
			if out == nil {
				return nil, nil
			}
			if out != &r.Record {
				r.Record = *out
			}
			return r, nil
		}
	}
	if err := s.reject(ctx, r, f); err != nil {
		return nil, fmt.Errorf("read %v: %w", p.TopicPartition, err)
	}
	return nil, nil
}

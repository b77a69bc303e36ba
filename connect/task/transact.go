package task

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/client"
	"millrace/connect/data"
	"millrace/connect/plugin"
	"millrace/record"
)

// transact writes records and their offsets in one transaction, and commits it. After an error the transaction may be
// open. With fresh, nothing that was known of topics counts.
func (s *source) transact(ctx context.Context, records []*plugin.SourceRecord, fresh bool) error {
	s.topics.begin(fresh)
	defer s.clear()
	count := 0
	for i, r := range records {
		written, err := s.put(ctx, i, r)
		if err != nil {
			return err
		}
		if written {
			count++
		}
	}
	if err := s.putOffsets(ctx, records); err != nil {
		return err
	}
	if err := s.ship(ctx); err != nil {
		return err
	}
	if err := s.land(); err != nil || !s.producer.open {
		return err
	}
	begun := time.Now()
	err := s.producer.end(ctx, client.Commit)
	s.metrics.commit.millis(time.Since(begun))
	if err != nil {
		s.metrics.uncommit.Inc()
		return err
	}
	s.metrics.commits.Inc()
	s.metrics.source.written.Add(float64(count))
	s.metrics.source.transaction.add(float64(count))
	s.freshMu.Lock()
	s.fresh = time.Time{}
	s.freshMu.Unlock()
	s.note()
	return nil
}

// clear waits for what is being sent, and forgets what was built.
func (s *source) clear() {
	_ = s.land() // whoever asks has an error already, or nothing is sent
	s.build.release(s.build.take())
	for _, k := range s.topics.known {
		k.written = false
	}
}

// put puts one record into the transaction, if it comes through.
func (s *source) put(ctx context.Context, i int, r *plugin.SourceRecord) (written bool, err error) {
	if r.Topic == "" {
		return false, nil // it only moves the source's place
	}
	if f := s.rejected[i]; f != nil {
		return false, s.reject(ctx, i, r, f)
	}
	if r.Fault != nil {
		return false, s.reject(ctx, i, r, &fault{stageValue, s.spec.Class.Class, r.Fault})
	}
	changed := r.Record
	out, f := s.chain.apply(ctx, &changed)
	if f != nil || out == nil {
		return false, s.reject(ctx, i, r, f)
	}
	var rec record.Record
	if f = s.encode.encode(ctx, out, &rec); f != nil {
		return false, s.reject(ctx, i, r, f)
	}
	if rec.Timestamp == data.NoTimestamp {
		rec.Timestamp = s.opts.Now().UnixMilli()
	}
	f, err = s.add(ctx, out.Topic, out.Partition, &rec, i)
	if f != nil {
		err = s.reject(ctx, i, r, f)
		return false, err
	}
	return err == nil, err
}

// add adds a record for a topic to what is built, and has what is full be sent.
func (s *source) add(ctx context.Context, topic string, partition int32, rec *record.Record, from int) (*fault, error) {
	k, f, err := s.target(ctx, topic)
	if f != nil || err != nil {
		return f, err
	}
	if err := k.check(rec); err != nil {
		return &fault{stageProduce, s.spec.Class.Class, err}, nil
	}
	if partition, err = k.place(partition, rec); err != nil {
		return &fault{stageProduce, s.spec.Class.Class, err}, nil
	}
	return nil, s.append(ctx, k, partition, rec, from)
}

func (s *source) append(ctx context.Context, k *target, partition int32, rec *record.Record, from int) error {
	if !s.build.fits(k, partition, record.RecordSize(rec)) {
		if err := s.ship(ctx); err != nil {
			return err
		}
	}
	s.build.add(k, partition, rec, from)
	return nil
}

// target is the topic of a name. It asks until there is an answer.
func (s *source) target(ctx context.Context, name string) (*target, *fault, error) {
	pause := backoff{first: firstPause, longest: longestPause}
	for {
		k, err := s.topics.get(ctx, name)
		switch {
		case err == nil:
			return k, nil, nil
		case errors.Is(err, kerr.InvalidTopicException) && client.CheckTopicName(name) != nil: // and no topic of the cluster
			return nil, &fault{stageProduce, s.spec.Class.Class, err}, nil
		case !transient(err):
			return nil, nil, fmt.Errorf("topic %s: %w", name, err)
		}
		s.log.Debug("a topic is asked for again", "topic", name, "err", err)
		if err := sleep(ctx, pause.delay()); err != nil {
			return nil, nil, err
		}
	}
}

// reject deals with a record that cannot go on; nil: it is dropped, which is no fault.
func (s *source) reject(ctx context.Context, i int, r *plugin.SourceRecord, f *fault) error {
	if f == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	passed := s.set.tolerant && f.passable()
	if !s.spent[i] {
		passed = s.spend(f, "topic", r.Topic, "source_partition", r.Source.Partition, "source_offset", r.Source.Offset)
		if s.spent == nil {
			s.spent = make(map[int]bool)
		}
		s.spent[i] = true
	}
	if !passed {
		return &blamedError{i, r.Topic, f}
	}
	if !s.dead.on() {
		return nil
	}
	letter := s.dead.ofSource(ctx, r, f)
	s.metrics.failures.letters.Inc()
	again, err := s.add(ctx, s.dead.topic, data.AnyPartition, &letter, i)
	if again != nil {
		s.metrics.failures.unlettered.Inc()
		return fmt.Errorf("%w (%w), which is there because of: %w", errUnwritable, again.err, f)
	}
	return err
}

// putOffsets puts the newest offset of each source partition into the transaction.
func (s *source) putOffsets(ctx context.Context, records []*plugin.SourceRecord) error {
	var last map[string]any // the partition seen last
	var seen map[string]bool
	k := &s.offsets
	for i := len(records) - 1; i >= 0; i-- {
		o := records[i].Source
		if o.Partition == nil || o.Offset == nil || last != nil && samePartition(last, o.Partition) {
			continue
		}
		last = o.Partition
		if seen == nil {
			seen = make(map[string]bool)
			if err := s.offsetTarget(ctx); err != nil {
				return err
			}
		}
		partition, key, value, err := s.opts.Store.OffsetRecord(k.topic, s.spec.Connector, o)
		if err != nil {
			return fmt.Errorf("offset of the source: %w", err)
		}
		if seen[string(key)] {
			continue
		}
		seen[string(key)] = true
		rec := record.Record{Key: key, Value: value, Timestamp: s.opts.Now().UnixMilli()}
		if err := s.append(ctx, k, partition, &rec, -1); err != nil {
			return err
		}
	}
	return nil
}

// offsetTarget makes the topic of offsets ready for the transaction.
func (s *source) offsetTarget(ctx context.Context) error {
	k := &s.offsets
	pause := backoff{first: firstPause, longest: longestPause}
	for {
		topic, err := s.opts.Store.OffsetTopic(ctx)
		if err == nil {
			k.topic, k.batch = topic, batchBytes
			if len(k.slots) != len(topic.Partitions) {
				k.slots = make([]*slot, len(topic.Partitions))
			}
			return nil
		}
		if !transient(err) {
			return fmt.Errorf("topic of offsets: %w", err)
		}
		if err := sleep(ctx, pause.delay()); err != nil {
			return err
		}
	}
}

// samePartition says whether two source partitions are one. Mostly a source has one map for all records.
func samePartition(a, b map[string]any) bool {
	if len(a) != len(b) {
		return false
	}
	return reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer() || data.EqualValues(a, b)
}

// ship ends the part under way and has it be sent, when the one before has arrived.
func (s *source) ship(ctx context.Context) error {
	p := s.build.take()
	if p == nil {
		return nil
	}
	if err := s.land(); err != nil {
		s.build.release(p)
		return err
	}
	s.producer.seal(p)
	f := &flight{part: p, done: make(chan error, 1)}
	s.sending.Go(func() { f.done <- s.producer.send(ctx, p) })
	s.flight = f
	return nil
}

// land waits for the part that is being sent.
func (s *source) land() error {
	if s.flight == nil {
		return nil
	}
	err := <-s.flight.done
	s.sending.Wait()
	s.build.release(s.flight.part)
	s.flight = nil
	return err
}

// note notes which topics the connector uses.
func (s *source) note() {
	if s.opts.NoTopicTracking {
		return
	}
	for name, k := range s.topics.known {
		if k.written && !k.noted {
			s.notes.add(name)
			k.noted = true
		}
	}
}

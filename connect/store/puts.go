package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"millrace/client"
	"millrace/client/statetopic"
	"millrace/record"
)

// maxPuts bounds the records of the status topic that wait to be written.
const maxPuts = 10_000

// putBytes is the size from which records of one partition go in several batches.
const putBytes = 512 << 10

const (
	produceWait  = 10 * time.Second
	retryWait    = 20 * time.Millisecond
	maxRetryWait = 2 * time.Second
)

// putQueue are the records of the status topic that wait to be written, in the order in which they came. One loop
// writes them, so that of two statuses of a task the later one stays.
type putQueue struct {
	wake chan struct{}

	mu      sync.Mutex
	waiting []*put // guarded by mu
	count   int    // of their records; guarded by mu
	closed  bool   // nobody writes any more; guarded by mu
}

// put are records of one caller.
type put struct {
	records []outRecord
	done    chan struct{}
	err     error
}

// put writes records to the status topic.
func (s *Store) put(ctx context.Context, records ...outRecord) error {
	if len(records) == 0 {
		return nil
	}
	for i := range records {
		if n := len(records[i].key) + len(records[i].value); n > maxRecordBytes {
			text := fmt.Sprintf("a status of %d bytes is too large; %d are allowed", n, maxRecordBytes)
			return &Error{Message: text, Refused: true}
		}
	}
	p := &put{records: records, done: make(chan struct{})}
	if err := s.puts.add(p); err != nil {
		return err
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return &Error{Message: "it is not known whether the status is written", Unknown: true, Cause: ctx.Err()}
	}
}

func (q *putQueue) add(p *put) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return &Error{Message: "the status is not written", Cause: statetopic.ErrStopped}
	case q.count >= maxPuts:
		return &Error{Message: "the status is not written: too many wait for topics of status to be written"}
	}
	q.waiting = append(q.waiting, p)
	q.count += len(p.records)
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return nil
}

// next takes all that waits. After the last time nothing may be added.
func (q *putQueue) next(last bool) []*put {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := q.waiting
	q.waiting, q.count, q.closed = nil, 0, last
	return out
}

// writePuts writes what waits until ctx ends.
func (s *Store) writePuts(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-s.puts.wake:
		case <-ctx.Done():
			continue
		}
		puts := s.puts.next(false)
		var records []keyed
		for _, p := range puts {
			for i := range p.records {
				records = append(records, keyed{-1, []byte(p.records[i].key), p.records[i].value})
			}
		}
		err := s.writeAll(ctx, s.status, records)
		for _, p := range puts {
			p.err = err
			close(p.done)
		}
	}
	for _, p := range s.puts.next(true) {
		p.err = &Error{Message: "the status is not written", Cause: statetopic.ErrStopped}
		close(p.done)
	}
}

// keyed is a record for a partition, or for that of its key if that is -1.
type keyed struct {
	partition  int32
	key, value []byte
}

// writeAll writes until all is written: again for what may not be. A record that is there twice says the same.
func (s *Store) writeAll(ctx context.Context, t *statetopic.Tail, records []keyed) error {
	ctx, cancel := context.WithTimeout(ctx, writeWait)
	defer cancel()
	topic, err := s.topicOf(ctx, t)
	if err != nil {
		return err
	}
	batches := s.batches(topic, records)
	for wait := retryWait; ; wait = min(2*wait, maxRetryWait) {
		var left []client.Batch
		err := s.writeRound(ctx, batches, &left)
		if len(left) == 0 {
			return nil
		}
		if statetopic.IsRefusal(err) || pause(ctx, wait) != nil {
			text := "it is not known whether all was written to topic " + t.Topic()
			return &Error{Message: text, Unknown: true, Cause: err}
		}
		batches = left
	}
}

// writeRound sends at most one batch for each partition at a time, in their order, and gives what is not written.
func (s *Store) writeRound(ctx context.Context, batches []client.Batch, left *[]client.Batch) (fault error) {
	for len(batches) > 0 {
		var now, later []client.Batch
		busy := map[int32]bool{}
		for _, b := range batches {
			if busy[b.Partition] {
				later = append(later, b)
				continue
			}
			busy[b.Partition] = true
			sent := b
			sent.Bytes = append(record.Batch(nil), b.Bytes...) // the callee may write into it
			now = append(now, sent)
		}
		results, err := s.client.Produce(ctx, client.ProduceRequest{Acks: client.AcksAll, Timeout: produceWait, Batches: now})
		for i := range now {
			if one := err; one != nil || results[i].Err != nil {
				fault = errors.Join(one, results[i].Err)
				*left = append(*left, batches[indexOf(batches, now[i].Partition)])
			}
		}
		if fault != nil {
			*left = append(*left, later...)
			return fault
		}
		batches = later
	}
	return nil
}

// indexOf is the first batch for a partition.
func indexOf(batches []client.Batch, partition int32) int {
	for i := range batches {
		if batches[i].Partition == partition {
			return i
		}
	}
	return -1
}

// batches makes batches of records.
func (s *Store) batches(topic *client.Topic, records []keyed) (out []client.Batch) {
	builders := make([]record.Builder, len(topic.Partitions))
	now := s.opts.Now().UnixMilli()
	flush := func(partition int32) {
		b := &builders[partition]
		out = append(out, client.Batch{Topic: topic, Partition: partition, Bytes: append(record.Batch(nil), b.Build()...)})
		b.Reset(nil)
	}
	for i := range records {
		r := &records[i]
		at := r.partition
		if at < 0 {
			at = record.KeyPartition(r.key, int32(len(builders)))
		}
		builders[at].Append(&record.Record{Timestamp: now, Key: r.key, Value: r.value})
		if builders[at].Size() >= putBytes {
			flush(at)
		}
	}
	for i := range builders {
		if builders[i].Count() > 0 {
			flush(int32(i))
		}
	}
	return out
}

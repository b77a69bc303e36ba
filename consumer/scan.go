package consumer

import (
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/record"
)

// scan takes records out of fetched batches until a poll is full: those at or above the position, of no control
// batch and of no aborted transaction.
type scan struct {
	q       *PollRequest
	codecs  *record.Codecs
	records []Record
	bytes   int
	full    bool
}

// take takes the records of one partition.
func (s *scan) take(g *fetched, p *kmsg.FetchResponseTopicPartition) {
	g.first = len(s.records)
	if g.fault = faultOf(g.part.TopicPartition, g.from, p); g.fault != nil {
		g.outside = errors.Is(g.fault, kerr.OffsetOutOfRange)
		return
	}
	pending := slices.Clone(p.AbortedTransactions)
	slices.SortFunc(pending, func(a, b kmsg.FetchResponseTopicPartitionAbortedTransaction) int {
		return int(min(max(a.FirstOffset-b.FirstOffset, -1), 1))
	})
	var aborted []int64 // producers whose transaction, open at the batch in hand, was aborted
	for rest := p.RecordBatches; !s.full; {
		var b record.Batch
		var err error
		if b, rest, err = record.Next(rest); errors.Is(err, record.ErrShort) {
			break
		} else if err != nil {
			g.fault = s.damaged(g, err)
			break
		}
		for len(pending) > 0 && pending[0].FirstOffset <= b.LastOffset() {
			aborted, pending = append(aborted, pending[0].ProducerID), pending[1:]
		}
		skip := b.NextOffset() <= g.next
		switch {
		case b.IsControl():
			if m, ok := b.EndTxnMarker(); ok && m.Type == record.ControlAbort {
				aborted = slices.DeleteFunc(aborted, func(id int64) bool { return id == b.ProducerID() })
			}
			skip = true
		case b.IsTransactional() && slices.Contains(aborted, b.ProducerID()):
			skip = true
		}
		if !skip {
			if err = s.batch(g, b); err == errFull {
				break
			} else if err != nil {
				g.fault = err
				break
			}
		}
		g.next = max(g.next, b.NextOffset())
	}
	g.count = len(s.records) - g.first
}

// batch takes the records of one batch.
func (s *scan) batch(g *fetched, b record.Batch) error {
	// The records keep the memory of an expanded batch, so each has a reader of its own.
	r := record.Reader{Codecs: s.codecs}
	r.Reset(b, maxExpanded)
	var rec record.Record
	for r.Next(&rec) {
		if rec.Offset < g.next {
			continue
		}
		if s.q.Check != nil {
			if err := s.q.Check(&Record{Topic: g.part.Topic, Partition: g.part.Partition, Record: rec}); err != nil {
				g.refused = true
				return err
			}
		}
		size := payloadSize(&rec)
		if n := len(s.records); n > 0 && (n == s.q.MaxRecords || s.bytes+size > s.q.MaxBytes) {
			s.full = true
			return errFull
		}
		rec.Headers = slices.Clone(rec.Headers)
		s.records = append(s.records, Record{Topic: g.part.Topic, Partition: g.part.Partition, Record: rec})
		s.bytes += size
		g.next = rec.Offset + 1
		rec.Headers = nil
	}
	if err := r.Err(); err != nil {
		return s.damaged(g, err)
	}
	return nil
}

// damaged is what is said of a batch that cannot be read.
func (s *scan) damaged(g *fetched, err error) error {
	f := client.Fault(kerr.CorruptMessage, "the batch at offset %d cannot be read: %v", g.next, err)
	f.Topic, f.Partition = g.part.Topic, g.part.Partition
	return f
}

// payloadSize is the size of what a producer put into a record.
func payloadSize(r *record.Record) int {
	n := len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return n
}

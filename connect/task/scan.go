package task

import (
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/record"
)

// scan goes through what was fetched of one partition, record by record, and may stop between any two. It passes over
// control batches and aborted transactions.
type scan struct {
	*fetched
	rest    []byte
	pending []kmsg.FetchResponseTopicPartitionAbortedTransaction
	aborted []int64 // producers whose transaction, open at the batch in hand, was aborted
	codecs  *record.Codecs
	reader  *record.Reader // of the batch in hand, nil: none
	batch   record.Batch
}

func newScan(g *fetched, codecs *record.Codecs) *scan {
	s := &scan{fetched: g, rest: g.batches, codecs: codecs, pending: slices.Clone(g.aborted)}
	slices.SortFunc(s.pending, func(a, b kmsg.FetchResponseTopicPartitionAbortedTransaction) int {
		return int(min(max(a.FirstOffset-b.FirstOffset, -1), 1))
	})
	return s
}

// next reads the next record at or behind a position into rec, and gives the position behind it. False: there is none
// left; the position is then behind all that was passed over.
func (s *scan) next(position int64, rec *record.Record) (behind int64, ok bool, err error) {
	for {
		if s.reader == nil {
			if behind, ok, err = s.open(position); !ok {
				return behind, false, err
			}
			position = behind
		}
		for s.reader.Next(rec) {
			if rec.Offset >= position {
				return rec.Offset + 1, true, nil
			}
			rec.Headers = rec.Headers[:0]
		}
		if err := s.reader.Err(); err != nil {
			return position, false, s.damaged(position, err)
		}
		position = max(position, s.batch.NextOffset())
		s.reader = nil
	}
}

// open goes to the next batch with records to read.
func (s *scan) open(position int64) (behind int64, ok bool, err error) {
	for {
		b, rest, err := record.Next(s.rest)
		if errors.Is(err, record.ErrShort) {
			return position, false, nil
		} else if err != nil {
			return position, false, s.damaged(position, err)
		}
		s.rest = rest
		for len(s.pending) > 0 && s.pending[0].FirstOffset <= b.LastOffset() {
			s.aborted, s.pending = append(s.aborted, s.pending[0].ProducerID), s.pending[1:]
		}
		skip := b.NextOffset() <= position
		switch {
		case b.IsControl():
			if m, ok := b.EndTxnMarker(); ok && m.Type == record.ControlAbort {
				s.aborted = slices.DeleteFunc(s.aborted, func(id int64) bool { return id == b.ProducerID() })
			}
			skip = true
		case b.IsTransactional() && slices.Contains(s.aborted, b.ProducerID()):
			skip = true
		}
		if skip {
			position = max(position, b.NextOffset())
			continue
		}
		// The records keep the memory of an expanded batch, so each has a reader of its own.
		s.reader, s.batch = &record.Reader{Codecs: s.codecs}, b
		s.reader.Reset(b, maxExpanded)
		return position, true, nil
	}
}

func (s *scan) damaged(position int64, err error) error {
	return fmt.Errorf("%v: the batch at offset %d cannot be read: %w", s.part.TopicPartition, position, err)
}

package statetopic

import (
	"bytes"
	"errors"

	"millrace/client"
	"millrace/record"
)

const expandBytes = 64 << 20 // of one compressed batch

var errTooLarge = errors.New("it is larger than records of this topic are")

// writeHeader is the header of all records that a Tail writes; its value is a writeID. Other readers pass it over.
const writeHeader = "millrace.write"

// writeID names a write: the Tail that makes it, and a count of its own.
type writeID [16]byte

// Record is a record that is valid. Key and Value are nil for null, and are not kept by anybody as they are.
type Record struct {
	Partition         int32
	Offset, Timestamp int64
	Key, Value        []byte
	Own               bool // some Tail has appended it

	write writeID // if Own
}

// sift passes on the records of one partition that are valid: those of no transaction at once, those of one when its
// marker comes.
type sift struct {
	open   map[int64]*openTxn // by producer id
	reader record.Reader
}

// openTxn is what a transaction has written that is not ended, the newest of each key.
type openTxn struct {
	records []Record
	byKey   map[string]int // in records
}

func (o *openTxn) add(r Record) {
	r.Key, r.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
	if i, ok := o.byKey[string(r.Key)]; ok {
		o.records[i] = r
		return
	}
	o.byKey[string(r.Key)] = len(o.records)
	o.records = append(o.records, r)
}

// take takes whole batches below the high watermark. What cannot be understood is counted and passed over.
func (s *sift) take(t *Tail, out []Record, partition int32, got *client.FetchResult, next *int64) ([]Record, error) {
	from := *next
	for rest := got.Batches; len(rest) > 0; {
		b, after, err := record.Next(rest)
		if err != nil { // the last one is cut
			if *next == from && !errors.Is(err, record.ErrShort) {
				return out, err
			}
			break
		}
		rest = after
		if b.NextOffset() <= *next || b.BaseOffset() >= got.HighWatermark {
			continue
		}
		if b.IsControl() {
			out = s.marker(out, b)
		} else {
			out = s.batch(t, out, partition, b, *next)
		}
		*next = b.NextOffset()
	}
	return out, nil
}

// marker ends a transaction.
func (s *sift) marker(out []Record, b record.Batch) []Record {
	m, ok := b.EndTxnMarker()
	if !ok {
		return out
	}
	if o := s.open[m.ProducerID]; o != nil && m.Type == record.ControlCommit {
		out = append(out, o.records...)
	}
	delete(s.open, m.ProducerID)
	return out
}

func (s *sift) batch(t *Tail, out []Record, partition int32, b record.Batch, from int64) []Record {
	var o *openTxn
	if b.IsTransactional() {
		if o = s.open[b.ProducerID()]; o == nil {
			if s.open == nil {
				s.open = map[int64]*openTxn{}
			}
			o = &openTxn{byKey: map[string]int{}}
			s.open[b.ProducerID()] = o
		}
	}
	// The records refer to the memory of an expanded batch until they are folded, so that each has a reader of its own.
	reader := &s.reader
	if b.Codec() != record.None {
		reader = new(record.Reader)
	}
	var rec record.Record
	reader.Reset(b, expandBytes)
	for reader.Next(&rec) {
		switch {
		case rec.Offset < from:
			continue
		case t.opts.RecordBytes > 0 && len(rec.Key)+len(rec.Value) > t.opts.RecordBytes:
			t.opts.Skip("a record", partition, rec.Offset, errTooLarge)
			continue
		}
		r := Record{Partition: partition, Offset: rec.Offset, Timestamp: rec.Timestamp, Key: rec.Key, Value: rec.Value}
		for i := range rec.Headers {
			if h := &rec.Headers[i]; h.Key == writeHeader && len(h.Value) == len(writeID{}) {
				r.Own, r.write = true, writeID(h.Value)
			}
		}
		if o != nil {
			o.add(r)
		} else {
			out = append(out, r)
		}
	}
	if err := reader.Err(); err != nil {
		t.opts.Skip("a part of a batch", partition, b.BaseOffset(), err)
	}
	return out
}

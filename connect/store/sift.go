package store

import (
	"bytes"
	"errors"

	"millrace/client"
	"millrace/record"
)

const (
	expandBytes    = 64 << 20 // of one compressed batch
	maxRecordBytes = 1 << 20  // of key and value of a record that counts
)

var errTooLarge = errors.New("it is larger than records of connectors are")

// writeHeader is the header of records of one change; its value is a writeID.
const writeHeader = "millrace.write"

// writeID names a change: the Store that makes it, and a count of its own.
type writeID [16]byte

// taken is a record that is valid. Key and value are nil for null, and are not kept by anybody as they are.
type taken struct {
	partition         int32
	offset, timestamp int64
	key, value        []byte
	write             writeID // if own
	own               bool    // it has a writeID
}

// sift passes on the records of one partition that are valid: those of no transaction at once, those of one when its
// marker comes.
type sift struct {
	open   map[int64]*openTxn // by producer id
	reader record.Reader
}

// openTxn is what a transaction has written that is not ended, the newest of each key.
type openTxn struct {
	records []taken
	byKey   map[string]int // in records
}

func (o *openTxn) add(r taken) {
	r.key, r.value = bytes.Clone(r.key), bytes.Clone(r.value)
	if i, ok := o.byKey[string(r.key)]; ok {
		o.records[i] = r
		return
	}
	o.byKey[string(r.key)] = len(o.records)
	o.records = append(o.records, r)
}

// take takes whole batches below the high watermark. What cannot be understood is counted and passed over.
func (s *sift) take(out []taken, partition int32, got *client.FetchResult, next *int64, skip skip) ([]taken, error) {
	for rest := got.Batches; len(rest) > 0; {
		b, after, err := record.Next(rest)
		if err != nil { // the last one is cut
			if !errors.Is(err, record.ErrShort) {
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
			out = s.batch(out, partition, b, *next, skip)
		}
		*next = b.NextOffset()
	}
	return out, nil
}

// marker ends a transaction.
func (s *sift) marker(out []taken, b record.Batch) []taken {
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

func (s *sift) batch(out []taken, partition int32, b record.Batch, from int64, skip skip) []taken {
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
		case len(rec.Key)+len(rec.Value) > maxRecordBytes:
			skip("a record", partition, rec.Offset, errTooLarge)
			continue
		}
		r := taken{partition: partition, offset: rec.Offset, timestamp: rec.Timestamp, key: rec.Key, value: rec.Value}
		for i := range rec.Headers {
			if h := &rec.Headers[i]; h.Key == writeHeader && len(h.Value) == len(writeID{}) {
				r.own, r.write = true, writeID(h.Value)
			}
		}
		if o != nil {
			o.add(r)
		} else {
			out = append(out, r)
		}
	}
	if err := reader.Err(); err != nil {
		skip("a part of a batch", partition, b.BaseOffset(), err)
	}
	return out
}

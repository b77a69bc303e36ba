package native

import (
	"errors"
	"slices"

	"millrace/client"
	"millrace/record"
)

// maxExpandedBytes bounds what one compressed batch may expand to, expanders how many are expanded at a time, in all
// reads together: a small batch may expand to very much.
const (
	maxExpandedBytes = 64 << 20
	expanders        = 8
)

// scanError says that a batch cannot be read, and at which offset the one behind it begins.
type scanError struct {
	next int64
	err  error
}

func (e *scanError) Error() string { return e.err.Error() }

func (e *scanError) Unwrap() error { return e.err }

// scanner hands out the records of fetched batches. It is the one place that knows which records of a batch a
// reader gets: those at or above the offset asked for, of no control batch and of no aborted transaction.
// It is not safe for concurrent use.
type scanner struct {
	reader record.Reader
	record record.Record
	// expanding has an element for each scanner that holds an expanded batch; nil does not count them.
	expanding chan struct{}
	// aborted are the producers whose transaction, open at the batch in hand, was aborted in the end.
	aborted []int64
}

// segment is a run of fetched batches of one partition and what to take of it.
type segment struct {
	batches []byte
	from    int64 // the first offset wanted
	before  int64 // the first offset no longer wanted
	aborted []client.AbortedTransaction
	watch   *plainWatch // told of the batches that are handed out; nil if nobody is
}

// forever is a bound that no offset reaches.
const forever = int64(1<<63 - 1)

// scan calls take with each record of s, in order, until take returns false or s is used up. next is the offset to go
// on from: after control batches and other gaps, or at the record that take refused. An error tells of a batch that
// cannot be read; the records before it were handed out, and next is its base offset or where the reader stood in it.
func (c *scanner) scan(s segment, take func(*record.Record) bool) (next int64, err error) {
	next = s.from
	slices.SortFunc(s.aborted, func(a, b client.AbortedTransaction) int {
		return int(min(max(a.FirstOffset-b.FirstOffset, -1), 1))
	})
	c.aborted = c.aborted[:0]
	for rest := s.batches; next < s.before; {
		var b record.Batch
		b, rest, err = record.Next(rest)
		if errors.Is(err, record.ErrShort) {
			return next, nil
		}
		if err != nil {
			return next, err
		}
		if b.NextOffset() <= next && !b.IsControl() {
			continue
		}
		if c.isData(b, &s) {
			var full bool
			if next, full, err = c.batch(b, s, next, take); full || err != nil {
				return next, err
			}
		}
		next = min(max(next, b.NextOffset()), s.before)
	}
	return next, nil
}

// batch hands out the records of one batch. full says that take refused one or the bound was reached.
func (c *scanner) batch(b record.Batch, s segment, from int64, take func(*record.Record) bool) (int64, bool, error) {
	if b.Codec() != record.None && c.expanding != nil {
		c.expanding <- struct{}{}
		defer func() { <-c.expanding }()
	}
	c.reader.Reset(b, maxExpandedBytes)
	defer c.reader.Close()
	if s.watch != nil {
		s.watch.begin(b)
	}
	next := from
	for c.reader.Next(&c.record) {
		switch {
		case c.record.Offset < from:
			continue
		case c.record.Offset >= s.before:
			return s.before, true, nil
		case !take(&c.record):
			return c.record.Offset, true, nil
		}
		next = c.record.Offset + 1
	}
	if err := c.reader.Err(); err != nil {
		return next, false, &scanError{b.NextOffset(), err}
	}
	if s.watch != nil && from <= b.BaseOffset() {
		s.watch.end()
	}
	return next, false, nil
}

// isData says whether a batch has records for readers, and keeps track of aborted transactions.
func (c *scanner) isData(b record.Batch, s *segment) bool {
	if len(s.aborted) == 0 && len(c.aborted) == 0 {
		return !b.IsControl()
	}
	for len(s.aborted) > 0 && s.aborted[0].FirstOffset <= b.LastOffset() {
		c.aborted = append(c.aborted, s.aborted[0].ProducerID)
		s.aborted = s.aborted[1:]
	}
	if b.IsControl() {
		c.endTransaction(b)
		return false
	}
	return !b.IsTransactional() || !slices.Contains(c.aborted, b.ProducerID())
}

// endTransaction forgets the producer whose abort marker b is.
func (c *scanner) endTransaction(b record.Batch) {
	i := slices.Index(c.aborted, b.ProducerID())
	if i < 0 {
		return
	}
	c.reader.Reset(b, maxExpandedBytes)
	defer c.reader.Close()
	if c.reader.Next(&c.record) {
		if m, err := record.ParseControl(&c.record); err == nil && m.Type == record.ControlAbort {
			c.aborted = slices.Delete(c.aborted, i, i+1)
		}
	}
}

// payloadSize is the size of what a producer put into a record.
func payloadSize(r *record.Record) int {
	n := len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return n
}

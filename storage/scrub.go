package storage

import (
	"fmt"

	"millrace/record"
)

// Scrubbed is what one Scrub looked at.
type Scrubbed struct {
	Next  int64 // where to go on
	Bytes int   // that were read
}

// Scrub reads batches as they lie in the files, from the one that holds offset from on, within one segment and below
// limit, about maxBytes of them, and compares everything that can be compared: checksums, and the offsets and leader
// epochs, which no checksum covers, with each other. Next is at least limit when there is nothing left. Damage is a
// CorruptionError as Read gives it; what lies before it is not damaged.
func (l *Log) Scrub(from, limit int64, maxBytes int) (Scrubbed, error) {
	var r Scrubbed
	err := l.settled(func() (err error) {
		r, err = l.scrub(from, limit, maxBytes)
		return err
	})
	return r, err
}

func (l *Log) scrub(from, limit int64, maxBytes int) (Scrubbed, error) {
	if err := l.usable(); err != nil {
		return Scrubbed{}, err
	}
	from = max(from, l.start.Load())
	if limit = min(limit, l.end.Load()); from >= limit {
		return Scrubbed{Next: limit}, nil
	}
	list, err := l.list()
	if err != nil {
		return Scrubbed{}, err
	}
	i := list.at(from)
	below := l.end.Load()
	if i+1 < len(list) {
		below = list[i+1].base
	}
	r, err := l.scrubSegment(list[i], scrubRequest{from: from, limit: limit, below: below, maxBytes: maxBytes})
	return r, l.tellNext(list, i, from, err)
}

type scrubRequest struct {
	from, limit int64
	below       int64 // no batch of the segment reaches beyond
	maxBytes    int
}

// scrubSegment scrubs one segment. A damaged batch in the way that turns out to lie below the offset is passed, as by
// a read: who scrubs was told of it before.
func (l *Log) scrubSegment(s *segment, q scrubRequest) (Scrubbed, error) {
	b, err := l.find(s, q.from)
	buf := l.dir.large.get()
	defer l.dir.large.put(buf)
	for {
		if err == errNoBatch {
			return Scrubbed{Next: q.below}, nil
		}
		if err != nil {
			return Scrubbed{}, err
		}
		w := scrubber{
			walker: s.walkWith(b.pos, s.size.Load(), buf), scrubRequest: q, after: b.base,
			epochs: epochCheck{cache: &s.log.epochs},
		}
		w.walker.startAt(b.pos, b.base)
		err = w.run()
		at, base, ok := s.behindDamage(err)
		if !ok || at <= b.pos || base > q.from {
			return Scrubbed{Next: w.next(), Bytes: w.bytes}, err
		}
		rest := s.walkWith(at, s.size.Load(), buf)
		rest.startAt(at, base)
		b, err = rest.seek(base, q.from)
	}
}

// scrubber is one Scrub at work in a segment.
type scrubber struct {
	scrubRequest
	walker walker
	after  int64 // no batch to come begins before it
	bytes  int
	epochs epochCheck
}

func (s *scrubber) run() error {
	for s.more() && s.bytes < s.maxBytes && (s.bytes == 0 || s.walker.buffered()) {
		b, pos, err := s.walker.whole()
		if err != nil {
			return err
		}
		if err = b.Verify(); err == nil {
			err = s.follows(b)
		}
		if err != nil {
			return s.walker.corruptAt(pos, err)
		}
		s.after, s.bytes = b.NextOffset(), s.bytes+len(b)
	}
	return nil
}

func (s *scrubber) more() bool { return s.walker.more() && s.after < s.limit }

// buffered says whether the next batch was read together with the last.
func (w *walker) buffered() bool {
	i := int(w.pos - w.at)
	return i+record.HeaderSize <= w.n && i+record.Batch(w.buf[i:]).Length() <= w.n
}

// next is where to go on.
func (s *scrubber) next() int64 {
	if s.more() {
		return s.after
	}
	return s.below
}

// follows compares what the batch's checksum does not cover with its neighbours.
func (s *scrubber) follows(b record.Batch) error {
	switch {
	case b.BaseOffset() < s.after:
		return fmt.Errorf("%w: offset %d follows offset %d", record.ErrCorrupt, b.BaseOffset(), s.after-1)
	case b.NextOffset() > s.below:
		return fmt.Errorf("%w: offset %d is followed by offset %d", record.ErrCorrupt, b.LastOffset(), s.below)
	}
	return s.epochs.check(b)
}

package storage

import (
	"errors"
	"slices"

	"millrace/record"
)

// replacement is a segment in the making that is to take the place of others.
type replacement struct {
	*segment              // its files have a suffix, and nobody else knows of it
	file     File         // the log file; nil when it is whole
	written  int64        // bytes that are in the file; those after them wait in the round's buffer
	entries  []AbortedTxn // of the index of aborted transactions, that are not in its file
	indexed  int          // those that are
	changed  bool         // something is left out
	keepLast bool         // the batch at hand is the last one, which stays
}

// replace writes segments anew as one, and puts it in their place.
func (r *round) replace(sources segmentList) error {
	states, err := r.sourceStates(sources)
	if err != nil {
		return err
	}
	p, err := r.create(sources)
	if err != nil {
		return err
	}
	err = r.copy(p, sources)
	if err == nil {
		err = r.finish(p, sources)
	}
	if err == nil && (p.changed || len(sources) > 1) {
		err = r.swap(p, sources, states)
		if err == nil {
			r.result.Replaced, r.result.New = r.result.Replaced+len(sources), r.result.New+1
			return nil
		}
	}
	if r.log.Offline() != nil { // the files may be all that there is of the sources
		return err
	}
	return errors.Join(err, p.discard())
}

// sourceStates are the entries of aborted transactions as they are now, to be compared when the segments are replaced.
func (r *round) sourceStates(sources segmentList) ([]*txnState, error) {
	states := make([]*txnState, len(sources))
	for i, s := range sources {
		var err error
		if states[i], err = s.loadAborted(); err != nil {
			return nil, r.readFailed(err)
		}
	}
	return states, nil
}

// create makes the log file of a replacement.
func (r *round) create(sources segmentList) (*replacement, error) {
	s := newEmptySegment(r.log, sources[0].base)
	s.suffix = cleanedSuffix
	f, err := r.log.dir.fs.Open(s.fileName(logKind), OpenWrite|OpenCreate|OpenTruncate)
	if err != nil {
		return nil, err
	}
	r.out = slices.Grow(r.out[:0], r.bufferSize())
	return &replacement{segment: s, file: f}, nil
}

// bufferSize is how many bytes are written at a time.
func (r *round) bufferSize() int { return len(r.in) }

// copy writes what is left of the segments' batches.
func (r *round) copy(p *replacement, sources segmentList) error {
	last := len(sources) - 1
	for last > 0 && sources[last].size.Load() == 0 {
		last--
	}
	for i, s := range sources {
		w := s.walkWith(0, s.size.Load(), r.in)
		for w.more() {
			b, err := r.next(&w)
			if err != nil {
				return err
			}
			p.keepLast = i == last && !w.more()
			if err := r.batch(p, b); err != nil {
				if errors.Is(err, record.ErrCorrupt) {
					err = w.corruptAt(w.pos-int64(len(b)), err)
				}
				return err
			}
			if len(r.out) >= r.bufferSize() {
				if err := r.write(p, len(r.out)&^(pageSize-1)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

const pageSize = 4 << 10

// write writes so many bytes of the buffer to the log file.
func (r *round) write(p *replacement, n int) error {
	if _, err := writeUncached(p.file, r.out[:n], p.written); err != nil {
		return err
	}
	p.written += int64(n)
	r.result.BytesWritten += int64(n)
	r.out = r.out[:copy(r.out, r.out[n:])]
	return r.pace(n)
}

// batch writes what is left of a batch.
func (r *round) batch(p *replacement, b record.Batch) error {
	if b.IsControl() {
		return r.control(p, b)
	}
	aborted, err := r.txns.data(b)
	if err != nil {
		return r.readFailed(err)
	}
	switch {
	case b.BaseOffset() >= r.end:
		return r.add(p, b)
	case aborted || b.Count() == 0:
		return r.emptied(p, b)
	}
	r.expired = b.HasDeleteHorizon() && r.now >= b.BaseTimestamp()
	return r.filter(p, b, r.judge)
}

// judge says what becomes of a record.
func (r *round) judge(k *record.KeyedRecord) record.Verdict {
	latest := r.keys.latest()
	switch {
	case k.Offset >= r.end:
		return record.Keep
	case k.Key == nil:
		r.result.Keyless++
		return record.Drop
	case latest > k.Offset:
		return record.Drop
	case !k.Tombstone:
		return record.Keep
	case r.expired:
		return record.Drop
	}
	return record.KeepUntilHorizon
}

// control writes what is left of a batch that may be a marker. One that ends a transaction of which nothing is left is
// kept for as long as a tombstone.
func (r *round) control(p *replacement, b record.Batch) error {
	m, ok := b.EndTxnMarker()
	if !ok {
		if b.Count() == 0 && b.BaseOffset() < r.end {
			return r.emptied(p, b)
		}
		return r.add(p, b)
	}
	e, err := r.txns.marker(b, &m)
	if err != nil {
		return r.readFailed(err)
	}
	bare := e.bare && b.BaseOffset() < r.end
	if e.indexed && !bare {
		p.entries = append(p.entries, e.entry)
		if len(p.entries) >= maxTailEntries {
			if err := p.saveAborted(); err != nil {
				return err
			}
		}
	}
	p.changed = p.changed || e.indexed && bare
	switch {
	case !bare:
		return r.add(p, b)
	case b.HasDeleteHorizon() && r.now >= b.BaseTimestamp():
		return r.emptied(p, b)
	}
	return r.filter(p, b, func(*record.KeyedRecord) record.Verdict { return record.KeepUntilHorizon })
}

// filter writes the records of a batch that judge leaves.
func (r *round) filter(p *replacement, b record.Batch, judge func(*record.KeyedRecord) record.Verdict) error {
	at := len(r.out)
	out, outcome, err := r.records.Filter(r.out, b, r.horizon, judge)
	r.out = out
	switch {
	case err != nil:
		return err
	case outcome == record.Unchanged:
		return r.add(p, b)
	case outcome == record.Emptied:
		return r.emptied(p, b)
	}
	left := record.Batch(r.out[at:])
	r.result.Dropped += int64(b.Count() - left.Count())
	p.changed = true
	return r.index(p, left, at)
}

// emptied writes the header of a batch whose records are all gone, if it is of use.
func (r *round) emptied(p *replacement, b record.Batch) error {
	r.result.Dropped += int64(b.Count())
	if !p.keepLast && b.BaseOffset() != r.last && (r.options.Keep == nil || !r.options.Keep(b)) {
		p.changed = true
		return nil
	}
	if b.Count() == 0 {
		return r.add(p, b)
	}
	at := len(r.out)
	r.out = record.AppendEmptied(r.out, b)
	p.changed = true
	return r.index(p, record.Batch(r.out[at:]), at)
}

// add writes a batch as it is.
func (r *round) add(p *replacement, b record.Batch) error {
	at := len(r.out)
	r.out = append(r.out, b...)
	return r.index(p, b, at)
}

// index makes the index entries of a batch that lies at place at in the buffer.
func (r *round) index(p *replacement, b record.Batch, at int) error {
	pos := p.written + int64(at)
	p.observe(b)
	p.indexLocked(b, pos, r.config.IndexInterval)
	p.size.Store(pos + int64(len(b)))
	if p.offsets.tailFullLocked() {
		return p.saveIndexes(syncLater)
	}
	return nil
}

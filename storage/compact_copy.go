package storage

import (
	"errors"
	"math"
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
	r.out = slices.Grow(r.out[:0], 2*r.bufferSize)
	return &replacement{segment: s, file: f}, nil
}

// copy writes what is left of the segments' batches.
func (r *round) copy(p *replacement, sources segmentList) error {
	n := len(sources)
	for n > 1 && sources[n-1].size.Load() == 0 {
		n--
	}
	s := source{round: r, list: sources[:n:n], stop: math.MaxInt64, numbers: r.marksOf}
	return r.each(&s, r.sift, func(part *piece) (more bool, err error) {
		for i := range part.tasks {
			t := &part.tasks[i]
			err := t.err
			if err == nil {
				p.keepLast = t.last
				err = r.batch(p, part, t)
			}
			if errors.Is(err, record.ErrCorrupt) && !isCorrupt(err) {
				err = part.seg.corruptAt(t.pos, err)
			}
			if err != nil {
				return false, err
			}
			if len(r.out) >= r.bufferSize {
				if err := r.write(p, len(r.out)&^(pageSize-1)); err != nil {
					return false, err
				}
			}
		}
		return true, nil
	})
}

// marksOf gives the marks of a batch's records, where they have any.
func (r *round) marksOf(b record.Batch) *marks {
	if b.BaseOffset() >= r.end {
		return nil
	}
	if r.inShares {
		return r.cleanMarks(b)
	}
	return r.dirtyMarks(b)
}

// sift has a worker leave out records of the batches of a piece.
func (r *round) sift(w *worker, p *piece) {
	judge := func(some []record.KeyedRecord, verdicts []record.Verdict) { r.judge(w, some, verdicts) }
	for i := range p.tasks {
		t := &p.tasks[i]
		if t.err = t.batch.Verify(); t.err != nil {
			return
		}
		if r.whole(t) {
			continue
		}
		if p.out == nil {
			p.out = make([]byte, 0, len(p.buf)+len(p.buf)/8)
		}
		t.out[0] = len(p.out)
		p.out, t.outcome, t.err = r.filter(w, t, p.out, judge)
		t.out[1] = len(p.out)
		if errors.Is(t.err, record.ErrTooLarge) {
			t.left, t.err = true, nil
		}
	}
}

// whole says that all records of a batch stay, as far as that can be told without a look at them.
func (r *round) whole(t *task) bool {
	b := t.batch
	switch {
	case b.IsControl() || b.Count() == 0 || b.BaseOffset() >= r.end:
		return true
	case t.marks == nil || !r.inShares && b.BaseOffset() < r.from:
		return false
	}
	return t.marks.none(t.number, int(b.Count()))
}

// filter has a worker leave out records of a batch.
func (r *round) filter(w *worker, t *task, dst []byte, judge record.Judge) ([]byte, record.Outcome, error) {
	b := t.batch
	w.task, w.number = t, t.number
	w.expired = b.HasDeleteHorizon() && r.now >= b.BaseTimestamp()
	return w.records.Filter(dst, b, r.horizon, judge)
}

// judge says what becomes of records.
func (r *round) judge(w *worker, some []record.KeyedRecord, verdicts []record.Verdict) {
	marks := w.task.marks
	lookUp := !r.inShares && some[0].Offset < r.from
	if lookUp {
		w.keys = r.keys.appendHashes(w.keys[:0], some, 0, keyShare{0, allKeys})
		w.sink += r.keys.prefetch(w.keys)
	}
	for i := range some {
		k := &some[i]
		old := marks != nil && marks.isOld(w.number+i) || lookUp && k.Offset < r.from && r.keys.has(w.keys[i].hash)
		switch {
		case k.Offset >= r.end:
			verdicts[i] = record.Keep
		case k.Key == nil:
			w.task.keyless++
			verdicts[i] = record.Drop
		case old, k.Tombstone && w.expired:
			verdicts[i] = record.Drop
		case k.Tombstone:
			verdicts[i] = record.KeepUntilHorizon
		default:
			verdicts[i] = record.Keep
		}
	}
	w.number += len(some)
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
func (r *round) batch(p *replacement, part *piece, t *task) error {
	b := t.batch
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
	out := part.out[t.out[0]:t.out[1]]
	if t.left {
		out, t.outcome, err = r.filter(&r.own, t, nil, func(some []record.KeyedRecord, verdicts []record.Verdict) {
			r.judge(&r.own, some, verdicts)
		})
		if err != nil {
			return err
		}
	}
	r.result.Keyless += t.keyless
	return r.left(p, b, out, t.outcome)
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
	out, outcome, err := r.own.records.Filter(nil, b, r.horizon, keepAll)
	if err != nil {
		return err
	}
	return r.left(p, b, out, outcome)
}

// keepAll keeps records for a time.
func keepAll(_ []record.KeyedRecord, verdicts []record.Verdict) {
	for i := range verdicts {
		verdicts[i] = record.KeepUntilHorizon
	}
}

// left writes what a filter has left of a batch.
func (r *round) left(p *replacement, b, out record.Batch, outcome record.Outcome) error {
	switch outcome {
	case record.Unchanged:
		return r.add(p, b)
	case record.Emptied:
		return r.emptied(p, b)
	}
	at := len(r.out)
	r.out = append(r.out, out...)
	r.result.Dropped += int64(b.Count() - out.Count())
	p.changed = true
	return r.index(p, out, at)
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

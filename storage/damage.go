package storage

import (
	"errors"

	"millrace/record"
)

// maxPasses bounds how many index entries are tried on the way past damage.
const maxPasses = 64

// passDamage finds where a segment's batches go on behind a damaged one at position pos: at the
// batch that its header leads to, if that follows it or is whole, else at the next one that the
// offset index names and that is whole. ok is false when the segment is known to hold none. It never
// searches the bytes for what looks like a batch: a record's value may hold one.
func (s *segment) passDamage(pos int64) (at, base int64, ok bool) {
	w := s.walk(pos, s.size.Load())
	defer w.close()
	w.lax = true
	if b, _, err := w.header(); err == nil {
		next := b.NextOffset()
		if !w.more() {
			return 0, 0, false
		}
		if b, at, err := w.whole(); err == nil && (b.BaseOffset() == next || !s.misplaced(b) && b.Verify() == nil) {
			return at, b.BaseOffset(), true
		}
	}
	if _, err := s.loadIndex(&s.offsets); err != nil { // a read that came from the batch before did not need it
		return 0, 0, false
	}
	i, _, err := s.floor(&s.offsets, byValue, pos)
	if err != nil {
		return 0, 0, false
	}
	for n := min(s.offsets.count(), i+1+maxPasses); i+1 < n; i++ {
		if at, base, ok := s.indexedBatch(i + 1); ok && at > pos {
			return at, base, true
		}
	}
	return 0, 0, false
}

// misplaced says that a batch cannot be where it is: it claims to reach beyond the log's end. Offsets
// are not covered by the checksum.
func (s *segment) misplaced(b record.Batch) bool {
	if b.NextOffset() <= s.log.end.Load() {
		return false
	}
	s.log.mu.Lock() // an append shows the segment's size before the log's end
	defer s.log.mu.Unlock()
	return b.NextOffset() > s.log.end.Load()
}

// indexHolds says whether an entry of the offset index is right although the batch that it names is
// not as it says: then the batch is damaged. The batches before lead to the entry's position, and
// there is no sound batch, or the one behind follows what the entry says.
func (s *segment) indexHolds(e entry) bool {
	before, _, err := s.floor(&s.offsets, byValue, e.value-1)
	if err != nil {
		return false
	}
	from := entry{}
	if before >= 0 {
		if from, err = s.entryNumber(&s.offsets, before); err != nil {
			return false
		}
	}
	w := s.walk(from.value, s.size.Load())
	defer w.close()
	w.lax = true
	after := s.base
	for w.pos < e.value {
		b, _, err := w.header()
		if err != nil {
			return false
		}
		after = b.NextOffset()
	}
	if w.pos != e.value {
		return false
	}
	b, _, err := w.whole()
	if err != nil || b.Verify() != nil || b.BaseOffset() < after || s.misplaced(b) {
		return isCorrupt(err) || err == nil
	}
	if !w.more() {
		return false
	}
	b, _, err = w.header()
	return err == nil && b.BaseOffset() == s.base+e.key+1
}

// indexedBatch gives position and base offset of the batch that the offset index's entry number i
// names; ok says that it is there, and whole.
func (s *segment) indexedBatch(i int) (at, base int64, ok bool) {
	e, err := s.entryNumber(&s.offsets, i)
	if err != nil || e.value < 0 || e.value >= s.size.Load() {
		return 0, 0, false
	}
	w := s.walk(e.value, s.size.Load())
	defer w.close()
	w.lax = true
	b, at, err := w.whole()
	if err != nil || b.LastOffset() != s.base+e.key || b.Verify() != nil {
		return 0, 0, false
	}
	return at, b.BaseOffset(), true
}

// entryNumber gives an entry of an index by its number, which is below its count.
func (s *segment) entryNumber(x *index, i int) (entry, error) {
	st := x.state.Load()
	if i < st.saved {
		return s.entryInFile(x.kind, i)
	}
	return x.kind.entryAt(st.tail, i-st.saved), nil
}

// behindDamage is passDamage of the batch that an error of a read tells of.
func (s *segment) behindDamage(err error) (at, base int64, ok bool) {
	var damage *CorruptionError
	if !errors.As(err, &damage) || damage.File != s.fileName(logKind) || damage.Position < 0 {
		return 0, 0, false
	}
	return s.passDamage(damage.Position)
}

// tellNext adds to an error about a damaged batch of segment number i where reading can go on. from
// is the offset that was asked for.
func (l *Log) tellNext(list segmentList, i int, from int64, err error) error {
	var damage *CorruptionError
	if !errors.As(err, &damage) || damage.File != list[i].fileName(logKind) || damage.Position < 0 {
		return err
	}
	next := l.end.Load()
	if i+1 < len(list) {
		next = list[i+1].base
	}
	if _, base, ok := list[i].passDamage(damage.Position); ok {
		next = base
	}
	if next > from {
		damage.Next = next
	}
	return err
}

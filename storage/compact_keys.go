package storage

import (
	"errors"

	"millrace/record"
)

// errShare says that a round's keys cannot be divided into shares.
var errShare = errors.New("keys cannot be divided")

const (
	// mapTimes bounds the records of a round: how often its map may have to be filled at most.
	mapTimes = 8
	// leastRecords is a bound of records that any one batch keeps to, for a record takes some bytes.
	leastRecords = record.DefaultExpandedBytes / 7
	// leastShare is the least share of the keys that is worth going through all records for.
	leastShare = allKeys / (2 * mapTimes)
	// leftFree is the part of the map that is left free where the keys that it will have to hold are estimated.
	leftFree = 0.03
)

// mapKeys goes through the dirty records for the latest of each key, and marks those that come before it. Where not all
// keys fit into the map it takes a share of them, goes through the earlier records for that share too, and then takes
// the next. Where there are too many records to be marked, the round ends where the map is full.
func (r *round) mapKeys() error {
	r.clean.reset()
	r.dirty.reset()
	r.keys.reset(r.end-r.from, r.options.MapBytes)
	r.mostRecords = max(mapTimes*r.keys.most, leastRecords)
	r.shared, r.inShares = true, false
	err := r.mapShares()
	if err != errShare {
		return err
	}
	r.clean.reset()
	r.dirty.reset()
	r.keys.begin(0, allKeys)
	r.shared, r.inShares = false, false
	return r.mapDirty()
}

// mapShares has the map take share after share of the keys.
func (r *round) mapShares() error {
	for {
		if err := r.mapDirty(); err != nil {
			return err
		}
		low, high := r.keys.share.low, r.keys.share.high
		if low == 0 && high == allKeys { // the map stays, and has all keys
			return nil
		}
		r.inShares = true
		if err := r.markClean(); err != nil {
			return err
		}
		if high == allKeys {
			return nil
		}
		fits := float64(high-low) * (1 - leftFree) * float64(r.keys.most) / float64(max(r.keys.used, 1))
		r.keys.begin(high, high+min(uint64(max(fits, leastShare)), allKeys-high))
	}
}

// mapDirty goes through the dirty records once.
func (r *round) mapDirty() error {
	dirty := r.list[r.list.at(r.from):]
	var ahead abortedAhead
	all := *r.log.segments.Load() // what was decided below the last stable offset may have its marker above
	if err := ahead.reset(r.log, all[all.at(r.from):], r.from); err != nil {
		return r.readFailed(err)
	}
	r.last, r.dirty.number, r.dirtyRead, r.dirtyBytes = -1, 0, 0, 0
	for _, s := range dirty {
		r.dirtyBytes += s.size.Load()
	}
	s := source{round: r, list: dirty, stop: r.end, from: r.from, numbers: r.dirtyMarks, most: r.mostRecords}
	if err := s.start(r.from); err != nil {
		return err
	}
	return r.each(&s, r.hash, func(p *piece) (more bool, err error) { return r.mapPiece(p, &ahead) })
}

// dirtyMarks gives the marks of the records of a dirty batch.
func (r *round) dirtyMarks(b record.Batch) *marks {
	if b.NextOffset() <= r.from {
		return nil
	}
	return &r.dirty
}

// cleanMarks gives the marks of the records of a batch that has some that are clean.
func (r *round) cleanMarks(b record.Batch) *marks {
	if b.NextOffset() <= r.from {
		return &r.clean
	}
	return &r.dirty
}

// hash has a worker hash the keys of a piece.
func (r *round) hash(w *worker, p *piece) {
	for i := range p.tasks {
		t := &p.tasks[i]
		if t.err = t.batch.Verify(); t.err != nil {
			return
		}
		if t.marks == nil {
			continue
		}
		if t.left = t.batch.Count() > 2*pieceRecords; t.left {
			continue
		}
		t.keys[0] = len(p.keys)
		number := t.number
		t.err = w.records.Each(t.batch, func(some []record.KeyedRecord) bool {
			in, before := within(some, p.from, p.stop)
			p.keys = r.keys.appendHashes(p.keys, in, number+before, p.share)
			number += len(some)
			return true
		})
		t.keys[1] = len(p.keys)
		if errors.Is(t.err, record.ErrTooLarge) {
			t.left, t.err = true, nil
			p.keys = p.keys[:t.keys[0]]
		}
	}
}

// within gives the records from one offset to below another, and how many lie before them.
func within(some []record.KeyedRecord, from, to int64) (in []record.KeyedRecord, before int) {
	if some[0].Offset >= from && some[len(some)-1].Offset < to {
		return some, 0
	}
	for before < len(some) && some[before].Offset < from {
		before++
	}
	end := before
	for end < len(some) && some[end].Offset < to {
		end++
	}
	return some[before:end], before
}

// mapPiece puts the keys of a piece into the map.
func (r *round) mapPiece(p *piece, ahead *abortedAhead) (more bool, err error) {
	for i := range p.tasks {
		t := &p.tasks[i]
		b := t.batch
		if t.err != nil {
			return false, p.seg.corruptAt(t.pos, t.err)
		}
		r.dirtyRead += int64(len(b))
		if b.IsTransactional() && !b.IsControl() {
			if err := ahead.look(b.LastOffset()); err != nil {
				return false, r.readFailed(err)
			}
			if ahead.count > maxAbortedAhead && b.BaseOffset() > r.from {
				r.end = b.BaseOffset()
				return false, nil
			}
		}
		before := r.last
		r.last = b.BaseOffset()
		if t.marks == nil || b.IsTransactional() && ahead.aborted(b.ProducerID(), b.BaseOffset()) {
			continue
		}
		if more, err := r.eachKey(p, t, r.put); !more || err != nil {
			if r.end <= b.BaseOffset() {
				r.last = before
			}
			return false, err
		}
	}
	return true, nil
}

// eachKey calls f with the hashed keys of a batch.
func (r *round) eachKey(p *piece, t *task, f func(*task, []hashedKey) (bool, error)) (more bool, err error) {
	if !t.left {
		return f(t, p.keys[t.keys[0]:t.keys[1]])
	}
	number := t.number
	more = true
	failed := r.own.records.Each(t.batch, func(some []record.KeyedRecord) bool {
		in, before := within(some, p.from, p.stop)
		r.own.keys = r.keys.appendHashes(r.own.keys[:0], in, number+before, p.share)
		more, err = f(t, r.own.keys)
		number += len(some)
		return more && err == nil
	})
	if failed != nil {
		return false, p.seg.corruptAt(t.pos, failed)
	}
	return more, err
}

// put puts keys into the map.
func (r *round) put(t *task, keys []hashedKey) (more bool, err error) {
	const block = 256
	for len(keys) > 0 {
		some := keys[:min(block, len(keys))]
		keys = keys[len(some):]
		r.own.sink += r.keys.prefetch(some)
		for i := range some {
			k := &some[i]
			switch {
			case k.kind == keylessKind:
				t.marks.setOld(int(k.number))
			case r.keys.takes(k.hash):
				if ok, err := r.putKey(k); err != nil {
					return false, err
				} else if !ok {
					return false, r.endAt(t, int(k.number))
				}
			}
			if k.kind == tombstoneKind || k.kind == othersKind {
				t.marks.note(int(k.number))
			}
		}
	}
	return true, nil
}

// putKey puts a key into the map. Where that is full it gives up a part of its share, or says no.
func (r *round) putKey(k *hashedKey) (ok bool, err error) {
	for {
		before, again, ok := r.keys.put(k.hash, k.number)
		if again {
			r.dirty.setOld(int(before))
		}
		if ok || !r.shared {
			return ok, nil
		}
		seen := float64(r.dirtyRead) / float64(max(r.dirtyBytes, 1))
		r.keys.narrow(min(seen, 1) * (1 - leftFree))
		if r.keys.share.high-r.keys.share.low < leastShare {
			return false, errShare
		}
		if !r.keys.takes(k.hash) {
			return true, nil
		}
	}
}

// endAt ends the round's range before a record.
func (r *round) endAt(t *task, number int) error {
	n := t.number
	return r.own.records.Each(t.batch, func(some []record.KeyedRecord) bool {
		if number < n+len(some) {
			r.end = some[number-n].Offset
			return false
		}
		n += len(some)
		return true
	})
}

// markClean marks of the records before the dirty ones those whose keys are in the map.
func (r *round) markClean() error {
	r.clean.number, r.dirty.number = 0, 0
	s := source{round: r, list: r.list, stop: r.from, numbers: r.cleanMarks}
	return r.each(&s, r.hash, func(p *piece) (more bool, err error) {
		for i := range p.tasks {
			t := &p.tasks[i]
			if t.err != nil {
				return false, p.seg.corruptAt(t.pos, t.err)
			}
			if t.marks == nil {
				continue
			}
			if more, err := r.eachKey(p, t, r.markKnown); !more || err != nil {
				return false, err
			}
		}
		if r.clean.number > r.mostRecords {
			return false, errShare
		}
		return true, nil
	})
}

// markKnown marks the records whose keys are in the map.
func (r *round) markKnown(t *task, keys []hashedKey) (more bool, err error) {
	r.own.sink += r.keys.prefetch(keys)
	for i := range keys {
		k := &keys[i]
		if k.kind == keylessKind || k.kind != othersKind && r.keys.has(k.hash) {
			t.marks.setOld(int(k.number))
		}
		if k.kind == tombstoneKind || k.kind == othersKind {
			t.marks.note(int(k.number))
		}
	}
	return true, nil
}

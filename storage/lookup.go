package storage

import (
	"errors"

	"millrace/record"
)

// TimeResult is a record found by its timestamp.
type TimeResult struct {
	Offset    int64
	Timestamp int64 // of that record
	Epoch     int32 // leader epoch of its batch
}

// maxExpanded bounds the memory for one compressed batch whose records are looked at.
const maxExpanded = 64 << 20

// OffsetForTime finds the first record at or after the log start with this timestamp or a later one.
func (l *Log) OffsetForTime(timestamp int64) (r TimeResult, ok bool, err error) {
	err = l.settled(func() error {
		r, ok, err = l.offsetForTime(timestamp)
		return err
	})
	return r, ok && err == nil, err
}

func (l *Log) offsetForTime(timestamp int64) (TimeResult, bool, error) {
	list, err := l.list()
	if err != nil {
		return TimeResult{}, false, err
	}
	start := l.start.Load()
	for _, s := range list {
		g, err := l.timestamps(s)
		if err != nil {
			return TimeResult{}, false, err
		}
		if g.timestamp < timestamp {
			continue
		}
		r, ok, err := l.searchTime(s, timestamp, start)
		if ok || err != nil {
			return r, ok, err
		}
	}
	return TimeResult{}, false, nil
}

// searchTime finds the first record of a segment with the timestamp or a later one. Timestamps go up
// and down, but the time index holds the greatest so far, so nothing before its entry can match.
func (l *Log) searchTime(s *segment, timestamp, start int64) (TimeResult, bool, error) {
	from, err := s.timeEntry(timestamp)
	if errors.Is(err, errDamagedIndex) {
		if err = l.rebuildIndexes(s); err == nil {
			from, err = s.timeEntry(timestamp)
		}
	}
	if err != nil {
		return TimeResult{}, false, err
	}
	b, err := l.find(s, max(from, start)) // the entry's batch is the first that can match
	if err == errNoBatch {
		return TimeResult{}, false, nil
	}
	if err != nil {
		return TimeResult{}, false, err
	}
	m := recordMatch{from: start, atLeast: timestamp}
	w := s.walk(b.pos, s.size.Load())
	defer w.close()
	w.startAt(b.pos, b.base)
	for w.more() {
		r, ok, err := w.matchNext(m)
		if ok || err != nil {
			return r, ok, err
		}
	}
	return TimeResult{}, false, nil
}

// timeEntry gives the offset of the time index's last entry at or below a timestamp, or the base.
func (s *segment) timeEntry(timestamp int64) (int64, error) {
	if _, err := s.loadIndex(&s.times); err != nil {
		return 0, err
	}
	i, e, err := s.floor(&s.times, byKey, timestamp)
	if err != nil || i < 0 {
		return s.base, err
	}
	return s.base + e.value, s.checkTimeEntry(e)
}

// recordMatch says which record is wanted: the first at or above an offset and a timestamp.
type recordMatch struct {
	from    int64
	atLeast int64
}

// matchNext looks for the record in the next batch.
func (w *walker) matchNext(m recordMatch) (TimeResult, bool, error) {
	before := w.pos
	b, _, err := w.header()
	if err != nil || b.MaxTimestamp() < m.atLeast || b.LastOffset() < m.from {
		return TimeResult{}, false, err
	}
	w.pos = before
	if b, _, err = w.whole(); err != nil {
		return TimeResult{}, false, err
	}
	return matchIn(b, m)
}

func matchIn(b record.Batch, m recordMatch) (r TimeResult, ok bool, err error) {
	err = eachRecord(b, func(rec *record.Record) bool {
		if rec.Timestamp >= m.atLeast && rec.Offset >= m.from {
			r, ok = TimeResult{Offset: rec.Offset, Timestamp: rec.Timestamp, Epoch: b.LeaderEpoch()}, true
		}
		return !ok
	})
	return r, ok, err
}

// eachRecord calls f with a batch's records until it says no.
func eachRecord(b record.Batch, f func(rec *record.Record) bool) error {
	r := record.NewReader(b, maxExpanded)
	defer r.Close()
	var rec record.Record
	for r.Next(&rec) {
		if !f(&rec) {
			return nil
		}
	}
	return r.Err()
}

// MaxTimestampOffset finds the first of the records with the greatest timestamp in the log.
func (l *Log) MaxTimestampOffset() (r TimeResult, ok bool, err error) {
	err = l.settled(func() error {
		r, ok, err = l.maxTimestamp()
		return err
	})
	return r, ok && err == nil, err
}

func (l *Log) maxTimestamp() (TimeResult, bool, error) {
	list, err := l.list()
	if err != nil {
		return TimeResult{}, false, err
	}
	start := l.start.Load()
	greatest, at := int64(noTimestamp), -1
	for i, s := range list {
		g, err := l.timestamps(s)
		if err == nil && s.base < start {
			g.timestamp, err = l.maxTimestampFrom(s, start) // what was deleted does not count
		}
		if err != nil {
			return TimeResult{}, false, err
		}
		if g.timestamp > greatest {
			greatest, at = g.timestamp, i
		}
	}
	if at < 0 {
		return TimeResult{}, false, nil
	}
	return l.searchTime(list[at], greatest, start)
}

// maxTimestampFrom is the greatest timestamp of a segment's records at or above start.
func (l *Log) maxTimestampFrom(s *segment, start int64) (int64, error) {
	greatest := int64(noTimestamp)
	w := s.walk(0, s.size.Load())
	defer w.close()
	for w.more() {
		before := w.pos
		b, _, err := w.header()
		if err != nil {
			return 0, err
		}
		switch {
		case b.LastOffset() < start:
		case b.BaseOffset() >= start:
			greatest = max(greatest, b.MaxTimestamp())
		default:
			w.pos = before
			if b, _, err = w.whole(); err != nil {
				return 0, err
			}
			err = eachRecord(b, func(rec *record.Record) bool {
				if rec.Offset >= start {
					greatest = max(greatest, rec.Timestamp)
				}
				return true
			})
			if err != nil {
				return 0, err
			}
		}
	}
	return greatest, nil
}

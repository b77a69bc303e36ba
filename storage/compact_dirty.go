package storage

import "time"

// DirtyQuery bounds what compaction may touch.
type DirtyQuery struct {
	Bound  int64         // nothing at or above it
	MinLag time.Duration // no segment with a record that is younger
	// Age says that Dirty.Oldest is wanted, for which files may have to be read.
	Age bool
}

// Dirty is what compaction would find in a log.
type Dirty struct {
	From, To   int64 // the records that are to be compacted: there are none unless From < To
	CleanBytes int64 // below From
	DirtyBytes int64 // from From to To, about
	// Oldest is the least timestamp that a sealed segment with dirty records begins with, -1 if there is none, or none
	// was asked for.
	Oldest int64
}

// Ratio is the part of the bytes that is dirty.
func (d Dirty) Ratio() float64 {
	if d.DirtyBytes == 0 {
		return 0
	}
	return float64(d.DirtyBytes) / float64(d.CleanBytes+d.DirtyBytes)
}

// Dirty tells what there is to be compacted in the sealed segments.
func (l *Log) Dirty(q DirtyQuery) (Dirty, error) {
	list, err := l.list()
	if err != nil {
		return Dirty{}, err
	}
	active := list.active().base
	d := Dirty{From: l.firstDirty(active), Oldest: noTimestamp}
	d.To = max(min(q.Bound, active), d.From)
	if q.MinLag > 0 {
		if d.To, err = l.oldEnough(list, d, q.MinLag); err != nil {
			return Dirty{}, err
		}
	}
	for i, s := range list[:len(list)-1] {
		size, next := s.size.Load(), list[i+1].base
		d.CleanBytes += share(size, s.base, next, s.base, d.From)
		d.DirtyBytes += share(size, s.base, next, d.From, d.To)
		if !q.Age || next <= d.From {
			continue
		}
		first, err := l.firstTimestamp(s)
		if err != nil {
			return Dirty{}, err
		}
		if first >= 0 && (d.Oldest == noTimestamp || first < d.Oldest) {
			d.Oldest = first
		}
	}
	return d, nil
}

// firstDirty is the offset below which the log is clean, whatever the checkpoint says of a log that has changed since.
func (l *Log) firstDirty(active int64) int64 {
	start, first := l.start.Load(), l.cleaned.Load()
	if first > l.end.Load() {
		first = 0 // it tells of another log
	}
	return min(max(first, start), active)
}

// oldEnough is where the first segment begins that has a record too young.
func (l *Log) oldEnough(list segmentList, d Dirty, lag time.Duration) (int64, error) {
	latest := l.dir.now().Add(-lag).UnixMilli()
	for i, s := range list[:len(list)-1] {
		if list[i+1].base <= d.From || s.base >= d.To {
			continue
		}
		g, err := l.timestamps(s)
		if err != nil {
			return 0, err
		}
		if g.timestamp > latest {
			return max(s.base, d.From), nil
		}
	}
	return d.To, nil
}

// share is how many of the bytes of a segment with offsets from base to next belong to those from low to high, if all
// take the same room.
func share(size, base, next, low, high int64) int64 {
	low, high = max(low, base), min(high, next)
	if low >= high {
		return 0
	}
	return int64(float64(size) * (float64(high-low) / float64(next-base)))
}

func (l *Log) firstTimestamp(s *segment) (int64, error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if s.gone.Load() || s.size.Load() == 0 {
		return noTimestamp, nil
	}
	return s.firstTimestampLocked()
}

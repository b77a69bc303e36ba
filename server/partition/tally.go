package partition

import (
	"slices"
	"time"
)

// tally is what a leader's high watermark follows from. It is pure arithmetic: no lock, no clock.
type tally struct {
	self    int32
	own     int64    // offset up to which the leader has the log so that it counts
	remotes []remote // the other assigned replicas
	isr     []int32  // as the controller has committed it
	added   []int32  // what is proposed to be in sync beside
	needed  int      // in-sync replicas without which nothing moves
	now     time.Time
	lag     time.Duration // replica.lag.time.max.ms
	active  func(broker int32, epoch int64) bool
}

// committed is the offset below which every replica that counts has the log; ok is false where that is not
// known, or too few replicas are in sync for it to mean anything. It may lie below the high watermark.
//
// The in-sync replicas count, those proposed to be in sync too, since the controller may have agreed already,
// and those proposed to be out, since it may not have. A replica outside that has caught up a moment ago
// counts as well: it is about to be in sync, and would find the high watermark above its log.
func (t *tally) committed() (offset int64, ok bool) {
	if len(t.isr) < t.needed {
		return none, false
	}
	offset = t.own
	for _, members := range [2][]int32{t.isr, t.added} {
		for _, id := range members {
			if id != t.self {
				offset = min(offset, t.endOf(id))
			}
		}
	}
	for i := range t.remotes {
		s := &t.remotes[i]
		if !slices.Contains(t.isr, s.id) && t.joining(s) {
			offset = min(offset, s.logEnd)
		}
	}
	return offset, offset != none
}

// endOf is none for a replica that has not fetched yet, or is in sync without being assigned.
func (t *tally) endOf(id int32) int64 {
	for i := range t.remotes {
		if t.remotes[i].id == id {
			return t.remotes[i].logEnd
		}
	}
	return none
}

func (t *tally) joining(s *remote) bool {
	return !s.caughtUp.IsZero() && t.now.Sub(s.caughtUp) <= t.lag && t.active(s.id, s.epoch)
}

// needed is how many replicas must be in sync for the high watermark to move. With fewer than
// min.insync.replicas a record could be shown that only one disk has. A topic with fewer replicas than that
// needs all of them.
func needed(r *Role, minInSync int) int { return min(minInSync, len(r.Replicas)) }

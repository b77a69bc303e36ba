package partition

import "context"

// DeleteRecords makes the log start at offset, or at the high watermark when offset is -1, durably, and answers where
// it starts now. It never moves back. AwaitDeleted tells when no other leader brings back what lies below.
func (l *Leader) DeleteRecords(offset int64) (start int64, err error) {
	if !l.settings.Load().log.DeleteRetained {
		return none, ErrPolicy
	}
	if err := l.checkEpoch(none); err != nil {
		return none, err
	}
	bounds := l.Bounds()
	if offset == none {
		offset = bounds.HighWatermark
	}
	switch {
	case offset > bounds.HighWatermark && offset >= 0 && bounds.HighWatermark < l.role.Load().epochStart:
		return none, ErrOffsetUnknown
	case offset < 0 || offset > bounds.HighWatermark:
		return none, outOfRange(offset, bounds)
	}
	if err := l.log.SetStart(offset); err != nil {
		return none, err
	}
	if l.log.SavedStart() < offset { // it lay there already, as a follower's that had not saved it
		if err := l.store.dir.SaveLogStarts(); err != nil {
			return none, err
		}
	}
	return l.log.StartOffset(), nil
}

// AwaitDeleted waits until every replica that may lead next has saved a log start of at least start, and answers the
// least of them. It waits for at most the waiter's time. The followers' fetches that wait are answered at once, so that
// they hear of the start, and the ones after that tell what they have saved.
//
// The in-sync replicas count, those proposed to be in sync, and those that lead when nobody in sync is left. Others
// come into the ISR with the leader's start only.
func (l *Leader) AwaitDeleted(ctx context.Context, w *Waiter, start int64) (low int64, err error) {
	for {
		low, err := l.joinDeletion(w, start)
		if err != nil || low >= start {
			w.Leave()
			return low, err
		}
		err = w.Wait(ctx)
		w.Leave()
		if err != nil {
			return none, err
		}
	}
}

// joinDeletion registers who waits for replicas to save a log start, unless they have.
func (l *Leader) joinDeletion(w *Waiter, start int64) (low int64, err error) {
	n := w.node(l.local, start)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.gone != nil:
		return none, l.gone
	case l.ended():
		return none, ErrNotLeader
	}
	if low = l.savedStartLocked(); low >= start {
		return low, nil
	}
	l.deletions.insert(n)
	for n := l.watchers.head; n != nil; {
		next := n.next
		if n.seen.LogStart < start {
			l.watchers.remove(n)
			n.waiter.wake()
		}
		n = next
	}
	return low, nil
}

// savedStartLocked is the log start that every replica which may lead next has saved, none as long as one of them has
// not told.
func (l *Leader) savedStartLocked() int64 {
	role, low := l.role.Load(), l.log.SavedStart()
	for _, members := range [3][]int32{role.ISR, role.ELR, l.change.added} {
		for _, id := range members {
			if id == role.Leader {
				continue
			}
			s := l.remoteLocked(id)
			if s == nil {
				return none
			}
			low = min(low, s.logStart)
		}
	}
	return low
}

// deletedLocked wakes who waits for replicas to save a log start that they have saved by now.
func (l *Leader) deletedLocked() {
	if l.deletions.head == nil {
		return
	}
	low := l.savedStartLocked()
	for n := l.deletions.head; n != nil; {
		next := n.next
		if n.target <= low {
			l.deletions.remove(n)
			n.waiter.wake()
		}
		n = next
	}
}

// startSavedLocked says whether a follower has saved the log start as it is here. One that has not would bring back
// what is deleted, should it lead.
func (l *Leader) startSavedLocked(s *remote) bool { return s.logStart >= l.log.StartOffset() }

// StartUnsaved says whether the log start is to be saved before the leader may hear of it.
func (f *Follower) StartUnsaved() bool { return f.log.SavedStart() < f.log.StartOffset() }

// SaveLogStarts makes the log starts of all replicas durable.
func (s *Store) SaveLogStarts() error { return s.dir.SaveLogStarts() }

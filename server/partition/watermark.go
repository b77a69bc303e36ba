package partition

// committable is the offset up to which every replica that counts has the log. A single replica
// counts its log end offset or, where an acknowledgement promises the disk, its synced offset.
func (l *Leader) committable() int64 {
	if l.store.commitSynced {
		return l.log.SyncedOffset()
	}
	return l.log.EndOffset()
}

// mayCommit reports whether enough replicas are in sync for the high watermark to move. With fewer
// than min.insync.replicas a record could be shown that only one disk has. A topic with fewer
// replicas than that needs all of them.
func mayCommit(r Role, minInSync int) bool { return r.InSync >= min(minInSync, r.Replicas) }

// raise moves the high watermark to the given offset, if that is forward, and wakes who waited for
// it. It is called after each write, or after each sync where that is what commits.
func (l *Leader) raise(to int64) {
	var few [16]*Waiter
	for _, w := range l.raiseTo(to, few[:0]) {
		w.wake() // outside mu: a thousand wake-ups must not hold up the next append
	}
}

// raiseTo moves the high watermark and appends to due who is to be woken for that.
func (l *Leader) raiseTo(to int64, due []*Waiter) []*Waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if to <= l.hw.Load() || !mayCommit(l.role.Load().Role, l.settings.Load().minInSync) {
		return due
	}
	l.checkBounds(to)
	l.hw.Store(to)
	l.log.SetHighWatermark(to)
	bytes := l.revealLocked(to)
	for n := l.waiters.head; n != nil; {
		next := n.next
		if n.due(to, bytes) {
			l.waiters.remove(n)
			due = append(due, n.waiter)
		}
		n = next
	}
	return due
}

// due tells whether a high watermark that moved to hw over bytes of records ends the wait. A fetch
// that waits at several leaders counts the bytes of all.
func (n *waitNode) due(hw, bytes int64) bool {
	if n.target != none {
		return hw >= n.target
	}
	return n.waiter.missing.Add(-bytes) <= 0
}

// hide notes a batch that is about to be appended, so that its bytes are counted when the high
// watermark passes them. It comes before the write: a commit that follows the write at once must
// find it.
func (l *Leader) hide(next int64, bytes int) {
	l.mu.Lock()
	l.hidden = append(l.hidden, extent{next: next, bytes: int64(bytes)})
	l.mu.Unlock()
}

// unhide takes back the last hide, after a write that failed.
func (l *Leader) unhide() {
	l.mu.Lock()
	l.hidden = l.hidden[:len(l.hidden)-1]
	l.mu.Unlock()
}

// revealLocked forgets the batches below hw and adds up their bytes.
func (l *Leader) revealLocked(hw int64) (bytes int64) {
	i := 0
	for i < len(l.hidden) && l.hidden[i].next <= hw {
		bytes += l.hidden[i].bytes
		i++
	}
	l.hidden = l.hidden[:copy(l.hidden, l.hidden[i:])]
	return bytes
}

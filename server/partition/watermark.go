package partition

// maxExtents bounds what a leader remembers of the batches above the high watermark: more are remembered
// together.
const maxExtents = 256

// unknownBytes is the size of an extent that is larger than anybody waits for.
const unknownBytes = 1 << 40

// extent is a batch that the high watermark has not passed, or several. It begins where the one before
// ends, the first at the high watermark.
type extent struct {
	next  int64 // offset after its last
	bytes int64
}

// advance moves the high watermark to what the replicas that count have, if that is forward, and wakes who
// waited for it. It is called after each write, or after each sync where that is what commits, after each
// fetch of a follower, and whenever something changes that it follows from.
func (l *Leader) advance() {
	var few [16]*Waiter
	l.mu.Lock()
	due := l.advanceLocked(few[:0])
	l.mu.Unlock()
	for _, w := range due {
		w.wake() // outside mu: a thousand wake-ups must not hold up the next append
	}
}

// advanceLocked moves the high watermark and appends to due who is to be woken for that.
func (l *Leader) advanceLocked(due []*Waiter) []*Waiter {
	if l.ended() {
		return due
	}
	to, ok := l.tallyLocked()
	old := l.hw.Load()
	if !ok || to <= old {
		return due
	}
	l.checkBounds(to)
	stable := l.stableAt(old)
	l.hw.Store(to)
	l.log.SetHighWatermark(to)
	l.stableLocked()
	l.decideLocked(false)
	bytes := l.revealLocked(old, to)
	stableBytes := bytes
	switch now := l.stableAt(to); {
	case stable == old && now == to: // no transaction is in the way
	case now > stable:
		stableBytes = unknownBytes
	default:
		stableBytes = 0
	}
	for n := l.waiters.head; n != nil; {
		next := n.next
		if n.due(to, bytes, stableBytes) {
			l.waiters.remove(n)
			due = append(due, n.waiter)
		}
		n = next
	}
	for n := l.watchers.head; n != nil; {
		next := n.next
		if n.seen.HighWatermark < to {
			l.watchers.remove(n)
			due = append(due, n.waiter)
		}
		n = next
	}
	return due
}

// tallyLocked computes what is committed.
func (l *Leader) tallyLocked() (int64, bool) {
	role := l.role.Load()
	if l.store.env.Flaws.AdvanceHW {
		return l.log.EndOffset(), true
	}
	need := needed(&role.Role, l.settings.Load().minInSync)
	if len(l.remotes) == 0 && len(role.ISR) == 1 { // the common case where there is one replica
		return l.committable(), need <= 1
	}
	return l.tallyAllLocked(role, need)
}

func (l *Leader) tallyAllLocked(role *epochRole, need int) (int64, bool) {
	t := tally{
		self: role.Leader, own: l.committable(), remotes: l.remotes, isr: role.ISR, added: l.change.added, needed: need,
		lag: l.store.env.LagTimeMax(), active: l.store.active,
	}
	if len(l.remotes) >= len(role.ISR) { // somebody is not in sync, so the time matters
		t.now = l.store.env.Now()
	}
	return t.committed()
}

// active says whether the metadata would let a broker into an ISR that fetched in that broker epoch.
func (s *Store) active(broker int32, epoch int64) bool {
	if s.env.ReplicaState == nil {
		return true
	}
	known, active := s.env.ReplicaState(broker)
	return active && known == epoch
}

// due tells whether a high watermark that moved to hw over bytes of records ends the wait. A fetch
// that waits at several leaders counts the bytes of all. stableBytes count for who reads up to the last stable offset.
func (n *waitNode) due(hw, bytes, stableBytes int64) bool {
	if n.target != none {
		return hw >= n.target
	}
	if n.stable {
		bytes = stableBytes
	}
	return n.waiter.missing.Add(-bytes) <= 0
}

// hide notes a batch that is about to be appended, so that its bytes are counted when the high
// watermark passes them. It comes before the write: a commit that follows the write at once must
// find it.
func (l *Leader) hide(next int64, bytes int) {
	l.mu.Lock()
	if n := len(l.hidden); n < maxExtents {
		l.hidden = append(l.hidden, extent{next: next, bytes: int64(bytes)})
	} else {
		l.hidden[n-1].next = next
		l.hidden[n-1].bytes += int64(bytes)
	}
	l.mu.Unlock()
}

// unhide takes back the last hide, after a write that failed: the log still ends at end.
func (l *Leader) unhide(end int64, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := &l.hidden[len(l.hidden)-1]
	last.next, last.bytes = end, last.bytes-int64(bytes)
	if last.bytes <= 0 {
		l.hidden = l.hidden[:len(l.hidden)-1]
	}
}

// revealLocked forgets what the high watermark passed on its way and adds up the bytes of it.
func (l *Leader) revealLocked(from, to int64) (bytes int64) {
	i := 0
	for ; i < len(l.hidden) && l.hidden[i].next <= to; i++ {
		bytes += l.hidden[i].bytes
		from = max(from, l.hidden[i].next)
	}
	if i < len(l.hidden) && to > from { // into the midst of batches that are remembered together
		e := &l.hidden[i]
		part := int64(float64(e.bytes)*float64(to-from)/float64(e.next-from)) + 1
		bytes += part
		e.bytes -= part
	}
	if i > 0 {
		l.hidden = l.hidden[:copy(l.hidden, l.hidden[i:])]
	}
	return bytes
}

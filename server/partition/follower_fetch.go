package partition

// Fetch reads committed batches for a consumer, as far as this replica knows them to be committed. An offset
// above that is no error as long as it is within the log.
func (f *Follower) Fetch(r FetchRequest) (Fetched, error) {
	if err := f.checkEpoch(r.LeaderEpoch); err != nil {
		return Fetched{Bounds: Bounds{none, none, none, none}}, err
	}
	f.noteReader()
	return f.read(r)
}

func (f *Follower) checkEpoch(epoch int32) error {
	if f.over.Load() {
		return ErrNotLeader
	}
	switch own := f.role.Load().LeaderEpoch; {
	case epoch == none || epoch == own:
		return nil
	case epoch < own:
		return ErrFencedEpoch
	default:
		return ErrUnknownEpoch
	}
}

func (f *Follower) noteReader() {
	f.mu.Lock()
	f.readers = true
	f.mu.Unlock()
}

// Watch registers a consumer's fetch that saw the replica at high watermark seen: the waiter is woken when that
// rises. An error means that the replica is no follower any more.
func (f *Follower) Watch(w *Waiter, seen int64) error { return f.watch(w.node(f.local, none), seen) }

// WatchStable is Watch for a fetch that reads up to the last stable offset, and saw that at seen.
func (f *Follower) WatchStable(w *Waiter, seen int64) error {
	n := w.node(f.local, none)
	n.stable = true
	return f.watch(n, seen)
}

func (f *Follower) watch(n *waitNode, seen int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.gone != nil:
		return f.gone
	case f.over.Load():
		return ErrNotLeader
	case f.visibleLocked(n) > seen:
		n.waiter.wake()
		return nil
	}
	f.waiters.insert(n)
	return nil
}

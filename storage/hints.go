package storage

import "sync/atomic"

// hints remember where the last readers of a segment stopped, since that is where they go on: then
// no index is searched. Each is an offset with the position of the first batch at or above it, both
// relative, packed into one word; zero is the segment's start. A hint stays when a reader has gone
// on: a thousand readers at one tail share one.
type hints struct {
	slots [8]atomic.Uint64
	next  atomic.Uint32
}

func packHint(offset, pos int64) (uint64, bool) {
	if offset < 0 || pos < 0 || offset > 1<<32-1 || pos > 1<<32-1 {
		return 0, false
	}
	return uint64(offset)<<32 | uint64(pos), true
}

// find gives the position for a relative offset that a reader stopped at.
func (h *hints) find(offset int64) (pos int64, ok bool) {
	for i := range h.slots {
		v := h.slots[i].Load()
		if int64(v>>32) == offset {
			return int64(v & (1<<32 - 1)), true
		}
	}
	return 0, false
}

// keep notes where a reader stopped, in the oldest slot unless it is noted already.
func (h *hints) keep(offset, pos int64) {
	v, ok := packHint(offset, pos)
	if !ok {
		return
	}
	for i := range h.slots {
		if h.slots[i].Load() == v {
			return
		}
	}
	h.slots[int(h.next.Add(1))%len(h.slots)].Store(v)
}

package storage

import "sync/atomic"

// hints remember where the last readers of a segment stopped, since that is where they go on: then
// no index is searched. Each is an offset with the position of the first batch at or above it, both
// relative, packed into one word; zero is the segment's start.
type hints struct {
	slots [4]atomic.Uint64
	next  atomic.Uint32
}

func packHint(offset, pos int64) (uint64, bool) {
	if offset < 0 || pos < 0 || offset > 1<<32-1 || pos > 1<<32-1 {
		return 0, false
	}
	return uint64(offset)<<32 | uint64(pos), true
}

// find gives the position for a relative offset that a reader stopped at.
func (h *hints) find(offset int64) (pos int64, slot int) {
	for i := range h.slots {
		v := h.slots[i].Load()
		if int64(v>>32) == offset {
			return int64(v & (1<<32 - 1)), i
		}
	}
	return 0, -1
}

// keep notes where a reader stopped, in the slot where it was found or else in the oldest.
func (h *hints) keep(slot int, offset, pos int64) {
	v, ok := packHint(offset, pos)
	if !ok {
		return
	}
	if slot < 0 {
		slot = int(h.next.Add(1)) % len(h.slots)
	}
	h.slots[slot].Store(v)
}

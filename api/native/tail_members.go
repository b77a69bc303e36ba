package native

import (
	"slices"
	"time"
)

// helper writes to a part of the members in a goroutine of its own, when there are many.
type helper struct {
	work chan delivery
	done chan int
}

// delivery is frames for a part of the members.
type delivery struct {
	members []*stream
	frames  []frame
}

// deliver sends frames to all members. released says that no member holds on to them.
func (h *hub) deliver(frames []frame) (released bool) {
	parts := 1
	if len(h.members) > directMembers && h.parallel > 1 && h.hire() {
		parts = h.parallel
	}
	n := len(h.members)
	for i := 1; i < parts; i++ {
		h.helpers[i-1].work <- delivery{h.members[n*i/parts : n*(i+1)/parts], frames}
	}
	lost := h.writers[0].deliver(delivery{h.members[:n/parts], frames})
	for i := 1; i < parts; i++ {
		lost += <-h.helpers[i-1].done
	}
	if lost > 0 {
		h.weed()
	}
	return lost == 0
}

// weed takes those who were marked out of the members.
func (h *hub) weed() {
	h.members = slices.DeleteFunc(h.members, func(s *stream) bool {
		switch {
		case s.dead:
			h.drop(s)
		case s.rest != nil:
			h.demote(s)
		default:
			return false
		}
		return true
	})
}

// deliver sends frames to some members, and returns how many failed or could not take all. These it marks.
func (d *directWriter) deliver(w delivery) (lost int) {
	for _, s := range w.members {
		if s.dead {
			continue
		}
		for i, f := range w.frames {
			n, err := d.send(s.sink.raw(), f)
			if err == nil && n == len(f) {
				continue
			}
			lost++
			if err != nil {
				s.dead = true
			} else {
				s.rest = append([]frame{f[n:]}, w.frames[i+1:]...)
			}
			break
		}
	}
	return lost
}

// demote gives a member that is slow a goroutine, which waits for its connection; it becomes a member again when it
// has reached the tail.
func (h *hub) demote(s *stream) {
	s.seq, s.offsets = h.tail()
	s.synced, s.topic = true, h.topic
	rest := s.rest
	s.rest = nil
	h.join(s)
	if !h.tails.spawn(func() { s.run(h.tails.ctx, rest) }) {
		h.leave(s)
		h.drop(s)
	}
}

// hire starts the helpers.
func (h *hub) hire() bool {
	for len(h.helpers) < h.parallel-1 {
		p := &helper{work: make(chan delivery), done: make(chan int)}
		started := h.tails.spawn(func() {
			d := newDirectWriter()
			for w := range p.work {
				p.done <- d.deliver(w)
			}
		})
		if !started {
			return false
		}
		h.helpers = append(h.helpers, p)
	}
	return true
}

// dismiss ends the helpers.
func (h *hub) dismiss() {
	for _, p := range h.helpers {
		close(p.work)
	}
}

// sweep looks at a slice of the members: those whose peer has gone are dropped, and when nothing was sent for long,
// the others are sent a comment. Between two slices comes a fetch, so that records do not wait for the sweep.
func (h *hub) sweep(now time.Time) error {
	if h.sweepAt < 0 {
		h.swept, h.sweepAt = now, 0
		if err := h.refresh(); err != nil {
			return err
		}
		h.mu.Lock()
		h.takeJoiningLocked()
		if now.Sub(h.sent) >= sweepEvery {
			h.ring, h.held = nil, 0 // whoever has not read it by now reads the log
		}
		h.mu.Unlock()
		h.quiet = now.Sub(h.sent) >= keepAliveEvery-sweepEvery/2
		if h.quiet {
			h.sent = now
		}
	}
	end := min(h.sweepAt+sweepSlice, len(h.members))
	part := h.members[min(h.sweepAt, end):end]
	lost := 0
	for _, s := range part {
		if h.writers[0].gone(s.sink.raw()) {
			s.dead = true
			lost++
		}
	}
	h.sweepAt = end
	if h.quiet {
		lost += h.writers[0].deliver(delivery{part, []frame{h.comment}})
	}
	if lost > 0 {
		h.weed()
		h.sweepAt -= min(lost, h.sweepAt)
	}
	if h.sweepAt >= len(h.members) {
		h.sweepAt = -1
	}
	return nil
}

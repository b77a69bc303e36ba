package coordinator

import (
	"container/heap"
	"time"
)

// Timer is a call that a shard makes later. It belongs to the loop.
type Timer struct {
	at    time.Time
	seq   uint64 // of timers that are due at once the older runs first
	fn    func()
	shard *Shard
	place int // in the heap, -1: not in it
}

// Stop prevents the call. It does nothing to a timer that has run or was stopped, and is fine on nil.
func (t *Timer) Stop() {
	if t != nil && t.place >= 0 {
		heap.Remove(&t.shard.timers, t.place)
	}
}

// timers is a heap of what is to be called, what is due first on top.
type timers []*Timer

func (t timers) Len() int { return len(t) }

func (t timers) Less(i, j int) bool {
	if t[i].at.Equal(t[j].at) {
		return t[i].seq < t[j].seq
	}
	return t[i].at.Before(t[j].at)
}

func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].place, t[j].place = i, j
}

// Push implements heap.Interface.
func (t *timers) Push(x any) {
	timer := x.(*Timer)
	timer.place = len(*t)
	*t = append(*t, timer)
}

// Pop implements heap.Interface.
func (t *timers) Pop() any {
	last := len(*t) - 1
	timer := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	timer.place = -1
	return timer
}

// After calls fn on the loop when d is over, never after Stop or the end of the shard.
func (s *Shard) After(d time.Duration, fn func()) *Timer {
	s.timerSeq++
	t := &Timer{at: time.Now().Add(d), seq: s.timerSeq, fn: fn, shard: s}
	heap.Push(&s.timers, t)
	return t
}

// runDue calls what is due, and sets the clock to what comes next.
func (s *Shard) runDue() {
	for now := time.Now(); len(s.timers) > 0 && !s.timers[0].at.After(now); {
		t := heap.Pop(&s.timers).(*Timer)
		t.fn()
	}
}

// setClock makes the clock ring when the first timer is due.
func (s *Shard) setClock() {
	if len(s.timers) == 0 {
		s.clock.Stop()
		s.rings = time.Time{}
		return
	}
	if at := s.timers[0].at; !at.Equal(s.rings) {
		s.rings = at
		s.clock.Reset(time.Until(at))
	}
}

package simtest

import (
	"fmt"
	"time"

	"millrace/server/servertest/memnet"
	"millrace/storage/storagetest"
)

// A faultKind begins a fault that lasts for a time. What undoes it is an end of the simulation: it comes when the time
// is over, or when everything shall heal. begin returns soon, unless the fault is over when it returns.
type faultKind struct {
	name    string
	weight  int
	begin   func(s *sim, length time.Duration)
	damages bool // what was synced may be gone
}

func kind(name string, weight int, begin func(s *sim, length time.Duration)) faultKind {
	return faultKind{name: name, weight: weight, begin: begin}
}

// allKinds are the faults that a run draws from.
func allKinds() []faultKind {
	return []faultKind{
		kind("kill", 6, (*sim).killOne), kind("kill-all", 1, (*sim).killAll),
		kind("power", 6, (*sim).powerOne), kind("power-all", 3, (*sim).powerAll),
		kind("pause", 4, (*sim).pauseOne), kind("isolate", 5, (*sim).isolate), kind("one-way", 4, (*sim).oneWay),
		kind("bridge", 2, (*sim).bridge), kind("swizzle", 2, (*sim).swizzle), kind("slow-network", 2, (*sim).slowNetwork),
		kind("slow-disk", 2, (*sim).slowDisk), kind("stall", 2, (*sim).stallSync), kind("full", 2, (*sim).fullDisk),
		kind("eio", 2, (*sim).failDisk), kind("clock", 1, (*sim).jumpClock), kind("restart", 3, (*sim).restartOne),
		kind("rolling", 1, (*sim).rolling), kind("reset", 2, (*sim).resets), kind("half-open", 1, (*sim).halfOpen),
		kind("transfer", 2, (*sim).transfer), kind("elect", 2, (*sim).elect), kind("reassign", 2, (*sim).reassign),
	}
}

// damageKinds are the faults that take from a disk what was synced to it, and changes of who votes, which go with them.
func damageKinds() []faultKind {
	return []faultKind{
		{"rot", 8, (*sim).rot, true}, {"older", 5, (*sim).olderDisk, true}, {"wipe", 5, (*sim).newDisk, true},
		{"lie", 4, (*sim).lie, true}, kind("members", 8, (*sim).changeMembers),
	}
}

func trimKind() faultKind { return kind("trim", 8, (*sim).trim) }

// nemesis throws faults at the cluster.
func (s *sim) nemesis() {
	sleep(s.healing, around(s.rng, time.Second))
	for range s.plan.faults {
		kind := s.drawKind()
		s.begun[kind.name]++
		length := around(s.rng, s.plan.length)
		kind.begin(s, length)
		if !s.plan.overlap {
			s.ends.Wait()
		}
		sleep(s.healing, around(s.rng, s.plan.gap))
	}
	sleep(s.healing, around(s.rng, time.Second))
}

// drawKind draws a fault from the plan's, by weight.
func (s *sim) drawKind() faultKind {
	total := 0
	for _, k := range s.plan.kinds {
		total += k.weight
	}
	n := s.rng.IntN(total)
	for _, k := range s.plan.kinds {
		if n -= k.weight; n < 0 {
			return k
		}
	}
	return s.plan.kinds[0]
}

// after does something when a time is over or everything shall heal.
func (s *sim) after(d time.Duration, do func()) {
	s.ends.Go(func() {
		sleep(s.healing, d)
		do()
	})
}

// target draws a node, more often than not one that leads.
func (s *sim) target() *machine {
	if s.rng.IntN(3) > 0 {
		if leaders := s.leaders(); len(leaders) > 0 {
			return leaders[s.rng.IntN(len(leaders))]
		}
	}
	return s.nodes[s.rng.IntN(len(s.nodes))]
}

// others are all nodes but one.
func (s *sim) others(m *machine) (out []*machine) {
	for _, o := range s.nodes {
		if o != m {
			out = append(out, o)
		}
	}
	return out
}

// startLater starts a machine after a time.
func (s *sim) startLater(m *machine, d time.Duration) {
	s.after(d, func() {
		m.tryStart()
		s.note("%s is started", m.name)
	})
}

func (s *sim) killOne(length time.Duration) {
	m := s.target()
	s.note("kill %s, for %v", m.name, length)
	m.fence(modeKill, false)
	s.ends.Go(func() { m.kill(modeKill, false) })
	s.startLater(m, length)
}

func (s *sim) killAll(length time.Duration) {
	s.note("kill all")
	for _, m := range s.nodes {
		m.fence(modeKill, false)
		s.ends.Go(func() { m.kill(modeKill, false) })
		s.startLater(m, around(s.rng, length/2))
	}
}

func (s *sim) powerOne(length time.Duration) {
	m, mode := s.target(), pick(s.rng, powerModes()...)
	s.note("power off %s, for %v, %s", m.name, length, mode)
	m.fence(mode, true)
	s.ends.Go(func() { m.kill(mode, true) })
	s.startLater(m, length)
}

func (s *sim) powerAll(length time.Duration) {
	mode := pick(s.rng, powerModes()...)
	s.note("power off all, %s", mode)
	for _, m := range s.nodes {
		m.fence(mode, true)
		s.ends.Go(func() { m.kill(mode, true) })
		s.startLater(m, around(s.rng, length/2))
	}
}

// pauseOne holds everything that a node sends, hears, writes or reads. Its timers run on.
func (s *sim) pauseOne(length time.Duration) {
	m := s.target()
	s.note("pause %s for %v", m.name, length)
	m.faults.freeze(length)
	s.cutLater(length, s.around(m)...)
}

// way is a direction between two hosts.
type way struct{ from, to string }

// around are all ways from and to a machine, those of the clients too.
func (s *sim) around(m *machine) (ways []way) {
	for _, o := range s.others(m) {
		ways = append(ways, way{m.name, o.name}, way{o.name, m.name})
	}
	for _, kind := range []string{"p", "r", "w", "a", "ha", "hm", "o", "k", "i", "s"} {
		for i := range 4 {
			name := fmt.Sprint(kind, i+1)
			ways = append(ways, way{m.name, name}, way{name, m.name})
		}
	}
	return ways
}

// between are the ways from and to a machine that lead to other nodes.
func (s *sim) between(m *machine) (ways []way) {
	for _, o := range s.others(m) {
		ways = append(ways, way{m.name, o.name}, way{o.name, m.name})
	}
	return ways
}

// cutLater cuts ways now and mends them later.
func (s *sim) cutLater(length time.Duration, ways ...way) {
	for _, w := range ways {
		s.net.Cut(w.from, w.to)
	}
	s.shut(ways, 1)
	s.after(length, func() {
		for _, w := range ways {
			s.net.Mend(w.from, w.to)
		}
		s.shut(ways, -1)
	})
}

// shut notes that ways between a node and clients are cut, or no longer.
func (s *sim) shut(ways []way, more int32) {
	for _, w := range ways {
		from, to := s.machine(w.from), s.machine(w.to)
		switch {
		case from != nil && to == nil:
			from.shut(more)
		case from == nil && to != nil:
			to.shut(more)
		}
	}
}

func (s *sim) isolate(length time.Duration) {
	m := s.target()
	if s.rng.IntN(3) == 0 {
		s.note("cut %s off from nodes and clients for %v", m.name, length)
		s.cutLater(length, s.around(m)...)
		return
	}
	s.note("cut %s off from the other nodes for %v", m.name, length)
	s.cutLater(length, s.between(m)...)
}

func (s *sim) oneWay(length time.Duration) {
	m := s.target()
	var ways []way
	heard := s.rng.IntN(2) == 0
	for _, o := range s.others(m) {
		if s.rng.IntN(3) == 0 {
			continue
		}
		if heard {
			ways = append(ways, way{o.name, m.name})
		} else {
			ways = append(ways, way{m.name, o.name})
		}
	}
	s.note("cut %v for %v", ways, length)
	s.cutLater(length, ways...)
}

// bridge cuts two nodes from each other; the third sees both.
func (s *sim) bridge(length time.Duration) {
	m := s.target()
	if len(s.nodes) < 2 {
		return
	}
	o := pick(s.rng, s.others(m)...)
	s.note("cut %s and %s from each other for %v", m.name, o.name, length)
	s.cutLater(length, way{m.name, o.name}, way{o.name, m.name})
}

// swizzle cuts the ways between nodes one by one and mends them in another order.
func (s *sim) swizzle(length time.Duration) {
	s.note("cut the ways between nodes one by one, over %v", length)
	for _, a := range s.nodes {
		for _, b := range s.others(a) {
			begin, end := s.rng.Float64()/2, 0.5+s.rng.Float64()/2
			w := way{a.name, b.name}
			s.ends.Go(func() {
				if sleep(s.healing, time.Duration(begin*float64(length))) {
					s.net.Cut(w.from, w.to)
					sleep(s.healing, time.Duration((end-begin)*float64(length)))
					s.net.Mend(w.from, w.to)
				}
			})
		}
	}
}

func (s *sim) slowNetwork(length time.Duration) {
	slow := memnet.Link{Latency: around(s.rng, 100*time.Millisecond), Jitter: around(s.rng, 50*time.Millisecond)}
	if s.rng.IntN(3) == 0 {
		slow.BytesPerSec = 20_000 + s.rng.IntN(200_000)
	}
	m := s.target()
	ways := s.between(m)
	s.note("slow %v to %v for %v", ways, slow.Latency, length)
	for _, w := range ways {
		s.net.Set(w.from, w.to, slow)
	}
	s.after(length, func() {
		for _, w := range ways {
			s.net.Set(w.from, w.to, s.plan.link)
		}
	})
}

func (s *sim) slowDisk(length time.Duration) {
	m, by := s.target(), around(s.rng, 200*time.Millisecond)
	s.note("syncs of %s take up to %v for %v", m.name, by, length)
	m.faults.slowDown(by, length)
}

func (s *sim) stallSync(length time.Duration) {
	m, by := s.target(), around(s.rng, 8*time.Second)
	s.note("syncs of %s take up to %v for %v", m.name, by, length/4)
	m.faults.slowDown(by, length/4)
}

// fullDisk leaves a disk little room.
func (s *sim) fullDisk(length time.Duration) {
	m, room := s.target(), int64(s.rng.IntN(20_000))
	s.note("disk of %s is full but for %d bytes, for %v", m.name, room, length)
	m.setQuota(room)
	s.after(length, func() {
		m.setQuota(-1)
		m.tryStart()
	})
}

// victim is the machine whose disk is not to be trusted, always the same: no record outlives the disks of all its
// replicas.
func (s *sim) victim() *machine {
	if s.failing == nil {
		s.failing = s.target()
	}
	return s.failing
}

// failDisk makes a call fail.
func (s *sim) failDisk(time.Duration) {
	m := s.victim()
	op := pick(s.rng, storagetest.OpSync, storagetest.OpSync, storagetest.OpWrite)
	where := pick(s.rng, "", "", ".log", "metadata")
	s.note("the next %v of %q at %s fails", op, where, m.name)
	m.faults.fail(op, where, 1)
	m.failed.Store(true)
}

func (s *sim) jumpClock(time.Duration) {
	m := s.target()
	by := around(s.rng, 20*time.Minute)
	if s.rng.IntN(2) == 0 {
		by = -by
	}
	s.note("the clock of %s jumps by %v", m.name, by)
	m.skew.Add(int64(by))
}

func (s *sim) restartOne(length time.Duration) {
	m := s.target()
	s.note("stop %s in order, for %v", m.name, length)
	s.ends.Go(func() {
		if err := m.stopInOrder(); err != nil {
			s.note("%s does not stop in order: %v", m.name, err)
		}
		sleep(s.healing, length)
		m.tryStart()
		s.note("%s is started", m.name)
	})
}

// rolling restarts all nodes in order, one after the other.
func (s *sim) rolling(length time.Duration) {
	s.note("restart all nodes, one after the other")
	s.ends.Go(func() {
		for _, m := range s.nodes {
			if err := m.stopInOrder(); err != nil {
				s.note("%s does not stop in order: %v", m.name, err)
			}
			m.tryStart()
			s.note("%s is restarted", m.name)
			sleep(s.healing, length/2)
		}
	})
}

// resets resets the connections between nodes, now and after some more bytes.
func (s *sim) resets(time.Duration) {
	m := s.target()
	if len(s.nodes) < 2 {
		return
	}
	o := pick(s.rng, s.others(m)...)
	count := s.net.Reset(m.name, o.name)
	bytes := s.rng.IntN(5000)
	s.note("reset %d connections between %s and %s, and the next after %d bytes", count, m.name, o.name, bytes)
	s.net.ResetAfter(m.name, o.name, bytes)
}

func (s *sim) halfOpen(time.Duration) {
	m := s.target()
	if len(s.nodes) < 2 {
		return
	}
	o := pick(s.rng, s.others(m)...)
	s.note("%s forgets %d connections with %s", m.name, s.net.HalfOpen(m.name, o.name), o.name)
}

package simtest

import (
	"time"

	"millrace/server/servertest/history"
)

// reads is a member that reads for its group: it polls what it has, commits now and then, goes back at times, and comes
// and goes in every way (W1, W5).
type reads struct {
	*member
	views map[history.Partition]*view
}

func (g *reads) run() {
	for g.think() {
		if !g.keep() || len(g.assigned) == 0 {
			g.views = nil
			continue
		}
		at := pick(g.rng, g.assigned...)
		v := g.view(at)
		if v == nil {
			continue
		}
		v.poll(pick(g.rng, 0, 100*time.Millisecond))
		if g.rng.IntN(3) == 0 {
			if err := g.commit(at, v.next); err != nil && g.isOut(err) {
				g.forget()
				continue
			}
		}
		g.stir(v)
	}
}

// view is of a partition that the member has, from where the group has come to.
func (g *reads) view(at history.Partition) *view {
	for p, v := range g.views {
		if v.member.Epoch != g.told.Epoch || v.member.Member != g.id {
			delete(g.views, p) // somebody else may have read meanwhile
		}
	}
	if v := g.views[at]; v != nil {
		return v
	}
	from, ok := g.committed(at)
	if !ok {
		return nil
	}
	if g.views == nil {
		g.views = map[history.Partition]*view{}
	}
	g.views[at] = g.viewFrom(at, from)
	return g.views[at]
}

func (m *member) viewFrom(at history.Partition, from int64) *view {
	return &view{
		c: m.client, partition: at, next: from, member: m.told,
		session: m.session + " from " + m.s.h.Now().String(),
	}
}

// stir perhaps changes something about the member.
func (g *reads) stir(v *view) {
	switch n := g.rng.IntN(60); n {
	case 0:
		g.depart()
	case 1: // it dies
		g.forget()
	case 2, 3: // it is paused, for longer than its session perhaps, and goes on as if it still were in
		if sleep(g.ctx, around(g.rng, 2*g.s.plan.exact.session)) {
			_ = g.commit(v.partition, v.next)
		}
	case 4: // it goes back
		g.views[v.partition] = g.viewFrom(v.partition, v.next*int64(g.rng.IntN(4))/4)
	}
}

// copies is a member that copies what it reads to another topic: records and offsets in one transaction (W6).
type copies struct {
	*member
	t *transactor
}

func (c *copies) run() {
	for c.think() {
		c.turn()
		switch c.rng.IntN(60) {
		case 0:
			c.depart()
		case 1:
			c.forget()
		}
	}
}

// turn copies what there is in a partition, if the member has one.
func (c *copies) turn() {
	if !c.keep() || len(c.assigned) == 0 || !c.t.ready() {
		return
	}
	at := pick(c.rng, c.assigned...)
	from, ok := c.committed(at)
	if !ok {
		return
	}
	v := c.viewFrom(at, from)
	o := v.poll(100 * time.Millisecond)
	if v.next == from {
		return
	}
	c.t.begin()
	err := c.copy(o)
	if c.rng.IntN(20) == 0 { // it is paused
		sleep(c.ctx, around(c.rng, 2*c.s.plan.exact.session))
	}
	if err == nil {
		if err = c.commitWith(c.t, at, v.next); err != nil && c.isOut(err) {
			c.forget()
		}
	}
	c.t.end(err == nil)
}

// copy sends copies of what was polled.
func (c *copies) copy(o *history.Op) error {
	if len(o.Values) == 0 {
		return nil
	}
	values := make([]string, len(o.Values))
	for i, value := range o.Values {
		values[i] = history.CopyOf(value, c.t.value(""))
		c.t.op.Txn.Reads = append(c.t.op.Txn.Reads, history.Sent{
			Partition: o.Partition, Value: value, Offset: o.Offsets[i],
		})
	}
	to := history.Partition{Topic: copyTopic, Number: o.Partition.Number % int32(c.s.partitionsOf(copyTopic))}
	return c.t.send(to, values...)
}

package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// window is when something took effect: after from and before to.
type window struct{ from, to time.Duration }

// tokens is what was done to a register to which no value is written twice. Whether that is linearizable needs no
// search (Gibbons and Korach): the reads of a value must lie, with its write, between those of others. Of a write and
// the reads of it the zone is the time from the first return to the last call. If that is forward in time, the register
// has the value all the while, so no two such zones overlap, and no write with its reads lies wholly within one.
type tokens struct {
	writes map[string]*cluster
	reads  []tokenRead
}

type cluster struct {
	token     string
	when      window
	write     *Op // nil: of the value that was there at first
	firstOut  time.Duration
	lastIn    time.Duration
	firstOp   *Op
	lastOp    *Op
	wasRead   bool
	forbidden bool
}

type tokenRead struct {
	token string
	op    *Op
}

func newTokens() *tokens {
	start := &cluster{firstOut: -1, lastIn: -2, when: window{-2, -1}} // before all else
	return &tokens{writes: map[string]*cluster{"": start}}
}

func (t *tokens) write(token string, when window, o *Op) {
	c := t.writes[token]
	if c == nil {
		c = &cluster{token: token, when: when, write: o}
		t.writes[token] = c
	} else { // the same write was asked for again
		c.when = window{min(c.when.from, when.from), max(c.when.to, when.to)}
	}
	c.forbidden = c.when.from == forever
	c.firstOut, c.lastIn, c.firstOp, c.lastOp = c.when.to, c.when.from, o, o
}

func (t *tokens) read(token string, o *Op) { t.reads = append(t.reads, tokenRead{token, o}) }

// wrong says what is not linearizable, "" if all is.
func (t *tokens) wrong() (text string, ops []*Op) {
	for _, r := range t.reads {
		c := t.writes[r.token]
		switch {
		case c == nil:
			return fmt.Sprintf("%q was read and never written", r.token), []*Op{r.op}
		case c.forbidden:
			return fmt.Sprintf("%q was read and was not written", r.token), []*Op{c.write, r.op}
		case r.op.Return < c.when.from:
			return fmt.Sprintf("%q was read before it was written", r.token), []*Op{c.write, r.op}
		}
		c.wasRead = true
		if r.op.Return < c.firstOut {
			c.firstOut, c.firstOp = r.op.Return, r.op
		}
		if r.op.Invoke > c.lastIn {
			c.lastIn, c.lastOp = r.op.Invoke, r.op
		}
	}
	var all []*cluster
	for _, c := range t.writes {
		if !c.forbidden && (c.wasRead || c.when.to < forever) {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *cluster) int {
		return cmp.Or(cmp.Compare(min(a.firstOut, a.lastIn), min(b.firstOut, b.lastIn)), cmp.Compare(a.token, b.token))
	})
	for i, a := range all {
		for _, b := range all[i+1:] {
			if clash(a, b) || clash(b, a) {
				ops = []*Op{a.firstOp, a.lastOp, b.firstOp, b.lastOp}
				return fmt.Sprintf("it went from %q to %q and back", a.token, b.token),
					slices.DeleteFunc(ops, func(o *Op) bool { return o == nil })
			}
		}
	}
	return "", nil
}

// clash says whether b cannot be while the register has a's value: no other value can, for a while or at one moment.
func clash(a, b *cluster) bool {
	return a.firstOut < a.lastIn && a.firstOut < b.lastIn && b.firstOut < a.lastIn
}

// firstWrong looks at registers, in order.
func firstWrong(invariant string, of map[register]*tokens) *Violation {
	var names []register
	for r := range of {
		names = append(names, r)
	}
	slices.SortFunc(names, func(a, b register) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.partition.Topic, b.partition.Topic),
			cmp.Compare(a.partition.Number, b.partition.Number))
	})
	for _, r := range names {
		if text, ops := of[r].wrong(); text != "" {
			return &Violation{invariant, fmt.Sprintf("%s of %s: %s", r.partition, r.group, text), ops}
		}
	}
	return nil
}

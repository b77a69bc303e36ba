package history

import (
	"cmp"
	"fmt"
	"slices"
)

// Rules say what a history may not be held to.
type Rules struct {
	// Unclean are the topics whose leader may be elected from replicas that are behind: acknowledged records may be gone,
	// and another value may come to an offset.
	Unclean map[string]bool
	// Trimmed are the topics whose oldest records go.
	Trimmed map[string]bool
}

// Violation is a broken invariant.
type Violation struct {
	Invariant string // D1, H3 and so on
	Text      string
	Ops       []*Op // those that contradict each other; nil for one that there is not
}

// String gives the violation with its operations.
func (v *Violation) String() string {
	s := v.Invariant + ": " + v.Text
	for _, o := range v.Ops {
		if o != nil {
			s += "\n  " + o.String()
		}
	}
	return s
}

// Check gives what is wrong with a history, the most telling first. Of each kind of violation only the first is given.
func Check(ops []*Op, rules Rules) (found []*Violation) {
	c := &check{ops: ops, rules: rules, sends: map[string][]*Op{}, at: map[place]evidence{}, places: map[string][]place{}}
	for _, pass := range []func() *Violation{
		c.collectSends, c.valuesOfPlaces, c.valuesRead, c.placesOfValues, c.acksOfOne, c.realTime,
		c.finalReads, c.lostWrites, c.lostReads, c.readers, c.trims, c.sendOrder,
	} {
		if v := pass(); v != nil {
			found = append(found, v)
		}
	}
	return found
}

// place is where a record lies.
type place struct {
	partition Partition
	offset    int64
}

func (p place) String() string { return fmt.Sprintf("%s@%d", p.partition, p.offset) }

// evidence is who said that a value lies at a place.
type evidence struct {
	value string
	op    *Op
}

// check is the state that passes share.
type check struct {
	ops    []*Op
	rules  Rules
	sends  map[string][]*Op   // all tries to send a value
	at     map[place]evidence // by acknowledgements of all replicas and by reads
	places map[string][]place // of values
	final  map[Partition]*finalLog
}

// finalLog is what the final reads saw of a partition.
type finalLog struct {
	values map[int64]string
	start  int64 // where a trimmed log began
	end    int64
	op     *Op
}

// fate is what is known of a value that was sent.
func fate(tries []*Op) Outcome {
	out := Fail
	for _, o := range tries {
		if o.Outcome == OK {
			return OK
		}
		if o.Outcome == Info {
			out = Info
		}
	}
	return out
}

// Values are unique, or nothing below means anything.
func (c *check) collectSends() *Violation {
	for _, o := range c.ops {
		if o.Kind != Send {
			continue
		}
		for _, v := range o.Values {
			if tries := c.sends[v]; len(tries) > 0 && (tries[0].Session != o.Session || tries[0].Seq != o.Seq) {
				return &Violation{"test", fmt.Sprintf("%q was sent by two requests", v), []*Op{tries[0], o}}
			}
			c.sends[v] = append(c.sends[v], o)
		}
	}
	return nil
}

// D5: a place has one value for ever.
func (c *check) valuesOfPlaces() (v *Violation) {
	for _, o := range c.ops {
		if o.Outcome != OK || c.rules.Unclean[o.Partition.Topic] {
			continue
		}
		for i, value := range o.Values {
			var at place
			switch {
			case o.Kind == Read:
				at = place{o.Partition, o.Offsets[i]}
			case o.Kind == Send && o.Acks < 0 && o.Base >= 0:
				at = place{o.Partition, o.Base + int64(i)}
			default:
				continue
			}
			if was, known := c.at[at]; !known {
				c.at[at] = evidence{value, o}
				c.places[value] = append(c.places[value], at)
			} else if was.value != value && v == nil {
				v = &Violation{"D5", fmt.Sprintf("%s holds %q and %q", at, was.value, value), []*Op{was.op, o}}
			}
		}
	}
	return v
}

// D4: what is read was sent, to that partition. D3: what was refused is never read.
func (c *check) valuesRead() *Violation {
	for _, o := range c.ops {
		if o.Kind != Read {
			continue
		}
		for _, value := range o.Values {
			tries := c.sends[value]
			if len(tries) == 0 {
				return &Violation{"D4", fmt.Sprintf("%q was read and never sent", value), []*Op{o}}
			}
			if tries[0].Partition != o.Partition {
				return &Violation{"D4", fmt.Sprintf("%q was read from another partition", value), []*Op{tries[0], o}}
			}
			if fate(tries) == Fail {
				return &Violation{"D3", fmt.Sprintf("%q was refused and is stored", value), append(slices.Clone(tries), o)}
			}
		}
	}
	return nil
}

// I1: a value lies at one place, unless it was sent twice without a sequence.
func (c *check) placesOfValues() *Violation {
	for _, o := range c.ops { // in the history's order, not the map's
		if o.Kind != Send {
			continue
		}
		for _, value := range o.Values {
			where := c.places[value]
			tries := c.sends[value]
			if len(where) < 2 || tries[0] != o {
				continue
			}
			if !o.Idempotent && (len(tries) > 1 || o.Doubled || o.Outcome == Info) {
				continue
			}
			text := fmt.Sprintf("%q is stored twice, at %s and %s", value, where[0], where[1])
			return &Violation{"I1", text, append(slices.Clone(tries), c.at[where[0]].op, c.at[where[1]].op)}
		}
	}
	return nil
}

// D6: what the leader alone acknowledged may be gone, but is nowhere else. When it is gone, a late copy of a request
// with a sequence finds nothing of it, and is stored in its place.
func (c *check) acksOfOne() *Violation {
	for _, o := range c.ops {
		if o.Kind != Send || o.Outcome != OK || o.Acks != 1 || o.Base < 0 || o.Doubled || o.Idempotent {
			continue
		}
		for i, value := range o.Values {
			at := place{o.Partition, o.Base + int64(i)}
			if where := c.places[value]; len(where) > 0 && !slices.Contains(where, at) {
				text := fmt.Sprintf("%q was acknowledged at %s and lies at %s", value, at, where[0])
				return &Violation{"D6", text, []*Op{o, c.at[where[0]].op}}
			}
		}
	}
	return nil
}

// D6: a request that began when another had been acknowledged lies behind it.
func (c *check) realTime() *Violation {
	type edge struct {
		op    *Op
		begin bool
	}
	lines := map[Partition][]edge{}
	for _, o := range c.ops {
		// A repeat is answered with the place of the first try, which may be older than the repeat.
		if o.Kind == Send && o.Outcome == OK && o.Acks < 0 && o.Base >= 0 && len(c.sends[o.Values[0]]) == 1 &&
			!c.rules.Unclean[o.Partition.Topic] && !o.Doubled {
			lines[o.Partition] = append(lines[o.Partition], edge{o, true}, edge{o, false})
		}
	}
	for _, p := range sortedPartitions(lines) {
		edges := lines[p]
		slices.SortStableFunc(edges, func(a, b edge) int {
			at := func(e edge) int64 {
				if e.begin {
					return int64(e.op.Invoke)
				}
				return int64(e.op.Return) + 1 // of equal times nothing is known
			}
			return cmp.Compare(at(a), at(b))
		})
		var last *Op // the acknowledged one that lies furthest
		floor := map[*Op]*Op{}
		for _, e := range edges {
			if e.begin {
				floor[e.op] = last
				continue
			}
			if before := floor[e.op]; before != nil && before.Base >= e.op.Base {
				return &Violation{"D6", "a later record lies before an earlier one of " + p.String(), []*Op{before, e.op}}
			}
			if last == nil || e.op.Base > last.Base {
				last = e.op
			}
		}
	}
	return nil
}

func sortedPartitions[V any](m map[Partition]V) []Partition {
	out := make([]Partition, 0, len(m))
	for p := range m {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Partition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Number, b.Number))
	})
	return out
}

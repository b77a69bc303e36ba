package history

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// forever is the return of what nobody knows the end of.
const forever = time.Duration(math.MaxInt64)

// tenure is a time in which a member certainly had a partition: from when it was told so until it last asked and was
// told so again.
type tenure struct {
	from, to    time.Duration
	first, last *Op
}

// G1: in one generation of a classic group no two members have a partition.
func (e *exact) generations() *Violation {
	type has struct {
		group      string
		generation int32
		partition  Partition
	}
	of := map[has]*Op{}
	for _, o := range e.ops {
		if o.Kind != Assign || o.Outcome != OK || o.Group.Protocol != Classic {
			continue
		}
		for _, p := range o.Group.Assigned {
			h := has{o.Group.Group, o.Group.Epoch, p}
			if was := of[h]; was != nil && was.Group.Member != o.Group.Member {
				return &Violation{"G1", fmt.Sprintf("two members have %s in one generation", p), []*Op{was, o}}
			}
			of[h] = o
		}
	}
	return nil
}

// G1: at no time do two members of a group have a partition.
func (e *exact) owners() *Violation {
	type member struct{ group, session string }
	open := map[member]map[Partition]*tenure{}
	end := func(m member, p Partition) {
		t := open[m][p]
		delete(open[m], p)
		if t.from < t.to {
			if e.owned[m.group] == nil {
				e.owned[m.group] = map[Partition][]tenure{}
			}
			e.owned[m.group][p] = append(e.owned[m.group][p], *t)
		}
	}
	for _, o := range e.ops {
		if o.Kind != Assign || o.Outcome != OK || o.Group.Protocol == Classic {
			continue
		}
		m := member{o.Group.Group, o.Session}
		if open[m] == nil {
			open[m] = map[Partition]*tenure{}
		}
		for _, p := range sortedPartitions(open[m]) {
			if !slices.Contains(o.Group.Assigned, p) {
				end(m, p)
			}
		}
		for _, p := range o.Group.Assigned {
			if t := open[m][p]; t != nil {
				t.to, t.last = o.Invoke, o
				continue
			}
			open[m][p] = &tenure{o.Return, o.Return, o, o}
		}
	}
	for m, of := range open {
		for _, p := range sortedPartitions(of) {
			end(m, p)
		}
	}
	return e.overlaps()
}

func (e *exact) overlaps() *Violation {
	for group, of := range e.owned {
		for _, p := range sortedPartitions(of) {
			list := of[p]
			slices.SortFunc(list, func(a, b tenure) int { return cmp.Compare(a.from, b.from) })
			for i := range len(list) - 1 {
				if a, b := list[i], list[i+1]; b.from < a.to {
					text := fmt.Sprintf("two members of %s have %s from %.6f to %.6f", group, p, b.from.Seconds(),
						min(a.to, b.to).Seconds())
					return &Violation{"G1", text, []*Op{a.first, a.last, b.first, b.last}}
				}
			}
		}
	}
	return nil
}

// G2: who is out of date commits nothing: not in a generation that the group has left, not for a partition that another
// member has meanwhile, and not in an epoch that the member itself has left.
func (e *exact) stale() *Violation {
	newest := map[string][]*Op{} // assignments of groups
	for _, o := range e.ops {
		if o.Kind == Assign && o.Outcome == OK {
			newest[o.Group.Group] = append(newest[o.Group.Group], o)
		}
	}
	for _, o := range e.ops {
		if o.Kind != Commit || o.Outcome != OK || o.Group.Protocol == "" || o.Group.Txn != nil {
			continue
		}
		for _, a := range newest[o.Group.Group] {
			sameMember := a.Session == o.Session || o.Group.Protocol == Classic
			if a.Return < o.Invoke && a.Group.Epoch > o.Group.Epoch && sameMember && o.Group.Protocol != Worker {
				return &Violation{"G2", "a commit was accepted in an epoch that was over", []*Op{a, o}}
			}
		}
		for _, t := range e.owned[o.Group.Group][o.Partition] {
			if t.first.Session != o.Session && t.from < o.Invoke && o.Return < t.to {
				text := "a commit was accepted from a member that did not have the partition"
				return &Violation{"G2", text, []*Op{t.first, o, t.last}}
			}
		}
	}
	return nil
}

// register names the committed offset of a partition in a group.
type register struct {
	group     string
	partition Partition
}

// G3: the committed offset is a linearizable register, where each commit has a token of its own. Those of transactions
// take effect at some time after the decision, and only if they are committed (T1).
func (e *exact) offsets() *Violation {
	history := map[register]*tokens{}
	of := func(o *Op) *tokens {
		r := register{o.Group.Group, o.Partition}
		if history[r] == nil {
			history[r] = newTokens()
		}
		return history[r]
	}
	for _, o := range e.ops {
		if o.Group == nil || o.Group.Protocol == Worker {
			continue
		}
		switch o.Kind {
		case Commit:
			of(o).write(o.Group.Token, e.effect(o), o)
		case Committed:
			if o.Outcome == OK {
				of(o).read(o.Group.Token, o)
			}
		}
	}
	return firstWrong("G3", history)
}

// effect is when a commit takes effect; never, where the window is empty.
func (e *exact) effect(o *Op) window {
	t := o.Group.Txn
	switch {
	case t == nil && o.Outcome == OK:
		return window{o.Invoke, o.Return}
	case t == nil && o.Outcome == Info:
		return window{o.Invoke, forever}
	case t == nil || o.Outcome == Fail || t.Txn.Decide == 0 || !t.Txn.Commit || t.Outcome == Fail:
		return window{forever, 0}
	case len(t.Txn.Sends) > 0 && !e.isCommitted(t):
		return window{forever, 0}
	}
	return window{t.Txn.Decide, forever}
}

// G3: where members do not go back, the committed offset only grows.
func (e *exact) growing() *Violation {
	type told struct {
		at time.Duration
		op *Op
	}
	seen := map[register][]told{}
	for _, o := range e.ops { // in the order of their return
		if o.Group == nil || o.Group.Protocol != Worker || o.Outcome != OK || o.Kind != Commit && o.Kind != Committed {
			continue
		}
		r := register{o.Group.Group, o.Partition}
		for _, t := range seen[r] {
			if t.at < o.Invoke && t.op.Group.Offset > o.Group.Offset {
				text := fmt.Sprintf("the offset of %s in %s was %d and is %d",
					r.partition, r.group, t.op.Group.Offset, o.Group.Offset)
				return &Violation{"G3", text, []*Op{t.op, o}}
			}
		}
		if n := len(seen[r]); n == 0 || seen[r][n-1].op.Group.Offset < o.Group.Offset {
			seen[r] = append(seen[r], told{o.Return, o})
		}
	}
	return nil
}

// G4, G6: each record below what is committed in the end was delivered to a member of the group, and what is committed
// is in the log.
func (e *exact) delivered() *Violation {
	got := map[register]map[int64]bool{}
	for _, o := range e.ops {
		if o.Kind != Poll || o.Group == nil {
			continue
		}
		r := register{o.Group.Group, o.Partition}
		if got[r] == nil {
			got[r] = map[int64]bool{}
		}
		for _, offset := range o.Offsets {
			got[r][offset] = true
		}
	}
	groups := make([]string, 0, len(e.facts.Offsets))
	for g := range e.facts.Offsets {
		groups = append(groups, g)
	}
	slices.Sort(groups)
	for _, g := range groups {
		for _, p := range sortedPartitions(e.facts.Offsets[g]) {
			end := e.facts.Offsets[g][p]
			for _, s := range e.facts.Logs[p] {
				if s.Offset < end && s.Committed && !got[register{g, p}][s.Offset] {
					text := fmt.Sprintf("%s has committed %d of %s, and nobody was given %q at %d", g, end, p, s.Value, s.Offset)
					return &Violation{"G4", text, []*Op{e.txns[s.Value]}}
				}
			}
		}
	}
	return nil
}

// D9, in the eyes of readers: the last value of a key is a linearizable register.
func (e *exact) keys() *Violation {
	history := map[register]*tokens{}
	for _, o := range e.ops {
		if o.Kind != Put && o.Kind != Get {
			continue
		}
		r := register{o.Key, o.Partition}
		if history[r] == nil {
			history[r] = newTokens()
		}
		switch {
		case o.Kind == Get && o.Outcome == OK:
			history[r].read(o.Values[0], o)
		case o.Kind == Put && o.Outcome == OK:
			history[r].write(o.Values[0], window{o.Invoke, o.Return}, o)
		case o.Kind == Put && o.Outcome == Info:
			history[r].write(o.Values[0], window{o.Invoke, forever}, o)
		case o.Kind == Put:
			history[r].write(o.Values[0], window{forever, 0}, o)
		}
	}
	return firstWrong("D9", history)
}

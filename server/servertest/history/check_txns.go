package history

import (
	"cmp"
	"fmt"
	"slices"
)

// D4, I1, D1: what is stored was sent, lies at one place, and where it was said to lie.
func (e *exact) placed() *Violation {
	for _, p := range sortedPartitions(e.facts.Logs) {
		for _, s := range e.facts.Logs[p] {
			if e.txns[s.Value] == nil {
				return &Violation{"D4", fmt.Sprintf("%q is in %s and was never sent", s.Value, p), nil}
			}
		}
	}
	for _, o := range e.ops {
		if o.Kind != Txn {
			continue
		}
		for _, s := range o.Txn.Sends {
			where := e.stored[s.Value]
			switch {
			case len(where) > 1 && (!o.Txn.Again || where[1].committed):
				text := fmt.Sprintf("%q is stored twice, at %s and %s", s.Value, where[0].place, where[1].place)
				return &Violation{"I1", text, []*Op{o}}
			case s.Offset < 0:
			case len(where) == 0:
				return &Violation{"D1", fmt.Sprintf("%q was acknowledged and is not stored", s.Value), []*Op{o}}
			case where[0].place != place{s.Partition, s.Offset}:
				text := fmt.Sprintf("%q was acknowledged at %s@%d and lies at %s", s.Value, s.Partition, s.Offset, where[0].place)
				return &Violation{"D6", text, []*Op{o}}
			}
		}
	}
	return nil
}

// T1, T4: of a transaction all is committed or nothing, as its end was answered, and nothing that nobody asked to
// commit.
func (e *exact) fates() *Violation {
	for _, o := range e.ops {
		if o.Kind != Txn {
			continue
		}
		var in, out []string
		for _, s := range o.Txn.Sends {
			if where := e.stored[s.Value]; len(where) > 0 && where[0].committed {
				in = append(in, s.Value)
			} else {
				out = append(out, s.Value)
			}
		}
		asked := o.Txn.Commit && o.Txn.Decide > 0
		switch {
		case len(in) > 0 && len(out) > 0:
			return &Violation{"T1", fmt.Sprintf("%q are committed, %q are not", in, out), []*Op{o}}
		case o.Outcome == OK && asked && len(out) > 0:
			return &Violation{"T4", fmt.Sprintf("it was committed, and %q are not", out), []*Op{o}}
		case len(in) > 0 && (!asked || o.Outcome == Fail):
			return &Violation{"T4", fmt.Sprintf("it was not committed, and %q are", in), []*Op{o}}
		}
	}
	return nil
}

// T2 (G1a, G1b): what is read under read_committed is committed, and not before somebody asked for that.
func (e *exact) aborted() *Violation {
	see := func(o *Op, p Partition, value string, offset int64) *Violation {
		s, there := e.at[place{p, offset}]
		txn := e.txns[value]
		switch {
		case txn == nil:
			return &Violation{"D4", fmt.Sprintf("%q was read and never sent", value), []*Op{o}}
		case !there || s.Value != value:
			text := fmt.Sprintf("%q was read at %s@%d, where %q is at the end", value, p, offset, s.Value)
			return &Violation{"H3", text, []*Op{txn, o}}
		case !s.Committed:
			return &Violation{"T2", fmt.Sprintf("%q was read and is not committed", value), []*Op{txn, o}}
		case txn.Txn.Decide == 0 || txn.Txn.Decide > o.Return:
			return &Violation{"T2", fmt.Sprintf("%q was read while its transaction was open", value), []*Op{txn, o}}
		}
		return nil
	}
	for _, o := range e.ops {
		if o.Kind != Poll {
			continue
		}
		for i, value := range o.Values {
			if v := see(o, o.Partition, value, o.Offsets[i]); v != nil {
				return v
			}
		}
	}
	return nil
}

// T4: each transaction has an epoch of its own, so that what comes late is told from the next one.
func (e *exact) epochs() *Violation {
	type name struct {
		id    int64
		epoch int16
	}
	of := map[name]*Op{}
	for _, o := range e.ops {
		if o.Kind != Txn || len(o.Txn.Sends) == 0 {
			continue
		}
		n := name{o.Txn.ProducerID, o.Txn.Epoch}
		if was := of[n]; was != nil {
			return &Violation{"T4", fmt.Sprintf("two transactions of producer %d in epoch %d", n.id, n.epoch), []*Op{was, o}}
		}
		of[n] = o
	}
	return nil
}

// T3: a transaction of a producer that was replaced is not committed after that.
func (e *exact) fenced() *Violation {
	inits := map[string][]*Op{}
	for _, o := range e.ops {
		if o.Kind == Init && o.Outcome == OK {
			inits[o.Txn.ID] = append(inits[o.Txn.ID], o)
		}
	}
	for _, o := range e.ops {
		if o.Kind != Txn || o.Outcome != OK || !o.Txn.Commit || len(o.Txn.Sends) == 0 {
			continue
		}
		for _, i := range inits[o.Txn.ID] {
			if later(i.Txn, o.Txn) && i.Return < o.Txn.Decide && i.Invoke > o.Invoke {
				return &Violation{"T3", "a producer committed after it was replaced", []*Op{i, o}}
			}
		}
	}
	return nil
}

// later says whether a is a newer producer of the same id than b. Of other producer ids the times must tell.
func later(a, b *Transaction) bool { return a.ProducerID != b.ProducerID || a.Epoch > b.Epoch }

// G5, D1: a reader's polls go on where the last one ended, and leave out nothing that is committed; final ones leave
// out nothing at all.
func (e *exact) sequences() *Violation {
	type reader struct {
		session   string
		partition Partition
	}
	next, last := map[reader]int64{}, map[reader]*Op{}
	for _, o := range e.ops {
		if o.Kind != Poll || o.Group != nil && o.Group.Protocol == Worker {
			continue
		}
		r := reader{o.Session, o.Partition}
		if last[r] == nil {
			next[r] = o.From
		}
		for i, offset := range o.Offsets {
			if want, ok := e.next(o.Partition, next[r]); !ok || want.Offset != offset {
				text := fmt.Sprintf("%s goes on at %d, not at %d", o.Partition, offset, want.Offset)
				ops := []*Op{o}
				if last[r] != nil {
					ops = []*Op{last[r], o}
				}
				return &Violation{"G5", text + fmt.Sprintf(" (%q)", o.Values[i]), ops}
			}
			next[r] = offset + 1
		}
		last[r] = o
	}
	for _, o := range e.ops { // in the order of the history
		r := reader{o.Session, o.Partition}
		if o.Kind != Poll || !o.Final || last[r] != o {
			continue
		}
		if want, ok := e.next(o.Partition, next[r]); ok {
			text := fmt.Sprintf("%q is committed at %s@%d, and not there in the end", want.Value, o.Partition, want.Offset)
			return &Violation{"D1", text, []*Op{e.txns[want.Value], o}}
		}
	}
	return nil
}

// next is the first committed record of a partition from an offset on.
func (e *exact) next(p Partition, from int64) (Stored, bool) {
	log := e.facts.Logs[p]
	i, _ := slices.BinarySearchFunc(log, from, func(s Stored, o int64) int { return cmp.Compare(s.Offset, o) })
	for ; i < len(log); i++ {
		if log[i].Committed {
			return log[i], true
		}
	}
	return Stored{}, false
}

// T7: each committed value of a topic that is copied is in the copies once.
func (e *exact) copies() *Violation {
	copied := map[string]map[string][]place{} // by topic and source
	for _, p := range sortedPartitions(e.facts.Logs) {
		if copied[p.Topic] == nil {
			copied[p.Topic] = map[string][]place{}
		}
		for _, s := range e.facts.Logs[p] {
			if source := SourceOf(s.Value); s.Committed && source != "" {
				copied[p.Topic][source] = append(copied[p.Topic][source], place{p, s.Offset})
			}
		}
	}
	for _, p := range sortedPartitions(e.facts.Logs) {
		to, ok := e.facts.Copies[p.Topic]
		if !ok {
			continue
		}
		for _, s := range e.facts.Logs[p] {
			there := copied[to][s.Value]
			if s.Committed && len(there) == 1 || !s.Committed && len(there) == 0 {
				continue
			}
			ops := []*Op{e.txns[s.Value]}
			for _, at := range there {
				ops = append(ops, e.txns[e.at[at].Value])
			}
			text := fmt.Sprintf("%q at %s@%d, committed %t, is copied %d times: %v",
				s.Value, p, s.Offset, s.Committed, len(there), there)
			return &Violation{"T7", text, ops}
		}
	}
	return nil
}

package history

import (
	"fmt"
	"slices"
)

// D9, D6: the final reads of a partition agree, whoever was asked, and have no gap.
func (c *check) finalReads() *Violation {
	c.final = map[Partition]*finalLog{}
	reads := map[Partition]map[string]*finalLog{}
	for _, o := range c.ops {
		if o.Kind != Read || !o.Final || o.Outcome != OK {
			continue
		}
		if reads[o.Partition] == nil {
			reads[o.Partition] = map[string]*finalLog{}
		}
		l := reads[o.Partition][o.Session]
		if l == nil {
			l = &finalLog{values: map[int64]string{}}
			reads[o.Partition][o.Session] = l
		}
		l.op = o
		trimmed := c.rules.Trimmed[o.Partition.Topic]
		for i, v := range o.Values {
			if trimmed && o.Offsets[i] > l.end {
				l.start, l.end = o.Offsets[i], o.Offsets[i]
			}
			if o.Offsets[i] != l.end {
				text := fmt.Sprintf("the final read of %s goes on at %d, not %d", o.Partition, o.Offsets[i], l.end)
				return &Violation{"D6", text, []*Op{o}}
			}
			l.values[l.end] = v
			l.end++
		}
	}
	for _, p := range sortedPartitions(reads) {
		var sessions []string
		for s := range reads[p] {
			sessions = append(sessions, s)
		}
		slices.Sort(sessions)
		first := reads[p][sessions[0]]
		c.final[p] = first
		for _, s := range sessions[1:] {
			other := reads[p][s]
			if first.start < other.start {
				c.final[p].start = other.start
			}
			if other.end != first.end {
				text := fmt.Sprintf("%s ends at %d and at %d, by whom is asked", p, first.end, other.end)
				return &Violation{"D9", text, []*Op{first.op, other.op}}
			}
		}
	}
	return nil
}

// D1: what all replicas acknowledged is there at the end, where it was said to be.
func (c *check) lostWrites() *Violation {
	stored := map[Partition]map[string]bool{}
	for p, l := range c.final {
		stored[p] = make(map[string]bool, len(l.values))
		for _, v := range l.values {
			stored[p][v] = true
		}
	}
	for _, o := range c.ops {
		l := c.final[o.Partition]
		if o.Kind != Send || o.Outcome != OK || o.Acks >= 0 || l == nil || c.rules.Unclean[o.Partition.Topic] {
			continue
		}
		for i, v := range o.Values {
			at := o.Base + int64(i)
			if o.Base >= 0 && at < l.start || o.Base < 0 && c.rules.Trimmed[o.Partition.Topic] {
				continue
			}
			if there, ok := l.values[at]; o.Base >= 0 && (!ok || there != v) {
				text := fmt.Sprintf("%q was acknowledged at %s@%d; there is %q at the end, of %d", v, o.Partition, at, there, l.end)
				return &Violation{"D1", text, []*Op{o, l.op}}
			}
			if !stored[o.Partition][v] {
				text := fmt.Sprintf("%q was acknowledged and is not in %s at the end", v, o.Partition)
				return &Violation{"D1", text, []*Op{o, l.op}}
			}
		}
	}
	return nil
}

// H3: what anybody read is there at the end: nobody sees what is not committed.
func (c *check) lostReads() *Violation {
	for _, o := range c.ops {
		l := c.final[o.Partition]
		if o.Kind != Read || o.Outcome != OK || l == nil || c.rules.Unclean[o.Partition.Topic] {
			continue
		}
		for i, v := range o.Values {
			if there, ok := l.values[o.Offsets[i]]; (!ok || there != v) && o.Offsets[i] >= l.start {
				text := fmt.Sprintf("%q was read at %s@%d; there is %q at the end, of %d",
					v, o.Partition, o.Offsets[i], there, l.end)
				return &Violation{"H3", text, []*Op{o, l.op}}
			}
		}
	}
	return nil
}

// G5: a reader's reads follow each other without a gap or a repeat. H2: a log that reached somewhere reaches there for
// ever.
func (c *check) readers() *Violation {
	type reader struct {
		session   string
		partition Partition
	}
	type state struct {
		next int64
		last *Op
	}
	at := map[reader]*state{}
	for _, o := range c.ops {
		if o.Kind != Read || c.rules.Unclean[o.Partition.Topic] {
			continue
		}
		r := reader{o.Session, o.Partition}
		s := at[r]
		if s == nil {
			s = &state{next: o.From}
			at[r] = s
		}
		ops := []*Op{o}
		if s.last != nil {
			ops = []*Op{s.last, o}
		}
		if o.Outcome == Fail && o.OutOfRange {
			text := fmt.Sprintf("%s was read up to %d and is said not to reach there", o.Partition, s.next)
			return &Violation{"H2", text, ops}
		}
		for _, offset := range o.Offsets {
			if offset > s.next && c.rules.Trimmed[o.Partition.Topic] {
				s.next = offset
			}
			if offset != s.next {
				return &Violation{"G5", fmt.Sprintf("%s goes on at %d, not %d", o.Partition, offset, s.next), ops}
			}
			s.next++
		}
		s.last = o
	}
	return nil
}

// D11: what was deleted is not there any more when all is well, whoever was asked and whoever has led since. Before
// that a node that does not know that it was replaced may still show it; the others are looked into by the simulation.
func (c *check) trims() *Violation {
	begins := map[Partition]*Op{} // the furthest
	for _, o := range c.ops {
		switch {
		case c.rules.Unclean[o.Partition.Topic] || o.Outcome != OK:
		case o.Kind == Trim:
			if t := begins[o.Partition]; t == nil || o.Base > t.Base {
				begins[o.Partition] = o
			}
		case o.Kind == Read && o.Final && len(o.Offsets) > 0:
			if t := begins[o.Partition]; t != nil && t.Return < o.Invoke && o.Offsets[0] < t.Base {
				text := fmt.Sprintf("%s was deleted up to %d and gives %d", o.Partition, t.Base, o.Offsets[0])
				return &Violation{"D11", text, []*Op{t, o}}
			}
		}
	}
	return nil
}

// D7: the records of a session lie in the order in which they were sent.
func (c *check) sendOrder() *Violation {
	type producer struct {
		session   string
		partition Partition
	}
	type state struct {
		offset int64
		seq    int
		op     *Op
	}
	last := map[producer]*state{}
	for _, o := range c.ops {
		if o.Kind != Send || c.sends[o.Values[0]][0] != o || (o.Acks == 0 || o.Doubled) && !o.Idempotent {
			continue
		}
		p := producer{o.Session, o.Partition}
		for _, v := range o.Values {
			where := c.places[v]
			if len(where) != 1 {
				continue // nobody saw it, or it may be there twice
			}
			s := last[p]
			if s != nil && where[0].offset <= s.offset {
				text := fmt.Sprintf("%s: %q at %d was sent after what lies at %d", o.Partition, v, where[0].offset, s.offset)
				return &Violation{"D7", text, []*Op{s.op, o, c.at[where[0]].op}}
			}
			last[p] = &state{where[0].offset, o.Seq, o}
		}
	}
	return nil
}

package history

import (
	"cmp"
	"fmt"
	"slices"
)

// G0, G1c: transactions can be put into an order. The edges of the graph are those that Kafka's transactions promise:
//
//   - who read what a transaction wrote comes after it (wr);
//   - the transactions of one transactional id come one after the other, as they were decided, and what they wrote lies
//     in that order in each partition (ww).
//
// Transactions of different ids may write to partitions in different orders, and both commit: Kafka isolates readers,
// not writers, so that such writes make no edges.
func (e *exact) cycles() *Violation {
	g := graph{edges: map[*Op][]edge{}}
	byID := map[string][]*Op{}
	for _, o := range e.ops {
		if o.Kind != Txn || !e.isCommitted(o) {
			continue
		}
		g.nodes = append(g.nodes, o)
		byID[o.Txn.ID] = append(byID[o.Txn.ID], o)
		for _, r := range o.Txn.Reads {
			if from := e.txns[r.Value]; from != nil && from != o && e.isCommitted(from) {
				g.edges[from] = append(g.edges[from], edge{"wr", o})
			}
		}
	}
	for _, o := range g.nodes {
		of := byID[o.Txn.ID]
		if of[0] == o {
			e.inOrder(&g, of)
		}
	}
	cycle := g.cycle()
	if cycle == nil {
		return nil
	}
	kind, text := "G0", ""
	var ops []*Op
	for _, s := range cycle {
		if s.kind == "wr" {
			kind = "G1c"
		}
		text += fmt.Sprintf(" -%s-> #%d", s.kind, s.to.ID)
		ops = append(ops, s.to)
	}
	return &Violation{kind, "transactions come before themselves:" + text, ops}
}

// isCommitted says whether something of a transaction is committed.
func (e *exact) isCommitted(o *Op) bool {
	for _, s := range o.Txn.Sends {
		if where := e.stored[s.Value]; len(where) > 0 && where[0].committed {
			return true
		}
	}
	return false
}

// inOrder adds the edges of the transactions of one id.
func (e *exact) inOrder(g *graph, of []*Op) {
	slices.SortStableFunc(of, func(a, b *Op) int { return cmp.Compare(a.Txn.Decide, b.Txn.Decide) })
	for i := range len(of) - 1 {
		g.edges[of[i]] = append(g.edges[of[i]], edge{"so", of[i+1]})
	}
	type write struct {
		at int64
		by *Op
	}
	writes := map[Partition][]write{}
	for _, o := range of {
		for _, s := range o.Txn.Sends {
			if where := e.stored[s.Value]; len(where) > 0 {
				writes[where[0].partition] = append(writes[where[0].partition], write{where[0].offset, o})
			}
		}
	}
	for _, p := range sortedPartitions(writes) {
		list := writes[p]
		slices.SortFunc(list, func(a, b write) int { return cmp.Compare(a.at, b.at) })
		for i := range len(list) - 1 {
			if list[i].by != list[i+1].by {
				g.edges[list[i].by] = append(g.edges[list[i].by], edge{"ww", list[i+1].by})
			}
		}
	}
}

// graph is of transactions.
type graph struct {
	nodes []*Op
	edges map[*Op][]edge

	index, low map[*Op]int
	stack      []*Op
	on         map[*Op]bool
}

type edge struct {
	kind string
	to   *Op
}

// cycle gives a cycle, nil if there is none: the shortest way through a strongly connected component back to its first
// node.
func (g *graph) cycle() []edge {
	g.index, g.low, g.on = map[*Op]int{}, map[*Op]int{}, map[*Op]bool{}
	for _, n := range g.nodes {
		if g.index[n] == 0 {
			if c := g.visit(n); len(c) > 1 {
				return g.way(c)
			}
		}
	}
	return nil
}

// visit is Tarjan's algorithm, up to the first component of several nodes.
func (g *graph) visit(n *Op) (component []*Op) {
	g.index[n] = len(g.index) + 1
	g.low[n] = g.index[n]
	g.stack = append(g.stack, n)
	g.on[n] = true
	for _, e := range g.edges[n] {
		if g.index[e.to] == 0 {
			if c := g.visit(e.to); c != nil {
				return c
			}
			g.low[n] = min(g.low[n], g.low[e.to])
		} else if g.on[e.to] {
			g.low[n] = min(g.low[n], g.index[e.to])
		}
	}
	if g.low[n] != g.index[n] {
		return nil
	}
	i := slices.Index(g.stack, n)
	c := slices.Clone(g.stack[i:])
	g.stack = g.stack[:i]
	for _, m := range c {
		g.on[m] = false
	}
	if len(c) == 1 {
		return nil
	}
	return c
}

// way is the shortest cycle through the first node of a component.
func (g *graph) way(component []*Op) []edge {
	start := component[0]
	type step struct {
		edge
		back *step
	}
	queue, seen := []*step{{edge: edge{to: start}}}, map[*Op]bool{}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, e := range g.edges[at.to] {
			if !slices.Contains(component, e.to) || seen[e.to] {
				continue
			}
			next := &step{e, at}
			if e.to == start {
				var out []edge
				for s := next; s.back != nil; s = s.back {
					out = append(out, s.edge)
				}
				slices.Reverse(out)
				return out
			}
			seen[e.to] = true
			queue = append(queue, next)
		}
	}
	return nil
}

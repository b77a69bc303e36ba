package connect

import (
	"cmp"
	"maps"
	"slices"
)

// connectorObject is the number of the connector itself among its tasks, as Kafka Connect has it.
const connectorObject = -1

// workID names what can run on one worker at a time: a task, or the connector itself.
type workID struct {
	Connector string `json:"connector"`
	Task      int    `json:"task"` // connectorObject: the connector itself
}

func (a workID) compare(b workID) int {
	if c := cmp.Compare(a.Connector, b.Connector); c != 0 {
		return c
	}
	return cmp.Compare(a.Task, b.Task)
}

// held is something that a worker runs, in whatever state, or may start at any time.
type held struct {
	workID
	Generation int32 `json:"generation"` // of the group, in which it was assigned to the worker last
}

// holder is a worker as the assignment sees it.
type holder struct {
	ID    string
	Owned []held
}

// assign divides work among workers: for each worker what it may run. Connectors and tasks are balanced each by
// themselves to within one. What runs stays where it is unless that breaks the balance. What has to move is given to
// nobody in this round, and to its next worker in the round that follows once the one that has it has reported that it
// does not any more. What nobody runs is given out at once. What two have stays with the one to which it was assigned
// last: the other was put out of the group before, and is slow to stop. If that cannot be told it is taken from both.
// The workers must have different ids; the result does not depend on their order, nor on that of the work.
func assign(workers []holder, work []workID) map[string][]workID {
	out := make(map[string][]workID, len(workers))
	if len(workers) == 0 {
		return out
	}
	sorted := slices.SortedFunc(slices.Values(workers), func(a, b holder) int { return cmp.Compare(a.ID, b.ID) })
	objects, tasks := make(map[workID]bool), make(map[workID]bool)
	for _, id := range work {
		if id.Task == connectorObject {
			objects[id] = true
		} else {
			tasks[id] = true
		}
	}
	shares := newShares(sorted)
	shares.divide(objects)
	shares.divide(tasks)
	for _, s := range shares {
		slices.SortFunc(s.run, workID.compare)
		out[s.id] = s.run
	}
	return out
}

// workerShare is what one worker gets.
type workerShare struct {
	id    string
	owned []held
	run   []workID

	kept  []workID // of the kind being divided
	quota int      // of that kind
	given int
}

type workerShares []*workerShare

func newShares(workers []holder) workerShares {
	var out workerShares
	for _, w := range workers {
		out = append(out, &workerShare{id: w.ID, owned: w.Owned})
	}
	return out
}

// divide adds work of one kind to the shares.
func (s workerShares) divide(work map[workID]bool) {
	free := s.claim(work)
	s.setQuotas(len(work))
	for _, w := range s {
		w.trim()
		w.run = append(w.run, w.kept...)
		w.given = len(w.kept)
	}
	for _, id := range free {
		w := s.next()
		w.run = append(w.run, id)
		w.given++
	}
}

// claim finds who has what of the work, and what is free, in order. What two have by the same right is neither.
func (s workerShares) claim(work map[workID]bool) (free []workID) {
	type right struct {
		generation int32
		workers    []*workerShare // that have it by that
	}
	rights := make(map[workID]right)
	for _, w := range s {
		w.kept = nil
		for _, h := range w.owned {
			r, claimed := rights[h.workID]
			switch {
			case !work[h.workID]:
			case !claimed || h.Generation > r.generation:
				rights[h.workID] = right{h.Generation, []*workerShare{w}}
			case h.Generation == r.generation && !slices.Contains(r.workers, w):
				r.workers = append(r.workers, w)
				rights[h.workID] = r
			}
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(work), workID.compare) {
		switch r := rights[id]; len(r.workers) {
		case 0:
			free = append(free, id)
		case 1:
			r.workers[0].kept = append(r.workers[0].kept, id)
		}
	}
	return free
}

// setQuotas says how much each may have: the same for all, and one more, as far as there is a remainder, for those that
// have most, so that as little as possible moves; then for those that have been given least of other kinds.
func (s workerShares) setQuotas(total int) {
	ranked := slices.Clone(s)
	slices.SortStableFunc(ranked, func(a, b *workerShare) int {
		return cmp.Or(cmp.Compare(len(b.kept), len(a.kept)), cmp.Compare(len(a.run), len(b.run)))
	})
	for i, w := range ranked {
		w.quota = total / len(s)
		if i < total%len(s) {
			w.quota++
		}
	}
}

// trim lets go of what is above the quota: of the connectors that the worker has most of, so that the tasks of each
// come to be spread.
func (w *workerShare) trim() {
	for len(w.kept) > w.quota {
		of := make(map[string]int)
		for _, id := range w.kept {
			of[id.Connector]++
		}
		drop := slices.MaxFunc(w.kept, func(a, b workID) int {
			return cmp.Or(cmp.Compare(of[a.Connector], of[b.Connector]), a.compare(b))
		})
		w.kept = slices.DeleteFunc(w.kept, func(id workID) bool { return id == drop })
	}
}

// next is the worker to give something to: the one with most room left. There is room for all that is free, since the
// quotas add up to all of the work.
func (s workerShares) next() *workerShare {
	return slices.MaxFunc(s, func(a, b *workerShare) int { return cmp.Compare(a.quota-a.given, b.quota-b.given) })
}

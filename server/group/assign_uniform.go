package group

import (
	"cmp"
	"slices"
)

// uniform is the uniform assignor at work: as many partitions for everyone as can be, and of all ways to do that one
// that moves little.
type uniform struct {
	spec   *assignSpec
	places placement
	load   []int // of the members, in partitions
}

// assignUniformly gives every member as many partitions as any other, give or take one, as far as subscriptions let it,
// and leaves a partition where it is if that is possible at the same time.
func assignUniformly(s *assignSpec) placement {
	if len(s.members) == 0 {
		return s.empty()
	}
	u := &uniform{spec: s, places: s.empty(), load: make([]int, len(s.members))}
	alike := !slices.ContainsFunc(s.members, func(m assignMember) bool {
		return !slices.Equal(m.topics, s.members[0].topics)
	})
	if alike {
		u.alike()
	} else {
		u.unlike()
	}
	return u.places
}

// quota is the number of partitions that each member is to have when all subscribe to the same topics. Who has more
// than the least share now keeps one beyond it, as long as there are such to give.
func (u *uniform) quota(have []int) []int {
	total := 0
	for _, t := range u.spec.members[0].topics {
		total += int(u.spec.topics[t].partitions)
	}
	n := len(u.spec.members)
	least, more := total/n, total%n
	quota := make([]int, n)
	for m := range quota {
		if quota[m] = least; have[m] > least && more > 0 {
			quota[m]++
			more--
		}
	}
	for m := 0; more > 0; m++ {
		if quota[m] == least {
			quota[m]++
			more--
		}
	}
	return quota
}

// alike assigns where all members subscribe to the same topics.
func (u *uniform) alike() {
	have := make([]int, len(u.load))
	u.current(func(m, _ int, _ int32) bool {
		have[m]++
		return false
	})
	quota := u.quota(have)
	u.current(func(m, t int, number int32) bool { return u.load[m] < quota[m] })
	next := 0
	for _, t := range u.spec.members[0].topics {
		for number, m := range u.places[t] {
			if m != nobody {
				continue
			}
			for u.load[next] >= quota[next] {
				next = (next + 1) % len(quota)
			}
			u.place(t, int32(number), next)
			next = (next + 1) % len(quota) // so that a topic is spread over the members
		}
	}
}

// current walks what members have and may keep: partitions that there are, of topics that they subscribe to, each with
// its first owner. Those that keep accepts stay.
func (u *uniform) current(keep func(m, t int, number int32) bool) {
	places := make(map[[16]byte]int, len(u.spec.topics))
	for t := range u.spec.topics {
		places[u.spec.topics[t].id] = t
	}
	for m := range u.spec.members {
		member := &u.spec.members[m]
		for i := range member.current {
			t, ok := places[member.current[i].topicID]
			if !ok {
				continue
			}
			if _, ok = slices.BinarySearch(member.topics, t); !ok {
				continue
			}
			for _, number := range member.current[i].partitions {
				if number < u.spec.topics[t].partitions && u.places[t][number] == nobody && keep(m, t, number) {
					u.place(t, number, m)
				}
			}
		}
	}
}

func (u *uniform) place(t int, number int32, m int) {
	if before := u.places[t][number]; before != nobody {
		u.load[before]--
	}
	u.places[t][number] = int32(m)
	u.load[m]++
}

// unlike assigns where subscriptions differ: what is free goes to the subscriber that has least, topics that few can
// have first; then partitions move from who has more to who has less, until no single move makes it more even.
func (u *uniform) unlike() {
	u.current(func(int, int, int32) bool { return true })
	subscribers := u.spec.subscribers()
	order := make([]int, len(subscribers))
	for t := range order {
		order[t] = t
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(subscribers[a]), len(subscribers[b])) })
	for _, t := range order {
		for number, m := range u.places[t] {
			if m == nobody && len(subscribers[t]) > 0 {
				u.place(t, int32(number), int(u.least(subscribers[t])))
			}
		}
	}
	for moved := true; moved; { // ends: each move lowers the sum of the squares of the loads
		moved = false
		for _, t := range order {
			for u.even(t, subscribers[t]) {
				moved = true
			}
		}
	}
}

// least is the member of a list that has least, the first of several.
func (u *uniform) least(members []int32) int32 {
	return slices.MinFunc(members, func(a, b int32) int { return cmp.Compare(u.load[a], u.load[b]) })
}

// even moves a partition of a topic from the one of its owners that has most to the subscriber that has least, if that
// makes them more even.
func (u *uniform) even(t int, subscribers []int32) bool {
	if len(subscribers) < 2 {
		return false
	}
	to := u.least(subscribers)
	from, which := to, -1
	for number, m := range u.places[t] { // the last of several partitions goes
		if u.load[m] > u.load[from] || m == from && which >= 0 {
			from, which = m, number
		}
	}
	if which < 0 || u.load[from] <= u.load[to]+1 {
		return false
	}
	u.place(t, int32(which), int(to))
	return true
}

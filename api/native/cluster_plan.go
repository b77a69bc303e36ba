package native

import (
	"cmp"
	"fmt"
	"slices"

	"millrace/client"
)

// drainPlan is how a broker's replicas are to be moved away, by topic and partition.
type drainPlan struct {
	moves     []plannedMove
	unmovable []unmovable
}

// plannedMove gives one partition new replicas.
type plannedMove struct {
	client.TopicPartition
	replicas, to []int32
}

// unmovable is a partition of which a replica has nowhere to go.
type unmovable struct {
	client.TopicPartition
	why string
}

// load is what a broker holds and will hold.
type load struct {
	rack      string
	replicas  int
	preferred int // partitions of which it is the first replica
}

// drain plans to move all replicas off a broker. A replica's place in its list goes to the broker that takes it, so
// that the order of the others stays. Partitions that a reassignment already takes from the broker are left alone.
func (v *clusterView) drain(broker int32) drainPlan {
	loads := v.loads(broker)
	var plan drainPlan
	for _, t := range v.topics {
		for i := range t.Partitions {
			at := client.TopicPartition{Topic: t.Name, Partition: int32(i)}
			target := v.target(at, t.Partitions[i].Replicas)
			place := slices.Index(target, broker)
			if place < 0 {
				continue
			}
			heir, ok := choose(loads, v.rackCounts(target, broker), target, place)
			if !ok {
				plan.unmovable = append(plan.unmovable, unmovable{at, nowhere(len(target), len(loads))})
				continue
			}
			to := slices.Clone(target)
			to[place] = heir
			loads[heir].replicas++
			if place == 0 {
				loads[heir].preferred++
			}
			plan.moves = append(plan.moves, plannedMove{at, listOf(t.Partitions[i].Replicas), to})
		}
	}
	return plan
}

func nowhere(factor, others int) string {
	if others == 0 {
		return "there is no other active broker: add one"
	}
	return fmt.Sprintf("there %s %s besides this one for %s: add a broker, or ask for fewer replicas",
		isAre(others), count(others, "active broker", "active brokers"), count(factor, "replica", "replicas"))
}

// target is the replicas that a partition has or, where they are being changed, will have.
func (v *clusterView) target(at client.TopicPartition, replicas []int32) []int32 {
	if r, ok := v.moving[at]; ok {
		return r.Target()
	}
	return replicas
}

// loads is what the active brokers hold, but for one that is to be drained.
func (v *clusterView) loads(drained int32) map[int32]*load {
	out := make(map[int32]*load)
	for i := range v.state.Brokers {
		if b := &v.state.Brokers[i]; b.Active() && b.ID != drained {
			out[b.ID] = &load{rack: rackOf(b)}
		}
	}
	for _, t := range v.topics {
		for i := range t.Partitions {
			target := v.target(client.TopicPartition{Topic: t.Name, Partition: int32(i)}, t.Partitions[i].Replicas)
			for place, id := range target {
				l := out[id]
				if l == nil {
					continue
				}
				l.replicas++
				if place == 0 {
					l.preferred++
				}
			}
		}
	}
	return out
}

func rackOf(b *client.BrokerState) string {
	if b == nil || b.Rack == nil {
		return ""
	}
	return *b.Rack
}

// rackCounts is how many of a partition's replicas, but for those on one broker, lie on each rack.
func (v *clusterView) rackCounts(replicas []int32, but int32) map[string]int {
	out := make(map[string]int)
	for _, id := range replicas {
		if id != but {
			out[rackOf(v.state.Broker(id))]++
		}
	}
	return out
}

// choose finds the broker to take the replica at a place of a partition's list: one that holds none of the partition,
// on the rack that holds fewest of it, with the fewest replicas, or for the first place leaderships, of its own.
func choose(loads map[int32]*load, racks map[string]int, replicas []int32, place int) (heir int32, ok bool) {
	var free []int32
	for id := range loads {
		if !slices.Contains(replicas, id) {
			free = append(free, id)
		}
	}
	if len(free) == 0 {
		return 0, false
	}
	return slices.MinFunc(free, func(a, b int32) int {
		x, y := loads[a], loads[b]
		leads := 0
		if place == 0 {
			leads = cmp.Compare(x.preferred, y.preferred)
		}
		return cmp.Or(
			cmp.Compare(racks[x.rack], racks[y.rack]), cmp.Compare(x.replicas, y.replicas), leads, cmp.Compare(a, b))
	}), true
}

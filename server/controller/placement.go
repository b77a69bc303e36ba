package controller

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/server/metadata"
)

// place chooses the replicas of so many new partitions, or says why it cannot.
func (c *Controller) place(image *metadata.Image, topic string, count, factor int) ([][]int32, metadata.Item) {
	if count > c.limits.TopicPartitions {
		return nil, refuse(kerr.PolicyViolation, "topic %s cannot get %d partitions: a topic may have at most %d",
			topic, count, c.limits.TopicPartitions)
	}
	brokers := image.Brokers()
	if factor > len(brokers) {
		return nil, refuse(kerr.InvalidReplicationFactor, "topic %s cannot have %s: the cluster has %s",
			topic, metadata.Count(factor, "replica"), metadata.Count(len(brokers), "broker"))
	}
	if !slices.ContainsFunc(brokers, inService) {
		return nil, refuse(kerr.InvalidReplicationFactor, "topic %s cannot be placed: no broker of %d is in service",
			topic, len(brokers))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := newPlacer(brokers, c.rand)
	partitions := make([][]int32, count)
	for i := range partitions {
		partitions[i] = p.next(factor)
	}
	return partitions, metadata.Item{}
}

// inService reports whether a broker may lead what is placed now. One that is fenced or shutting down gets
// replicas only where there are too few others.
func inService(b *metadata.Broker) bool { return !b.Fenced && !b.ShuttingDown }

// placer spreads replicas over brokers and racks. Leaders take turns, so each broker in service leads as
// many partitions as any other, give or take one. The other replicas of a partition go to the racks
// after the leader's in turn, so a partition is in as many racks as it can be; within a rack brokers
// take turns. Brokers out of service come last, where that does not cost a rack. After each cycle of
// leaders all is shuffled, so that brokers do not always share the same partitions.
type placer struct {
	rand    *rand.Rand
	racks   []*rack
	leaders []place // of one cycle
	at      int     // the next leader
}

// rack is the brokers of one rack.
type rack struct {
	brokers []*metadata.Broker
	next    int // where the turn of the followers is
}

// place is a broker and the rack it is in.
type place struct {
	id   int32
	rack int
}

// newPlacer needs at least one broker in service. The brokers come by id.
func newPlacer(brokers []*metadata.Broker, r *rand.Rand) *placer {
	byName := make(map[string]*rack)
	var names []string
	for _, b := range brokers {
		if byName[b.Rack] == nil {
			byName[b.Rack] = new(rack)
			names = append(names, b.Rack)
		}
		byName[b.Rack].brokers = append(byName[b.Rack].brokers, b)
	}
	slices.SortFunc(names, cmp.Compare[string])
	p := &placer{rand: r}
	for _, name := range names {
		p.racks = append(p.racks, byName[name])
	}
	p.shuffle()
	return p
}

// shuffle begins a cycle: the racks in their order from a random one on, the brokers of each rack in
// any order, leaders from rack after rack.
func (p *placer) shuffle() {
	p.leaders, p.at = p.leaders[:0], 0
	longest := 0
	for _, r := range p.racks {
		p.rand.Shuffle(len(r.brokers), func(i, j int) { r.brokers[i], r.brokers[j] = r.brokers[j], r.brokers[i] })
		r.next = 0
		longest = max(longest, len(r.brokers))
	}
	start := p.rand.IntN(len(p.racks))
	for round := range longest {
		for i := range p.racks {
			at := (start + i) % len(p.racks)
			if r := p.racks[at]; round < len(r.brokers) && inService(r.brokers[round]) {
				p.leaders = append(p.leaders, place{r.brokers[round].ID, at})
			}
		}
	}
}

// next returns the replicas of one more partition, the leader first. Each round takes at most one broker of
// each rack: first of the racks that have one in service, then of those that do not.
func (p *placer) next(factor int) []int32 {
	if p.at == len(p.leaders) {
		p.shuffle()
	}
	leader := p.leaders[p.at]
	p.at++
	replicas := append(make([]int32, 0, factor), leader.id)
	visited := make([]bool, len(p.racks))
	visited[leader.rack] = true
	for ; len(replicas) < factor; clear(visited) {
		for _, serving := range []bool{true, false} {
			for i := range p.racks {
				at := (leader.rack + i) % len(p.racks)
				if visited[at] || len(replicas) == factor {
					continue
				}
				if id, ok := p.racks[at].take(replicas, serving); ok {
					replicas, visited[at] = append(replicas, id), true
				}
			}
		}
	}
	return replicas
}

// take returns the next broker that is not taken yet, of those in service or of the others.
func (r *rack) take(taken []int32, serving bool) (int32, bool) {
	for i := range r.brokers {
		at := (r.next + i) % len(r.brokers)
		if b := r.brokers[at]; inService(b) == serving && !slices.Contains(taken, b.ID) {
			r.next = at + 1
			return b.ID, true
		}
	}
	return 0, false
}

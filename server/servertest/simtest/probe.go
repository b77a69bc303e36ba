package simtest

import (
	"context"
	"crypto/sha256"
	"maps"
	"sync"
	"time"

	"millrace/server"
	"millrace/server/metadata"
	"millrace/server/partition"
	"millrace/server/servertest/history"
)

// prober looks into the nodes every few moments and holds what it sees to the invariants that are about one moment, or
// about all moments so far.
type prober struct {
	s  *sim
	wg sync.WaitGroup

	ctx    context.Context
	cancel context.CancelFunc

	// All below is the prober's goroutine's.
	leaders map[reign]int32
	hashes  map[uint64]hashed
	marks   map[life]int64          // the high watermark
	first   map[life]int64          // and what it was at first
	starts  map[life]int64          // the log start
	shown   map[reign]int64         // the most that leaders have shown as committed
	begun   map[reign]time.Duration // when a leader was first seen to lead
}

// reign is a leader epoch of a partition.
type reign struct {
	partition partition.Name
	epoch     int32
}

// life is a leader epoch as one open log of one life of a machine knows it.
type life struct {
	reign
	node *server.Node
	log  any
}

type hashed struct {
	sum  [sha256.Size]byte
	name string
}

const probeEvery = 70 * time.Millisecond

func newProber(s *sim) *prober {
	p := &prober{
		s: s, leaders: map[reign]int32{}, hashes: map[uint64]hashed{}, marks: map[life]int64{}, first: map[life]int64{},
		starts: map[life]int64{}, shown: map[reign]int64{}, begun: map[reign]time.Duration{},
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

func (p *prober) start() {
	p.wg.Go(func() {
		for i := 0; sleep(p.ctx, probeEvery); i++ {
			p.look(i%8 == 0)
		}
	})
}

func (p *prober) stop() {
	p.cancel()
	p.wg.Wait()
}

// seen is what was seen of a machine.
type seen struct {
	m     *machine
	node  *server.Node
	probe server.Probe
	by    map[partition.Name]partition.Probe
}

// deletion is the furthest that the records of a partition were said to be deleted, and the newest state of the
// partition that any node knew then.
type deletion struct {
	to                          int64
	leaderEpoch, partitionEpoch int32
}

// deleted takes note of an answer.
func (s *sim) deleted(of history.Partition, to int64) {
	d := deletion{to: to}
	newest := func(leaderEpoch, partitionEpoch int32) {
		d.leaderEpoch, d.partitionEpoch = max(d.leaderEpoch, leaderEpoch), max(d.partitionEpoch, partitionEpoch)
	}
	for _, n := range s.probe.everybody() {
		if t := n.probe.Image.Topic(of.Topic); t != nil && int(of.Number) < len(t.Partitions) {
			newest(t.Partitions[of.Number].LeaderEpoch, t.Partitions[of.Number].PartitionEpoch)
		}
		for _, r := range n.probe.Replicas {
			if r.Name.Topic == of.Topic && r.Name.Partition == of.Number {
				newest(r.Role.LeaderEpoch, r.Role.PartitionEpoch)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.to > s.deletions[of].to {
		s.deletions[of] = d
	}
}

// gone holds replicas to deletions that were answered before they were looked at: none that is in sync, unless it knows
// of less than was known then, begins below (D11).
func (p *prober) gone(n *seen, deletions map[history.Partition]deletion) {
	for _, r := range n.probe.Replicas {
		d, ok := deletions[history.Partition{Topic: r.Name.Topic, Number: r.Name.Partition}]
		old := r.Role.LeaderEpoch < d.leaderEpoch || r.Role.PartitionEpoch < d.partitionEpoch
		if !ok || old || !contains(r.Role.ISR, n.m.id) || r.LogStart >= d.to || p.unclean(n, r) {
			continue
		}
		p.s.violate("D11", "%s, in sync in epoch %d, has %s from %d on, which was deleted up to %d",
			n.m.name, r.Role.LeaderEpoch, r.Name, r.LogStart, d.to)
	}
}

// look looks at all nodes twice: what the first look says of one replica must hold for the others in the second.
func (p *prober) look(images bool) {
	p.s.mu.Lock()
	deletions := maps.Clone(p.s.deletions)
	p.s.mu.Unlock()
	first, second := p.everybody(), p.everybody()
	for _, n := range first {
		if images {
			p.image(n)
		}
		p.forget(n)
		p.gone(n, deletions)
		for _, r := range n.probe.Replicas {
			p.replica(n, r)
			for _, o := range second {
				if o.m != n.m {
					p.pair(n, r, o)
				}
			}
		}
	}
}

func (p *prober) everybody() (out []*seen) {
	for _, m := range p.s.machines() {
		node := m.alive()
		if node == nil {
			continue
		}
		n := &seen{m: m, node: node, probe: node.Probe(), by: map[partition.Name]partition.Probe{}}
		for _, r := range n.probe.Replicas {
			n.by[r.Name] = r
		}
		if m.alive() == node { // else what was seen may be of its end
			out = append(out, n)
		}
	}
	return out
}

// image holds equal indexes to equal images (R3).
func (p *prober) image(n *seen) {
	image := n.probe.Image
	sum := image.Hash()
	if was, known := p.hashes[image.Index]; !known {
		p.hashes[image.Index] = hashed{sum, n.m.name}
	} else if was.sum != sum {
		p.s.violate("R3", "%s and %s have other metadata at index %d", was.name, n.m.name, image.Index)
	}
}

// replica holds one replica to what is so of every one: E1, H2, H4.
func (p *prober) replica(n *seen, r partition.Probe) {
	if r.LogStart > r.HighWatermark || r.HighWatermark > r.LogEnd {
		p.s.violate("H4", "%s: %s has log start %d, high watermark %d and log end %d",
			n.m.name, r.Name, r.LogStart, r.HighWatermark, r.LogEnd)
	}
	if !r.Leading && !r.Following {
		return
	}
	at := reign{r.Name, r.Role.LeaderEpoch}
	if r.Leading {
		if was, known := p.leaders[at]; known && was != n.m.id {
			p.s.violate("E1", "both n%d and %s lead %s in epoch %d", was, n.m.name, r.Name, r.Role.LeaderEpoch)
		}
		p.leaders[at] = n.m.id
		if _, known := p.begun[at]; !known {
			p.begun[at] = p.s.h.Now()
		}
		p.shown[at] = max(p.shown[at], r.HighWatermark)
	}
	mine := life{at, n.node, r.Log}
	if was := p.marks[mine]; r.HighWatermark < was && !p.unclean(n, r) {
		p.s.violate("H2", "%s: the high watermark of %s goes from %d to %d in epoch %d",
			n.m.name, r.Name, was, r.HighWatermark, r.Role.LeaderEpoch)
	}
	p.marks[mine] = r.HighWatermark
	if was := p.starts[mine]; r.LogStart < was && !p.unclean(n, r) {
		p.s.violate("D11", "%s: the start of %s goes from %d to %d in epoch %d",
			n.m.name, r.Name, was, r.LogStart, r.Role.LeaderEpoch)
	}
	p.starts[mine] = r.LogStart
	if _, known := p.first[mine]; !known {
		p.first[mine] = r.HighWatermark
	}
}

// forget forgets what was known of logs that a node has given up.
func (p *prober) forget(n *seen) {
	for l := range p.marks {
		if r, there := n.by[l.partition]; l.node == n.node && (!there || r.Log != l.log) {
			delete(p.marks, l)
			delete(p.first, l)
			delete(p.starts, l)
		}
	}
}

// unclean says whether a topic may lose records.
func (p *prober) unclean(n *seen, r partition.Probe) bool {
	t := n.probe.Image.TopicByID(r.Name.TopicID)
	return t == nil || t.Settings.UncleanLeaderElection || p.s.isExempt(t.Name)
}

// pair holds a replica to what another one has a moment later, in the same leader epoch: H1, H5.
func (p *prober) pair(n *seen, r partition.Probe, o *seen) {
	other, there := o.by[r.Name]
	if !there || other.Role.LeaderEpoch != r.Role.LeaderEpoch || p.unclean(n, r) {
		return
	}
	if r.Leading && other.Following && contains(r.Role.ISR, o.m.id) && contains(other.Role.ISR, o.m.id) &&
		other.LogEnd < r.HighWatermark {
		p.s.violate("H1", "%s leads %s in epoch %d with high watermark %d; %s, in sync, ends at %d",
			n.m.name, r.Name, r.Role.LeaderEpoch, r.HighWatermark, o.m.name, other.LogEnd)
	}
	// What a follower knew before the leader's epoch may be more than the leader knows yet.
	known, ok := p.first[life{reign{r.Name, r.Role.LeaderEpoch}, n.node, r.Log}]
	if r.Following && other.Leading && r.HighWatermark > other.HighWatermark && ok && r.HighWatermark > known {
		p.s.violate("H5", "%s follows %s in epoch %d with high watermark %d; %s leads with %d",
			n.m.name, r.Name, r.Role.LeaderEpoch, r.HighWatermark, o.m.name, other.HighWatermark)
	}
}

func contains(ids []int32, id int32) bool {
	for _, i := range ids {
		if i == id {
			return true
		}
	}
	return false
}

// image is the newest metadata that any node has.
func (s *sim) image() (newest *metadata.Image) {
	for _, m := range s.nodes {
		if node := m.alive(); node != nil {
			if image := node.Probe().Image; newest == nil || image.Index > newest.Index {
				newest = image
			}
		}
	}
	return newest
}

// leaders are the machines that lead partitions, each as often as it does.
func (s *sim) leaders() (out []*machine) {
	image := s.image()
	if image == nil {
		return nil
	}
	for t := range image.Topics() {
		for i := range t.Partitions {
			if id := t.Partitions[i].Leader; id > 0 && int(id) <= len(s.nodes) {
				out = append(out, s.nodes[id-1])
			}
		}
	}
	return out
}

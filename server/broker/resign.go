package broker

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/server/metadata"
	"millrace/server/partition"
)

// A replica whose log is damaged, or has gone offline, or finds no room, gives its place up: it asks the controller
// to be taken out of the ISR and to have the leadership moved. Only when it counts for nothing any more, and
// another replica leads, is a damaged log set aside and fetched anew: until then somebody may need what
// it has. The only replica in sync keeps what it has and answers with the error, unless it cannot be opened and the
// topic allows unclean elections. One that finds no room has everything: it stays eligible (KIP-966), and leads again
// when nobody else can.
//
// A follower first stops fetching, and waits until no fetch of it is on its way: a late one would tell
// the leader of an end that the log is about to lose. Should the leader have asked already to have it back in
// the ISR by an earlier one, the replica gives its place up once more.

// resignation is one replica that gives up its place. All is guarded by the proposer's mu.
type resignation struct {
	name   partition.Name
	plight plight
	asked  int32 // the partition epoch at which the controller was asked, none before
}

// plight is what is wrong with a log, from bad to worse.
type plight uint8

const (
	full     plight = iota // it has all that it had, and takes nothing for now
	failed                 // it may lack something, or nobody can say; it waits for the next start, or for another try
	damaged                // it is to be fetched anew
	unusable               // so is it, and nothing of it can be read meanwhile: it cannot be opened
)

// plightOf says what an error means for a log, if it means that.
func plightOf(err error) (p plight, ok bool) {
	switch {
	case partition.Unusable(err):
		return unusable, true
	case partition.Damaged(err):
		return damaged, true
	case !partition.Lost(err):
		return 0, false
	case partition.Passes(err):
		return full, true
	}
	return failed, true
}

// notAsked is the partition epoch of a resignation that was not sent.
const notAsked int32 = -1

// noticed takes note of an error of a partition that may mean that its log is lost, and tells whether another replica
// is about to serve in place of this one.
func (b *Broker) noticed(n partition.Name, err error) (replaced bool) {
	what, ok := plightOf(err)
	return ok && b.noticedAs(n, what)
}

func (b *Broker) noticedAs(n partition.Name, what plight) (replaced bool) {
	// Of the image that is being taken up: its partitions are opened before anybody sees it.
	image := b.newest.Load()
	meta := replicaOf(image, n, b.cfg.NodeID)
	switch {
	case meta == nil, len(meta.Replicas) == 1:
		return false
	case len(meta.ELR) == 0 && slices.Equal(meta.ISR, []int32{b.cfg.NodeID}): // nobody else has it
		if what == unusable && b.replaceable(image, n) {
			b.isr.resign(n, what)
		}
		return false
	case what < damaged && meta.Leader != b.cfg.NodeID && what.isOut(meta, b.cfg.NodeID):
		return true
	}
	b.isr.resign(n, what)
	return true
}

// replaceable tells whether another replica may lead without being in sync.
func (b *Broker) replaceable(image *metadata.Image, n partition.Name) bool {
	t := image.TopicByID(n.TopicID)
	return t.Settings.UncleanLeaderElection && slices.ContainsFunc(t.Partitions[n.Partition].Replicas,
		func(id int32) bool { return id != b.cfg.NodeID && image.Active(id) })
}

// Failed takes note of an error of a partition's log that a coordinator has met.
func (b *Broker) Failed(n partition.Name, err error) { b.noticed(n, err) }

// isOut says whether a replica counts for nothing any more that it should not count for.
func (p plight) isOut(meta *metadata.Partition, node int32) bool {
	return !slices.Contains(meta.ISR, node) && (p == full || !slices.Contains(meta.ELR, node))
}

// errReplaced is the answer of a leader whose log cannot be used and that another replica is about to replace.
var errReplaced = fmt.Errorf("%w: its log cannot be used", partition.ErrNotLeader)

// unlessReplaced takes note of an error of a leader's log, which nobody is told of while another replica is about to
// serve.
func (b *Broker) unlessReplaced(n partition.Name, err error) error {
	if b.noticed(n, err) {
		return errReplaced
	}
	return err
}

// resign has a replica give up its place.
func (p *isrProposer) resign(n partition.Name, what plight) {
	p.mu.Lock()
	r := p.resigned[n]
	if r == nil {
		r = &resignation{name: n, asked: notAsked}
		p.resigned[n] = r
	}
	if what > r.plight {
		r.plight, r.asked = what, notAsked
	}
	p.mu.Unlock()
	p.hurry()
}

// replicaOf is what an image says of a partition that has a replica on the node, or nil.
func replicaOf(image *metadata.Image, n partition.Name, node int32) *metadata.Partition {
	if image == nil {
		return nil
	}
	t := image.TopicByID(n.TopicID)
	if t == nil || int(n.Partition) >= len(t.Partitions) || !slices.Contains(t.Partitions[n.Partition].Replicas, node) {
		return nil
	}
	return &t.Partitions[n.Partition]
}

// resigning tells whether the partition is to be left alone until its replica counts for nothing.
func (p *isrProposer) resigning(n partition.Name) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.resigned[n] != nil
}

// forget ends a resignation. The log as it is stays held.
func (p *isrProposer) forget(n partition.Name) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.resigned, n)
}

// resume ends a resignation, and the log as it is goes on being fetched.
func (p *isrProposer) resume(n partition.Name) {
	p.forget(n)
	if f := p.broker.view.Load().feed(n); f != nil {
		f.release()
	}
}

// imageChanged has the resignations looked at again.
func (p *isrProposer) imageChanged() {
	p.mu.Lock()
	waiting := len(p.resigned) > 0
	p.mu.Unlock()
	if waiting {
		p.hurry()
	}
}

// resignations gives those that are to be sent now, and deals with those that are through. While an image is taken up
// it does neither: what was noticed is of that image, and an older one might say that the replica counts for nothing
// or does not exist.
func (p *isrProposer) resignations() []proposal {
	v, self := p.broker.view.Load(), p.broker.cfg.NodeID
	if v.image != p.broker.newest.Load() {
		return nil // OnImage calls imageChanged
	}
	p.mu.Lock()
	all := make([]resignation, 0, len(p.resigned))
	for _, r := range p.resigned {
		all = append(all, *r)
	}
	p.mu.Unlock()
	var out []proposal
	for i := range all {
		n := all[i].name
		meta := replicaOf(v.image, n, self)
		switch {
		case meta == nil:
			p.forget(n)
		case meta.Leader != self && all[i].plight.isOut(meta, self):
			p.replace(&all[i], meta)
		case meta.PartitionEpoch == all[i].asked || !v.quiet(n):
		default:
			out = append(out, proposal{resign: true, plight: all[i].plight, isr: partition.IsrProposal{
				Name: n, LeaderEpoch: meta.LeaderEpoch, PartitionEpoch: meta.PartitionEpoch,
			}})
		}
	}
	return out
}

// quiet has the fetching of a partition pause, and tells whether no fetch is on its way.
func (v *view) quiet(n partition.Name) bool {
	f := v.feed(n)
	return f == nil || f.hold()
}

// feed is that of a partition which this node follows, or nil.
func (v *view) feed(n partition.Name) *feed {
	h := v.hosted(n.TopicID)
	if h == nil || int(n.Partition) >= len(h.parts) {
		return nil
	}
	return h.parts[n.Partition].feed
}

// replace sets a damaged log aside that counts for nothing, so that it is fetched anew. While nobody
// leads the partition, it is kept: it may be the best that there is.
func (p *isrProposer) replace(r *resignation, meta *metadata.Partition) {
	if meta.Leader == metadata.NoLeader && r.plight >= damaged || !p.broker.view.Load().quiet(r.name) {
		return
	}
	if r.plight < damaged {
		p.resume(r.name)
		return
	}
	p.forget(r.name)
	p.broker.fetchAnew(r.name)
}

// resignationAnswered takes up the controller's answer, and reports whether it is not to be asked again
// soon.
func (p *isrProposer) resignationAnswered(change *partition.IsrProposal, code int16) bool {
	log := p.broker.cfg.Logger.With("topic", change.Name.Topic, "partition", change.Name.Partition)
	switch code {
	case partition.Unanswered:
		return false
	case kerr.EligibleLeadersNotAvailable.Code:
		p.resume(change.Name)
		log.Error("log cannot be used and no other replica is in sync")
		return true
	case 0, kerr.NewLeaderElected.Code:
		log.Warn("replica with an unusable log has given up its place", "epoch", change.LeaderEpoch)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.resigned[change.Name]; r != nil {
		r.asked = change.PartitionEpoch // newer metadata says what has become of it
	}
	return code == 0 || code == kerr.NewLeaderElected.Code
}

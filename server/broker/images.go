package broker

import (
	"cmp"
	"errors"
	"slices"
	"sync"

	"millrace/server/metadata"
	"millrace/server/partition"
)

// openers is how many logs are opened at a time. After a clean stop an open is a look-up; after a
// crash it reads what was written last.
const openers = 4

// OnImage brings the broker's partitions in step with a new image, and then publishes it, so that no
// client is sent to a partition that is not open. It is to be called with every image in order, and
// the first time, when old is nil, with one that is up to date: then what is on disk and belongs to
// no topic is set aside. Every partition that has a replica on this node is opened, and is led or
// followed as the image says. A log that cannot be opened makes its partition answer with the reason;
// the others go on. It waits for disks and never for another node.
func (b *Broker) OnImage(old, image *metadata.Image) {
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	if b.closed {
		return
	}
	b.newest.Store(image)
	if old == nil {
		b.compareDisk(image)
	}
	was := b.view.Load()
	w := b.watch(was, image)
	for _, c := range metadata.Diff(was.image, image) {
		w.change(c)
	}
	w.publish(was)
	b.brokersChanged(was.image, image)
	b.isr.imageChanged()
}

// brokersChanged acts on what an image says of other brokers.
func (b *Broker) brokersChanged(old, image *metadata.Image) {
	if old == nil {
		return
	}
	for _, m := range image.Brokers() {
		was := old.Broker(m.ID)
		if was == m || was != nil && was.Epoch == m.Epoch && was.State() == m.State() {
			continue
		}
		if m.ShuttingDown {
			b.life.hurry() // it waits until all have heard of it
		}
		// It may be in sync already, with its next fetch long in coming, or was about to be and counts no more.
		b.isr.look.Store(true)
		b.isr.hurry()
		b.fetchers.hurry(m.ID)
	}
}

// watch is one OnImage at work, or whatever else makes the next view.
type watch struct {
	broker *Broker
	editor *editor
	jobs   []openJob
	// source and settings are the last translation: topics without settings of their own share one.
	source   *metadata.TopicSettings
	settings *partition.Settings
}

func (b *Broker) watch(was *view, image *metadata.Image) *watch {
	return &watch{broker: b, editor: was.edit(image)}
}

// publish opens what is to be opened and makes the view current.
func (w *watch) publish(was *view) {
	w.open()
	w.broker.view.Store(&w.editor.view)
	close(was.superseded)
	w.broker.fetchers.flush()
}

// openJob is a partition to be opened or made; its place in parts is written by the opener alone.
type openJob struct {
	name partition.Name
	host *hosted
	into *part
}

// change takes up one topic that was made, changed or deleted.
func (w *watch) change(c metadata.Change) {
	if c.New == nil {
		w.remove(c.Old)
		return
	}
	now := &hosted{topic: c.New, settings: w.settingsOf(c.New), parts: make([]part, len(c.New.Partitions))}
	was := w.editor.hosted(c.New.ID)
	if was != nil {
		copy(now.parts, was.parts)
	}
	reconfigure := was != nil && was.topic.Settings != c.New.Settings
	if was != nil && !reconfigure {
		now.settings = was.settings
	}
	for i := range now.parts {
		p := &now.parts[i]
		if reconfigure && p.replica != nil {
			p.replica.Reconfigure(now.settings)
		}
		if reconfigure || was == nil || i >= len(was.parts) || c.New.Partitions[i].PartitionEpoch !=
			was.topic.Partitions[i].PartitionEpoch || p.err != nil {
			w.changePart(now, int32(i))
		}
	}
	w.editor.put(c.New.ID, now)
}

// changePart takes up what the image says of one partition.
func (w *watch) changePart(h *hosted, number int32) {
	meta, p := &h.topic.Partitions[number], &h.parts[number]
	name := partition.Name{Topic: h.topic.Name, TopicID: h.topic.ID, Partition: number}
	switch {
	case !slices.Contains(meta.Replicas, w.broker.cfg.NodeID):
		w.leave(p, (*partition.Replica).Leave)
	case p.replica == nil:
		w.jobs = append(w.jobs, openJob{name: name, host: h, into: p})
	default:
		w.broker.assume(h, number)
	}
}

// assume puts an open replica into the role that the image gives it.
func (b *Broker) assume(h *hosted, number int32) {
	meta, p := &h.topic.Partitions[number], &h.parts[number]
	role := partition.Role{
		Leader: meta.Leader, LeaderEpoch: meta.LeaderEpoch, PartitionEpoch: meta.PartitionEpoch,
		Replicas: meta.Replicas, ISR: meta.ISR, ELR: meta.ELR, Recovering: meta.Recovering,
	}
	if meta.Leader == b.cfg.NodeID {
		b.unfeed(p)
		p.replica.Lead(role)
		p.leader, p.follower = p.replica.Leader(), p.replica.Follower()
		b.tellInternal(h.topic.Name, number, p, meta.LeaderEpoch)
		return
	}
	defer b.tellInternal(h.topic.Name, number, p, meta.LeaderEpoch)
	outside := !slices.Contains(meta.ISR, b.cfg.NodeID)
	if p.anew && !outside && p.follower != nil {
		if p.anew = p.follower.Behind(); p.anew {
			b.isr.resign(p.replica.Name(), failed) // what it is in sync for is what it had before
		}
	}
	slow := h.topic.Settings.ThrottledFollower.Has(number, b.cfg.NodeID)
	if f := p.feed; f != nil && f.fetcher.leader == meta.Leader && f.epoch == meta.LeaderEpoch {
		p.replica.Follow(role)
		f.renew(outside, slow)
		return
	}
	b.unfeed(p)
	p.replica.Follow(role)
	p.leader, p.follower = p.replica.Leader(), p.replica.Follower()
	if meta.Leader != metadata.NoLeader && p.follower != nil {
		p.feed = newFeed(p.follower, p.replica.Name(), meta.LeaderEpoch)
		p.feed.held = b.isr.resigning(p.feed.name)
		p.feed.outside, p.feed.throttled = outside, outside && slow
		b.fetchers.add(meta.Leader, p.feed)
	}
}

// tellInternal tells who coordinates by the log of an internal topic whether this node leads it. Leader epochs count
// from 0, what was told from 1.
func (b *Broker) tellInternal(topic string, number int32, p *part, epoch int32) {
	if b.cfg.OnInternal == nil || !metadata.IsInternal(topic) {
		return
	}
	switch {
	case p.leader != nil && p.internal != epoch+1:
		p.internal = epoch + 1
		b.cfg.OnInternal(topic, number, p.leader, epoch)
	case p.leader == nil && p.internal != 0:
		p.internal = 0
		b.cfg.OnInternal(topic, number, nil, epoch)
	}
}

// unfeed ends the fetching of a partition.
func (b *Broker) unfeed(p *part) {
	if p.feed != nil {
		b.fetchers.end(p.feed)
		p.feed = nil
	}
}

// leave deletes the log of a partition that has no replica on this node any more, or is no more.
func (w *watch) leave(p *part, remove func(*partition.Replica) error) {
	w.broker.unfeed(p)
	if r := p.replica; r != nil {
		p.leader = nil
		w.broker.tellInternal(r.Name().Topic, r.Name().Partition, p, p.internal-1)
		if err := remove(r); err != nil {
			w.broker.cfg.Logger.Warn("files of a deleted partition are left", "topic", r.Name().Topic,
				"partition", r.Name().Partition, "err", err)
		}
	}
	*p = part{}
}

// remove deletes the logs of a topic.
func (w *watch) remove(t *metadata.Topic) {
	h := w.editor.hosted(t.ID)
	if h == nil {
		return
	}
	for i := range h.parts {
		p := h.parts[i] // the published view keeps its own
		w.leave(&p, (*partition.Replica).Delete)
	}
	w.editor.put(t.ID, nil)
}

// open runs the jobs, some at a time, and then puts what was opened into its role.
func (w *watch) open() {
	var wg sync.WaitGroup
	next := make(chan *openJob, len(w.jobs))
	for i := range w.jobs {
		next <- &w.jobs[i]
	}
	close(next)
	for range min(openers, len(w.jobs)) {
		wg.Go(func() {
			for job := range next {
				w.broker.openReplica(job)
			}
		})
	}
	wg.Wait()
	for i := range w.jobs {
		if job := &w.jobs[i]; job.into.replica != nil {
			w.broker.assume(job.host, job.name.Partition)
		} else if what, ok := plightOf(job.into.err); ok {
			if job.into.anew { // what it had is gone
				what = max(what, failed)
			}
			w.broker.noticedAs(job.name, what)
		}
	}
}

func (b *Broker) openReplica(job *openJob) {
	replica, err := b.cfg.Store.Open(job.name, job.host.settings)
	n, failed := job.name, job.into.err
	switch {
	case err == nil && failed != nil:
		b.cfg.Logger.Info("partition can be used again", "topic", n.Topic, "partition", n.Partition)
	case err != nil && failed == nil:
		b.cfg.Logger.Error("partition cannot be used", "topic", n.Topic, "partition", n.Partition, "err", err)
	}
	*job.into = part{replica: replica, err: err, anew: job.into.anew}
	if job.into.failed() {
		b.failing.Store(true)
	}
}

// failed says whether the log could not be opened or made, for another reason than damage: that may pass.
func (p *part) failed() bool { return p.err != nil && !partition.Damaged(p.err) }

// reopen tries those partitions again whose logs could not be opened or made.
func (b *Broker) reopen() {
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	if b.closed || !b.failing.Swap(false) {
		return
	}
	was := b.view.Load()
	w := b.watch(was, was.image)
	was.all(func(h *hosted) {
		if !slices.ContainsFunc(h.parts, func(p part) bool { return p.failed() }) {
			return
		}
		now := h.clone()
		for i := range now.parts {
			if now.parts[i].failed() {
				w.changePart(now, int32(i))
			}
		}
		w.editor.put(h.topic.ID, now)
	})
	w.publish(was)
}

// fetchAnew sets the damaged log of a follower aside and begins an empty one.
func (b *Broker) fetchAnew(n partition.Name) {
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	was := b.view.Load()
	h := was.hosted(n.TopicID)
	if b.closed || h == nil || int(n.Partition) >= len(h.parts) || h.topic.Partitions[n.Partition].Leader == b.cfg.NodeID {
		return
	}
	now := h.clone()
	p := &now.parts[n.Partition]
	b.unfeed(p)
	var err error
	if p.replica != nil {
		p.replica, err = p.replica.SetAsideAndRestart()
	} else {
		err = b.cfg.Store.SetAside(n)
	}
	*p = part{replica: p.replica, err: err, anew: true}
	w := b.watch(was, was.image)
	if err == nil {
		w.changePart(now, n.Partition)
	} else {
		b.cfg.Logger.Error("damaged log cannot be set aside", "topic", n.Topic, "partition", n.Partition, "err", err)
		p.replica = nil
		if p.failed() {
			b.failing.Store(true)
		}
	}
	w.editor.put(n.TopicID, now)
	w.publish(was)
}

func (w *watch) settingsOf(t *metadata.Topic) *partition.Settings {
	if w.source != t.Settings {
		w.source, w.settings = t.Settings, partition.NewSettings(t.Settings)
	}
	return w.settings
}

// compareDisk compares what is on disk with the first image. The folders of partitions that the image
// does not know or does not place here are renamed: their topics were deleted while the node was
// down. Partitions without a folder begin at offset 0, which is worth a word: but for topics that were
// being made when the node crashed, somebody has removed it.
func (b *Broker) compareDisk(image *metadata.Image) {
	names, err := b.cfg.Store.Names()
	if err != nil {
		b.cfg.Logger.Error("data directory cannot be listed", "err", err)
		return
	}
	found := make(map[partition.Name]bool, len(names))
	for _, n := range names {
		t := image.TopicByID(n.TopicID)
		if n.TopicID == ([16]byte{}) {
			if t = image.Topic(n.Topic); t != nil {
				n.TopicID = t.ID // whether it is that topic's, opening it tells
			}
		}
		if t != nil && t.Name == n.Topic && int(n.Partition) < len(t.Partitions) &&
			slices.Contains(t.Partitions[n.Partition].Replicas, b.cfg.NodeID) {
			found[n] = true
			continue
		}
		if err := b.cfg.Store.SetAside(n); err != nil {
			b.cfg.Logger.Error("partition of no topic is in the way", "topic", n.Topic, "partition", n.Partition, "err", err)
			continue
		}
		b.cfg.Logger.Warn("partition of no topic set aside", "topic", n.Topic, "partition", n.Partition)
	}
	for t := range image.Topics() {
		for i := range t.Partitions {
			n := partition.Name{Topic: t.Name, TopicID: t.ID, Partition: int32(i)}
			if !found[n] && slices.Contains(t.Partitions[i].Replicas, b.cfg.NodeID) {
				b.cfg.Logger.Warn("partition has no files", "topic", n.Topic, "partition", n.Partition)
			}
		}
	}
}

// closePartitions closes all logs, in order of their names.
func (b *Broker) closePartitions() error {
	var replicas []*partition.Replica
	b.view.Load().all(func(h *hosted) {
		for _, p := range h.parts {
			if p.replica != nil {
				replicas = append(replicas, p.replica)
			}
		}
	})
	slices.SortFunc(replicas, func(a, b *partition.Replica) int {
		return cmp.Or(cmp.Compare(a.Name().Topic, b.Name().Topic), cmp.Compare(a.Name().Partition, b.Name().Partition))
	})
	var errs []error
	for _, r := range replicas {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

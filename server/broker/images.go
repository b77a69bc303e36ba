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
// no topic is set aside. A log that cannot be opened makes its partition answer with the reason; the
// others go on.
func (b *Broker) OnImage(old, image *metadata.Image) {
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	if b.closed {
		return
	}
	if old == nil {
		b.compareDisk(image)
	}
	was := b.view.Load()
	w := &watch{broker: b, editor: was.edit(image)}
	for _, c := range metadata.Diff(was.image, image) {
		w.change(c)
	}
	w.open()
	b.view.Store(&w.editor.view)
	close(was.superseded)
}

// watch is one OnImage at work.
type watch struct {
	broker *Broker
	editor *editor
	jobs   []openJob
	// source and settings are the last translation: topics without settings of their own share one.
	source   *metadata.TopicSettings
	settings *partition.Settings
}

// openJob is a partition to be opened or made; its place in parts is written by the opener alone.
type openJob struct {
	name     partition.Name
	settings *partition.Settings
	role     partition.Role
	into     *part
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
		w.changePart(now, int32(i), reconfigure)
	}
	w.editor.put(c.New.ID, now)
}

// changePart takes up what the image says of one partition.
func (w *watch) changePart(h *hosted, number int32, reconfigure bool) {
	meta, p := &h.topic.Partitions[number], &h.parts[number]
	if meta.Leader != w.broker.cfg.NodeID {
		w.resign(p)
		return
	}
	role := partition.Role{
		Leader: meta.Leader, LeaderEpoch: meta.LeaderEpoch, PartitionEpoch: meta.PartitionEpoch,
		ISR: meta.ISR, Replicas: meta.Replicas,
	}
	if p.leader == nil {
		name := partition.Name{Topic: h.topic.Name, TopicID: h.topic.ID, Partition: number}
		w.jobs = append(w.jobs, openJob{name: name, settings: h.settings, role: role, into: p})
		return
	}
	if reconfigure {
		p.replica.Reconfigure(h.settings)
	}
	p.leader = p.replica.Lead(role)
}

// resign closes a partition that another node leads now.
func (w *watch) resign(p *part) {
	if p.leader == nil {
		return
	}
	if err := p.replica.Close(); err != nil {
		w.warn("log not closed cleanly", p.leader.Name(), err)
	}
	*p = part{}
}

// remove deletes the logs of a topic.
func (w *watch) remove(t *metadata.Topic) {
	h := w.editor.hosted(t.ID)
	if h == nil {
		return
	}
	for _, p := range h.parts {
		if p.leader == nil {
			continue
		}
		if err := p.replica.Delete(); err != nil {
			w.warn("files of a deleted partition are left", p.leader.Name(), err)
		}
	}
	w.editor.put(t.ID, nil)
}

// open runs the jobs, some at a time.
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
				w.broker.openPartition(job)
			}
		})
	}
	wg.Wait()
}

func (b *Broker) openPartition(job *openJob) {
	replica, err := b.cfg.Store.Open(job.name, job.settings)
	n, failed := job.name, job.into.err
	switch {
	case err == nil && failed != nil:
		b.cfg.Logger.Info("partition can be used again", "topic", n.Topic, "partition", n.Partition)
	case err != nil && failed == nil:
		b.cfg.Logger.Error("partition cannot be used", "topic", n.Topic, "partition", n.Partition, "err", err)
	}
	*job.into = part{replica: replica, err: err}
	if err == nil {
		job.into.leader = replica.Lead(job.role)
	}
	if partition.Passes(err) {
		b.failing.Store(true)
	}
}

// reopen tries those partitions again that could not be opened or made for a reason that may have passed.
func (b *Broker) reopen() {
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	if b.closed || !b.failing.Swap(false) {
		return
	}
	was := b.view.Load()
	w := &watch{broker: b, editor: was.edit(was.image)}
	was.all(func(h *hosted) {
		if !slices.ContainsFunc(h.parts, func(p part) bool { return partition.Passes(p.err) }) {
			return
		}
		now := &hosted{topic: h.topic, settings: h.settings, parts: slices.Clone(h.parts)}
		for i := range now.parts {
			if partition.Passes(now.parts[i].err) {
				w.changePart(now, int32(i), false)
			}
		}
		w.editor.put(h.topic.ID, now)
	})
	w.open()
	b.view.Store(&w.editor.view)
	close(was.superseded)
}

func (w *watch) settingsOf(t *metadata.Topic) *partition.Settings {
	if w.source != t.Settings {
		w.source, w.settings = t.Settings, partition.NewSettings(t.Settings)
	}
	return w.settings
}

func (w *watch) warn(what string, n partition.Name, err error) {
	w.broker.cfg.Logger.Warn(what, "topic", n.Topic, "partition", n.Partition, "err", err)
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

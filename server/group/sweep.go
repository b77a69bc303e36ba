package group

import (
	"millrace/server/coordinator"
	"millrace/server/metadata"
)

// Bounds of one step of a sweep, and of one batch of tombstones, which is far below what a log takes by default.
const (
	maxTombstones     = 1000
	maxTombstoneBytes = 256 << 10
	maxVisited        = 20_000 // offsets and groups that are looked at
)

// sweep removes offsets, and groups of which nothing is left then, in steps between which the loop does other things.
// What a group commits in the meantime stays.
type sweep struct {
	shard *shard
	// doomed says whether an offset is to go.
	doomed func(g *group, topic string, partition int32, o *committed) bool
	// done is called at the end, also after an append that failed: then the rest stays until the next sweep.
	done func(removed int)

	groups  []*group // that have not been looked at
	open    []*group // that have, and may be empty when found is removed
	found   []doomedOffset
	removed int
}

// doomedOffset is an offset that is to go, as it was when it was found.
type doomedOffset struct {
	group *group
	topicPartition
	recordOffset int64
}

// begin starts with the first step.
func (w *sweep) begin() { w.step() }

func (w *sweep) step() {
	w.look()
	err := w.removeSome()
	if err == nil && len(w.found) == 0 {
		err = w.closeGroups()
	}
	if err != nil {
		w.shard.log.Warn("offsets of groups could not be removed", "err", err)
		w.done(w.removed)
		return
	}
	if len(w.found)+len(w.groups) == 0 {
		w.done(w.removed)
		return
	}
	w.shard.run.After(0, w.step)
}

// look finds more offsets, unless there are enough for a batch.
func (w *sweep) look() {
	for visited := 0; len(w.groups) > 0 && len(w.found) < maxTombstones && visited < maxVisited; {
		g := w.groups[0]
		w.groups = w.groups[1:]
		visited += 1 + g.count
		if w.shard.groups[g.id] != g {
			continue
		}
		for topic, of := range g.offsets {
			for number, o := range of {
				if w.doomed(g, topic, number, o) {
					w.found = append(w.found, doomedOffset{g, topicPartition{topic, number}, o.recordOffset})
				}
			}
		}
		w.open = append(w.open, g)
	}
}

// removeSome removes a batch of what was found.
func (w *sweep) removeSome() error {
	var (
		batch []coordinator.KV
		bytes int
		limit = w.shard.tombstoneBytes()
	)
	for len(w.found) > 0 && len(batch) < maxTombstones && bytes < limit {
		d := w.found[0]
		w.found = w.found[1:]
		o := d.group.offset(d.topic, d.partition)
		if o == nil || o.recordOffset != d.recordOffset || d.group.unstable(d.topic, d.partition) {
			continue
		}
		kv := coordinator.KV{Key: offsetKey(d.group.id, d.topic, d.partition)}
		batch, bytes = append(batch, kv), bytes+recordOverhead+len(kv.Key)
	}
	if err := w.shard.run.Append(batch...); err != nil {
		return err
	}
	w.removed += len(batch)
	return nil
}

// closeGroups ends the groups that were looked at and have neither members nor offsets.
func (w *sweep) closeGroups() error {
	var tombstones []coordinator.KV
	for _, g := range w.open {
		if w.shard.groups[g.id] == g && g.count == 0 && len(g.pending) == 0 && g.empty() {
			tombstones = append(tombstones, g.tombstones()...)
		}
	}
	w.open = nil
	return w.shard.bury(tombstones)
}

// bury appends tombstones, in batches that a log takes.
func (s *shard) bury(tombstones []coordinator.KV) error {
	limit := s.tombstoneBytes()
	for len(tombstones) > 0 {
		n, bytes := 0, 0
		for n < len(tombstones) && n < maxTombstones && bytes < limit {
			bytes += recordOverhead + len(tombstones[n].Key)
			n++
		}
		if err := s.run.Append(tombstones[:n]...); err != nil {
			return err
		}
		tombstones = tombstones[n:]
	}
	return nil
}

// tombstoneBytes is when a batch of tombstones is large enough.
func (s *shard) tombstoneBytes() int { return min(maxTombstoneBytes, maxBatchBytes(s.image())/2) }

// expireLater sets the clock to the next look for expired offsets.
func (s *shard) expireLater() { s.run.After(s.settings().OffsetsRetentionCheckInterval, s.expire) }

// expire removes the offsets that have expired, and groups without members and offsets.
func (s *shard) expire() {
	e := expiry{now: s.millis(), retention: s.settings().OffsetsRetention.Milliseconds(), image: s.image}
	w := &sweep{shard: s, doomed: e.doomed, groups: s.all(), done: func(removed int) {
		if removed > 0 {
			s.metrics.expired.Add(float64(removed))
			s.log.Info("offsets of groups expired", "offsets", removed)
		}
		s.expireLater()
	}}
	w.begin()
}

// all lists the groups, in no order.
func (s *shard) all() []*group {
	list := make([]*group, 0, len(s.groups))
	for _, g := range s.groups {
		list = append(list, g)
	}
	return list
}

// expiry is the rules by which offsets expire.
type expiry struct {
	now       int64
	retention int64                  // in milliseconds
	image     func() *metadata.Image // of now: topics are made again while a sweep is under way
}

// doomed says whether an offset has expired. One that an open transaction may change has not.
func (e *expiry) doomed(g *group, topic string, partition int32, o *committed) bool {
	if g.unstable(topic, partition) {
		return false
	}
	if stale(e.image(), topic, o) {
		return true
	}
	since, may := g.expires(topic, o)
	switch {
	case !may:
		return false
	case o.expireTimestamp >= 0:
		return e.now >= o.expireTimestamp
	}
	return e.now-since >= e.retention
}

// expires says whether an offset may expire as the group is now, and since when it is on its own.
func (g *group) expires(topic string, o *committed) (since int64, may bool) {
	switch {
	case g.consumer != nil:
		return o.commitTimestamp, !g.consumer.subscribed(topic)
	case g.classic == nil || g.classic.protocolType() == "":
		return o.commitTimestamp, true
	case g.classic.empty():
		// A commit without members, later than the group became empty, is as good as a member.
		return max(g.classic.emptySince().UnixMilli(), o.commitTimestamp), true
	case g.classic.protocolType() != typeConsumer || g.classic.state() != stateStable:
		return 0, false
	}
	topics, known := g.classic.subscribed()
	return o.commitTimestamp, known && !topics[topic]
}

// stale says whether an offset was committed for a topic that is no more, as far as that is known: one that was made
// again under its name is told from the former by what this node has noted since it leads.
func stale(image *metadata.Image, topic string, o *committed) bool {
	now := image.Topic(topic)
	return now == nil || o.topicID != [16]byte{} && o.topicID != now.ID
}

package txn

import (
	"time"

	"millrace/server/metadata"
)

// How what fails is tried again.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = time.Second
)

// ending is a transaction that is decided, and of which partitions still lack the marker. It ends with the record
// that says so, or with the leadership: then the next leader begins anew. A marker that a partition has is not
// written again.
type ending struct {
	txn   *transaction
	left  partitions // without a marker
	since time.Time
	// fenced says that a partition has refused the marker: another coordinator or a later producer is at work.
	fenced bool
}

// complete sees to the markers of a transaction that is decided, when the decision is committed.
func (s *shard) complete(t *transaction) {
	e := &ending{txn: t, left: t.partitions, since: time.Now()}
	t.ending = e
	if s.cfg.Flaws.SkipMarker && e.left.count() > 1 {
		last := e.left[len(e.left)-1]
		e.left = e.left.without(last.topic, last.numbers[len(last.numbers)-1])
	}
	s.begin(e)
}

func (s *shard) begin(e *ending) {
	s.run.Committed(func(err error) {
		switch {
		case err != nil: // it takes long, and may yet be
			s.begin(e)
		case len(e.left) == 0: // as no decision of ours has it
			s.finish(e, firstPause)
		default:
			s.send(e, e.left, firstPause)
		}
	})
}

// send has markers written to some partitions of a transaction. What has no leader at the moment is tried again
// after a pause; what is no more needs none.
func (s *shard) send(e *ending, of partitions, pause time.Duration) {
	var unplaced partitions
	byLeader := make(map[int32]partitions)
	for i := range of {
		for _, number := range of[i].numbers {
			switch leader, exists := s.leaderOf(of[i].topic, number); {
			case !exists:
				e.left = e.left.without(of[i].topic, number)
			case leader == metadata.NoLeader:
				unplaced = unplaced.with(of[i].topic, number)
			default:
				byLeader[leader] = byLeader[leader].with(of[i].topic, number)
			}
		}
	}
	if len(e.left) == 0 {
		s.finish(e, firstPause)
		return
	}
	for leader, mine := range byLeader {
		s.enqueue(leader, &errand{ending: e, partitions: mine, pause: pause})
	}
	s.sendLater(e, unplaced, pause)
}

// leaderOf looks up who leads a partition. This node knows of every partition that a transaction has: whoever added
// it knew it, and led this partition before this node learned that it does.
func (s *shard) leaderOf(topic string, number int32) (leader int32, exists bool) {
	t := s.image().Topic(topic)
	if t == nil || number < 0 || int(number) >= len(t.Partitions) {
		return metadata.NoLeader, false
	}
	return t.Partitions[number].Leader, true
}

// sendLater tries partitions again after a pause, and the next time after a longer one.
func (s *shard) sendLater(e *ending, of partitions, pause time.Duration) {
	if len(of) == 0 {
		return
	}
	s.metrics.retries.Add(float64(of.count()))
	s.run.After(s.spread(pause), func() { s.send(e, of, min(2*pause, lastPause)) })
}

// spread varies a pause, so that not all that fails together is tried again together.
func (s *shard) spread(pause time.Duration) time.Duration {
	return pause/2 + time.Duration(s.rand.Int64N(int64(pause/2)+1))
}

// marked takes note of what came of an errand: again is what is to be tried again.
func (s *shard) marked(d *errand, done, again partitions, fenced bool) {
	e := d.ending
	for i := range done {
		for _, number := range done[i].numbers {
			e.left = e.left.without(done[i].topic, number)
		}
	}
	if fenced && !e.fenced {
		e.fenced = true
		s.log.Error("the end of a transaction is refused by a partition that knows of a later coordinator or producer",
			"transactional_id", e.txn.id, "producer_id", e.txn.producerID, "producer_epoch", e.txn.epoch)
	}
	switch {
	case len(e.left) == 0:
		s.finish(e, firstPause)
	case e.fenced: // whoever is later ends it
	default:
		s.sendLater(e, again, d.pause)
	}
}

// finish writes that a transaction is done.
func (s *shard) finish(e *ending, pause time.Duration) {
	t := e.txn
	if t.ending != e {
		return
	}
	done := t.completed()
	if err := s.put(t.id, &done); err != nil {
		s.run.After(s.spread(pause), func() { s.finish(e, min(2*pause, lastPause)) })
		return
	}
	t.ending = nil
	s.metrics.completion.Observe(time.Since(e.since).Seconds())
	s.freed(t.id)
}

package task

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/client"
	"millrace/connect/plugin"
)

// rebalance makes what is open what the group says.
func (s *sink) rebalance(ctx context.Context, seen view) error {
	if seen.lost != s.lost {
		s.lost = seen.lost
		if err := s.leave(ctx, slices.Collect(maps.Keys(s.parts)), true); err != nil {
			return err
		}
	}
	var gone []client.TopicPartition
	for at, p := range s.parts {
		if seen.target[at] != p.topicID {
			gone = append(gone, at)
		}
	}
	if err := s.leave(ctx, gone, false); err != nil {
		return err
	}
	come := make(map[client.TopicPartition][16]byte)
	for at, id := range seen.target {
		if s.parts[at] == nil {
			come[at] = id
		}
	}
	if len(come) == 0 {
		s.troubles.set(openWork, nil)
		return nil
	}
	if time.Now().Before(s.openAt) || !s.member.hold(come, seen) {
		return nil
	}
	var wait time.Duration
	list, err := s.facts(ctx, come)
	if err == nil {
		err = s.open(ctx, list)
		wait = retryAfter(err, s.opens.delay())
	} else if wait = s.asks.delay(); !transient(err) && ctx.Err() == nil {
		return err
	}
	switch {
	case err == nil:
		s.opens.reset()
		s.asks.reset()
		s.troubles.set(openWork, nil)
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !transient(err) && !plugin.IsRetriable(err):
		return err
	}
	s.openAt = time.Now().Add(wait)
	s.member.release(slices.Collect(maps.Keys(come)))
	s.log.Info("partitions could not be opened; it is tried again", "err", err, "pause", wait)
	s.troubles.set(openWork, err)
	return nil
}

// leave lets go of partitions. Lost: the group has done so already.
func (s *sink) leave(ctx context.Context, gone []client.TopicPartition, lost bool) error {
	if len(gone) == 0 {
		return nil
	}
	slices.SortFunc(gone, client.TopicPartition.Compare)
	if !lost {
		var parts []*sinkPart
		for _, at := range gone {
			parts = append(parts, s.parts[at])
		}
		limited, cancel := stopping(ctx)
		err := s.commit(limited, parts, true)
		cancel()
		if err != nil {
			return err
		}
	}
	err := s.task.Close(ctx, gone, lost)
	for _, at := range gone {
		delete(s.parts, at)
		delete(s.seeks, at)
	}
	s.drop()
	s.metrics.sink.partitions.Set(float64(len(s.parts)))
	if !lost {
		s.member.release(gone)
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("close partitions of the sink: %w", err)
	}
	return nil
}

// drop takes out of the batch in hand what is of partitions that are not open any more.
func (s *sink) drop() {
	if s.batch == nil {
		return
	}
	before := len(s.batch.Records)
	s.batch.Records = slices.DeleteFunc(s.batch.Records, func(r *plugin.SinkRecord) bool {
		return s.parts[r.Origin.TopicPartition] == nil
	})
	s.metrics.sink.active.Sub(float64(before - len(s.batch.Records)))
	maps.DeleteFunc(s.batch.Next, func(at client.TopicPartition, _ int64) bool { return s.parts[at] == nil })
	if len(s.batch.Next) == 0 { // or it had none in the first place, and there will be another
		s.batch = nil
		s.tries.reset()
		s.retryAt = time.Time{}
	}
}

// open opens partitions that the group has given.
func (s *sink) open(ctx context.Context, list []plugin.OpenPartition) error {
	for i := range list {
		o := &list[i]
		p := &sinkPart{TopicPartition: o.TopicPartition, topicID: o.TopicID, committed: o.Committed, end: o.End}
		if p.begun = o.Committed; o.Committed < 0 {
			switch s.set.reset {
			case fromEarliest:
				p.begun = o.Start
			case fromLatest:
				p.begun = o.End
			}
		}
		p.fetchAt, p.position, p.taken = p.begun, p.begun, p.begun
		s.parts[o.TopicPartition] = p
	}
	err := s.task.Open(ctx, list)
	if err == nil {
		s.seek()
	}
	for i := range list {
		p := s.parts[list[i].TopicPartition]
		if err == nil && p.begun < 0 && !p.sought {
			err = fmt.Errorf("the group %s has committed nothing for %v, and consumer.override.auto.offset.reset is none",
				s.set.group, p.TopicPartition)
		}
	}
	if err != nil {
		for i := range list {
			delete(s.parts, list[i].TopicPartition)
			delete(s.seeks, list[i].TopicPartition)
		}
		return fmt.Errorf("open partitions of the sink: %w", err)
	}
	s.metrics.sink.partitions.Set(float64(len(s.parts)))
	s.fetch.stop() // the next one has the new partitions too
	return nil
}

// facts finds out what a sink is to know of new partitions.
func (s *sink) facts(ctx context.Context, come map[client.TopicPartition][16]byte) ([]plugin.OpenPartition, error) {
	of := slices.SortedFunc(maps.Keys(come), client.TopicPartition.Compare)
	level := client.ReadCommitted
	if s.set.uncommitted {
		level = client.ReadUncommitted
	}
	committed, err := s.opts.Client.Committed(ctx, s.set.group, true, of...)
	if err != nil {
		return nil, err
	}
	starts, err := s.opts.Client.StartOffsets(ctx, of)
	if err != nil {
		return nil, err
	}
	ends, err := s.opts.Client.EndOffsets(ctx, of, level)
	if err != nil {
		return nil, err
	}
	out := make([]plugin.OpenPartition, len(of))
	for i, at := range of {
		for _, err := range []error{committed[i].Err, starts[i].Err, ends[i].Err} {
			if err != nil {
				return nil, fmt.Errorf("%v: %w", at, err)
			}
		}
		out[i] = plugin.OpenPartition{
			TopicPartition: at, TopicID: come[at], Committed: committed[i].Offset, Mark: committed[i].Metadata,
			Start: starts[i].Offset, End: ends[i].Offset,
		}
	}
	return out, nil
}

// seek makes the seeks that the sink asked for.
func (s *sink) seek() {
	for at, offset := range s.seeks {
		if p := s.parts[at]; p != nil {
			p.move(offset)
			p.sought = true
			if s.batch != nil { // it comes again, but not with what is read anew
				s.batch.Records = slices.DeleteFunc(s.batch.Records, func(r *plugin.SinkRecord) bool {
					return r.Origin.TopicPartition == at
				})
				delete(s.batch.Next, at)
			}
		}
	}
	if len(s.seeks) > 0 {
		clear(s.seeks)
		s.fetch.stop()
		s.drop()
	}
}

// move makes an offset the place of a partition.
func (p *sinkPart) move(to int64) {
	p.turn++
	p.fetchAt, p.position, p.taken = to, to, to
}

// reset finds a new place for a partition whose place is outside the log.
func (s *sink) reset(ctx context.Context, p *sinkPart) error {
	found, err := s.facts(ctx, map[client.TopicPartition][16]byte{p.TopicPartition: p.topicID})
	if err != nil {
		if transient(err) || ctx.Err() != nil {
			p.later = time.Now().Add(partPause)
			return nil
		}
		return err
	}
	start, end := found[0].Start, found[0].End
	if p.position >= start && p.position <= end { // it is not, or not any more
		p.later = time.Now().Add(partPause)
		return nil
	}
	switch {
	case p.sought:
		return fmt.Errorf("the sink reads %v from offset %d, but there is only what is from %d to %d: records were deleted, "+
			"or the topic was made anew", p.TopicPartition, p.position, start, end)
	case s.set.reset == fromNowhere:
		return fmt.Errorf("the group %s is at offset %d of %v, but there is only what is from %d to %d, and "+
			"consumer.override.auto.offset.reset is none", s.set.group, p.position, p.TopicPartition, start, end)
	}
	to := start
	if s.set.reset == fromLatest {
		to = end
	}
	s.log.Warn("the place of a sink is outside the log", "topic", p.Topic, "partition", p.Partition, "offset", p.position,
		"start", start, "end", end, "to", to)
	p.move(to)
	return nil
}

// commit asks the sink what may be committed of partitions, and commits that. Closing: they are about to be closed.
func (s *sink) commit(ctx context.Context, of []*sinkPart, closing bool) error {
	if len(of) == 0 {
		return nil
	}
	m := s.metrics.sink
	current := make(map[client.TopicPartition]int64, len(of))
	for _, p := range of {
		current[p.TopicPartition] = p.taken
	}
	begun := time.Now()
	defer func() { s.metrics.commit.millis(time.Since(begun)) }()
	may, err := s.task.PreCommit(ctx, maps.Clone(current))
	if err != nil {
		s.metrics.uncommit.Inc()
		s.log.Warn("the sink did not say what may be committed", "err", err)
		if !closing && ctx.Err() == nil {
			s.rewind()
		}
		return nil
	}
	s.seek()
	offsets := make(map[client.TopicPartition]int64, len(may))
	for at, offset := range may {
		p := s.parts[at]
		if limit, ok := current[at]; ok && p != nil && offset >= 0 && offset <= limit && offset != p.committed {
			offsets[at] = offset
		}
	}
	if len(offsets) == 0 {
		m.skipped.Inc()
		return nil
	}
	s.commits++
	m.sequence.Set(float64(s.commits))
	limited, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	if err := s.member.commit(limited, offsets); err != nil {
		s.metrics.uncommit.Inc()
		if !errors.Is(err, errUnassigned) && ctx.Err() == nil {
			s.log.Warn("offsets of a sink could not be committed", "group", s.set.group, "err", err)
		}
		return nil // the next commit has them too, or whoever has the partitions now
	}
	s.metrics.commits.Inc()
	m.completed.Inc()
	for at, offset := range offsets {
		s.parts[at].committed = offset
	}
	return nil
}

// rewind goes back to what is committed, since the sink could not keep what came behind.
func (s *sink) rewind() {
	for _, p := range s.parts {
		to := p.committed
		if to < 0 {
			to = p.begun
		}
		p.move(to)
	}
	s.metrics.sink.active.Set(0)
	s.batch, s.work = nil, nil
	s.fetch.stop()
}

// isOutside says that a place is outside the log.
func isOutside(err error) bool { return errors.Is(err, kerr.OffsetOutOfRange) }

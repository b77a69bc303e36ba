package native

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/api"
	"millrace/client"
	"millrace/record"
)

// A stream is one reader of a topic's live records. It is owned by its goroutine, or by its hub while it is a member.
//
// Invariant: what was sent are exactly the records from where the stream started up to offsets. While synced, these
// are also the offsets of the hub before its frame number seq.
type stream struct {
	hub   *hub
	topic *client.Topic // as of when the stream was opened
	sink  sink
	done  func() // gives back the stream's place among all streams

	offsets []int64 // by partition, in the order of the hub's; shared with the hub, replaced but never changed
	begun   int     // partitions that the topic had when the stream was opened
	seq     uint64
	synced  bool
	fresh   bool      // not all was fetched once: where the stream starts may be outside the log
	stuck   time.Time // since when fetches bring nothing although there is more; zero if they do
	// later are partitions, by index, that could not be read, and until when they are left out where there are others.
	later map[int]time.Time

	holds bool // counted among those that hold what they fetched

	kick chan struct{} // wakes the stream's goroutine, nil while it is a member
	rest []frame       // of a member that could not take all: what it did not
	dead bool          // of a member whose connection failed
}

// preface begins every stream: how soon to come back, and from where if nothing arrives before that.
func (s *stream) preface() frame {
	b := append(newFrame(nil), "retry: 2000\nid: "...)
	p := position{partition: s.hub.key.partition, offsets: s.offsets, tag: topicTag(s.hub.key.id)}
	b = p.append(b)
	return sealFrame(append(b, '\n', '\n'))
}

// pace says what a stream does after a step.
type pace uint8

const (
	goOn    pace = iota // there may be more at once
	waitHub             // the hub will tell
	waitBit             // the cluster could not answer: try again soon
)

// run sends the frames, and then what comes, until the stream ends or becomes a member of its hub, which then ends it.
func (s *stream) run(ctx context.Context, frames []frame) {
	keepAlive, again := time.NewTimer(keepAliveEvery), time.NewTimer(firstRetry)
	defer keepAlive.Stop()
	defer again.Stop()
	for {
		for _, f := range frames {
			if s.sink.send(f) != nil {
				s.end()
				return
			}
			keepAlive.Reset(keepAliveEvery)
		}
		s.endRound()
		var next pace
		var err error
		if frames, next, err = s.step(); err != nil {
			s.farewell(err)
			return
		}
		if len(frames) > 0 || next == goOn {
			continue
		}
		if s.synced && s.sink.raw() != nil && s.hub.admit(s) {
			return
		}
		again.Stop()
		if next == waitBit {
			again.Reset(firstRetry)
		}
		select {
		case <-s.kick:
		case <-again.C:
		case <-keepAlive.C:
			frames = []frame{s.hub.comment}
		case <-s.hub.ended:
			s.farewell(s.hub.err)
			return
		case <-ctx.Done():
			s.farewell(errStopped)
			return
		}
	}
}

// farewell tells the reader why the stream ends, and ends it.
func (s *stream) farewell(err error) {
	_ = s.sink.send(farewell(err))
	s.end()
}

// end gives back all that the stream holds.
func (s *stream) end() {
	if s.sink != nil {
		s.sink.close()
	}
	s.endRound()
	s.done()
	s.hub.leave(s)
	s.hub.tails.release(s.hub)
}

// step returns the next frames to send, and what to do when there are none. A stream waits for its hub when it is at
// the tail, and when it is ahead of it.
func (s *stream) step() ([]frame, pace, error) {
	if s.synced {
		frames, seq, offsets, ok := s.hub.since(s.seq)
		if ok {
			if len(frames) > 0 {
				s.seq, s.offsets = seq, offsets
			}
			return frames, waitHub, nil
		}
		s.synced = false // the ring has gone on without it
	}
	seq, tail := s.hub.tail()
	behind, ahead := s.compare(tail)
	switch {
	case !behind && !ahead:
		s.seq, s.offsets, s.synced, s.fresh = seq, tail, true, false
		return nil, waitHub, nil
	case !behind && !s.fresh:
		return nil, waitHub, nil
	}
	return s.catchUp(tail)
}

// compare says whether the stream is behind the tail in some partition, and ahead of it in some.
func (s *stream) compare(tail []int64) (behind, ahead bool) {
	for i := range max(len(tail), len(s.offsets)) {
		mine, its := offsetAt(s.offsets, i), offsetAt(tail, i)
		behind = behind || mine < its
		ahead = ahead || mine > its
	}
	return behind, ahead
}

// offsetAt is the offset of partition i; one that is not listed is at its start.
func offsetAt(offsets []int64, i int) int64 {
	if i < len(offsets) {
		return offsets[i]
	}
	return 0
}

// beginRound waits until few enough streams hold what they fetched, and is true unless the hub ends before that.
func (s *stream) beginRound() bool {
	select {
	case s.hub.tails.rounds <- struct{}{}:
		s.holds = true
		return true
	case <-s.hub.ctx.Done():
		return false
	}
}

// endRound is called when what was fetched is sent.
func (s *stream) endRound() {
	if s.holds {
		<-s.hub.tails.rounds
		s.holds = false
	}
}

// catchUp fetches and encodes once, up to but not beyond the tail.
func (s *stream) catchUp(tail []int64) ([]frame, pace, error) {
	h := s.hub
	k := h.tails.consumer
	if !s.beginRound() {
		return nil, waitHub, nil
	}
	arena := k.edge.Arena()
	defer arena.Free()
	ctx, cancel := context.WithTimeout(h.ctx, catchUpLimit)
	defer cancel()
	results, err := k.client.Fetch(record.WithArena(ctx, arena), s.request(tail))
	switch {
	case h.ctx.Err() != nil:
		return nil, waitHub, nil // which tells why it ends
	case err != nil:
		next, err := s.judge(false, err)
		return nil, next, err
	}
	scratch := k.takeScratch()
	defer k.keepScratch(scratch)
	e := newEventWriter(h, s.topic, s.offsets, len(tail))
	e.json.decoder = scratch.decoder.begin(h.ctx, s.topic.Name)
	var fault error
	for i := range results {
		f := &results[i]
		at := h.index(f.Partition)
		from, bound := e.offsets[at], offsetAt(tail, at)
		delete(s.later, at)
		switch {
		case errors.Is(f.Err, kerr.OffsetOutOfRange):
			if at >= s.begun && from == 0 && e.begin(ctx, at, f) {
				continue // it came after the stream, which reads it from where its log starts
			}
			return nil, goOn, s.lost(place{partition: f.Partition, next: from}, f)
		case isDamage(f.Err):
			fault = e.unreadable(at, f.Partition, f.Err)
		case f.Err != nil:
			fault = f.Err
			s.postpone(at)
		case from < bound:
			if err := e.write(&scratch.scanner, at, f, bound); err != nil {
				fault = e.unreadable(at, f.Partition, err)
			}
		}
	}
	moved := !slices.Equal(s.offsets, e.offsets) // a fault is told once nothing can be read beside it
	s.offsets, s.fresh = e.offsets, s.fresh && fault != nil
	next, err := s.judge(moved, fault)
	return e.finish(), next, err
}

// request asks for the partitions in which the stream is behind the tail. Until all could be read it asks for those in
// which it is ahead too, so that a start outside the log is noticed.
func (s *stream) request(tail []int64) client.FetchRequest {
	r := client.FetchRequest{
		Topic: s.topic, MaxBytes: catchUpBytes, ReadCommitted: s.hub.key.isolation == client.ReadCommitted,
		Rack: s.hub.key.rack,
	}
	now, ready := time.Now(), 0
	for i := range max(len(tail), len(s.offsets)) {
		mine, its := offsetAt(s.offsets, i), offsetAt(tail, i)
		if mine < its || s.fresh && mine > its {
			r.Partitions = append(r.Partitions, client.FetchPartition{Partition: s.hub.partition(i), Offset: mine})
			if !s.later[i].After(now) {
				ready++
			}
		}
	}
	if ready > 0 && ready < len(r.Partitions) {
		r.Partitions = slices.DeleteFunc(r.Partitions, func(p client.FetchPartition) bool {
			return s.later[s.hub.index(p.Partition)].After(now)
		})
	}
	rotate(r.Partitions, s.offsets)
	return r
}

// postpone leaves the partition at index i, which could not be read, out for a while.
func (s *stream) postpone(i int) {
	if s.later == nil {
		s.later = map[int]time.Time{}
	}
	s.later[i] = time.Now().Add(lastRetry)
}

// lost is the error for a place outside the log: of a fresh stream that is a mistake of whoever asked for the place,
// else a loss.
func (s *stream) lost(at place, f *client.FetchResult) error {
	if s.fresh {
		return fetchedOutOfRange(s.hub.ctx, s.hub.tails.consumer.client, s.topic, at, f)
	}
	return s.hub.lost(s.topic, at, f)
}

// judge says how to go on after a fetch: a stream that is behind and does not move has patience for a while with a
// fault that may pass.
func (s *stream) judge(moved bool, fault error) (pace, error) {
	if moved {
		s.stuck = time.Time{}
		return goOn, nil
	}
	now := time.Now()
	if s.stuck.IsZero() {
		s.stuck = now
	}
	if fault != nil && (!api.FromError(fault).Fault.Retryable || now.Sub(s.stuck) > failingLimit) {
		return goOn, fault
	}
	return waitBit, nil
}

// rotate puts another partition first as a reader moves on, since the first with data may take all the room.
func rotate(p []client.FetchPartition, offsets []int64) {
	if len(p) < 2 {
		return
	}
	sum := uint64(0)
	for _, o := range offsets {
		sum += uint64(o)
	}
	k := int(sum % uint64(len(p)))
	turned := append(append(make([]client.FetchPartition, 0, len(p)), p[k:]...), p[:k]...)
	copy(p, turned)
}

// farewell is the last event of a stream: end when the server stops, error when the stream cannot go on.
func farewell(err error) frame {
	b := newFrame(nil)
	if errors.Is(err, errStopped) {
		b = append(b, "event: end\ndata: {\"reason\":\"drain\"}\n\n"...)
		return sealFrame(b)
	}
	b = append(b, "event: error\ndata: "...)
	b = api.AppendProblem(b, api.ForRead(err))
	return sealFrame(append(b, '\n', '\n'))
}

package native

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"millrace/api"
	"millrace/client"
	members "millrace/consumer"
)

// Times of live streams of members.
const (
	commitAge    = 500 * time.Millisecond // what was written for so long is committed, twice that later at most
	leaveTimeout = 5 * time.Second
)

// workStream is a live stream whose connection is a member of a group. It belongs to the goroutine of its request.
type workStream struct {
	*workers
	member *members.Member
	query  *workQuery
	sink   *responseSink
	encode workEncoder
	shown  []client.TopicPartition // the assignment that the client was told
	told   bool
	sent   time.Time // the last frame
	buf    []byte

	// With automatic commits: where the records end that were written since turned, and before that.
	recent, aged map[client.TopicPartition]int64
	turned       time.Time
	failing      time.Time // since when commits fail; zero while they do not
}

// stream answers a read by a member with a live stream. An error means that nothing was written yet.
func (g *workers) stream(w http.ResponseWriter, r *http.Request, q *workQuery) error {
	if len(q.config.Topics) == 0 && q.config.Pattern == "" {
		return badQuery("give topics=a,b or a pattern to read")
	}
	if !g.enter() {
		return errStopped
	}
	defer g.wg.Done()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(g.ctx, cancel)()
	s := &workStream{
		workers: g, query: q, encode: workEncoder{json: jsonEncoder{key: q.key, value: q.value, lines: true}},
		recent: map[client.TopicPartition]int64{}, aged: map[client.TopicPartition]int64{},
	}
	c := q.config
	c.Here, c.AutoCommit = true, false // the stream commits by itself what it has written
	var err error
	if s.member, err = g.members.Join(ctx, c); err != nil {
		return workFault(err, c.Group, c.ID)
	}
	defer s.leave()
	first, err := s.member.Poll(ctx, members.PollRequest{MaxBytes: roundBytes, More: true})
	if err != nil {
		return workFault(err, c.Group, s.member.ID())
	}
	h := w.Header()
	setStreamHead(h)
	h["Member"] = []string{headerValue(s.member.ID())}
	w.WriteHeader(http.StatusOK)
	s.sink = &responseSink{w, http.NewResponseController(w)}
	s.run(ctx, first)
	return nil
}

// leave takes the member out of its group, whatever has become of the request.
func (s *workStream) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	_ = s.member.Abandon(ctx) // its session ends it otherwise
}

// run sends what comes until the stream ends.
func (s *workStream) run(ctx context.Context, p *members.Polled) {
	err := s.sink.send(sealFrame(append(newFrame(nil), "retry: 2000\n\n"...)))
	s.sent = time.Now()
	for err == nil {
		if err = s.send(p); err != nil {
			return // the connection is gone
		}
		if err = s.commitWritten(ctx); err == nil {
			p, err = s.member.Poll(ctx, members.PollRequest{MaxBytes: roundBytes, Wait: s.wait(), More: true})
		}
	}
	switch {
	case s.ctx.Err() != nil:
		_ = s.sink.send(farewell(errStopped))
	case ctx.Err() != nil: // the client has gone
	case errors.Is(err, members.ErrMoved):
		_ = s.sink.send(sealFrame(append(newFrame(nil), "event: end\ndata: {\"reason\":\"moved\"}\n\n"...)))
	default:
		_ = s.sink.send(farewell(workFault(err, s.query.config.Group, s.member.ID())))
	}
}

// wait is how long the next poll may take.
func (s *workStream) wait() time.Duration {
	wait := keepAliveEvery - time.Since(s.sent)
	if len(s.recent)+len(s.aged) > 0 {
		wait = min(wait, commitAge-time.Since(s.turned))
	}
	return min(max(wait, time.Millisecond), time.Second) // a new assignment without records is told too
}

// send writes the records of a poll, after the assignment where that is new, or a comment when it is time for one.
func (s *workStream) send(p *members.Polled) error {
	b := newFrame(s.buf)
	if at := s.member.Assigned(); !s.told || !slices.Equal(at, s.shown) {
		var err error
		if b, err = s.appendAssignment(b, at); err != nil {
			return err
		}
	}
	scratch := s.takeScratch()
	defer s.keepScratch(scratch)
	s.encode.json.decoder = scratch.decoder.begin(s.ctx, "")
	for i := range p.Records {
		r := &p.Records[i]
		b = append(b, "id: "...)
		b = append(b, r.Topic...)
		b = append(b, ':')
		b = strconv.AppendInt(b, int64(r.Partition), 10)
		b = append(b, ':')
		b = strconv.AppendInt(b, r.Offset+1, 10)
		b = append(b, "\ndata: "...)
		b = s.encode.append(b, r)
		b = append(b, '\n', '\n')
		if s.query.config.AutoCommit {
			s.recent[client.TopicPartition{Topic: r.Topic, Partition: r.Partition}] = r.Offset + 1
		}
	}
	p.Free()
	if len(b) == frameHead {
		if time.Since(s.sent) < keepAliveEvery {
			s.buf = b
			return nil
		}
		b = append(b, ": keep-alive\n\n"...)
	}
	f := sealFrame(b)
	if s.buf = []byte(f); cap(s.buf) > 2*roundBytes {
		s.buf = nil
	}
	s.sent = time.Now()
	return s.sink.send(f)
}

// appendAssignment writes the event that tells the member and what it has.
func (s *workStream) appendAssignment(b []byte, at []client.TopicPartition) ([]byte, error) {
	s.shown, s.told = at, true
	text, err := json.Marshal(struct {
		Group      string          `json:"group"`
		Member     string          `json:"member"`
		Assignment []assignedTopic `json:"assignment"`
	}{s.member.Group(), s.member.ID(), assignedTopics(at)})
	if err != nil {
		return b, err
	}
	b = append(b, "event: assignment\ndata: "...)
	b = append(b, text...)
	return append(b, '\n', '\n'), nil
}

// commitWritten commits what was written a while ago. It goes on while commits fail for a time: they are tried again.
func (s *workStream) commitWritten(ctx context.Context) error {
	if len(s.recent)+len(s.aged) == 0 || time.Since(s.turned) < commitAge {
		return nil
	}
	s.turned = time.Now()
	if len(s.aged) > 0 {
		offsets := make([]members.Offset, 0, len(s.aged))
		for tp, at := range s.aged {
			offsets = append(offsets, members.Offset{TopicPartition: tp, Offset: at})
		}
		switch _, err := s.member.Commit(ctx, offsets); { // a partition that is another's now, it reads again
		case err == nil:
			s.failing = time.Time{}
		case !api.FromError(err).Fault.Retryable:
			return err
		case s.failing.IsZero():
			s.failing = time.Now()
		case time.Since(s.failing) > failingLimit:
			return err
		}
		if !s.failing.IsZero() {
			maps.Copy(s.aged, s.recent)
			clear(s.recent)
			return nil
		}
	}
	s.aged, s.recent = s.recent, s.aged
	clear(s.recent)
	return nil
}

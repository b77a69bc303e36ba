package native

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-chi/chi/v5"
	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/api"
	"millrace/client"
	members "millrace/consumer"
)

// workers serves the members of groups: long polls, live streams, commits, leaving. A request is served on the node
// of the group's coordinator, wherever it comes to. close ends the streams.
type workers struct {
	*consumer
	members *members.Members
	keys    *idempotency
	ctx     context.Context // the lifetime of streams
	cancel  context.CancelFunc
	wg      sync.WaitGroup // of streams

	mu     sync.Mutex
	closed bool // guarded by mu
}

// newWorkers makes workers. It does no I/O.
func newWorkers(k *consumer, m *members.Members, keys *idempotency) *workers {
	g := &workers{consumer: k, members: m, keys: keys}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g
}

// routes adds the operations to a router.
func (g *workers) routes(r chi.Router) {
	r.Get("/v1/groups/{group}/records", g.serve(g.readRecords))
	r.Post("/v1/groups/{group}/offsets", g.serve(g.commitOnce))
	r.Delete("/v1/groups/{group}/members/{member}", g.serve(g.leave))
}

// close ends all streams, each with an event that says so, and waits for them.
func (g *workers) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.cancel()
	g.wg.Wait()
}

// enter counts a stream that close waits for; it calls g.wg.Done at its end. After close it may not begin.
func (g *workers) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.wg.Add(1)
	return true
}

// serve makes a handler that answers on the node of the group's coordinator. An error means that nothing was
// written yet.
func (g *workers) serve(answer func(http.ResponseWriter, *http.Request, string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		group := api.PathParam(r, "group")
		switch {
		case g.members == nil:
			g.edge.Fail(w, r, api.Refuse(api.Overloaded, "this server runs no members of groups"))
			return
		case api.IsHead(r):
		case g.edge.ForwardGroup(w, r, group):
			return
		}
		if err := answer(w, r, group); err != nil {
			g.edge.Fail(w, r, err)
		}
	}
}

// readRecords answers a read by a member of a group: a page, or a live stream.
func (g *workers) readRecords(w http.ResponseWriter, r *http.Request, group string) error {
	form := api.Negotiate(r.Header, typeJSON, typeLines, typeEvents)
	if form == "" {
		return api.Refuse(api.NotAcceptable, "records come as %s, %s or %s", typeJSON, typeLines, typeEvents)
	}
	q, err := parseWorkQuery(r.URL.RawQuery, form == typeEvents)
	if err != nil {
		return err
	}
	q.config.Group, q.config.ClientHost = group, hostOf(r.RemoteAddr)
	q.config.ClientID = r.UserAgent()
	if api.IsHead(r) {
		w.Header().Set("Content-Type", form)
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusOK)
		return nil
	}
	done, err := g.edge.OpenStream()
	if err != nil {
		return err
	}
	defer done()
	if form == typeEvents {
		return g.stream(w, r, q)
	}
	return g.page(w, r, q, form)
}

// hostOf is the host of an address.
func hostOf(address string) string {
	if i := strings.LastIndexByte(address, ':'); i >= 0 {
		return address[:i]
	}
	return address
}

// member is the member of a read: one that is there, or one that joins.
func (g *workers) member(ctx context.Context, q *workQuery) (*members.Member, error) {
	if q.config.ID != "" {
		m, err := g.members.Find(ctx, q.config.Group, q.config.ID)
		if err == nil {
			return m, g.adapt(ctx, m, q)
		}
		if !errors.Is(err, members.ErrUnknownMember) {
			return nil, err
		}
	}
	switch {
	case q.config.ID == "" && len(q.config.Topics) == 0 && q.config.Pattern == "":
		return nil, badQuery("give topics=a,b or a pattern to read")
	case q.saysSeen && q.seen != 0: // it was a member
		return nil, members.ErrFenced
	case len(q.config.Topics) == 0 && q.config.Pattern == "":
		return nil, &unknownWorker{group: q.config.Group, id: q.config.ID, join: true}
	}
	return g.members.Join(ctx, q.config)
}

// adapt holds a member to what a read says of it: the subscription follows the read, all else must be as it is.
func (g *workers) adapt(ctx context.Context, m *members.Member, q *workQuery) error {
	has := m.Config()
	for _, p := range []struct {
		name  string
		given bool
		same  bool
	}{
		{"auto_offset_reset", q.given["auto_offset_reset"], has.Reset == q.config.Reset},
		{"commit", q.given["commit"], has.AutoCommit == q.config.AutoCommit},
		{"isolation", q.given["isolation"], has.Isolation == q.config.Isolation},
		{"session", q.given["session"], has.Lease == q.config.Lease},
		{"rack", q.given["rack"], has.Rack == q.config.Rack},
	} {
		if p.given && !p.same {
			return api.Refuse(api.MemberConflict, "member %q of group %q joined with another %s, which stays as it is",
				m.ID(), m.Group(), p.name)
		}
	}
	topics := slices.Compact(slices.Sorted(slices.Values(q.config.Topics)))
	switch {
	case len(topics) == 0 && q.config.Pattern == "":
		return nil
	case slices.Equal(topics, has.Topics) && q.config.Pattern == has.Pattern:
		return nil
	}
	return m.Subscribe(ctx, topics, q.config.Pattern)
}

// unknownWorker says that there is no such member, and what to do.
type unknownWorker struct {
	group, id string
	join      bool // by a read without topics
}

func (e *unknownWorker) Error() string { return members.ErrUnknownMember.Error() }

func (e *unknownWorker) Unwrap() error { return members.ErrUnknownMember }

// workFault tells an error of a member as a refusal.
func workFault(err error, group, id string) error {
	var place *members.NoOffsetError
	var unknown *unknownWorker
	switch {
	case errors.As(err, &unknown) && unknown.join:
		return api.Refuse(api.KafkaFault(kerr.UnknownMemberID), "group %q has no member %q, or has it no more: name "+
			"the topics too, to join as this member", unknown.group, unknown.id)
	case errors.Is(err, members.ErrFenced):
		return errOutlaw(group, id)
	case errors.Is(err, members.ErrUnknownMember):
		return errNoWorker(group, id, "Read with the topics and without ack, to join anew.")
	case errors.Is(err, members.ErrTaken):
		return api.Refuse(api.MemberConflict, "the member id %q is in use in group %q", id, group)
	case errors.Is(err, members.ErrNotAssigned):
		fault := *api.MemberConflict
		fault.Advice = "Drop what was made of its records: the group has given the partition to another member, which gets " +
			"them again, or it never was this one's. The next read tells what the member has."
		return api.Refuse(&fault, "member %q of group %q does not have the partition", id, group)
	case errors.Is(err, members.ErrSubscribedOtherwise), errors.Is(err, members.ErrNotSubscribed):
		return api.Refuse(api.MemberConflict, "member %q of group %q: %v", id, group, err)
	case errors.Is(err, members.ErrMoved):
		return api.Refuse(api.KafkaFault(kerr.NotCoordinator), "member %q of group %q is moving to another node", id, group)
	case errors.Is(err, members.ErrTooMany):
		return api.Refuse(api.Overloaded, "%v", err)
	case errors.Is(err, members.ErrBadSeen):
		return badQuery("parameter ack: there was no such delivery; give the number of the last one that arrived")
	case errors.As(err, &place):
		return errNoPlace(place, group)
	}
	return err
}

// errOutlaw says that the group went on without a member, which had no name where it was given none.
func errOutlaw(group, id string) *api.Error {
	member := "this member"
	if id != "" {
		member = "member " + strconv.Quote(id)
	}
	fault := *api.KafkaFault(kerr.FencedMemberEpoch)
	fault.Advice = "Drop what is not committed, since others get it again; a read with the topics and without ack " +
		"joins again."
	return api.Refuse(&fault, "group %q went on without %s, and others read its partitions", group, member)
}

// errNoPlace says that a member has no place to read from, what there is to read, and how to give it a place.
func errNoPlace(place *members.NoOffsetError, group string) error {
	fault := *api.KafkaFault(kerr.OffsetOutOfRange)
	fault.Advice = "Commit where to begin, with POST /v1/groups/" + url.PathEscape(group) + "/offsets as this member, " +
		"or without one while the group has none; or read with auto_offset_reset=earliest or latest, as another member."
	e := api.Refuse(&fault, "group %q has committed nothing for %v, and auto_offset_reset is none", group,
		place.TopicPartition)
	if place.Offset >= 0 {
		e.Detail = fmt.Sprintf("offset %d is outside the log of %v, and auto_offset_reset is none", place.Offset,
			place.TopicPartition)
		e.With("offset", place.Offset)
	}
	if place.Known {
		e.Detail += fmt.Sprintf("; there are offsets %d to %d to read from", place.Start, place.End)
		e.With("log_start_offset", place.Start).With("high_watermark", place.End)
	}
	return e.With("topic", place.Topic).With("partition", place.Partition)
}

// leave takes a member out of its group.
func (g *workers) leave(w http.ResponseWriter, r *http.Request, group string) error {
	id := api.PathParam(r, "member")
	ack, err := ackOf(r)
	if err != nil {
		return err
	}
	m, err := g.members.Find(r.Context(), group, id)
	if err == nil {
		err = m.Leave(r.Context(), ack)
	}
	switch {
	case errors.Is(err, members.ErrUnknownMember):
		return errNoWorker(group, id, "Nothing needs doing: it is no member.")
	case err != nil && !errors.Is(err, members.ErrFenced):
		return workFault(err, group, id)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// ackOf reads the only parameter of requests that say what has arrived.
func ackOf(r *http.Request) (members.Ack, error) {
	query, err := onlyParameters(r, "ack")
	if err != nil || !query.Has("ack") {
		return nil, err
	}
	n, err := parseAck(query.Get("ack"))
	return &n, err
}

// errNoWorker says that there is no such member, and what to do then.
func errNoWorker(group, id, advice string) *api.Error {
	fault := *api.KafkaFault(kerr.UnknownMemberID)
	fault.Advice = advice
	return api.Refuse(&fault, "group %q has no member %q: it left, its session ended, or it never joined; what it did "+
		"not commit others get again", group, id)
}

// assignedTopic is a topic of an assignment.
type assignedTopic struct {
	Topic      string  `json:"topic"`
	Partitions []int32 `json:"partitions"`
}

func assignedTopics(of []client.TopicPartition) []assignedTopic {
	out := []assignedTopic{}
	for _, p := range of { // in order
		if n := len(out); n == 0 || out[n-1].Topic != p.Topic {
			out = append(out, assignedTopic{Topic: p.Topic})
		}
		t := &out[len(out)-1]
		t.Partitions = append(t.Partitions, p.Partition)
	}
	return out
}

// nextRead is the address of the read after one that ended with a delivery.
func nextRead(r *http.Request, member string, delivery int64) string {
	b := append([]byte(r.URL.EscapedPath()), "?member="...)
	b = append(b, escapeQuery(member)...)
	b = append(b, "&ack="...)
	b = strconv.AppendInt(b, delivery, 10)
	for pair := range strings.SplitSeq(r.URL.RawQuery, "&") {
		switch name, _, _ := strings.Cut(pair, "="); name {
		case "", "member", "ack":
		default:
			b = append(b, '&')
			b = append(b, pair...)
		}
	}
	return string(b)
}

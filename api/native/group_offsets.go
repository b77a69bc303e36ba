package native

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/api"
	"millrace/client"
	members "millrace/consumer"
)

// maxCommitOffsets bounds the offsets of one commit.
const maxCommitOffsets = 10_000

// groupCommit is the body of a commit.
type groupCommit struct {
	Member  *string             `json:"member"`
	Epoch   *int32              `json:"epoch"`
	Offsets []groupCommitOffset `json:"offsets"`
}

type groupCommitOffset struct {
	Topic     *string `json:"topic"`
	Partition *int32  `json:"partition"`
	Offset    *int64  `json:"offset"`
	Metadata  *string `json:"metadata"`
	From      *int64  `json:"from"`
}

// committedOffset is what became of one offset.
type committedOffset struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Committed *bool  `json:"committed,omitempty"` // only where some were not
	Detail    string `json:"detail,omitempty"`
}

// commitOnce is commit for requests that may have a key. It is looked at where the commit is done, so that it is
// not in its own way. Done again, a commit sets what it has set before; one from a committed offset finds that it
// has moved.
func (g *workers) commitOnce(w http.ResponseWriter, r *http.Request, group string) error {
	g.keys.wrap(again, func(w http.ResponseWriter, r *http.Request) {
		if err := g.commit(w, r, group); err != nil {
			g.edge.Fail(w, r, err)
		}
	})(w, r)
	return nil
}

// commit commits offsets: of a member, or, without one, of a group that has none.
func (g *workers) commit(w http.ResponseWriter, r *http.Request, group string) error {
	var failed error
	g.edge.JSONBodies(func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err })(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { failed = g.commitBody(w, r, group) }),
	).ServeHTTP(w, r)
	return failed
}

func (g *workers) commitBody(w http.ResponseWriter, r *http.Request, group string) error {
	ack, err := ackOf(r)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(r.Body) // which is in memory
	if err != nil {
		return err
	}
	var body groupCommit
	if err := api.Decode(data, &body); err != nil {
		return err
	}
	offsets, err := body.check()
	switch {
	case err != nil:
		return err
	case ack != nil && offsets != nil:
		return badQuery("parameter ack goes with a commit of all that was delivered, which names no offsets")
	}
	id := ""
	if body.Member != nil {
		id = *body.Member
	}
	var errs []error
	switch {
	case offsets == nil:
		offsets, errs, err = g.commitDelivered(r.Context(), group, id, ack)
	case id != "" && body.Epoch == nil:
		errs, err = g.commitAs(r.Context(), group, id, offsets)
	default:
		errs, err = g.commitFor(r.Context(), group, &body, offsets)
	}
	if err != nil {
		return workFault(err, group, id)
	}
	return answerCommit(w, group, id, offsets, errs)
}

// check makes offsets of the body; nil where it has none.
func (b *groupCommit) check() ([]members.Offset, error) {
	switch {
	case b.Member != nil && (*b.Member == "" || len(*b.Member) > members.MaxID):
		return nil, api.Refuse(api.MalformedBody, "member has 1 to %d bytes", members.MaxID)
	case b.Offsets == nil && (b.Member == nil || b.Epoch != nil):
		return nil, api.Required("offsets")
	case b.Epoch != nil && *b.Epoch >= 0 && b.Member == nil:
		return nil, api.Refuse(api.MalformedBody, "an epoch is of a member: give member too")
	case len(b.Offsets) > maxCommitOffsets:
		return nil, api.Refuse(api.MalformedBody, "at most %d offsets can be committed at once", maxCommitOffsets)
	case b.Offsets == nil:
		return nil, nil
	}
	out := make([]members.Offset, len(b.Offsets))
	seen := make(map[client.TopicPartition]bool, len(out))
	for i := range b.Offsets {
		o := &b.Offsets[i]
		switch {
		case o.Topic == nil:
			return nil, api.Required("offsets.topic")
		case o.Partition == nil:
			return nil, api.Required("offsets.partition")
		case o.Offset == nil:
			return nil, api.Required("offsets.offset")
		case *o.Partition < 0 || *o.Offset < 0:
			return nil, api.Refuse(api.MalformedBody, "partition and offset are 0 or more")
		case o.From != nil && *o.From < -1:
			return nil, errBadFrom
		}
		if err := client.CheckTopicName(*o.Topic); err != nil {
			return nil, err
		}
		tp := client.TopicPartition{Topic: *o.Topic, Partition: *o.Partition}
		if seen[tp] {
			return nil, api.Refuse(api.MalformedBody, "%v is there twice", tp)
		}
		seen[tp] = true
		out[i] = members.Offset{TopicPartition: tp, Offset: *o.Offset, From: o.From}
		if o.Metadata != nil {
			out[i].Metadata = *o.Metadata
		}
	}
	return out, nil
}

// errBadFrom refuses a place that no group has.
var errBadFrom = api.Refuse(api.MalformedBody,
	"from is the offset that is committed at the moment, 0 or more, or -1 where nothing is")

// commitDelivered commits what was delivered to a member that this cluster runs.
func (g *workers) commitDelivered(ctx context.Context, group, id string, ack members.Ack) (
	[]members.Offset, []error, error,
) {
	m, err := g.members.Find(ctx, group, id)
	if err != nil {
		return nil, nil, err
	}
	return m.CommitDelivered(ctx, ack)
}

// commitAs commits as a member that this cluster runs.
func (g *workers) commitAs(ctx context.Context, group, id string, offsets []members.Offset) ([]error, error) {
	m, err := g.members.Find(ctx, group, id)
	if err != nil {
		return nil, err
	}
	return m.Commit(ctx, offsets)
}

// commitFor commits as who names an epoch, or for a group without members.
func (g *workers) commitFor(ctx context.Context, group string, b *groupCommit, offsets []members.Offset) (
	[]error, error,
) {
	c := client.GroupCommit{Group: group, Epoch: -1}
	if b.Member != nil {
		c.Member, c.Held = *b.Member, true
	}
	if b.Epoch != nil {
		c.Epoch = *b.Epoch
	}
	for _, o := range offsets {
		c.Offsets = append(c.Offsets, client.CommittedOffset{
			TopicPartition: o.TopicPartition, Offset: o.Offset, LeaderEpoch: -1, Metadata: o.Metadata, From: o.From,
		})
	}
	return g.client.CommitOffsets(ctx, c)
}

// answerCommit answers with what was committed. Where some was not, the answer is a problem that tells of each.
func answerCommit(w http.ResponseWriter, group, id string, offsets []members.Offset, errs []error) error {
	out := make([]committedOffset, len(offsets))
	failed := 0
	var first error
	for i, o := range offsets {
		out[i] = committedOffset{Topic: o.Topic, Partition: o.Partition, Offset: o.Offset}
		if i < len(errs) && errs[i] != nil {
			failed++
			if first == nil {
				first = errs[i]
			}
		}
	}
	if first == nil {
		return writeCommitted(w, out)
	}
	e := *api.FromError(workFault(first, group, id))
	for i := range out {
		ok := errs[i] == nil
		if out[i].Committed = &ok; !ok {
			out[i].Detail = api.FromError(workFault(errs[i], group, id)).Detail
		}
	}
	if e.Fault == api.KafkaFault(kerr.UnknownMemberID) && id == "" {
		e.Detail = "group " + group + " has members: only they commit, each as itself"
	}
	told := e.With("commits", out)
	if failed < len(out) {
		told = told.Overrule(api.Partial)
	}
	return told
}

func writeCommitted(w http.ResponseWriter, out []committedOffset) error {
	b, err := json.Marshal(struct {
		Offsets []committedOffset `json:"offsets"`
	}{out})
	if err != nil {
		return err
	}
	h := w.Header()
	h["Content-Type"] = []string{typeJSON}
	h["Cache-Control"] = []string{"no-store"}
	h["Content-Length"] = []string{strconv.Itoa(len(b) + 1)}
	_, _ = w.Write(append(b, '\n')) // a client that has gone needs no answer
	return nil
}

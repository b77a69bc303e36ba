package restv3

import (
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/api"
	"millrace/client"
	"millrace/record"
)

// store stores the entries that are records, all together: one batch a partition. Afterwards each entry
// has either its place or a fault. first is the number in the request of the first; bytes is about how long the
// records are.
func (a *API) store(ctx context.Context, topicName string, entries []entry, first int, arena *record.Arena, bytes int) {
	topic, err := a.client.Topic(ctx, topicName, client.Create)
	if err != nil {
		failAll(entries, notFound(err))
		return
	}
	s := a.client.NewSender(topic, arena, bytes, client.SendOptions{Acks: client.AcksAll, Timeout: a.opts.AckTimeout})
	defer s.Release()
	now, enc := a.edge.Now().UnixMilli(), encoder{api: a, ctx: ctx, topic: topicName}
	for i := range entries {
		e := &entries[i]
		if e.fault != nil {
			continue
		}
		r := e.record(now, &enc)
		if e.fault != nil {
			continue
		}
		if err := s.Add(r, e.partition); err != nil {
			e.fault = notFound(err)
			continue
		}
		e.sent = s.Len() - 1
	}
	if s.Len() == 0 {
		return
	}
	if err := s.Send(ctx); err != nil {
		failAll(entries, api.FromError(err))
		return
	}
	for i := range entries {
		e := &entries[i]
		if e.sent < 0 {
			continue
		}
		if e.at = s.Record(e.sent); e.at.Err != nil {
			e.fault = api.ErrorOfRecord(e.at.Err, func(sent int32) int {
				return first + slices.IndexFunc(entries, func(other entry) bool { return other.sent == int(sent) })
			})
		}
	}
}

// failAll gives the fault to all entries that have none.
func failAll(entries []entry, err *api.Error) {
	for i := range entries {
		if entries[i].fault == nil {
			entries[i].fault = err
		}
	}
}

// notFound is the fault of a record whose topic or partition is not there and was not created. It is
// another number than for a read: the proxy's producer would have waited for it.
func notFound(err error) *api.Error {
	e := api.FromError(err)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return api.RefuseCompat(codeTopicNotFound, "Topic not found: %s", e.Text())
	}
	return e
}

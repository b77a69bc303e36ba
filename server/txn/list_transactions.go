package txn

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/coordinator"
)

// ListTransactions (key 66).
//
// The transactional ids whose partitions this node leads, by name: those in some states, of some producers, with a
// transaction that has been open for longer than so many milliseconds, or whose name is matched by an expression,
// where filters say so. While a partition is loading its ids are missing, and the answer says so.

type listed = kmsg.ListTransactionsResponseTransactionState

// maxPattern bounds an expression, in bytes.
const maxPattern = 1024

func (c *Coordinator) handleListTransactions(
	ctx context.Context, req *kmsg.ListTransactionsRequest,
) (*kmsg.ListTransactionsResponse, error) {
	resp := kmsg.NewPtrListTransactionsResponse()
	f, e := newFilter(req)
	if e != nil {
		resp.ErrorCode = e.Code
		return resp, nil
	}
	resp.UnknownStateFilters = f.unknown
	all, missing, err := coordinator.All(ctx, c.run,
		func(st coordinator.State, reply *coordinator.Reply[[]listed]) { reply.Send(st.(*shard).list(f)) })
	if err != nil {
		return nil, err
	}
	if resp.TransactionStates = slices.Concat(all...); missing != nil {
		resp.ErrorCode = missing.Code
	}
	byID := func(a, b listed) int { return cmp.Compare(a.TransactionalID, b.TransactionalID) }
	slices.SortFunc(resp.TransactionStates, byID)
	return resp, nil
}

// filter says which transactional ids to list.
type filter struct {
	states   map[kmsg.TransactionState]bool // nil: any
	unknown  []string
	ids      []int64 // of producers; empty: any
	duration int64   // in milliseconds, below 0: any
	pattern  *regexp.Regexp
}

func newFilter(req *kmsg.ListTransactionsRequest) (*filter, *kerr.Error) {
	f := &filter{ids: req.ProducerIDFilters, duration: req.DurationFilterMillis}
	names := kmsg.TransactionStateStrings()
	for _, name := range req.StateFilters {
		if f.states == nil {
			f.states = make(map[kmsg.TransactionState]bool)
		}
		i := slices.IndexFunc(names, func(s string) bool { return strings.EqualFold(s, name) })
		if i < 0 {
			f.unknown = append(f.unknown, name)
			continue
		}
		f.states[kmsg.TransactionState(i)] = true
	}
	if p := req.TransactionalIDPattern; p != nil && *p != "" {
		re, err := regexp.Compile(`^(?:` + *p + `)$`)
		if err != nil || len(*p) > maxPattern {
			return nil, kerr.InvalidRegularExpression
		}
		f.pattern = re
	}
	return f, nil
}

// passes says whether an id is to be listed.
func (f *filter) passes(t *transaction, now int64) bool {
	switch {
	case f.states != nil && !f.states[t.state]:
		return false
	case len(f.ids) > 0 && !slices.Contains(f.ids, t.producerID):
		return false
	case f.duration >= 0 && (t.state != ongoing && !t.preparing() || now-t.started <= f.duration):
		return false
	}
	return f.pattern == nil || f.pattern.MatchString(t.id)
}

func (s *shard) list(f *filter) []listed {
	var list []listed
	now := s.millis()
	for _, t := range s.ids {
		if !f.passes(t, now) {
			continue
		}
		out := kmsg.NewListTransactionsResponseTransactionState()
		out.TransactionalID, out.ProducerID, out.TransactionState = t.id, t.producerID, t.state.String()
		list = append(list, out)
	}
	return list
}

package client

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
)

// TxnProducer is who may write in the transaction of a transactional id: a producer id in an epoch. Every end of a
// transaction gives the epoch for the next one.
type TxnProducer struct {
	ID         string
	ProducerID int64
	Epoch      int16
}

// ByRequest says whether sequences count the producer's requests, so that a request can be sent again; else they count
// records, as Kafka's clients have it. A foreign cluster counts records only.
func (p TxnProducer) ByRequest() bool { return ktag.IsNamed(p.ProducerID) }

// The states of transactions, as Kafka names them.
const (
	TxnEmpty          = "Empty"
	TxnOngoing        = "Ongoing"
	TxnPrepareCommit  = "PrepareCommit"
	TxnPrepareAbort   = "PrepareAbort"
	TxnCompleteCommit = "CompleteCommit"
	TxnCompleteAbort  = "CompleteAbort"
)

// maxTransactionalID bounds a transactional id, in bytes.
const maxTransactionalID = 255

// CheckTransactionalID returns INVALID_REQUEST unless id is 1 to 255 bytes of UTF-8 without control characters.
func CheckTransactionalID(id string) error {
	switch {
	case id == "":
		return Fault(kerr.InvalidRequest, "a transactional id may not be empty")
	case len(id) > maxTransactionalID:
		return Fault(kerr.InvalidRequest, "a transactional id has at most %d bytes, this one has %d",
			maxTransactionalID, len(id))
	case !utf8.ValidString(id):
		return Fault(kerr.InvalidRequest, "a transactional id is UTF-8, and %q is not", id)
	case strings.ContainsFunc(id, unicode.IsControl):
		return Fault(kerr.InvalidRequest, "transactional id %q: control characters are not allowed", id)
	}
	return nil
}

// TxnInit asks for the next producer of a transactional id.
type TxnInit struct {
	ID      string
	Timeout time.Duration // of its transactions: one that is open for longer is aborted
	// ByRequest asks for sequences that count requests; see TxnProducer.ByRequest.
	ByRequest bool
	// Again is the producer that asks, if it has an epoch already: only if nobody asked since is it given the next one.
	Again *TxnProducer
}

// InitTxn gives the next producer of a transactional id. Whoever had the id before is fenced, and a transaction that it
// left open is aborted. CONCURRENT_TRANSACTIONS says that this takes a while yet.
func (c *Client) InitTxn(ctx context.Context, in TxnInit) (TxnProducer, error) {
	none := TxnProducer{ID: in.ID, ProducerID: -1, Epoch: -1}
	if err := CheckTransactionalID(in.ID); err != nil {
		return none, err
	}
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = &in.ID, int32(in.Timeout.Milliseconds())
	req.ProducerID, req.ProducerEpoch = -1, -1
	if in.Again != nil {
		req.ProducerID, req.ProducerEpoch = in.Again.ProducerID, in.Again.Epoch
	}
	if in.ByRequest {
		ktag.SetNamed(&req.UnknownTags)
	}
	resp, err := call(ctx, "producer of transactional id "+in.ID, req.RequestWith, c.requestor)
	if err != nil {
		return none, err
	}
	if err := fault(resp.ErrorCode, nil, "", -1); err != nil {
		return none, err
	}
	return TxnProducer{ID: in.ID, ProducerID: resp.ProducerID, Epoch: resp.ProducerEpoch}, nil
}

// Decision is how a transaction ends.
type Decision bool

// The two decisions.
const (
	Abort  Decision = false
	Commit Decision = true
)

// EndTxn ends the transaction of a producer, and gives the producer of the next one. It may be called again with the
// same producer when no answer came: then it answers as the first call did, or INVALID_TXN_STATE if the transaction
// ended the other way. PRODUCER_FENCED says that another producer has taken the id over.
func (c *Client) EndTxn(ctx context.Context, p TxnProducer, d Decision) (TxnProducer, error) {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = p.ID, p.ProducerID, p.Epoch, bool(d)
	resp, err := call(c.detach(ctx), "end of the transaction of "+p.ID, req.RequestWith, c.requestor)
	if err != nil {
		return p, err
	}
	if err := fault(resp.ErrorCode, nil, "", -1); err != nil {
		return p, err
	}
	next := TxnProducer{ID: p.ID, ProducerID: resp.ProducerID, Epoch: resp.ProducerEpoch}
	if next.ProducerID < 0 { // a cluster whose transactions end without a new epoch
		next = p
	}
	return next, nil
}

// CommitTxnOffsets has offsets of a group be committed with the transaction of p, by the rules of CommitOffsets. The
// errors are as those are.
func (c *Client) CommitTxnOffsets(ctx context.Context, p TxnProducer, g GroupCommit) ([]error, error) {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = p.ID, p.ProducerID, p.Epoch
	req.Version = 5 // the last that names topics by name
	req.Group, req.MemberID, req.InstanceID, req.Generation = g.Group, g.Member, g.Instance, g.Epoch
	if g.Held {
		ktag.SetHeld(&req.UnknownTags)
	}
	places := make(map[string]int) // in req.Topics
	for i := range g.Offsets {
		o := &g.Offsets[i]
		part := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		part.Partition, part.Offset, part.LeaderEpoch, part.Metadata = o.Partition, o.Offset, o.LeaderEpoch, &o.Metadata
		if o.From != nil {
			ktag.SetCommitFrom(&part.UnknownTags, *o.From)
		}
		at, ok := places[o.Topic]
		if !ok {
			at = len(req.Topics)
			places[o.Topic] = at
			t := kmsg.NewTxnOffsetCommitRequestTopic()
			t.Topic = o.Topic
			req.Topics = append(req.Topics, t)
		}
		req.Topics[at].Partitions = append(req.Topics[at].Partitions, part)
	}
	resp, err := call(c.detach(ctx), "offsets of group "+g.Group, req.RequestWith, c.requestor)
	if err != nil {
		return nil, err
	}
	answers := make(map[TopicPartition]answered, len(g.Offsets))
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for _, part := range t.Partitions {
			answers[TopicPartition{t.Topic, part.Partition}] = answered{part.ErrorCode, part.UnknownTags}
		}
	}
	return g.commitErrors(answers), nil
}

// TxnListing is a transactional id in a list.
type TxnListing struct {
	ID         string
	ProducerID int64
	State      string
}

// TxnFilter says which transactional ids to list; a zero field does not narrow the list.
type TxnFilter struct {
	States    []string
	OpenSince time.Duration // only transactions that have been open for longer
	Pattern   string        // a regular expression of ids
}

// Txns lists transactional ids by name. It fails where a coordinator does not tell: a list that lacks some says
// nothing.
func (c *Client) Txns(ctx context.Context, f TxnFilter) ([]TxnListing, error) {
	req := kmsg.NewPtrListTransactionsRequest()
	req.StateFilters, req.DurationFilterMillis = f.States, -1
	if f.OpenSince > 0 {
		req.DurationFilterMillis = f.OpenSince.Milliseconds()
	}
	if f.Pattern != "" {
		req.TransactionalIDPattern = &f.Pattern
	}
	resp, err := call(ctx, "list of transactions", req.RequestWith, c.requestor)
	if err != nil {
		return nil, err
	}
	if err := fault(resp.ErrorCode, nil, "", -1); err != nil {
		return nil, err
	}
	out := make([]TxnListing, len(resp.TransactionStates))
	for i := range resp.TransactionStates {
		t := &resp.TransactionStates[i]
		out[i] = TxnListing{ID: t.TransactionalID, ProducerID: t.ProducerID, State: t.TransactionState}
	}
	slices.SortFunc(out, func(a, b TxnListing) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

// Txn is what the coordinator knows of a transactional id.
type Txn struct {
	TxnProducer
	State      string
	Timeout    time.Duration
	Started    time.Time        // zero while nothing is open
	Partitions []TopicPartition // of a transaction that is decided: those that do not know yet
}

// DescribeTxn describes a transactional id; TRANSACTIONAL_ID_NOT_FOUND.
func (c *Client) DescribeTxn(ctx context.Context, id string) (*Txn, error) {
	if err := CheckTransactionalID(id); err != nil {
		return nil, err
	}
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{id}
	resp, err := call(ctx, "description of transactional id "+id, req.RequestWith, c.requestor)
	if err != nil {
		return nil, err
	}
	for i := range resp.TransactionStates {
		t := &resp.TransactionStates[i]
		if t.TransactionalID != id {
			continue
		}
		if err := fault(t.ErrorCode, nil, "", -1); err != nil {
			return nil, err
		}
		return describedTxn(t), nil
	}
	return nil, noAnswer("description of transactional id "+id, errMissing)
}

func describedTxn(t *kmsg.DescribeTransactionsResponseTransactionState) *Txn {
	out := &Txn{
		TxnProducer: TxnProducer{ID: t.TransactionalID, ProducerID: t.ProducerID, Epoch: t.ProducerEpoch},
		State:       t.State, Timeout: time.Duration(t.TimeoutMillis) * time.Millisecond,
	}
	if t.StartTimestamp >= 0 {
		out.Started = time.UnixMilli(t.StartTimestamp)
	}
	for _, topic := range t.Topics {
		for _, number := range topic.Partitions {
			out.Partitions = append(out.Partitions, TopicPartition{topic.Topic, number})
		}
	}
	slices.SortFunc(out.Partitions, TopicPartition.Compare)
	return out
}

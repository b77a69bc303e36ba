package task

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/client"
)

// Times of transactions.
const (
	produceTimeout = 10 * time.Second       // that leaders wait for replicas
	lostTopicWait  = 5 * time.Second        // until a topic that is not there counts as deleted
	firstPause     = 10 * time.Millisecond  // before the same is asked again
	longestPause   = 500 * time.Millisecond // between two that are
	abortLimit     = 3 * time.Second        // of an abort while the task stops
)

// errLost says that the transaction is not this producer's any more: it was aborted, or another one has begun.
var errLost = errors.New("the transaction was taken away")

// errGone says that a topic was deleted while records were written to it.
var errGone = errors.New("a topic is gone")

// refusedError says that a leader refused a batch for what is in it.
type refusedError struct {
	topic string
	from  []int32 // as of the slot
	err   error
}

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// producer writes in transactions, one after the other. It is not safe for concurrent use.
type producer struct {
	client    *client.Client
	id        string
	timeout   time.Duration
	log       *slog.Logger
	trouble   func(why error) // is told why records are sent again, and nil when they have arrived
	now       client.TxnProducer
	has       bool // now is one
	open      bool // something was sent in the transaction
	sequences map[client.TopicPartition]int32
}

// init becomes the producer of the id. Whoever was it before is fenced, and what he left open is aborted. ErrFenced:
// somebody else has become it since this one was.
func (p *producer) init(ctx context.Context) error {
	in := client.TxnInit{ID: p.id, Timeout: p.timeout}
	if p.has {
		in.Again = &p.now
	}
	pause := backoff{first: firstPause, longest: longestPause}
	for {
		now, err := p.client.InitTxn(ctx, in)
		switch {
		case err == nil:
			p.become(now)
			p.has = true
			return nil
		case errors.Is(err, kerr.ProducerFenced), errors.Is(err, kerr.InvalidProducerEpoch),
			errors.Is(err, kerr.InvalidProducerIDMapping) && p.has:
			return fmt.Errorf("%w: %v", ErrFenced, err)
		case ctx.Err() != nil:
			return err
		case !transient(err) && !errors.Is(err, kerr.ConcurrentTransactions):
			return err
		}
		if err := sleep(ctx, pause.delay()); err != nil {
			return err
		}
	}
}

// become takes the epoch for the next transaction.
func (p *producer) become(now client.TxnProducer) {
	if now != p.now || p.sequences == nil {
		p.sequences = make(map[client.TopicPartition]int32)
	}
	p.now, p.open = now, false
}

// seal makes a part the next one that is sent.
func (p *producer) seal(part *part) {
	part.seal(p.now, p.sequences)
	p.open = true
}

// send stores a part that is sealed. What was not answered, or could not be stored just now, is sent again: its
// sequences keep it from being stored twice.
func (p *producer) send(ctx context.Context, part *part) error {
	pause := backoff{first: firstPause, longest: longestPause}
	var gone time.Time // since when a topic was not there
	for {
		req := client.ProduceRequest{Acks: client.AcksAll, Timeout: produceTimeout, Transaction: p.id}
		var slots []*slot
		for _, s := range part.slots {
			if !s.sent {
				s.batch.SetBaseOffset(0) // a leader that stored it has set these
				s.batch.SetLeaderEpoch(-1)
				slots = append(slots, s)
				req.Batches = append(req.Batches, client.Batch{
					Topic: s.target.topic, Partition: s.partition, Bytes: s.batch,
				})
			}
		}
		results, err := p.client.Produce(ctx, req)
		missing := false
		left := err
		if err == nil {
			left, missing, err = took(slots, results)
			if err != nil {
				return err
			}
		}
		switch {
		case left == nil:
			p.trouble(nil)
			return nil
		case !missing:
			gone = time.Time{}
		case gone.IsZero():
			gone = time.Now()
		case time.Since(gone) > lostTopicWait:
			return fmt.Errorf("%w: %v", errGone, left)
		}
		wait := pause.delay()
		p.log.Debug("records are sent again", "err", left, "pause", wait)
		p.trouble(fmt.Errorf("write to topics: %w", left))
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// took takes in what became of batches: left is why some of them are to be sent again, and missing says that a topic is
// not there; err ends the transaction.
func took(slots []*slot, results []client.ProduceResult) (left error, missing bool, err error) {
	for i := range results {
		switch e := results[i].Err; {
		case e == nil, errors.Is(e, kerr.DuplicateSequenceNumber):
			slots[i].sent = true
		case isAny(e, kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping, kerr.InvalidTxnState,
			kerr.UnknownProducerID, kerr.OutOfOrderSequenceNumber, kerr.TransactionAbortable):
			return nil, false, fmt.Errorf("%w: %v", errLost, e)
		case isAny(e, kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp):
			return nil, false, &refusedError{slots[i].target.topic.Name, slices.Clone(slots[i].from), e}
		case errors.Is(e, kerr.UnknownTopicOrPartition), errors.Is(e, kerr.UnknownTopicID):
			left, missing = e, true
		case transient(e), errors.Is(e, kerr.ConcurrentTransactions):
			left = e
		default:
			return nil, false, e
		}
	}
	return left, missing, nil
}

func isAny(err error, of ...*kerr.Error) bool {
	for _, e := range of {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// end ends the transaction, and asks until it is known how it ended. errLost: not as it should have.
func (p *producer) end(ctx context.Context, d client.Decision) error {
	pause := backoff{first: firstPause, longest: longestPause}
	for {
		next, err := p.client.EndTxn(ctx, p.now, d)
		switch {
		case err == nil:
			p.become(next)
			return nil
		case isAny(err, kerr.InvalidTxnState, kerr.ProducerFenced, kerr.InvalidProducerEpoch,
			kerr.InvalidProducerIDMapping, kerr.UnknownProducerID, kerr.TransactionAbortable):
			return fmt.Errorf("%w: %v", errLost, err)
		case !transient(err) && !errors.Is(err, kerr.ConcurrentTransactions):
			return err
		}
		p.log.Debug("the end of a transaction is asked for again", "err", err)
		if err := sleep(ctx, pause.delay()); err != nil {
			return err
		}
	}
}

// abort ends the transaction without it, also while the task stops. What is left open is aborted by whoever becomes the
// producer next.
func (p *producer) abort(ctx context.Context) error {
	if !p.open {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortLimit)
	defer cancel()
	before := p.now
	if err := p.end(ctx, client.Abort); err != nil || p.now != before {
		return err
	}
	return p.init(ctx) // without a new epoch, sequences that were not sent would be missed
}

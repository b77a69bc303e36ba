package native

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/api"
	"millrace/api/rawjson"
	"millrace/client"
)

// enrollTries is how often a transaction in one request is done again because a group gave its member another epoch.
const enrollTries = 3

// onceName names the transaction of one request.
type onceName struct {
	ID    string `json:"id"`
	Epoch int16  `json:"epoch"`
	// ProducerID is only in what is kept of an attempt.
	ProducerID int64 `json:"producer_id,omitempty"`
}

// onceWork is one request that is a transaction.
type onceWork struct {
	*transactions
	job     *produceJob
	parts   []*txnPart
	given   []client.GroupCommit // by the request
	commits []client.GroupCommit // with the epochs of all members
	attempt *attempt             // of a key; nil without one
}

// once writes records of any topics, and offsets of groups, all or nothing.
func (t *transactions) once(w http.ResponseWriter, r *http.Request) error {
	if _, err := onlyParameters(r); err != nil {
		return err
	}
	if err := jsonBody(r); err != nil {
		return err
	}
	j := &produceJob{}
	j.txn = &txnRequest{once: true}
	j.form, j.partition, j.acks, j.timestamp = bodyRecords, client.AnyPartition, client.AcksAll, t.edge.Now().UnixMilli()
	var err error
	j.whole, err = t.edge.ReadBody(w, r, 0)
	defer j.whole.Free()
	if err != nil {
		return err
	}
	work := &onceWork{transactions: t, job: j, attempt: attemptOf(r.Context())}
	if err := work.read(); err != nil {
		return err
	}
	// What the attempt before has done comes first: a refusal from here on says that nothing took effect.
	if a := work.attempt; a != nil && a.again && len(a.note) > 0 {
		if done, err := work.settleLast(w); done || err != nil {
			return err
		}
	}
	if err := j.intake.encode(r.Context(), t.producer.serde); err != nil {
		return err
	}
	if work.parts, err = t.prepare(r.Context(), j); err != nil {
		return err
	}
	if err := work.enrollAll(r.Context()); err != nil {
		return err
	}
	return work.run(w, r)
}

// read reads the body.
func (o *onceWork) read() error {
	j := o.job
	j.intake.begin(o.edge, &j.produceRequest, &j.whole)
	c := rawjson.Cursor{Data: j.whole.Bytes}
	if err := c.Begin('{'); err != nil {
		return api.FromError(err)
	}
	var seen [2]bool
	for first := true; ; first = false {
		name, more, err := c.Member(first)
		if err != nil {
			return api.FromError(err)
		}
		if !more {
			break
		}
		k := slices.Index([]string{"records", "offsets"}, string(name))
		switch {
		case k < 0:
			return api.Refuse(api.UnprocessableBody, "unrecognized field: %s", shorten(name))
		case seen[k]:
			return api.Refuse(api.MalformedBody, "field %s is there twice", name)
		}
		seen[k] = true
		value, _, err := c.Value(rawjson.MaxDepth)
		if err != nil {
			return api.FromError(err)
		}
		if err := o.take(k, value); err != nil {
			return err
		}
	}
	if err := c.End(); err != nil {
		return api.FromError(err)
	}
	if len(j.intake.records) == 0 && len(o.given) == 0 {
		return api.Refuse(api.MalformedBody, "the transaction is empty: give records, offsets or both")
	}
	return nil
}

// take reads the records or the offsets.
func (o *onceWork) take(k int, value []byte) (err error) {
	switch {
	case rawjson.IsNull(value) || slices.Equal(rawjson.Compact(nil, value), []byte("[]")):
		return nil
	case k == 0:
		return o.job.intake.readArray(value, (*intake).takeRecord)
	}
	var offsets []txnOffset
	if err := api.Decode(value, &offsets); err != nil {
		return prefixed(err, "offsets: ")
	}
	o.given, err = commitsOf(offsets)
	return err
}

// settleLast finds out what became of the attempt before, whose transaction its note names: to abort it does no harm,
// and is answered by what was decided before. Done says that it was committed and that the answer is written.
func (o *onceWork) settleLast(w http.ResponseWriter) (done bool, err error) {
	var last onceName
	if json.Unmarshal(o.attempt.note, &last) != nil {
		return false, errUnknownAttempt()
	}
	p := client.TxnProducer{ID: last.ID, ProducerID: last.ProducerID, Epoch: last.Epoch}
	_, err = o.decide(p, client.Abort)
	switch {
	case err == nil, errors.Is(err, kerr.TransactionalIDNotFound):
		return false, nil
	case errors.Is(err, kerr.InvalidTxnState):
		return true, answer(w, struct {
			State       string   `json:"state"`
			Transaction onceName `json:"transaction"`
			OffsetsLost bool     `json:"offsets_lost"`
		}{"committed", onceName{ID: last.ID, Epoch: last.Epoch}, true})
	case isFenced(err):
		return false, errUnknownAttempt().With("transaction", onceName{ID: last.ID, Epoch: last.Epoch})
	}
	return false, err
}

// run does the transaction, a second time under another id when the first one turns out to be of no use any more.
func (o *onceWork) run(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	for try := 0; ; try++ {
		p, err := o.pool.take(ctx, o.init)
		if err != nil {
			return nothingDone(err)
		}
		err = o.write(ctx, p)
		if err == nil {
			return o.finish(w, p)
		}
		next, abortErr := o.decide(p, client.Abort)
		if abortErr == nil {
			o.pool.put(next)
		} else {
			o.pool.drop() // it ends by its time; nobody commits it
		}
		switch {
		case o.outpaced(err) && try < enrollTries:
			if err := o.enrollAll(ctx); err != nil {
				return nothingDone(err)
			}
		case o.outpaced(err):
			return mayComeAgain(nothingDone(err))
		case try > 0 || !isFenced(err) && !errors.Is(err, kerr.InvalidProducerIDMapping):
			return nothingDone(err)
		}
	}
}

// enrollAll finds the epochs of members as they are now.
func (o *onceWork) enrollAll(ctx context.Context) error {
	o.commits = slices.Clone(o.given)
	return o.enroll(ctx, o.commits)
}

// outpaced says that a group has given a member another epoch since its epoch was looked up.
func (o *onceWork) outpaced(err error) bool {
	return errors.Is(err, kerr.IllegalGeneration) && slices.ContainsFunc(o.given, func(c client.GroupCommit) bool {
		return c.Member != "" && c.Epoch < 0
	})
}

// mayComeAgain tells an error of a transaction that came while a group was moving partitions.
func mayComeAgain(err error) error {
	e := *api.FromError(err)
	fault := *e.Fault
	fault.Retryable = true
	fault.Advice = "The group is moving partitions. Nothing took effect: send the request again a little later."
	e.Fault = &fault
	return &e
}

// write writes all of it at once: the records, the offsets, and for whoever finds this attempt dead its name.
func (o *onceWork) write(ctx context.Context, p client.TxnProducer) error {
	ctx, cancel := context.WithTimeout(ctx, onceProduce)
	defer cancel()
	var wg sync.WaitGroup
	var noted, committed, stored error
	if o.attempt != nil {
		wg.Go(func() {
			noted = o.attempt.claim.Note(ctx, onceName{ID: p.ID, Epoch: p.Epoch, ProducerID: p.ProducerID})
		})
	}
	if len(o.commits) > 0 {
		wg.Go(func() { committed = o.commitOffsets(ctx, o.commits, p) })
	}
	if len(o.parts) > 0 {
		stored = o.transactions.write(ctx, o.job, o.parts, p)
	}
	wg.Wait()
	return firstOf([]error{stored, committed, noted})
}

// finish commits.
func (o *onceWork) finish(w http.ResponseWriter, p client.TxnProducer) error {
	next, err := o.decide(p, client.Commit)
	var unsure *undecided
	switch {
	case errors.As(err, &unsure):
		o.pool.drop()
		return o.undecided(p, err)
	case isFenced(err), errors.Is(err, kerr.InvalidTxnState): // the coordinator has aborted it
		o.pool.drop()
		return nothingDone(errOutOfTime())
	case err != nil:
		o.pool.drop()
		return nothingDone(err)
	}
	o.pool.put(next)
	name, err := json.Marshal(onceName{ID: p.ID, Epoch: p.Epoch})
	if err != nil {
		return err
	}
	dst := append([]byte(`{"state":"committed","transaction":`), name...)
	var all []client.BatchResult
	for _, part := range o.parts {
		all = append(all, part.batches...)
	}
	dst = append(dst, `,"offsets":[`...)
	dst = append(o.job.appendParts(dst, all), "]}\n"...)
	w.Header()["Content-Type"] = jsonHeader
	_, _ = w.Write(dst)
	return nil
}

// errOutOfTime says that a transaction was not committed before its time was over.
func errOutOfTime() *api.Error {
	fault := *api.KafkaFault(kerr.InvalidTxnState)
	fault.Retryable = true
	fault.Advice = "Nothing of it took effect: send the request again a little later, or less at once."
	return api.Refuse(&fault, "the transaction was aborted: it was not done within %v", onceTimeout)
}

// nothingDone tells an error of something that has left nothing behind, whatever became of its parts.
func nothingDone(err error) error {
	e := *api.FromError(err)
	fault := *e.Fault
	if fault.Outcome != api.Failed {
		fault.Retryable = true
		fault.Advice = "Nothing of it took effect: send the request again a little later."
	}
	if fault.Kafka == kerr.ConcurrentTransactions.Code {
		fault.Retryable = true
	}
	fault.Outcome = api.Failed
	e.Fault, e.Cause = &fault, err
	extra := e.Extra
	e.Extra = nil
	for _, m := range extra {
		switch v := m.Value.(type) {
		case api.Outcome:
		case []failedBatch:
			e.With(m.Name, onlyFailed(v))
		default:
			e.With(m.Name, m.Value)
		}
	}
	return &e
}

// onlyFailed are the batches that were refused: the others are not there either.
func onlyFailed(told []failedBatch) (out []failedBatch) {
	for _, b := range told {
		if b.Error != nil {
			one := *b.Error
			one.Outcome, b.Error = api.Failed, &one
			out = append(out, b)
		}
	}
	return out
}

package txn

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/server/coordinator"
)

// EndTxn (key 26), as from version 5 on.
//
// The decision is answered when it is committed to the log; the markers come after that, and until they are written
// the producer's next transaction has to wait. Every end bumps the epoch, and the answer has the producer id and
// the epoch for the next transaction. A request of the epoch before is one whose answer was lost.

type (
	endReply = *coordinator.Reply[*kmsg.EndTxnResponse]
	endWork  struct {
		shard *shard
		req   *kmsg.EndTxnRequest
		reply endReply
		until time.Time
	}
)

func refuseEndTxn(_ *kmsg.EndTxnRequest, e *kerr.Error) *kmsg.EndTxnResponse {
	resp := kmsg.NewPtrEndTxnResponse()
	resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = e.Code, -1, -1
	return resp
}

func (s *shard) handleEndTxn(req *kmsg.EndTxnRequest, reply endReply) {
	w := &endWork{shard: s, req: req, reply: reply, until: time.Now().Add(patience)}
	w.try()
}

func (w *endWork) try() {
	s, id := w.shard, w.req.TransactionalID
	t := s.ids[id]
	switch {
	case w.reply.Gone():
		return
	case t == nil:
		w.refuse(kerr.InvalidProducerIDMapping)
		return
	case s.busy[id]:
		w.wait()
		return
	}
	to, e := endVerdict(&t.value, w.req, s.lastEpoch)
	switch to {
	case wait:
		w.wait()
	case repeat:
		w.send(t.producerID, t.epoch)
	case decide, nothing:
		s.end(t, w.req.Commit, func(e *kerr.Error) {
			if e != nil {
				w.refuse(e)
				return
			}
			w.send(t.next())
		})
	default:
		w.refuse(e)
	}
}

func (w *endWork) wait() {
	if !w.shard.park(w.req.TransactionalID, w.until, w.try) {
		w.refuse(kerr.ConcurrentTransactions)
	}
}

func (w *endWork) refuse(e *kerr.Error) { w.reply.Send(refuseEndTxn(w.req, e)) }

func (w *endWork) send(producerID int64, epoch int16) {
	resp := kmsg.NewPtrEndTxnResponse()
	resp.ProducerID, resp.ProducerEpoch = producerID, epoch
	w.reply.Send(resp)
}

// next is what the producer uses for its next transaction.
func (v *value) next() (producerID int64, epoch int16) {
	if v.preparing() && v.nextID >= 0 {
		return v.nextID, 0
	}
	return v.producerID, v.epoch
}

// end decides the transaction of an id, or bumps the epoch of one that has none, and sees to the markers. It calls
// then, with an error if nothing was decided. At the last epoch that needs a producer id to go on with.
func (s *shard) end(t *transaction, commit bool, then func(*kerr.Error)) {
	if t.epoch < s.lastEpoch {
		then(s.prepare(t, commit, -1))
		return
	}
	s.allocate(t.id, ktag.IsNamed(t.producerID), func(producerID int64, e *kerr.Error) {
		if e == nil {
			e = s.prepare(t, commit, producerID)
		}
		then(e)
	})
}

// prepare writes the decision. From then on the transaction ends as it says, under whatever coordinator.
func (s *shard) prepare(t *transaction, commit bool, nextID int64) *kerr.Error {
	v := t.value
	v.state, v.nextID, v.version = prepareAbort, nextID, clientVersion
	if commit {
		v.state = prepareCommit
	}
	if !s.cfg.Flaws.SameEpoch {
		v.epoch++
	}
	values := []*value{&v}
	if t.state != ongoing { // no partition has to hear of it
		done := v.completed()
		values = append(values, &done)
	}
	if err := s.put(t.id, values...); err != nil {
		return appendRefusal(err)
	}
	s.metrics.decided(commit)
	if t.preparing() {
		s.complete(t)
	}
	return nil
}

// completed is the value when the markers of a decided transaction are written.
func (v *value) completed() value {
	done := *v
	done.state, done.partitions = completeAbort, nil
	if v.commits() {
		done.state = completeCommit
	}
	if v.nextID >= 0 {
		done.previousID, done.producerID, done.epoch, done.nextID = v.producerID, v.nextID, 0, -1
	}
	return done
}

package txn

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/server/coordinator"
)

// InitProducerID (key 22), with a transactional id.
//
// A producer gets a producer id and an epoch that no other one has had: from then on whoever used the transactional
// id before is fenced. If that one has left a transaction open, it is aborted first, in the epoch after its own. A
// producer that names the producer id and the epoch that it has only goes on from there, and is answered the same
// when it asks again, so that an answer that was lost does not fence it.

type (
	initReply = *coordinator.Reply[*kmsg.InitProducerIDResponse]
	initWork  struct {
		shard *shard
		req   *kmsg.InitProducerIDRequest
		reply initReply
		until time.Time
	}
)

func refuseInitProducerID(_ *kmsg.InitProducerIDRequest, e *kerr.Error) *kmsg.InitProducerIDResponse {
	resp := kmsg.NewPtrInitProducerIDResponse()
	resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = e.Code, -1, -1
	return resp
}

func (s *shard) handleInitProducerID(req *kmsg.InitProducerIDRequest, reply initReply) {
	timeout := millis(int64(req.TransactionTimeoutMillis))
	switch {
	case timeout <= 0 || timeout > s.settings().MaxTimeout:
		reply.Now(refuseInitProducerID(req, kerr.InvalidTransactionTimeout))
	case (req.ProducerID < 0) != (req.ProducerEpoch < 0):
		reply.Now(refuseInitProducerID(req, kerr.InvalidRequest))
	default:
		w := &initWork{shard: s, req: req, reply: reply, until: time.Now().Add(patience)}
		w.try()
	}
}

func (w *initWork) try() {
	s, id := w.shard, *w.req.TransactionalID
	t := s.ids[id]
	switch {
	case w.reply.Gone():
		return
	case s.busy[id]:
		w.wait()
		return
	case t == nil:
		w.rotate(&value{producerID: -1, previousID: -1, version: clientVersion}, -1, ktag.Named(&w.req.UnknownTags))
		return
	}
	to, last, e := initVerdict(&t.value, w.req, s.lastEpoch)
	switch to {
	case wait:
		w.wait()
	case repeat:
		w.send(t.producerID, t.epoch)
	case fence:
		s.end(t, false, func(e *kerr.Error) {
			if e != nil {
				w.refuse(e)
				return
			}
			s.metrics.fenced.Inc()
			w.try()
		})
	case bump:
		v := t.value
		v.epoch++
		w.put(&v, last)
	case rotate:
		v := t.value
		named := ktag.IsNamed(v.producerID)
		if w.req.ProducerID < 0 {
			named = ktag.Named(&w.req.UnknownTags)
		}
		w.rotate(&v, last, named)
	default:
		w.refuse(e)
	}
}

// rotate gives another producer id, or the first one.
func (w *initWork) rotate(v *value, last int16, named bool) {
	w.shard.allocate(*w.req.TransactionalID, named, func(producerID int64, e *kerr.Error) {
		if e != nil {
			w.refuse(e)
			return
		}
		v.previousID, v.producerID, v.epoch = v.producerID, producerID, 0
		w.put(v, last)
	})
}

// put writes what the producer gets.
func (w *initWork) put(v *value, last int16) {
	v.state, v.partitions, v.started, v.nextID = empty, nil, -1, -1
	v.lastEpoch, v.timeout, v.version = last, w.req.TransactionTimeoutMillis, clientVersion
	if err := w.shard.put(*w.req.TransactionalID, v); err != nil {
		w.refuse(appendRefusal(err))
		return
	}
	w.send(v.producerID, v.epoch)
}

func (w *initWork) wait() {
	if !w.shard.park(*w.req.TransactionalID, w.until, w.try) {
		w.refuse(kerr.ConcurrentTransactions)
	}
}

func (w *initWork) refuse(e *kerr.Error) { w.reply.Send(refuseInitProducerID(w.req, e)) }

func (w *initWork) send(producerID int64, epoch int16) {
	resp := kmsg.NewPtrInitProducerIDResponse()
	resp.ProducerID, resp.ProducerEpoch = producerID, epoch
	w.reply.Send(resp)
}

// appendRefusal is what a client is told of an append that failed.
func appendRefusal(err error) *kerr.Error {
	if e := coordinator.KafkaError(err); e != nil {
		return e
	}
	return kerr.UnknownServerError
}

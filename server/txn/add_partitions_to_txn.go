package txn

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/coordinator"
	"millrace/server/metadata"
)

// AddPartitionsToTxn (key 24), in its form for many transactions.
//
// The leaders of partitions say so when a producer's first batch of a transaction comes, and append it when they
// are told that the transaction has the partition. A transaction begins with its first partition. All partitions
// that are named for a transaction are added, or none: where one of them is unknown the others are
// OPERATION_NOT_ATTEMPTED. With VerifyOnly nothing is added, and what is not there is TRANSACTION_ABORTABLE.

// maxTransactionsAtOnce is how many transactions of one request are seen to at a time.
const maxTransactionsAtOnce = 32

type (
	addedTo = kmsg.AddPartitionsToTxnRequestTransaction
	added   = kmsg.AddPartitionsToTxnResponseTransaction
	addWork struct {
		shard *shard
		req   *addedTo
		reply *coordinator.Reply[added]
		until time.Time
	}
)

func (c *Coordinator) handleAddPartitionsToTxn(
	ctx context.Context, req *kmsg.AddPartitionsToTxnRequest,
) (*kmsg.AddPartitionsToTxnResponse, error) {
	resp := kmsg.NewPtrAddPartitionsToTxnResponse()
	resp.Transactions = make([]added, len(req.Transactions))
	var (
		wg     sync.WaitGroup
		slots  = make(chan struct{}, maxTransactionsAtOnce)
		failed = make(chan error, len(req.Transactions))
	)
	for i := range req.Transactions {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			var err error
			if resp.Transactions[i], err = c.addPartitions(ctx, &req.Transactions[i]); err != nil {
				failed <- err
			}
		})
	}
	wg.Wait()
	select {
	case err := <-failed:
		return nil, err
	default:
		return resp, nil
	}
}

// addPartitions sees to one transaction.
func (c *Coordinator) addPartitions(ctx context.Context, of *addedTo) (added, error) {
	return serve(ctx, c, of.TransactionalID, of, (*shard).handleAddPartitions, refuseAdding)
}

func (s *shard) handleAddPartitions(of *addedTo, reply *coordinator.Reply[added]) {
	w := &addWork{shard: s, req: of, reply: reply, until: time.Now().Add(patience)}
	w.try()
}

// refuseAdding says the same of all partitions.
func refuseAdding(of *addedTo, e *kerr.Error) added {
	return answerAdding(of, func(string, int32) *kerr.Error { return e })
}

// answerAdding says of each partition what code does.
func answerAdding(of *addedTo, code func(topic string, number int32) *kerr.Error) added {
	out := kmsg.NewAddPartitionsToTxnResponseTransaction()
	out.TransactionalID = of.TransactionalID
	for i := range of.Topics {
		t := kmsg.NewAddPartitionsToTxnResponseTransactionTopic()
		t.Topic = of.Topics[i].Topic
		for _, number := range of.Topics[i].Partitions {
			p := kmsg.NewAddPartitionsToTxnResponseTransactionTopicPartition()
			p.Partition = number
			if e := code(t.Topic, number); e != nil {
				p.ErrorCode = e.Code
			}
			t.Partitions = append(t.Partitions, p)
		}
		out.Topics = append(out.Topics, t)
	}
	return out
}

func (w *addWork) try() {
	s, id := w.shard, w.req.TransactionalID
	t := s.ids[id]
	var e *kerr.Error
	switch {
	case w.reply.Gone():
		return
	case t == nil:
		e = kerr.InvalidProducerIDMapping
	case s.busy[id]:
		e = kerr.ConcurrentTransactions
	default:
		e = addError(&t.value, w.req.ProducerID, w.req.ProducerEpoch)
	}
	switch {
	case e == kerr.ConcurrentTransactions && s.park(id, w.until, w.try):
	case e != nil:
		w.reply.Send(refuseAdding(w.req, e))
	case w.req.VerifyOnly:
		w.reply.Send(w.verify(t))
	default:
		w.reply.Send(w.add(t))
	}
}

func (w *addWork) verify(t *transaction) added {
	return answerAdding(w.req, func(topic string, number int32) *kerr.Error {
		if t.state == ongoing && t.partitions.has(topic, number) {
			return nil
		}
		return kerr.TransactionAbortable
	})
}

func (w *addWork) add(t *transaction) added {
	failed := false
	out := answerAdding(w.req, func(topic string, number int32) *kerr.Error {
		e := w.shard.checkPartition(topic, number)
		failed = failed || e != nil
		return e
	})
	if failed {
		for i := range out.Topics {
			for j := range out.Topics[i].Partitions {
				if p := &out.Topics[i].Partitions[j]; p.ErrorCode == 0 {
					p.ErrorCode = kerr.OperationNotAttempted.Code
				}
			}
		}
		return out
	}
	var all partitions
	for i := range w.req.Topics {
		all = append(all, topicPartitions{w.req.Topics[i].Topic, w.req.Topics[i].Partitions})
	}
	if e := w.shard.add(t, all); e != nil {
		return refuseAdding(w.req, e)
	}
	return out
}

// checkPartition says what is wrong with a partition to be added.
func (s *shard) checkPartition(topic string, number int32) *kerr.Error {
	switch of := s.image().Topic(topic); {
	case topic == metadata.TxnTopic:
		return kerr.InvalidTopicException
	case of == nil || number < 0 || int(number) >= len(of.Partitions):
		return kerr.UnknownTopicOrPartition
	}
	return nil
}

// add makes partitions part of a transaction, which begins if it has not.
func (s *shard) add(t *transaction, of partitions) *kerr.Error {
	v := t.value
	if v.state != ongoing {
		v.state, v.partitions, v.started, v.lastEpoch = ongoing, nil, s.millis(), -1
	}
	before := v.partitions.count()
	for i := range of {
		for _, number := range of[i].numbers {
			if !v.partitions.has(of[i].topic, number) {
				v.partitions = v.partitions.with(of[i].topic, number)
			}
		}
	}
	if v.partitions.count() == before { // all of them are there
		return nil
	}
	if err := s.put(t.id, &v); err != nil {
		return appendRefusal(err)
	}
	return nil
}

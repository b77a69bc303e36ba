package txn

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/coordinator"
)

// Keys lists the request keys that Request answers. InitProducerID without a transactional id is the broker's.
func Keys() []kmsg.Key {
	return []kmsg.Key{
		kmsg.InitProducerID, kmsg.AddPartitionsToTxn, kmsg.AddOffsetsToTxn, kmsg.EndTxn, kmsg.DescribeTransactions,
		kmsg.ListTransactions,
	}
}

// Request answers one request. An error means that there is no answer because the context ended: what was asked for
// may have been done, or may yet be.
func (c *Coordinator) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	resp, err := c.answer(ctx, r)
	if err != nil {
		return nil, err
	}
	resp.SetVersion(r.GetVersion())
	return resp, nil
}

func (c *Coordinator) answer(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	switch req := r.(type) {
	case *kmsg.InitProducerIDRequest:
		if req.TransactionalID == nil {
			return refuseInitProducerID(req, kerr.InvalidRequest), nil
		}
		return orNone(serve(ctx, c, *req.TransactionalID, req, (*shard).handleInitProducerID, refuseInitProducerID))
	case *kmsg.EndTxnRequest:
		return orNone(serve(ctx, c, req.TransactionalID, req, (*shard).handleEndTxn, refuseEndTxn))
	case *kmsg.AddPartitionsToTxnRequest:
		return orNone(c.handleAddPartitionsToTxn(ctx, req))
	case *kmsg.AddOffsetsToTxnRequest:
		of, e := c.addedOffsets(req)
		if e != nil {
			return refuseAddOffsetsToTxn(req, e), nil
		}
		out, err := c.addPartitions(ctx, of)
		if err != nil {
			return nil, err
		}
		return addedOffsetsAnswer(out), nil
	case *kmsg.DescribeTransactionsRequest:
		return orNone(c.handleDescribeTransactions(ctx, req))
	case *kmsg.ListTransactionsRequest:
		return orNone(c.handleListTransactions(ctx, req))
	default:
		return nil, fmt.Errorf("transaction coordinator does not serve %s (key %d)", kmsg.NameForKey(r.Key()), r.Key())
	}
}

// orNone keeps a nil pointer from becoming a response that is not nil.
func orNone[R kmsg.Response](resp R, err error) (kmsg.Response, error) {
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// serve runs a handler on the loop of the id's partition, and waits for the answer. What Kafka has a code for is
// answered by refuse.
func serve[Q, R any](ctx context.Context, c *Coordinator, id string, req Q,
	handle func(*shard, Q, *coordinator.Reply[R]), refuse func(Q, *kerr.Error) R,
) (R, error) {
	number, e := c.partitionOf(id)
	if e == nil {
		resp, err := coordinator.Do(ctx, c.run, number, func(st coordinator.State, reply *coordinator.Reply[R]) {
			handle(st.(*shard), req, reply)
		})
		if err == nil {
			return resp, nil
		}
		if e = coordinator.KafkaError(err); e == nil {
			return resp, err
		}
	}
	return refuse(req, e), nil
}

package txn

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/coordinator"
)

// DescribeTransactions (key 65).
//
// What the coordinator knows of transactional ids. Of a transaction that is decided it names the partitions that
// have no marker yet.

type described = kmsg.DescribeTransactionsResponseTransactionState

func (c *Coordinator) handleDescribeTransactions(
	ctx context.Context, req *kmsg.DescribeTransactionsRequest,
) (*kmsg.DescribeTransactionsResponse, error) {
	resp := kmsg.NewPtrDescribeTransactionsResponse()
	for _, id := range req.TransactionalIDs {
		one, err := serve(ctx, c, id, id, (*shard).handleDescribe, refuseDescribing)
		if err != nil {
			return nil, err
		}
		resp.TransactionStates = append(resp.TransactionStates, one)
	}
	return resp, nil
}

func refuseDescribing(id string, e *kerr.Error) described {
	out := kmsg.NewDescribeTransactionsResponseTransactionState()
	out.TransactionalID, out.ErrorCode = id, e.Code
	out.ProducerID, out.ProducerEpoch, out.StartTimestamp = -1, -1, -1
	return out
}

func (s *shard) handleDescribe(id string, reply *coordinator.Reply[described]) {
	t := s.ids[id]
	if t == nil {
		reply.Send(refuseDescribing(id, kerr.TransactionalIDNotFound))
		return
	}
	out := kmsg.NewDescribeTransactionsResponseTransactionState()
	out.TransactionalID, out.State, out.TimeoutMillis = id, t.state.String(), t.timeout
	out.StartTimestamp, out.ProducerID, out.ProducerEpoch = t.started, t.producerID, t.epoch
	left := t.partitions
	if t.ending != nil {
		left = t.ending.left
	}
	for i := range left {
		topic := kmsg.NewDescribeTransactionsResponseTransactionStateTopic()
		topic.Topic, topic.Partitions = left[i].topic, append([]int32(nil), left[i].numbers...)
		out.Topics = append(out.Topics, topic)
	}
	reply.Send(out)
}

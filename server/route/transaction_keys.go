package route

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
)

// eitherWay takes one of two ways.
func eitherWay(first func(kmsg.Request) bool, yes, no way) way {
	return func(ctx context.Context, r *Router, req kmsg.Request) (kmsg.Response, error) {
		if first(req) {
			return yes(ctx, r, req)
		}
		return no(ctx, r, req)
	}
}

type (
	addedTo = kmsg.AddPartitionsToTxnRequestTransaction
	added   = kmsg.AddPartitionsToTxnResponseTransaction
)

// addPartitionsToTxn routes AddPartitionsToTxn in its form for many transactions, whose codes stand with the
// partitions.
func addPartitionsToTxn() way {
	return byCoordinators(coordinated[addedTo, added]{
		topic: metadata.TxnTopic,
		asked: func(r kmsg.Request) []addedTo { return r.(*kmsg.AddPartitionsToTxnRequest).Transactions },
		about: func(r kmsg.Request, transactions []addedTo) kmsg.Request {
			part := *r.(*kmsg.AddPartitionsToTxnRequest)
			part.Transactions = transactions
			return &part
		},
		id:       func(t *addedTo) string { return t.TransactionalID },
		answers:  func(r kmsg.Response) []added { return r.(*kmsg.AddPartitionsToTxnResponse).Transactions },
		answered: func(t *added) string { return t.TransactionalID },
		code: func(t *added) int16 {
			for _, topic := range t.Topics {
				for _, p := range topic.Partitions {
					if moving(p.ErrorCode) {
						return p.ErrorCode
					}
				}
			}
			return 0
		},
		refuse: refuseAdding,
		whole: func(r kmsg.Request, transactions []added) kmsg.Response {
			resp := r.ResponseKind().(*kmsg.AddPartitionsToTxnResponse)
			resp.Transactions = transactions
			return resp
		},
	})
}

func refuseAdding(t *addedTo, code int16) added {
	out := kmsg.NewAddPartitionsToTxnResponseTransaction()
	out.TransactionalID = t.TransactionalID
	for _, topic := range t.Topics {
		to := kmsg.NewAddPartitionsToTxnResponseTransactionTopic()
		to.Topic = topic.Topic
		for _, number := range topic.Partitions {
			p := kmsg.NewAddPartitionsToTxnResponseTransactionTopicPartition()
			p.Partition, p.ErrorCode = number, code
			to.Partitions = append(to.Partitions, p)
		}
		out.Topics = append(out.Topics, to)
	}
	return out
}

// transaction is the state of one.
type transaction = kmsg.DescribeTransactionsResponseTransactionState

func describeTransactions() way {
	return byCoordinators(coordinated[string, transaction]{
		topic: metadata.TxnTopic,
		asked: func(r kmsg.Request) []string { return r.(*kmsg.DescribeTransactionsRequest).TransactionalIDs },
		about: func(r kmsg.Request, ids []string) kmsg.Request {
			part := *r.(*kmsg.DescribeTransactionsRequest)
			part.TransactionalIDs = ids
			return &part
		},
		id: func(id *string) string { return *id },
		answers: func(r kmsg.Response) []transaction {
			return r.(*kmsg.DescribeTransactionsResponse).TransactionStates
		},
		answered: func(t *transaction) string { return t.TransactionalID },
		code:     func(t *transaction) int16 { return t.ErrorCode },
		refuse: func(id *string, code int16) transaction {
			out := kmsg.NewDescribeTransactionsResponseTransactionState()
			out.TransactionalID, out.ErrorCode = *id, code
			return out
		},
		whole: func(r kmsg.Request, states []transaction) kmsg.Response {
			resp := r.ResponseKind().(*kmsg.DescribeTransactionsResponse)
			resp.TransactionStates = states
			return resp
		},
	})
}

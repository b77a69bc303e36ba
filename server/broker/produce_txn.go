package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/record"
	"millrace/server/partition"
)

// Batches of transactions. Clients do not tell the coordinator which partitions a transaction has: each leader does,
// when the first batch of a transaction comes, and appends that only when the coordinator has agreed. The leave to
// append is asked of the partition before, and is void when a marker arrives meanwhile.

// admission is the leave of one batch to be appended in its transaction, or why it has none.
type admission struct {
	guard partition.TxnGuard
	asked bool // the coordinator is to be asked
	err   error
}

// coordinatorPause is the time between two questions to a coordinator that is not ready.
const coordinatorPause = 20 * time.Millisecond

// errNoCoordinator says that the transaction's coordinator did not answer in time. Nothing was appended.
var errNoCoordinator = fmt.Errorf("%w: it has not agreed to the partition in time", kerr.CoordinatorNotAvailable)

// admit finds out which batches of a request may be appended in its transaction. An error means that the context ended.
func (p *producer) admit(ctx context.Context) error {
	p.admissions = make(map[*kmsg.ProduceRequestTopicPartition]*admission)
	var add *kmsg.AddPartitionsToTxnRequest
	for i := range p.req.Topics {
		t := &p.req.Topics[i]
		for j := range t.Partitions {
			in := &t.Partitions[j]
			a := p.ask(t, in)
			p.admissions[in] = a
			if a.asked {
				add = p.added(add, p.topicName(t), in)
			}
		}
	}
	if add == nil {
		return nil
	}
	codes, err := p.agree(ctx, add)
	if ctx.Err() != nil {
		return noAnswer(ctx)
	}
	for i := range p.req.Topics {
		t := &p.req.Topics[i]
		name := p.topicName(t)
		for j := range t.Partitions {
			a := p.admissions[&t.Partitions[j]]
			if !a.asked {
				continue
			}
			if a.err = err; err == nil {
				a.err = disagreement(codes[topicPartition{name, t.Partitions[j].Partition}])
			}
		}
	}
	return nil
}

// topicName names a topic that the request may give by its id alone.
func (p *producer) topicName(t *kmsg.ProduceRequestTopic) string {
	if topic, unknown := p.view.topic(t.Topic, t.TopicID); unknown == nil {
		return topic.Name
	}
	return t.Topic
}

// ask asks a partition for the leave to append a batch. What is wrong with the batch itself the append says.
func (p *producer) ask(t *kmsg.ProduceRequestTopic, in *kmsg.ProduceRequestTopicPartition) *admission {
	leader, err := p.lookUp(t, in)
	if err != nil {
		return &admission{} // said when it is looked up to append
	}
	b := record.Batch(in.Records)
	if !ofTransaction(b) {
		return &admission{err: errOutside}
	}
	if b.ProducerID() < 0 {
		return &admission{}
	}
	g, open, err := leader.TxnGuard(b.ProducerID(), b.ProducerEpoch())
	return &admission{guard: g, asked: err == nil && !open, err: err}
}

// errOutside says that a batch does not belong to the transaction that its request names.
var errOutside = fmt.Errorf("%w: the request names a transaction that the batch is not part of", record.ErrInvalid)

func ofTransaction(b record.Batch) bool {
	return len(b) >= record.HeaderSize && b.Magic() == 2 && b.IsTransactional()
}

// added puts one more partition into the question to the coordinator.
func (p *producer) added(add *kmsg.AddPartitionsToTxnRequest, topic string,
	in *kmsg.ProduceRequestTopicPartition) *kmsg.AddPartitionsToTxnRequest {
	b := record.Batch(in.Records)
	if add == nil {
		add = kmsg.NewPtrAddPartitionsToTxnRequest()
		add.Version = add.MaxVersion()
		txn := kmsg.NewAddPartitionsToTxnRequestTransaction()
		txn.TransactionalID, txn.ProducerID, txn.ProducerEpoch = *p.req.TransactionID, b.ProducerID(), b.ProducerEpoch()
		add.Transactions = append(add.Transactions, txn)
	}
	topics := &add.Transactions[0].Topics
	if n := len(*topics); n == 0 || (*topics)[n-1].Topic != topic {
		t := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
		t.Topic = topic
		*topics = append(*topics, t)
	}
	last := &(*topics)[len(*topics)-1]
	last.Partitions = append(last.Partitions, in.Partition)
	return add
}

// topicPartition names a partition.
type topicPartition struct {
	topic  string
	number int32
}

// agree asks the coordinator, and asks again as long as it moves, loads or lacks metadata and the request has time.
func (p *producer) agree(ctx context.Context, add *kmsg.AddPartitionsToTxnRequest) (map[topicPartition]int16, error) {
	if p.broker.cfg.Cluster == nil {
		return nil, errNoCoordinator
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(max(p.req.TimeoutMillis, 0))*time.Millisecond)
	defer cancel()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return nil, errNoCoordinator
		}
		resp, err := add.RequestWith(ctx, p.broker.cfg.Cluster)
		if err == nil {
			codes, again := agreement(add, resp)
			if !again {
				return codes, nil
			}
		}
		pause.Reset(coordinatorPause)
	}
}

// agreement reads the coordinator's answer; again says that it is not ready.
func agreement(add *kmsg.AddPartitionsToTxnRequest,
	resp *kmsg.AddPartitionsToTxnResponse) (codes map[topicPartition]int16, again bool) {
	codes = make(map[topicPartition]int16)
	for _, t := range add.Transactions[0].Topics {
		for _, number := range t.Partitions { // what is left out is not agreed to
			codes[topicPartition{t.Topic, number}] = kerr.UnknownServerError.Code
			if resp.ErrorCode != 0 {
				codes[topicPartition{t.Topic, number}] = resp.ErrorCode
			}
		}
	}
	for i := range resp.Transactions {
		for _, t := range resp.Transactions[i].Topics {
			for _, one := range t.Partitions {
				codes[topicPartition{t.Topic, one.Partition}] = one.ErrorCode
			}
		}
	}
	final := false
	for _, code := range codes {
		switch code {
		case 0:
		case kerr.CoordinatorLoadInProgress.Code, kerr.CoordinatorNotAvailable.Code, kerr.NotCoordinator.Code,
			kerr.NetworkException.Code,        // adding a partition once more does no harm
			kerr.UnknownTopicOrPartition.Code: // this node leads it, so the coordinator's metadata is older
			again = true
		case kerr.OperationNotAttempted.Code: // because of another
		default:
			final = true
		}
	}
	return codes, again && !final
}

// disagreement is why a batch is refused by the coordinator's code, nil for 0. That a producer is fenced is said as the
// partition itself would say it, for in answers to Produce clients know no other word.
func disagreement(code int16) error {
	if code == kerr.ProducerFenced.Code {
		return kerr.InvalidProducerEpoch
	}
	return kerr.ErrorForCode(code)
}

// refuseTransaction finds what is wrong with the transaction of a request as a whole.
func refuseTransaction(req *kmsg.ProduceRequest) error {
	var (
		found bool
		id    int64
		epoch int16
	)
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			b := record.Batch(req.Topics[i].Partitions[j].Records)
			switch {
			case !ofTransaction(b):
			case req.TransactionID == nil:
				return partition.ErrTransactional
			case found && (b.ProducerID() != id || b.ProducerEpoch() != epoch):
				return kerr.InvalidProducerIDMapping
			default:
				found, id, epoch = true, b.ProducerID(), b.ProducerEpoch()
			}
		}
	}
	switch {
	case req.TransactionID == nil:
		return nil
	case *req.TransactionID == "":
		return kerr.InvalidRequest
	case req.Acks != acksAll: // a batch that is lost afterwards would be missing from a transaction that is committed
		return kerr.InvalidRequiredAcks
	}
	return nil
}

// notAdmitted fills in the answer for a batch that was not appended because its transaction does not allow that.
func (p *producer) notAdmitted(out *kmsg.ProduceResponseTopicPartition, a *admission) {
	p.refuse(out, a.err)
	if a.asked { // the coordinator's codes may mean anything in the answer to a produce
		ktag.SetNotWritten(&out.UnknownTags)
	}
}

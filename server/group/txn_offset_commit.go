package group

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/server/coordinator"
	"millrace/server/metadata"
)

// TxnOffsetCommit (key 28).
//
// Offsets that are committed with a transaction. The partition of the group is made part of the transaction first, if
// it is not yet; a guard taken before that makes sure that nothing is appended when the transaction has ended in the
// meantime. The records count when the marker of the transaction says so, and until then fetches that ask for stable
// offsets are told to wait.

func (c *Coordinator) handleTxnOffsetCommit(
	ctx context.Context, req *kmsg.TxnOffsetCommitRequest,
) (*kmsg.TxnOffsetCommitResponse, error) {
	number, e := c.partitionOf(req.Group)
	switch {
	case e != nil:
		return refuseTxnOffsetCommit(req, e), nil
	case req.TransactionalID == "":
		return refuseTxnOffsetCommit(req, kerr.InvalidRequest), nil
	case req.ProducerID < 0 || req.ProducerEpoch < 0:
		return refuseTxnOffsetCommit(req, kerr.InvalidProducerIDMapping), nil
	}
	guard, open, err := c.run.Guard(number, req.ProducerID, req.ProducerEpoch)
	batch := coordinator.TxnBatch{ProducerID: req.ProducerID, ProducerEpoch: req.ProducerEpoch}
	if err == nil && !open {
		batch.Guard = &guard
		err = c.addToTransaction(ctx, req, number)
	}
	var resp *kmsg.TxnOffsetCommitResponse
	if err == nil {
		resp, err = coordinator.Do(ctx, c.run, number,
			func(st coordinator.State, reply *coordinator.Reply[*kmsg.TxnOffsetCommitResponse]) {
				st.(*shard).handleTxnOffsetCommit(req, batch, reply)
			})
	}
	if err == nil {
		return resp, nil
	}
	if e := coordinator.KafkaError(err); e != nil {
		return refuseTxnOffsetCommit(req, e), nil
	}
	return nil, err
}

// addToTransaction makes a partition of the offsets topic part of the transaction.
func (c *Coordinator) addToTransaction(ctx context.Context, of *kmsg.TxnOffsetCommitRequest, number int32) error {
	topic := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
	topic.Topic, topic.Partitions = metadata.GroupTopic, []int32{number}
	txn := kmsg.NewAddPartitionsToTxnRequestTransaction()
	txn.TransactionalID, txn.ProducerID, txn.ProducerEpoch = of.TransactionalID, of.ProducerID, of.ProducerEpoch
	txn.Topics = append(txn.Topics, topic)
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.Version = 4
	req.Transactions = append(req.Transactions, txn)
	resp, err := req.RequestWith(ctx, c.cfg.Cluster)
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		return kerr.CoordinatorNotAvailable // adding a partition once more does no harm
	}
	return addedToTransaction(resp)
}

// addedToTransaction is what came of one partition, the only one asked for.
func addedToTransaction(resp *kmsg.AddPartitionsToTxnResponse) error {
	code, found := resp.ErrorCode, false
	for i := range resp.Transactions {
		for j := range resp.Transactions[i].Topics {
			for _, p := range resp.Transactions[i].Topics[j].Partitions {
				found = true
				if code == 0 {
					code = p.ErrorCode
				}
			}
		}
	}
	switch code {
	case 0:
		if !found {
			return kerr.UnknownServerError
		}
		return nil
	case kerr.NotCoordinator.Code, kerr.CoordinatorLoadInProgress.Code, // would be read as said of the group's
		kerr.UnknownTopicOrPartition.Code, // this node leads it, so the coordinator's metadata is older
		kerr.NetworkException.Code:        // adding it once more does no harm
		return kerr.CoordinatorNotAvailable
	}
	return kerr.ErrorForCode(code)
}

func (s *shard) handleTxnOffsetCommit(
	req *kmsg.TxnOffsetCommitRequest, batch coordinator.TxnBatch,
	reply *coordinator.Reply[*kmsg.TxnOffsetCommitResponse],
) {
	who := committer{member: req.MemberID, instance: req.InstanceID, generation: req.Generation, txn: true}
	if e := s.groups[req.Group].checkCommit(who); e != nil {
		reply.Send(refuseTxnOffsetCommit(req, e))
		return
	}
	c := s.newCommit(req.Group)
	if c.producer = batch.ProducerID; ktag.Held(&req.UnknownTags) {
		c.holder = req.MemberID
	}
	resp := kmsg.NewPtrTxnOffsetCommitResponse()
	for i := range req.Topics {
		in, out := &req.Topics[i], kmsg.NewTxnOffsetCommitResponseTopic()
		out.Topic, out.TopicID = in.Topic, in.TopicID
		topic, e := c.topic(in.Topic, in.TopicID)
		for j := range in.Partitions {
			p := &in.Partitions[j]
			o := kmsg.NewTxnOffsetCommitResponseTopicPartition()
			o.Partition, o.ErrorCode = p.Partition, codeOf(e)
			if e == nil {
				o.ErrorCode = codeOf(c.add(topic, &wanted{p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, &p.UnknownTags},
					&o.UnknownTags))
			}
			out.Partitions = append(out.Partitions, o)
		}
		resp.Topics = append(resp.Topics, out)
	}
	if e := c.tooLarge(); e != nil {
		reply.Send(refuseTxnOffsetCommit(req, e))
		return
	}
	if err := s.run.AppendTxn(batch, c.records...); err != nil {
		reply.Send(refuseTxnOffsetCommit(req, appendRefusal(err)))
		return
	}
	c.doneTxn(batch.ProducerID)
	reply.Send(resp)
}

// doneTxn is done for records of a transaction.
func (c *commit) doneTxn(producerID int64) {
	c.shard.metrics.commits.Add(float64(len(c.records)))
	g, txn := c.shard.groups[c.group], c.shard.pending[producerID]
	if g == nil || txn == nil {
		return
	}
	for _, m := range c.marks {
		if o := txn.offsets[groupPartition{g, topicPartition{m.topic.Name, m.partition}}]; o != nil {
			o.topicID = m.topic.ID
		}
	}
}

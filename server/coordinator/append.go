package coordinator

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/record"
	"millrace/server/partition"
)

// TxnBatch says for which transaction records are appended.
type TxnBatch struct {
	ProducerID    int64
	ProducerEpoch int16
	Guard         *partition.TxnGuard // nil: the transaction has the partition already
}

// Append appends records as one atomic batch, and replays them into the state. After an error, which is a *kerr.Error,
// nothing was appended and nothing replayed.
func (s *Shard) Append(kvs ...KV) error { return s.append(nil, kvs) }

// AppendTxn is Append for records that count when the marker of their transaction says so.
func (s *Shard) AppendTxn(b TxnBatch, kvs ...KV) error { return s.append(&b, kvs) }

func (s *Shard) append(txn *TxnBatch, kvs []KV) error {
	if len(kvs) == 0 {
		return nil
	}
	now := s.Now().UnixMilli()
	s.build.Reset(nil)
	r := Record{Timestamp: now, ProducerID: -1, ProducerEpoch: -1}
	req := partition.AppendRequest{AllInSync: true, Expected: -1, Epoch: s.epoch}
	if txn != nil {
		r.ProducerID, r.ProducerEpoch = txn.ProducerID, txn.ProducerEpoch
		req.Guard, req.Coordinator = txn.Guard, true
		s.build.SetTransactional()
		s.build.SetProducer(txn.ProducerID, txn.ProducerEpoch, -1)
	}
	for i := range kvs {
		s.build.Append(&record.Record{Timestamp: now, Key: kvs[i].Key, Value: kvs[i].Value})
	}
	req.Batch = s.build.Build()
	a, err := s.leader.Append(s.ctx, &req)
	if cap(req.Batch) > keptBuilder {
		s.build = record.Builder{}
	}
	if err != nil {
		return s.failed(err)
	}
	s.end = a.Next
	for i := range kvs {
		r.Offset, r.Key, r.Value = a.BaseOffset+int64(i), kvs[i].Key, kvs[i].Value
		s.state.Replay(&r)
	}
	return nil
}

// AppendMarker ends a transaction in this partition, and tells the state so. A marker that the log has already
// changes nothing.
func (s *Shard) AppendMarker(m *partition.Marker) error {
	own := *m
	own.Epoch = s.epoch
	a, err := s.leader.AppendMarker(s.ctx, &own)
	if err != nil {
		return s.failed(err)
	}
	s.end = max(s.end, a.Next)
	if !a.Duplicate {
		s.state.Marker(m.ProducerID, m.ProducerEpoch, m.Commit)
	}
	return nil
}

// failed translates the error of an append. A log in which this shard may not append any more ends it.
func (s *Shard) failed(err error) error {
	s.runtime.cfg.Failed(s.leader.Name(), err)
	if isOver(err) {
		s.resign(kerr.NotCoordinator)
	}
	err = refusal(err)
	if !errors.Is(err, kerr.NotCoordinator) {
		s.log.Debug("append refused", "err", err)
	}
	return err
}

// isOver says that this node leads the partition no longer, or that there is none any more.
func isOver(err error) bool {
	return errors.Is(err, partition.ErrNotLeader) || errors.Is(err, partition.ErrDeleted)
}

// refusal is what a client of a coordinator is told of an error of the log.
func refusal(err error) error {
	if err == nil {
		return nil
	}
	switch code := partition.Explain(err).Code; code {
	case kerr.UnknownTopicOrPartition.Code, kerr.NotEnoughReplicas.Code, kerr.NotEnoughReplicasAfterAppend.Code,
		kerr.RequestTimedOut.Code:
		return kerr.CoordinatorNotAvailable
	case kerr.NotLeaderForPartition.Code, kerr.KafkaStorageError.Code, kerr.FencedLeaderEpoch.Code,
		kerr.UnknownLeaderEpoch.Code:
		return kerr.NotCoordinator
	case kerr.MessageTooLarge.Code, kerr.RecordListTooLarge.Code:
		return kerr.UnknownServerError
	default:
		return kerr.ErrorForCode(code)
	}
}

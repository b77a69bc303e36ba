package txn

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
)

// AddOffsetsToTxn (key 25).
//
// AddPartitionsToTxn for the partition of the offsets topic that a group lives in. Nothing has to ask for it: the
// group coordinator adds its partition itself.

// addedOffsets is such a request as one about partitions.
func (c *Coordinator) addedOffsets(req *kmsg.AddOffsetsToTxnRequest) (*addedTo, *kerr.Error) {
	if req.Group == "" {
		return nil, kerr.InvalidGroupID
	}
	topic := c.cfg.Image().Topic(metadata.GroupTopic)
	if topic == nil {
		return nil, kerr.CoordinatorNotAvailable
	}
	t := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
	t.Topic = metadata.GroupTopic
	t.Partitions = []int32{metadata.CoordinatorPartition(req.Group, int32(len(topic.Partitions)))}
	of := kmsg.NewAddPartitionsToTxnRequestTransaction()
	of.TransactionalID, of.ProducerID, of.ProducerEpoch = req.TransactionalID, req.ProducerID, req.ProducerEpoch
	of.Topics = append(of.Topics, t)
	return &of, nil
}

func addedOffsetsAnswer(out added) *kmsg.AddOffsetsToTxnResponse {
	resp := kmsg.NewPtrAddOffsetsToTxnResponse()
	resp.ErrorCode = out.Topics[0].Partitions[0].ErrorCode
	return resp
}

func refuseAddOffsetsToTxn(_ *kmsg.AddOffsetsToTxnRequest, e *kerr.Error) *kmsg.AddOffsetsToTxnResponse {
	resp := kmsg.NewPtrAddOffsetsToTxnResponse()
	resp.ErrorCode = e.Code
	return resp
}

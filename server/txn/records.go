package txn

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The records of __transaction_state, byte for byte Kafka's. A key is
//
//	i16 0 | string transactional id, as i16 length and bytes
//
// and a value, of version 1,
//
//	i16 1 | i64 producer id | i16 epoch | i32 timeout in ms | i8 state
//	| compact nullable array of {compact string topic, compact array of i32 partition, tags}; null when Empty
//	| i64 time of the last change | i64 time when the transaction began, or -1
//	| tags: 0 i64 producer id before, 1 i64 next producer id, 2 i16 transaction version of the client
//
// to which comes a tag of ours, 10000: i16 epoch that the producer had before it asked for the present one, where
// it named that itself. Kafka keeps it in memory alone, and refuses a retry after the coordinator has moved. A null
// value is a tombstone.
const (
	keyVersion   = 0
	valueVersion = 1
	tagLastEpoch = 10000

	// clientVersion is the transaction version of all clients.
	clientVersion = 2
)

// The states of a transactional id.
const (
	empty          = kmsg.TransactionStateEmpty
	ongoing        = kmsg.TransactionStateOngoing
	prepareCommit  = kmsg.TransactionStatePrepareCommit
	prepareAbort   = kmsg.TransactionStatePrepareAbort
	completeCommit = kmsg.TransactionStateCompleteCommit
	completeAbort  = kmsg.TransactionStateCompleteAbort
)

var (
	errUnknownVersion = errors.New("record of an unknown version")
	errBadRecord      = errors.New("record that does not decode")
)

// value is what is kept of one transactional id.
type value struct {
	producerID int64
	epoch      int16
	// previousID is the producer id before this one, if that ran out of epochs, else -1.
	previousID int64
	// nextID is, while a transaction is being ended, the producer id to go on with, -1: the same.
	nextID int64
	// lastEpoch is the epoch of which a producer that names it has missed the answer with the present one, or -1.
	// What ends a transaction sets it, which the record does not have to say.
	lastEpoch  int16
	timeout    int32 // in milliseconds
	state      kmsg.TransactionState
	partitions partitions
	updated    int64 // in milliseconds of the wall clock
	started    int64 // likewise, -1: never
	version    int16 // of the client's transactions
}

// preparing says that the transaction is decided and that markers are being written.
func (v *value) preparing() bool { return v.state == prepareCommit || v.state == prepareAbort }

// commits says, of a transaction that is decided, how.
func (v *value) commits() bool { return v.state == prepareCommit || v.state == completeCommit }

// partitions are those of a transaction, in the order in which they came.
type partitions []topicPartitions

type topicPartitions struct {
	topic   string
	numbers []int32
}

func (p partitions) has(topic string, number int32) bool {
	for i := range p {
		if p[i].topic == topic {
			return slices.Contains(p[i].numbers, number)
		}
	}
	return false
}

// with adds a partition. Nothing that p refers to changes.
func (p partitions) with(topic string, number int32) partitions {
	for i := range p {
		if p[i].topic == topic {
			p = slices.Clone(p)
			p[i].numbers = append(slices.Clip(p[i].numbers), number)
			return p
		}
	}
	return append(slices.Clip(p), topicPartitions{topic, []int32{number}})
}

// without takes a partition out. Nothing that p refers to changes.
func (p partitions) without(topic string, number int32) partitions {
	for i := range p {
		if p[i].topic != topic {
			continue
		}
		at := slices.Index(p[i].numbers, number)
		switch {
		case at < 0:
			return p
		case len(p[i].numbers) == 1:
			return slices.Delete(slices.Clone(p), i, i+1)
		}
		p = slices.Clone(p)
		p[i].numbers = slices.Delete(slices.Clone(p[i].numbers), at, at+1)
		return p
	}
	return p
}

func (p partitions) count() (n int) {
	for i := range p {
		n += len(p[i].numbers)
	}
	return n
}

func encodeKey(id string) []byte {
	dst := make([]byte, 0, 2+2+len(id))
	dst = kbin.AppendInt16(dst, keyVersion)
	return kbin.AppendString(dst, id)
}

func decodeKey(src []byte) (id string, err error) {
	b := kbin.Reader{Src: src}
	version := b.Int16()
	if b.Ok() && version != keyVersion {
		return "", errUnknownVersion
	}
	id = strings.Clone(b.String())
	if b.Complete() != nil || len(b.Src) != 0 {
		return "", errBadRecord
	}
	return id, nil
}

func encodeValue(v *value) []byte {
	out := kmsg.NewTxnMetadataValue()
	out.Version = valueVersion
	out.ProducerID, out.ProducerEpoch = v.producerID, v.epoch
	out.TimeoutMillis, out.State = v.timeout, v.state
	out.LastUpdateTimestamp, out.StartTimestamp = v.updated, v.started
	out.PreviousProducerID, out.NextProducerID = v.previousID, v.nextID
	out.ClientTransactionVersion = v.version
	if v.state != empty {
		out.Topics = make([]kmsg.TxnMetadataValueTopic, len(v.partitions))
	}
	for i := range out.Topics {
		out.Topics[i] = kmsg.NewTxnMetadataValueTopic()
		out.Topics[i].Topic, out.Topics[i].Partitions = v.partitions[i].topic, v.partitions[i].numbers
	}
	if v.state == empty && v.lastEpoch >= 0 {
		out.UnknownTags.Set(tagLastEpoch, binary.BigEndian.AppendUint16(nil, uint16(v.lastEpoch)))
	}
	return out.AppendTo(nil)
}

// decodeValue reads versions 0 and 1. Nothing of it refers to src. limit is the last epoch that producers get.
func decodeValue(src []byte, limit int16) (*value, error) {
	if b := (kbin.Reader{Src: src}); len(src) >= 2 {
		if version := b.Int16(); version < 0 || version > valueVersion {
			return nil, errUnknownVersion
		}
	}
	in := kmsg.NewTxnMetadataValue()
	if err := in.ReadFrom(slices.Clone(src)); err != nil {
		return nil, errBadRecord
	}
	v := &value{
		producerID: in.ProducerID, epoch: in.ProducerEpoch, previousID: in.PreviousProducerID,
		nextID: in.NextProducerID, lastEpoch: -1, timeout: in.TimeoutMillis, state: in.State,
		updated: in.LastUpdateTimestamp, started: in.StartTimestamp, version: in.ClientTransactionVersion,
	}
	if v.state < empty || v.state > completeAbort { // the others are never written
		return nil, errBadRecord
	}
	for i := range in.Topics {
		v.partitions = append(v.partitions, topicPartitions{in.Topics[i].Topic, in.Topics[i].Partitions})
	}
	in.UnknownTags.Each(func(tag uint32, b []byte) {
		if tag == tagLastEpoch && len(b) == 2 {
			v.lastEpoch = int16(binary.BigEndian.Uint16(b))
		}
	})
	v.inferLastEpoch(limit)
	return v, nil
}

// inferLastEpoch finds the epoch before the end of a transaction.
func (v *value) inferLastEpoch(limit int16) {
	switch {
	case v.state == empty || v.state == ongoing || v.version < clientVersion:
	case v.epoch > 0:
		v.lastEpoch = v.epoch - 1
	case v.previousID >= 0:
		v.lastEpoch = limit
	}
}

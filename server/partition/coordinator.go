package partition

import (
	"context"

	"millrace/storage"
)

// Read reads batches from an offset on, committed or not, up to the end of the log: what a coordinator needs that
// folds the log it leads. next is the offset behind batches. One whole batch may exceed maxBytes.
func (l *Leader) Read(from int64, maxBytes int, alloc func(n int) []byte) (batches []byte, next int64, err error) {
	if l.ended() {
		return nil, from, l.whyGone()
	}
	b := l.Bounds()
	switch {
	case from < b.LogStart || from > b.LogEnd:
		return nil, from, outOfRange(from, b)
	case from == b.LogEnd:
		return nil, from, nil
	}
	var res storage.ReadResult
	if res, err = l.log.Read(from, maxBytes, b.LogEnd, alloc); err != nil {
		return nil, from, l.readFailed(from, err)
	}
	return res.Batches, res.NextOffset, nil
}

// TxnGuard is a producer's leave to append to a partition that its transaction does not have yet.
type TxnGuard struct{}

// TxnGuard asks for a producer's leave to append in a transaction; open says that the transaction has the partition
// already.
func (l *Leader) TxnGuard(int64, int16) (g TxnGuard, open bool, err error) {
	return TxnGuard{}, false, ErrTransactional
}

// Marker is the end of a producer's transaction on a partition.
type Marker struct {
	ProducerID       int64
	ProducerEpoch    int16
	CoordinatorEpoch int32
	Commit           bool
	Version          int8
	Epoch            int32 // append only in this leader epoch, -1: in any
}

// AppendMarker ends a transaction.
func (l *Leader) AppendMarker(context.Context, *Marker) (Appended, error) {
	return Appended{}, ErrTransactional
}

package partition

import "millrace/storage"

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

package storage

import (
	"errors"

	"millrace/record"
)

// maxAbortedAhead is how many aborted transactions the first pass of a round looks at together at most: it ends there,
// as where the map is full.
const maxAbortedAhead = 100_000

// abortedAhead tells of the batches of a log, which are gone through in order, whether their transactions were aborted.
// It reads the index of aborted transactions as far ahead as it has to, and no further.
type abortedAhead struct {
	log   *Log
	list  segmentList // those whose indexes are still to be read
	state *txnState   // of the first of them, nil if it has not been looked at
	next  int         // entry to be read in it
	from  int64       // what ends before does not matter

	block []AbortedTxn // read, but not taken up
	// stable is an offset below which no transaction begins that has not been taken up.
	stable int64
	open   map[int64][]AbortedTxn // taken up, by producer, in order
	count  int
}

// reset begins with the markers at or above an offset. It looks at all of the files now: later some may be gone, whose
// entries have been read by then.
func (a *abortedAhead) reset(l *Log, list segmentList, from int64) error {
	*a = abortedAhead{log: l, list: list, from: from, stable: -1, open: map[int64][]AbortedTxn{}}
	if !l.transactional.Load() {
		a.list = nil
	}
	for _, s := range a.list {
		if _, err := s.loadAborted(); errors.Is(err, errDamagedIndex) {
			return l.damagedAborted(s)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// look takes up every transaction that has data at or below an offset.
func (a *abortedAhead) look(offset int64) error {
	for a.stable <= offset {
		if len(a.block) == 0 {
			more, err := a.read()
			if !more || err != nil {
				return err
			}
			continue
		}
		t := a.block[0]
		a.block = a.block[1:]
		a.open[t.ProducerID] = append(a.open[t.ProducerID], t)
		a.stable = t.LastStable
		a.count++
	}
	return nil
}

// read reads the next entries of the index.
func (a *abortedAhead) read() (more bool, err error) {
	if len(a.list) == 0 {
		return false, nil
	}
	s := a.list[0]
	if a.state == nil {
		if a.state, err = s.loadAborted(); err == nil {
			a.next, err = s.searchAborted(a.state, a.from)
		}
	}
	if err == nil {
		err = a.readFrom(s)
	}
	if errors.Is(err, errDamagedIndex) {
		return false, a.log.damagedAborted(s)
	}
	return true, err
}

func (a *abortedAhead) readFrom(s *segment) error {
	st := a.state
	switch {
	case a.next < st.saved:
		buf := s.log.dir.scratch.get()
		defer s.log.dir.scratch.put(buf)
		n := min(st.saved-a.next, len(buf)/txnEntrySize)
		if err := s.readAborted(buf[:n*txnEntrySize], a.next); err != nil {
			return err
		}
		for i := range n {
			t, ok := abortedAt(buf, i)
			if !ok {
				return errDamagedIndex
			}
			a.block = append(a.block, t)
		}
		a.next += n
	case a.next < st.count():
		a.block = append(a.block, st.tail[a.next-st.saved:]...)
		a.next = st.count()
	default:
		a.list, a.state = a.list[1:], nil
	}
	return nil
}

// aborted gives the transaction that a data batch of a producer belongs to, if it was aborted. look comes before.
func (a *abortedAhead) aborted(producerID, offset int64) bool {
	a.forget(producerID, offset-1)
	list := a.open[producerID]
	return len(list) > 0 && list[0].FirstOffset <= offset
}

// ended gives the entry of an ABORT marker.
func (a *abortedAhead) ended(producerID, marker int64) (t AbortedTxn, ok bool) {
	a.forget(producerID, marker-1)
	if list := a.open[producerID]; len(list) > 0 && list[0].LastOffset == marker {
		t, ok = list[0], true
		a.forget(producerID, marker)
	}
	return t, ok
}

// forget drops a producer's transactions that ended at or below an offset.
func (a *abortedAhead) forget(producerID, offset int64) {
	list, ok := a.open[producerID]
	if !ok {
		return
	}
	n := 0
	for n < len(list) && list[n].LastOffset <= offset {
		n++
	}
	a.count -= n
	if n == len(list) {
		delete(a.open, producerID)
	} else {
		a.open[producerID] = list[n:]
	}
}

// txnsSeen carries what is known of transactions over the batches of a round, whatever segments and groups they are in.
type txnsSeen struct {
	abortedAhead
	// seen are the producers of whose transaction, that no marker has ended, there was a record.
	seen map[int64]bool
}

func (t *txnsSeen) reset(l *Log, list segmentList) error {
	t.seen = map[int64]bool{}
	return t.abortedAhead.reset(l, list, 0)
}

// data takes note of a data batch and says whether it belongs to an aborted transaction.
func (t *txnsSeen) data(b record.Batch) (aborted bool, err error) {
	if !b.IsTransactional() {
		return false, nil
	}
	if err := t.look(b.LastOffset()); err != nil {
		return false, err
	}
	if b.Count() > 0 {
		t.seen[b.ProducerID()] = true
	}
	return t.aborted(b.ProducerID(), b.BaseOffset()), nil
}

// ending is what a marker marks.
type ending struct {
	bare    bool       // no record of its transaction was seen, so it marks nothing
	entry   AbortedTxn // of the index
	indexed bool       // there is one
}

// marker takes note of a marker.
func (t *txnsSeen) marker(b record.Batch, m *record.EndTxnMarker) (e ending, err error) {
	e.bare = !t.seen[m.ProducerID]
	delete(t.seen, m.ProducerID)
	if m.Type != record.ControlAbort {
		return e, nil
	}
	if err := t.look(b.LastOffset()); err != nil {
		return e, err
	}
	e.entry, e.indexed = t.ended(m.ProducerID, b.LastOffset())
	return e, nil
}

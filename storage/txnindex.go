package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"sync/atomic"

	"millrace/internal/invariant"
)

// A segment's index of aborted transactions is a list of fixed-size entries, big-endian, by rising last offset:
//
//	.txnindex  +-----------+---------------+----------------+---------------+--------------------+
//	           | version 2 | producer id 8 | first offset 8 | last offset 8 | last stable offset |
//	           | = 0       |               |                | of the marker | behind it, 8       |
//	           +-----------+---------------+----------------+---------------+--------------------+
//
// There is one for each ABORT marker in the segment whose transaction had data in the log, and no file where there is
// none. That the entry of every such marker is there is for the log's owner to see to, who alone knows where
// transactions began: the recovery point does not pass a marker whose entry it has not given.
const (
	txnEntrySize = 34
	txnVersion   = 0
)

// AbortedTxn is a transaction that was aborted, with data in the log.
type AbortedTxn struct {
	ProducerID  int64
	FirstOffset int64 // of its data
	LastOffset  int64 // of its marker
	// LastStable is the last stable offset right behind the marker: every transaction that ends later begins there at
	// the earliest.
	LastStable int64
}

// ErrAbortedLost says that the index of aborted transactions is not complete: RebuildAborted makes it so.
var ErrAbortedLost = errors.New("the index of aborted transactions is to be made anew")

// wholeIndex is where the index of aborted transactions begins to lack entries when it lacks none.
const wholeIndex = math.MaxInt64

// appendAborted appends the file's form of entries to dst.
func appendAborted(dst []byte, entries ...AbortedTxn) []byte {
	for _, t := range entries {
		dst = binary.BigEndian.AppendUint16(dst, txnVersion)
		for _, v := range [4]int64{t.ProducerID, t.FirstOffset, t.LastOffset, t.LastStable} {
			dst = binary.BigEndian.AppendUint64(dst, uint64(v))
		}
	}
	return dst
}

// abortedAt reads the i-th entry. It does not make sense where ok is false.
func abortedAt(p []byte, i int) (t AbortedTxn, ok bool) {
	p = p[i*txnEntrySize:]
	at := func(n int) int64 { return int64(binary.BigEndian.Uint64(p[2+8*n:])) }
	t = AbortedTxn{ProducerID: at(0), FirstOffset: at(1), LastOffset: at(2), LastStable: at(3)}
	return t, binary.BigEndian.Uint16(p) == txnVersion && t.ProducerID >= 0 && t.FirstOffset >= 0 &&
		t.FirstOffset <= t.LastOffset && t.LastStable >= 0
}

// txnIndex is one segment's: its first entries in a file, the rest in memory. Only the log's writer adds some; readers
// take no lock.
type txnIndex struct {
	state atomic.Pointer[txnState] // nil until the file has been looked at
}

// txnState is replaced, not changed: what is appended to the tail lies beyond what readers see of it.
type txnState struct {
	saved int // entries in the file
	tail  []AbortedTxn
}

func (st *txnState) count() int { return st.saved + len(st.tail) }

// loadAborted looks at the file for the first time. errDamagedIndex: it cannot be right.
func (s *segment) loadAborted() (*txnState, error) {
	if st := s.aborted.state.Load(); st != nil {
		return st, nil
	}
	st := &txnState{}
	e, err := s.log.dir.fs.Stat(s.fileName(txnKind))
	switch {
	case isMissing(err):
	case err != nil:
		return nil, err
	case e.Size%txnEntrySize != 0 || e.Size/txnEntrySize > math.MaxInt32:
		return nil, errDamagedIndex
	default:
		st.saved = int(e.Size / txnEntrySize)
	}
	if st.saved > 0 {
		first, err := s.abortedEntry(st, 0)
		if err != nil {
			return nil, err
		}
		last, err := s.abortedEntry(st, st.saved-1)
		if err != nil {
			return nil, err
		}
		if first.LastOffset < s.base || last.LastOffset-first.LastOffset < int64(st.saved-1) {
			return nil, errDamagedIndex
		}
	}
	if !s.aborted.state.CompareAndSwap(nil, st) {
		st = s.aborted.state.Load()
	}
	return st, nil
}

// abortedEntry reads one entry.
func (s *segment) abortedEntry(st *txnState, i int) (AbortedTxn, error) {
	if i >= st.saved {
		return st.tail[i-st.saved], nil
	}
	buf := s.log.dir.scratch.get()
	defer s.log.dir.scratch.put(buf)
	if err := s.readAborted(buf[:txnEntrySize], i); err != nil {
		return AbortedTxn{}, err
	}
	t, ok := abortedAt(buf, 0)
	if !ok {
		return t, errDamagedIndex
	}
	return t, nil
}

// readAborted fills p with the file's entries from the i-th on.
func (s *segment) readAborted(p []byte, i int) error {
	err := s.readAt(txnKind, p, int64(i)*txnEntrySize)
	if isMissing(err) {
		return errDamagedIndex
	}
	return err
}

// searchAborted gives the place of the first entry whose last offset is at or above offset.
func (s *segment) searchAborted(st *txnState, offset int64) (int, error) {
	lo, hi := 0, st.count()
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		t, err := s.abortedEntry(st, mid)
		if err != nil {
			return 0, err
		}
		if t.LastOffset < offset {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, nil
}

// eachAborted calls f with the entries whose last offset is at or above from, until f says that it has enough.
func (s *segment) eachAborted(from int64, f func(AbortedTxn) (more bool)) (more bool, err error) {
	st, err := s.loadAborted()
	if err != nil || st.count() == 0 {
		return true, err
	}
	i, err := s.searchAborted(st, from)
	if err != nil {
		return false, err
	}
	buf := s.log.dir.scratch.get()
	defer s.log.dir.scratch.put(buf)
	for last := int64(-1); i < st.saved; {
		n := min(st.saved-i, len(buf)/txnEntrySize)
		if err := s.readAborted(buf[:n*txnEntrySize], i); err != nil {
			return false, err
		}
		for j := range n {
			t, ok := abortedAt(buf, j)
			if !ok || t.LastOffset <= last {
				return false, errDamagedIndex
			}
			if !f(t) {
				return false, nil
			}
			last = t.LastOffset
		}
		i += n
	}
	for _, t := range st.tail[max(i-st.saved, 0):] {
		if !f(t) {
			return false, nil
		}
	}
	return true, nil
}

// Aborted gives the aborted transactions that have data below to and end at or above from, in the order in which they
// end. ErrAbortedLost: that cannot be said before RebuildAborted.
func (l *Log) Aborted(from, to int64) ([]AbortedTxn, error) {
	var found []AbortedTxn
	err := l.settled(func() (err error) {
		if l.abortedLost.Load() {
			return ErrAbortedLost
		}
		found, err = l.readAborted(from, to)
		return err
	})
	return found, err
}

func (l *Log) readAborted(from, to int64) (found []AbortedTxn, err error) {
	list, err := l.list()
	if err != nil {
		return nil, err
	}
	for _, s := range list[list.at(from):] {
		more, err := s.eachAborted(from, func(t AbortedTxn) bool {
			if t.FirstOffset < to {
				found = append(found, t)
			}
			return t.LastStable < to
		})
		switch {
		case errors.Is(err, errDamagedIndex):
			return nil, l.damagedAborted(s)
		case err != nil:
			return nil, err
		case !more:
			return found, nil
		}
	}
	return found, nil
}

// damagedAborted takes note that a segment's index of aborted transactions is no good.
func (l *Log) damagedAborted(s *segment) error {
	l.lock.Lock()
	defer l.lock.Unlock()
	list, err := l.listLocked()
	if err != nil {
		return err
	}
	if list[list.at(s.base)] != s { // it was removed meanwhile, or another one took its place
		return fmt.Errorf("read %s: %w", s.fileName(txnKind), ErrAbortedLost)
	}
	l.loseAbortedLocked(s.base)
	return ErrAbortedLost
}

// loseAbortedLocked takes note that entries of markers from an offset on are missing.
func (l *Log) loseAbortedLocked(from int64) {
	l.dir.logger.Warn("index of aborted transactions is to be made anew", "topic", l.name.Topic,
		"partition", l.name.Partition, "offset", from)
	l.unindexed = min(l.unindexed, from)
	l.abortedLost.Store(true)
}

// AppendAborted adds the entry of an ABORT marker that is in the log, in the order of the markers. Where the index is
// to be made anew anyway, that is left to RebuildAborted.
func (l *Log) AppendAborted(t AbortedTxn) error {
	l.lock.Lock()
	defer l.lock.Unlock()
	list, err := l.listLocked()
	if err != nil {
		return err
	}
	return l.addAbortedLocked(list[list.at(t.LastOffset)], t)
}

func (l *Log) addAbortedLocked(s *segment, t AbortedTxn) error {
	st, err := s.loadAborted()
	var last AbortedTxn
	if err == nil && st.count() > 0 {
		last, err = s.abortedEntry(st, st.count()-1)
	}
	switch {
	case errors.Is(err, errDamagedIndex):
		l.loseAbortedLocked(s.base)
		return nil
	case err != nil: // the marker is in the log, so this must not look as if it were not
		l.loseAbortedLocked(t.LastOffset)
		return nil
	}
	invariant.Check(st.count() == 0 || last.LastOffset < t.LastOffset,
		"%s: aborted transaction ends at offset %d, the one before at %d", l.path, t.LastOffset, last.LastOffset)
	s.aborted.state.Store(&txnState{saved: st.saved, tail: append(st.tail, t)})
	l.markChanged()
	if len(st.tail)+1 < maxTailEntries {
		return nil
	}
	return l.saveAbortedTailLocked(s)
}

// saveAbortedTailLocked writes entries to the file, without syncing it. Without room, or without a file left to open,
// they stay in memory.
func (l *Log) saveAbortedTailLocked(s *segment) error {
	f, err := s.saveAbortedLocked()
	if isPassing(err) || f == nil && err == nil {
		return nil
	}
	if err == nil {
		s.abortedChanged = true // the next checkpoint syncs the file
		err = f.Close()
	}
	if err != nil {
		return l.fail(err)
	}
	return nil
}

// saveAbortedLocked writes the entries in memory to the file and gives the file, to be synced and closed by the caller:
// nil where there is nothing to be written or synced.
func (s *segment) saveAbortedLocked() (File, error) {
	st := s.aborted.state.Load()
	if st == nil || len(st.tail) == 0 && !s.abortedChanged {
		return nil, nil
	}
	flag := OpenWrite | OpenCreate
	if st.saved == 0 {
		flag |= OpenTruncate
	}
	f, err := s.log.dir.fs.Open(s.fileName(txnKind), flag)
	if err != nil {
		return nil, err
	}
	if st.saved == 0 {
		s.log.namesChanged()
	}
	if len(st.tail) > 0 {
		if _, err := f.WriteAt(appendAborted(nil, st.tail...), int64(st.saved)*txnEntrySize); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		s.aborted.state.Store(&txnState{saved: st.count()})
	}
	return f, nil
}

// cutAbortedLocked drops the entries of markers at or above an offset. An index that is damaged is dropped whole, which
// is told by errDamagedIndex.
func (s *segment) cutAbortedLocked(offset int64) error {
	st, err := s.loadAborted()
	n := 0
	if err == nil {
		n, err = s.searchAborted(st, offset)
	}
	if errors.Is(err, errDamagedIndex) {
		s.dropHandle(txnKind, nil)
		if err := s.log.dir.fs.Remove(s.fileName(txnKind)); err != nil && !isMissing(err) {
			return err
		}
		s.log.namesChanged()
		s.aborted.state.Store(&txnState{})
		return errDamagedIndex
	}
	if err != nil || n == st.count() {
		return err
	}
	if n >= st.saved {
		s.aborted.state.Store(&txnState{saved: st.saved, tail: st.tail[: n-st.saved : n-st.saved]})
		return nil
	}
	f, err := s.log.dir.fs.Open(s.fileName(txnKind), OpenWrite)
	if err != nil {
		return err
	}
	err = f.Truncate(int64(n) * txnEntrySize)
	s.aborted.state.Store(&txnState{saved: n})
	s.abortedChanged = true
	return errors.Join(err, f.Close())
}

// AbortedLost says whether the index of aborted transactions is to be made anew.
func (l *Log) AbortedLost() bool { return l.abortedLost.Load() }

// RebuildAborted makes the index of aborted transactions complete where entries are missing: fold is to call
// AppendAborted for every marker from an offset on, up to the log's end. Nothing may be appended to the log meanwhile.
func (l *Log) RebuildAborted(fold func(from int64) error) error {
	from, err := l.beginRebuilding()
	if err != nil || from == wholeIndex {
		return err
	}
	if err := fold(from); err != nil {
		return err
	}
	l.lock.Lock()
	defer l.lock.Unlock()
	if l.unindexed < from { // more was found to be damaged meanwhile
		return ErrAbortedLost
	}
	l.unindexed = wholeIndex
	l.abortedLost.Store(false)
	l.markChanged()
	return nil
}

// beginRebuilding drops the entries from where the first is missing on, and gives that offset.
func (l *Log) beginRebuilding() (int64, error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	list, err := l.listLocked()
	if err != nil || !l.abortedLost.Load() {
		return wholeIndex, err
	}
	for i := len(list) - 1; i >= list.at(l.unindexed); i-- {
		switch err := list[i].cutAbortedLocked(l.unindexed); {
		case errors.Is(err, errDamagedIndex):
			l.unindexed = min(l.unindexed, list[i].base)
		case err != nil:
			return wholeIndex, err
		}
	}
	return l.unindexed, nil
}

// SettleAborted says that the entries of all markers that AppendFollower wrote have been added.
func (l *Log) SettleAborted() {
	l.lock.Lock()
	defer l.lock.Unlock()
	if !l.abortedLost.Load() {
		l.unindexed = wholeIndex
	}
}

// truncateAbortedLocked takes note that the log ends at end now: its segments have been cut.
func (l *Log) truncateAbortedLocked(end int64) {
	if end <= l.unindexed {
		l.unindexed = wholeIndex
		l.abortedLost.Store(false)
	}
}

// errUnindexed is why a log cannot be closed in order whose markers have not got their entries.
var errUnindexed = fmt.Errorf("%w: %w", ErrAbortedLost, io.ErrUnexpectedEOF)

package storage

import "millrace/record"

// transactionsFile lies, empty, in the folder of a log to which a batch of a transaction was appended some time: so
// whoever opens a log without it knows that none is open, and reads nothing to find that out. It comes before the first
// such batch and stays.
const transactionsFile = "transactions"

// Transactional says whether a batch of a transaction was ever appended to the log.
func (l *Log) Transactional() (bool, error) {
	if _, err := l.list(); err != nil {
		return false, err
	}
	return l.transactional.Load(), nil
}

// beginTransactionalLocked comes before the first batch of a transaction.
func (l *Log) beginTransactionalLocked() error {
	l.transactional.Store(true)
	if err := l.noteTransactionalLocked(); err != nil {
		l.transactional.Store(false)
		return l.writeFailed(err)
	}
	return nil
}

// noteTransactionalLocked makes the file, if it is to be there and is not. It is synced with the log's next data.
func (l *Log) noteTransactionalLocked() error {
	if !l.transactional.Load() || l.txnNoted {
		return nil
	}
	f, err := l.dir.fs.Open(l.path+"/"+transactionsFile, OpenWrite|OpenCreate)
	if err != nil {
		return err
	}
	l.txnNoted = true
	l.namesChanged()
	return f.Close()
}

// noteTransaction takes note of what belongs to a transaction.
func (r *recovery) noteTransaction(b record.Batch) {
	if !b.IsTransactional() {
		return
	}
	r.log.transactional.Store(true) // the file is made at the next checkpoint, if it is lost
	if m, ok := b.EndTxnMarker(); ok && m.Type == record.ControlAbort && b.BaseOffset() >= r.point {
		r.aborts = true
	}
}

// aborted keeps the entries of the aborted transactions that end below the recovery point, which are on disk. Where
// others ended past it, their entries are to be made anew.
func (r *recovery) aborted() error {
	l := r.log
	if len(r.kept) == 0 {
		return nil
	}
	for _, s := range r.kept[r.kept.at(r.point-1):] {
		switch err := s.cutAbortedLocked(r.point); {
		case err == errDamagedIndex:
			l.loseAbortedLocked(s.base)
		case err != nil:
			return err
		}
	}
	if r.aborts {
		l.loseAbortedLocked(r.point)
	}
	return nil
}

// takeAbortedLocked takes over the entries of the segment that s replaces, up to the log's new end.
func (s *segment) takeAbortedLocked(old *segment, end int64) error {
	st, err := old.loadAborted()
	if err == nil {
		s.aborted.state.Store(st)
		s.abortedChanged = old.abortedChanged
	}
	if err == nil || err == errDamagedIndex {
		err = s.cutAbortedLocked(end)
	}
	if err == errDamagedIndex {
		s.log.loseAbortedLocked(s.base)
		return nil
	}
	return err
}

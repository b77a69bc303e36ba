package storage

// gapsFile lies, empty, in the folder of a log in which offsets are missing between batches, as compaction leaves it at
// a leader. Where there is none, a batch that does not begin where the one before it ended is damaged, though nothing
// behind it tells.
const gapsFile = "gaps"

// noteGapsLocked makes the file before the first batch that leaves a gap is written. It is synced with that.
func (l *Log) noteGapsLocked() error {
	if l.gaps {
		return nil
	}
	f, err := l.dir.fs.Open(l.path+"/"+gapsFile, OpenWrite|OpenCreate)
	if err == nil {
		l.namesChanged()
		err = f.Close()
	}
	if err != nil {
		return l.writeFailed(err)
	}
	l.gaps = true
	return nil
}

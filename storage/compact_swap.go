package storage

import (
	"context"
	"errors"
	"io/fs"
	"time"
)

// finish makes the files of a replacement whole and durable. They are named .cleaned until all of them are.
func (r *round) finish(p *replacement, sources segmentList) error {
	err := r.write(p, len(r.out))
	if err == nil {
		err = p.file.Sync()
	}
	if err := errors.Join(err, p.file.Close()); err != nil {
		return err
	}
	p.file = nil
	p.addTimeLocked()
	if err := p.saveIndexes(syncNow); err != nil {
		return err
	}
	if err := p.saveAborted(); err != nil {
		return err
	}
	if p.indexed > 0 {
		if err := syncNamed(r.log.dir.fs, p.fileName(txnKind)); err != nil {
			return err
		}
	}
	return r.log.dir.keepAge(sources[len(sources)-1].fileName(logKind), p.fileName(logKind))
}

// saveIndexes writes the entries of both indexes that are in memory.
func (p *replacement) saveIndexes(when syncWhen) error {
	for _, x := range []*index{&p.offsets, &p.times} {
		f, err := p.saveIndexLocked(x)
		if err != nil {
			return err
		}
		if when == syncNow {
			err = f.Sync()
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// saveAborted writes the entries of aborted transactions that are in memory, if there are any.
func (p *replacement) saveAborted() error {
	if len(p.entries) == 0 {
		return nil
	}
	flag := OpenWrite | OpenCreate
	if p.indexed == 0 {
		flag |= OpenTruncate
	}
	f, err := p.log.dir.fs.Open(p.fileName(txnKind), flag)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(appendAborted(nil, p.entries...), int64(p.indexed)*txnEntrySize)
	p.indexed += len(p.entries)
	p.entries = p.entries[:0]
	p.aborted.state.Store(&txnState{saved: p.indexed})
	return errors.Join(err, f.Close())
}

// ageKeeper is an FS that can set the time at which a file was last written. A segment whose records have no timestamps
// is as old as its file.
type ageKeeper interface {
	SetModTime(name string, t time.Time) error
}

func (d *Dir) keepAge(from, to string) error {
	k, ok := d.fs.(ageKeeper)
	if !ok {
		return nil
	}
	e, err := d.fs.Stat(from)
	if isMissing(err) {
		return nil
	}
	if err == nil {
		err = k.SetModTime(to, e.ModTime)
	}
	return err
}

// discard removes the files of a replacement that is not to be.
func (p *replacement) discard() error {
	fsys := p.log.dir.fs
	var errs []error
	if p.file != nil {
		errs = append(errs, p.file.Close())
	}
	for k := range fileKinds {
		p.dropHandle(k, nil)
		name := offsetFileName(p.log.path, p.base, k.suffix())
		for _, suffix := range []string{cleanedSuffix, swapSuffix} {
			if err := fsys.Remove(name + suffix); err != nil && !isMissing(err) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// swap puts a replacement that is whole in the place of its sources. From the renaming of the last of its files to
// .swap on, a crash lets recovery complete it (swap.go); before that, it is undone.
func (r *round) swap(p *replacement, sources segmentList, states []*txnState) error {
	l, fsys := r.log, r.log.dir.fs
	if err := r.ctx.Err(); err != nil {
		return err
	}
	if err := l.noteGaps(); err != nil {
		return err
	}
	for _, k := range swapOrder() {
		name := offsetFileName(l.path, p.base, k.suffix())
		if err := fsys.Rename(name+cleanedSuffix, name+swapSuffix); err != nil && !(k == txnKind && isMissing(err)) {
			return err
		}
	}
	if err := fsys.SyncDir(l.path); err != nil {
		return l.fail(err) // whether it will be completed is not known
	}
	names, err := l.swapIn(p, sources, states)
	if err != nil {
		return err
	}
	if err := fsys.SyncDir(l.path); err != nil {
		return l.fail(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.syncedNames = max(l.syncedNames, names)
	return nil
}

// swapOrder is the order in which the files of a segment get other names, the log file last: it tells how far that got.
func swapOrder() []fileKind { return []fileKind{offsetKind, timeKind, txnKind, logKind} }

// noteGaps takes note that offsets will be missing.
func (l *Log) noteGaps() error {
	l.lock.Lock()
	defer l.lock.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	return l.noteGapsLocked()
}

// swapIn gives the files their names and shows the log with them. It gives the count of names that the folder is to be
// synced up to.
func (l *Log) swapIn(p *replacement, sources segmentList, states []*txnState) (names uint64, err error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if err := l.usable(); err != nil {
		return 0, err
	}
	list := *l.segments.Load()
	i := list.at(sources[0].base)
	if !l.unchangedLocked(list[i:], sources, states) {
		return 0, ErrCompactionStopped
	}
	l.truncations.Add(1) // whoever reads now reads again: files get other content under their names
	defer l.truncations.Add(1)
	for j := len(sources) - 1; j >= 0; j-- {
		sources[j].gone.Store(true)
		if err := l.retireLocked(sources[j]); err != nil {
			return 0, l.fail(err)
		}
	}
	p.suffix = ""
	for _, k := range swapOrder() {
		name := p.fileName(k)
		if err := l.dir.fs.Rename(name+swapSuffix, name); err != nil && !(k == txnKind && isMissing(err)) {
			return 0, l.fail(err)
		}
	}
	last := sources[len(sources)-1]
	p.created, p.jitter, p.indexChanged = last.created, last.jitter, false
	next := append(append(segmentList(nil), list[:i]...), p.segment)
	l.setListLocked(append(next, list[i+len(sources):]...))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names++
	return l.names, nil
}

// unchangedLocked says whether the sources are in the log as they were read.
func (l *Log) unchangedLocked(list, sources segmentList, states []*txnState) bool {
	if l.abortedLost.Load() || len(list) <= len(sources) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, s := range sources {
		if list[i] != s || s.queued || s.aborted.state.Load() != states[i] {
			return false
		}
	}
	return true
}

// retireLocked renames the files of a segment that is replaced, to be unlinked later, and closes them. Of a crash's
// leftovers the log file is the last to go.
func (l *Log) retireLocked(s *segment) error {
	delay := l.config.Load().FileDeleteDelay
	for _, k := range swapOrder() {
		name := s.fileName(k)
		err := l.dir.fs.Rename(name, name+deletedSuffix)
		if err != nil && !isMissing(err) {
			return err
		}
		if err == nil {
			l.dir.background.remove(name+deletedSuffix, delay)
		}
	}
	s.closeFilesLocked()
	return nil
}

// errGone is a read of a segment that has been replaced: the file under its name is another's.
var errGone = &fs.PathError{Op: "open", Path: "segment", Err: fs.ErrNotExist}

// beginRound begins a round of compaction, which end ends. Its context ends when the log is to be cut or closed.
func (l *Log) beginRound(ctx context.Context) (round context.Context, end func(), err error) {
	l.cleaning.Lock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holds > 0 {
		l.cleaning.Unlock()
		return nil, nil, ErrCompactionStopped
	}
	if err := l.usable(); err != nil {
		l.cleaning.Unlock()
		return nil, nil, err
	}
	round, cancel := context.WithCancelCause(ctx)
	l.stopRound = cancel
	return round, func() {
		l.mu.Lock()
		l.stopRound = nil
		l.mu.Unlock()
		cancel(nil)
		l.cleaning.Unlock()
	}, nil
}

// StopCompaction has the round of compaction that is under way end soon.
func (l *Log) StopCompaction() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopRound != nil {
		l.stopRound(ErrCompactionStopped)
	}
}

// holdRounds waits for the round of compaction under way, which ends soon, and keeps others from beginning until
// release is called. It comes before every lock that a round takes.
func (l *Log) holdRounds() (release func()) {
	l.mu.Lock()
	l.holds++
	if l.stopRound != nil {
		l.stopRound(ErrCompactionStopped)
	}
	l.mu.Unlock()
	l.cleaning.Lock()
	return func() {
		l.cleaning.Unlock()
		l.mu.Lock()
		l.holds--
		l.mu.Unlock()
	}
}

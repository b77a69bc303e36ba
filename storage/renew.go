package storage

import (
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// After a failed sync the kernel takes the data for written: it can be read until the machine stops, but
// nothing will bring it to the disk, and the next sync succeeds. A process that ended there, or was killed, leaves
// no word of it. So what an unclean stop left past the recovery point is written again with its own bytes, and
// names are made again, before any of it counts as durable: when the log is opened, or, where acknowledgements do not
// wait for syncs, by the first sync after that.

// renamedSuffix ends a name while it is made again.
const renamedSuffix = "~"

// Rewrite writes a part of a file again with its own bytes, cuts the file at the part's end, and syncs it. The bytes
// lie in the file as they are meanwhile, so a crash leaves nothing else. The buffer bounds what is read at once.
func Rewrite(fsys FS, name string, from, end int64, buf []byte) (err error) {
	f, err := fsys.Open(name, OpenWrite)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := rewrite(f, from, end, buf); err != nil {
		return fmt.Errorf("write %s again: %w", name, err)
	}
	return nil
}

func rewrite(f File, from, end int64, buf []byte) error {
	if err := resize(f, end); err != nil {
		return err
	}
	if err := copyOver(f, from, end, buf); err != nil {
		return err
	}
	return f.Sync()
}

// resize cuts a file where it ends already: its size is as doubtful as its bytes.
func resize(f File, end int64) error {
	if err := f.Truncate(end + 1); err != nil {
		return err
	}
	return f.Truncate(end)
}

// copyOver writes a part of a file again with its own bytes.
func copyOver(f File, from, end int64, buf []byte) error {
	for at := from; at < end; at += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), end-at)]
		if n, err := f.ReadAt(buf, at); n < len(buf) {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		if _, err := f.WriteAt(buf, at); err != nil {
			return err
		}
	}
	return nil
}

// Relink makes a name again, so that the next SyncDir has something to sync. A name that is not there is left at that.
// RestoreNames puts right what a crash leaves.
func Relink(fsys FS, name string) error {
	if len(path.Base(name)+renamedSuffix) > maxFolderName {
		return nil
	}
	err := fsys.Rename(name, name+renamedSuffix)
	if isMissing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return fsys.Rename(name+renamedSuffix, name)
}

// RestoreNames completes what Relink began in a directory, and says whether there was anything.
func RestoreNames(fsys FS, dir string) (changed bool, err error) {
	entries, err := fsys.List(dir)
	if err != nil {
		return false, err
	}
	there := map[string]bool{}
	for _, e := range entries {
		there[e.Name] = true
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name, renamedSuffix)
		if !ok || there[name] {
			continue
		}
		changed = true
		if err := fsys.Rename(path.Join(dir, e.Name), path.Join(dir, name)); err != nil {
			return changed, err
		}
	}
	return changed, nil
}

// settle makes durable what spans the logs, after a stop that was not clean.
func (d *Dir) settle() error {
	if len(d.logs) == 0 && d.isNew {
		return nil
	}
	for _, name := range []string{metaFile, recoveryPointFile, logStartFile, watermarkFile} {
		if err := renewFile(d.fs, name, syncNow); err != nil {
			return err
		}
	}
	if err := voidCleanMark(d.fs); err != nil {
		return err
	}
	return d.settleFolders()
}

// settleFolders makes the folders' names durable of those logs that were not closed in order.
func (d *Dir) settleFolders() error {
	for _, e := range d.entries() {
		if e.clean || e.point > 0 { // with a recovery point it was synced
			continue
		}
		if err := Relink(d.fs, e.name.String()); err != nil {
			return err
		}
	}
	return d.fs.SyncDir(".")
}

// renewFile replaces a file by one that holds the same. A full disk lets it be as it is.
func renewFile(fsys FS, name string, when syncWhen) error {
	data, err := readFile(fsys, name)
	if isMissing(err) {
		return nil
	}
	if err == nil {
		err = writeTmp(fsys, name, data, when)
	}
	if isFull(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return fsys.Rename(name+tmpSuffix, name)
}

// tail is what lies past the recovery point in one segment.
type tail struct {
	segment *segment
	from    int64
}

// renewLocked makes durable what recovery found past the recovery point: data, producer snapshots, and the names of
// files that are as new. Indexes and epochs are written at the next checkpoint.
func (l *Log) renewLocked(r *recovery) error {
	point := l.point.Load()
	renew := l.rewriteLocked
	if l.dir.renewLater {
		renew = l.doubtLocked
	}
	if err := renew(r.tails); err != nil {
		return err
	}
	for _, s := range r.kept {
		if s.base < point {
			continue
		}
		if err := s.renewNames(); err != nil {
			return err
		}
	}
	if len(r.tails) > 0 {
		for _, o := range l.snapshots {
			if o < point {
				continue
			}
			if err := renewFile(l.dir.fs, offsetFileName(l.path, o, snapshotSuffix), syncLater); err != nil {
				return err
			}
			l.newSnapshots = append(l.newSnapshots, o)
		}
		l.epochs.stored(nil)
		l.namesChanged()
	}
	return l.syncNamesLocked()
}

// doubtLocked leaves it to the next sync to write the ends of segments again: where nobody waits for syncs nobody has
// to wait for that. Until then they do not count as durable. The files' sizes are made sure of now, while nothing is
// appended.
func (l *Log) doubtLocked(tails []tail) error {
	for _, t := range tails {
		f, err := l.dir.fs.Open(t.segment.fileName(logKind), OpenWrite)
		if err != nil {
			return err
		}
		if err := errors.Join(resize(f, t.segment.size.Load()), f.Close()); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range tails {
		t.segment.doubt = span{t.from, t.segment.size.Load()}
		t.segment.queued = true
		l.unsynced = append(l.unsynced, t.segment)
	}
	if len(tails) > 0 {
		l.synced.Store(max(l.point.Load(), l.start.Load()))
	}
	return nil
}

// settleDoubts writes again what is in doubt of the job's files. The log's syncing lock is held, so that nothing is cut
// meanwhile; what is appended lies behind.
func (j *syncJob) settleDoubts() error {
	for _, s := range j.segments {
		if err := s.settleDoubt(); err != nil {
			return err
		}
	}
	return nil
}

// settleDoubtBelow does so before the file is cut at a position.
func (s *segment) settleDoubtBelow(pos int64) error {
	s.log.mu.Lock()
	s.doubt.to = max(min(s.doubt.to, pos), s.doubt.from)
	s.log.mu.Unlock()
	return s.settleDoubt()
}

func (s *segment) settleDoubt() error {
	s.log.mu.Lock()
	doubt := s.doubt
	s.log.mu.Unlock()
	if doubt.from == doubt.to {
		return nil
	}
	buffers := s.log.dir.buffersFor(doubt.to - doubt.from)
	buf := buffers.get()
	defer buffers.put(buf)
	f, err := s.log.dir.fs.Open(s.fileName(logKind), OpenWrite)
	if err != nil {
		return err
	}
	if err := errors.Join(copyOver(f, doubt.from, doubt.to, buf), f.Close()); err != nil {
		return fmt.Errorf("write %s again: %w", s.fileName(logKind), err)
	}
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	s.doubt = span{}
	return nil
}

// rewriteLocked writes the ends of segments again.
func (l *Log) rewriteLocked(tails []tail) error {
	var bytes int64
	for _, t := range tails {
		bytes += t.segment.size.Load() - t.from
	}
	buffers := l.dir.buffersFor(bytes)
	buf := buffers.get()
	defer buffers.put(buf)
	for _, t := range tails {
		if err := Rewrite(l.dir.fs, t.segment.fileName(logKind), t.from, t.segment.size.Load(), buf); err != nil {
			return err
		}
	}
	return nil
}

// renewNames makes the name of a segment's log file again; those of the indexes come when they are written.
func (s *segment) renewNames() error {
	for _, k := range []fileKind{offsetKind, timeKind} {
		if err := s.log.dir.fs.Remove(s.fileName(k)); err != nil && !isMissing(err) {
			return err
		}
	}
	defer s.log.namesChanged()
	return Relink(s.log.dir.fs, s.fileName(logKind))
}

// syncNamesLocked syncs the folder of a log that is not empty, if its names have changed.
func (l *Log) syncNamesLocked() error {
	l.mu.Lock()
	j := syncJob{log: l, folder: l.names != l.syncedNames, parent: l.newFolder, names: l.names}
	l.mu.Unlock()
	if !j.folder || l.end.Load() == 0 {
		return nil
	}
	if err := j.run(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	j.settle()
	return nil
}

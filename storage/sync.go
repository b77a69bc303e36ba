package storage

import (
	"slices"
	"time"

	"millrace/internal/invariant"
)

// unsettled says whether something of the log is not durable: data, names, or that data was cut.
func (l *Log) unsettled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end.Load() > l.synced.Load() || len(l.unsynced) > 0 || l.names != l.syncedNames
}

// syncWaiter is a caller of Log.Sync.
type syncWaiter struct {
	target int64
	done   chan error // of capacity 1
}

// RequestSync asks the directory's committer to make what was appended so far durable, and returns
// at once. OnSynced tells when it is done.
func (l *Log) RequestSync() {
	l.wantSync()
	l.dir.committer.request(l)
}

// wantSync makes the next sync include the active segment.
func (l *Log) wantSync() {
	l.mu.Lock()
	l.wantActive = true
	l.mu.Unlock()
}

// OnSynced sets the function that hears of each new SyncedOffset, under every policy. It is called
// outside all locks, in rising order, by the goroutine that commits: it must not block. Who sets it
// reads SyncedOffset afterwards, for what was synced before.
func (l *Log) OnSynced(f func(synced int64)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onSynced = f
}

// OnOffline sets the function that hears, once, that the log went offline: nothing that waits for a
// sync will see it. It is called by whichever goroutine found the fault, perhaps one inside Append,
// and must neither block nor call the log. Who sets it asks Offline afterwards.
func (l *Log) OnOffline(f func(err error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onOffline = f
}

// syncJob is what one sync of one log covers. The committer uses it again and again.
type syncJob struct {
	log      *Log
	target   int64      // all below it will be durable
	segments []*segment // whose log files are to be synced
	sizes    []int64    // of those files, when the job began
	names    uint64
	folder   bool // the folder's entries are to be synced
	parent   bool // and its own name, and its metadata
}

// calls is how many files and directories the job syncs.
func (j *syncJob) calls() int {
	n := len(j.segments)
	if j.folder {
		n++
	}
	if j.parent {
		n += 2
	}
	return n
}

// begin fixes what is to be synced and takes the log's syncing lock; end gives it back. It says no,
// without the lock, if there is nothing to do.
func (j *syncJob) begin(l *Log) bool {
	if l.usable() != nil {
		return false
	}
	l.syncing.Lock()
	l.mu.Lock()
	j.log, j.target, j.names = l, l.end.Load(), l.names
	j.segments = append(j.segments[:0], l.unsynced...)
	if n := len(j.segments); n > 0 && !l.wantActive {
		// Only what is sealed: all below the active segment, when that is the last in the list.
		if active := (*l.segments.Load()).active(); j.segments[n-1] == active {
			j.segments, j.target = j.segments[:n-1], active.base
		}
	}
	wanted := l.wantActive
	l.wantActive = false
	j.sizes = j.sizes[:0]
	for _, s := range j.segments {
		j.sizes = append(j.sizes, s.size.Load())
	}
	j.folder = l.names != l.syncedNames
	j.parent = l.newFolder
	idle := len(j.segments) == 0 && j.target <= l.synced.Load() && !(j.folder && wanted)
	l.mu.Unlock()
	if idle || l.usable() != nil {
		l.syncing.Unlock()
		return false
	}
	return true
}

// run syncs file by file: first what the names lead to, then the names.
func (j *syncJob) run() error {
	for _, s := range j.segments {
		if err := s.syncFile(logKind); err != nil {
			return err
		}
	}
	l := j.log
	if j.parent {
		if err := syncNamed(l.dir.fs, l.path+"/"+partitionMetadataFile); err != nil {
			return err
		}
	}
	if j.folder {
		if err := l.dir.fs.SyncDir(l.path); err != nil {
			return err
		}
	}
	if j.parent {
		return l.dir.fs.SyncDir(".")
	}
	return nil
}

// syncFolderLocked makes sure that a new log's folder and topic id are durable, before the log may
// claim that it begins elsewhere than at 0. The syncing lock is held too.
func (l *Log) syncFolderLocked() error {
	l.mu.Lock()
	j := syncJob{log: l, folder: true, parent: l.newFolder, names: l.names}
	l.mu.Unlock()
	if !j.parent {
		return nil
	}
	if err := j.run(); err != nil {
		return l.fail(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	j.settle()
	return nil
}

// filesPause is how long a commit for which no file could be opened waits for its next try.
const filesPause = time.Second

// syncNamed syncs one file that is not open.
func syncNamed(fsys FS, name string) error {
	f, err := fsys.Open(name, OpenWrite)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// unsettled ends a job whose files could not be written again. That is no failed sync: if the reason may pass it is
// tried again.
func (j *syncJob) unsettled(err error) {
	j.log.syncing.Unlock()
	if !isPassing(err) {
		j.log.fail(err)
		return
	}
	j.log.dir.committer.schedule(j.log, filesPause)
}

// end publishes the result and tells those who wait.
func (j *syncJob) end(err error) {
	l := j.log
	if isTooManyFiles(err) { // which is no failed sync: something could not be opened for one
		l.syncing.Unlock()
		l.dir.committer.schedule(l, filesPause)
		return
	}
	if err != nil {
		l.syncing.Unlock()
		l.fail(err)
		return
	}
	l.mu.Lock()
	invariant.Check(j.target <= l.end.Load(), "%s: synced to %d, log end is %d", l.path, j.target, l.end.Load())
	j.settle()
	grown := j.target > l.synced.Load()
	if grown {
		l.synced.Store(j.target)
		l.markChanged() // the recovery point may follow
	}
	tell := l.onSynced
	var done []syncWaiter
	if len(l.waiters) > 0 {
		l.waiters, done = splitWaiters(l.waiters, l.synced.Load())
	}
	l.mu.Unlock()
	l.unpinSealed(j.segments)
	l.syncing.Unlock()
	for _, w := range done {
		w.done <- nil
	}
	if tell != nil && grown {
		tell(j.target)
	}
}

// settle takes what was synced off the log's lists. The log's mu is held.
func (j *syncJob) settle() {
	l := j.log
	for i, s := range j.segments {
		s.syncedSize = j.sizes[i]
		if s.size.Load() == s.syncedSize {
			s.queued = false
		}
	}
	l.unsynced = slices.DeleteFunc(l.unsynced, func(s *segment) bool { return !s.queued })
	l.syncedNames = j.names
	if j.parent {
		l.newFolder = false
	}
}

// unpinSealed lets the cache close the files of sealed segments that are synced.
func (l *Log) unpinSealed(synced []*segment) {
	active := (*l.segments.Load()).active()
	for _, s := range synced {
		if s != active {
			s.unpin()
		}
	}
}

// splitWaiters parts the waiters that synced has not reached from those that it has.
func splitWaiters(all []syncWaiter, synced int64) (waiting, done []syncWaiter) {
	for _, w := range all {
		if w.target <= synced {
			done = append(done, w)
		} else {
			waiting = append(waiting, w)
		}
	}
	return waiting, done
}

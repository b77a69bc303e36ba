package quorum

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"millrace/storage"
)

const (
	// folder is the quorum's in the data directory; log/ in it holds the log, snapshots/ the last snapshots.
	folder          = "metadata"
	logFolder       = folder + "/log"
	snapshotsFolder = folder + "/snapshots"
	// oldFolder is what versions before this one kept their log in.
	oldFolder = folder + "/wal"
	// defaultSegmentBytes is the size of a file of the log.
	defaultSegmentBytes = 4 << 20
)

// stores are the files of the metadata folder.
type stores struct {
	log       *guardedLog
	entries   *entryLog
	ballot    *ballotFile
	snapshots *snapshots
	applied   *appliedMark
}

// logStore is what raft wants of a log, and of the place for its term and vote.
type logStore interface {
	raft.LogStore
	raft.StableStore
}

// disk is both in one.
type disk struct {
	*entryLog
	*ballotFile
}

func openStores(fsys storage.FS, segmentBytes int, logger hclog.Logger) (*stores, error) {
	if segmentBytes == 0 {
		segmentBytes = defaultSegmentBytes
	}
	if err := makeFolders(fsys); err != nil {
		return nil, err
	}
	s := new(stores)
	if err := s.open(fsys, segmentBytes, logger); err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.log = newGuardedLog(disk{s.entries, s.ballot}, logger)
	return s, nil
}

func (s *stores) open(fsys storage.FS, segmentBytes int, logger hclog.Logger) (err error) {
	if s.ballot, err = openBallotFile(fsys, folder); err != nil {
		return err
	}
	if s.snapshots, err = openSnapshots(fsys, snapshotsFolder, logger); err != nil {
		return err
	}
	if s.entries, err = openEntryLog(fsys, logFolder, segmentBytes, logger); err != nil {
		return err
	}
	s.applied, err = openAppliedMark(fsys, folder+"/"+appliedFile, logger)
	return err
}

// close gives up the files that are open.
func (s *stores) close() error {
	var errs []error
	if s.entries != nil {
		errs = append(errs, s.entries.close())
	}
	if s.applied != nil {
		errs = append(errs, s.applied.Close())
	}
	if s.ballot != nil {
		errs = append(errs, s.ballot.Close())
	}
	return errors.Join(errs...)
}

// makeFolders makes the metadata folder and those in it. What is there already may not have been synced by who made
// it, or in vain, so its names are made again and synced in any case.
func makeFolders(fsys storage.FS) error {
	switch _, err := fsys.Stat(oldFolder); {
	case err == nil:
		return errors.New("it was made by an older version of this program, whose metadata this one cannot read: " +
			"start with an empty data directory, or with the older version")
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	for _, dir := range []string{folder, logFolder, snapshotsFolder} {
		if _, err := storage.RestoreNames(fsys, path.Dir(dir)); err != nil {
			return err
		}
		err := fsys.Mkdir(dir)
		if errors.Is(err, fs.ErrExist) {
			err = storage.Relink(fsys, dir)
		}
		if err != nil {
			return err
		}
	}
	return fsys.SyncDir(".") // that of the folder comes with the vote
}

// check finds out whether something that was there is gone: a lost end would otherwise look like a short log, and
// every topic whose creation was in it like one that never was.
func (s *stores) check() error {
	first, _ := s.entries.FirstIndex()
	last, _ := s.entries.LastIndex()
	snapshot := s.lastSnapshot()
	switch {
	case max(last, snapshot) < s.applied.index:
		return lost("it ends at entry %d, but entry %d was applied", max(last, snapshot), s.applied.index)
	case first > snapshot+1:
		return lost("it begins at entry %d, but the newest snapshot ends at %d", first, snapshot)
	case max(last, snapshot) > 0 && !s.ballot.isThere():
		return lost("it has entries, but the term and the vote are gone")
	}
	term, err := s.entries.lastTerm()
	if err != nil {
		return err
	}
	if known, _ := s.ballot.GetUint64([]byte(termKey)); term > known {
		return lost("it has an entry of term %d, but the newest term is said to be %d", term, known)
	}
	return s.dropCovered(first, last)
}

func lost(format string, args ...any) error {
	return fmt.Errorf("%w: %s: the log is damaged or an old copy; put the newest copy back, or take the node out of "+
		"the cluster and let it join with an empty data directory", ErrLost, fmt.Sprintf(format, args...))
}

// dropCovered deletes a log that a snapshot from the leader has replaced, when the process ended in between.
func (s *stores) dropCovered(first, last uint64) error {
	m := s.snapshots.newest()
	if m == nil || last == 0 {
		return nil
	}
	if m.Index < first {
		return nil
	}
	if m.Index <= last {
		var l raft.Log
		if err := s.entries.GetLog(m.Index, &l); err != nil || l.Term == m.Term {
			return err
		}
	}
	return s.entries.DeleteRange(first, last)
}

// found writes the first log entry, which lists the voters, unless there is a log already or this node is none of
// them. Where the node is known to a cluster there must be one.
func (s *stores) found(conf *raft.Config, t raft.Transport, c Config) error {
	last, err := s.entries.LastIndex()
	if err != nil {
		return err
	}
	if last > 0 || s.lastSnapshot() > 0 {
		return nil
	}
	if c.Known {
		return fmt.Errorf("%w: there are none, but the node has been in a cluster: put the folder back, or take the "+
			"node out of the cluster and let it join with an empty data directory", ErrLost)
	}
	if !slices.ContainsFunc(c.founders(), func(v Voter) bool { return v.ID == c.NodeID }) {
		return nil
	}
	log := s.log.logStore // not guarded: this is no goroutine of raft's
	if err := undoHalfFounding(log); err != nil {
		return err
	}
	err = raft.BootstrapCluster(conf, log, log, s.snapshots, t, c.servers())
	if errors.Is(err, raft.ErrCantBootstrap) {
		return fmt.Errorf("%w: there are none, but the node has voted: put the folder back", ErrLost)
	}
	if err != nil {
		return fmt.Errorf("found the metadata log: %w", err)
	}
	return nil
}

// undoHalfFounding makes a folder new again in which founding was cut off between its two writes, the
// term and the first log entry. Without it that node would wait for a leader for ever.
func undoHalfFounding(log raft.StableStore) error {
	term, err := log.GetUint64([]byte(termKey))
	if err != nil {
		return err
	}
	vote, err := log.GetUint64([]byte(voteTermKey))
	if err != nil {
		return err
	}
	if term == 1 && vote == 0 {
		return log.SetUint64([]byte(termKey), 0)
	}
	return nil
}

// lastSnapshot is the index of the newest snapshot, or 0.
func (s *stores) lastSnapshot() uint64 {
	if m := s.snapshots.newest(); m != nil {
		return m.Index
	}
	return 0
}

// guardedLog takes itself offline for good after a failed write, because what a failed write or sync
// left on disk is unknown. Raft would panic over a lost term, and with it would go the partitions
// that have nothing to do with it; so the goroutine of raft that writes ends here instead.
type guardedLog struct {
	logStore
	logger  hclog.Logger
	once    sync.Once
	cause   atomic.Pointer[error]
	offline chan struct{} // closed after cause is set
}

func newGuardedLog(s logStore, logger hclog.Logger) *guardedLog {
	return &guardedLog{logStore: s, logger: logger, offline: make(chan struct{})}
}

// failure returns why the log is offline, or nil.
func (g *guardedLog) failure() error {
	if err := g.cause.Load(); err != nil {
		return fmt.Errorf("%w: %w", ErrOffline, *err)
	}
	return nil
}

// fail takes the log offline.
func (g *guardedLog) fail(err error) {
	g.once.Do(func() {
		g.logger.Error("metadata log goes offline: nothing can be created, changed or deleted until the next start",
			"error", err)
		g.cause.Store(&err)
		close(g.offline)
	})
}

// write runs a write and returns nil, or does not return. So only goroutines that may end there call it.
func (g *guardedLog) write(do func() error) error {
	if g.cause.Load() != nil {
		runtime.Goexit()
	}
	if err := do(); err != nil {
		g.fail(err)
		runtime.Goexit()
	}
	return nil
}

// GetLog implements raft.LogStore. Raft takes an error of it but for two places, in which it panics: those goroutines
// end here instead.
func (g *guardedLog) GetLog(index uint64, l *raft.Log) error {
	err := g.logStore.GetLog(index, l)
	if err == nil || errors.Is(err, raft.ErrLogNotFound) {
		return err
	}
	g.fail(err)
	if calledBy("raft.(*Raft).processLogs", "raft.NewRaft") {
		runtime.Goexit()
	}
	return err
}

// calledBy reports whether one of the functions is among the callers.
func calledBy(functions ...string) bool {
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers)])
	for {
		frame, more := frames.Next()
		for _, f := range functions {
			if strings.HasSuffix(frame.Function, f) {
				return true
			}
		}
		if !more {
			return false
		}
	}
}

// StoreLog implements raft.LogStore.
func (g *guardedLog) StoreLog(l *raft.Log) error {
	return g.write(func() error { return g.logStore.StoreLog(l) })
}

// StoreLogs implements raft.LogStore.
func (g *guardedLog) StoreLogs(l []*raft.Log) error {
	return g.write(func() error { return g.logStore.StoreLogs(l) })
}

// DeleteRange implements raft.LogStore. Raft takes an error of it, and waits for the goroutine that calls it.
func (g *guardedLog) DeleteRange(from, to uint64) error {
	if err := g.failure(); err != nil {
		return err
	}
	err := g.logStore.DeleteRange(from, to)
	if err != nil {
		g.fail(err)
	}
	return err
}

// Set implements raft.StableStore.
func (g *guardedLog) Set(key, value []byte) error {
	return g.write(func() error { return g.logStore.Set(key, value) })
}

// SetUint64 implements raft.StableStore.
func (g *guardedLog) SetUint64(key []byte, value uint64) error {
	return g.write(func() error { return g.logStore.SetUint64(key, value) })
}

// IsMonotonic implements raft.MonotonicLogStore: the log takes indexes without gaps only.
func (g *guardedLog) IsMonotonic() bool { return true }

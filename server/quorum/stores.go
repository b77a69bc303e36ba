package quorum

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/metadb"
)

// walSegmentBytes is the size of a file of the log, taken from the disk when the file is made.
const walSegmentBytes = 4 << 20

// stores are the files of the metadata folder: wal/ holds the log, the current term and the vote,
// snapshots/ the last snapshots.
type stores struct {
	log       *guardedLog
	snapshots raft.SnapshotStore
	applied   *appliedMark
	closers   []io.Closer // in the order to close them
}

// logStore is what raft wants of a log, and of the place for its term and vote.
type logStore interface {
	raft.LogStore
	raft.StableStore
}

func openStores(dir string, logger hclog.Logger) (*stores, error) {
	walDir := filepath.Join(dir, "wal")
	if err := makeFolder(dir, walDir); err != nil {
		return nil, err
	}
	meta := new(metadb.BoltMetaDB) // of our own, since the log does not close the one it makes
	log, err := openLog(walDir, logger, meta)
	if err != nil {
		return nil, errors.Join(err, meta.Close())
	}
	snapshots, err := raft.NewFileSnapshotStoreWithLogger(dir, 2, logger)
	if err != nil {
		return nil, errors.Join(err, log.Close(), meta.Close())
	}
	mark, err := openAppliedMark(filepath.Join(dir, appliedFile), logger)
	if err != nil {
		return nil, errors.Join(err, log.Close(), meta.Close())
	}
	return &stores{
		log: newGuardedLog(log, logger), snapshots: snapshots, applied: mark, closers: []io.Closer{log, meta, mark},
	}, nil
}

// openLog opens the log. Its library panics over some kinds of damage to the file that lists the segments.
func openLog(dir string, logger hclog.Logger, meta *metadb.BoltMetaDB) (log *wal.WAL, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%s is damaged: %v", dir, v)
		}
	}()
	return wal.Open(dir, wal.WithLogger(logger), wal.WithMetaStore(meta), wal.WithSegmentSize(walSegmentBytes))
}

// check compares the log with the mark of what was applied. A lost end would otherwise look like a short log, and
// every topic whose creation was in it like one that never was.
func (s *stores) check() error {
	last, err := s.log.LastIndex()
	if err != nil {
		return err
	}
	last = max(last, s.lastSnapshot())
	if applied := s.applied.index; last < applied {
		return fmt.Errorf("%w: it ends at entry %d, but entry %d was applied: the log is damaged or an old copy; "+
			"put the newest copy back", ErrLost, last, applied)
	}
	return nil
}

// makeFolder makes the metadata folder and the one inside it. Nobody but the node's user may look into it: the
// libraries that write there make their files readable for all.
func makeFolder(dir, inside string) error {
	const onlyOwner = 0o700
	if err := os.MkdirAll(inside, onlyOwner); err != nil {
		return err
	}
	return os.Chmod(dir, onlyOwner) // it may be there already, and open
}

func (s *stores) close() error {
	var errs []error
	for _, c := range s.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// The keys under which raft keeps its term and vote.
const (
	termKey = "CurrentTerm"
	voteKey = "LastVoteTerm"
)

// found writes the first log entry, which lists the voters, unless there is a log already. Where the node is known to
// a cluster there must be one.
func (s *stores) found(conf *raft.Config, t raft.Transport, c Config) error {
	last, err := s.log.LastIndex()
	if err != nil {
		return err
	}
	snapshots, err := s.snapshots.List()
	if err != nil {
		return err
	}
	if last > 0 || len(snapshots) > 0 {
		return nil
	}
	if c.Known {
		return fmt.Errorf("%w: there are none, but the node has been in a cluster: put the folder back", ErrLost)
	}
	log := s.log.logStore // not guarded: this is no goroutine of raft's
	if err := undoHalfFounding(log); err != nil {
		return err
	}
	if err := raft.BootstrapCluster(conf, log, log, s.snapshots, t, c.servers()); err != nil {
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
	vote, err := log.GetUint64([]byte(voteKey))
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
	list, err := s.snapshots.List()
	if err != nil || len(list) == 0 {
		return 0
	}
	return list[0].Index
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

// guard returns nil, or does not return. So only goroutines that may end there call it.
func (g *guardedLog) guard(err error) error {
	if err == nil {
		return nil
	}
	g.once.Do(func() {
		g.logger.Error("metadata log goes offline: nothing can be created, changed or deleted until the next start",
			"err", err)
		g.cause.Store(&err)
		close(g.offline)
	})
	runtime.Goexit()
	return err
}

// StoreLog implements raft.LogStore.
func (g *guardedLog) StoreLog(l *raft.Log) error { return g.guard(g.logStore.StoreLog(l)) }

// StoreLogs implements raft.LogStore.
func (g *guardedLog) StoreLogs(l []*raft.Log) error { return g.guard(g.logStore.StoreLogs(l)) }

// Set implements raft.StableStore.
func (g *guardedLog) Set(key, value []byte) error { return g.guard(g.logStore.Set(key, value)) }

// SetUint64 implements raft.StableStore.
func (g *guardedLog) SetUint64(key []byte, value uint64) error {
	return g.guard(g.logStore.SetUint64(key, value))
}

// IsMonotonic implements raft.MonotonicLogStore: the log takes indexes without gaps only.
func (g *guardedLog) IsMonotonic() bool { return true }

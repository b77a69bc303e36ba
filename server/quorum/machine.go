package quorum

import (
	"fmt"
	"io"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"millrace/server/metadata"
)

// machine feeds the metadata machine from raft. After a command that it does not understand it applies
// nothing more.
type machine struct {
	image   *metadata.Machine
	applied *appliedMark
	fatal   func(error)
	failed  atomic.Pointer[error]
}

// outcome is what applying one command came to.
type outcome struct {
	result metadata.Result
	err    error
}

// failure returns why this machine has stopped, or nil.
func (m *machine) failure() error {
	if err := m.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Apply implements raft.FSM.
func (m *machine) Apply(entry *raft.Log) any {
	if err := m.failure(); err != nil {
		return outcome{err: err}
	}
	r, err := m.image.Apply(entry.Index, entry.Data)
	if err != nil {
		err = fmt.Errorf("metadata has stopped: %w", err)
		m.failed.Store(&err)
		if m.fatal != nil {
			m.fatal(err)
		}
		return outcome{err: err}
	}
	m.applied.set(entry.Index)
	return outcome{result: r}
}

// Snapshot implements raft.FSM. An image never changes, so taking hold of it is all there is to do.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	if err := m.failure(); err != nil {
		return nil, err
	}
	return snapshot{m.image.Image()}, nil
}

// Restore implements raft.FSM.
func (m *machine) Restore(r io.ReadCloser) error {
	defer r.Close()
	return m.image.Restore(r)
}

type snapshot struct{ image *metadata.Image }

// Persist implements raft.FSMSnapshot.
func (s snapshot) Persist(sink raft.SnapshotSink) error {
	if err := s.image.WriteSnapshot(sink); err != nil {
		_ = sink.Cancel() // the write's error says more
		return fmt.Errorf("write metadata snapshot: %w", err)
	}
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (s snapshot) Release() {}

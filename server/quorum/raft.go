package quorum

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/hashicorp/raft"

	"millrace/server/metadata"
)

// Voter is a node that takes part in the agreement.
type Voter struct {
	ID int32
	// Address is where its StreamLayer answers; it says nothing when it is the only voter.
	Address string
}

// Config is what Open needs.
type Config struct {
	NodeID int32
	// Dir is the folder for the log and the snapshots; it is made if need be.
	Dir     string
	Machine *metadata.Machine
	Logger  *slog.Logger
	// Voters lists all voters when the cluster is founded; later what was agreed on counts. Empty
	// means this node alone.
	Voters []Voter
	// StreamLayer connects the voters; nil is allowed where this node is the only one.
	StreamLayer raft.StreamLayer
	// Fatal is called at most once, when the node must not go on. It may be nil.
	Fatal func(error)
	// HeartbeatTimeout is how long a follower waits for its leader; zero is one second.
	HeartbeatTimeout time.Duration
}

// Raft is a Quorum over hashicorp/raft.
type Raft struct{}

// Open opens or founds the metadata log. It returns when the machine holds what was stored; with a
// single voter also when this node leads and all stored commands are applied.
func Open(ctx context.Context, c Config) (*Raft, error) { return nil, errors.ErrUnsupported }

// Propose implements Quorum.
func (q *Raft) Propose(ctx context.Context, command []byte) (metadata.Result, uint64, error) {
	return metadata.Result{}, 0, ErrClosed
}

// IsLeader implements Quorum.
func (q *Raft) IsLeader() bool { return false }

// Leader implements Quorum.
func (q *Raft) Leader() int32 { return -1 }

// Barrier implements Quorum.
func (q *Raft) Barrier(ctx context.Context) error { return ErrClosed }

// Close implements Quorum.
func (q *Raft) Close() error { return nil }

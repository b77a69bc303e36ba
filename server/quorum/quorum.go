// Package quorum agrees with the other voters on the order of metadata commands, and feeds them to the
// metadata machine of this node. It is the only owner of the files in the metadata folder of the data
// directory.
//
// It promises that a command whose proposal was answered is applied on this node and survives what a
// majority of the voters survives, and that all nodes apply the same commands in the same order. The
// controller proposes; the server opens and closes it.
package quorum

import (
	"context"
	"errors"

	"millrace/server/metadata"
)

// Quorum is what the controller needs of the agreement.
type Quorum interface {
	// Propose has the command agreed on and applied here, and answers what applying it answered,
	// with its log index. ErrNotLeader: nothing was proposed. ErrBusy: too much is on its way
	// already. ErrTooLarge: no log takes such a command. ErrClosed: this quorum is at its end.
	// After any of these nothing was proposed; any other error, the end of ctx included, leaves
	// the outcome unknown.
	Propose(ctx context.Context, command []byte) (metadata.Result, uint64, error)
	// IsLeader reports whether this node leads and has applied all commands of leaders before it.
	IsLeader() bool
	// Leader is the node id of the leader, or -1 when there is none or it is not known.
	Leader() int32
	// Offline is the ErrOffline that keeps this node from leading, or nil.
	Offline() error
}

// The reasons why a proposal was not made.
var (
	ErrNotLeader = errors.New("this node does not lead the metadata quorum")
	ErrBusy      = errors.New("too many metadata proposals at once")
	ErrClosed    = errors.New("the metadata quorum is closed")
	ErrTooLarge  = errors.New("metadata command is too large")
)

// ErrOffline means that the metadata log could not be written: nothing can be changed until the node is
// started anew. The outcome of a proposal on its way is unknown.
var ErrOffline = errors.New("metadata log is offline after a failed write")

// ErrLost means that the metadata log lacks what this node had applied before: it is damaged, an old copy, or gone.
var ErrLost = errors.New("the metadata log has lost entries")

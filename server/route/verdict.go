package route

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// How long the router tries.
const (
	budget     = 15 * time.Second       // for a leader or controller to be found: longer than an election takes
	firstPause = 20 * time.Millisecond  // before a second try, unless a newer image says sooner where to go
	lastPause  = 250 * time.Millisecond // between tries
	slack      = 500 * time.Millisecond // that a node may answer late
	leastLimit = time.Second            // of one request to another node
	lookEvery  = 250 * time.Millisecond // whether the node asked still leads
	hearsay    = time.Second            // for this node to hear of a leader epoch that a reader knows
	grace      = 2 * time.Second        // for an answer of a replaced leader, where asking again might do it twice
	patience   = 250 * time.Millisecond // with a node that has not answered a fetch when others have enough
	applyLimit = 5 * time.Second        // for this node to apply what the controller has answered with
)

// verdict is what an answer about one partition is worth.
type verdict int8

const (
	settled verdict = iota // it stands
	again                  // nothing was done; who leads now can tell
	open                   // it may or may not have been done
)

// judge judges a code that a node answered with. exists says that this node knows the partition; writes, that the
// request is one that appends; refused, that the node says that nothing was appended.
func judge(code int16, exists, writes, refused bool) verdict {
	switch code {
	case 0:
		return settled
	case kerr.LeaderNotAvailable.Code:
		return again
	case kerr.UnknownTopicOrPartition.Code, kerr.UnknownTopicID.Code, kerr.InconsistentTopicID.Code:
		switch {
		case !exists:
			return settled
		case writes && !refused: // the node gave the partition up while a batch of it waited to be committed
			return open
		}
		return again // the node has not heard of it yet, or this one not yet of its deletion
	case kerr.NotLeaderForPartition.Code, kerr.FencedLeaderEpoch.Code, kerr.UnknownLeaderEpoch.Code,
		kerr.OffsetNotAvailable.Code, kerr.ReplicaNotAvailable.Code:
		if writes && !refused {
			return open
		}
		return again
	case kerr.RequestTimedOut.Code, kerr.NetworkException.Code:
		if writes && !refused {
			return open
		}
	}
	return settled
}

// leavesOpen says of a code that it does not claim that nothing was appended.
func leavesOpen(code int16) bool {
	switch code {
	case 0, kerr.RequestTimedOut.Code, kerr.NetworkException.Code, kerr.NotEnoughReplicasAfterAppend.Code,
		kerr.KafkaStorageError.Code, kerr.UnknownServerError.Code:
		return true
	}
	return false
}

// notSent says of an error of a node that it certainly did nothing. Package peer marks its errors so.
func notSent(err error) bool {
	var marked interface{ NotSent() bool }
	return errors.As(err, &marked) && marked.NotSent()
}

// errReplaced ends a request to a node that does not lead any more what was asked about.
var errReplaced = errors.New("the node no longer leads what it was asked about")

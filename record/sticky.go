package record

import (
	"math/rand/v2"
	"sync"

	"millrace/internal/invariant"
)

// stickyBytes is how many bytes go to one partition before the next is chosen (KIP-794's batch.size).
const stickyBytes = 16384

// Sticky places keyless records of one stream of requests to one topic: it stays with a partition
// until enough bytes went there, then moves to one chosen uniformly. The choice is made once a move
// and kept until bytes were sent, so no partition is skipped. Safe for concurrent use.
type Sticky struct {
	mu      sync.Mutex
	rand    *rand.Rand // guarded by mu
	current int32      // -1: none chosen; guarded by mu
	bytes   int        // sent to current; guarded by mu, < stickyBytes
}

// NewSticky makes a Sticky that draws from r, which nobody else may use.
func NewSticky(r *rand.Rand) *Sticky { return &Sticky{rand: r, current: -1} }

// Partition is the partition for a batch of batchBytes, which the caller then sends there.
func (s *Sticky) Partition(partitions int32, batchBytes int) int32 {
	invariant.Check(partitions > 0, "a topic without partitions")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current < 0 || s.current >= partitions {
		s.current, s.bytes = s.rand.Int32N(partitions), 0
	}
	chosen := s.current
	s.bytes += batchBytes
	if s.bytes >= stickyBytes {
		s.current = -1
	}
	return chosen
}

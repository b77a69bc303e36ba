package broker

import (
	"math"
	"sync"
	"time"
)

// throttles bound the bytes a second that replicas out of the ISR are filled with, where their topic
// lists them as throttled: what this node fetches as their follower, and what it answers as their leader.
type throttles struct{ follower, leader bucket }

// bucket is a token bucket of bytes that holds one second's worth. What is taken may exceed what is
// there: then it is closed until that is paid back.
type bucket struct {
	mu sync.Mutex
	// Guarded by mu.
	rate   int64 // bytes a second; 0: no limit
	tokens float64
	at     time.Time // when tokens was right
}

// open tells how many bytes may be asked for now, or in how long some may, at a rate in bytes a second;
// a rate of 0 is no limit.
func (b *bucket) open(now time.Time, rate int64) (bytes int, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if rate <= 0 {
		b.rate = 0
		return math.MaxInt, 0
	}
	if b.rate == 0 {
		b.tokens, b.at = float64(rate), now
	}
	b.rate = rate
	b.tokens = min(b.tokens+now.Sub(b.at).Seconds()*float64(rate), float64(rate))
	b.at = now
	if b.tokens < 1 {
		return 0, max(time.Duration((1-b.tokens)/float64(rate)*float64(time.Second)), time.Millisecond)
	}
	return int(b.tokens), 0
}

// take pays for bytes that were moved.
func (b *bucket) take(bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rate > 0 {
		b.tokens -= float64(bytes)
	}
}

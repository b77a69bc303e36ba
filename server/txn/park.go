package txn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/internal/ktag"
	"millrace/server/coordinator"
)

// Bounds of what waits in a shard.
const (
	// patience is how long a request waits for what is under way about its id, before CONCURRENT_TRANSACTIONS. Mostly
	// it is the markers of the producer's last transaction, which come in a moment.
	patience = 500 * time.Millisecond
	// maxParked is how many requests wait for one id.
	maxParked = 32
	// maxBusy is how many ids wait for a producer id.
	maxBusy = 1024
	// allocateTimeout bounds the wait for a producer id.
	allocateTimeout = 10 * time.Second
)

// parked is a request that waits until its id is free.
type parked struct {
	again func()
	timer *coordinator.Timer
}

// park has a request looked at again when the id may be free, at the latest when its patience is over. It is false
// when it is over already, or too many wait.
func (s *shard) park(id string, until time.Time, again func()) bool {
	left := time.Until(until)
	if left <= 0 || len(s.parked[id]) >= maxParked {
		return false
	}
	p := &parked{again: again}
	p.timer = s.run.After(left, func() {
		s.unpark(id, p)
		again()
	})
	s.parked[id] = append(s.parked[id], p)
	return true
}

func (s *shard) unpark(id string, p *parked) {
	if i := slices.Index(s.parked[id], p); i >= 0 {
		s.parked[id] = slices.Delete(s.parked[id], i, i+1)
	}
	if len(s.parked[id]) == 0 {
		delete(s.parked, id)
	}
}

// freed looks again at what waits for an id.
func (s *shard) freed(id string) {
	waiting := s.parked[id]
	delete(s.parked, id)
	for _, p := range waiting {
		p.timer.Stop()
		p.again()
	}
}

// allocate gets a producer id for a transactional id, to which nothing else happens meanwhile. named says from which
// range. then is called on the loop.
func (s *shard) allocate(id string, named bool, then func(producerID int64, e *kerr.Error)) {
	if len(s.busy) >= maxBusy {
		then(-1, kerr.CoordinatorLoadInProgress)
		return
	}
	s.busy[id] = true
	s.run.Go(func(ctx context.Context) func() {
		ctx, cancel := context.WithTimeout(ctx, allocateTimeout)
		defer cancel()
		producerID, err := s.cfg.NewProducerID(ctx)
		if err == nil && producerID < 0 {
			err = errors.New("there is none")
		}
		return func() {
			delete(s.busy, id)
			switch {
			case err != nil: // who gives ids tells why there is none
				then(-1, kerr.CoordinatorLoadInProgress)
			case named:
				then(ktag.NamedProducerID(fmt.Sprintf("%s\x00%d", id, producerID)), nil)
			default:
				then(producerID, nil)
			}
			s.freed(id)
		}
	})
}

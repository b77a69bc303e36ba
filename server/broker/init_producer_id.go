package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/partition"
)

// InitProducerID (key 22), of idempotent producers.
//
// Every call gives a new id with epoch 0: an idempotent producer bumps its epoch by itself. Ids come
// from blocks that the controller hands out; the next block is asked for when nine tenths of the
// present one are used, and while none is at hand the answer is COORDINATOR_LOAD_IN_PROGRESS, which
// clients retry. A request with a transactional id is for the transaction coordinator, and refused here.

func (b *Broker) handleInitProducerID(ctx context.Context,
	req *kmsg.InitProducerIDRequest) (*kmsg.InitProducerIDResponse, error) {
	resp := kmsg.NewPtrInitProducerIDResponse()
	resp.Version = req.Version
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	if req.TransactionalID != nil {
		resp.ErrorCode = code(partition.ErrTransactional)
		return resp, nil
	}
	id, err := b.ids.take(ctx)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code
	default:
		resp.ProducerID, resp.ProducerEpoch = id, 0
	}
	return resp, nil
}

// AllocateProducerID gives an id that no producer has had, from the blocks that InitProducerID takes them from.
func (b *Broker) AllocateProducerID(ctx context.Context) (int64, error) { return b.ids.take(ctx) }

// idBlock is a range of producer ids that belongs to this broker.
type idBlock struct{ next, end, size int64 }

// producerIDs gives out ids from the block at hand and holds the next one ready.
type producerIDs struct {
	broker *Broker // whose ids they are, and whose Close awaits the allocations

	mu sync.Mutex
	// Guarded by mu.
	block, spare idBlock
	running      chan struct{} // closed when the allocation under way has ended; nil when none is
	failed       error         // of the last allocation
	closed       bool          // no allocation may begin
}

// take gives one id. It waits for an allocation when none is at hand, and gives up when one fails.
func (p *producerIDs) take(ctx context.Context) (int64, error) {
	for {
		id, ended := p.tryTake()
		if id >= 0 {
			return id, nil
		}
		if ended == nil {
			return -1, p.failure()
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return -1, ctx.Err()
		}
		if err := p.failure(); err != nil {
			return -1, fmt.Errorf("allocate producer ids: %w", err)
		}
	}
}

// failure is why the last allocation gave nothing.
func (p *producerIDs) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// tryTake gives an id, or -1 and the end of the allocation to wait for; none when the broker is
// closed. It starts an allocation when the ids at hand run low.
func (p *producerIDs) tryTake() (int64, chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.block.next == p.block.end {
		p.block, p.spare = p.spare, idBlock{}
	}
	low := p.block.end-p.block.next <= p.block.size/10 && p.spare == idBlock{}
	if low && p.running == nil && !p.closed {
		p.running = make(chan struct{})
		p.broker.wg.Go(p.refill)
	}
	if p.block.next == p.block.end {
		return -1, p.running
	}
	p.block.next++
	return p.block.next - 1, nil
}

// close keeps allocations from beginning, so that those under way can be awaited.
func (p *producerIDs) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.failed = errors.New("the broker is closed")
}

// refill fetches one block.
func (p *producerIDs) refill() {
	block, err := p.broker.allocateProducerIDs(p.broker.ctx)
	if err != nil && p.broker.ctx.Err() == nil {
		p.broker.cfg.Logger.Warn("no producer ids at hand", "err", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spare, p.failed = block, err
	close(p.running)
	p.running = nil
}

// allocateProducerIDs asks the controller for a block.
func (b *Broker) allocateProducerIDs(ctx context.Context) (idBlock, error) {
	req := kmsg.NewPtrAllocateProducerIDsRequest()
	req.BrokerID, req.BrokerEpoch = b.cfg.NodeID, -1
	if m := b.Image().Broker(b.cfg.NodeID); m != nil {
		req.BrokerEpoch = m.Epoch
	}
	resp, err := req.RequestWith(ctx, b.cfg.Controller)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err == nil && resp.ProducerIDLen <= 0 {
		err = fmt.Errorf("the controller gave a block of %d ids", resp.ProducerIDLen)
	}
	if err != nil {
		return idBlock{}, err
	}
	size := int64(resp.ProducerIDLen)
	return idBlock{next: resp.ProducerIDStart, end: resp.ProducerIDStart + size, size: size}, nil
}

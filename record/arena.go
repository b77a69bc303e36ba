package record

import (
	"context"
	"math/bits"
	"sync"

	"millrace/internal/invariant"
)

// Blocks come in sizes of powers of two, from minBlock to maxBlock; larger ones are not kept.
const (
	minBlockBits = 10 // 1 KiB
	maxBlockBits = 24 // 16 MiB
	blockClasses = maxBlockBits - minBlockBits + 1
	idleArenas   = 1024 // arenas kept for reuse
)

// Pool keeps memory for batches between requests, so that it stays mapped and warm: an explicit
// free list a size, up to a bound over all. A sync.Pool would be emptied by each collection and
// refilled by page faults.
type Pool struct {
	mu       sync.Mutex
	maxBytes int                    // immutable
	held     int                    // bytes in free; guarded by mu, <= maxBytes
	free     [blockClasses][][]byte // blocks by size class; guarded by mu
	arenas   []*Arena               // guarded by mu
}

// NewPool makes a Pool that holds at most maxBytes of unused memory.
func NewPool(maxBytes int) *Pool { return &Pool{maxBytes: maxBytes} }

// Arena lends a new Arena. The caller calls its Free once and drops it.
func (p *Pool) Arena() *Arena {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.arenas); n > 0 {
		a := p.arenas[n-1]
		p.arenas = p.arenas[:n-1]
		a.live = true
		return a
	}
	return &Arena{pool: p, live: true}
}

// Held is the number of unused bytes in the pool.
func (p *Pool) Held() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}

// takeLocked gives a block of a class, nil when there is none.
func (p *Pool) takeLocked(class int) []byte {
	list := p.free[class]
	if len(list) == 0 {
		return nil
	}
	block := list[len(list)-1]
	list[len(list)-1] = nil
	p.free[class] = list[:len(list)-1]
	p.held -= cap(block)
	return block
}

// putLocked takes a block back, or leaves it to the garbage collector when the pool is full.
func (p *Pool) putLocked(block []byte) {
	if p.held+cap(block) > p.maxBytes {
		return
	}
	class := blockClass(cap(block))
	p.free[class] = append(p.free[class], block)
	p.held += cap(block)
}

// blockClass is the smallest class whose blocks hold n bytes; it may be past the last class.
func blockClass(n int) int {
	if n <= 1<<minBlockBits {
		return 0
	}
	return bits.Len(uint(n-1)) - minBlockBits
}

// Arena is the memory for the batches of one request: Alloc takes from the pool, Free gives all
// back at once. A nil Arena allocates from the heap. Alloc is safe for concurrent use.
type Arena struct {
	pool   *Pool
	live   bool     // lent out; guarded by pool.mu
	blocks [][]byte // what Alloc gave; guarded by pool.mu
}

// Alloc gives n bytes of whatever content, with room to append up to the block's size.
func (a *Arena) Alloc(n int) []byte {
	if a == nil {
		return make([]byte, n)
	}
	class := blockClass(n)
	if class >= blockClasses {
		return make([]byte, n)
	}
	block, live := a.take(class)
	invariant.Check(live, "arena used after Free")
	if block != nil {
		return block[:n]
	}
	block = make([]byte, n, 1<<(class+minBlockBits))
	a.keep(block)
	return block
}

// take gives a block from the pool, nil when it has none.
func (a *Arena) take(class int) (block []byte, live bool) {
	a.pool.mu.Lock()
	defer a.pool.mu.Unlock()
	block = a.pool.takeLocked(class)
	if block != nil {
		a.blocks = append(a.blocks, block)
	}
	return block, a.live
}

// keep makes block one of those that Free gives to the pool.
func (a *Arena) keep(block []byte) {
	a.pool.mu.Lock()
	defer a.pool.mu.Unlock()
	a.blocks = append(a.blocks, block)
}

// Free gives all memory of the arena back: nothing that Alloc returned may be used any more, and
// the arena neither.
func (a *Arena) Free() {
	if a == nil {
		return
	}
	invariant.Check(a.release(), "arena freed twice")
}

// release does Free's work; false: the arena was not lent out.
func (a *Arena) release() bool {
	p := a.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if !a.live {
		return false
	}
	a.live = false
	for i, block := range a.blocks {
		p.putLocked(block)
		a.blocks[i] = nil
	}
	a.blocks = a.blocks[:0]
	if len(p.arenas) < idleArenas {
		p.arenas = append(p.arenas, a)
	}
	return true
}

// arenaKey is the context key of WithArena.
type arenaKey struct{}

// WithArena lets what runs under ctx take memory from a.
func WithArena(ctx context.Context, a *Arena) context.Context {
	return context.WithValue(ctx, arenaKey{}, a)
}

// ArenaFrom is the arena of ctx, nil without one.
func ArenaFrom(ctx context.Context) *Arena {
	a, _ := ctx.Value(arenaKey{}).(*Arena)
	return a
}

package coordinator

import "context"

// Reply is the answer to one Do. It is given once, on the loop, in the function of Do or later; what is given after the
// first is not heard.
type Reply[R any] struct {
	shard *Shard
	ctx   context.Context // of the caller
	out   chan result[R]  // capacity 1
	given bool            // owned by the loop
}

type result[R any] struct {
	value R
	err   error
}

// Send gives the answer v, which the caller gets when all that the state holds now is committed.
func (p *Reply[R]) Send(v R) {
	if p.given {
		return
	}
	p.given = true
	p.shard.hold(func(err error) {
		if err != nil {
			p.out <- result[R]{err: err}
			return
		}
		p.out <- result[R]{value: v}
	})
}

// Now gives the answer v at once: for refusals that depend on nothing uncommitted.
func (p *Reply[R]) Now(v R) { p.give(result[R]{value: v}) }

// Fail gives an error in place of an answer, at once.
func (p *Reply[R]) Fail(err error) { p.give(result[R]{err: err}) }

func (p *Reply[R]) give(r result[R]) {
	if !p.given {
		p.given = true
		p.out <- r
	}
}

// Gone says that the caller waits no longer.
func (p *Reply[R]) Gone() bool { return p.ctx.Err() != nil }

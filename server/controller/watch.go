package controller

import (
	"context"
	"errors"
	"syscall"
	"time"

	"millrace/server/metadata"
)

const (
	// tick is how often the loop looks around when nothing is due before.
	tick = time.Second
	// retryPause is how long the loop leaves a change alone that could not be agreed on.
	retryPause = 200 * time.Millisecond
	// maxProbes bounds the probes on their way.
	maxProbes = 8
	// probeTimeout bounds one connection attempt, and probePause is what lies between two.
	probeTimeout = time.Second
	probePause   = 50 * time.Millisecond
)

// watch looks after the brokers while this node is the controller. It is the one goroutine that lives as
// long as the controller; probes have short-lived ones.
func (c *Controller) watch(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		changed := c.changed() // before the look around, so that nothing is missed between the two
		began := time.Now()
		wait := c.pass(ctx)
		passed := time.Now()
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-changed:
		case <-c.wake:
		}
		c.noticePause(max(passed.Sub(began), time.Since(passed)-wait))
	}
}

// changed is closed when the leader of the quorum changes; nil when nobody tells.
func (c *Controller) changed() <-chan struct{} {
	if c.config.Changed == nil {
		return nil
	}
	return c.config.Changed()
}

// alert has the loop look around at once. It never waits.
func (c *Controller) alert() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// leads reports whether this node is the controller, and starts a new term if it became it.
func (c *Controller) leads() bool {
	leading, term := c.quorum.IsLeader(), uint64(0)
	if c.config.Term != nil {
		term = c.config.Term()
	}
	image := c.machine.Image()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !leading {
		c.live.leading = false
		return false
	}
	if !c.live.leading || c.live.term != term {
		c.live.begin(term, image, c.config.NodeID, time.Now())
		c.balanceAt = time.Now().Add(image.Settings().LeaderImbalanceCheckInterval)
		c.alert()
	}
	return true
}

// noticePause restarts the sessions when the loop itself was away for long: heartbeats that came meanwhile
// may still lie unread.
func (c *Controller) noticePause(away time.Duration) {
	if away <= paceOf(c.machine.Image()).session/2 {
		return
	}
	c.mu.Lock()
	c.live.restart(time.Now())
	c.mu.Unlock()
	c.logger.Warn("the controller was held up; the sessions of all brokers start anew", "away", away)
}

// pass does what is due and returns how long nothing more will be.
func (c *Controller) pass(ctx context.Context) time.Duration {
	if !c.leads() {
		return tick
	}
	image := c.machine.Image()
	c.mu.Lock()
	st := c.live.next(image, paceOf(image), c.config.NodeID, c.freeProbes(), time.Now())
	for _, b := range st.probe {
		s := c.live.session(b.ID, b.Epoch)
		s.probing, s.suspect = true, false
		c.probes++
	}
	c.mu.Unlock()
	for _, b := range st.probe {
		c.wg.Go(func() { c.probe(ctx, b) })
	}
	if st.fence != nil {
		return c.fence(ctx, st.fence, st.why)
	}
	return min(st.wait, c.balance(ctx, image))
}

// freeProbes is how many probes may begin; mu is held.
func (c *Controller) freeProbes() int {
	if c.config.Probe == nil {
		return 0
	}
	return maxProbes - c.probes
}

// fence takes one broker out of service and returns how long to wait before the next step.
func (c *Controller) fence(ctx context.Context, b *metadata.Broker, why string) time.Duration {
	o, err := c.changeBroker(ctx, b, fence(b), why)
	if err != nil || o.refusal.Code != 0 {
		if ctx.Err() == nil && c.quorum.IsLeader() {
			c.logger.Warn("broker not fenced", "node", b.ID, "why", why, "err", errors.Join(err, o.refusal.Err()))
		}
		return retryPause
	}
	return 0
}

// probe finds out whether anybody listens at the broker's port. Two refusals in a row are taken for a
// process that is gone: one may be a restart of what listens.
func (c *Controller) probe(ctx context.Context, b *metadata.Broker) {
	began := time.Now()
	refused := c.refuses(ctx, b)
	if refused && sleep(ctx, probePause) {
		refused = c.refuses(ctx, b)
	}
	c.mu.Lock()
	c.probes--
	c.live.probed(b, refused && ctx.Err() == nil, began, time.Now())
	c.mu.Unlock()
	c.alert()
}

// refuses connects once. Anything but a refusal says nothing: a slow or unreachable host may be alive.
func (c *Controller) refuses(ctx context.Context, b *metadata.Broker) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return errors.Is(c.config.Probe(ctx, b), syscall.ECONNREFUSED)
}

// sleep waits and reports whether it was left to finish.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Suspect tells that somebody saw a broker's port refuse a connection: it is probed at once, and fenced if
// that is so. It never waits, and means nothing where this node is not the controller.
func (c *Controller) Suspect(id int32) {
	b := c.machine.Image().Broker(id)
	if b == nil || b.Fenced || id == c.config.NodeID || !c.leads() {
		return
	}
	c.mu.Lock()
	c.live.session(b.ID, b.Epoch).suspect = true
	c.mu.Unlock()
	c.alert()
}

// Contact is when the controller heard of a broker last; false when it did not in this term, or when this
// node is not the controller.
func (c *Controller) Contact(id int32) (last time.Time, ok bool) {
	leading := c.quorum.IsLeader()
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.live.sessions[id]
	if !leading || !c.live.leading || s == nil || s.heard.IsZero() {
		return time.Time{}, false
	}
	return s.heard, true
}

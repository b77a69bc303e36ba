package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
)

// lifecycle keeps the controller informed that this broker lives, and asks it for leave to stop. One
// goroutine sends the heartbeats, one at a time; nothing that takes long happens on it.
type lifecycle struct {
	broker *Broker
	epoch  atomic.Int64 // of the present registration; -1 before Start
	fenced atomic.Bool  // as the last answer said
	proof  atomic.Pointer[proof]
	wake   chan struct{}
	doubt  chan struct{} // gets one, if there is room, when a request waits for a heartbeat

	leaving  atomic.Bool   // Shutdown was called
	released chan struct{} // closed when the controller lets the broker go

	mu sync.Mutex
	// Guarded by mu.
	refused []int32       // brokers whose port refused a connection since the last heartbeat
	failing bool          // the operator was told that heartbeats fail
	begun   uint64        // number of the last heartbeat that was sent
	ended   uint64        // number of the last one that was answered or given up
	heard   chan struct{} // closed when the next one ends
	doubted bool          // a request waits for a heartbeat that is not sent yet
}

func newLifecycle(b *Broker) *lifecycle {
	l := &lifecycle{broker: b, wake: make(chan struct{}, 1), released: make(chan struct{}),
		doubt: make(chan struct{}, 1), heard: make(chan struct{})}
	l.epoch.Store(-1)
	l.fenced.Store(true)
	return l
}

// Times between heartbeats that are shorter than the interval.
const (
	// hasty is the pause before a heartbeat that is to change something: a fenced broker wants to be
	// active, one that stops wants to go.
	hasty = 100 * time.Millisecond
	// refusalPause is the least time between two heartbeats that are sent because a port refused.
	refusalPause = 50 * time.Millisecond
	// doubtPause is that between heartbeats that requests wait for.
	doubtPause = 2 * time.Millisecond
)

// Start begins what a registered broker does: heartbeats, the fetching of what it follows, the care for
// the ISRs of what it leads. The epoch is that of the registration, which the images given to OnImage
// include by now.
func (b *Broker) Start(epoch int64) {
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	if b.closed || b.started {
		return
	}
	b.started = true
	b.life.epoch.Store(epoch)
	b.wg.Go(b.life.run)
	b.wg.Go(b.isr.run)
	b.fetchers.start()
}

// Epoch is the broker epoch under which this node is registered, or -1 before Start.
func (b *Broker) Epoch() int64 { return b.life.epoch.Load() }

// Fenced tells whether the controller holds this broker for unfit to serve, as its last answer said.
func (b *Broker) Fenced() bool { return b.life.fenced.Load() }

// Refused takes note that nobody listens on a broker's port, and has the controller look at once.
func (b *Broker) Refused(id int32) {
	image := b.Image()
	if image == nil || id == b.cfg.NodeID {
		return
	}
	if m := image.Broker(id); m == nil || m.Fenced {
		return // the controller knows
	}
	b.life.noteRefused(id)
}

// Shutdown asks the controller to move this broker's leaderships to others, and returns when it has and
// the fate of what was produced here until then is known, or when ctx ends. The broker goes on serving until
// Close. It is a no-op before Start and where controlled.shutdown.enable is off.
func (b *Broker) Shutdown(ctx context.Context) error {
	if b.Epoch() < 0 || !b.Image().Settings().ControlledShutdown {
		return nil
	}
	b.life.leaving.Store(true)
	b.life.hurry()
	select {
	case <-b.life.released:
		b.awaitDecided(ctx)
		return nil
	case <-b.ctx.Done():
		return errors.New("the broker was closed before its leaderships had moved")
	case <-ctx.Done():
		return fmt.Errorf("leaderships have not all moved: %w", context.Cause(ctx))
	}
}

// decideTime is how long a broker whose leaderships have moved waits for what has become of batches that were not
// committed by then: the new leaders need a round of fetches for that.
const decideTime = 2 * time.Second

// awaitDecided waits until no produce waits here any more. New ones are refused by now.
func (b *Broker) awaitDecided(ctx context.Context) {
	timer := time.NewTimer(decideTime)
	defer timer.Stop()
	for b.awaiting.Load() > 0 {
		select {
		case <-b.answered:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		case <-b.ctx.Done():
			return
		}
	}
}

// hurry has the next heartbeat sent at once.
func (l *lifecycle) hurry() {
	select {
	case l.wake <- struct{}{}:
	default: // it is on its way
	}
}

func (l *lifecycle) noteRefused(id int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.Contains(l.refused, id) || len(l.refused) >= ktag.MaxRefusedBrokers {
		return
	}
	l.refused = append(l.refused, id)
	l.hurry()
}

// keepRefused puts back what a heartbeat could not tell, for the next one.
func (l *lifecycle) keepRefused(ids []int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		if !slices.Contains(l.refused, id) && len(l.refused) < ktag.MaxRefusedBrokers {
			l.refused = append(l.refused, id)
		}
	}
}

func (l *lifecycle) takeRefused() []int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids := l.refused
	l.refused = nil
	return ids
}

// run sends heartbeats until the broker closes.
func (l *lifecycle) run() {
	ctx := l.broker.ctx
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		case <-timer.C:
		}
		next := l.beat(ctx)
		timer.Reset(next)
		if !l.rest(ctx) {
			return
		}
	}
}

// rest keeps heartbeats that were asked for from coming too close to each other.
func (l *lifecycle) rest(ctx context.Context) bool {
	timer := time.NewTimer(refusalPause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-l.doubt:
	}
	timer.Reset(doubtPause)
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// seek has a heartbeat sent, and gives what it proves; nil when it is not answered, or ctx ends before.
func (l *lifecycle) seek(ctx context.Context) *proof {
	if l.epoch.Load() < 0 {
		return nil
	}
	l.mu.Lock()
	number := l.begun + 1
	l.doubted = true
	l.mu.Unlock()
	select {
	case l.doubt <- struct{}{}:
	default:
	}
	l.hurry()
	for {
		l.mu.Lock()
		ended, heard := l.ended, l.heard
		l.mu.Unlock()
		if p := l.proof.Load(); p != nil && p.number >= number {
			return p
		}
		if ended >= number {
			return nil
		}
		select {
		case <-heard:
		case <-ctx.Done():
			return nil
		case <-l.broker.ctx.Done():
			return nil
		}
	}
}

// begin numbers a heartbeat that is about to be sent, and tells whether requests wait for it.
func (l *lifecycle) begin() (number uint64, doubted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun++
	doubted, l.doubted = l.doubted, false
	return l.begun, doubted
}

// end wakes who waits for a heartbeat.
func (l *lifecycle) end(number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = number
	close(l.heard)
	l.heard = make(chan struct{})
}

// beat sends one heartbeat, acts on the answer, and gives the time until the next.
func (l *lifecycle) beat(ctx context.Context) time.Duration {
	settings := l.broker.Image().Settings()
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.BrokerID, req.BrokerEpoch = l.broker.cfg.NodeID, l.epoch.Load()
	req.CurrentMetadataOffset = int64(l.broker.cfg.Applied())
	req.WantShutdown = l.leaving.Load()
	number, doubted := l.begin()
	defer l.end(number)
	if doubted {
		ktag.SetCertain(&req.UnknownTags)
	}
	refused := l.takeRefused()
	ktag.SetRefusedBrokers(&req.UnknownTags, refused)
	limit, cancel := context.WithTimeout(ctx, settings.SessionTimeout/2)
	defer cancel()
	sent := time.Now()
	resp, err := req.RequestWith(limit, l.broker.cfg.Controller)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if l.tell(ctx, err); err != nil {
		l.keepRefused(refused)
		if errors.Is(err, kerr.StaleBrokerEpoch) || errors.Is(err, kerr.BrokerIDNotRegistered) {
			return l.reregister(ctx)
		}
		return min(settings.HeartbeatInterval, time.Second)
	}
	l.proof.Store(newProof(number, sent, resp))
	if was := l.fenced.Swap(resp.IsFenced); was != resp.IsFenced {
		l.broker.cfg.Logger.Info("broker is "+fenceWord(resp.IsFenced), "node", req.BrokerID, "epoch", req.BrokerEpoch)
	}
	if req.WantShutdown && resp.ShouldShutdown {
		l.release()
		return settings.HeartbeatInterval
	}
	if resp.IsFenced || l.leaving.Load() {
		return min(settings.HeartbeatInterval, hasty)
	}
	return settings.HeartbeatInterval
}

func fenceWord(fenced bool) string {
	if fenced {
		return "fenced"
	}
	return "active"
}

// tell writes one line when heartbeats begin to fail, and one when they work again.
func (l *lifecycle) tell(ctx context.Context, err error) {
	l.mu.Lock()
	was := l.failing
	l.failing = err != nil
	l.mu.Unlock()
	switch {
	case err != nil && !was && ctx.Err() == nil:
		l.broker.cfg.Logger.Warn("heartbeat was not taken", "node", l.broker.cfg.NodeID, "err", err)
	case err == nil && was:
		l.broker.cfg.Logger.Info("heartbeats are taken again", "node", l.broker.cfg.NodeID)
	}
}

func (l *lifecycle) release() {
	select {
	case <-l.released:
	default:
		close(l.released) // only this goroutine closes it
	}
}

// reregister makes the broker known again, after the controller has forgotten it or registered another
// run under its id, and gives the time until the next heartbeat.
func (l *lifecycle) reregister(ctx context.Context) time.Duration {
	l.fenced.Store(true)
	l.proof.Store(nil)
	if l.broker.cfg.Register == nil {
		return time.Second
	}
	epoch, err := l.broker.cfg.Register(ctx)
	if err != nil {
		if ctx.Err() == nil {
			l.broker.cfg.Logger.Error("broker could not register again", "node", l.broker.cfg.NodeID, "err", err)
		}
		return time.Second
	}
	l.epoch.Store(epoch)
	return hasty
}

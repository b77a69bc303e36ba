package broker

import (
	"context"
	"errors"
	"time"

	"millrace/server/metadata"
	"millrace/server/partition"
)

// cleaner compacts the logs of this node whose topics ask for it, leaders and followers alike, from one goroutine: at
// each turn one log after the other, the dirtiest first, until none is dirty enough. It does their retention too.
type cleaner struct {
	broker *Broker
	work   *partition.Cleaner
	// failed are the replicas whose logs could not be compacted. They are left alone until the node starts again, or
	// another replica is in the place.
	failed    map[partition.Name]*partition.Replica
	retention deadline
	paid      time.Time // until when the bytes so far may take at the rate of the throttle
}

func newCleaner(b *Broker) *cleaner {
	return &cleaner{
		broker: b, work: partition.NewCleaner(), failed: map[partition.Name]*partition.Replica{},
		retention: deadline{every: func() time.Duration { return b.Image().Settings().RetentionCheckInterval }},
	}
}

// leastBackoff is the least time between two turns.
const leastBackoff = 10 * time.Millisecond

// run runs until the broker closes.
func (c *cleaner) run() {
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	for {
		select {
		case <-c.broker.ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(c.turn())
	}
}

// turn cleans what there is to be cleaned and tells how long to wait for the next.
func (c *cleaner) turn() time.Duration {
	b := c.broker
	v := b.view.Load()
	if v.image == nil {
		return time.Second
	}
	settings := v.image.Settings()
	// The settings may change meanwhile, so no turn waits for longer than the sweep.
	wait := min(max(settings.Cleaner.Backoff, leastBackoff), idleSweep)
	if !settings.Cleaner.Enable {
		return wait
	}
	if c.retention.due(time.Now(), settings.InitialTaskDelay) {
		b.eachReplica(v, func(r *partition.Replica) error {
			if !r.Compacted() {
				return nil
			}
			return r.ApplyRetention()
		})
	}
	done := map[*partition.Replica]bool{}
	for b.ctx.Err() == nil {
		r := c.dirtiest(done)
		if r == nil {
			break
		}
		if !c.clean(r, b.Image().Settings().Cleaner) {
			done[r] = true
		}
	}
	if len(done) == 0 {
		c.work.Release()
	}
	return wait
}

// dirtiest picks the log with the greatest part that is to be compacted, nil if there is none but those that are done.
func (c *cleaner) dirtiest(done map[*partition.Replica]bool) (found *partition.Replica) {
	greatest := -1.0
	failing := 0
	c.broker.view.Load().all(func(h *hosted) {
		for _, p := range h.parts {
			r := p.replica
			if r == nil || !r.Compacted() || r.Offline() != nil || c.broker.isr.resigning(r.Name()) {
				continue
			}
			if c.failed[r.Name()] == r {
				failing++
				continue
			}
			if done[r] {
				continue
			}
			ratio, due, err := r.Dirty()
			if err != nil {
				c.fail(r, err)
			} else if due && ratio > greatest {
				found, greatest = r, ratio
			}
		}
	})
	c.broker.metrics.uncleanable.Set(float64(failing))
	return found
}

// clean does one round and says whether there is something new to be said of the log by that.
func (c *cleaner) clean(r *partition.Replica, s metadata.CleanerSettings) (progress bool) {
	b := c.broker
	res, err := r.Clean(b.ctx, c.work, partition.CleanOptions{
		MapBytes: s.MapBytes, BufferBytes: s.BufferBytes, Pace: c.pace,
	})
	m := b.metrics
	m.cleanRead.Add(float64(res.BytesRead))
	m.cleanWritten.Add(float64(res.BytesWritten))
	m.cleanDropped.Add(float64(res.Dropped))
	m.cleanKeyless.Add(float64(res.Keyless))
	n := r.Name()
	if res.Keyless > 0 {
		b.cfg.Logger.Warn("compaction has left out records without a key", "topic", n.Topic, "partition", n.Partition,
			"records", res.Keyless)
	}
	switch {
	case err == nil && res.To > res.From:
		m.cleanRounds.Inc()
		return true
	case err == nil, b.ctx.Err() != nil, errors.Is(err, partition.ErrNotLeader), errors.Is(err, partition.ErrDeleted):
	case partition.Passes(err):
		m.cleanFailures.Inc()
		b.cfg.Logger.Warn("log is not compacted for now", "topic", n.Topic, "partition", n.Partition, "err", err)
	default:
		c.fail(r, err)
	}
	return false
}

// fail leaves a log alone from now on.
func (c *cleaner) fail(r *partition.Replica, err error) {
	n := r.Name()
	c.failed[n] = r
	c.broker.metrics.cleanFailures.Inc()
	c.broker.cfg.Logger.Error("log cannot be compacted: it grows until the node starts again", "topic", n.Topic,
		"partition", n.Partition, "err", err)
}

// pace waits for as long as bytes take at the rate that compaction is throttled to.
func (c *cleaner) pace(ctx context.Context, bytes int) error {
	took := float64(bytes) / c.broker.Image().Settings().Cleaner.BytesPerSecond * float64(time.Second)
	if took < 1 {
		return nil
	}
	now := time.Now()
	if c.paid.Before(now) {
		c.paid = now
	}
	c.paid = c.paid.Add(time.Duration(min(took, float64(time.Hour))))
	timer := time.NewTimer(c.paid.Sub(now))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

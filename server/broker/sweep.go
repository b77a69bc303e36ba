package broker

import (
	"time"

	"millrace/server/partition"
)

// sweep does for all partitions what time asks of them, from one goroutine: retention and the expiry
// of producers, each at the interval that the settings give at the time, the beginning of scrubs, and another try with
// those that could not be opened. An idle partition thereby owns no timer. The data directory writes its
// checkpoints by itself.
func (b *Broker) sweep() {
	retention := deadline{every: func() time.Duration { return b.Image().Settings().RetentionCheckInterval }}
	expiry := deadline{every: func() time.Duration { return b.Image().Settings().ProducerIDExpirationCheckInterval }}
	scrub := deadline{every: func() time.Duration { return b.Image().Settings().ScrubInterval }}
	var reopen backOff
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(b.sweepOnce(&retention, &expiry, &scrub, &reopen))
	}
}

// idleSweep is how long the sweep sleeps at most: intervals that were made shorter take hold then.
const idleSweep = 30 * time.Second

// reopenPause is the time between the first two tries to open partitions; each of the next is twice as long, up to
// mostReopenPause.
const (
	reopenPause     = 5 * time.Second
	mostReopenPause = 30 * time.Second
)

// deadline is the next time of one periodic task.
type deadline struct {
	every func() time.Duration
	next  time.Time // zero: not planned yet
}

// due plans the task the first time, and tells later whether its time has come.
func (d *deadline) due(now time.Time, first time.Duration) bool {
	if d.next.IsZero() {
		d.next = now.Add(first)
	}
	if now.Before(d.next) {
		return false
	}
	d.next = now.Add(max(d.every(), time.Millisecond))
	return true
}

// sweepOnce does what is due and tells how long there is nothing to do.
func (b *Broker) sweepOnce(retention, expiry, scrub *deadline, reopen *backOff) time.Duration {
	v := b.view.Load()
	if v.image == nil {
		return time.Second
	}
	now, settings := time.Now(), v.image.Settings()
	if retention.due(now, settings.InitialTaskDelay) {
		cleaner := settings.Cleaner.Enable
		b.eachReplica(v, func(r *partition.Replica) error {
			if cleaner && r.Compacted() {
				return nil // the cleaner does it, so that the two are not in each other's way
			}
			return r.ApplyRetention()
		})
	}
	if expiry.due(now, settings.ProducerIDExpirationCheckInterval) {
		b.eachReplica(v, func(r *partition.Replica) error {
			r.ExpireProducers(settings.ProducerIDExpiration)
			return nil // forgetting cannot fail
		})
	}
	b.planScrub(scrub, now, settings.ScrubInterval)
	wait := min(time.Until(retention.next), time.Until(expiry.next), idleSweep)
	if !scrub.next.IsZero() {
		wait = min(wait, time.Until(scrub.next))
	}
	return max(min(wait, b.planReopen(reopen, now)), time.Millisecond)
}

// backOff is when partitions are tried again that could not be opened.
type backOff struct {
	next  time.Time
	pause time.Duration // before next; 0: there are none
}

// planReopen tries partitions again when it is time for that, and tells how long there is nothing to do.
func (b *Broker) planReopen(o *backOff, now time.Time) time.Duration {
	if !b.failing.Load() {
		*o = backOff{}
		return reopenPause
	}
	if o.pause == 0 {
		*o = backOff{next: now, pause: reopenPause / 2}
	}
	if !now.Before(o.next) {
		b.reopen()
		o.pause = min(2*o.pause, mostReopenPause)
		o.next = now.Add(o.pause)
	}
	return o.next.Sub(now)
}

// eachReplica calls task for every partition, and gives up when the broker closes.
func (b *Broker) eachReplica(v *view, task func(*partition.Replica) error) {
	v.all(func(h *hosted) {
		for _, p := range h.parts {
			if p.replica == nil || p.replica.Offline() != nil || b.ctx.Err() != nil {
				continue
			}
			if err := task(p.replica); err != nil {
				n := p.replica.Name()
				b.cfg.Logger.Warn("retention failed", "topic", n.Topic, "partition", n.Partition, "err", err)
			}
		}
	})
}

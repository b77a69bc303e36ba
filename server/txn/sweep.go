package txn

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/server/coordinator"
	"millrace/server/metadata"
)

// Bounds of one step of what a shard does by the clock, between which it does other things.
const (
	maxAborts         = 200 // transactions beyond their timeout
	maxTombstones     = 1000
	maxTombstoneBytes = 256 << 10
	recordOverhead    = 32 // bytes of a record beside its key, at most
)

// abortPause is the least time between two looks for transactions beyond their timeout.
const abortPause = 100 * time.Millisecond

// abortLater sets the clock to the next look for transactions beyond their timeout: when the first of those that
// are open is, and in any case by the interval of the settings.
func (s *shard) abortLater() {
	next := time.Now().Add(s.settings().AbortInterval)
	for _, t := range s.open {
		if t.due.Before(next) {
			next = t.due
		}
	}
	s.abortAt(next)
}

// abortAt sets the clock to a look for transactions beyond their timeout.
func (s *shard) abortAt(at time.Time) {
	if at.Before(s.lookFrom) {
		at = s.lookFrom
	}
	s.look.Stop()
	s.lookAt = at
	s.look = s.run.After(max(time.Until(at), abortPause), s.abortTimedOut)
}

// abortBy sees to it that there is a look when a transaction that was begun is beyond its timeout.
func (s *shard) abortBy(t *transaction) {
	if s.look != nil && t.due.Before(s.lookAt) {
		s.abortAt(t.due)
	}
}

// abortTimedOut aborts what is beyond its timeout, in an epoch that the producer does not have.
func (s *shard) abortTimedOut() {
	now, n, failed := time.Now(), 0, false
	for id, t := range s.open {
		if s.busy[id] || now.Before(t.due) {
			continue
		}
		if failed { // nothing can be appended at the moment: the next time
			break
		}
		if n++; n > maxAborts {
			s.abortAt(now)
			return
		}
		s.end(t, false, func(e *kerr.Error) {
			if e != nil {
				failed, s.lookFrom = true, time.Now().Add(s.settings().AbortInterval)
				s.log.Warn("a transaction beyond its timeout could not be aborted", "transactional_id", id, "err", e)
				return
			}
			s.metrics.timedOut.Inc()
			s.log.Info("a transaction was aborted: it was open for longer than its producer has asked for",
				"transactional_id", id, "timeout_ms", t.timeout)
		})
	}
	s.abortLater()
}

// expireLater sets the clock to the next look for ids without use.
func (s *shard) expireLater() { s.run.After(s.settings().RemoveInterval, s.expire) }

// expire removes the ids that were not used for long.
func (s *shard) expire() {
	var old []string
	for id, t := range s.ids {
		if s.expired(t) {
			old = append(old, id)
		}
	}
	s.bury(old, 0)
}

func (s *shard) expired(t *transaction) bool {
	if t.state == ongoing || t.preparing() || s.busy[t.id] {
		return false
	}
	return s.millis()-t.updated >= s.settings().IDExpiration.Milliseconds()
}

// bury removes ids step by step, in batches that a log takes. What was used in the meantime stays.
func (s *shard) bury(ids []string, removed int) {
	var (
		batch []coordinator.KV
		bytes int
		limit = s.tombstoneBytes()
	)
	for len(ids) > 0 && len(batch) < maxTombstones && bytes < limit {
		if t := s.ids[ids[0]]; t != nil && s.expired(t) {
			kv := coordinator.KV{Key: encodeKey(t.id)}
			batch, bytes = append(batch, kv), bytes+recordOverhead+len(kv.Key)
		}
		ids = ids[1:]
	}
	err := s.run.Append(batch...)
	if err != nil {
		s.log.Warn("transactional ids that expired could not be removed", "err", err)
	} else {
		removed += len(batch)
		s.metrics.expired.Add(float64(len(batch)))
	}
	switch {
	case err == nil && len(ids) > 0:
		s.run.After(0, func() { s.bury(ids, removed) })
		return
	case removed > 0:
		s.log.Info("transactional ids expired", "ids", removed)
	}
	s.expireLater()
}

// tombstoneBytes is when a batch of tombstones is large enough.
func (s *shard) tombstoneBytes() int {
	t := s.image().Topic(metadata.TxnTopic)
	if t == nil {
		return maxTombstoneBytes
	}
	return min(maxTombstoneBytes, t.Settings.MaxMessageBytes/2, int(t.Settings.SegmentBytes/2))
}

package txn

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"millrace/server/coordinator"
	"millrace/server/metadata"
)

// transaction is what is known of a transactional id: the last record about it, and what goes on while this node
// leads.
type transaction struct {
	id string
	value
	due    time.Time // when an open transaction is beyond its timeout
	ending *ending   // markers are written; nil in other states than Prepare...
}

// shard is what is known of the transactional ids of one partition. It implements coordinator.State and belongs to
// the loop of the partition.
type shard struct {
	run       *coordinator.Shard
	cfg       *Config
	metrics   *metrics
	log       *slog.Logger
	rand      *rand.Rand
	lastEpoch int16
	hook      func(id string) // called before each append; a test's

	ids map[string]*transaction
	// open are the transactions that are Ongoing.
	open map[string]*transaction

	// look is the next look for transactions beyond their timeout, at lookAt; nil before the partition is loaded. It is
	// not before lookFrom, since one could not be aborted.
	look             *coordinator.Timer
	lookAt, lookFrom time.Time

	// busy are ids about which something is under way that is not in the log yet: they get a producer id. Of those
	// the map ids may know nothing.
	busy   map[string]bool
	parked map[string][]*parked
	lanes  map[int32]*lane // by leader

	began   time.Time // of the load
	damaged int       // records that did not decode
}

func newShard(c *Coordinator, run *coordinator.Shard) *shard {
	return &shard{
		run: run, cfg: &c.cfg, metrics: c.metrics, rand: c.chance(), lastEpoch: c.lastEpoch,
		hook: c.hook,
		log:  c.cfg.Logger.With("topic", metadata.TxnTopic, "partition", run.Number(), "epoch", run.Epoch()),
		ids:  make(map[string]*transaction), open: make(map[string]*transaction), busy: make(map[string]bool),
		parked: make(map[string][]*parked), lanes: make(map[int32]*lane), began: time.Now(),
	}
}

// image is the newest metadata.
func (s *shard) image() *metadata.Image { return s.cfg.Image() }

// settings are the coordinator's.
func (s *shard) settings() *metadata.TxnSettings { return &s.image().Settings().Txn }

// millis is the wall clock in milliseconds, as records have it.
func (s *shard) millis() int64 { return s.run.Now().UnixMilli() }

// Replay takes up a record.
func (s *shard) Replay(r *coordinator.Record) {
	err := s.replay(r)
	if err == nil || errors.Is(err, errUnknownVersion) {
		return
	}
	// The log's checksums hold, so somebody wrote this. The ids that can be read go on.
	if s.damaged++; s.damaged == 1 {
		s.log.Warn("a record of the transactions' topic does not decode and is skipped", "offset", r.Offset, "err", err)
	}
}

func (s *shard) replay(r *coordinator.Record) error {
	id, err := decodeKey(r.Key)
	if err != nil {
		return err
	}
	if r.Value == nil {
		delete(s.ids, id)
		delete(s.open, id)
		return nil
	}
	v, err := decodeValue(r.Value, s.lastEpoch)
	if err != nil {
		return err
	}
	t := s.ids[id]
	if t == nil {
		t = &transaction{id: id}
		s.ids[id] = t
	}
	if v.state != ongoing {
		delete(s.open, id)
	} else if s.open[id] == nil {
		s.open[id], t.due = t, time.Now().Add(millis(int64(v.timeout)))
		s.abortBy(t)
	}
	t.value = *v
	return nil
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// Marker does nothing: there are no transactions over this topic.
func (s *shard) Marker(int64, int16, bool) {}

// Loaded goes on with what the leader before has begun.
func (s *shard) Loaded() {
	s.metrics.loads.Observe(time.Since(s.began).Seconds())
	now := s.millis()
	for _, t := range s.ids {
		switch {
		case t.preparing():
			s.complete(t)
		case t.state == ongoing:
			// Never longer than the timeout from now, whatever the clock of the node was that led before.
			left := min(max(millis(t.started+int64(t.timeout)-now), 0), millis(int64(t.timeout)))
			t.due = time.Now().Add(left)
		}
	}
	s.abortLater()
	s.expireLater()
}

// put makes a change of an id: it is in the log, and in t, when there is no error. Several are made together or not
// at all.
func (s *shard) put(id string, values ...*value) error {
	kvs := make([]coordinator.KV, len(values))
	key := encodeKey(id)
	for i, v := range values {
		v.updated = s.millis()
		kvs[i] = coordinator.KV{Key: key, Value: encodeValue(v)}
	}
	if s.hook != nil {
		s.hook(id)
	}
	return s.run.Append(kvs...)
}

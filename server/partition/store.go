// Package partition is the replicas of partitions that one node keeps: what may be appended, what is
// committed, which replicas are in sync, what a follower takes from its leader, and who waits for that.
//
// A Store holds the partitions of one node on one data directory; nothing else of the server touches
// the logs. A Replica is one open log; the cluster's metadata makes it a Leader or a Follower, which are
// two types, so that a field exists only in its role. It promises:
//
//   - A batch is written whole, at the end, or not at all, and the sequence rules of idempotent and
//     named producers hold across restarts and changes of the leader.
//   - The high watermark only rises within a leader epoch. Below it every in-sync replica has the log:
//     synced to disk where log.sync is ack. Consumers see nothing above it, and an acks=all produce is
//     answered when it has passed. It stays where fewer than min.insync.replicas are in sync.
//   - A follower's log is a prefix of its leader's: it compares leader epochs at every fetch and truncates
//     where the logs part, never by high watermarks.
//   - The set of in-sync replicas changes by proposals to the controller, one at a time; what is proposed
//     to be in sync counts at once, what is proposed to be out counts until the controller has said so.
//   - Opening does no work in proportion to the log, and an idle partition owns no goroutine, no
//     timer and no open file: producer state is read when a batch first needs it.
//   - A produce that waits when its leader is deposed is told the truth about its batch if the replica finds it out
//     as a follower within the request's time; else that it is not known.
//   - Whoever waits is woken by the append or sync it waits for, never by a clock tick.
//
// Three locks order the work on a partition. The slot makes appends, truncations and changes of the role
// one after another and is held over file writes; mu guards what is computed from offsets, and the lists
// of waiting requests, and is held for a few instructions; neither is held while something of the
// broker's is called. Readers take neither: they read the high watermark once and then the log below it.
//
// Errors are Go errors inside; Explain gives each its Kafka code. The broker calls this package
// with one call for each partition of a request.
package partition

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"millrace/record"
	"millrace/storage"
)

// Config is what the partitions of a node share.
type Config struct {
	Dir *storage.Dir
	// CommitSynced makes the high watermark follow what is on disk instead of what is written.
	CommitSynced bool
	// Now is the node's wall clock, for timestamps and expiry.
	Now    func() time.Time
	Logger *slog.Logger
	// Env connects the partitions with the cluster. Attach can give it later.
	Env Env
}

// Env is what replication needs of the node. Each field may be nil; then there is one replica of
// everything, or a test that does not look at it.
type Env struct {
	// Now is the clock for replica.lag.time.max.ms; time.Now, which never jumps, when nil.
	Now func() time.Time
	// ReplicaState says what the metadata knows of a broker: its epoch, and whether it may be in an ISR. It
	// is asked with locks held: it must not wait or call back.
	ReplicaState func(broker int32) (epoch int64, active bool)
	// LagTimeMax is replica.lag.time.max.ms, 30 s when nil.
	LagTimeMax func() time.Duration
	// OnIsrChange hears that a leader has something to propose. It must not wait or call back.
	OnIsrChange func(*Leader)
	// OnDamage hears once of each replica whose log cannot be read. It must not wait or call back.
	OnDamage func(r *Replica, err error)
	// OnOrphan hears of a produce that began to wait for its batch after its leader was deposed, so that the next
	// fetch does not take long. It must not wait or call back.
	OnOrphan func(Name)
	Flaws    Flaws
}

const defaultLagTimeMax = 30 * time.Second

func (e Env) withDefaults() Env {
	if e.Now == nil {
		e.Now = time.Now
	}
	if e.LagTimeMax == nil {
		e.LagTimeMax = func() time.Duration { return defaultLagTimeMax }
	}
	if e.OnOrphan == nil {
		e.OnOrphan = func(Name) {}
	}
	if e.OnIsrChange == nil {
		e.OnIsrChange = func(*Leader) {}
	}
	if e.OnDamage == nil {
		e.OnDamage = func(*Replica, error) {}
	}
	return e
}

// idleCodecs is how many decompressors a node keeps for the check of compressed batches.
const idleCodecs = 4

// Store is the partitions of one node. It is safe for concurrent use, with different partitions.
type Store struct {
	dir          *storage.Dir
	commitSynced bool
	now          func() time.Time
	logger       *slog.Logger
	codecs       *record.Codecs
	env          Env
}

// NewStore makes a Store over an open data directory, which stays the caller's to close.
func NewStore(c Config) *Store {
	s := &Store{
		dir:          c.Dir,
		commitSynced: c.CommitSynced,
		now:          c.Now,
		logger:       c.Logger,
		codecs:       record.NewCodecs(idleCodecs),
	}
	s.Attach(c.Env)
	return s
}

// Attach connects the partitions with the cluster, in place of Config.Env. It comes before the first Open.
func (s *Store) Attach(e Env) {
	s.env = e.withDefaults()
	s.commitSynced = s.commitSynced && !e.Flaws.SkipSync
}

// Names lists the partitions on disk.
func (s *Store) Names() ([]Name, error) { return s.dir.Partitions() }

// Open takes up the partition's log, in no role yet. A log on disk is opened, which costs no I/O after a
// clean stop; one that belongs to an earlier topic of the name is set aside; where there is none, one is
// made. The high watermark is what it was known to be. An error is an OpenError; it can be tried again then.
func (s *Store) Open(n Name, settings *Settings) (*Replica, error) {
	log, err := s.dir.OpenLog(n, settings.log)
	if errors.Is(err, storage.ErrTopicID) {
		if err := s.dir.SetAside(n); err != nil {
			return nil, &OpenError{n, fmt.Errorf("set aside an older one: %w", err)}
		}
		err = storage.ErrNotFound
	}
	if errors.Is(err, storage.ErrNotFound) {
		log, err = s.dir.CreateLog(n, settings.log)
	}
	if err != nil {
		return nil, &OpenError{n, err}
	}
	if s.commitSynced {
		// What a crash left in the page cache was acknowledged and read perhaps: it is made durable before
		// anybody asks for the high watermark, which would else begin below it. Else there is nothing to do.
		if err := log.Sync(context.Background()); err != nil {
			_ = log.Close() // it is offline, and out of the way of the next try
			return nil, &OpenError{n, fmt.Errorf("sync what a crash left: %w", err)}
		}
	}
	r := newReplica(s, log, n, settings)
	if log.AbortedLost() {
		// Recovery has read what there is to be read, so once more is little. Until it is done the recovery point stays.
		if err := r.readFailed(none, r.rebuildAborted()); err != nil && !Damaged(err) {
			r.logger().Warn("aborted transactions are looked for again when somebody reads", "err", err)
		}
	}
	return r, nil
}

// SetAside renames the files of a partition that is not open, so that nothing is lost and the name is
// free.
func (s *Store) SetAside(n Name) error { return s.dir.SetAside(n) }

package partition

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"millrace/storage"
)

// Name is a partition's identity on this node: topic, topic id and number.
type Name = storage.PartitionName

// Replica is a partition's log on this node, in one role at a time: leader, follower, or none yet. Any
// goroutine may use it; Lead, Follow, Close, Delete and SetAsideAndRestart are one goroutine's at a time.
type Replica struct {
	*local
}

// local is what a replica has in every role. Leader and Follower share it with their Replica.
//
// Invariant: logStartOffset <= highWatermark <= logEndOffset but while a truncation runs.
type local struct {
	store    *Store
	log      *storage.Log
	name     Name
	settings atomic.Pointer[Settings]
	hw       atomic.Int64 // high watermark; changed with mu held
	// unstable is the first offset that no marker has decided, as txns say; unknownStable while those are not known.
	// What is appended is counted before it is written, so that the high watermark cannot pass it unseen. Changed with
	// mu held.
	unstable atomic.Int64
	damaged  atomic.Bool // the operator was told of damage

	leader   atomic.Pointer[Leader]   // the role; at most one of the two is not nil; set with the slot held
	follower atomic.Pointer[Follower] // as leader

	slot slot
	// Guarded by slot.
	producers  *producers // nil until first needed
	replayTo   int64      // no batch from here on is missing in producers, once they are read
	snapshotAt int64      // offset of the newest snapshot written since the log was opened, or none
	closed     bool

	mu sync.Mutex
	// Guarded by mu.
	txns    *transactions // of producers; nil while those have not been read
	waiters waitList      // for the high watermark
	orphans waitList      // produces whose leader here was deposed
	gone    error         // why the log cannot be used any more
}

// newReplica wraps an open log. It does no I/O.
func newReplica(s *Store, log *storage.Log, name Name, settings *Settings) *Replica {
	r := &Replica{local: &local{
		store:      s,
		log:        log,
		name:       name,
		slot:       newSlot(),
		replayTo:   log.EndOffset(),
		snapshotAt: none,
	}}
	r.settings.Store(settings)
	r.hw.Store(log.HighWatermark())
	r.unstable.Store(unknownStable)
	if s.commitSynced {
		log.OnSynced(r.synced)
	}
	log.OnOffline(r.fail)
	return r
}

// Leader is the replica in the leader's role, nil unless it is in that.
func (r *Replica) Leader() *Leader { return r.leader.Load() }

// Follower is the replica in a follower's role, nil unless it is in that.
func (r *Replica) Follower() *Follower { return r.follower.Load() }

// epochs are those of the role that the replica has.
func (r *Replica) epochs() (leaderEpoch, partitionEpoch int32) {
	if l := r.leader.Load(); l != nil {
		role := l.role.Load()
		return role.LeaderEpoch, role.PartitionEpoch
	}
	if f := r.follower.Load(); f != nil {
		role := f.role.Load()
		return role.LeaderEpoch, role.PartitionEpoch
	}
	return none, none
}

// Lead makes the replica the leader, or keeps it that, as new metadata says. A new leader epoch begins at
// the end of the log, and is known by that whether or not anything is written in it. Metadata that is not
// newer than what is known changes nothing. The answer is nil when the replica is closed, or follows in
// a later epoch.
func (r *Replica) Lead(role Role) *Leader {
	if l := r.leader.Load(); l != nil && role.LeaderEpoch == l.role.Load().LeaderEpoch {
		l.adopt(role)
		return l
	}
	if !role.newer(r.epochs()) {
		return r.leader.Load()
	}
	l := r.beginLeading(role)
	if l == nil {
		return nil
	}
	l.advance()
	if r.store.commitSynced && r.log.SyncedOffset() < r.log.EndOffset() {
		r.log.RequestSync() // what was followed may not be synced yet, and does not count before it is
	}
	if role.Recovering {
		l.propose()
	}
	return l
}

func (r *Replica) beginLeading(role Role) *Leader {
	r.slot.hold()
	defer r.slot.release()
	if r.closed {
		return nil
	}
	if f := r.follower.Load(); f != nil {
		f.end()
		r.follower.Store(nil)
	}
	l := r.leader.Load()
	if l == nil {
		l = &Leader{local: r.local}
		l.begin(role)
		r.leader.Store(l)
		return l
	}
	l.begin(role)
	return l
}

// Follow makes the replica a follower, or keeps it that, as new metadata says; role.Leader is -1 where there
// is no leader to follow. Who waits for a batch that this replica appended as leader goes on waiting. Metadata
// that is not newer than what is known changes nothing. The answer is nil when the replica is closed, or leads in
// a later epoch.
func (r *Replica) Follow(role Role) *Follower {
	if !role.newer(r.epochs()) {
		return r.follower.Load()
	}
	r.slot.hold()
	defer r.slot.release()
	if r.closed {
		return nil
	}
	if l := r.leader.Load(); l != nil {
		l.end()
		r.leader.Store(nil)
	}
	f := r.follower.Load()
	if f == nil {
		f = &Follower{local: r.local}
		f.begin(role)
		r.follower.Store(f)
		return f
	}
	f.begin(role)
	return f
}

// Reconfigure takes up new settings of the topic. The next append and the next roll follow them.
func (r *Replica) Reconfigure(s *Settings) {
	r.settings.Store(s)
	r.log.Reconfigure(s.log)
	if !s.compact.on {
		r.log.StopCompaction()
	}
	if l := r.leader.Load(); l != nil {
		l.advance()
	}
}

// Close ends the replica and leaves the log as the next start likes it best: with a producer snapshot at
// its end. Who waits for the partition is told that it is here no longer.
func (r *Replica) Close() error {
	if !r.endRole(ErrNotLeader) {
		return nil
	}
	r.snapshotAtEnd()
	return r.log.Close()
}

// Delete ends the replica of a partition that was deleted, and removes its files, in the background.
func (r *Replica) Delete() error { return r.remove(ErrDeleted) }

// Leave ends the replica of a partition that goes on elsewhere, and removes its files, in the background.
func (r *Replica) Leave() error { return r.remove(ErrNotLeader) }

func (r *Replica) remove(why error) error {
	if !r.endRole(why) {
		return nil
	}
	return r.store.dir.DeleteLog(r.log)
}

// SetAsideAndRestart ends a replica whose log is damaged, keeps its files aside for a person to look at, and
// gives a replica with an empty log, in no role, to be fetched anew. The replica must be in no ISR by then:
// what it had acknowledged, it has no more.
func (r *Replica) SetAsideAndRestart() (*Replica, error) {
	if !r.endRole(ErrNotLeader) {
		return nil, fmt.Errorf("set aside %s: %w", r.name, storage.ErrClosed)
	}
	if err := r.store.dir.SetAsideLog(r.log); err != nil {
		return nil, err
	}
	r.logger().Warn("damaged log set aside, to be fetched anew")
	return r.store.Open(r.name, r.settings.Load())
}

// endRole stops the replica for everybody who uses it: later calls and waiting requests get why. It
// reports false when that has happened before. The caller then has the log for itself.
func (r *Replica) endRole(why error) bool {
	r.slot.hold()
	defer r.slot.release()
	if r.closed {
		return false
	}
	r.closed = true
	r.fail(why)
	return true
}

// Name is the partition's identity.
func (c *local) Name() Name { return c.name }

// Size is the bytes of the log's segments.
func (c *local) Size() (int64, error) { return c.log.Size() }

// Offline is why the log can no longer be used, or nil.
func (c *local) Offline() error { return c.log.Offline() }

// Bounds are the offsets of a partition at one moment.
type Bounds struct{ LogStart, LastStable, HighWatermark, LogEnd int64 }

// Bounds reads the partition's offsets so that they are in order whatever happens meanwhile. As long as nobody has
// asked for the last stable offset since the log was opened, it is the high watermark.
func (c *local) Bounds() Bounds {
	start := c.log.StartOffset()
	hw := max(c.hw.Load(), start)
	return Bounds{
		LogStart: start, LastStable: max(c.stableAt(hw), start), HighWatermark: hw, LogEnd: max(c.log.EndOffset(), hw),
	}
}

// ApplyRetention removes the segments that the topic's settings do not keep, never beyond the high
// watermark. A partition that has ended meanwhile has none to remove.
func (c *local) ApplyRetention() error {
	_, err := c.log.ApplyRetention(c.store.now(), c.hw.Load())
	if errors.Is(err, storage.ErrClosed) {
		return nil
	}
	return err
}

// ExpireProducers forgets the producers that were silent for longer than lifetime. Their state is not
// read for that.
func (c *local) ExpireProducers(lifetime time.Duration) (removed int) {
	c.slot.hold()
	defer c.slot.release()
	if c.closed || c.producers == nil {
		return 0
	}
	return c.producers.expire(c.store.now().UnixMilli(), lifetime.Milliseconds())
}

// committable is the offset up to which this replica has the log so that it counts: its log end offset or,
// where an acknowledgement promises the disk, its synced offset.
func (c *local) committable() int64 {
	if c.store.commitSynced {
		return c.log.SyncedOffset()
	}
	return c.log.EndOffset()
}

// synced hears of each new synced offset.
func (c *local) synced(int64) {
	if l := c.leader.Load(); l != nil {
		l.advance()
	} else if f := c.follower.Load(); f != nil {
		f.advance()
	}
}

// fail makes the partition answer why from now on, and wakes all that wait for it.
func (c *local) fail(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = why
	c.waiters.wakeAll()
	c.orphans.wakeAll()
	if l := c.leader.Load(); l != nil {
		l.watchers.wakeAll()
		l.deletions.wakeAll()
	}
}

// whyGone is the error that ended the partition; a log that was closed under it is led no longer.
func (c *local) whyGone() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone == nil {
		return ErrNotLeader
	}
	return c.gone
}

// unlink takes a node out of the list it is in.
func (c *local) unlink(n *waitNode) {
	c.mu.Lock()
	if n.linked {
		n.list.remove(n)
	}
	c.mu.Unlock()
}

// readFailed makes a closed log's error the reason why it was closed, and damage a DamageError. It tells
// the operator and the broker of damage, once: the answer to a fetch has no room for it.
func (c *local) readFailed(offset int64, err error) error {
	if errors.Is(err, storage.ErrClosed) {
		return c.whyGone()
	}
	var damage *storage.CorruptionError
	if !errors.As(err, &damage) {
		return err
	}
	err = &DamageError{Next: damage.Next, Err: err}
	if c.damaged.CompareAndSwap(false, true) {
		c.logger().Error("log cannot be read", "offset", offset, "err", err)
		c.store.env.OnDamage(&Replica{local: c}, err)
	}
	return err
}

// snapshotAtEnd saves the producers so that the next start need not replay the log. A failure costs
// that replay and nothing else. The slot is not held, as nobody else uses the log any more.
func (c *local) snapshotAtEnd() {
	end := c.log.EndOffset()
	if !c.log.AbortedLost() && (c.snapshotAt == end || c.producers == nil && c.replayTo == end) {
		return
	}
	if err := c.loadProducers(); err != nil {
		c.logger().Warn("producer state not saved", "err", err)
		return
	}
	c.saveProducers(end)
}

func (c *local) logger() *slog.Logger {
	return c.store.logger.With("topic", c.name.Topic, "partition", c.name.Partition)
}

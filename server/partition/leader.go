package partition

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"millrace/internal/invariant"
	"millrace/storage"
)

// Name is a partition's identity on this node: topic, topic id and number.
type Name = storage.PartitionName

// Role is what the cluster's metadata says about a partition that this node leads.
type Role struct {
	LeaderEpoch    int32
	PartitionEpoch int32
	InSync         int // replicas in the ISR
	Replicas       int // replicas assigned
}

// Leader is one partition that this node leads. Any goroutine may use it.
//
// Two locks order its work. The append slot makes appends one after another and is held over the
// file write; mu guards the list of waiting requests and is held for a few instructions. Readers
// take neither: they read the high watermark once and then the log below it.
//
// Invariant: logStartOffset <= highWatermark <= logEndOffset, and the high watermark never falls.
type Leader struct {
	store    *Store
	log      *storage.Log
	name     Name
	settings atomic.Pointer[Settings]
	role     atomic.Pointer[epochRole] // changed with the slot held when the epoch changes
	hw       atomic.Int64              // high watermark; raised with mu held
	damaged  atomic.Bool               // the operator was told of damage

	slot slot
	// Guarded by slot.
	producers  *producers // nil until first needed
	replayTo   int64      // log end offset at open: no batch from here on is missing in producers
	snapshotAt int64      // offset of the newest snapshot this leader wrote, or none
	trusted    *epochRole // the role whose epoch was compared with the log's
	closed     bool

	mu sync.Mutex
	// Guarded by mu.
	waiters waitList
	hidden  []extent // what is appended, or about to be, at or above the high watermark, in order
	gone    error    // why nobody may wait any more; nil while the partition is led
}

// epochRole is a Role with what the leader noted when its epoch began. It never changes.
type epochRole struct {
	Role
	epochStart int64 // log end offset at the beginning of the leader epoch
}

// extent is a batch that the high watermark has not passed.
type extent struct {
	next  int64 // offset after its last
	bytes int64
}

// slot is a lock that is held over file writes. Who waits for it waits on a channel, so that waiting
// can be given up and does not stop fake time. Release hands the slot to nobody: whoever runs takes it,
// and who was woken tries again. Handed over in turn it would lie idle until the next in line runs, which
// behind a thousand busy connections is long.
//
// Invariant: while the slot is free and somebody waits, free holds a token or a woken waiter is about to
// try.
type slot struct {
	held    atomic.Bool
	waiting atomic.Int32
	free    chan struct{} // one token at most
}

func newSlot() slot { return slot{free: make(chan struct{}, 1)} }

func (s *slot) take(ctx context.Context) error {
	if s.held.CompareAndSwap(false, true) {
		return nil
	}
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	for !s.held.CompareAndSwap(false, true) {
		select {
		case <-s.free:
		case <-ctx.Done():
			s.wake() // the token may have been meant for this one
			return ctx.Err()
		}
	}
	return nil
}

// hold takes the slot however long that takes.
func (s *slot) hold() { _ = s.take(context.Background()) }

func (s *slot) release() {
	s.held.Store(false)
	if s.waiting.Load() > 0 {
		s.wake()
	}
}

func (s *slot) wake() {
	select {
	case s.free <- struct{}{}:
	default: // somebody is being woken already
	}
}

// newLeader wraps an open log. It does no I/O.
func newLeader(s *Store, log *storage.Log, name Name, settings *Settings, role Role) *Leader {
	end := log.EndOffset()
	l := &Leader{
		store:      s,
		log:        log,
		name:       name,
		slot:       newSlot(),
		replayTo:   end,
		snapshotAt: none,
	}
	l.settings.Store(settings)
	l.role.Store(&epochRole{Role: role, epochStart: end})
	l.hw.Store(max(l.committable(), log.StartOffset()))
	log.SetHighWatermark(l.hw.Load())
	if s.commitSynced {
		log.OnSynced(l.raise)
	}
	log.OnOffline(l.fail)
	return l
}

// Lead takes up what new metadata says of the partition. A newer leader epoch begins at the present
// end of the log. It reaches the disk with the first append or question about epochs: until then
// nobody can know of it.
func (l *Leader) Lead(r Role) {
	old := l.role.Load()
	if r.LeaderEpoch < old.LeaderEpoch {
		return
	}
	if r.LeaderEpoch == old.LeaderEpoch {
		if r.PartitionEpoch > old.PartitionEpoch {
			l.role.Store(&epochRole{Role: r, epochStart: old.epochStart})
			l.raise(l.committable())
		}
		return
	}
	l.slot.hold()
	l.role.Store(&epochRole{Role: r, epochStart: l.log.EndOffset()})
	l.slot.release()
	l.raise(l.committable())
}

// Reconfigure takes up new settings of the topic. The next append and the next roll follow them.
func (l *Leader) Reconfigure(s *Settings) {
	l.settings.Store(s)
	l.log.Reconfigure(s.log)
	l.raise(l.committable())
}

// Name is the partition's identity.
func (l *Leader) Name() Name { return l.name }

// Bounds are the offsets of a partition at one moment.
type Bounds struct{ LogStart, LastStable, HighWatermark, LogEnd int64 }

// Bounds reads the partition's offsets so that they are in order whatever happens meanwhile.
func (l *Leader) Bounds() Bounds {
	start := l.log.StartOffset()
	hw := max(l.hw.Load(), start)
	return Bounds{LogStart: start, LastStable: hw, HighWatermark: hw, LogEnd: max(l.log.EndOffset(), hw)}
}

// Size is the bytes of the log's segments.
func (l *Leader) Size() (int64, error) { return l.log.Size() }

// checkEpoch compares the leader epoch of a request with the partition's; -1 is not checked.
func (l *Leader) checkEpoch(epoch int32) error {
	switch own := l.role.Load().LeaderEpoch; {
	case epoch == none || epoch == own:
		return nil
	case epoch < own:
		return ErrFencedEpoch
	default:
		return ErrUnknownEpoch
	}
}

// end stops the partition for everybody who uses it: later calls and waiting requests get why. It
// reports false when that has happened before. The caller then has the log for itself.
func (l *Leader) end(why error) bool {
	l.slot.hold()
	defer l.slot.release()
	if l.closed {
		return false
	}
	l.closed = true
	l.fail(why)
	return true
}

// fail wakes all that wait for the partition; they find why.
func (l *Leader) fail(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = why
	for n := l.waiters.head; n != nil; n = l.waiters.head {
		l.waiters.remove(n)
		n.waiter.wake()
	}
}

// unlink takes a node out of the leader's list.
func (l *Leader) unlink(n *waitNode) {
	l.mu.Lock()
	l.waiters.remove(n)
	l.mu.Unlock()
}

// close ends the partition and leaves the log as the next start likes it best: with a producer
// snapshot at its end.
func (l *Leader) close() error {
	if !l.end(ErrNotLeader) {
		return nil
	}
	l.snapshotAtEnd()
	return l.log.Close()
}

// snapshotAtEnd saves the producers so that the next start need not replay the log. A failure costs
// that replay and nothing else. The slot is not held, as nobody else uses the log any more.
func (l *Leader) snapshotAtEnd() {
	end := l.log.EndOffset()
	if l.snapshotAt == end || l.producers == nil && l.replayTo == end {
		return
	}
	if err := l.loadProducers(); err != nil {
		l.logger().Warn("producer state not saved", "err", err)
		return
	}
	l.saveProducers(end)
}

func (l *Leader) logger() *slog.Logger {
	return l.store.logger.With("topic", l.name.Topic, "partition", l.name.Partition)
}

// checkBounds asserts the leader's invariant. The condition stands outside the call, whose arguments
// would cost memory at every write.
func (l *Leader) checkBounds(hw int64) {
	if end := l.log.EndOffset(); hw > end {
		invariant.Check(false, "%s: high watermark %d above log end offset %d", l.name, hw, end)
	}
}

// Offline is why the log can no longer be used, or nil.
func (l *Leader) Offline() error { return l.log.Offline() }

// Package coordinator runs event loops over the partitions of an internal topic: the groups and the transactions of
// a cluster are such loops, over __consumer_offsets and __transaction_state.
//
// The state of a partition is a fold over its log, up to the end of the log. One goroutine owns it, the loop of that
// partition in one leader epoch. A handler runs on the loop, computes records and appends them, and they are
// replayed into the state at once: a log that is read again gives the same state. Nothing is ever rolled back, for
// an append that fails has written and replayed nothing.
//
// What it promises:
//
//   - An answer is held back until all that the state held when it was given is committed. So nobody is told what can
//     be lost, neither of his own request nor of another's before it.
//   - A loop appends in the leader epoch in which it read the log, and in no other: who was deposed without knowing
//     it writes nothing.
//   - When the node leads the partition no longer, the state is dropped, timers stop, and who waits is told
//     NOT_COORDINATOR, whatever the state does about it.
//   - Everything has a bound: a mailbox that is full refuses with COORDINATOR_LOAD_IN_PROGRESS, and while too many
//     answers wait for their commit no request is taken out of it. The state bounds what it parks and starts.
//
// Packages group and txn make a Runtime each and give it their State; server tells it, through them, which partitions
// the node leads.
package coordinator

import (
	"context"
	"log/slog"
	"time"

	"millrace/server/partition"
)

// Record is one record of the log.
type Record struct {
	Offset, Timestamp int64
	Key, Value        []byte // a nil Value is a tombstone
	ProducerID        int64  // of a transaction that its marker ends, else -1
	ProducerEpoch     int16
}

// KV is a record to be appended. A nil Value is a tombstone.
type KV struct{ Key, Value []byte }

// State is what a coordinator keeps of one partition. All methods run on the loop of the partition, one after the
// other, and must not wait.
type State interface {
	// Replay takes up a record, in log order, while loading and after each append. Its bytes are valid only during
	// the call.
	Replay(r *Record)
	// Marker takes up the end of a producer's transaction, in log order.
	Marker(producerID int64, epoch int16, commit bool)
	// Loaded says that the log has been read and that this node leads: timers may start. When it leads no longer nothing
	// more is called.
	Loaded()
}

// Config says what to coordinate.
type Config struct {
	Topic string // the internal topic, for messages
	// New makes the state of a partition. It may keep the shard, and use it from Loaded on.
	New    func(*Shard) State
	Now    func() time.Time // the node's wall clock, for timestamps
	Logger *slog.Logger
	// CommitTimeout is how long an answer waits for its commit. Then it is COORDINATOR_NOT_AVAILABLE: what was
	// appended stays, and may yet be committed.
	CommitTimeout time.Duration
	// Failed hears of each error of a partition's log: another replica may have to lead it. It must not wait. Nil:
	// nobody hears of them.
	Failed func(partition.Name, error)
}

// defaultCommitTimeout is offsets.commit.timeout.ms as Kafka has it.
const defaultCommitTimeout = 5 * time.Second

func (c Config) withDefaults() Config {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.CommitTimeout <= 0 {
		c.CommitTimeout = defaultCommitTimeout
	}
	if c.Failed == nil {
		c.Failed = func(partition.Name, error) {}
	}
	return c
}

// Do runs fn on the loop of a partition and waits for the reply, and for its commit. It fails with a *kerr.Error or
// with what fn gave to Fail: NOT_COORDINATOR when the partition is not led here, or no longer;
// COORDINATOR_LOAD_IN_PROGRESS while it is read, or too much is going on; COORDINATOR_NOT_AVAILABLE when the node
// stops, or when the commit takes too long. Whether what fn appended is committed is open then, as it is when ctx ends
// first.
func Do[R any](ctx context.Context, r *Runtime, number int32, fn func(State, *Reply[R])) (R, error) {
	var none R
	s, err := r.serving(number)
	if err != nil {
		return none, err
	}
	p := &Reply[R]{shard: s, ctx: ctx, out: make(chan result[R], 1)}
	err = s.post(func() {
		if !p.Gone() {
			fn(s.state, p)
		}
	})
	if err != nil {
		return none, err
	}
	select {
	case res := <-p.out:
		return res.value, res.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	case <-s.ended:
	}
	select { // it may have been given just before the end
	case res := <-p.out:
		return res.value, res.err
	default:
		return none, s.why()
	}
}

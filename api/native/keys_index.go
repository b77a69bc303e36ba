package native

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/api"
	"millrace/client"
	"millrace/record"
)

// Bounds of how an index reads its partition.
const (
	keyFetchBytes = 1 << 20
	keyChunk      = 4096 // entries that are taken in at a time
	keySweep      = 4096 // entries of which it does not matter whether they still stand for something
	keyReaders    = 2    // indexes that read more than one answer holds, at a time
	keyTries      = 250  // of reading on while the leader moves
	keyPause      = 20 * time.Millisecond
)

// errManyKeys says that the keys of a partition do not fit the memory for indexes.
var errManyKeys = errors.New("the keys of the partition are too many for an index")

// keyIndex knows the offset of the latest committed record of each key of a partition, or of a single key. It is read
// on to the last stable offset before each look, so a look finds everything that was readable when it began. What it
// holds are digests: who fetches the record has to compare the key.
//
// What is committed stays, as a rule. Where a new leader's log is another one nevertheless, for all replicas that had
// it were lost, the index begins anew: it reads in one leader epoch at a time, and begins another by asking where the
// epoch of its last batch ends. That also makes sure that the new leader knows again of all that was committed.
type keyIndex struct {
	table *keyTable
	id    keyIndexID
	turn  chan struct{} // full while somebody reads on

	users int   // guarded by table.mu
	bytes int64 // guarded by table.mu

	mu      sync.Mutex
	begun   uint64              // how often somebody began to read on; guarded by mu
	ended   uint64              // the last one of these that came to the end; guarded by mu
	entries map[keyDigest]int64 // offset<<1, with 1 for a tombstone; guarded by mu
	start   int64               // log start offset; what lies below is gone; guarded by mu
	next    int64               // everything below was read; guarded by mu
	target  int64               // the end that is being read to; guarded by mu
	epoch   int32               // in which the log is read, -1 before; guarded by mu
	tooMany bool                // errManyKeys for good; guarded by mu

	// Of who has the turn.
	lastEpoch  int32 // of the last batch read, -1 before
	tombstones int   // entries that became tombstones since the last sweep
	swept      int64 // the log start offset then
}

func newKeyIndex(t *keyTable, id keyIndexID) *keyIndex {
	return &keyIndex{
		table: t, id: id, turn: make(chan struct{}, 1), bytes: id.bytes(),
		entries: map[keyDigest]int64{}, epoch: -1, lastEpoch: -1,
	}
}

// keyPlace is where the latest record of a key is.
type keyPlace struct {
	offset int64
	epoch  int32 // in which the log was read
}

// look tells where the latest record of a key is. The index must have been read on before.
func (x *keyIndex) look(key []byte) (at keyPlace, ok bool) {
	digest := x.digest(key)
	x.mu.Lock()
	defer x.mu.Unlock()
	v, ok := x.entries[digest]
	return keyPlace{v >> 1, x.epoch}, ok && v>>1 >= x.start
}

// forget drops an entry whose record is gone, as a tombstone is in the end.
func (x *keyIndex) forget(key []byte, offset int64) {
	digest := x.digest(key)
	x.mu.Lock()
	defer x.mu.Unlock()
	if v, ok := x.entries[digest]; ok && v>>1 == offset {
		delete(x.entries, digest)
	}
}

// leave has the index ask for the leader epoch before it reads on.
func (x *keyIndex) leave() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.epoch = -1
}

func (x *keyIndex) digest(key []byte) keyDigest {
	if x.id.single {
		return keyDigest{}
	}
	return x.table.digest(key)
}

// readOn has the index read to the end of what was readable when it was called. Who finds another one at it waits, and
// is content with what was begun after the call.
func (x *keyIndex) readOn(ctx context.Context, k *keyed, topic *client.Topic) error {
	x.mu.Lock()
	content := x.begun + 1
	x.mu.Unlock()
	select {
	case x.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-x.turn }()
	x.mu.Lock()
	if x.tooMany || x.ended >= content {
		defer x.mu.Unlock()
		if x.tooMany {
			return errManyKeys
		}
		return nil
	}
	x.begun++
	round := x.begun
	x.mu.Unlock()
	r := keyRead{index: x, keyed: k, topic: topic, target: -1, empty: -1}
	defer r.close()
	if err := r.run(ctx); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ended = round
	return nil
}

// behind tells how far the index is.
func (x *keyIndex) behind() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return api.Refuse(api.IndexBehind, "the index of %s-%d has read its records up to offset %d of %d",
		x.id.name, x.id.partition, x.next, x.target).With("next_offset", x.next).With("last_stable_offset", x.target)
}

// keyRead is one go at reading an index's partition on.
type keyRead struct {
	index   *keyIndex
	keyed   *keyed
	topic   *client.Topic
	scratch *scratch
	slow    bool  // has a place among the readers of more than one answer
	target  int64 // the last stable offset of the first answer; -1 before
	empty   int64 // the last stable offset that an answer without batches told; -1: the last answer had some
	updates []keyUpdate
}

type keyUpdate struct {
	digest keyDigest
	value  int64
}

func (r *keyRead) close() {
	if r.scratch != nil {
		r.keyed.consumer.keepScratch(r.scratch)
	}
	if r.slow {
		<-r.keyed.reading
	}
}

// run reads until the target is reached.
func (r *keyRead) run(ctx context.Context) error {
	x := r.index
	for tries := 0; ; {
		err := r.step(ctx)
		x.mu.Lock()
		done := err == nil && r.target >= 0 && x.next >= r.target
		x.mu.Unlock()
		switch {
		case done:
			return nil
		case err == nil:
			tries = 0
		case !r.passes(err) || tries == keyTries || !pause(ctx, keyPause):
			return err
		default:
			tries++
			if r.topic, err = r.keyed.renew(ctx, r.topic); err != nil {
				return err
			}
		}
	}
}

// passes tells whether to go on after an error: the leader has moved, and the log is to be read in another epoch.
func (r *keyRead) passes(err error) bool {
	moved := errors.Is(err, kerr.FencedLeaderEpoch) || errors.Is(err, kerr.UnknownLeaderEpoch)
	if moved {
		r.index.leave()
	}
	return moved || errors.Is(err, kerr.OffsetOutOfRange)
}

// step enters the leader epoch, or fetches once.
func (r *keyRead) step(ctx context.Context) error {
	x := r.index
	x.mu.Lock()
	next, epoch := x.next, x.epoch
	x.mu.Unlock()
	if epoch < 0 {
		return r.enter(ctx, next)
	}
	arena := r.keyed.edge.Arena()
	defer arena.Free()
	f, err := r.keyed.fetch(record.WithArena(ctx, arena), r.topic, client.FetchPartition{
		Partition: x.id.partition, Offset: next, InEpoch: &epoch, MaxBytes: keyFetchBytes,
	})
	switch {
	case errors.Is(err, kerr.OffsetOutOfRange):
		return r.moveStart(ctx, next, err)
	case err != nil:
		return err
	}
	if r.target < 0 {
		r.target = f.LastStableOffset
	}
	x.mu.Lock()
	x.target = r.target
	x.start = max(x.start, f.LogStartOffset)
	x.mu.Unlock()
	if len(f.Batches) == 0 {
		r.pass(f.LastStableOffset)
		return nil
	}
	if r.empty = -1; next < r.target && int64(len(f.Batches)) >= keyFetchBytes/2 {
		if err := r.slowDown(ctx); err != nil {
			return err
		}
	}
	return r.take(f, next)
}

// pass goes over a place without batches, which compaction leaves at the end of a segment: an answer that was asked for
// when the last stable offset was known to be at least that has nothing below it.
func (r *keyRead) pass(stable int64) {
	x := r.index
	x.mu.Lock()
	defer x.mu.Unlock()
	x.next = max(x.next, r.empty)
	r.empty = stable
}

// slowDown waits for a place among those that read much.
func (r *keyRead) slowDown(ctx context.Context) error {
	if r.slow {
		return nil
	}
	select {
	case r.keyed.reading <- struct{}{}:
		r.slow = true
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// enter begins to read in the leader epoch that the metadata tells.
func (r *keyRead) enter(ctx context.Context, next int64) error {
	x, p := r.index, r.index.id.partition
	if err := r.topic.Has(p); err != nil {
		return err
	}
	epoch := r.topic.Partitions[p].LeaderEpoch
	if next > 0 && x.lastEpoch >= 0 {
		end, err := r.keyed.client.EpochEnd(ctx, r.topic, p, x.lastEpoch, epoch)
		if err != nil {
			return err
		}
		if end.LeaderEpoch != x.lastEpoch || end.EndOffset < next {
			r.reset(0)
		}
	}
	// A leader tells the end only once it knows what was committed before it.
	ends, err := r.keyed.client.ListOffsets(ctx, r.topic, []client.OffsetQuery{
		{Partition: p, Timestamp: client.Latest, InEpoch: &epoch},
	}, client.ReadCommitted)
	if err == nil {
		err = ends[0].Err
	}
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.epoch, r.target, r.empty = epoch, ends[0].Offset, -1
	x.target = r.target
	return nil
}

// moveStart goes on where the log begins, if it begins behind the place that was to be read, or else begins anew.
func (r *keyRead) moveStart(ctx context.Context, next int64, cause error) error {
	results, err := r.keyed.client.ListOffsets(ctx, r.topic, []client.OffsetQuery{
		{Partition: r.index.id.partition, Timestamp: client.Earliest},
	}, client.ReadCommitted)
	if err == nil {
		err = results[0].Err
	}
	if err != nil {
		return err
	}
	start := results[0].Offset
	if start == next {
		return cause // the answers do not fit each other yet
	}
	if start < next {
		r.reset(start)
		return nil
	}
	x := r.index
	x.mu.Lock()
	defer x.mu.Unlock()
	x.next, x.start = start, start
	return nil
}

// reset begins anew.
func (r *keyRead) reset(start int64) {
	x := r.index
	x.mu.Lock()
	x.entries, x.next, x.start = map[keyDigest]int64{}, start, start
	x.mu.Unlock()
	x.lastEpoch, x.tombstones, x.swept, r.target, r.empty = -1, 0, start, -1, -1
	x.table.resize(x, x.id.bytes())
}

// take takes in what was fetched from an offset.
func (r *keyRead) take(f *client.FetchResult, from int64) error {
	x := r.index
	if r.scratch == nil {
		r.scratch = r.keyed.consumer.takeScratch()
	}
	var lost error // there is no room
	of := segment{batches: f.Batches, from: from, before: forever, aborted: f.Aborted}
	next, err := r.scratch.scanner.scan(of, func(rec *record.Record) bool {
		if rec.Key == nil || x.id.single && string(rec.Key) != x.id.key {
			return true
		}
		u := keyUpdate{x.digest(rec.Key), rec.Offset << 1}
		if rec.Value == nil {
			u.value |= 1
		}
		if r.updates = append(r.updates, u); len(r.updates) == keyChunk {
			lost = r.apply()
		}
		return lost == nil
	})
	if lost == nil {
		lost = r.apply()
	}
	if lost != nil {
		return lost
	}
	x.mu.Lock()
	x.next = max(x.next, next)
	x.mu.Unlock()
	if err != nil {
		place := place{partition: x.id.partition, next: next}
		return unreadable(r.topic, place, err, place.position(r.topic))
	}
	for rest := f.Batches; ; {
		var b record.Batch
		if b, rest, err = record.Next(rest); err != nil {
			return nil
		}
		x.lastEpoch = b.LeaderEpoch()
	}
}

// apply takes the updates in.
func (r *keyRead) apply() error {
	x := r.index
	x.mu.Lock()
	for _, u := range r.updates {
		x.tombstones += int(u.value & 1)
		x.entries[u.digest] = u.value
	}
	count, start := len(x.entries), x.start
	x.mu.Unlock()
	r.updates = r.updates[:0]
	if x.tombstones > keySweep+count/2 || start > x.swept && count > keySweep {
		count = x.sweep()
	}
	size := x.id.bytes() + int64(count)*keyEntryBytes
	if x.table.resize(x, size) && !x.table.tooLarge(size) {
		return nil
	}
	return r.giveUp(size)
}

// giveUp frees the memory of an index that has no room. One that is too large by itself is not tried again.
func (r *keyRead) giveUp(size int64) error {
	x := r.index
	tooMany := x.table.tooLarge(size)
	r.reset(0)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.epoch, x.tooMany = -1, tooMany
	if tooMany {
		return errManyKeys
	}
	return errNoRoom
}

// sweep drops what stands for nothing any more, and tombstones, which stand for no value either.
func (x *keyIndex) sweep() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	kept := make(map[keyDigest]int64, len(x.entries)/2)
	for k, v := range x.entries {
		if v&1 == 0 && v>>1 >= x.start {
			kept[k] = v
		}
	}
	x.entries, x.tombstones, x.swept = kept, 0, x.start
	return len(kept)
}

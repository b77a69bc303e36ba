package storage

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"millrace/record"
)

// Compaction leaves of the records with equal keys the latest one, where it was, and goes log by log in rounds:
//
//  1. The records that are new since the last round, the dirty ones, are gone through for the latest of each key, and
//     those that come before it are marked (compact_keys.go).
//  2. All segments below that are written anew without the records that a later one makes superfluous, in groups that
//     each become one segment (compact_copy.go), which takes their place in one step (compact_swap.go).
//  3. The cleaner checkpoint says how far the log is clean.
//
// Nothing is done to the active segment, and nothing past the recovery point on disk: what recovery may have to cut is
// as it was appended. A segment ends where those ended that it replaces, because its last batch stays, if only with its
// header; so segments go on from each other as they do without compaction. The first keeps its base.

// ErrCompactionStopped says that a round of compaction ended early, because the log is being cut, closed or removed, or
// because somebody has changed what it was working on. What it had not put in place, it has not changed.
var ErrCompactionStopped = errors.New("compaction was stopped")

// CompactOptions is what a round of compaction goes by.
type CompactOptions struct {
	Bound           int64         // records at or above it are let be: the last stable offset
	MinLag          time.Duration // min.compaction.lag.ms: segments with a younger record are let be
	DeleteRetention time.Duration // delete.retention.ms: how long tombstones and markers stay
	MapBytes        int           // log.cleaner.dedupe.buffer.size
	BufferBytes     int           // log.cleaner.io.buffer.size: what is read and written at a time
	// Keep says that a batch whose records are all gone still tells something by its header. It must not wait. nil:
	// none does.
	Keep func(b record.Batch) bool
	// Pace hears of bytes read and written and may wait; nil: it does not.
	Pace func(ctx context.Context, bytes int) error
	// Level is the compression level of a codec, 0 for its default; nil is that for all.
	Level func(record.Codec) int
}

// CompactResult says what a round did.
type CompactResult struct {
	From, To     int64 // the records whose keys were looked at
	BytesRead    int64
	BytesWritten int64
	Dropped      int64 // records
	Keyless      int64 // those of them that had no key
	Replaced     int   // segments that were
	New          int   // segments in their place
}

// Compactor does rounds of compaction, one at a time, in memory that it keeps between them. The zero Compactor is ready
// to use.
type Compactor struct {
	keys         keyMap
	clean, dirty marks
	pieces       []*piece
	workers      [mostWorkers]worker
	own          worker // of the round itself
	codecs       *record.Codecs
	out          []byte
}

// Release gives the memory up.
func (c *Compactor) Release() { *c = Compactor{} }

// Run does one round on a log. With ErrDiskFull or ErrCompactionStopped it can be tried again. What is damaged is a
// CorruptionError. An error takes the log offline only where a segment was about to be replaced.
func (c *Compactor) Run(ctx context.Context, l *Log, o *CompactOptions) (CompactResult, error) {
	d, err := l.Dirty(DirtyQuery{Bound: o.Bound, MinLag: o.MinLag})
	if err == nil && d.From < d.To && l.savedPoint.Load() < d.To {
		if err = l.Sync(ctx); err == nil {
			err = l.dir.Checkpoint() // no lock is held that it may have to wait for
		}
	}
	if err != nil {
		return CompactResult{}, err
	}
	ctx, end, err := l.beginRound(ctx)
	if err != nil {
		return CompactResult{}, err
	}
	defer end()
	r := round{Compactor: c, log: l, options: o, ctx: ctx}
	err = r.run()
	switch {
	case err == nil:
	case context.Cause(ctx) == ErrCompactionStopped:
		err = ErrCompactionStopped
	case isFull(err):
		err = fmt.Errorf("%w: compact %s: %w", ErrDiskFull, l.path, err)
	case l.usable() != nil:
		err = l.usable()
	}
	return r.result, err
}

// round is one round at work.
type round struct {
	*Compactor
	log     *Log
	options *CompactOptions
	ctx     context.Context // of the round, which ends with it
	config  *Config
	result  CompactResult

	list    segmentList // the segments that may be replaced
	from    int64       // keys of earlier records are known
	end     int64       // records from here on stay as they are
	last    int64       // the base offset of the last batch that begins before end, which stays
	now     int64       // in milliseconds
	horizon int64       // until when what is deleted now is told of
	txns    txnsSeen
	unpaced int // bytes that Pace has not heard of

	bufferSize  int  // how many bytes are read and written at a time
	mostRecords int  // that can be marked, of the clean ones and of the dirty ones
	shared      bool // the map may be filled with a share of the keys
	inShares    bool // it was: it has not all of them now, but the clean records are marked as well
	// Of the dirty records, for an estimate: bytes that there are, and that were gone through.
	dirtyBytes, dirtyRead int64
}

func (r *round) run() error {
	l := r.log
	now := l.dir.now()
	r.now, r.horizon = now.UnixMilli(), horizon(now, r.options.DeleteRetention)
	r.config = l.config.Load()
	if l.abortedLost.Load() {
		return ErrAbortedLost
	}
	d, err := l.Dirty(DirtyQuery{Bound: r.options.Bound, MinLag: r.options.MinLag})
	if err != nil {
		return err
	}
	if r.list, err = l.replaceable(l.savedPoint.Load()); err != nil || len(r.list) == 0 {
		return err
	}
	r.from, r.end = d.From, min(d.To, l.savedPoint.Load())
	r.result.From, r.result.To = r.from, r.from
	if r.from >= r.end {
		return nil
	}
	r.bufferSize = bufferSize(r.options.BufferBytes)
	if err := r.mapKeys(); err != nil {
		return err
	}
	if err := r.replaceAll(); err != nil {
		return err
	}
	r.result.To = r.end
	return l.setCleaned(r.end)
}

// horizon is a time in milliseconds, as far as there are any.
func horizon(now time.Time, retention time.Duration) int64 {
	ms := retention.Milliseconds()
	if ms > math.MaxInt64-now.UnixMilli() {
		return math.MaxInt64
	}
	return now.UnixMilli() + ms
}

// bufferSize is that size, within what is of use.
func bufferSize(size int) int {
	const least, most = 64 << 10, 8 << 20
	return min(max(size, least), most)
}

// replaceable gives the sealed segments that lie wholly below an offset.
func (l *Log) replaceable(point int64) (segmentList, error) {
	list, err := l.list()
	if err != nil {
		return nil, err
	}
	n := 0
	for n+1 < len(list) && list[n+1].base <= point {
		n++
	}
	return list[:n:n], nil
}

// pace tells of bytes read or written, and ends the round when it is to end.
func (r *round) pace(bytes int) error {
	const step = 64 << 10
	if r.unpaced += bytes; r.unpaced < step {
		return nil
	}
	bytes, r.unpaced = r.unpaced, 0
	if err := r.ctx.Err(); err != nil {
		return err
	}
	if r.options.Pace == nil {
		return nil
	}
	return r.options.Pace(r.ctx, bytes)
}

// readFailed makes an error of reading segments that are in the log no longer tell that.
func (r *round) readFailed(err error) error {
	if isMissing(err) && !r.current(r.list) {
		return ErrCompactionStopped
	}
	return err
}

// current says whether segments follow each other in the log as it is.
func (r *round) current(sources segmentList) bool {
	list := *r.log.segments.Load()
	i := list.at(sources[0].base)
	if i+len(sources) >= len(list) { // the active one comes behind them
		return false
	}
	for j, s := range sources {
		if list[i+j] != s {
			return false
		}
	}
	return true
}

// replaceAll writes the segments anew, group by group.
func (r *round) replaceAll() error {
	if err := r.txns.reset(r.log, *r.log.segments.Load()); err != nil {
		return r.readFailed(err)
	}
	r.clean.number, r.dirty.number = 0, 0
	for len(r.list) > 0 && r.list[0].base < r.end {
		n, err := r.groupSize(r.list)
		if err != nil {
			return err
		}
		if err := r.replace(r.list[:n:n]); err != nil {
			return err
		}
		r.list = r.list[n:]
	}
	return nil
}

// after is the base of the segment behind one that is in the list, or was.
func (l segmentList) after(s *segment) int64 {
	for _, other := range l {
		if other.base > s.base {
			return other.base
		}
	}
	return math.MaxInt64
}

// groupSize is how many of the segments at the front become one: as many as surely fit into one.
func (r *round) groupSize(list segmentList) (int, error) {
	var bytes, offsets, times int64
	for n, s := range list {
		o, t, err := r.log.indexSizes(s)
		if err != nil {
			return 0, r.readFailed(err)
		}
		bytes, offsets, times = bytes+s.size.Load(), offsets+o, times+t
		end, limit := (*r.log.segments.Load()).after(s), int64(r.config.IndexBytes)
		if n > 0 && (s.base >= r.end || bytes > r.config.SegmentBytes || offsets > limit || times > limit ||
			end-1-list[0].base > maxRelative) {
			return n, nil
		}
	}
	return len(list), nil
}

// indexSizes gives the bytes of a segment's indexes.
func (l *Log) indexSizes(s *segment) (offsets, times int64, err error) {
	for _, x := range []*index{&s.offsets, &s.times} {
		if _, err := s.loadIndex(x); errors.Is(err, errDamagedIndex) {
			if err := l.rebuildIndexes(s); err != nil {
				return 0, 0, err
			}
		} else if err != nil {
			return 0, 0, err
		}
	}
	return int64(s.offsets.count()) * offsetEntrySize, int64(s.times.count()) * timeEntrySize, nil
}

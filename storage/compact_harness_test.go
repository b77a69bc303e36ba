package storage_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/record"
	"millrace/storage"
	"millrace/storage/storagetest"
)

// keyedLog is a log of keyed records with transactions, and what it must tell whatever compaction does to it.
type keyedLog struct {
	t     require.TestingT
	rng   *rand.Rand
	clock clock
	disk  *storagetest.FS
	dir   *storage.Dir
	log   *storage.Log
	conf  storage.Config

	batches  []record.Batch // all that were appended, as they were
	open     map[int64]int64
	aborted  map[int64]bool // base offsets of batches of transactions that were aborted
	pending  map[int64][]int64
	sequence map[int64]int32
	epoch    map[int64]int16
	live     map[int64]int64 // last data offset of producers that are remembered; -1: its marker
	codecs   *record.Codecs
	work     storage.Compactor
	values   int
	tried    int64 // where a round that a crash ended could have come to
}

func compactConfig() storage.Config {
	c := storage.DefaultConfig()
	c.SegmentBytes = 2000
	c.IndexInterval = 200
	c.DeleteRetained = false
	c.FileDeleteDelay = 0
	return c
}

func newKeyedLog(t require.TestingT, seed uint64) *keyedLog {
	k := &keyedLog{
		t: t, rng: rand.New(rand.NewPCG(seed, 9)), clock: clock{now: time.UnixMilli(1_000_000_000)}, disk: newDisk(),
		conf: compactConfig(), open: map[int64]int64{}, aborted: map[int64]bool{}, pending: map[int64][]int64{},
		sequence: map[int64]int32{}, epoch: map[int64]int16{}, live: map[int64]int64{}, codecs: record.NewCodecs(1),
	}
	k.openDir()
	var err error
	k.log, err = k.dir.CreateLog(orders, k.conf)
	require.NoError(t, err)
	return k
}

func (k *keyedLog) openDir() {
	var err error
	k.dir, err = storage.OpenDir(storage.DirOptions{FS: k.disk, Now: k.clock.Now, Rand: k.rng})
	require.NoError(k.t, err)
}

// reopen opens the log again, with the index of aborted transactions whole.
func (k *keyedLog) reopen() {
	k.openDir()
	var err error
	k.log, err = k.dir.OpenLog(orders, k.conf)
	require.NoError(k.t, err)
	k.rebuild()
}

// rebuild makes the index of aborted transactions whole.
func (k *keyedLog) rebuild() {
	if !k.log.AbortedLost() {
		return
	}
	require.NoError(k.t, k.log.RebuildAborted(func(from int64) error {
		open := map[int64]int64{}
		return k.log.Scan(k.log.StartOffset(), func(b record.Batch) error {
			if m, ok := b.EndTxnMarker(); ok {
				first, was := open[m.ProducerID]
				delete(open, m.ProducerID)
				if was && m.Type == record.ControlAbort && b.BaseOffset() >= from {
					return k.log.AppendAborted(k.abortedEntry(m.ProducerID, first, b.BaseOffset(), open))
				}
				return nil
			}
			if _, was := open[b.ProducerID()]; b.IsTransactional() && !was && b.Count() > 0 {
				open[b.ProducerID()] = b.BaseOffset()
			}
			return nil
		})
	}))
}

func (k *keyedLog) abortedEntry(id, first, marker int64, open map[int64]int64) storage.AbortedTxn {
	stable := marker + 1
	for _, o := range open {
		stable = min(stable, o)
	}
	return storage.AbortedTxn{ProducerID: id, FirstOffset: first, LastOffset: marker, LastStable: stable}
}

// stable is the last stable offset.
func (k *keyedLog) stable() int64 {
	stable := k.log.EndOffset()
	for _, first := range k.open {
		stable = min(stable, first)
	}
	return stable
}

// put appends a batch with records of keys; a key that begins with "-" is deleted by a tombstone, "" is a null key.
func (k *keyedLog) put(producer int64, transactional bool, codec record.Codec, keys ...string) record.Batch {
	var b record.Builder
	b.Codecs = k.codecs
	b.Reset(nil)
	b.SetCodec(codec)
	if producer >= 0 {
		b.SetProducer(producer, k.epoch[producer], k.sequence[producer])
		k.sequence[producer] += int32(len(keys))
	}
	if transactional {
		b.SetTransactional()
	}
	for i, key := range keys {
		k.values++
		r := record.Record{Timestamp: k.clock.now.UnixMilli() + int64(i), Value: fmt.Appendf(nil, "value-%06d", k.values),
			Headers: []record.Header{{Key: "h", Value: []byte{byte(i)}}}}
		if key != "" {
			r.Key = []byte(strings.TrimPrefix(key, "-"))
		}
		if strings.HasPrefix(key, "-") {
			r.Value = nil
		}
		b.Append(&r)
	}
	batch := slices.Clone(b.Build())
	k.append(batch, nil)
	if producer >= 0 {
		k.live[producer] = batch.LastOffset()
	}
	if transactional {
		if _, ok := k.open[producer]; !ok {
			k.open[producer] = batch.BaseOffset()
		}
		k.pending[producer] = append(k.pending[producer], batch.BaseOffset())
	}
	return batch
}

func (k *keyedLog) append(b record.Batch, t *storage.AbortedTxn) {
	b.SetBaseOffset(k.log.EndOffset())
	b.SetLeaderEpoch(3)
	if t != nil {
		t.LastOffset = b.BaseOffset()
		_, err := k.log.AppendAborting(b, *t)
		require.NoError(k.t, err)
	} else {
		_, err := k.log.Append(b)
		require.NoError(k.t, err)
	}
	k.batches = append(k.batches, slices.Clone(b))
}

// end ends a producer's transaction. The next one has a new epoch.
func (k *keyedLog) end(producer int64, commit bool) {
	kind := record.ControlAbort
	if commit {
		kind = record.ControlCommit
	}
	k.epoch[producer]++
	k.sequence[producer] = 0
	first, open := k.open[producer]
	delete(k.open, producer)
	b := record.Batch(record.AppendEndTxnMarker(nil, record.EndTxnMarker{
		Type: kind, ProducerID: producer, ProducerEpoch: k.epoch[producer], CoordinatorEpoch: 5,
		Timestamp: k.clock.now.UnixMilli(),
	}))
	var t *storage.AbortedTxn
	if open && !commit {
		e := k.abortedEntry(producer, first, k.log.EndOffset(), k.open)
		t = &e
		for _, o := range k.pending[producer] {
			k.aborted[o] = true
		}
	}
	delete(k.pending, producer)
	k.append(b, t)
	k.live[producer] = -1
}

func (k *keyedLog) keep(b record.Batch) bool {
	last, ok := k.live[b.ProducerID()]
	if b.IsControl() {
		return ok && last == -1 && b.ProducerEpoch() == k.epoch[b.ProducerID()]
	}
	return ok && last == b.LastOffset()
}

func (k *keyedLog) options() *storage.CompactOptions {
	return &storage.CompactOptions{
		Bound: k.stable(), DeleteRetention: time.Hour, MapBytes: 1 << 20, BufferBytes: 64 << 10, Keep: k.keep,
	}
}

// compact does a round.
func (k *keyedLog) compact(change ...func(*storage.CompactOptions)) storage.CompactResult {
	o := k.options()
	for _, c := range change {
		c(o)
	}
	res, err := k.work.Run(context.Background(), k.log, o)
	require.NoError(k.t, err)
	return res
}

// seal makes everything up to now be in sealed segments.
func (k *keyedLog) seal() {
	for n := 0; n < 3; n++ {
		for range 10 {
			k.put(-1, false, record.None, fmt.Sprintf("seal-%d-%d", n, k.values))
		}
	}
}

// view is what a reader sees.
type view struct {
	next   int64
	latest map[string]string // of committed records, by key; what was deleted is not in it
	all    map[int64]string  // committed records by offset
}

func newView() *view { return &view{latest: map[string]string{}, all: map[int64]string{}} }

func (v *view) take(r *record.Record) {
	text := fmt.Sprintf("%s=%s@%d %v", r.Key, r.Value, r.Timestamp, r.Headers)
	v.all[r.Offset] = text
	switch {
	case r.Key == nil:
	case r.Value == nil:
		delete(v.latest, string(r.Key))
	default:
		v.latest[string(r.Key)] = text
	}
}

// read goes on to read what is committed, up to an offset.
func (v *view) read(l *storage.Log, to int64) error { return v.readSome(l, to, to) }

// readSome goes on to read until it has passed an offset.
func (v *view) readSome(l *storage.Log, to, limit int64) error {
	ignored := map[int64]bool{}
	for v.next < to {
		r, err := l.Read(v.next, 1000, limit, nil)
		if err != nil {
			return err
		}
		if len(r.Batches) == 0 {
			return fmt.Errorf("nothing at offset %d of %d", v.next, to)
		}
		aborted, err := l.Aborted(v.next, r.NextOffset)
		if err != nil {
			return err
		}
		clear(ignored)
		for rest := r.Batches; len(rest) > 0; {
			var b record.Batch
			if b, rest, err = record.Next(rest); err != nil {
				return err
			}
			if err := v.batch(b, aborted, ignored); err != nil {
				return err
			}
		}
		v.next = r.NextOffset
	}
	return nil
}

func (v *view) batch(b record.Batch, aborted []storage.AbortedTxn, ignored map[int64]bool) error {
	for _, t := range aborted {
		if t.FirstOffset <= b.LastOffset() && t.LastOffset >= b.BaseOffset() {
			ignored[t.ProducerID] = true
		}
	}
	if m, ok := b.EndTxnMarker(); ok {
		delete(ignored, m.ProducerID)
	}
	if b.IsControl() || b.IsTransactional() && ignored[b.ProducerID()] {
		return nil
	}
	rd := record.NewReader(b, 1<<20)
	var rec record.Record
	for rd.Next(&rec) {
		if rec.Offset >= v.next {
			v.take(&rec)
		}
	}
	return rd.Err()
}

// want is what a reader must have seen up to an offset, from the batches as they were appended.
func (k *keyedLog) want(to int64) *view {
	v := newView()
	for _, b := range k.batches {
		if b.BaseOffset() >= to {
			break
		}
		if b.IsControl() || k.aborted[b.BaseOffset()] {
			continue
		}
		rd := record.NewReader(b, 1<<20)
		var rec record.Record
		for rd.Next(&rec) {
			v.take(&rec)
		}
		require.NoError(k.t, rd.Err())
	}
	return v
}

// cleaned is the offset below which a round has been.
func (k *keyedLog) cleaned() int64 { return max(k.log.CleanedOffset(), k.tried) }

// check compares what the log tells with what was appended.
func (k *keyedLog) check() {
	end := int64(0)
	if n := len(k.batches); n > 0 {
		end = k.batches[n-1].NextOffset()
	}
	require.Equal(k.t, end, k.log.EndOffset())
	to := k.stable()
	got, want := newView(), k.want(to)
	require.NoError(k.t, got.read(k.log, to))
	require.Equal(k.t, want.latest, got.latest)
	for o, text := range got.all {
		require.Equal(k.t, want.all[o], text, "offset %d", o)
	}
	for _, o := range slices.Sorted(maps.Keys(want.all)) {
		_, there := got.all[o]
		require.True(k.t, there || o < k.cleaned(), "a record that no round has looked at: offset %d", o)
	}
	k.checkDirty()
	k.checkLive()
	k.checkTimes()
}

// checkTimes compares searches by time with what is in the log.
func (k *keyedLog) checkTimes() {
	all, err := readBatches(k.log, k.log.StartOffset())
	require.NoError(k.t, err)
	type stamped struct{ offset, timestamp int64 }
	var records []stamped
	greatest := stamped{timestamp: -1}
	for _, b := range all {
		rd := record.NewReader(b, 1<<20)
		for rec := (record.Record{}); rd.Next(&rec); {
			records = append(records, stamped{rec.Offset, rec.Timestamp})
			if rec.Timestamp > greatest.timestamp {
				greatest = stamped{rec.Offset, rec.Timestamp}
			}
		}
	}
	r, ok, err := k.log.MaxTimestampOffset()
	require.NoError(k.t, err)
	require.Equal(k.t, len(records) > 0, ok)
	if ok {
		require.Equal(k.t, greatest, stamped{r.Offset, r.Timestamp}, "the greatest timestamp")
	}
	for range 3 {
		at := 1_000_000_000 + k.rng.Int64N(k.clock.now.UnixMilli()-1_000_000_000+2000)
		i := slices.IndexFunc(records, func(s stamped) bool { return s.timestamp >= at })
		r, ok, err := k.log.OffsetForTime(at)
		require.NoError(k.t, err)
		require.Equal(k.t, i >= 0, ok, "time %d", at)
		if ok {
			require.Equal(k.t, records[i], stamped{r.Offset, r.Timestamp}, "time %d", at)
		}
	}
}

// checkDirty compares the batches that no round has looked at byte by byte.
func (k *keyedLog) checkDirty() {
	from := k.cleaned()
	have := map[int64]record.Batch{}
	all, err := readBatches(k.log, k.log.StartOffset())
	require.NoError(k.t, err)
	for i, b := range all {
		have[b.BaseOffset()] = b
		require.True(k.t, i == 0 || b.BaseOffset() >= all[i-1].NextOffset())
	}
	for _, b := range k.batches {
		if b.BaseOffset() >= from {
			require.Equal(k.t, b, have[b.BaseOffset()], "offset %d", b.BaseOffset())
		}
	}
}

// checkLive looks for the last batch of each producer that is remembered.
func (k *keyedLog) checkLive() {
	last := map[int64]int64{}
	require.NoError(k.t, k.log.Scan(0, func(b record.Batch) error {
		if b.ProducerID() >= 0 && !b.IsControl() {
			last[b.ProducerID()] = b.LastOffset()
		}
		if b.IsControl() && b.ProducerEpoch() == k.epoch[b.ProducerID()] {
			last[b.ProducerID()] = -1
		}
		return nil
	}))
	for id, offset := range k.live {
		require.Contains(k.t, last, id, "producer %d", id)
		require.Equal(k.t, offset, last[id], "producer %d", id)
	}
}

// random appends something.
func (k *keyedLog) random() {
	k.clock.now = k.clock.now.Add(time.Duration(k.rng.IntN(2000)) * time.Millisecond)
	keys := make([]string, 1+k.rng.IntN(5))
	for i := range keys {
		keys[i] = fmt.Sprintf("key-%d", k.rng.IntN(12))
		switch k.rng.IntN(12) {
		case 0, 1, 2:
			keys[i] = "-" + keys[i]
		}
	}
	codec := record.Codec(0)
	if k.rng.IntN(3) == 0 {
		codec = record.Codec(1 + k.rng.IntN(4))
	}
	producer := int64(k.rng.IntN(6)) - 1
	_, open := k.open[producer]
	switch {
	case producer >= 3 && open && k.rng.IntN(3) == 0:
		k.end(producer, k.rng.IntN(2) == 0)
	case producer >= 3:
		k.put(producer, true, codec, keys...)
	default:
		k.put(producer, false, codec, keys...)
	}
}

const everything = math.MaxInt64

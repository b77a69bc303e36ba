package record

import (
	"encoding/binary"
	"slices"
)

// Compactor goes over the records of batches for compaction, and leaves some of them out. Records that stay are
// copied as they are encoded. It keeps its buffers between batches; the zero Compactor is ready to use. It is not safe
// for concurrent use.
type Compactor struct {
	// Codecs lends compressors and decompressors; nil makes them anew for each batch.
	Codecs *Codecs
	// Level is the level in a codec's own scale, 0 for its default; nil is that for all.
	Level func(Codec) int
	// MaxExpanded is how many bytes a batch may expand to; 0: DefaultExpandedBytes.
	MaxExpanded int

	raw      []byte // expanded records
	packed   []byte // records that stay, to be compressed
	kept     []stretch
	next     []encoded     // records that are decoded, at most blockRecords
	found    []KeyedRecord // of the same records, what others see
	verdicts []Verdict     // on them
}

// blockRecords is how many records are decoded before somebody looks at them.
const blockRecords = 256

// KeyedRecord is what compaction looks at in a record. Key is nil for null, and valid during the call it is given to.
type KeyedRecord struct {
	Offset    int64
	Key       []byte
	Tombstone bool // the value is null
}

// Verdict says what becomes of a record.
type Verdict uint8

// The verdicts.
const (
	Drop Verdict = iota
	Keep
	// KeepUntilHorizon keeps a record of a batch that has a delete horizon, or is to get one.
	KeepUntilHorizon
)

// Outcome says what became of a batch.
type Outcome uint8

// The outcomes.
const (
	Unchanged Outcome = iota
	Rewritten
	Emptied // no record is left
)

// stretch is a run of records that stay: from byte start to end of the expanded records.
type stretch struct{ start, end int }

// keptCapacity bounds the buffers that are kept between batches.
const keptCapacity = 4 << 20

// encoded is a record as it lies among the others of its batch.
type encoded struct {
	start, end     int // all of it
	rest           int // what follows the timestamp delta
	timestampDelta int64
}

// records gives the expanded records of a batch.
func (c *Compactor) records(b Batch) ([]byte, error) {
	if b.Codec() == None || len(b) == HeaderSize {
		return b.Payload(), nil
	}
	if cap(c.raw) > keptCapacity {
		c.raw = nil
	}
	bound := c.MaxExpanded
	if bound == 0 {
		bound = DefaultExpandedBytes
	}
	var err error
	c.raw, err = c.Codecs.expand(c.raw[:0], b.Codec(), b.Payload(), bound)
	return c.raw, err
}

// Each calls f with the records of a batch that Verify has accepted, in order and many at a time, until f says that it
// has enough.
func (c *Compactor) Each(b Batch, f func(some []KeyedRecord) (more bool)) error {
	raw, err := c.records(b)
	if err != nil {
		return err
	}
	return c.walk(b, raw, f)
}

// walk calls f with the records, which are in c.next meanwhile.
func (c *Compactor) walk(b Batch, raw []byte, f func(some []KeyedRecord) (more bool)) error {
	if c.next == nil {
		c.next, c.found = make([]encoded, blockRecords), make([]KeyedRecord, blockRecords)
		c.verdicts = make([]Verdict, blockRecords)
	}
	base, most := b.BaseOffset(), b.LastOffsetDelta()
	at, last := 0, int32(-1)
	for left := int(b.Count()); left > 0; {
		n := min(left, blockRecords)
		for i := range n {
			e, r := &c.next[i], &c.found[i]
			e.start = at
			delta, ok := e.decode(raw, r)
			if !ok || delta <= last || delta > most {
				return corrupt("record %d: malformed", int(b.Count())-left+i)
			}
			at, last = e.end, delta
			r.Offset = base + int64(delta)
		}
		if !f(c.found[:n]) {
			return nil
		}
		left -= n
	}
	if at != len(raw) {
		return corrupt("%d bytes after the last record", len(raw)-at)
	}
	return nil
}

// decode reads the record that begins at e.start, with its key and value into r.
func (e *encoded) decode(raw []byte, r *KeyedRecord) (offsetDelta int32, ok bool) {
	size, n := varint32(raw[e.start:])
	if n == 0 || size < 1 || int(size) > len(raw)-e.start-n {
		return 0, false
	}
	e.end = e.start + n + int(size)
	p := raw[e.start+n+1 : e.end] // behind the attributes, of which none are defined
	if e.timestampDelta, n = varint64(p); n == 0 {
		return 0, false
	}
	p = p[n:]
	e.rest = e.end - len(p)
	if offsetDelta, n = varint32(p); n == 0 {
		return 0, false
	}
	if r.Key, p, ok = takeBytes(p[n:]); !ok {
		return 0, false
	}
	value, n := varint32(p)
	r.Tombstone = value < 0
	return offsetDelta, n > 0 && value >= -1 && int(value) <= len(p)-n
}

// Judge says of records, which come in order and many at a time, what becomes of each.
type Judge func(some []KeyedRecord, verdicts []Verdict)

// Filter appends to dst what judge leaves of a batch that Verify has accepted: offsets, sequences, epochs and codec
// stay. It appends nothing where the outcome is not Rewritten. A batch with records that are to be kept until a delete
// horizon gets this one, unless it has one: its base timestamp is the horizon then, which the timestamps of its records
// are relative to.
func (c *Compactor) Filter(dst []byte, b Batch, horizon int64, judge Judge) (out []byte, o Outcome, err error) {
	raw, err := c.records(b)
	if err != nil {
		return dst, Unchanged, err
	}
	f := filtered{batch: b, raw: raw, greatest: noGreatest}
	c.kept = c.kept[:0]
	err = c.walk(b, raw, func(some []KeyedRecord) bool {
		verdicts := c.verdicts[:len(some)]
		judge(some, verdicts)
		for i, v := range verdicts {
			if v != Drop {
				c.keep(&f, &c.next[i], v)
			}
		}
		return true
	})
	f.horizon = f.horizon && !b.HasDeleteHorizon()
	switch {
	case err != nil:
		return dst, Unchanged, err
	case f.count == 0:
		return dst, Emptied, nil
	case f.count == b.Count() && !f.horizon:
		return dst, Unchanged, nil
	}
	return c.rewrite(dst, &f, horizon), Rewritten, nil
}

// keep takes a record up into what is left.
func (c *Compactor) keep(f *filtered, e *encoded, v Verdict) {
	f.horizon = f.horizon || v == KeepUntilHorizon
	f.count++
	f.size += e.end - e.start
	f.greatest = max(f.greatest, f.batch.BaseTimestamp()+e.timestampDelta)
	if n := len(c.kept); n > 0 && c.kept[n-1].end == e.start {
		c.kept[n-1].end = e.end
	} else {
		c.kept = append(c.kept, stretch{e.start, e.end})
	}
}

const noGreatest = -1 << 63

// filtered is what is left of a batch.
type filtered struct {
	batch    Batch
	raw      []byte
	count    int32
	size     int
	greatest int64 // timestamp
	horizon  bool  // it is to get one
	rebase   int64 // what the timestamp deltas change by
}

// rewrite appends the batch with the records that are kept.
func (c *Compactor) rewrite(dst []byte, f *filtered, horizon int64) []byte {
	fields := f.batch.fields()
	fields.Count = f.count
	if f.batch.TimestampType() == CreateTime {
		fields.MaxTimestamp = f.greatest
	}
	if f.horizon {
		f.rebase = fields.BaseTimestamp - horizon
		fields.BaseTimestamp = horizon
		fields.Attributes |= attrDeleteHorizon
	}
	at, codec := len(dst), f.batch.Codec()
	dst = append(slices.Grow(dst, HeaderSize+f.size), f.batch[:HeaderSize]...)
	if codec == None {
		dst = c.appendKept(dst, f)
	} else {
		if cap(c.packed) > keptCapacity {
			c.packed = nil
		}
		c.packed = c.appendKept(c.packed[:0], f)
		level := 0
		if c.Level != nil {
			level = c.Level(codec)
		}
		dst = c.Codecs.compress(dst, codec, level, c.packed)
	}
	fields.seal(dst[at:])
	return dst
}

// appendKept appends the records that are kept.
func (c *Compactor) appendKept(dst []byte, f *filtered) []byte {
	for _, s := range c.kept {
		if !f.horizon {
			dst = append(dst, f.raw[s.start:s.end]...)
			continue
		}
		var r KeyedRecord
		for e := (encoded{start: s.start}); e.start < s.end; e.start = e.end {
			e.decode(f.raw, &r)
			dst = appendRebased(dst, f, &e)
		}
	}
	return dst
}

// appendRebased appends a record whose timestamp delta changes.
func appendRebased(dst []byte, f *filtered, e *encoded) []byte {
	delta := e.timestampDelta + f.rebase
	if f.batch.TimestampType() == LogAppendTime { // its own one counts for nothing
		delta = f.batch.MaxTimestamp() - f.batch.BaseTimestamp() + f.rebase
	}
	dst = binary.AppendVarint(dst, int64(1+varintSize(delta)+e.end-e.rest))
	dst = append(dst, 0) // attributes
	dst = binary.AppendVarint(dst, delta)
	return append(dst, f.raw[e.rest:e.end]...)
}

// AppendEmptied appends what is left of a batch all of whose records are gone, but whose header is of use: offsets,
// sequences, epochs and the greatest timestamp.
func AppendEmptied(dst []byte, b Batch) []byte {
	f := b.fields()
	f.Attributes &= attrLogAppendTime | attrTransactional | attrControl
	return AppendEmpty(dst, f)
}

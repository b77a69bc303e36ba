package record

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"millrace/internal/invariant"
)

const (
	// DefaultExpandedBytes is the bound of expanded records when Limits gives none.
	DefaultExpandedBytes = 64 << 20
	// maxRecordFaults bounds the faults that are listed: a batch may hold a million records.
	maxRecordFaults = 1000
	// noTimestamp is the timestamp of a record that has none.
	noTimestamp = -1
)

// Limits is what a leader demands of a client's batch: the settings of the topic and the moment.
type Limits struct {
	MaxMessageBytes  int // max.message.bytes: bound of a batch, as sent and as stored
	SegmentBytes     int // segment.bytes
	MaxExpandedBytes int // bound of what a compressed batch expands to; 0: DefaultExpandedBytes

	Compacted     bool          // cleanup.policy has compact: every record needs a key
	TimestampType TimestampType // message.timestamp.type

	Compression string // compression.type; "" is "producer"
	GzipLevel   int    // compression.gzip.level; 0 is the codec's default, as in the next two
	LZ4Level    int    // compression.lz4.level
	ZstdLevel   int    // compression.zstd.level
	ZstdAllowed bool   // the client's protocol version knows zstd
	Unsequenced bool   // a producer id may come without a sequence number

	TimestampBefore int64 // message.timestamp.before.max.ms
	TimestampAfter  int64 // message.timestamp.after.max.ms
	Now             int64 // the leader's clock in milliseconds: one instant for the whole append

	Codecs *Codecs // lends compressors; may be nil
	Arena  *Arena  // memory for a batch that must be built anew; may be nil
}

// Prepared is a batch ready to be stored: only base offset and leader epoch are missing.
type Prepared struct {
	Batch             Batch
	MaxTimestampDelta int32 // offset delta of the first record that has the maximum timestamp
}

// Prepare checks that buf is exactly one batch that a client may have stored, and returns the batch
// to store: the same memory, changed only where a rule demands it, or a batch built anew. What it
// refuses is a *Fault, and then buf is unchanged.
//
// The checks come in the order in which Kafka's broker makes them, so that a batch with two faults
// is refused for the same one. Checks of sequence numbers need the partition's state and are not
// made here.
func Prepare(buf []byte, l Limits) (Prepared, error) {
	found, f := check(buf, &l)
	if f != nil {
		return Prepared{}, f
	}
	b := Batch(buf)
	maxTimestamp, delta := found.maxTimestamp, found.maxDelta
	if l.TimestampType == LogAppendTime {
		maxTimestamp, delta = l.Now, 0
	}
	target := l.targetCodec(b.Codec())
	if found.misnumbered || target != b.Codec() {
		if b, f = rebuild(b, &l, target, found.misnumbered, maxTimestamp); f != nil {
			return Prepared{}, f
		}
	} else if b.TimestampType() != l.TimestampType || b.MaxTimestamp() != maxTimestamp {
		b.SetTimestamp(l.TimestampType, maxTimestamp)
	}
	return Prepared{Batch: b, MaxTimestampDelta: delta}, nil
}

// Check makes the checks of Prepare on a batch that it leaves as it is. A batch that passes may still turn out
// too large where it must be built anew.
func Check(buf []byte, l Limits) error {
	if _, f := check(buf, &l); f != nil {
		return f
	}
	return nil
}

func check(buf []byte, l *Limits) (survey, *Fault) {
	if f := checkFrame(buf); f != nil {
		return survey{}, f
	}
	b := Batch(buf)
	if f := checkHeader(b, l); f != nil {
		return survey{}, f
	}
	found, f := checkRecords(b, l)
	if f == nil && b.TimestampType() == LogAppendTime && l.TimestampType == LogAppendTime {
		f = fault(ErrTimestamp, "the client set LogAppendTime, which only the broker may")
	}
	return found, f
}

// CheckRecord makes the checks of Prepare on one record that is to go into a batch: nil, or what is wrong with it.
func (l *Limits) CheckRecord(r *Record) *Fault {
	earliest, latest := l.instants()
	size := bodySize(r, 0, 0)
	size += HeaderSize + varintSize(int64(size))
	switch {
	case size > l.MaxMessageBytes:
		return fault(ErrTooLarge, "the record takes a batch of %d bytes, max.message.bytes is %d", size, l.MaxMessageBytes)
	case size > l.SegmentBytes:
		return fault(ErrSegmentTooSmall, "the record takes a batch of %d bytes, segment.bytes is %d", size, l.SegmentBytes)
	case r.Timestamp != noTimestamp && (r.Timestamp < earliest || r.Timestamp > latest):
		return fault(ErrTimestamp, "%s", outside(r.Timestamp, earliest, latest))
	case r.Key == nil && l.Compacted:
		return fault(ErrInvalid, "%s", needsKey)
	}
	return nil
}

const needsKey = "a compacted topic's records need a key"

// outside says on which side of the acceptable range a timestamp lies.
func outside(timestamp, earliest, latest int64) string {
	if timestamp < earliest {
		return fmt.Sprintf("timestamp %s is before %s, the earliest that the topic takes at present",
			instant(timestamp), instant(earliest))
	}
	return fmt.Sprintf("timestamp %s is after %s, the latest that the topic takes at present",
		instant(timestamp), instant(latest))
}

// instant shows a timestamp as a date, or as a number if its year has not four digits.
func instant(ms int64) string {
	t := time.UnixMilli(ms).UTC()
	if y := t.Year(); y < 0 || y > 9999 {
		return strconv.FormatInt(ms, 10)
	}
	return t.Format("2006-01-02T15:04:05.000Z")
}

// checkFrame checks that buf is exactly one batch by its length and format.
func checkFrame(buf []byte) *Fault {
	if len(buf) == 0 {
		return fault(ErrInvalid, "there is no record batch")
	}
	if len(buf) > atMagic && buf[atMagic] != magic {
		return fault(ErrInvalid, "the record batch has format %d, want %d", int8(buf[atMagic]), magic)
	}
	_, rest, err := Next(buf)
	switch {
	case errors.Is(err, ErrShort):
		return fault(ErrInvalid, "the record batch is cut short at %d bytes", len(buf))
	case err != nil:
		return fault(ErrCorrupt, "the record batch's length makes no sense")
	case len(rest) > 0:
		return fault(ErrInvalid, "%d bytes follow the record batch, want exactly one batch", len(rest))
	}
	return nil
}

// checkHeader makes the checks that need no record.
func checkHeader(b Batch, l *Limits) *Fault {
	count, lastDelta, codec := b.Count(), b.LastOffsetDelta(), b.Codec()
	if b.BaseOffset() != 0 {
		return fault(ErrInvalid, "the base offset is %d, want 0", b.BaseOffset())
	}
	if f := checkSize(b, l); f != nil {
		return f
	}
	if sum := checksum(b[atAttributes:]); sum != b.CRC() {
		return fault(ErrCorrupt, "the checksum is %08x, the header says %08x", sum, b.CRC())
	}
	switch {
	case len(b) > l.SegmentBytes:
		return fault(ErrSegmentTooSmall, "the batch has %d bytes, segment.bytes is %d", len(b), l.SegmentBytes)
	case lastDelta < 0 || count <= 0 || count-1 != lastDelta:
		return fault(ErrInvalid, "%d records do not fit a last offset delta of %d", count, lastDelta)
	case b.IsControl():
		return fault(ErrInvalid, "clients may not write control batches")
	case b.HasDeleteHorizon():
		return fault(ErrInvalid, "clients may not set a delete horizon")
	case b.ProducerID() >= 0 && b.BaseSequence() < 0 && !l.Unsequenced:
		return fault(ErrInvalid, "producer %d without a sequence number", b.ProducerID())
	case codec > Zstd:
		return fault(ErrUnsupportedCodec, "the batch names %v", codec)
	case codec == Zstd && !l.ZstdAllowed:
		return fault(ErrUnsupportedCodec, "zstd needs a newer produce version")
	}
	return nil
}

// checkSize checks a batch against max.message.bytes.
func checkSize(b Batch, l *Limits) *Fault {
	if len(b) > l.MaxMessageBytes {
		return fault(ErrTooLarge, "the batch has %d bytes, max.message.bytes is %d", len(b), l.MaxMessageBytes)
	}
	return nil
}

// survey is what a walk over a batch's records found.
type survey struct {
	maxTimestamp int64
	maxDelta     int32 // the first record that has maxTimestamp
	misnumbered  bool  // offset deltas are not 0, 1, 2...

	faults     []RecordFault
	refused    int   // records at fault, listed or not
	newest     int32 // the last of them
	badInstant bool  // one of them for its timestamp
}

// checkRecords makes the checks that need the records.
func checkRecords(b Batch, l *Limits) (survey, *Fault) {
	var found survey
	s := scan{win: b.Payload()}
	if b.Codec() != None {
		d := l.Codecs.takeDecoder()
		defer l.Codecs.putDecoder(d)
		if err := d.open(b.Codec(), b.Payload(), l.expandedBytes()); err != nil {
			return found, unreadable(err)
		}
		s.win, s.src = nil, d
	}
	if f := found.walk(&s, b, l); f != nil {
		return found, f
	}
	if found.refused > 0 {
		return found, found.fault()
	}
	return found, nil
}

// walk walks over all records.
func (v *survey) walk(s *scan, b Batch, l *Limits) *Fault {
	base, count := b.BaseTimestamp(), b.Count()
	earliest, latest := l.instants()
	var h head
	for i := range count {
		if !s.next(&h) {
			return s.fault(i, count)
		}
		timestamp := base + h.timestampDelta
		if i == 0 || timestamp > v.maxTimestamp {
			v.maxTimestamp, v.maxDelta = timestamp, i
		}
		if h.offsetDelta != i {
			v.misnumbered = true
		}
		if h.nullKey && l.Compacted {
			v.refuse(i, needsKey)
		}
		if (timestamp < earliest || timestamp > latest) && timestamp != noTimestamp {
			v.badInstant = true
			v.refuse(i, outside(timestamp, earliest, latest))
		}
	}
	if !s.end() {
		return s.fault(count, count)
	}
	return nil
}

// refuse notes that a record is at fault, which for one record may happen twice.
func (v *survey) refuse(i int32, message string) {
	again := v.refused > 0 && v.newest == i
	switch {
	case !again && len(v.faults) < maxRecordFaults:
		v.faults = append(v.faults, RecordFault{Index: i, Message: message})
	case again && v.faults[len(v.faults)-1].Index == i:
		v.faults[len(v.faults)-1].Message += "; " + message
	}
	if !again {
		v.refused, v.newest = v.refused+1, i
	}
}

// fault is the refusal of the batch for its records: a bad timestamp outweighs a missing key.
func (v *survey) fault() *Fault {
	f := fault(ErrInvalid, "%s", RefusedRecords(v.refused))
	f.Records = v.faults
	if v.badInstant {
		f.Err = ErrTimestamp
	}
	return f
}

// fault is the refusal of the batch because its records could not be walked over beyond i.
func (s *scan) fault(i, count int32) *Fault {
	if s.err != nil {
		return unreadable(s.err)
	}
	if i == count {
		return fault(ErrInvalid, "bytes follow the last of %d records", count)
	}
	return fault(ErrInvalid, "record %d of %d is malformed or cut short", i, count)
}

// unreadable is the refusal of a batch that does not expand.
func unreadable(err error) *Fault {
	if what, ok := strings.CutPrefix(err.Error(), ErrTooLarge.Error()+": "); ok {
		return &Fault{Err: ErrTooLarge, Message: what}
	}
	return &Fault{Err: ErrInvalid, Message: strings.TrimPrefix(err.Error(), ErrCorrupt.Error()+": ")}
}

// rebuild makes the batch to store from one whose codec or offset deltas must change.
func rebuild(b Batch, l *Limits, target Codec, misnumbered bool, maxTimestamp int64) (Batch, *Fault) {
	raw, f := l.rawRecords(b, target, misnumbered)
	if f != nil {
		return nil, f
	}
	out := raw
	if target != None {
		out = l.Arena.Alloc(len(raw))[:HeaderSize]
		out = l.Codecs.compress(out, target, l.Level(target), raw[HeaderSize:])
	}
	if len(out) > math.MaxInt32 {
		return nil, fault(ErrTooLarge, "the batch takes %d bytes when rebuilt", len(out))
	}
	fields := b.fields()
	fields.Attributes &^= attrCodec | attrLogAppendTime
	fields.Attributes |= int16(target)
	if l.TimestampType == LogAppendTime {
		fields.Attributes |= attrLogAppendTime
	}
	fields.MaxTimestamp = maxTimestamp
	b = fields.seal(out)
	if f := checkSize(b, l); f != nil {
		return nil, f
	}
	if len(b) > l.SegmentBytes {
		return nil, fault(ErrSegmentTooSmall, "the batch takes %d bytes, segment.bytes is %d", len(b), l.SegmentBytes)
	}
	return b, nil
}

// rawRecords gives b's records uncompressed and numbered, with room for a header before them.
func (l *Limits) rawRecords(b Batch, target Codec, misnumbered bool) ([]byte, *Fault) {
	raw := []byte(b)
	if b.Codec() != None {
		bound := l.expandedBytes()
		if target == None {
			bound = min(bound, l.MaxMessageBytes)
		}
		var err error
		raw = l.Arena.Alloc(HeaderSize + expandedGuess(len(b)))[:HeaderSize]
		if raw, err = l.Codecs.expand(raw, b.Codec(), b.Payload(), bound); err != nil {
			return nil, unreadable(err)
		}
	}
	if !misnumbered {
		return raw, nil
	}
	out := l.Arena.Alloc(len(raw))[:HeaderSize]
	var rec Record
	rest := raw[HeaderSize:]
	for i := range b.Count() {
		size, n := varint32(rest)
		body := rest[n : n+int(size)]
		timestampDelta, _, ok := decodeRecord(body, &rec)
		invariant.Check(ok, "a record that was walked over does not decode")
		rest = rest[n+int(size):]
		out = appendRecord(out, &rec, timestampDelta, i)
	}
	return out, nil
}

// expandedBytes is the bound of expanded records.
func (l *Limits) expandedBytes() int {
	if l.MaxExpandedBytes > 0 {
		return l.MaxExpandedBytes
	}
	return DefaultExpandedBytes
}

// instants is the range of acceptable timestamps.
func (l *Limits) instants() (earliest, latest int64) {
	if l.TimestampType == LogAppendTime {
		return math.MinInt64, math.MaxInt64
	}
	earliest, latest = l.Now-l.TimestampBefore, l.Now+l.TimestampAfter
	if l.TimestampBefore > 0 && earliest > l.Now {
		earliest = math.MinInt64
	}
	if l.TimestampAfter > 0 && latest < l.Now {
		latest = math.MaxInt64
	}
	return earliest, latest
}

// targetCodec is how a batch that came as sent is stored. The setting was validated when it was made.
func (l *Limits) targetCodec(sent Codec) Codec {
	if l.Compression == "" || l.Compression == "producer" {
		return sent
	}
	codec, err := ParseCodec(l.Compression)
	invariant.Check(err == nil, "topic setting compression.type is unknown")
	return codec
}

// Level is the setting of a codec's level, 0 for its default.
func (l *Limits) Level(c Codec) int {
	switch c {
	case Gzip:
		return l.GzipLevel
	case LZ4:
		return l.LZ4Level
	case Zstd:
		return l.ZstdLevel
	default:
		return 0
	}
}

package record

import (
	"encoding/binary"
	"math"

	"millrace/internal/invariant"
)

// Header is one header of a record. A nil Value is a null.
type Header struct {
	Key   string
	Value []byte
}

// Record is one record. A nil Key or Value is a null; a null value is a tombstone. Timestamp is in
// milliseconds since 1970, -1 for none.
type Record struct {
	Offset, Timestamp int64
	Key, Value        []byte
	Headers           []Header
}

// One record, all lengths and deltas varints, a length of -1 for null:
//
//	+--------+------+-----------+--------+---------+-----+-----------+-------+---------+------
//	| length | attr | timestamp | offset | key     | key | value     | value | header  | headers
//	|        | = 0  | delta     | delta  | length  |     | length    |       | count   | ...
//	+--------+------+-----------+--------+---------+-----+-----------+-------+---------+------
//
// and one header: key length, key, value length, value. length counts the bytes after itself; the
// deltas are to the batch's base timestamp and base offset.

// Builder makes one batch after the other in one growing buffer; Append copies each record's bytes
// once and allocates only to grow. The zero Builder is ready to use. A Builder is not safe for
// concurrent use.
type Builder struct {
	// Codecs lends compressors; nil makes them anew for each batch.
	Codecs *Codecs

	buf    []byte // the header's place, then the records; empty until the first Append
	out    []byte // the compressed batch
	fields Fields
	codec  Codec
	level  int
	fresh  bool // fields hold their defaults or what was set since Reset
}

// Reset forgets the batch and all settings and starts a new batch in buf's memory (from its start,
// to its capacity). With a nil buf the Builder goes on in the memory it has.
func (b *Builder) Reset(buf []byte) {
	if buf == nil {
		buf = b.buf
	}
	b.buf = buf[:0]
	b.codec, b.level = None, 0
	b.fields = Fields{LeaderEpoch: -1, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}
	b.fresh = true
}

// start makes the zero Builder ready.
func (b *Builder) start() {
	if !b.fresh {
		b.Reset(nil)
	}
}

// SetCodec compresses the batch, at the codec's default level.
func (b *Builder) SetCodec(c Codec) { b.SetCompression(c, 0) }

// SetCompression compresses the batch at a level in the codec's own scale, 0 for its default.
func (b *Builder) SetCompression(c Codec, level int) {
	b.start()
	b.codec, b.level = c, level
}

// SetProducer sets the idempotent producer's fields.
func (b *Builder) SetProducer(id int64, epoch int16, baseSequence int32) {
	b.start()
	b.fields.ProducerID, b.fields.ProducerEpoch, b.fields.BaseSequence = id, epoch, baseSequence
}

// SetTransactional makes the batch part of its producer's transaction.
func (b *Builder) SetTransactional() {
	b.start()
	b.fields.Attributes |= attrTransactional
}

// SetControl makes the batch one of markers.
func (b *Builder) SetControl() {
	b.start()
	b.fields.Attributes |= attrControl
}

// Append adds a record; its Offset is ignored. The first record's timestamp becomes the base.
func (b *Builder) Append(r *Record) {
	b.start()
	f := &b.fields
	if f.Count == 0 {
		b.buf = append(b.buf[:0], make([]byte, HeaderSize)...)
		f.BaseTimestamp, f.MaxTimestamp = r.Timestamp, r.Timestamp
	}
	invariant.Check(f.Count < math.MaxInt32, "too many records in a batch")
	f.MaxTimestamp = max(f.MaxTimestamp, r.Timestamp)
	f.LastOffsetDelta = f.Count
	b.buf = appendRecord(b.buf, r, r.Timestamp-f.BaseTimestamp, f.Count)
	f.Count++
}

// Count is the number of records so far.
func (b *Builder) Count() int { return int(b.fields.Count) }

// Size is the size that the batch has so far without compression.
func (b *Builder) Size() int { return max(HeaderSize, len(b.buf)) }

// Build seals and returns the batch: base offset 0, leader epoch -1. There must be a record. The
// memory stays the Builder's: it is overwritten after the next Reset.
func (b *Builder) Build() Batch {
	invariant.Check(b.fields.Count > 0, "a batch without records")
	f := b.fields
	f.Attributes |= int16(b.codec)
	if b.codec == None {
		return f.seal(b.buf)
	}
	b.out = append(b.out[:0], b.buf[:HeaderSize]...)
	b.out = b.Codecs.compress(b.out, b.codec, b.level, b.buf[HeaderSize:])
	return f.seal(b.out)
}

// appendRecord encodes r behind dst.
func appendRecord(dst []byte, r *Record, timestampDelta int64, offsetDelta int32) []byte {
	size := bodySize(r, timestampDelta, offsetDelta)
	invariant.Check(size <= math.MaxInt32, "record longer than its length can say")
	dst = binary.AppendVarint(dst, int64(size))
	dst = append(dst, 0) // attributes
	dst = binary.AppendVarint(dst, timestampDelta)
	dst = binary.AppendVarint(dst, int64(offsetDelta))
	dst = appendBytes(dst, r.Key)
	dst = appendBytes(dst, r.Value)
	dst = binary.AppendVarint(dst, int64(len(r.Headers)))
	for i := range r.Headers {
		h := &r.Headers[i]
		dst = binary.AppendVarint(dst, int64(len(h.Key)))
		dst = append(dst, h.Key...)
		dst = appendBytes(dst, h.Value)
	}
	return dst
}

// appendBytes encodes p with its length, nil as null.
func appendBytes(dst, p []byte) []byte {
	if p == nil {
		return append(dst, 1) // the varint -1
	}
	dst = binary.AppendVarint(dst, int64(len(p)))
	return append(dst, p...)
}

// bodySize is the encoded size of r after its length.
func bodySize(r *Record, timestampDelta int64, offsetDelta int32) int {
	return 1 + varintSize(timestampDelta) + varintSize(int64(offsetDelta)) + contentSize(r)
}

// contentSize is the encoded size of key, value and headers.
func contentSize(r *Record) int {
	n := bytesSize(r.Key) + bytesSize(r.Value) + varintSize(int64(len(r.Headers)))
	for i := range r.Headers {
		h := &r.Headers[i]
		n += varintSize(int64(len(h.Key))) + len(h.Key) + bytesSize(h.Value)
	}
	return n
}

// bytesSize is the encoded size of p with its length.
func bytesSize(p []byte) int {
	if p == nil {
		return 1
	}
	return varintSize(int64(len(p))) + len(p)
}

// RecordSize is an upper bound of what r adds to an uncompressed batch.
func RecordSize(r *Record) int {
	const lengthAttributesDeltas = 5 + 1 + 10 + 5
	return lengthAttributesDeltas + contentSize(r)
}

package record

import (
	"encoding/binary"
	"hash/crc32"
	"math"

	"millrace/internal/invariant"
)

// HeaderSize is the size of a batch's header, and of the smallest batch.
const HeaderSize = 61

// The header, all integers big-endian:
//
//	 0       8      12      16  17      21    23      27
//	+--------+-------+-------+---+-------+-----+-------+---------
//	| base   |batch  |leader |ma-| crc   |attr | last  | base
//	| offset |length |epoch  |gic|       |     | delta | time ...
//	+--------+-------+-------+---+-------+-----+-------+---------
//	27            35              43              51    53      57      61
//	+--------------+---------------+---------------+-----+-------+-------+------
//	| base         | max           | producer      |prod.| base  |record | records
//	| timestamp    | timestamp     | id            |epoch| seq   | count | ...
//	+--------------+---------------+---------------+-----+-------+-------+------
//
// batch length counts the bytes after itself. The crc covers everything from attr on, so that a
// leader stamps base offset and leader epoch without computing it anew.
const (
	atBaseOffset    = 0
	atLength        = 8
	atLeaderEpoch   = 12
	atMagic         = 16
	atCRC           = 17
	atAttributes    = 21
	atLastDelta     = 23
	atBaseTimestamp = 27
	atMaxTimestamp  = 35
	atProducerID    = 43
	atProducerEpoch = 51
	atBaseSequence  = 53
	atCount         = 57

	lengthEnd = atLeaderEpoch // first byte that batch length counts
	magic     = 2
)

// Attribute bits.
const (
	attrCodec         = 0x07
	attrLogAppendTime = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
	attrDeleteHorizon = 0x40
)

// TimestampType says whose clock a batch's timestamps come from.
type TimestampType int8

// The two timestamp types.
const (
	CreateTime TimestampType = iota
	LogAppendTime
)

// String is the name that message.timestamp.type uses.
func (t TimestampType) String() string {
	if t == LogAppendTime {
		return "LogAppendTime"
	}
	return "CreateTime"
}

// Batch is exactly one whole batch, or at least its header. The accessors check nothing: only Next,
// Prepare, Builder and Verify make a Batch out of bytes.
type Batch []byte

// BaseOffset is the offset of the batch's first record as it was produced.
func (b Batch) BaseOffset() int64 { return int64(binary.BigEndian.Uint64(b[atBaseOffset:])) }

// Length is the size of the whole batch as its header gives it.
func (b Batch) Length() int { return lengthEnd + int(int32(binary.BigEndian.Uint32(b[atLength:]))) }

// LeaderEpoch is the epoch of the leader that appended the batch, -1 before that.
func (b Batch) LeaderEpoch() int32 { return int32(binary.BigEndian.Uint32(b[atLeaderEpoch:])) }

// Magic is the format's version, 2.
func (b Batch) Magic() int8 { return int8(b[atMagic]) }

// CRC is the checksum in the header.
func (b Batch) CRC() uint32 { return binary.BigEndian.Uint32(b[atCRC:]) }

// Attributes are the batch's flag bits.
func (b Batch) Attributes() int16 { return int16(binary.BigEndian.Uint16(b[atAttributes:])) }

// Codec is how the records are compressed.
func (b Batch) Codec() Codec { return Codec(b[atAttributes+1] & attrCodec) }

// TimestampType says whose clock the timestamps come from.
func (b Batch) TimestampType() TimestampType {
	if b[atAttributes+1]&attrLogAppendTime != 0 {
		return LogAppendTime
	}
	return CreateTime
}

// IsTransactional says whether the batch belongs to a transaction.
func (b Batch) IsTransactional() bool { return b[atAttributes+1]&attrTransactional != 0 }

// IsControl says whether the batch carries markers rather than data.
func (b Batch) IsControl() bool { return b[atAttributes+1]&attrControl != 0 }

// HasDeleteHorizon says whether BaseTimestamp is the time until which tombstones are kept.
func (b Batch) HasDeleteHorizon() bool { return b[atAttributes+1]&attrDeleteHorizon != 0 }

// LastOffsetDelta is the last record's offset minus BaseOffset, even when that record is gone.
func (b Batch) LastOffsetDelta() int32 { return int32(binary.BigEndian.Uint32(b[atLastDelta:])) }

// LastOffset is the offset of the batch's last record as it was produced.
func (b Batch) LastOffset() int64 { return b.BaseOffset() + int64(b.LastOffsetDelta()) }

// NextOffset is the first offset after the batch.
func (b Batch) NextOffset() int64 { return b.LastOffset() + 1 }

// Count is the number of records in the batch; compaction may leave fewer than the offsets span.
func (b Batch) Count() int32 { return int32(binary.BigEndian.Uint32(b[atCount:])) }

// BaseTimestamp is what records' timestamps are relative to.
func (b Batch) BaseTimestamp() int64 { return int64(binary.BigEndian.Uint64(b[atBaseTimestamp:])) }

// MaxTimestamp is the greatest timestamp of the records; with LogAppendTime, that of all of them.
func (b Batch) MaxTimestamp() int64 { return int64(binary.BigEndian.Uint64(b[atMaxTimestamp:])) }

// ProducerID is the id of the idempotent producer, -1 without one.
func (b Batch) ProducerID() int64 { return int64(binary.BigEndian.Uint64(b[atProducerID:])) }

// ProducerEpoch is the epoch of that producer, -1 without one.
func (b Batch) ProducerEpoch() int16 { return int16(binary.BigEndian.Uint16(b[atProducerEpoch:])) }

// BaseSequence is the first record's sequence number, -1 without a producer and in control batches.
func (b Batch) BaseSequence() int32 { return int32(binary.BigEndian.Uint32(b[atBaseSequence:])) }

// LastSequence is the last record's sequence number: after 2147483647 comes 0.
func (b Batch) LastSequence() int32 {
	base := b.BaseSequence()
	if base < 0 {
		return base
	}
	return AddSequence(base, b.LastOffsetDelta())
}

// Payload is the records, compressed as Codec says.
func (b Batch) Payload() []byte { return b[HeaderSize:] }

// SetBaseOffset stamps the base offset, which lies outside the checksum.
func (b Batch) SetBaseOffset(offset int64) {
	binary.BigEndian.PutUint64(b[atBaseOffset:], uint64(offset))
}

// SetLeaderEpoch stamps the leader epoch, which lies outside the checksum.
func (b Batch) SetLeaderEpoch(epoch int32) {
	binary.BigEndian.PutUint32(b[atLeaderEpoch:], uint32(epoch))
}

// SetTimestamp sets the timestamp type and the maximum timestamp, and reseals the batch.
func (b Batch) SetTimestamp(t TimestampType, maxTimestamp int64) {
	b[atAttributes+1] &^= attrLogAppendTime
	if t == LogAppendTime {
		b[atAttributes+1] |= attrLogAppendTime
	}
	binary.BigEndian.PutUint64(b[atMaxTimestamp:], uint64(maxTimestamp))
	b.Seal()
}

// SetProducer sets the producer's fields and reseals the batch.
func (b Batch) SetProducer(id int64, epoch int16, baseSequence int32) {
	binary.BigEndian.PutUint64(b[atProducerID:], uint64(id))
	binary.BigEndian.PutUint16(b[atProducerEpoch:], uint16(epoch))
	binary.BigEndian.PutUint32(b[atBaseSequence:], uint32(baseSequence))
	b.Seal()
}

// Seal computes the checksum of the whole batch and stores it.
func (b Batch) Seal() { binary.BigEndian.PutUint32(b[atCRC:], checksum(b[atAttributes:])) }

// Verify checks magic, length and checksum of a whole batch; what fails it is ErrCorrupt.
func (b Batch) Verify() error {
	switch {
	case len(b) < HeaderSize:
		return corrupt("%d bytes are no batch", len(b))
	case b.Magic() != magic:
		return corrupt("magic %d", b.Magic())
	case b.Length() != len(b):
		return corrupt("header says %d bytes, there are %d", b.Length(), len(b))
	}
	if sum := checksum(b[atAttributes:]); sum != b.CRC() {
		return corrupt("checksum %08x, header says %08x", sum, b.CRC())
	}
	return nil
}

// Next splits the first whole batch off buf, looking at its length and magic only. ErrShort: buf is
// empty or ends inside a batch. ErrCorrupt: no batch starts here.
func Next(buf []byte) (b Batch, rest []byte, err error) {
	if len(buf) < lengthEnd {
		return nil, buf, ErrShort
	}
	size := Batch(buf).Length()
	if size < HeaderSize {
		return nil, buf, corrupt("batch length %d", size-lengthEnd)
	}
	if len(buf) > atMagic && buf[atMagic] != magic {
		return nil, buf, corrupt("magic %d", int8(buf[atMagic]))
	}
	if size > len(buf) {
		return nil, buf, ErrShort
	}
	return Batch(buf[:size:size]), buf[size:], nil
}

// AddSequence is the sequence number n >= 0 after s >= 0: after 2147483647 comes 0.
func AddSequence(s, n int32) int32 {
	if s > math.MaxInt32-n {
		return n - (math.MaxInt32 - s) - 1
	}
	return s + n
}

// SubSequence is the sequence number n >= 0 before s >= 0: before 0 comes 2147483647.
func SubSequence(s, n int32) int32 {
	if s < n {
		return math.MaxInt32 - (n - s) + 1
	}
	return s - n
}

// checksum is CRC-32C.
func checksum(p []byte) uint32 { return crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)) }

// Fields are the header's fields but length, magic and checksum, for code that writes batches whole.
type Fields struct {
	BaseOffset      int64
	LeaderEpoch     int32
	Attributes      int16
	LastOffsetDelta int32
	BaseTimestamp   int64
	MaxTimestamp    int64
	ProducerID      int64
	ProducerEpoch   int16
	BaseSequence    int32
	Count           int32
}

// seal writes f as the header of the batch that fills b and whose records are in place.
func (f *Fields) seal(b []byte) Batch {
	invariant.Check(len(b) >= HeaderSize && len(b)-lengthEnd <= math.MaxInt32, "batch size out of range")
	binary.BigEndian.PutUint64(b[atBaseOffset:], uint64(f.BaseOffset))
	binary.BigEndian.PutUint32(b[atLength:], uint32(len(b)-lengthEnd))
	binary.BigEndian.PutUint32(b[atLeaderEpoch:], uint32(f.LeaderEpoch))
	b[atMagic] = magic
	binary.BigEndian.PutUint16(b[atAttributes:], uint16(f.Attributes))
	binary.BigEndian.PutUint32(b[atLastDelta:], uint32(f.LastOffsetDelta))
	binary.BigEndian.PutUint64(b[atBaseTimestamp:], uint64(f.BaseTimestamp))
	binary.BigEndian.PutUint64(b[atMaxTimestamp:], uint64(f.MaxTimestamp))
	binary.BigEndian.PutUint64(b[atProducerID:], uint64(f.ProducerID))
	binary.BigEndian.PutUint16(b[atProducerEpoch:], uint16(f.ProducerEpoch))
	binary.BigEndian.PutUint32(b[atBaseSequence:], uint32(f.BaseSequence))
	binary.BigEndian.PutUint32(b[atCount:], uint32(f.Count))
	Batch(b).Seal()
	return Batch(b)
}

// fields reads the header back.
func (b Batch) fields() Fields {
	return Fields{
		BaseOffset:      b.BaseOffset(),
		LeaderEpoch:     b.LeaderEpoch(),
		Attributes:      b.Attributes(),
		LastOffsetDelta: b.LastOffsetDelta(),
		BaseTimestamp:   b.BaseTimestamp(),
		MaxTimestamp:    b.MaxTimestamp(),
		ProducerID:      b.ProducerID(),
		ProducerEpoch:   b.ProducerEpoch(),
		BaseSequence:    b.BaseSequence(),
		Count:           b.Count(),
	}
}

// AppendEmpty appends a batch without records: what compaction leaves so that a producer's last
// sequence and the partition's last offset survive. f.Count and the timestamp base are given by that.
func AppendEmpty(dst []byte, f Fields) []byte {
	f.Count = 0
	f.BaseTimestamp = -1
	at := len(dst)
	dst = append(dst, make([]byte, HeaderSize)...)
	f.seal(dst[at:])
	return dst
}

package record

import (
	"io"
	"unsafe"
)

// Reader iterates over the records of one batch after the other, expanding compressed ones into a
// buffer of its own. The zero Reader is ready for Reset. It is not safe for concurrent use.
type Reader struct {
	// Codecs lends decompressors; nil makes them anew for each batch.
	Codecs *Codecs

	batch   Batch
	rest    []byte // records not read yet
	out     []byte // expanded records
	read    int32  // records returned
	base    int64  // batch.BaseOffset
	baseTs  int64  // timestamp base; with LogAppendTime the timestamp
	logTime bool
	err     error
}

// NewReader iterates over b, which Verify or Prepare accepted or whose maker is trusted to that
// degree; the records themselves may be anything. Expanding stops at maxBytes.
func NewReader(b Batch, maxBytes int) *Reader {
	r := new(Reader)
	r.Reset(b, maxBytes)
	return r
}

// Reset starts over with another batch; what Next returned from the last one is no longer valid
// when that was compressed.
func (r *Reader) Reset(b Batch, maxBytes int) {
	r.batch, r.rest, r.read, r.err = b, nil, 0, nil
	if len(b) < HeaderSize {
		r.err = corrupt("%d bytes are no batch", len(b))
		return
	}
	r.base, r.baseTs = b.BaseOffset(), b.BaseTimestamp()
	r.logTime = b.TimestampType() == LogAppendTime
	if r.logTime {
		r.baseTs = b.MaxTimestamp()
	}
	if b.Codec() == None || len(b) == HeaderSize {
		r.rest = b.Payload()
		return
	}
	r.out, r.err = r.Codecs.expand(r.out[:0], b.Codec(), b.Payload(), maxBytes)
	if r.err == nil {
		r.rest = r.out
	}
}

// Next decodes the next record into rec, or says that there is none or that Err tells why. Key,
// values and header keys alias the batch or the Reader's buffer: they are valid until the next
// Reset or Close, and rec.Headers, which is reused, until the next call.
func (r *Reader) Next(rec *Record) bool {
	if r.err != nil {
		return false
	}
	if r.read == r.batch.Count() || len(r.rest) == 0 {
		r.err = r.finish()
		return false
	}
	size, n := varint32(r.rest)
	if n == 0 || size < 0 || int(size) > len(r.rest)-n {
		r.err = corrupt("record %d: length out of range", r.read)
		return false
	}
	body := r.rest[n : n+int(size)]
	timestampDelta, offsetDelta, ok := decodeRecord(body, rec)
	if !ok {
		r.err = corrupt("record %d: malformed", r.read)
		return false
	}
	r.rest = r.rest[n+int(size):]
	r.read++
	rec.Offset = r.base + int64(offsetDelta)
	rec.Timestamp = r.baseTs
	if !r.logTime {
		rec.Timestamp += timestampDelta
	}
	return true
}

// finish tells a complete end (io.EOF) from a batch that has more or fewer records than it says.
func (r *Reader) finish() error {
	if count := r.batch.Count(); r.read != count {
		return corrupt("header says %d records, there are %d", count, r.read)
	}
	if len(r.rest) > 0 {
		return corrupt("%d bytes after the last record", len(r.rest))
	}
	return io.EOF
}

// Err is why Next returned false, nil at the end of the batch: ErrCorrupt, ErrTooLarge (the records
// expand beyond the bound) or ErrUnsupportedCodec.
func (r *Reader) Err() error {
	if r.err == io.EOF {
		return nil
	}
	return r.err
}

// Close lets go of the batch. It keeps the buffer for the next Reset.
func (r *Reader) Close() {
	r.batch, r.rest, r.err = nil, nil, io.EOF
}

// Kept is the size of the buffer that Close keeps, for owners that let go of Readers with a large one.
func (r *Reader) Kept() int { return cap(r.out) }

// decodeRecord reads a record's body, which must be exactly one record. Headers go into the memory
// that rec.Headers has.
func decodeRecord(body []byte, rec *Record) (timestampDelta int64, offsetDelta int32, ok bool) {
	if len(body) == 0 {
		return 0, 0, false
	}
	p := body[1:] // attributes: none are defined
	timestampDelta, n := varint64(p)
	if n == 0 {
		return 0, 0, false
	}
	p = p[n:]
	if offsetDelta, n = varint32(p); n == 0 {
		return 0, 0, false
	}
	p = p[n:]
	if rec.Key, p, ok = takeBytes(p); !ok {
		return 0, 0, false
	}
	if rec.Value, p, ok = takeBytes(p); !ok {
		return 0, 0, false
	}
	count, n := varint32(p)
	if n == 0 || count < 0 {
		return 0, 0, false
	}
	rec.Headers, p, ok = decodeHeaders(p[n:], count, rec.Headers[:0])
	return timestampDelta, offsetDelta, ok && len(p) == 0
}

// decodeHeaders appends count headers to dst.
func decodeHeaders(p []byte, count int32, dst []Header) (headers []Header, rest []byte, ok bool) {
	if int(count) > len(p)/2 { // the smallest header takes two bytes
		return dst, p, false
	}
	for range count {
		var key, value []byte
		if key, p, ok = takeBytes(p); !ok || key == nil {
			return dst, p, false
		}
		if value, p, ok = takeBytes(p); !ok {
			return dst, p, false
		}
		dst = append(dst, Header{Key: unsafe.String(unsafe.SliceData(key), len(key)), Value: value})
	}
	return dst, p, true
}

// takeBytes reads a length and so many bytes, nil for null, off the front of p.
func takeBytes(p []byte) (b, rest []byte, ok bool) {
	size, n := varint32(p)
	if n == 0 || size < -1 || int(size) > len(p)-n {
		return nil, p, false
	}
	if size < 0 {
		return nil, p[n:], true
	}
	end := n + int(size)
	return p[n:end:end], p[end:], true
}

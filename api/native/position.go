package native

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bounds of a written position. That of a topic with 10,000 partitions of up to 2^30 records each has 60,006 bytes;
// a URI and a header have room for it.
const (
	maxPositionBytes      = 60 << 10
	maxPositionPartitions = 10_000
	topicTagBytes         = 3
	decimalPartitions     = 100 // more are written packed
)

// allPartitions stands for the partition of a read that covers the whole topic.
const allPartitions int32 = -1

// A position says where a reader is in a topic. It is what `next`, the header Next and the id of a server-sent
// event hold, and what `from` and Last-Event-ID take. Written, it is
//
//	position  = offsets / packed / one
//	offsets   = offset *( "," offset ) [ "~" tag ]    ; of every partition, partition 0 first
//	packed    = "." 1*digits [ "~" tag ]              ; the same, as this server writes it for more than 100
//	one       = partition ":" offset [ "~" tag ]      ; of one partition
//	tag       = 4base64url                            ; of the topic's id
//
// with decimal numbers that have neither sign nor leading zeros, so that equal positions are written alike.
// A packed offset is a run of base64url digits, each with five bits of it, the lowest first; the sixth bit
// of all but the last is set. An offset is that of the next record to read. The tag tells the topic from one
// that was deleted and created anew under its name; one written by hand may leave it out. A partition beyond
// the last that is listed was added later and is read from its start.
type position struct {
	partition int32   // the only partition, or allPartitions
	offsets   []int64 // by partition, or of the one
	tag       string  // empty: not known
	decimal   bool    // more than 100 that are not packed: somebody else wrote it
	packed    bool    // at most 100 that are packed, likewise
}

// isPacked says how the offsets are written.
func (p *position) isPacked() bool {
	if p.partition == allPartitions && len(p.offsets) > decimalPartitions {
		return !p.decimal
	}
	return p.packed
}

const packedDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// appendPacked writes one packed offset.
func appendPacked(dst []byte, offset int64) []byte {
	for ; offset >= 32; offset >>= 5 {
		dst = append(dst, packedDigits[offset&31|32])
	}
	return append(dst, packedDigits[offset])
}

// cutPacked reads the packed offset that s begins with; ok is false if it does not begin with one in its one form.
func cutPacked(s string) (offset int64, rest string, ok bool) {
	for shift := 0; s != "" && shift < 65; shift += 5 {
		d := int64(strings.IndexByte(packedDigits, s[0]))
		s = s[1:]
		bits := d & 31
		if d < 0 || shift == 60 && bits > 7 { // beyond 2^63
			return 0, s, false
		}
		offset |= bits << shift
		if d < 32 {
			return offset, s, bits > 0 || shift == 0
		}
	}
	return 0, s, false
}

// topicTag abbreviates a topic's id; it is empty when the cluster gives topics none.
func topicTag(id [16]byte) string {
	if id == [16]byte{} {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(id[:topicTagBytes])
}

// append writes the position behind dst.
func (p position) append(dst []byte) []byte {
	if p.partition != allPartitions {
		dst = strconv.AppendInt(dst, int64(p.partition), 10)
		dst = append(dst, ':')
	}
	if p.isPacked() {
		dst = append(dst, '.')
		for _, o := range p.offsets {
			dst = appendPacked(dst, o)
		}
	} else {
		for i, o := range p.offsets {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendInt(dst, o, 10)
		}
	}
	if p.tag != "" {
		dst = append(dst, '~')
		dst = append(dst, p.tag...)
	}
	return dst
}

func (p position) String() string { return string(p.append(nil)) }

// errPosition is the reason a position is refused, in words for whoever sent it.
var errPosition = errors.New("not a position that this server gave")

// parsePosition reads a written position. What it accepts, append writes back unchanged.
func parsePosition(s string) (position, error) {
	p := position{partition: allPartitions}
	if len(s) > maxPositionBytes {
		return p, fmt.Errorf("%w: longer than %d bytes", errPosition, maxPositionBytes)
	}
	rest, tag, tagged := strings.Cut(s, "~")
	if tagged {
		b, err := base64.RawURLEncoding.Strict().DecodeString(tag)
		if err != nil || len(b) != topicTagBytes || strings.ContainsAny(tag, "\r\n") {
			return p, fmt.Errorf("%w: bad topic tag %.20q", errPosition, tag)
		}
		p.tag = tag
	}
	if packed, ok := strings.CutPrefix(rest, "."); ok {
		err := p.unpack(packed)
		return p, err
	}
	if number, offset, ok := strings.Cut(rest, ":"); ok {
		n, err := parseDecimal(number)
		if err != nil || n > math.MaxInt32 {
			return p, fmt.Errorf("%w: bad partition %.20q", errPosition, number)
		}
		p.partition, rest = int32(n), offset
	}
	count := strings.Count(rest, ",") + 1
	if count > maxPositionPartitions || (p.partition != allPartitions && count > 1) {
		return p, fmt.Errorf("%w: %d offsets", errPosition, count)
	}
	p.offsets = make([]int64, 0, count)
	for field := range strings.SplitSeq(rest, ",") {
		o, err := parseDecimal(field)
		if err != nil {
			return p, fmt.Errorf("%w: bad offset %.20q", errPosition, field)
		}
		p.offsets = append(p.offsets, o)
	}
	p.decimal = count > decimalPartitions
	return p, nil
}

// unpack reads packed offsets.
func (p *position) unpack(packed string) error {
	for packed != "" {
		o, rest, ok := cutPacked(packed)
		if !ok {
			return fmt.Errorf("%w: bad packed offset %.20q", errPosition, packed)
		}
		p.offsets, packed = append(p.offsets, o), rest
	}
	if n := len(p.offsets); n == 0 || n > maxPositionPartitions {
		return fmt.Errorf("%w: %d offsets", errPosition, n)
	}
	p.packed = len(p.offsets) <= decimalPartitions
	return nil
}

// parseDecimal reads a number from 0 to 2^63-1 in its one canonical form.
func parseDecimal(s string) (int64, error) {
	if s == "" || (s[0] == '0' && len(s) > 1) {
		return 0, strconv.ErrSyntax
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, strconv.ErrSyntax
		}
	}
	return strconv.ParseInt(s, 10, 64)
}

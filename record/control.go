package record

import "encoding/binary"

// ControlType says what a control record marks. Types that are not listed may exist: they are
// skipped, never delivered.
type ControlType int16

// The control types.
const (
	ControlAbort ControlType = iota
	ControlCommit
	ControlLeaderChange
	ControlSnapshotHeader
	ControlSnapshotFooter
	ControlQuorumVersion
	ControlQuorumVoters
)

// EndTxnMarker is the end of a transaction on one partition.
type EndTxnMarker struct {
	Type             ControlType // ControlCommit or ControlAbort
	ProducerID       int64
	ProducerEpoch    int16
	CoordinatorEpoch int32
	Timestamp        int64 // the coordinator's clock, milliseconds
}

// Control is what a control record says.
type Control struct {
	Type             ControlType
	CoordinatorEpoch int32 // of ControlCommit and ControlAbort
}

// The record of a marker; later versions may add bytes at the end of both:
//
//	key                    value
//	+---------+------+     +---------+-------------+
//	| version | type |     | version | coordinator |
//	| i16 = 0 | i16  |     | i16 = 0 | epoch, i32  |
//	+---------+------+     +---------+-------------+
const (
	controlKeySize   = 4
	endTxnMarkerSize = 6
)

// AppendEndTxnMarker appends a control batch with one marker: base offset 0, leader epoch -1.
func AppendEndTxnMarker(dst []byte, m EndTxnMarker) []byte {
	var key [controlKeySize]byte
	binary.BigEndian.PutUint16(key[2:], uint16(m.Type))
	var value [endTxnMarkerSize]byte
	binary.BigEndian.PutUint32(value[2:], uint32(m.CoordinatorEpoch))
	at := len(dst)
	dst = append(dst, make([]byte, HeaderSize)...)
	dst = appendRecord(dst, &Record{Key: key[:], Value: value[:]}, 0, 0)
	f := Fields{
		LeaderEpoch:   -1,
		Attributes:    attrTransactional | attrControl,
		BaseTimestamp: m.Timestamp,
		MaxTimestamp:  m.Timestamp,
		ProducerID:    m.ProducerID,
		ProducerEpoch: m.ProducerEpoch,
		BaseSequence:  -1,
		Count:         1,
	}
	f.seal(dst[at:])
	return dst
}

// EndTxnMarker reads the marker of a whole control batch; ok is false for every other batch.
func (b Batch) EndTxnMarker() (m EndTxnMarker, ok bool) {
	if !b.IsControl() || b.ProducerID() < 0 || b.Count() != 1 || len(b) < b.Length() || b.Codec() != None {
		return EndTxnMarker{}, false
	}
	var r Record
	size, n := varint32(b.Payload())
	body := b.Payload()[max(n, 0):]
	if n <= 0 || size < 0 || int(size) > len(body) {
		return EndTxnMarker{}, false
	}
	if _, _, ok := decodeRecord(body[:size], &r); !ok {
		return EndTxnMarker{}, false
	}
	c, err := ParseControl(&r)
	if err != nil || c.Type != ControlAbort && c.Type != ControlCommit {
		return EndTxnMarker{}, false
	}
	return EndTxnMarker{
		Type: c.Type, ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(), CoordinatorEpoch: c.CoordinatorEpoch,
		Timestamp: b.MaxTimestamp(),
	}, true
}

// ParseControl reads a record of a control batch. Versions above ours and bytes after what we know
// are accepted, types that we do not know come back as they are.
func ParseControl(r *Record) (Control, error) {
	if len(r.Key) < controlKeySize {
		return Control{}, corrupt("control record with a key of %d bytes", len(r.Key))
	}
	if version := int16(binary.BigEndian.Uint16(r.Key)); version < 0 {
		return Control{}, corrupt("control record of version %d", version)
	}
	c := Control{Type: ControlType(binary.BigEndian.Uint16(r.Key[2:]))}
	if c.Type != ControlAbort && c.Type != ControlCommit {
		return c, nil
	}
	if len(r.Value) < endTxnMarkerSize {
		return Control{}, corrupt("transaction marker with a value of %d bytes", len(r.Value))
	}
	if version := int16(binary.BigEndian.Uint16(r.Value)); version < 0 {
		return Control{}, corrupt("transaction marker of version %d", version)
	}
	c.CoordinatorEpoch = int32(binary.BigEndian.Uint32(r.Value[2:]))
	return c, nil
}

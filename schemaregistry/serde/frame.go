package serde

import (
	"encoding/binary"
	"fmt"

	"github.com/google/uuid"

	"millrace/record"
	"millrace/schemaregistry/protobuf"
	"millrace/schemaregistry/schema"
)

// The frames, before a value or, of a GUID, in a header of the record that leaves the value bare:
//
//	+----+----------+---------------------+-------+
//	| 00 | id (4)   | [message index path] | value |
//	+----+----------+---------------------+-------+
//	| 01 | GUID (16)| [message index path] | value |
//	+----+----------+---------------------+-------+
//
// The id is big-endian. The path is there for Protobuf alone.
const (
	magicID   = 0
	magicGUID = 1
)

// The headers that hold a frame.
const (
	keyHeader   = "__key_schema_id"
	valueHeader = "__value_schema_id"
)

func (p Part) header() string {
	if p == Key {
		return keyHeader
	}
	return valueHeader
}

// frameName is the name of a schema in a frame.
type frameName struct {
	id     int // of a frame without guid
	guid   [16]byte
	isGUID bool
}

// String is what people call the schema.
func (n frameName) String() string {
	if n.isGUID {
		return "GUID " + uuid.UUID(n.guid).String()
	}
	return fmt.Sprintf("id %d", n.id)
}

// frame is what names the schema of some bytes.
type frame struct {
	frameName
	rest  []byte // behind id or GUID, in the frame
	value []byte // the bare value, of a frame in a header; nil if it stands in rest
}

// MayFrame says whether a key or value may be framed: mostly it tells at once that it is not.
func (p Part) MayFrame(value []byte, headers []record.Header) bool {
	return len(value) > 0 && value[0] <= magicGUID || len(headers) > 0 && p.HasHeader(headers)
}

// HasHeader says whether a header of a record names the schema of the part.
func (p Part) HasHeader(headers []record.Header) bool {
	name := p.header()
	for i := range headers {
		if headers[i].Key == name && len(headers[i].Value) > 0 {
			return true
		}
	}
	return false
}

// IsHeader says of a header's name that it is the one that holds a frame of the part.
func (p Part) IsHeader(name string) bool { return name == p.header() }

// split finds the frame of a part of a record: in its headers, or before the value.
func split(part Part, value []byte, headers []record.Header) (frame, error) {
	for i := len(headers) - 1; i >= 0; i-- {
		if h := &headers[i]; string(h.Key) == part.header() && len(h.Value) > 0 {
			f, err := readFrame(h.Value)
			f.value = value
			if f.value == nil {
				f.value = []byte{}
			}
			return f, err
		}
	}
	return readFrame(value)
}

func readFrame(b []byte) (frame, error) {
	switch {
	case len(b) >= 5 && b[0] == magicID:
		return frame{frameName: frameName{id: int(binary.BigEndian.Uint32(b[1:]))}, rest: b[5:]}, nil
	case len(b) >= 17 && b[0] == magicGUID:
		return frame{frameName: frameName{guid: [16]byte(b[1:17]), isGUID: true}, rest: b[17:]}, nil
	case len(b) == 0:
		return frame{}, fmt.Errorf("%w: they are empty", ErrUnframed)
	default:
		return frame{}, fmt.Errorf("%w: they begin with byte 0x%02x and are %d long; a frame is 0x00 and an id of 4 bytes, "+
			"or 0x01 and a GUID of 16", ErrUnframed, b[0], len(b))
	}
}

// payload is the message path, nil for the first message, and the bare value of a frame whose schema is known.
func (f *frame) payload(t schema.Type) (index []int, value []byte, err error) {
	value = f.rest
	if t == schema.Protobuf {
		if index, value, err = readIndex(f.rest); err != nil {
			return nil, nil, err
		}
	}
	if f.value != nil {
		if len(value) > 0 {
			return nil, nil, schema.Mismatch("the header that names the schema is longer than its frame")
		}
		value = f.value
	}
	return index, value, nil
}

// readIndex reads a message path without allocating that of the first message, which is nil.
func readIndex(b []byte) (index []int, rest []byte, err error) {
	if len(b) > 0 && b[0] == 0 {
		return nil, b[1:], nil
	}
	if index, rest, err = protobuf.ReadIndex(b); len(index) == 1 && index[0] == 0 {
		index = nil
	}
	return index, rest, err
}

// appendID appends the frame of an id.
func appendID(dst []byte, id int) []byte {
	return binary.BigEndian.AppendUint32(append(dst, magicID), uint32(id))
}

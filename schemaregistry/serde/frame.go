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

// frame is what names the schema of some bytes.
type frame struct {
	id     int // of a frame without guid
	guid   [16]byte
	isGUID bool
	rest   []byte // behind id or GUID, in the frame
	value  []byte // the bare value, of a frame in a header; nil if it stands in rest
}

// name is what people call the schema.
func (f *frame) name() string {
	if f.isGUID {
		return "GUID " + uuid.UUID(f.guid).String()
	}
	return fmt.Sprintf("id %d", f.id)
}

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
		return frame{id: int(binary.BigEndian.Uint32(b[1:])), rest: b[5:]}, nil
	case len(b) >= 17 && b[0] == magicGUID:
		return frame{guid: [16]byte(b[1:17]), isGUID: true, rest: b[17:]}, nil
	case len(b) == 0:
		return frame{}, fmt.Errorf("%w: they are empty", ErrUnframed)
	default:
		return frame{}, fmt.Errorf("%w: they begin with byte 0x%02x and are %d long; a frame is 0x00 and an id of 4 bytes, "+
			"or 0x01 and a GUID of 16", ErrUnframed, b[0], len(b))
	}
}

// payload is the message path and the bare value of a frame whose schema is known.
func (f *frame) payload(t schema.Type) (index []int, value []byte, err error) {
	value = f.rest
	if t == schema.Protobuf {
		if index, value, err = protobuf.ReadIndex(f.rest); err != nil {
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

// appendID appends the frame of an id.
func appendID(dst []byte, id int) []byte {
	return binary.BigEndian.AppendUint32(append(dst, magicID), uint32(id))
}

package serde

import (
	"context"
	"errors"

	"millrace/record"
	"millrace/schemaregistry"
	"millrace/schemaregistry/schema"
)

// Reader reads one part of the records of one topic. It remembers the schemas that it met last, so it is not safe for
// concurrent use; a zero value behind NewReader costs nothing.
type Reader struct {
	serde *Serde
	part  Part
	// Context is where ids are looked up: the context of the subject that the topic's name makes.
	subject string

	last  frame // what found refers to; its slices are nil
	found *Read
	codec schema.Codec // of the message path last
	path  []int

	missing map[string]error // what was looked for in vain, by name; at most maxMissing
}

// maxMissing is how many schemas that are not there a Reader waits for, until the log's end is read: records may name
// anything. It takes the others from memory alone.
const maxMissing = 16

// Read is the schema with which something was read.
type Read struct {
	schemaregistry.Version
	parsed schema.Schema
}

// NewReader makes a Reader of a topic's keys or values.
func (s *Serde) NewReader(topic string, part Part) *Reader {
	return &Reader{serde: s, part: part, subject: topic + "-" + part.String()}
}

// Append appends the part of a record as JSON to dst. The frame is the headers', or stands before the value. An error
// wraps ErrUnframed, an *UnknownSchemaError, or schema.ErrMismatch; others say that the registry cannot tell.
func (r *Reader) Append(ctx context.Context, dst, value []byte, headers []record.Header) ([]byte, *Read, error) {
	codec, bare, err := r.open(ctx, value, headers)
	if err != nil {
		return dst, r.found, err
	}
	at := len(dst)
	if dst, err = codec.Decode(dst, bare); err != nil {
		return dst[:at], r.found, err
	}
	return dst, r.found, nil
}

// Check reports why the part is not a framed value of a schema, as Append does; it reads without writing.
func (r *Reader) Check(ctx context.Context, value []byte, headers []record.Header) (*Read, error) {
	codec, bare, err := r.open(ctx, value, headers)
	if err != nil {
		return r.found, err
	}
	return r.found, codec.Check(bare)
}

// open finds the codec and the bare value.
func (r *Reader) open(ctx context.Context, value []byte, headers []record.Header) (schema.Codec, []byte, error) {
	f, err := split(r.part, value, headers)
	if err != nil {
		r.found = nil
		return nil, nil, err
	}
	if r.found == nil || f.id != r.last.id || f.guid != r.last.guid || f.isGUID != r.last.isGUID {
		if err := r.look(ctx, f); err != nil {
			return nil, nil, err
		}
	}
	index, bare, err := f.payload(r.found.Content.Type)
	if err != nil {
		return nil, nil, err
	}
	if r.codec == nil || !samePath(index, r.path) {
		if r.codec, err = codecOf(r.found.parsed, index); err != nil {
			return nil, nil, err
		}
		r.path = index
	}
	return r.codec, bare, nil
}

// look finds the schema that a frame names.
func (r *Reader) look(ctx context.Context, f frame) error {
	r.found, r.codec = nil, nil
	if err := r.missing[f.name()]; err != nil {
		return err
	}
	v, err := r.version(ctx, f)
	if isNotFound(err) {
		err = &UnknownSchemaError{Name: f.name(), Err: err}
		if r.missing == nil {
			r.missing = make(map[string]error)
		}
		if len(r.missing) < maxMissing {
			r.missing[f.name()] = err
		}
	}
	if err != nil {
		return err
	}
	parsed, err := r.serde.registry.Parsed(ctx, v)
	if err != nil {
		return err
	}
	f.rest, f.value = nil, nil
	r.found, r.last = &Read{Version: v, parsed: parsed}, f
	return nil
}

// version asks the registry.
func (r *Reader) version(ctx context.Context, f frame) (schemaregistry.Version, error) {
	switch full := len(r.missing) == maxMissing; {
	case f.isGUID && !full:
		return r.serde.registry.ByGUID(ctx, f.guid)
	case !f.isGUID && !full:
		return r.serde.registry.ByID(ctx, f.id, &r.subject)
	case !f.isGUID:
		if v, ok := r.serde.registry.Glance(f.id, &r.subject); ok {
			return v, nil
		}
	}
	return schemaregistry.Version{}, &UnknownSchemaError{Name: f.name(), Err: errManyMissing}
}

var errManyMissing = errors.New("too many others are not there, so it was not waited for")

func samePath(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

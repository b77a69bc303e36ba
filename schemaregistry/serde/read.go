package serde

import (
	"context"
	"errors"
	"slices"

	"millrace/record"
	"millrace/schemaregistry"
	"millrace/schemaregistry/schema"
)

// Reader reads one part of the records of one topic. It remembers the schemas that it met, so it is not safe for
// concurrent use. What it has met it reads without asking or allocating anything, but for what the value's own form
// costs; what is not in memory makes it wait for the end of the registry's log, once.
type Reader struct {
	serde *Serde
	part  Part
	// subject is where ids are looked up: in the context of the subject that the topic's name makes.
	subject string

	asked bool   // since Begin: what is not there now was not there when the records were written
	last  *known // what the last record named; nil if there is nothing
	known map[frameName]*known
}

// maxKnown is how many schemas a Reader remembers: records may name anything.
const maxKnown = 64

// known is a schema that was looked for.
type known struct {
	name  frameName
	fault error // it is not there, or cannot be read
	read  Read
	path  []int        // of the message that codec is of; nil is the first
	codec schema.Codec // nil before the first value
}

// Read is the schema with which something was read.
type Read struct {
	schemaregistry.Version
	// Message is the full name of the message, where it is another one than the schema's first.
	Message string

	parsed schema.Schema
}

// NewReader makes a Reader of a topic's keys or values.
func (s *Serde) NewReader(topic string, part Part) *Reader {
	r := &Reader{serde: s}
	r.Reset(topic, part)
	return r
}

// Reset makes the Reader one of other records.
func (r *Reader) Reset(topic string, part Part) {
	*r = Reader{serde: r.serde, part: part, subject: topic + "-" + part.String()}
}

// Begin says that the records from here on may have been written later than those before: a schema that was not there
// may be there now.
func (r *Reader) Begin() {
	r.asked, r.last = false, nil
	for name, k := range r.known {
		if k.fault != nil {
			delete(r.known, name)
		}
	}
}

// Append appends the part of a record as JSON to dst. The frame is the headers', or stands before the value. An error
// wraps ErrUnframed, an *UnknownSchemaError, or schema.ErrMismatch; others say that the registry cannot tell. What is
// read is valid until the next call.
func (r *Reader) Append(ctx context.Context, dst, value []byte, headers []record.Header) ([]byte, *Read, error) {
	k, bare, err := r.open(ctx, value, headers)
	if err != nil {
		return dst, k.schema(), err
	}
	out, err := k.codec.Decode(dst, bare)
	if err != nil {
		return dst, &k.read, err
	}
	return out, &k.read, nil
}

// Check reports why the part is not a framed value of a schema, as Append does; it reads without writing.
func (r *Reader) Check(ctx context.Context, value []byte, headers []record.Header) (*Read, error) {
	k, bare, err := r.open(ctx, value, headers)
	if err != nil {
		return k.schema(), err
	}
	return &k.read, k.codec.Check(bare)
}

// schema is what is known of the schema, nil if there is none.
func (k *known) schema() *Read {
	if k == nil || k.fault != nil {
		return nil
	}
	return &k.read
}

// open finds the codec, which is that of the known schema, and the bare value.
func (r *Reader) open(ctx context.Context, value []byte, headers []record.Header) (*known, []byte, error) {
	f, err := split(r.part, value, headers)
	if err != nil {
		return nil, nil, err
	}
	k := r.last
	if k == nil || k.name != f.frameName {
		if k, err = r.look(ctx, f.frameName); err != nil {
			return nil, nil, err
		}
		r.last = k
	}
	if k.fault != nil {
		return k, nil, k.fault
	}
	index, bare, err := f.payload(k.read.Content.Type)
	if err != nil {
		return k, nil, err
	}
	if k.codec == nil || !slices.Equal(index, k.path) {
		if err := k.openMessage(index); err != nil {
			return k, nil, err
		}
	}
	return k, bare, nil
}

// openMessage makes codec that of a message.
func (k *known) openMessage(index []int) (err error) {
	k.codec, k.path, k.read.Message = nil, index, ""
	if k.codec, err = codecOf(k.read.parsed, index); errors.Is(err, schema.ErrInvalid) {
		return schema.Mismatch("schema %s cannot be used: %w", k.name, err)
	} else if err != nil {
		return err
	}
	if m, ok := k.read.parsed.(schema.Messages); ok && index != nil {
		k.read.Message, _ = m.MessageName(index)
	}
	return nil
}

// look finds the schema that a frame names. It is an error that the registry cannot tell.
func (r *Reader) look(ctx context.Context, name frameName) (*known, error) {
	if k := r.known[name]; k != nil {
		return k, nil
	}
	v, ok := r.glance(name)
	if !ok && !r.asked {
		if err := r.serde.fresh(ctx); err != nil {
			return nil, err
		}
		r.asked = true
		v, ok = r.glance(name)
	}
	k := &known{name: name}
	if ok {
		// It takes no waiting, and what is known is read even for whoever is in a hurry.
		parsed, err := r.serde.registry.Parsed(context.WithoutCancel(ctx), v)
		var refused *schemaregistry.Error
		switch {
		case errors.As(err, &refused) && refused.Code == schemaregistry.CodeInvalidSchema:
			k.fault = schema.Mismatch("schema %s cannot be read: %w", name, err) // nor will it be later
		case err != nil:
			return nil, err
		}
		k.read = Read{Version: v, parsed: parsed}
	} else {
		k.fault = unknownSchema(name)
	}
	switch {
	case r.known == nil:
		r.known = make(map[frameName]*known)
	case len(r.known) >= maxKnown:
		clear(r.known)
	}
	r.known[name] = k
	return k, nil
}

// glance finds the schema in memory.
func (r *Reader) glance(name frameName) (schemaregistry.Version, bool) {
	if name.isGUID {
		return r.serde.registry.GlanceGUID(name.guid)
	}
	return r.serde.registry.Glance(name.id, &r.subject)
}

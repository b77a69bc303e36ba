package serde

import (
	"context"
	"errors"

	"millrace/record"
	"millrace/schemaregistry/schema"
)

// Opened is a part of a record whose schema is found, and whose value is not read yet.
type Opened struct {
	*Read
	// Schema is the schema, parsed.
	Schema schema.Schema
	// Index is the place of the message, of a Protobuf schema; nil is the first.
	Index []int
	// Value is the value without a frame.
	Value []byte

	codec schema.Codec
}

// Check reports why the value is not one of the schema, nil if it is.
func (o *Opened) Check() error { return o.codec.Check(o.Value) }

// Open finds the schema of a part of a record, for callers that read the value by themselves. Records come one by one:
// a schema that is not in memory is asked for with each of them. Errors are those of Append.
func (r *Reader) Open(ctx context.Context, value []byte, headers []record.Header) (Opened, error) {
	r.asked = false
	k, bare, err := r.open(ctx, value, headers)
	if err != nil {
		var unknown *UnknownSchemaError
		if errors.As(err, &unknown) {
			delete(r.known, k.name)
			r.last = nil
		}
		return Opened{}, err
	}
	return Opened{&k.read, k.read.parsed, k.path, bare, k.codec}, nil
}

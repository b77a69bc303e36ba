package plugin

import (
	"context"

	"millrace/connect/data"
	"millrace/record"
)

// Converter translates keys or values between records and topics. It is for one task, and not safe for concurrent use.
type Converter interface {
	// Encode appends a value as bytes to dst. False: it is a null.
	Encode(ctx context.Context, dst []byte, topic string, s *data.Schema, v any) (out []byte, ok bool, err error)
	// Decode reads bytes, nil for a null. Headers are the record's, for schemas that are named there. What it gives
	// may refer to the bytes.
	Decode(ctx context.Context, topic string, b []byte, headers []record.Header) (*data.Schema, any, error)
}

// HeaderConverter translates the values of headers.
type HeaderConverter interface {
	EncodeHeader(ctx context.Context, topic, name string, s *data.Schema, v any) ([]byte, error)
	DecodeHeader(ctx context.Context, topic, name string, b []byte) (*data.Schema, any, error)
}

// Transform changes records, one after the other. It may change the record that it gets, but not what that refers to:
// schemas, structs, maps, and the elements of Headers are replaced. Nil: the record is dropped.
type Transform interface {
	Apply(r *data.Record) (*data.Record, error)
}

// Predicate is a condition under which a transform applies.
type Predicate interface {
	Test(r *data.Record) bool
}

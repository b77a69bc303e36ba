// Package schema is what the schema registry and its three formats have in common: the content of a schema and its
// identity, references, metadata and rules, what a format can do, and how two schemas differ.
//
// It owns the vocabulary and the identity hash, does no I/O and keeps no state. Package schemaregistry is its main
// caller; the packages avro, jsonschema and protobuf implement Format.
package schema

import (
	"errors"
	"fmt"
)

// Type is a schema's format, spelt as in the registry's API.
type Type string

// The formats. A schema without a type is an Avro schema.
const (
	Avro     Type = "AVRO"
	JSON     Type = "JSON"
	Protobuf Type = "PROTOBUF"
)

// Dependency is a schema that another one refers to, directly or not. Dependencies are listed each once by name, and
// after all that they themselves depend on.
type Dependency struct {
	Name    string // what the referring schema calls it: a full name, a $ref, an import path
	Subject string
	Version int
	Text    string
	Direct  bool // the schema itself refers to it, not only one of its dependencies
}

// ParseOptions say how strictly a text is read and how it is printed.
type ParseOptions struct {
	// Strict also refuses what old clients may have stored: names, namespaces and defaults are checked.
	Strict bool
	// Normalize prints the text in the form in which equal schemas look equal.
	Normalize bool
}

// Format is one of the languages in which schemas are written. Implementations are safe for concurrent use and bound
// the size, depth and steps of everything they are given.
type Format interface {
	// Parse reads a text. Its errors wrap ErrInvalid, and say where and why in words for the author of the schema.
	Parse(text string, deps []Dependency, o ParseOptions) (Schema, error)
	// Compare lists how reader differs from writer, where data that was written with writer is read with reader. They
	// are compatible when every Difference is. Both come from this format's Parse. An error says that a limit was hit,
	// and wraps ErrInvalid.
	Compare(reader, writer Schema, o CompareOptions) (Comparison, error)
}

// Schema is a parsed schema. It does not change and is safe for concurrent use.
type Schema interface {
	// Text is the canonical form: what is stored, and what two equal schemas share.
	Text() string
	// Format is the text in another form, such as "resolved" or "serialized"; an unknown or empty one is Text.
	Format(name string) string
	// Name is the full name of the type that the schema describes, for the subject naming strategies; "" if it has none.
	Name() string
	// Codec translates data of this schema. For Protobuf it is that of the first message.
	Codec() (Codec, error)
	// Entities lists the inline tags of the schema: what carries them, and which.
	Entities() []Tagged
	// WithTags is the text with inline tags added and removed.
	WithTags(add, remove []Tagged) (string, error)
}

// Messages is a Schema that describes several messages: Protobuf.
type Messages interface {
	Schema
	// Message is the codec of the message at an index path: of the file, then of the nested ones.
	Message(index []int) (Codec, error)
	// MessageIndex finds a message by its full name.
	MessageIndex(name string) ([]int, bool)
	// MessageName is the full name of the message at an index path.
	MessageName(index []int) (string, bool)
}

// Codec translates single values, without any framing. It is safe for concurrent use, and bounds what a hostile value
// can cost by a small multiple of the value's own size.
type Codec interface {
	// Encode appends the value that JSON text describes to dst. Errors wrap ErrMismatch and name the path.
	Encode(dst, json []byte) ([]byte, error)
	// Decode appends the value as JSON to dst. Errors wrap ErrMismatch.
	Decode(dst, value []byte) ([]byte, error)
	// Check reports why the bytes are not exactly one value of the schema; nil if they are. It wraps ErrMismatch.
	Check(value []byte) error
}

// ErrInvalid is wrapped by every error about the text of a schema or its references.
var ErrInvalid = errors.New("invalid schema")

// ErrMismatch is wrapped by every error about a value that does not fit its schema.
var ErrMismatch = errors.New("value does not match its schema")

// Invalid makes an error that wraps ErrInvalid; its text is the reason alone.
func Invalid(format string, args ...any) error {
	return &reason{fmt.Errorf(format, args...), ErrInvalid}
}

// Mismatch makes an error that wraps ErrMismatch; its text is the reason alone.
func Mismatch(format string, args ...any) error {
	return &reason{fmt.Errorf(format, args...), ErrMismatch}
}

// reason is an error of a kind that its text need not repeat.
type reason struct {
	error
	kind error
}

func (r *reason) Error() string   { return r.error.Error() }
func (r *reason) Unwrap() []error { return []error{r.error, r.kind} }

// Package serde translates keys and values of records between JSON and the bytes that clients of a schema registry
// write: a frame that names a schema, and a value of that schema.
//
// It owns the frames, the rules by which a topic and a schema name a subject, and the choice of the schema for what is
// written. It promises that what it writes any client of the registry reads, that a schema it registers for a record is
// registered once, and that bytes from outside cost a small multiple of their size. The APIs that produce and consume
// call it, and the broker's check of topics that enforce their schemas does.
package serde

import (
	"errors"
	"fmt"

	"millrace/schemaregistry"
	"millrace/schemaregistry/schema"
)

// Serde translates with the schemas of one registry. It is safe for concurrent use.
type Serde struct {
	registry *schemaregistry.Registry
}

// New makes a Serde on a registry.
func New(r *schemaregistry.Registry) *Serde { return &Serde{registry: r} }

// Part says which part of a record is meant.
type Part uint8

// The parts of a record that have schemas.
const (
	Value Part = iota
	Key
)

// String is the name as it stands in subjects.
func (p Part) String() string {
	if p == Key {
		return "key"
	}
	return "value"
}

// Strategy is a rule by which a topic and a schema name a subject.
type Strategy uint8

// The strategies, as the registry's clients know them.
const (
	TopicName       Strategy = iota // topic-key, topic-value
	RecordName                      // the full name of the schema's type
	TopicRecordName                 // topic-name
)

// ParseStrategy reads a strategy's name, in the form of the REST API or of a client's class.
func ParseStrategy(name string) (Strategy, bool) {
	switch name {
	case "TOPIC_NAME", "io.confluent.kafka.serializers.subject.TopicNameStrategy":
		return TopicName, true
	case "RECORD_NAME", "io.confluent.kafka.serializers.subject.RecordNameStrategy":
		return RecordName, true
	case "TOPIC_RECORD_NAME", "io.confluent.kafka.serializers.subject.TopicRecordNameStrategy":
		return TopicRecordName, true
	default:
		return TopicName, false
	}
}

// subject is what the strategy calls a topic's schema whose type has the name given, "" if it has none.
func (s Strategy) subject(topic string, part Part, name string) (string, error) {
	switch {
	case s == TopicName:
		return topic + "-" + part.String(), nil
	case name == "":
		return "", schema.Invalid("the schema names no type, so a subject cannot be made of its name; give the subject")
	case s == RecordName:
		return name, nil
	default:
		return topic + "-" + name, nil
	}
}

// ErrUnframed is wrapped where bytes do not begin with a frame that names a schema.
var ErrUnframed = errors.New("the bytes name no schema")

// UnknownSchemaError says that a frame names a schema that the registry does not have.
type UnknownSchemaError struct {
	Name string // such as "id 7"
	Err  error
}

func (e *UnknownSchemaError) Error() string {
	return fmt.Sprintf("schema %s is not in the registry: %v", e.Name, e.Err)
}

// Unwrap is the registry's answer.
func (e *UnknownSchemaError) Unwrap() error { return e.Err }

// isNotFound says of an error of the registry that the schema is not there.
func isNotFound(err error) bool {
	var e *schemaregistry.Error
	return errors.As(err, &e) && e.Code == schemaregistry.CodeSchemaNotFound
}

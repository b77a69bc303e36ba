// Package serde translates keys and values of records between JSON and the bytes that clients of a schema registry
// write: a frame that names a schema, and a value of that schema.
//
// It owns the frames, the rules by which a topic and a schema name a subject, and the choice of the schema for what is
// written. It promises that what it writes any client of the registry reads, that a schema it registers for a record is
// registered once, and that bytes from outside cost a small multiple of their size. The APIs that produce and consume
// call it, and the broker's check of topics that enforce their schemas does.
package serde

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"millrace/schemaregistry"
	"millrace/schemaregistry/schema"
)

// Serde translates with the schemas of one registry. It is safe for concurrent use.
type Serde struct {
	registry *schemaregistry.Registry

	// restUntil is until when nobody waits for the end of the registry's log: somebody did in vain.
	restUntil atomic.Pointer[time.Time]
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

// Subject is what the strategy calls a topic's schema whose type has the name given, "" if it has none.
func (s Strategy) Subject(topic string, part Part, name string) (string, error) {
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
}

func (e *UnknownSchemaError) Error() string {
	return fmt.Sprintf("schema %s is not in the registry", e.Name)
}

func unknownSchema(name frameName) error { return &UnknownSchemaError{Name: name.String()} }

// Waiting for the end of the registry's log.
const (
	slowAnswer = time.Second     // such a wait was in vain
	restFor    = 5 * time.Second // after it
)

// fresh waits until the registry has read what was written before. It does not while a wait was in vain just now: data
// that only look as if they had schemas are read all the same.
func (s *Serde) fresh(ctx context.Context) error {
	start := time.Now()
	if until := s.restUntil.Load(); until != nil && start.Before(*until) {
		return nil
	}
	err := s.registry.Fresh(ctx)
	if time.Since(start) >= slowAnswer {
		until := time.Now().Add(restFor)
		s.restUntil.Store(&until)
	}
	return err
}

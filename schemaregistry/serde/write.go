package serde

import (
	"cmp"
	"context"
	"strconv"

	"millrace/schemaregistry"
	"millrace/schemaregistry/protobuf"
	"millrace/schemaregistry/schema"
)

// Spec says what the keys or values of some records are written with. Of ID, Version and Text at most one is given;
// none is the latest version of the subject.
type Spec struct {
	Topic    string
	Part     Part
	Type     schema.Type // of Text; AVRO if empty
	Subject  string      // "": what Strategy makes
	Strategy Strategy
	ID       int // 0: none
	// Adopt registers the schema of an ID under the subject, if that does not have it; otherwise it is refused then.
	Adopt bool
	// Anywhere takes the schema of an ID wherever it is registered.
	Anywhere bool
	Version  int // 0: none
	Text     string
	// Message is the full name of a Protobuf message; the schema's first one if empty.
	Message string
}

// Writer writes with one schema. It is safe for concurrent use.
type Writer struct {
	// Subject, ID, Version and Type tell what is written with.
	Subject string
	ID      int
	Version int
	Type    schema.Type

	codec schema.Codec
	index []int // of the message; nil is the first
}

// NewWriter finds the schema of a Spec, and registers a text that its subject does not have. Errors of the registry are
// *schemaregistry.Errors; a text that is none, or a Spec that names no subject, wraps schema.ErrInvalid.
func (s *Serde) NewWriter(ctx context.Context, spec Spec) (*Writer, error) {
	v, err := s.find(ctx, &spec)
	if err != nil {
		return nil, err
	}
	parsed, err := s.registry.Parsed(ctx, v)
	if err != nil {
		return nil, err
	}
	w := &Writer{Subject: v.Subject, ID: v.ID, Version: v.Version, Type: v.Content.Type}
	if spec.Message != "" {
		m, ok := parsed.(schema.Messages)
		if ok {
			w.index, ok = m.MessageIndex(spec.Message)
		}
		if !ok {
			return nil, schema.Mismatch("the schema has no message %s", spec.Message)
		}
	}
	if w.codec, err = codecOf(parsed, w.index); err != nil {
		return nil, err
	}
	return w, nil
}

// find is the version that a Spec means.
func (s *Serde) find(ctx context.Context, spec *Spec) (schemaregistry.Version, error) {
	switch {
	case spec.Text != "":
		return s.findText(ctx, spec)
	case spec.ID != 0:
		return s.findID(ctx, spec)
	}
	subject := spec.Subject
	if subject == "" {
		if spec.Strategy != TopicName {
			return schemaregistry.Version{}, schema.Invalid("a strategy by the record's name needs a schema or its id")
		}
		subject, _ = TopicName.Subject(spec.Topic, spec.Part, "") // which never fails
	}
	version := "latest"
	if spec.Version != 0 {
		version = strconv.Itoa(spec.Version)
	}
	return s.registry.Version(ctx, subject, version, false)
}

// subjectOf is what the strategy calls a schema: by the message that is written, where that is named.
func (s *Spec) subjectOf(parsed schema.Schema) (string, error) {
	return s.Strategy.Subject(s.Topic, s.Part, cmp.Or(s.Message, parsed.Name()))
}

// findText looks a text up in its subject and registers it there if it is new.
func (s *Serde) findText(ctx context.Context, spec *Spec) (schemaregistry.Version, error) {
	content := schema.Content{Type: spec.Type, Text: spec.Text}
	if content.Type == "" {
		content.Type = schema.Avro
	}
	subject := spec.Subject
	if subject == "" {
		parsed, err := s.registry.Parsed(ctx, schemaregistry.Version{Content: content})
		if err != nil {
			return schemaregistry.Version{}, err
		}
		if subject, err = spec.subjectOf(parsed); err != nil {
			return schemaregistry.Version{}, err
		}
	}
	return s.registry.Register(ctx, subject, schemaregistry.RegisterRequest{Content: content})
}

// findID finds the version of the subject that has an id.
func (s *Serde) findID(ctx context.Context, spec *Spec) (schemaregistry.Version, error) {
	within := spec.Subject
	if within == "" {
		within = spec.Topic + "-" + spec.Part.String()
	}
	v, err := s.registry.ByID(ctx, spec.ID, &within)
	if err != nil || spec.Anywhere {
		return v, err
	}
	subject := spec.Subject
	if subject == "" {
		parsed, err := s.registry.Parsed(ctx, v)
		if err != nil {
			return v, err
		}
		if subject, err = spec.subjectOf(parsed); err != nil {
			return v, err
		}
	}
	number, err := s.registry.HeldAs(ctx, spec.ID, subject)
	switch {
	case err != nil:
		return v, err
	case number != 0:
		v.Subject, v.Version = subject, number
		return v, nil
	case spec.Adopt:
		return s.registry.Register(ctx, subject, schemaregistry.RegisterRequest{Content: v.Content})
	}
	return v, &schemaregistry.Error{
		Code:    schemaregistry.CodeSchemaNotFound,
		Message: "schema id " + strconv.Itoa(spec.ID) + " is not registered under subject " + subject,
	}
}

// Append appends the framed bytes of what JSON text describes to dst. Its errors wrap schema.ErrMismatch.
func (w *Writer) Append(dst, json []byte) ([]byte, error) {
	at := len(dst)
	dst = appendID(dst, w.ID)
	if w.Type == schema.Protobuf {
		dst = protobuf.AppendIndex(dst, w.index)
	}
	out, err := w.codec.Encode(dst, json)
	if err != nil {
		return dst[:at], err
	}
	return out, nil
}

package server_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/uuid"
	"go.yaml.in/yaml/v3"

	"millrace/record"
)

// check says what about an answer is not as the contract has it; nil if all is.
func (c *contract) check(op *operation, a *answer) error {
	name, r := responseFor(op, a.status)
	if r == nil {
		return fmt.Errorf("status %d is not listed", a.status)
	}
	if a.status < 300 && name != strconv.Itoa(a.status) {
		return fmt.Errorf("status %d is not listed by its number", a.status)
	}
	return errors.Join(checkHeaders(r, a), c.checkBody(op, r, a))
}

// responseFor is the response that the contract lists for a status: under its number, its class, or default.
func responseFor(op *operation, status int) (string, *openapi3.Response) {
	for _, name := range []string{strconv.Itoa(status), strconv.Itoa(status/100) + "XX", "default"} {
		if r := op.Responses.Value(name); r != nil {
			return name, r.Value
		}
	}
	return "", nil
}

// checkHeaders checks the declared headers: those that are required are there, all have the type they should.
func checkHeaders(r *openapi3.Response, a *answer) error {
	var errs []error
	for name, h := range r.Headers {
		values := a.header.Values(name)
		switch {
		case len(values) == 0 && h.Value.Required:
			errs = append(errs, fmt.Errorf("header %s is missing", name))
		case len(values) > 0 && h.Value.Schema != nil:
			if err := checkText(h.Value.Schema.Value, strings.Join(values, ", ")); err != nil {
				errs = append(errs, fmt.Errorf("header %s: %w", name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// checkText checks a header's value, which is text whatever its schema says.
func checkText(s *openapi3.Schema, text string) error {
	var v any = text
	if s.Type.Is("integer") || s.Type.Is("boolean") {
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			return fmt.Errorf("%q: %w", text, err)
		}
	}
	return checkValue(s, v)
}

// checkBody checks the media type and, by its schema, the body: whole, or item by item where it is a stream.
func (c *contract) checkBody(op *operation, r *openapi3.Response, a *answer) error {
	if len(r.Content) == 0 {
		if len(a.body) > 0 {
			return fmt.Errorf("there is a body where none is listed: %.100q", a.body)
		}
		return nil
	}
	mediaType, _, err := mime.ParseMediaType(a.header.Get("Content-Type"))
	if err != nil {
		return fmt.Errorf("Content-Type %q: %w", a.header.Get("Content-Type"), err)
	}
	m := r.Content[mediaType]
	if m == nil {
		return fmt.Errorf("media type %s is not listed", mediaType)
	}
	if err := c.checkMedia(mediaType, m, a.body, several(op)); err != nil {
		return fmt.Errorf("%w\nin %d %s", err, a.status, a.body[:min(len(a.body), 1000)])
	}
	return nil
}

// several says whether an answer is a sequence of JSON documents, each as the schema says: a receipt a record.
func several(op *operation) bool { return op.OperationID == "produceKafkaRecords" }

func (c *contract) checkMedia(mediaType string, m *openapi3.MediaType, body []byte, several bool) error {
	schema := m.Schema.Value
	items, streamed, err := c.itemSchema(m)
	if err != nil {
		return err
	}
	switch {
	case streamed:
		return checkItems(mediaType, items, body)
	case mediaType == "application/json" || strings.HasSuffix(mediaType, "+json"):
		documents, err := decodeAll(body)
		if err != nil {
			return err
		}
		if len(documents) != 1 && !several || len(documents) == 0 {
			return fmt.Errorf("%d JSON documents", len(documents))
		}
		for _, d := range documents {
			if err := checkValue(schema, d); err != nil {
				return err
			}
		}
		return nil
	case mediaType == "application/vnd.apache.kafka.recordbatch":
		return checkBatches(body)
	case mediaType == "application/yaml":
		var v any
		return yaml.Unmarshal(body, &v)
	case schema.Format == "binary":
		return nil
	case len(body) == 0 || !utf8.Valid(body):
		return errors.New("the body is not text")
	default:
		return checkValue(schema, string(body))
	}
}

// itemSchema is the schema of one item of a stream.
func (c *contract) itemSchema(m *openapi3.MediaType) (*openapi3.Schema, bool, error) {
	ref, streamed := m.Extensions["x-item-schema"].(string)
	if !streamed {
		return nil, false, nil
	}
	s := c.doc.Components.Schemas[strings.TrimPrefix(ref, "#/components/schemas/")]
	if s == nil {
		return nil, false, fmt.Errorf("x-item-schema %s leads nowhere", ref)
	}
	return s.Value, true, nil
}

// checkItems checks a stream: JSON lines, or server-sent events whose data is JSON.
func checkItems(mediaType string, schema *openapi3.Schema, body []byte) error {
	if mediaType != "text/event-stream" {
		for line := range bytes.Lines(body) {
			if err := checkItem(schema, line); err != nil {
				return err
			}
		}
		return nil
	}
	events, err := readEvents(bytes.NewReader(body), -1)
	if err != nil {
		return err
	}
	for _, e := range events {
		if e.name != "" { // an end or a fault, in a form of its own
			continue
		}
		if e.id == "" {
			return fmt.Errorf("an event has no id: %q", e.data)
		}
		if err := checkItem(schema, []byte(e.data)); err != nil {
			return err
		}
	}
	return nil
}

func checkItem(schema *openapi3.Schema, text []byte) error {
	documents, err := decodeAll(text)
	if err != nil {
		return err
	}
	if len(documents) != 1 {
		return fmt.Errorf("an item holds %d JSON documents: %q", len(documents), text)
	}
	return checkValue(schema, documents[0])
}

// decodeAll reads the JSON documents that body consists of.
func decodeAll(body []byte) ([]any, error) {
	var out []any
	d := json.NewDecoder(bytes.NewReader(body))
	for {
		var v any
		err := d.Decode(&v)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
}

func checkBatches(body []byte) error {
	for len(body) > 0 {
		b, rest, err := record.Next(body)
		if err != nil {
			return err
		}
		if err := b.Verify(); err != nil {
			return err
		}
		body = rest
	}
	return nil
}

// checkValue checks a value by its schema, formats included, and that the schema names every member the value has.
func checkValue(s *openapi3.Schema, v any) error {
	return errors.Join(s.VisitJSON(v, openapi3.VisitAsResponse(), openapi3.EnableFormatValidation(),
		openapi3.MultiErrors(), openapi3.WithStringFormatValidator("uuid", uuidFormat{})), unlisted(s, v, "body"))
}

type uuidFormat struct{}

// Validate implements openapi3.StringFormatValidator.
func (uuidFormat) Validate(s string) error { return uuid.Validate(s) }

// unlisted finds members that the schema does not name. OpenAPI lets them pass; a contract that is to be relied on
// names all there is.
func unlisted(s *openapi3.Schema, v any, at string) error {
	var errs []error
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			ms, ok := memberSchema(s, name)
			if !ok {
				errs = append(errs, fmt.Errorf("%s.%s is not in the schema", at, name))
			} else if ms != nil {
				errs = append(errs, unlisted(ms, member, at+"."+name))
			}
		}
	case []any:
		if s.Items == nil {
			return nil
		}
		for i, item := range v {
			errs = append(errs, unlisted(s.Items.Value, item, at+"["+strconv.Itoa(i)+"]"))
		}
	}
	return errors.Join(errs...)
}

// memberSchema is the schema of a member, nil for one of any form; ok is false if there may be no such member.
func memberSchema(s *openapi3.Schema, name string) (ms *openapi3.Schema, ok bool) {
	if p := s.Properties[name]; p != nil {
		return p.Value, true
	}
	for _, part := range slices.Concat(s.AllOf, s.OneOf, s.AnyOf) {
		if ms, ok := memberSchema(part.Value, name); ok {
			return ms, true
		}
	}
	switch more := s.AdditionalProperties; {
	case more.Schema != nil:
		return more.Schema.Value, true
	case more.Has != nil:
		return nil, *more.Has
	}
	return nil, len(s.Properties) == 0 && len(s.AllOf) == 0 // an object of any form
}

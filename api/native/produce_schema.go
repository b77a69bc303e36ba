package native

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"millrace/api"
	"millrace/api/rawjson"
	"millrace/record"
	"millrace/schemaregistry"
	"millrace/schemaregistry/schema"
	"millrace/schemaregistry/serde"
)

// namedSchema is a schema as a record or a request names it.
type namedSchema struct {
	id      int    // 0: none
	message string // of Protobuf; "" is the schema's first one
	latest  bool   // the latest version of the topic's subject
}

func (n *namedSchema) given() bool { return n.id != 0 || n.latest }

// schemaUse says that a part of a record is JSON which a schema is to make bytes of.
type schemaUse struct {
	record int
	part   serde.Part
	schema namedSchema
}

// writerKey is what schemas are found by.
type writerKey struct {
	topic  string
	part   serde.Part
	schema namedSchema
}

// setSchemaParameter reads a parameter that names the schema of all values or keys of a request.
func (q *produceRequest) setSchemaParameter(name, value string) error {
	to := &q.valueSchema
	switch name {
	case "key_schema", "key_schema_id":
		to = &q.keySchema
	case "value_schema", "value_schema_id":
	default:
		return api.Refuse(api.InvalidParameter, "unknown parameter %q; known are key, partition, acks, timestamp, "+
			"value_schema, value_schema_id, key_schema and key_schema_id", name)
	}
	if to.given() {
		return api.Refuse(api.InvalidParameter, "%s says anew which schema is meant: give one parameter for it", name)
	}
	if name == "key_schema" || name == "value_schema" {
		if to.latest = value == "latest"; !to.latest {
			return api.Refuse(api.InvalidParameter, "%s is latest, not %q; %s_id takes the id of a schema", name, value, name)
		}
		return nil
	}
	id, err := strconv.ParseInt(value, 10, 32)
	if err != nil || id < 1 {
		return api.Refuse(api.InvalidParameter, "%s is a whole number from 1, not %q", name, value)
	}
	to.id = int(id)
	return nil
}

// checkSchemas checks what goes together with schemas that the query names.
func (q *produceRequest) checkSchemas() error {
	switch {
	case !q.keySchema.given() && !q.valueSchema.given():
		return nil
	case q.form != bodyJSON && q.form != bodyJSONLines:
		return api.Refuse(api.InvalidParameter, "parameters that name schemas go with application/json and "+
			"application/x-ndjson; a full record has members of its own for them, value_schema_id and key_schema_id")
	case q.keySchema.given() && q.key == nil:
		return api.Refuse(api.InvalidParameter, "a schema of keys goes with the parameter key, which then is JSON")
	case q.keySchema.given():
		if _, _, err := rawjson.Document(q.key, rawjson.MaxDepth); err != nil {
			return api.Refuse(api.InvalidParameter, "with a schema the key is JSON, such as %%22a%%22 for a text: %v", err)
		}
	}
	return nil
}

// useRequestSchemas notes the schemas that the query names for the record that was added last.
func (in *intake) useRequestSchemas() {
	i := len(in.records) - 1
	if in.request.keySchema.given() {
		in.uses = append(in.uses, schemaUse{i, serde.Key, in.request.keySchema})
	}
	if in.request.valueSchema.given() && in.records[i].Value != nil { // null is a tombstone
		in.uses = append(in.uses, schemaUse{i, serde.Value, in.request.valueSchema})
	}
}

// takeSchemaMember reads a member that says by which schema the key or value is written.
func takeSchemaMember(bit uint16, name, value []byte, f *recordFields) error {
	to := &f.valueSchema
	if bit&(memberKeySchema|memberKeyMessage) != 0 {
		to = &f.keySchema
	}
	if bit&(memberKeyMessage|memberValueMessage) != 0 {
		t, err := text(name, value)
		to.message = string(t)
		return err
	}
	id, err := strconv.ParseInt(string(value), 10, 32)
	if err != nil || id < 1 {
		return api.Refuse(api.MalformedBody, "%s is a whole number from 1, not %s", name, shorten(value))
	}
	to.id = int(id)
	return nil
}

// checkSchemas checks what goes together with the schemas that a record names, and notes them.
func (in *intake) checkSchemas(f *recordFields) error {
	for _, p := range [...]struct {
		part   serde.Part
		schema *namedSchema
		others uint16
	}{
		{serde.Key, &f.keySchema, memberKeyText | memberKeyBase64},
		{serde.Value, &f.valueSchema, memberValueText | memberValueBase64},
	} {
		switch {
		case p.schema.message != "" && p.schema.id == 0:
			return api.Refuse(api.MalformedBody, "%v_schema_message goes with %v_schema_id", p.part, p.part)
		case p.schema.id == 0:
		case f.known&p.others != 0:
			return api.Refuse(api.MalformedBody, "%v_schema_id goes with %v, which is JSON", p.part, p.part)
		default:
			in.uses = append(in.uses, schemaUse{len(in.records), p.part, *p.schema})
		}
	}
	return nil
}

// encode makes bytes of the keys and values that have schemas. It comes after the whole body was read. A null is
// written by its schema too: that may say what null is.
func (in *intake) encode(ctx context.Context, s *serde.Serde) error {
	if len(in.uses) == 0 {
		return nil
	}
	if s == nil {
		return api.Refuse(api.UnprocessableBody, "the records name schemas, and there is no schema registry here")
	}
	writers := make(map[writerKey]*serde.Writer)
	var out []byte
	made, most := 0, max(2*len(in.body.Bytes), in.edge.Limits().ExpandedBytes)
	for _, u := range in.uses {
		k := writerKey{in.request.topic, u.part, u.schema}
		if in.request.ownTopics() {
			k.topic = in.topics[u.record]
		}
		w := writers[k]
		if w == nil {
			var err error
			if w, err = newWriter(ctx, s, k); err != nil {
				return in.place(u.record, err)
			}
			writers[k] = w
		}
		at := len(out)
		var err error
		if out, err = in.encodePart(w, out, u); err != nil {
			return in.place(u.record, err)
		}
		if made += len(out) - at; made > most {
			return in.edge.OverLimit("encoded", api.Refuse(api.BodyTooLarge, "the records take more than %d bytes", most))
		}
	}
	return nil
}

// encodePart replaces a key or value by its bytes, which it appends to out.
func (in *intake) encodePart(w *serde.Writer, out []byte, u schemaUse) ([]byte, error) {
	r := &in.records[u.record]
	to := &r.Value
	if u.part == serde.Key {
		to = &r.Key
	}
	text := *to
	if text == nil {
		text = []byte("null")
	}
	at := len(out)
	out, err := w.Append(out, text)
	if err != nil {
		return out, api.Refuse(api.SchemaMismatch, "the %v cannot be written by schema id %d: %v", u.part, w.ID, err)
	}
	*to = out[at:len(out):len(out)]
	if u.part.HasHeader(r.Headers) { // it would say that the value is bare
		r.Headers = slices.DeleteFunc(slices.Clone(r.Headers), func(h record.Header) bool { return u.part.IsHeader(h.Key) })
	}
	return out, nil
}

// newWriter finds a schema.
func newWriter(ctx context.Context, s *serde.Serde, k writerKey) (*serde.Writer, error) {
	w, err := s.NewWriter(ctx, serde.Spec{
		Topic: k.topic, Part: k.part, ID: k.schema.id, Anywhere: true, Message: k.schema.message,
	})
	var e *schemaregistry.Error
	switch {
	case err == nil:
		return w, nil
	case errors.Is(err, schema.ErrMismatch):
		return nil, api.Refuse(api.SchemaMismatch, "schema id %d: %v", k.schema.id, err)
	case errors.As(err, &e) && e.Status() == 404:
		return nil, api.Refuse(api.SchemaNotFound, "the schema of the %v: %v", k.part, err)
	case errors.As(err, &e) && e.Status() == 422, errors.Is(err, schema.ErrInvalid):
		return nil, api.Refuse(api.UnprocessableBody, "the schema of the %v cannot be used: %v", k.part, err)
	default:
		return nil, &api.Error{Fault: api.SchemasUnavailable, Detail: err.Error(), Cause: err}
	}
}

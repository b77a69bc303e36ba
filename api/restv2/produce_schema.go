package restv2

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"millrace/api"
	"millrace/schemaregistry"
	"millrace/schemaregistry/schema"
	"millrace/schemaregistry/serde"
)

// schemaTypes are the types of schemas by format.
var schemaTypes = [...]schema.Type{
	formatAvro: schema.Avro, formatJSONSchema: schema.JSON, formatProtobuf: schema.Protobuf,
}

// schemas are the schemas that a request names for its keys and values.
type schemas struct{ key, value namedSchema }

// namedSchema is a schema as a request names it. At most one of its fields is set.
type namedSchema struct {
	text string
	id   int
}

func (n *namedSchema) given() bool { return n.text != "" || n.id != 0 }

// writers write the keys and values of a request. Either is nil where no record has such a part.
type writers struct{ key, value *serde.Writer }

// encode turns keys and values from JSON into the bytes to store, behind p.encoded. A null is written with its schema
// too, where there is one: the schema may say what null is.
func (a *API) encode(ctx context.Context, p *produce, topic string, f format) error {
	if a.opts.Serde == nil {
		return api.RefuseCompat(http.StatusUnsupportedMediaType, "HTTP 415 Unsupported Media Type: "+
			"the format needs a schema registry, and there is none; use %s or %s.", jsonType, binaryType)
	}
	var keys, values bool
	for i := range p.inputs {
		keys = keys || p.inputs[i].key != nil
		values = values || p.inputs[i].value != nil
	}
	var err error
	if p.writers.key, err = a.writer(ctx, topic, serde.Key, f, &p.schemas.key, keys); err != nil {
		return err
	}
	if p.writers.value, err = a.writer(ctx, topic, serde.Value, f, &p.schemas.value, values); err != nil {
		return err
	}
	for i := range p.inputs {
		in := &p.inputs[i]
		if in.key, err = p.encodePart(p.writers.key, i, serde.Key, in.key); err != nil {
			return err
		}
		if in.value, err = p.encodePart(p.writers.value, i, serde.Value, in.value); err != nil {
			return err
		}
	}
	return nil
}

// writer finds what the keys or values are written with; nil where there is no schema and none is needed.
func (a *API) writer(ctx context.Context, topic string, part serde.Part, f format, n *namedSchema, needed bool) (
	*serde.Writer, error,
) {
	if !n.given() {
		if !needed {
			return nil, nil
		}
		code := codeNoValueSchema
		if part == serde.Key {
			code = codeNoKeySchema
		}
		return nil, api.RefuseCompat(code, "The records have %ss, so %s_schema or %s_schema_id is required.",
			part, part, part)
	}
	w, err := a.opts.Serde.NewWriter(ctx, serde.Spec{
		Topic: topic, Part: part, Type: schemaTypes[f], Text: n.text, ID: n.id, Adopt: true,
	})
	if err != nil {
		return nil, refuseSchema(part, err)
	}
	if w.Type != schemaTypes[f] {
		return nil, api.RefuseCompat(codeInvalidSchema, "Schema id %d is of type %s, and the Content-Type is of %s.",
			w.ID, w.Type, schemaTypes[f])
	}
	return w, nil
}

// encodePart is a key or value as its writer writes it. Without one it is null.
func (p *produce) encodePart(w *serde.Writer, i int, part serde.Part, json []byte) ([]byte, error) {
	if w == nil {
		return nil, nil
	}
	if json == nil {
		json = []byte("null")
	}
	at := len(p.encoded)
	out, err := w.Append(p.encoded, json)
	if err != nil {
		return nil, badRequest("The %s of record %d cannot be written with schema id %d: %v.", part, i, w.ID, err)
	}
	p.encoded = out
	return out[at:len(out):len(out)], nil
}

// refuseSchema is the answer for a schema that cannot be found or registered.
func refuseSchema(part serde.Part, err error) error {
	var e *schemaregistry.Error
	switch {
	case errors.As(err, &e) && e.Status() >= http.StatusInternalServerError:
		refused := api.RefuseCompat(codeUndecodable, "The schema of the %ss is not available at this time: %v. Nothing was "+
			"produced; send the request again: a schema is registered once.", part, err)
		refused.Fault.Retryable = true
		return refused
	case errors.As(err, &e) && e.Code == schemaregistry.CodeInvalidSchema, errors.Is(err, schema.ErrInvalid):
		return api.RefuseCompat(codeInvalidSchema, "The schema of the %ss is invalid: %v.", part, err)
	case errors.As(err, &e):
		return api.RefuseCompat(codeSchemaRefused, "The schema of the %ss is not available: %v (error %d).", part, err,
			e.Code)
	default:
		return api.RefuseCompat(http.StatusInternalServerError, "The schema of the %ss is not available: %v.", part, err)
	}
}

// appendSchemas ends an answer with the ids of the schemas that were used.
func (p *produce) appendSchemas() {
	p.out = append(p.out, `],"key_schema_id":`...)
	p.out = appendSchemaID(p.out, p.writers.key)
	p.out = append(p.out, `,"value_schema_id":`...)
	p.out = append(appendSchemaID(p.out, p.writers.value), '}')
}

func appendSchemaID(dst []byte, w *serde.Writer) []byte {
	if w == nil {
		return append(dst, "null"...)
	}
	return strconv.AppendInt(dst, int64(w.ID), 10)
}

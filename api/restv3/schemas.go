package restv3

import (
	"context"
	"errors"
	"net/http"

	"millrace/api"
	"millrace/api/rawjson"
	"millrace/schemaregistry"
	"millrace/schemaregistry/schema"
	"millrace/schemaregistry/serde"
)

// schemaTypes are the types of schemas by format, and formats the other way round.
var schemaTypes = [...]schema.Type{
	formatAvro: schema.Avro, formatJSONSchema: schema.JSON, formatProtobuf: schema.Protobuf,
}

func formatOf(t schema.Type) format {
	for f := formatAvro; f <= formatProtobuf; f++ {
		if schemaTypes[f] == t {
			return f
		}
	}
	return formatNone
}

// encoder writes the keys and values that have schemas, of the records of one topic that are stored together. What
// neighbours share is looked up once.
type encoder struct {
	api     *API
	ctx     context.Context
	topic   string
	writers map[serde.Spec]*serde.Writer
	faults  map[serde.Spec]*api.Error
	buf     []byte
}

// bytes is what a part is stored as; nil is null.
func (e *encoder) bytes(f *part, which serde.Part) ([]byte, *api.Error) {
	if !f.present {
		return nil, nil
	}
	if err := f.check(); err != nil {
		return nil, err
	}
	switch f.format {
	case formatBinary, formatJSON, formatString:
		return f.plain()
	default:
		return e.encode(f, which)
	}
}

// encode writes a part with its schema. So is null: the schema may say what null is.
func (e *encoder) encode(f *part, which serde.Part) ([]byte, *api.Error) {
	w, fault := e.writer(f, which)
	if fault != nil {
		return nil, fault
	}
	data := f.data
	if data == nil {
		data = []byte("null")
	}
	at := len(e.buf)
	out, err := w.Append(e.buf, data)
	if err != nil {
		return nil, badRequest("The %s cannot be written with schema id %d: %v.", which, w.ID, err)
	}
	e.buf = out
	f.writer, f.format = w, formatOf(w.Type)
	return out[at:len(out):len(out)], nil
}

// writer finds what a part is written with.
func (e *encoder) writer(f *part, which serde.Part) (*serde.Writer, *api.Error) {
	if e.api.opts.Serde == nil {
		return nil, badRecord(api.RefuseCompat(codePayload, "Payload error. "+
			"A schema registry is needed for schemas, and there is none; use type BINARY, JSON or STRING."))
	}
	spec := f.spec
	spec.Topic, spec.Part = e.topic, which
	if f.format != formatNone {
		spec.Type = schemaTypes[f.format]
	}
	if w := e.writers[spec]; w != nil {
		return w, nil
	}
	if fault := e.faults[spec]; fault != nil {
		return nil, fault
	}
	if e.writers == nil {
		e.writers, e.faults = map[serde.Spec]*serde.Writer{}, map[serde.Spec]*api.Error{}
	}
	w, err := e.api.opts.Serde.NewWriter(e.ctx, spec)
	if err != nil {
		fault := schemaFault(which, err)
		e.faults[spec] = fault
		return nil, fault
	}
	e.writers[spec] = w
	return w, nil
}

// schemaFault is the fault of a record whose schema cannot be found or registered.
func schemaFault(which serde.Part, err error) *api.Error {
	var e *schemaregistry.Error
	switch {
	case errors.As(err, &e) && e.Code == schemaregistry.CodeInvalidSchema, errors.Is(err, schema.ErrInvalid):
		return badRecord(api.RefuseCompat(codeInvalidSchema, "Error deserializing schema. "+
			"The schema of the %s is invalid: %v.", which, err))
	case errors.As(err, &e) && e.Status() >= http.StatusInternalServerError:
		return api.RefuseCompat(codeRetriable, "Kafka error: The schema of the %s is not available at this time: %v. Send "+
			"the record again: a schema is registered once.", which, err)
	case errors.As(err, &e):
		return badRecord(api.RefuseCompat(codeSerializing, "Error serializing message. The schema of the %s is not "+
			"available: %v (error %d).", which, err, e.Code))
	default:
		return api.RefuseCompat(http.StatusInternalServerError, "The schema of the %s is not available: %v.", which, err)
	}
}

// appendSchema appends the members of a receipt that name a part's schema.
func appendSchema(dst []byte, w *serde.Writer) []byte {
	dst = rawjson.AppendString(append(dst, `,"subject":`...), w.Subject)
	dst = appendInt(append(dst, `,"schema_id":`...), w.ID)
	if w.Version != 0 {
		dst = appendInt(append(dst, `,"schema_version":`...), w.Version)
	}
	return dst
}

package convert

import (
	"context"
	"errors"
	"fmt"

	"millrace/api/rawjson"
	"millrace/connect/data"
	"millrace/connect/plugin"
	"millrace/record"
)

// The settings of JsonConverter.
const (
	schemasEnable    = "schemas.enable"
	schemasCacheSize = "schemas.cache.size"
	decimalFormat    = "decimal.format"
	replaceNull      = "replace.null.with.default"
	schemaContent    = "schema.content"
)

func jsonDefs() plugin.Defs {
	return plugin.Defs{
		{Name: schemasEnable, Type: plugin.Boolean, Default: "true", Importance: plugin.High,
			Doc: "Whether each document holds its schema beside the payload."},
		cacheSizeDef(),
		decimalFormatDef(),
		{Name: replaceNull, Type: plugin.Boolean, Default: "true", Importance: plugin.Low,
			Doc: "Whether a null is written and read as the default of its schema, where that has one."},
		{Name: schemaContent, Type: plugin.String, Null: true, Importance: plugin.High, Check: checkSchemaContent,
			Doc: "A schema in JSON by which documents that hold only payloads are read."},
	}
}

func cacheSizeDef() plugin.Def {
	return plugin.Def{Name: schemasCacheSize, Type: plugin.Int, Default: "1000", Importance: plugin.High,
		Doc: "How many schemas are kept in translated form.", Check: notNegative}
}

func decimalFormatDef() plugin.Def {
	return plugin.Def{Name: decimalFormat, Type: plugin.String, Default: "BASE64", Importance: plugin.Low,
		Values: []string{"BASE64", "NUMERIC"},
		Doc:    "Whether decimals are written as base64 of their unscaled number, or as numbers. Both are read."}
}

func checkSchemaContent(text string) error {
	_, err := parseSchemaContent(&dialect{}, text)
	return err
}

func parseSchemaContent(d *dialect, text string) (*jsonType, error) {
	if text == "" {
		return nil, nil
	}
	value, _, err := rawjson.Document([]byte(text), 2*maxDepth)
	if err != nil {
		return nil, err
	}
	s, f := d.readSchema(value, 0)
	if f != nil || s == nil {
		return nil, f.asError()
	}
	t, f := d.compile(s, 0)
	return t, f.asError()
}

// jsonConverter is JsonConverter: each document holds its schema, or is the plain value.
type jsonConverter struct {
	dialect
	envelope bool
	fixed    *jsonType // the schema that all payloads have on reading

	plans    cache[*data.Schema, *jsonPlan]
	last     *jsonPlan
	schemas  cache[string, *jsonType]
	textSize int // of the keys of schemas
}

// jsonPlan is how values of a schema are written.
type jsonPlan struct {
	schema *data.Schema
	lead   []byte // of the envelope, with the schema
	*jsonType
}

func newJSON(_ bool, props map[string]string, _ Deps) (plugin.Converter, error) {
	s := jsonDefs().Settings(props)
	c := &jsonConverter{
		dialect:  dialect{numeric: s.Lower(decimalFormat) == "numeric", fill: s.Bool(replaceNull)},
		envelope: s.Bool(schemasEnable),
	}
	c.plans.most = s.Int(schemasCacheSize)
	c.schemas.most = c.plans.most
	var err error
	c.fixed, err = parseSchemaContent(&c.dialect, s.String(schemaContent))
	return c, err
}

// Encode implements plugin.Converter.
func (c *jsonConverter) Encode(_ context.Context, dst []byte, _ string, s *data.Schema, v any) ([]byte, bool, error) {
	if s == nil {
		return c.encodeBare(dst, v)
	}
	p := c.last
	if p == nil || p.schema != s {
		var f *fault
		if p, f = c.plan(s); f != nil {
			return dst, false, fmt.Errorf("the schema cannot be written as JSON: %w", f.asError())
		}
		c.last = p
	}
	at := len(dst)
	dst = append(dst, p.lead...)
	out, f := c.append(dst, p.jsonType, v)
	if f != nil {
		return dst[:at], false, f.asError()
	}
	if c.envelope {
		out = append(out, '}')
	}
	return out, true, nil
}

func (c *jsonConverter) encodeBare(dst []byte, v any) ([]byte, bool, error) {
	if v == nil {
		return dst, false, nil
	}
	at := len(dst)
	if c.envelope {
		dst = append(dst, `{"schema":null,"payload":`...)
	}
	out, f := c.appendAny(dst, v, 0)
	if f != nil {
		return dst[:at], false, f.asError()
	}
	if c.envelope {
		out = append(out, '}')
	}
	return out, true, nil
}

func (c *jsonConverter) plan(s *data.Schema) (*jsonPlan, *fault) {
	if p, ok := c.plans.get(s); ok {
		return p, nil
	}
	t, f := c.compile(s, 0)
	if f != nil {
		return nil, f
	}
	p := &jsonPlan{schema: s, jsonType: t}
	if c.envelope {
		lead, f := c.appendSchema([]byte(`{"schema":`), s, nil)
		if f != nil {
			return nil, f
		}
		p.lead = append(lead, `,"payload":`...)
	}
	c.plans.put(s, p)
	return p, nil
}

var errEnvelope = errors.New(`with schemas.enable a document is an object of "schema" and "payload" and nothing ` +
	"else; for plain JSON set schemas.enable=false")

// Decode implements plugin.Converter.
func (c *jsonConverter) Decode(_ context.Context, _ string, b []byte, _ []record.Header) (*data.Schema, any, error) {
	if b == nil {
		return nil, nil, nil
	}
	if c.fixed != nil || !c.envelope {
		value, _, err := rawjson.Document(b, maxDepth)
		if err != nil {
			return nil, nil, err
		}
		return c.payload(c.fixed, value)
	}
	schema, payload, err := splitEnvelope(b)
	if err != nil {
		return nil, nil, err
	}
	t, f := c.schema(schema)
	if f != nil {
		return nil, nil, fmt.Errorf("the document's schema: %w", f.asError())
	}
	return c.payload(t, payload)
}

func (c *jsonConverter) payload(t *jsonType, text []byte) (*data.Schema, any, error) {
	v, f := c.reader(text).read(t, 0)
	if f != nil {
		return nil, nil, f.asError()
	}
	if t == nil {
		return nil, v, nil
	}
	return t.shape.schema, v, nil
}

// splitEnvelope finds schema and payload.
func splitEnvelope(b []byte) (schema, payload []byte, err error) {
	cursor := rawjson.Cursor{Data: b}
	if cursor.Peek() != '{' {
		if _, _, err := rawjson.Document(b, 2*maxDepth); err != nil {
			return nil, nil, err
		}
		return nil, nil, errEnvelope
	}
	cursor.Pos++
	for n := 0; ; n++ {
		name, more, err := cursor.Member(n == 0)
		if err != nil {
			return nil, nil, err
		}
		if !more {
			break
		}
		at := &payload
		switch string(name) {
		case "schema":
			at = &schema
		case "payload":
		default:
			return nil, nil, errEnvelope
		}
		if *at != nil {
			return nil, nil, errEnvelope
		}
		if *at, _, err = cursor.Value(2 * maxDepth); err != nil {
			return nil, nil, err
		}
	}
	if schema == nil || payload == nil {
		return nil, nil, errEnvelope
	}
	return schema, payload, cursor.End()
}

// maxSchemaText bounds the texts of the schemas that are kept for reading.
const maxSchemaText = 16 << 20

// schema is a schema by its text, nil for null.
func (c *jsonConverter) schema(text []byte) (*jsonType, *fault) {
	if t, ok := c.schemas.entries[string(text)]; ok {
		return t, nil
	}
	s, f := c.readSchema(text, 0)
	if f != nil {
		return nil, f
	}
	var t *jsonType
	if s != nil {
		if t, f = c.compile(s, 0); f != nil {
			return nil, f
		}
	}
	if c.textSize += len(text); c.textSize > maxSchemaText || len(c.schemas.entries) == 0 {
		clear(c.schemas.entries)
		c.textSize = len(text)
	}
	c.schemas.put(string(text), t)
	return t, nil
}

package convert

import (
	"context"
	"strconv"
	"strings"

	"millrace/api/rawjson"
	"millrace/connect/data"
	"millrace/connect/plugin"
	"millrace/schemaregistry/schema"
	"millrace/schemaregistry/serde"
)

// The settings of JsonSchemaConverter.
const (
	additionalProps = "object.additional.properties"
	optionalFields  = "use.optional.for.nonrequired"
)

func jsonSchemaDefs() plugin.Defs {
	const modern = "all drafts are read"
	return append(registryDefs(),
		flag(additionalProps, true, "Whether objects may have properties beside those of the schema."),
		flag(optionalFields, false, "Whether a property that is not required is read as an optional field."),
		decimalFormatDef(),
		flag(flattenSingle, true, "Whether a combination of one schema is read as that schema."),
		flag(generalSumTypes, false, "Whether enums and unions are marked as Connect's own, whatever the format."),
		unused("ignore.modern.dialects", plugin.Boolean, modern),
		unused("preserve.additional.properties", plugin.Boolean, "what a schema does not list is left out"),
		unused("json.fail.invalid.schema", plugin.Boolean, "values are read by the types of their schema alone"),
		unused("json.fail.unknown.properties", plugin.Boolean, "what a schema does not list is left out"),
	)
}

const (
	jsonSpace    = "io.confluent.connect.json"
	jsonEnum     = jsonSpace + ".Enum"
	jsonNull     = "<NULL>"
	connectIndex = "connect.index"
)

// jsonLanguage is JSON Schema.
type jsonLanguage struct {
	dialect
	open, optional, flatten, general bool
	registry                         references
}

func newJSONSchema(key bool, props map[string]string, d Deps) (plugin.Converter, error) {
	s := jsonSchemaDefs().Settings(props)
	l := &jsonLanguage{
		dialect: dialect{numeric: s.Lower(decimalFormat) == "numeric", fill: !s.Bool(ignoreDefaults), named: true},
		open:    s.Bool(additionalProps), optional: s.Bool(optionalFields), flatten: s.Bool(flattenSingle),
		general: s.Bool(generalSumTypes), registry: references{d.Schemas},
	}
	c, err := newRegistered(key, s, d, l, schema.JSON)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (l *jsonLanguage) enumKey() string {
	if l.general {
		return generalEnum
	}
	return jsonEnum
}

// describe implements language.
func (l *jsonLanguage) describe(s *data.Schema) (description, *fault) {
	if s == nil {
		return description{}, &fault{err: errNoSchema}
	}
	if f := checkSchema(s, 0); f != nil {
		return description{}, f
	}
	text, f := l.describeSchema(nil, s, -1)
	name := s.Name
	if isUnion(s, jsonUnion) {
		name = ""
	}
	return description{text: string(text), name: name}, f
}

// describeSchema appends a schema as JSON Schema, as a choice with null where it is optional. Index is that of the
// field of a struct; negative: none.
func (l *jsonLanguage) describeSchema(dst []byte, s *data.Schema, index int) (_ []byte, f *fault) {
	union := isUnion(s, jsonUnion)
	if !s.Optional && !union {
		return l.describeBase(dst, s, index)
	}
	dst = append(dst, `{"oneOf":[`...)
	if s.Optional {
		dst = append(dst, `{"type":"null"},`...)
	}
	if union {
		for i := range s.Fields {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, f = l.describeBase(dst, s.Fields[i].Schema, i); f != nil {
				return dst, f.in(s.Fields[i].Name)
			}
		}
	} else if dst, f = l.describeBase(dst, s, -1); f != nil {
		return dst, f
	}
	return append(appendIndex(append(dst, ']'), index), '}'), nil
}

func appendIndex(dst []byte, index int) []byte {
	if index < 0 {
		return dst
	}
	return strconv.AppendInt(append(dst, `,"connect.index":`...), int64(index), 10)
}

// describeBase appends a schema as if it were not optional.
func (l *jsonLanguage) describeBase(dst []byte, s *data.Schema, index int) (_ []byte, f *fault) {
	word := func(t string) { dst = append(append(append(dst, `"type":"`...), t...), '"') }
	dst = append(dst, '{')
	kind := ""
	switch s.Type {
	case data.Boolean:
		word("boolean")
	case data.Int8, data.Int16, data.Int32, data.Int64:
		word("integer")
		kind = s.Type.String()
	case data.Float32, data.Float64:
		word("number")
		kind = s.Type.String()
	case data.String:
		if _, ok := s.Parameters[l.enumKey()]; ok {
			dst = l.describeEnum(dst, s)
		} else {
			word("string")
		}
	case data.Bytes:
		kind = "bytes"
		if s.Name == data.Decimal && l.numeric {
			word("number")
		} else {
			word("string")
		}
	case data.Array:
		word("array")
		dst, f = l.describeSchema(append(dst, `,"items":`...), s.Elem, -1)
	case data.Map:
		kind = "map"
		dst, f = l.describeMap(dst, s)
	case data.Struct:
		word("object")
		dst, f = l.describeFields(dst, s)
	}
	if f != nil {
		return dst, f
	}
	if dst, f = l.describeRest(dst, s); f != nil {
		return dst, f
	}
	if kind != "" {
		dst = append(append(append(dst, `,"connect.type":"`...), kind...), '"')
	}
	return append(appendIndex(dst, index), '}'), nil
}

// describeRest appends what schemas have beside their type.
func (l *jsonLanguage) describeRest(dst []byte, s *data.Schema) ([]byte, *fault) {
	if s.Name != "" {
		dst = rawjson.AppendString(append(dst, `,"title":`...), s.Name)
	}
	if s.Doc != "" {
		dst = rawjson.AppendString(append(dst, `,"description":`...), s.Doc)
	}
	if s.Default != nil {
		var f *fault
		if dst, f = l.appendDefault(append(dst, `,"default":`...), s); f != nil {
			return dst, f
		}
	}
	if s.Version != 0 {
		dst = strconv.AppendInt(append(dst, `,"connect.version":`...), int64(s.Version), 10)
	}
	params := map[string]string{}
	for k, v := range s.Parameters {
		if !strings.HasPrefix(k, jsonSpace) {
			params[k] = v
		}
	}
	if len(params) > 0 {
		dst = appendStrings(append(dst, `,"connect.parameters":`...), params)
	}
	return dst, nil
}

func (l *jsonLanguage) describeEnum(dst []byte, s *data.Schema) []byte {
	key := l.enumKey()
	var symbols []string
	for _, k := range sortedKeys(s.Parameters) {
		if symbol, ok := strings.CutPrefix(k, key+"."); ok {
			symbols = append(symbols, symbol)
		}
	}
	if l.general {
		sortByNumber(symbols, func(symbol string) string { return s.Parameters[key+"."+symbol] })
	}
	dst = append(dst, `"enum":[`...)
	for i, symbol := range symbols {
		if i > 0 {
			dst = append(dst, ',')
		}
		if symbol == jsonNull {
			dst = append(dst, "null"...)
		} else {
			dst = rawjson.AppendString(dst, symbol)
		}
	}
	return append(dst, ']')
}

func (l *jsonLanguage) describeMap(dst []byte, s *data.Schema) (_ []byte, f *fault) {
	if s.Key.Type == data.String && !s.Key.Optional {
		return l.describeSchema(append(dst, `"type":"object","additionalProperties":`...), s.Elem, -1)
	}
	dst = append(dst, `"type":"array","items":{"type":"object","properties":{"key":`...)
	if dst, f = l.describeSchema(dst, s.Key, 0); f == nil {
		dst, f = l.describeSchema(append(dst, `,"value":`...), s.Elem, 1)
	}
	return append(dst, `}}`...), f
}

func (l *jsonLanguage) describeFields(dst []byte, s *data.Schema) (_ []byte, f *fault) {
	dst = append(dst, `,"properties":{`...)
	for i := range s.Fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(rawjson.AppendString(dst, s.Fields[i].Name), ':')
		if dst, f = l.describeSchema(dst, s.Fields[i].Schema, i); f != nil {
			return dst, f.in(s.Fields[i].Name)
		}
	}
	dst = append(dst, '}')
	if !l.open {
		dst = append(dst, `,"additionalProperties":false`...)
	}
	return dst, nil
}

// writer implements language. Values are written by their own schema; where another one is to be used, they are held
// against that.
func (l *jsonLanguage) writer(s *data.Schema, parsed schema.Schema, of description) (writer, *fault) {
	t, f := l.compile(s, 0)
	if f != nil {
		return writer{}, f
	}
	if !of.pinned {
		return writer{write: func(dst []byte, v any) ([]byte, *fault) { return l.append(dst, t, v) }}, nil
	}
	codec, err := parsed.Codec()
	if err != nil {
		return writer{}, &fault{err: err}
	}
	return writer{write: func(dst []byte, v any) ([]byte, *fault) {
		at := len(dst)
		out, f := l.append(dst, t, v)
		if f == nil {
			if err := codec.Check(out[at:]); err != nil {
				f = &fault{err: err}
			}
		}
		return out, f
	}}, nil
}

// reader implements language.
func (l *jsonLanguage) reader(ctx context.Context, o *serde.Opened, version int) (*data.Schema, readFunc, *fault) {
	docs := newJSONDocs(l, o)
	s, f := docs.read(ctx)
	if f != nil {
		return nil, nil, f
	}
	if s.Version == 0 {
		s.Version = version
	}
	t, f := l.compile(s, 0)
	if f != nil {
		return nil, nil, f
	}
	t.markTexts(docs.texts)
	return s, func(b []byte) (any, *fault) {
		text, _, err := rawjson.Document(b, maxDepth)
		if err != nil {
			return nil, fail("%w", err)
		}
		return l.dialect.reader(text).read(t, 0)
	}, nil
}

// markTexts says of the schemas that stand for any JSON that their values are the text of it.
func (t *jsonType) markTexts(texts map[*data.Schema]bool) {
	if t == nil {
		return
	}
	t.raw = texts[t.shape.schema]
	t.key.markTexts(texts)
	t.elem.markTexts(texts)
	for i := range t.fields {
		t.fields[i].markTexts(texts)
	}
}

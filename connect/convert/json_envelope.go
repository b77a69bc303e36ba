package convert

import (
	"fmt"
	"strconv"

	"millrace/api/rawjson"
	"millrace/connect/data"
)

// jsonNames are the types as a schema in JSON spells them.
var jsonNames = map[data.Type]string{
	data.Boolean: "boolean", data.Int8: "int8", data.Int16: "int16", data.Int32: "int32", data.Int64: "int64",
	data.Float32: "float", data.Float64: "double", data.String: "string", data.Bytes: "bytes",
	data.Array: "array", data.Map: "map", data.Struct: "struct",
}

var jsonTypes = map[string]data.Type{
	"boolean": data.Boolean, "int8": data.Int8, "int16": data.Int16, "int32": data.Int32, "int64": data.Int64,
	"float": data.Float32, "double": data.Float64, "string": data.String, "bytes": data.Bytes,
	"array": data.Array, "map": data.Map, "struct": data.Struct,
}

// appendSchema appends a schema as JSON, as the field of a struct where field is given.
func (d *dialect) appendSchema(dst []byte, s *data.Schema, field *string) (_ []byte, f *fault) {
	dst = append(append(append(dst, `{"type":"`...), jsonNames[s.Type]...), '"')
	switch s.Type {
	case data.Struct:
		dst = append(dst, `,"fields":[`...)
		for i := range s.Fields {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, f = d.appendSchema(dst, s.Fields[i].Schema, &s.Fields[i].Name); f != nil {
				return dst, f.in(s.Fields[i].Name)
			}
		}
		dst = append(dst, ']')
	case data.Map:
		if dst, f = d.appendSchema(append(dst, `,"keys":`...), s.Key, nil); f != nil {
			return dst, f
		}
		dst, f = d.appendSchema(append(dst, `,"values":`...), s.Elem, nil)
	case data.Array:
		dst, f = d.appendSchema(append(dst, `,"items":`...), s.Elem, nil)
	}
	if f != nil {
		return dst, f
	}
	dst = strconv.AppendBool(append(dst, `,"optional":`...), s.Optional)
	if s.Name != "" {
		dst = rawjson.AppendString(append(dst, `,"name":`...), s.Name)
	}
	if s.Version != 0 {
		dst = strconv.AppendInt(append(dst, `,"version":`...), int64(s.Version), 10)
	}
	if s.Doc != "" {
		dst = rawjson.AppendString(append(dst, `,"doc":`...), s.Doc)
	}
	if len(s.Parameters) > 0 {
		dst = appendStrings(append(dst, `,"parameters":`...), s.Parameters)
	}
	if s.Default != nil {
		if dst, f = d.appendDefault(append(dst, `,"default":`...), s); f != nil {
			return dst, f
		}
	}
	if field != nil {
		dst = rawjson.AppendString(append(dst, `,"field":`...), *field)
	}
	return append(dst, '}'), nil
}

// appendDefault appends a schema's default as JSON.
func (d *dialect) appendDefault(dst []byte, s *data.Schema) ([]byte, *fault) {
	t, f := d.compile(s, 0)
	if f == nil {
		dst, f = d.append(dst, t, s.Default)
	}
	if f != nil {
		return dst, &fault{err: fmt.Errorf("the default: %w", f.asError())}
	}
	return dst, nil
}

// appendStrings appends parameters as an object: a decimal's scale comes first, as in Java, the rest by name.
func appendStrings(dst []byte, m map[string]string) []byte {
	keys := sortedKeys(m)
	for i, k := range keys {
		if k == data.ScaleKey {
			copy(keys[1:i+1], keys[:i])
			keys[0] = k
		}
	}
	for i, k := range keys {
		lead := byte(',')
		if i == 0 {
			lead = '{'
		}
		dst = rawjson.AppendString(append(rawjson.AppendString(append(dst, lead), k), ':'), m[k])
	}
	if len(keys) == 0 {
		dst = append(dst, '{')
	}
	return append(dst, '}')
}

// schemaText is a schema in JSON, cut into its members.
type schemaText struct {
	members map[string][]byte
}

// readSchema reads a schema from JSON that has been checked; nil is that of null.
func (d *dialect) readSchema(text []byte, depth int) (*data.Schema, *fault) {
	if rawjson.IsNull(text) {
		return nil, nil
	}
	if depth > maxDepth {
		return nil, tooDeep()
	}
	m, f := membersOf(text)
	if f != nil {
		return nil, f
	}
	name, f := m.text("type")
	if f != nil {
		return nil, f
	}
	s := &data.Schema{}
	var known bool
	if s.Type, known = jsonTypes[name]; !known {
		return nil, fail("the schema's type %q is none that Connect has", clip(name))
	}
	s.Optional = string(m.members["optional"]) == "true"
	if f = m.annotate(s); f != nil {
		return nil, f
	}
	switch s.Type {
	case data.Array:
		s.Elem, f = d.part(m, "items", depth)
	case data.Map:
		if s.Key, f = d.part(m, "keys", depth); f == nil {
			s.Elem, f = d.part(m, "values", depth)
		}
	case data.Struct:
		f = d.readFields(s, m.members["fields"], depth)
	}
	if f != nil {
		return nil, f
	}
	return s, d.readDefault(s, m.members["default"])
}

func membersOf(text []byte) (schemaText, *fault) {
	m := schemaText{map[string][]byte{}}
	c := rawjson.Cursor{Data: text}
	if err := c.Begin('{'); err != nil {
		return m, fail("a schema is an object: %w", err)
	}
	for first := true; ; first = false {
		name, more, err := c.Member(first)
		if err != nil {
			return m, fail("%w", err)
		}
		if !more {
			return m, nil
		}
		key := string(name)
		if m.members[key], _, err = c.Value(2 * maxDepth); err != nil {
			return m, fail("%w", err)
		}
	}
}

// text is a member that is a text, "" if it is missing or null.
func (m schemaText) text(name string) (string, *fault) {
	v := m.members[name]
	if v == nil || rawjson.IsNull(v) {
		return "", nil
	}
	s, ok := rawjson.Text(v)
	if !ok {
		return "", fail("the schema's %s is no text", name)
	}
	return string(s), nil
}

// annotate reads name, version, doc and parameters.
func (m schemaText) annotate(s *data.Schema) (f *fault) {
	if s.Name, f = m.text("name"); f != nil {
		return f
	}
	if s.Doc, f = m.text("doc"); f != nil {
		return f
	}
	if v := m.members["version"]; v != nil && !rawjson.IsNull(v) {
		n, ok := rawjson.Int64(v)
		if !ok || n < 0 || n > 1<<31-1 {
			return fail("the schema's version is no whole number")
		}
		s.Version = int(n)
	}
	v := m.members["parameters"]
	if v == nil || rawjson.IsNull(v) {
		return nil
	}
	params, f := membersOf(v)
	if f != nil {
		return f
	}
	s.Parameters = make(map[string]string, len(params.members))
	for name := range params.members {
		if s.Parameters[name], f = params.text(name); f != nil {
			return f.in("parameters")
		}
	}
	return nil
}

func (d *dialect) part(m schemaText, name string, depth int) (*data.Schema, *fault) {
	v := m.members[name]
	if v == nil || rawjson.IsNull(v) {
		return nil, fail("the schema lacks %q", name)
	}
	s, f := d.readSchema(v, depth+1)
	return s, f.in(name)
}

func (d *dialect) readFields(s *data.Schema, text []byte, depth int) *fault {
	if text == nil {
		return fail("the schema of a struct lacks \"fields\"")
	}
	c := rawjson.Cursor{Data: text}
	if err := c.Begin('['); err != nil {
		return fail("the fields of a struct: %w", err)
	}
	names := map[string]bool{}
	for first := true; ; first = false {
		more, err := c.More(']', first)
		if err != nil {
			return fail("%w", err)
		}
		if !more {
			s.Index()
			return nil
		}
		v, _, err := c.Value(2 * maxDepth)
		if err != nil {
			return fail("%w", err)
		}
		m, f := membersOf(v)
		if f != nil {
			return f.at(len(s.Fields))
		}
		if m.members["field"] == nil {
			return fail("it has no name: \"field\" is missing").at(len(s.Fields))
		}
		name, f := m.text("field")
		if f != nil {
			return f.at(len(s.Fields))
		}
		if names[name] {
			return fail("the struct has the field %q twice", clip(name))
		}
		names[name] = true
		of, f := d.readSchema(v, depth+1)
		if f != nil {
			return f.in(name)
		}
		s.Fields = append(s.Fields, data.Field{Name: name, Schema: of})
	}
}

func (d *dialect) readDefault(s *data.Schema, text []byte) *fault {
	if text == nil || rawjson.IsNull(text) {
		return nil
	}
	t, f := d.compile(s, 0)
	if f != nil {
		return f
	}
	v, f := d.reader(text).read(t, 0)
	if f != nil {
		return &fault{err: fmt.Errorf("the default: %w", f.asError())}
	}
	s.Default = v
	return nil
}

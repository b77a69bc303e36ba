package convert

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"millrace/api/rawjson"
	"millrace/connect/data"
	"millrace/schemaregistry/avro"
	"millrace/schemaregistry/schema"
)

// avroKind is how a value is written.
type avroKind uint8

const (
	avroNothing avroKind = iota
	avroInt              // int8, int16, int32, int64
	avroFloat            // float32
	avroDouble           // float32 or float64
	avroBoolean          //
	avroString           //
	avroSymbol           // a text as an enum
	avroBytes            //
	avroBare             // bytes without their length
	avroFixed            //
	avroArray            //
	avroMap              // of texts
	avroEntries          // a map as an array of records
	avroRecord           //
	avroChoice           // a struct as a union
)

// avroWriter writes values of one schema as values of a type in Avro.
type avroWriter struct {
	shape
	kind    avroKind
	lead    []byte // the number of the union's type, if there is a union
	null    []byte // what a null is; nil: there may be none
	def     any    // what a null stands for in a struct
	width   data.Type
	decimal bool
	size    int
	symbols map[string]int
	fields  []avroWrite
	key     *avroWriter
	elem    *avroWriter
}

// avroWrite is one field of a record, in the record's order.
type avroWrite struct {
	name  string
	from  int    // the field of the struct; -1: fixed is written
	fixed []byte // the default of the record's field
	*avroWriter
}

// writer implements language.
func (l *avroLanguage) writer(s *data.Schema, parsed schema.Schema, _ description) (writer, *fault) {
	a, ok := parsed.(*avro.Schema)
	if !ok {
		return writer{}, fail("it is no schema in Avro")
	}
	if s == nil {
		if !isAnything(a.Root()) {
			return writer{}, &fault{err: errNoSchema}
		}
		return writer{write: func(dst []byte, v any) ([]byte, *fault) { return appendAnything(dst, v, 0) }}, nil
	}
	w, f := l.compile(s, a.Root(), 0)
	if f != nil {
		return writer{}, f
	}
	if w.kind == avroBytes && a.Root().Kind() == "bytes" {
		w.kind = avroBare
	}
	return writer{write: w.append}, nil
}

func (l *avroLanguage) compile(s *data.Schema, t avro.Type, depth int) (*avroWriter, *fault) {
	if depth > maxDepth {
		return nil, tooDeep()
	}
	if t.Kind() != "union" {
		return l.compileBase(s, t, depth) // of an optional schema, a null is an error when it comes
	}
	if l.union(s) {
		return l.compileChoice(s, t, depth)
	}
	var (
		null  []byte
		first *fault
		found *avroWriter
	)
	for i, b := range t.Branches() {
		number := binary.AppendVarint(nil, int64(i))
		if b.Kind() == "null" {
			null = number
			continue
		}
		if found != nil {
			continue
		}
		w, f := l.compileBase(s, b, depth)
		if f == nil {
			w.lead, found = number, w
		} else if first == nil {
			first = f
		}
	}
	if found == nil {
		if first == nil {
			first = fail("the union has no type but null")
		}
		return nil, first
	}
	found.null = null
	return found, nil
}

// compileChoice makes the writer of a struct that stands for a union.
func (l *avroLanguage) compileChoice(s *data.Schema, t avro.Type, depth int) (*avroWriter, *fault) {
	w := &avroWriter{shape: shape{schema: s}, kind: avroChoice}
	branches := t.Branches()
	for i, b := range branches {
		if b.Kind() == "null" {
			w.null = binary.AppendVarint(nil, int64(i))
		}
	}
	for i := range s.Fields {
		field := &s.Fields[i]
		var (
			of   *avroWriter
			last *fault
		)
		for k, b := range branches {
			if b.Kind() == "null" || of != nil || l.memberName(b, k) != field.Name && !l.isMember(field.Schema, b) {
				continue
			}
			var f *fault
			if of, f = l.compileBase(field.Schema, b, depth+1); f != nil {
				last = f
				continue
			}
			of.lead = binary.AppendVarint(nil, int64(k))
		}
		if of == nil {
			if last == nil {
				last = fail("no type of the union is %s", describe(field.Schema))
			}
			return nil, last.in(field.Name)
		}
		w.fields = append(w.fields, avroWrite{name: field.Name, from: i, avroWriter: of})
	}
	return w, nil
}

// isMember says whether a schema is the one of a type with a name.
func (l *avroLanguage) isMember(s *data.Schema, t avro.Type) bool {
	return t.Name() == "" || s.Name == "" || t.Name() == s.Name || t.Name() == scrubFull(s.Name, false)
}

func (l *avroLanguage) compileBase(s *data.Schema, t avro.Type, depth int) (*avroWriter, *fault) {
	w := &avroWriter{shape: shape{schema: s}, width: s.Type}
	if !l.ignoreDefaults {
		w.def = s.Default
	}
	if f := sameMeaning(s, t); f != nil {
		return nil, f
	}
	kind := t.Kind()
	switch s.Type {
	case data.Int8, data.Int16, data.Int32:
		w.kind = only(kind == "int" || kind == "long", avroInt)
	case data.Int64:
		w.kind = only(kind == "long", avroInt)
	case data.Float32:
		w.kind = only(kind == "float", avroFloat) | only(kind == "double", avroDouble)
	case data.Float64:
		w.kind = only(kind == "double", avroDouble)
	case data.Boolean:
		w.kind = only(kind == "boolean", avroBoolean)
	case data.String:
		w.kind = only(kind == "string", avroString)
		if kind == "enum" {
			w.kind, w.symbols = avroSymbol, map[string]int{}
			for i, symbol := range t.Symbols() {
				w.symbols[symbol] = i
			}
		}
	case data.Bytes:
		w.decimal = s.Name == data.Decimal
		w.kind = only(kind == "bytes", avroBytes)
		if kind == "fixed" {
			w.kind, w.size = avroFixed, t.Size()
		}
	case data.Array:
		if kind == "array" {
			return w, l.compileParts(w, avroArray, nil, t.Item(), depth)
		}
	case data.Map:
		return w, l.compileMap(w, t, depth)
	case data.Struct:
		if kind == "record" {
			return w, l.compileRecord(w, t, depth)
		}
	}
	if w.kind == avroNothing {
		return nil, fail("%s cannot be written as Avro's %s", describe(s), strings.TrimSpace(kind+" "+t.Name()))
	}
	return w, nil
}

func only(is bool, k avroKind) avroKind {
	if is {
		return k
	}
	return avroNothing
}

// compileParts makes the writers of the keys and elements of an array or map.
func (l *avroLanguage) compileParts(w *avroWriter, k avroKind, key *avro.Type, item avro.Type, depth int) (f *fault) {
	w.kind = k
	if key != nil {
		if w.key, f = l.compile(w.schema.Key, *key, depth+1); f != nil {
			return f.in("key")
		}
	}
	w.elem, f = l.compile(w.schema.Elem, item, depth+1)
	return f.in("value")
}

func (l *avroLanguage) compileMap(w *avroWriter, t avro.Type, depth int) *fault {
	switch {
	case t.Kind() == "map" && w.schema.Key.Type == data.String:
		return l.compileParts(w, avroMap, nil, t.Item(), depth)
	case t.Kind() == "array" && isMapEntry(t.Item()):
		fields := t.Item().Fields()
		key := fields[0].Type()
		return l.compileParts(w, avroEntries, &key, fields[1].Type(), depth)
	}
	return fail("%s cannot be written as Avro's %s", describe(w.schema), t.Kind())
}

// isMapEntry says whether a type is that of the entries of a map.
func isMapEntry(t avro.Type) bool {
	if t.Kind() != "record" {
		return false
	}
	if t.Name() != avroSpace+"."+avroMapEntry && string(t.Prop(avroInternal)) != `"`+avroMapEntry+`"` {
		return false
	}
	fields := t.Fields()
	return len(fields) == 2 && fields[0].Name() == "key" && fields[1].Name() == "value"
}

// sameMeaning refuses a type whose logical type gives values another meaning than their schema does.
func sameMeaning(s *data.Schema, t avro.Type) *fault {
	logical := ""
	if text, ok := rawjson.Text(t.Prop("logicalType")); ok {
		logical = string(text)
	}
	want := map[string]string{
		data.Decimal: "decimal", data.Date: "date", data.Time: "time-millis", data.Timestamp: "timestamp-millis",
	}[s.Name]
	if want != "" && logical != "" && logical != want {
		return fail("%s would be read as %s", describe(s), logical)
	}
	if want != "decimal" || logical != "decimal" {
		return nil
	}
	scale, f := scaleOf(s)
	if f != nil {
		return f
	}
	has, _ := strconv.Atoi(string(t.Prop("scale")))
	if has != scale {
		return fail("a decimal of scale %d would be read as one of scale %d", scale, has)
	}
	return nil
}

func (l *avroLanguage) compileRecord(w *avroWriter, t avro.Type, depth int) *fault {
	w.kind = avroRecord
	from := make(map[string]int, len(w.schema.Fields))
	for i := range w.schema.Fields {
		from[l.fieldName(w.schema.Fields[i].Name)] = i
	}
	if len(from) < len(w.schema.Fields) {
		return fail("two fields have the same name in Avro")
	}
	for _, field := range t.Fields() {
		out := avroWrite{name: field.Name(), from: -1}
		var f *fault
		if i, ok := from[field.Name()]; ok {
			delete(from, field.Name())
			out.from = i
			out.avroWriter, f = l.compile(w.schema.Fields[i].Schema, field.Type(), depth+1)
		} else {
			out.fixed, f = l.defaultBytes(field, depth)
		}
		if f != nil {
			return f.in(field.Name())
		}
		w.fields = append(w.fields, out)
	}
	if len(from) > 0 && l.strict {
		return fail("the schema lacks it; with %s=false it is left out", latestStrict).in(sortedKeys(from)[0])
	}
	return nil
}

// defaultBytes is the default of a field that values do not have.
func (l *avroLanguage) defaultBytes(field avro.Field, depth int) ([]byte, *fault) {
	text := field.Default()
	if text == nil {
		return nil, fail("values have no such field, and it has no default")
	}
	t := field.Type()
	var lead []byte
	if t.Kind() == "union" {
		t, lead = t.Branches()[0], []byte{0}
	}
	if t.Kind() == "null" {
		return lead, nil
	}
	r := avroCompiler{avroLanguage: l}
	of, f := r.compile(t, avroNote{}, depth+1)
	if f != nil {
		return nil, f
	}
	v, f := l.readValue(&rawjson.Cursor{Data: text}, of.schema, 0)
	if f != nil {
		return nil, f
	}
	w, f := l.compile(of.schema, t, depth+1)
	if f != nil {
		return nil, f
	}
	return w.append(lead, v)
}

// append appends a value.
func (w *avroWriter) append(dst []byte, v any) ([]byte, *fault) {
	if v == nil {
		if w.null == nil {
			return dst, fail("it is null, and the schema does not allow that")
		}
		return append(dst, w.null...), nil
	}
	dst = append(dst, w.lead...)
	switch w.kind {
	case avroInt:
		return w.appendInt(dst, v)
	case avroFloat:
		if x, ok := v.(float32); ok {
			return binary.LittleEndian.AppendUint32(dst, math.Float32bits(x)), nil
		}
	case avroDouble:
		switch x := v.(type) {
		case float64:
			return binary.LittleEndian.AppendUint64(dst, math.Float64bits(x)), nil
		case float32:
			if w.width == data.Float32 {
				return binary.LittleEndian.AppendUint64(dst, math.Float64bits(float64(x))), nil
			}
		}
	case avroBoolean:
		if x, ok := v.(bool); ok {
			if x {
				return append(dst, 1), nil
			}
			return append(dst, 0), nil
		}
	case avroString:
		if x, ok := v.(string); ok {
			if !utf8.ValidString(x) {
				return dst, fail("the text is not valid UTF-8")
			}
			return append(binary.AppendVarint(dst, int64(len(x))), x...), nil
		}
	case avroSymbol:
		if x, ok := v.(string); ok {
			i, known := w.symbols[x]
			if !known {
				return dst, fail("the text is no symbol of the enum")
			}
			return binary.AppendVarint(dst, int64(i)), nil
		}
	case avroBytes:
		if x, ok := v.([]byte); ok {
			return append(binary.AppendVarint(dst, int64(len(x))), x...), nil
		}
	case avroBare:
		if x, ok := v.([]byte); ok {
			return append(dst, x...), nil
		}
	case avroFixed:
		return w.appendFixed(dst, v)
	default:
		return w.appendParts(dst, v)
	}
	return dst, mismatch(w.schema, v)
}

func (w *avroWriter) appendInt(dst []byte, v any) ([]byte, *fault) {
	switch x := v.(type) {
	case int64:
		if w.width == data.Int64 {
			return binary.AppendVarint(dst, x), nil
		}
	case int32:
		if w.width == data.Int32 {
			return binary.AppendVarint(dst, int64(x)), nil
		}
	case int16:
		if w.width == data.Int16 {
			return binary.AppendVarint(dst, int64(x)), nil
		}
	case int8:
		if w.width == data.Int8 {
			return binary.AppendVarint(dst, int64(x)), nil
		}
	}
	return dst, mismatch(w.schema, v)
}

// appendFixed appends bytes of a size. Those of a decimal are made longer as its sign demands.
func (w *avroWriter) appendFixed(dst []byte, v any) ([]byte, *fault) {
	x, ok := v.([]byte)
	if !ok {
		return dst, mismatch(w.schema, v)
	}
	if len(x) < w.size && w.decimal {
		pad := byte(0)
		if len(x) > 0 && x[0]&0x80 != 0 {
			pad = 0xff
		}
		for range w.size - len(x) {
			dst = append(dst, pad)
		}
		return append(dst, x...), nil
	}
	if len(x) != w.size {
		return dst, fail("%d bytes are wanted, not %d", w.size, len(x))
	}
	return append(dst, x...), nil
}

func (w *avroWriter) appendParts(dst []byte, v any) (_ []byte, f *fault) {
	switch w.kind {
	case avroArray:
		list, ok := v.([]any)
		if !ok {
			return dst, mismatch(w.schema, v)
		}
		if len(list) > 0 {
			dst = binary.AppendVarint(dst, int64(len(list)))
		}
		for i, e := range list {
			if dst, f = w.elem.append(dst, e); f != nil {
				return dst, f.at(i)
			}
		}
		return append(dst, 0), nil
	case avroMap, avroEntries:
		return w.appendMap(dst, v)
	case avroChoice:
		s, f := w.of(v)
		if f != nil {
			return dst, f
		}
		for i := range w.fields {
			if x := s.Values[w.fields[i].from]; x != nil {
				dst, f = w.fields[i].append(dst, x)
				return dst, f.in(w.fields[i].name)
			}
		}
		return w.append(dst, nil)
	}
	s, f := w.of(v)
	if f != nil {
		return dst, f
	}
	for i := range w.fields {
		field := &w.fields[i]
		if field.from < 0 {
			dst = append(dst, field.fixed...)
			continue
		}
		x := s.Values[field.from]
		if x == nil {
			x = field.def
		}
		if dst, f = field.append(dst, x); f != nil {
			return dst, f.in(field.name)
		}
	}
	return dst, nil
}

func (w *avroWriter) appendMap(dst []byte, v any) ([]byte, *fault) {
	count := 0
	switch m := v.(type) {
	case map[string]any:
		count = len(m)
	case []data.Entry:
		count = len(m)
	}
	if count > 0 {
		dst = binary.AppendVarint(dst, int64(count))
	}
	f := each(w.schema, v, func(key, value any) (f *fault) {
		if w.kind == avroMap {
			k, ok := key.(string)
			if !ok || !utf8.ValidString(k) {
				return fail("a key of a map is valid text, not %s", typeOf(key))
			}
			dst = append(binary.AppendVarint(dst, int64(len(k))), k...)
		} else if dst, f = w.key.append(dst, key); f != nil {
			return f.in("key")
		}
		dst, f = w.elem.append(dst, value)
		return f
	})
	return append(dst, 0), f
}

// The numbers of the fields of Anything.
const (
	anyBoolean = iota
	anyBytes
	anyDouble
	anyFloat
	anyInt
	anyLong
	anyString
	anyArray
	anyMap
	anyFields
)

// appendAnything appends a value that has no schema as a record of Anything, with one field set.
func appendAnything(dst []byte, v any, depth int) ([]byte, *fault) {
	if depth > maxDepth {
		return dst, tooDeep()
	}
	set := func(field int, append1 func(dst []byte) ([]byte, *fault)) ([]byte, *fault) {
		for range field {
			dst = append(dst, 0)
		}
		dst = append(dst, 2)
		dst, f := append1(dst)
		for range anyFields - field - 1 {
			dst = append(dst, 0)
		}
		return dst, f
	}
	of := func(field int, s data.Type, kind avroKind) ([]byte, *fault) {
		w := &avroWriter{shape: shape{schema: &data.Schema{Type: s}}, kind: kind, width: s}
		return set(field, func(dst []byte) ([]byte, *fault) { return w.append(dst, v) })
	}
	switch x := v.(type) {
	case nil:
		return append(dst, make([]byte, anyFields)...), nil
	case bool:
		return of(anyBoolean, data.Boolean, avroBoolean)
	case []byte:
		return of(anyBytes, data.Bytes, avroBytes)
	case float64:
		return of(anyDouble, data.Float64, avroDouble)
	case float32:
		return of(anyFloat, data.Float32, avroFloat)
	case int8, int16, int32:
		return of(anyInt, guess(v), avroInt)
	case int64:
		return of(anyLong, data.Int64, avroInt)
	case string:
		return of(anyString, data.String, avroString)
	case []any:
		return set(anyArray, func(dst []byte) (_ []byte, f *fault) {
			if len(x) > 0 {
				dst = binary.AppendVarint(dst, int64(len(x)))
			}
			for i, e := range x {
				if dst, f = appendAnything(dst, e, depth+1); f != nil {
					return dst, f.at(i)
				}
			}
			return append(dst, 0), nil
		})
	case map[string]any, []data.Entry:
		return set(anyMap, func(dst []byte) ([]byte, *fault) { return appendAnyMap(dst, v, depth) })
	}
	return dst, fail("%s has no schema, and cannot be written without one", typeOf(v))
}

func appendAnyMap(dst []byte, v any, depth int) ([]byte, *fault) {
	count, body := 0, []byte(nil)
	f := each(&data.Schema{Type: data.Map}, v, func(key, value any) (f *fault) {
		count++
		if body, f = appendAnything(body, key, depth+1); f == nil {
			body, f = appendAnything(body, value, depth+1)
		}
		return f
	})
	if count > 0 {
		dst = binary.AppendVarint(dst, int64(count))
	}
	return append(append(dst, body...), 0), f
}

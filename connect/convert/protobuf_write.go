package convert

import (
	"encoding/binary"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"millrace/connect/data"
	"millrace/schemaregistry/protobuf"
	"millrace/schemaregistry/schema"
)

// protoWriter writes values of a schema as values of one field's type, without the field's tag.
type protoWriter struct {
	shape
	kind     protoreflect.Kind
	logical  string // the name of a logical type that is a message
	scale    int
	wrapped  *protoWriter     // of a message that holds one value
	symbols  map[string]int32 // of an enum
	fields   []protoField     // of a message
	implicit bool             // a single value that is not written where it is zero
}

// protoField is a field of a message.
type protoField struct {
	name   string
	from   int    // the field of the struct
	tag    []byte // of one value
	packed []byte // the tag of numbers in one
	list   bool
	def    any
	entry  *protoEntry // of a map
	union  []protoField
	shape  shape // of the union
	*protoWriter
}

// protoEntry is how the entries of a map are written.
type protoEntry struct{ key, value protoField }

// writer implements language.
func (l *protoLanguage) writer(s *data.Schema, parsed schema.Schema, of description) (writer, *fault) {
	var index []int
	if m, ok := parsed.(schema.Messages); ok {
		index, _ = m.MessageIndex(of.name)
	}
	d, err := protobuf.Descriptor(parsed, index)
	if err != nil {
		return writer{}, &fault{err: err}
	}
	out := writer{prefix: protobuf.AppendIndex(nil, index)}
	if s.Type != data.Struct {
		w, f := l.compileWrapped(s, d, 0)
		if f != nil {
			return out, f
		}
		out.write = w.appendMessage
		return out, nil
	}
	w := &protoWriter{shape: shape{schema: s}, kind: protoreflect.MessageKind}
	if f := l.compileMessage(w, d, 0); f != nil {
		return out, f
	}
	out.write = w.appendMessage
	return out, nil
}

// compileMessage makes the writers of a message's fields.
func (l *protoLanguage) compileMessage(w *protoWriter, d protoreflect.MessageDescriptor, depth int) *fault {
	if depth > maxDepth {
		return tooDeep()
	}
	fields, f := l.compileFields(w.schema, d, depth, false)
	w.fields = fields
	return f
}

func (l *protoLanguage) compileFields(s *data.Schema, d protoreflect.MessageDescriptor, depth int, member bool) (
	out []protoField, f *fault,
) {
	for i := range s.Fields {
		field := &s.Fields[i]
		if l.union(field.Schema) {
			members, f := l.compileFields(field.Schema, d, depth+1, true)
			if f != nil {
				return nil, f.in(field.Name)
			}
			out = append(out, protoField{name: field.Name, from: i, union: members, shape: shape{schema: field.Schema}})
			continue
		}
		fd := d.Fields().ByName(protoreflect.Name(l.fieldName(field.Name)))
		if fd == nil {
			if !l.strict {
				continue
			}
			return nil, fail("the schema lacks it; with %s=false it is left out", latestStrict).in(field.Name)
		}
		of, f := l.compileField(field.Schema, fd, depth)
		if f != nil {
			return nil, f.in(field.Name)
		}
		of.name, of.from = field.Name, i
		if !l.ignoreDefaults {
			of.def = field.Schema.Default
		}
		out = append(out, of)
	}
	return out, nil
}

func (l *protoLanguage) compileField(s *data.Schema, fd protoreflect.FieldDescriptor, depth int) (
	out protoField, f *fault,
) {
	wire := wireType(fd.Kind())
	out.tag = protowire.AppendTag(nil, fd.Number(), wire)
	switch {
	case s.Type == data.Map:
		if !isEntry(fd) {
			return out, fail("%s cannot be written as %s", describe(s), fd.FullName())
		}
		return out, l.compileEntry(&out, s, fd.Message(), depth)
	case s.Type == data.Array:
		if !fd.IsList() {
			return out, fail("a list cannot be written as %s, which is single", fd.FullName())
		}
		out.list = true
		if fd.IsPacked() {
			out.packed = protowire.AppendTag(nil, fd.Number(), protowire.BytesType)
		}
		out.shape.schema = s
		out.protoWriter, f = l.compileValue(s.Elem, fd, depth+1)
		return out, f
	case fd.IsList() || fd.IsMap():
		return out, fail("%s cannot be written as %s, which is a list", describe(s), fd.FullName())
	}
	if out.protoWriter, f = l.compileValue(s, fd, depth); f == nil {
		out.implicit = !fd.HasPresence()
	}
	return out, f
}

func (l *protoLanguage) compileEntry(out *protoField, s *data.Schema, d protoreflect.MessageDescriptor, depth int) (
	f *fault,
) {
	out.entry = &protoEntry{}
	out.shape.schema = s
	if out.entry.key, f = l.compileField(s.Key, d.Fields().ByNumber(1), depth+1); f != nil {
		return f.in("key")
	}
	out.entry.value, f = l.compileField(s.Elem, d.Fields().ByNumber(2), depth+1)
	return f.in("value")
}

// isEntry says whether a field is a map, by its declaration or by the form of its messages.
func isEntry(fd protoreflect.FieldDescriptor) bool {
	if fd.IsMap() {
		return true
	}
	if !fd.IsList() || fd.Message() == nil {
		return false
	}
	name, fields := string(fd.Message().Name()), fd.Message().Fields()
	if len(name) < len("Entry") || name[len(name)-len("Entry"):] != "Entry" || fields.Len() != 2 {
		return false
	}
	key, value := fields.ByName("key"), fields.ByName("value")
	return key != nil && value != nil && key.Number() == 1 && value.Number() == 2 && !key.IsList() && !value.IsList()
}

func wireType(k protoreflect.Kind) protowire.Type {
	switch k {
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		return protowire.Fixed32Type
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		return protowire.Fixed64Type
	case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.MessageKind:
		return protowire.BytesType
	case protoreflect.GroupKind:
		return protowire.StartGroupType
	}
	return protowire.VarintType
}

// compileValue makes the writer of single values.
func (l *protoLanguage) compileValue(s *data.Schema, fd protoreflect.FieldDescriptor, depth int) (
	w *protoWriter, f *fault,
) {
	w = &protoWriter{shape: shape{schema: s}, kind: fd.Kind()}
	ok := false
	switch fd.Kind() {
	case protoreflect.MessageKind:
		return l.compileMessageValue(w, s, fd.Message(), depth)
	case protoreflect.EnumKind:
		ok = s.Type == data.String || s.Type == data.Int32
		w.symbols = map[string]int32{}
		for i := range fd.Enum().Values().Len() {
			v := fd.Enum().Values().Get(i)
			w.symbols[string(v.Name())] = int32(v.Number())
		}
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		ok = s.Type == data.Int8 || s.Type == data.Int16 || s.Type == data.Int32
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		ok = s.Type >= data.Int8 && s.Type <= data.Int64
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		ok = s.Type == data.Int64
	case protoreflect.FloatKind:
		ok = s.Type == data.Float32
	case protoreflect.DoubleKind:
		ok = s.Type == data.Float64 || s.Type == data.Float32
	case protoreflect.BoolKind:
		ok = s.Type == data.Boolean
	case protoreflect.StringKind:
		ok = s.Type == data.String
	case protoreflect.BytesKind:
		ok = s.Type == data.Bytes
	}
	if !ok {
		return nil, fail("%s cannot be written as Protobuf's %s", describe(s), fd.Kind())
	}
	return w, nil
}

func (l *protoLanguage) compileMessageValue(
	w *protoWriter, s *data.Schema, d protoreflect.MessageDescriptor, depth int,
) (_ *protoWriter, f *fault) {
	name := string(d.FullName())
	if logical, ok := logicalMessages[s.Name]; ok && logical[0] == name && s.Type != data.Struct {
		w.logical = s.Name
		if s.Name == data.Decimal {
			w.scale, f = scaleOf(s)
		}
		return w, f
	}
	if s.Type == data.Struct {
		return w, l.compileMessage(w, d, depth+1)
	}
	return l.compileWrapped(s, d, depth)
}

// compileWrapped makes the writer of a message that holds one value.
func (l *protoLanguage) compileWrapped(s *data.Schema, d protoreflect.MessageDescriptor, depth int) (
	*protoWriter, *fault,
) {
	w := &protoWriter{shape: shape{schema: s}, kind: protoreflect.MessageKind}
	if !isWrapper(d) {
		return nil, fail("%s cannot be written as the message %s", describe(s), d.FullName())
	}
	var f *fault
	w.wrapped, f = l.compileValue(s, d.Fields().ByNumber(1), depth+1)
	return w, f
}

func isWrapper(d protoreflect.MessageDescriptor) bool {
	for _, name := range wrappers {
		if string(d.FullName()) == name {
			return d.Fields().Len() == 1 && d.Fields().ByNumber(1) != nil
		}
	}
	return false
}

// appendMessage appends the fields of a message.
func (w *protoWriter) appendMessage(dst []byte, v any) ([]byte, *fault) {
	switch {
	case w.logical != "":
		return w.appendLogical(dst, v)
	case w.wrapped != nil:
		if v == nil || isZero(v) {
			return dst, typed(w.wrapped.schema, v)
		}
		return w.wrapped.append(protowire.AppendTag(dst, 1, wireType(w.wrapped.kind)), v)
	}
	s, f := w.of(v)
	if f != nil {
		return dst, f
	}
	for i := range w.fields {
		field := &w.fields[i]
		if dst, f = field.appendField(dst, s.Values[field.from]); f != nil {
			return dst, f.in(field.name)
		}
	}
	return dst, nil
}

// typed checks that a value is of its schema's type.
func typed(s *data.Schema, v any) *fault {
	if guess(v) != s.Type {
		return mismatch(s, v)
	}
	return nil
}

func isZero(v any) bool {
	switch x := v.(type) {
	case bool:
		return !x
	case int8:
		return x == 0
	case int16:
		return x == 0
	case int32:
		return x == 0
	case int64:
		return x == 0
	case float32:
		return math.Float32bits(x) == 0
	case float64:
		return math.Float64bits(x) == 0
	case string:
		return x == ""
	case []byte:
		return len(x) == 0
	}
	return false
}

// appendField appends a field with its tag; nothing where it is null.
func (f *protoField) appendField(dst []byte, v any) ([]byte, *fault) {
	if f.union != nil {
		return f.appendUnion(dst, v)
	}
	if v == nil {
		if v = f.def; v == nil {
			if s := f.schemaOf(); !s.Optional {
				return dst, fail("it is null, and the schema does not allow that")
			}
			return dst, nil
		}
	}
	switch {
	case f.entry != nil:
		return f.appendMap(dst, v)
	case f.list:
		return f.appendList(dst, v)
	case f.implicit && isZero(v) && f.symbols == nil:
		return dst, typed(f.protoWriter.schema, v)
	}
	return f.append(append(dst, f.tag...), v)
}

func (f *protoField) schemaOf() *data.Schema {
	if f.protoWriter == nil || f.list {
		return f.shape.schema
	}
	return f.protoWriter.schema
}

func (f *protoField) appendUnion(dst []byte, v any) ([]byte, *fault) {
	if v == nil {
		if !f.shape.schema.Optional {
			return dst, fail("it is null, and the schema does not allow that")
		}
		return dst, nil
	}
	s, bad := f.shape.of(v)
	if bad != nil {
		return dst, bad
	}
	for i := range f.union {
		member := &f.union[i]
		if x := s.Values[member.from]; x != nil {
			dst, bad = member.appendField(dst, x)
			return dst, bad.in(member.name)
		}
	}
	return dst, nil
}

func (f *protoField) appendList(dst []byte, v any) (_ []byte, bad *fault) {
	list, ok := v.([]any)
	if !ok {
		return dst, mismatch(f.shape.schema, v)
	}
	if f.packed != nil && len(list) > 0 {
		dst = append(dst, f.packed...)
		start := len(dst)
		for i, e := range list {
			if dst, bad = f.append(dst, e); bad != nil {
				return dst, bad.at(i)
			}
		}
		return prefixLength(dst, start), nil
	}
	for i, e := range list {
		if dst, bad = f.append(append(dst, f.tag...), e); bad != nil {
			return dst, bad.at(i)
		}
	}
	return dst, nil
}

func (f *protoField) appendMap(dst []byte, v any) ([]byte, *fault) {
	bad := each(f.shape.schema, v, func(key, value any) (bad *fault) {
		dst = append(dst, f.tag...)
		start := len(dst)
		if dst, bad = f.entry.key.appendField(dst, key); bad != nil {
			return bad.in("key")
		}
		if dst, bad = f.entry.value.appendField(dst, value); bad != nil {
			return bad.in("value")
		}
		dst = prefixLength(dst, start)
		return nil
	})
	return dst, bad
}

// prefixLength puts the length of what follows start before it.
func prefixLength(dst []byte, start int) []byte {
	var length [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(length[:], uint64(len(dst)-start))
	return slices.Insert(dst, start, length[:n]...)
}

// append appends a value without a tag.
func (w *protoWriter) append(dst []byte, v any) ([]byte, *fault) {
	if v == nil {
		return dst, fail("Protobuf has no null here")
	}
	switch w.kind {
	case protoreflect.MessageKind:
		start := len(dst)
		dst, f := w.appendMessage(dst, v)
		if f != nil {
			return dst, f
		}
		return prefixLength(dst, start), nil
	case protoreflect.EnumKind:
		return w.appendEnum(dst, v)
	case protoreflect.StringKind:
		if x, ok := v.(string); ok {
			if !utf8.ValidString(x) {
				return dst, fail("the text is not valid UTF-8")
			}
			return protowire.AppendString(dst, x), nil
		}
	case protoreflect.BytesKind:
		if x, ok := v.([]byte); ok {
			return protowire.AppendBytes(dst, x), nil
		}
	case protoreflect.BoolKind:
		if x, ok := v.(bool); ok {
			return protowire.AppendVarint(dst, protowire.EncodeBool(x)), nil
		}
	case protoreflect.FloatKind:
		if x, ok := v.(float32); ok {
			return protowire.AppendFixed32(dst, math.Float32bits(x)), nil
		}
	case protoreflect.DoubleKind:
		switch x := v.(type) {
		case float64:
			return protowire.AppendFixed64(dst, math.Float64bits(x)), nil
		case float32:
			return protowire.AppendFixed64(dst, math.Float64bits(float64(x))), nil
		}
	default:
		if guess(v) == w.schema.Type {
			return w.appendInteger(dst, v)
		}
	}
	return dst, mismatch(w.schema, v)
}

func (w *protoWriter) appendInteger(dst []byte, v any) ([]byte, *fault) {
	var n int64
	switch x := v.(type) {
	case int8:
		n = int64(x)
	case int16:
		n = int64(x)
	case int32:
		n = int64(x)
	case int64:
		n = x
	default:
		return dst, mismatch(w.schema, v)
	}
	switch w.kind {
	case protoreflect.Sint32Kind, protoreflect.Sint64Kind:
		return protowire.AppendVarint(dst, protowire.EncodeZigZag(n)), nil
	case protoreflect.Sfixed64Kind, protoreflect.Fixed64Kind:
		return protowire.AppendFixed64(dst, uint64(n)), nil
	case protoreflect.Sfixed32Kind:
		return protowire.AppendFixed32(dst, uint32(n)), nil
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		if n < 0 || n > math.MaxUint32 {
			return dst, fail("the number does not fit into 32 bits without a sign")
		}
		if w.kind == protoreflect.Fixed32Kind {
			return protowire.AppendFixed32(dst, uint32(n)), nil
		}
	}
	return protowire.AppendVarint(dst, uint64(n)), nil
}

func (w *protoWriter) appendEnum(dst []byte, v any) ([]byte, *fault) {
	switch x := v.(type) {
	case int32:
		if w.schema.Type == data.Int32 {
			return protowire.AppendVarint(dst, uint64(int64(x))), nil
		}
	case string:
		n, known := w.symbols[x]
		if !known {
			return dst, fail("the text is no symbol of the enum")
		}
		return protowire.AppendVarint(dst, uint64(int64(n))), nil
	}
	return dst, mismatch(w.schema, v)
}

// appendLogical appends the fields of the message that stands for a logical type.
func (w *protoWriter) appendLogical(dst []byte, v any) ([]byte, *fault) {
	if f := typed(w.schema, v); f != nil {
		return dst, f
	}
	number := func(field protowire.Number, n int64) {
		if n != 0 {
			dst = protowire.AppendVarint(protowire.AppendTag(dst, field, protowire.VarintType), uint64(n))
		}
	}
	switch w.logical {
	case data.Decimal:
		b := v.([]byte)
		dst = protowire.AppendBytes(protowire.AppendTag(dst, 1, protowire.BytesType), b)
		number(2, int64(digits(b)))
		number(3, int64(w.scale))
	case data.Date:
		t := time.UnixMilli(int64(v.(int32)) * dayMillis).UTC()
		if t.Year() < 1 || t.Year() > 9999 {
			return dst, fail("a date in Protobuf is in the years 1 to 9999")
		}
		number(1, int64(t.Year()))
		number(2, int64(t.Month()))
		number(3, int64(t.Day()))
	case data.Time:
		ms := int64(v.(int32))
		if ms < 0 || ms > dayMillis {
			return dst, fail("a time of the day has 0 to %d milliseconds", dayMillis)
		}
		number(1, ms/3_600_000)
		number(2, ms/60_000%60)
		number(3, ms/1000%60)
		number(4, ms%1000*1_000_000)
	case data.Timestamp:
		ms := v.(int64)
		seconds, rest := ms/1000, ms%1000
		if rest < 0 {
			seconds, rest = seconds-1, rest+1000
		}
		number(1, seconds)
		number(2, rest*1_000_000)
	}
	return dst, nil
}

// digits is how many digits an unscaled number has.
func digits(unscaled []byte) int {
	n := data.DecimalInt(unscaled)
	return len(n.Abs(n).String())
}

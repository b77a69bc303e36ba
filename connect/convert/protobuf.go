package convert

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"millrace/api/rawjson"
	"millrace/connect/data"
	"millrace/connect/plugin"
	"millrace/schemaregistry/schema"
)

// The settings of ProtobufConverter.
const (
	protoEnhanced    = "enhanced.protobuf.schema.support"
	intEnums         = "int.for.enums"
	optionalNulls    = "optional.for.nullables"
	optionalProto2   = "optional.for.proto2"
	wrapperNulls     = "wrapper.for.nullables"
	wrapperRaw       = "wrapper.for.raw.primitives"
	structsForNulls  = "generate.struct.for.nulls"
	indexUnions      = "generate.index.for.unions"
	flattenProtoUnio = "flatten.unions"
)

func protobufDefs() plugin.Defs {
	return append(registryDefs(),
		flag(protoEnhanced, false, "Whether names keep their packages."),
		flag(scrubNames, false, "Whether characters that names in Protobuf may not have are replaced by '_'."),
		flag(intEnums, false, "Whether enums are read as numbers."),
		flag(optionalNulls, false, "Whether optional fields have the label optional. Without this and "+wrapperNulls+
			", a null is read back as zero or an empty text."),
		flag(optionalProto2, true, "Whether the label optional of proto2 counts."),
		flag(wrapperNulls, false, "Whether optional fields are messages that hold one value."),
		flag(wrapperRaw, true, "Whether a message that holds one value is read as that value."),
		flag(structsForNulls, false, "Whether a message that is not set is read as one without anything set."),
		flag(indexUnions, true, "Whether the names of unions end with their number."),
		flag(flattenProtoUnio, false, "Whether the fields of unions are read as fields of their message."),
		flag(generalSumTypes, false, "Whether enums and unions are marked as Connect's own, whatever the format."),
	)
}

const (
	protoSpace   = "io.confluent.connect.protobuf"
	protoEnum    = protoSpace + ".Enum"
	protoTag     = protoSpace + ".Tag"
	protoType    = protoSpace + ".Type"
	protoWrapper = protoSpace + ".Wrapper"

	protoDecimal   = "confluent.type.Decimal"
	protoDate      = "google.type.Date"
	protoTime      = "google.type.TimeOfDay"
	protoTimestamp = "google.protobuf.Timestamp"
	wrapperFile    = "google/protobuf/wrappers.proto"
)

// wrappers are the messages that hold one value, by the type of that.
var wrappers = map[string]string{
	"double": "google.protobuf.DoubleValue", "float": "google.protobuf.FloatValue",
	"int64": "google.protobuf.Int64Value", "uint64": "google.protobuf.UInt64Value",
	"int32": "google.protobuf.Int32Value", "uint32": "google.protobuf.UInt32Value",
	"bool": "google.protobuf.BoolValue", "string": "google.protobuf.StringValue",
	"bytes": "google.protobuf.BytesValue",
}

// wrapperText is the schema of single values.
const wrapperText = `syntax = "proto3";
package google.protobuf;

option cc_enable_arenas = true;
option csharp_namespace = "Google.Protobuf.WellKnownTypes";
option go_package = "google.golang.org/protobuf/types/known/wrapperspb";
option java_multiple_files = true;
option java_outer_classname = "WrappersProto";
option java_package = "com.google.protobuf";
option objc_class_prefix = "GPB";

message DoubleValue { double value = 1; }
message FloatValue { float value = 1; }
message Int64Value { int64 value = 1; }
message UInt64Value { uint64 value = 1; }
message Int32Value { int32 value = 1; }
message UInt32Value { uint32 value = 1; }
message BoolValue { bool value = 1; }
message StringValue { string value = 1; }
message BytesValue { bytes value = 1; }
`

// protoLanguage is Protobuf.
type protoLanguage struct {
	enhanced, scrub, intEnums, optional, proto2, wrapper, raw, structs, index, flatten, general, ignoreDefaults bool

	strict bool
	log    *slog.Logger
	warned bool
}

func newProtobuf(key bool, props map[string]string, d Deps) (plugin.Converter, error) {
	s := protobufDefs().Settings(props)
	l := &protoLanguage{
		enhanced: s.Bool(protoEnhanced), scrub: s.Bool(scrubNames), intEnums: s.Bool(intEnums),
		optional: s.Bool(optionalNulls), proto2: s.Bool(optionalProto2), wrapper: s.Bool(wrapperNulls),
		raw: s.Bool(wrapperRaw), structs: s.Bool(structsForNulls), index: s.Bool(indexUnions),
		flatten: s.Bool(flattenProtoUnio), general: s.Bool(generalSumTypes),
		ignoreDefaults: s.Bool(ignoreDefaults), strict: s.Bool(latestStrict), log: d.Logger,
	}
	c, err := newRegistered(key, s, d, l, schema.Protobuf)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (l *protoLanguage) enumKey() string {
	if l.general {
		return generalEnum
	}
	return protoEnum
}

func (l *protoLanguage) union(s *data.Schema) bool { return isUnion(s, protobufUnion) }

func (l *protoLanguage) fieldName(name string) string {
	if l.scrub {
		return scrub(name, true)
	}
	return name
}

// describe implements language.
func (l *protoLanguage) describe(s *data.Schema) (description, *fault) {
	if s == nil {
		return description{}, &fault{err: errNoSchema}
	}
	if f := checkSchema(s, 0); f != nil {
		return description{}, f
	}
	l.warn(s)
	d := &protoDescriber{protoLanguage: l, imports: map[string]bool{}}
	switch {
	case s.Type == data.Array, s.Type == data.Map, l.union(s):
		return description{}, fail("a message is a struct or a single value, not %s", describe(s))
	case s.Type != data.Struct:
		return description{text: wrapperText, name: wrappers[scalarType(s)]}, nil
	}
	full := s.Name
	if full == "" {
		full = d.madeUp()
	}
	if l.scrub {
		full = scrubFull(full, true)
	}
	var out strings.Builder
	out.WriteString("syntax = \"proto3\";\n")
	name := full
	if i := strings.LastIndexByte(full, '.'); i >= 0 {
		name = full[i+1:]
		fmt.Fprintf(&out, "package %s;\n", full[:i])
	}
	body, f := d.message(name, s, nil)
	if f != nil {
		return description{}, f
	}
	for _, file := range sortedKeys(d.imports) {
		fmt.Fprintf(&out, "import %q;\n", file)
	}
	out.WriteString(body)
	return description{text: out.String(), name: full}, nil
}

// warn says once that nulls are lost by the settings.
func (l *protoLanguage) warn(s *data.Schema) {
	if l.warned || l.optional || l.wrapper || !losesNulls(s) {
		return
	}
	l.warned = true
	l.log.Warn("nulls of optional fields are written to Protobuf as zero or empty; to keep them set "+optionalNulls+
		"=true or "+wrapperNulls+"=true", "schema", clip(s.Name))
}

// losesNulls says whether a struct has optional fields that Protobuf cannot leave out.
func losesNulls(s *data.Schema) bool {
	for i := range s.Fields {
		of := s.Fields[i].Schema
		if _, message := logicalMessages[of.Name]; of.Type < data.Array && of.Optional && !message || losesNulls(of) {
			return true
		}
	}
	return s.Elem != nil && losesNulls(s.Elem)
}

// protoDescriber writes a schema in Protobuf.
type protoDescriber struct {
	*protoLanguage
	imports map[string]bool
	names   int // made up so far
}

// protoScope is a message that is being written.
type protoScope struct {
	outer *protoScope
	name  string
	types map[string]*data.Schema
	names map[string]bool // of fields, which types may not have
	used  map[int]bool    // numbers of fields
	next  int
	out   strings.Builder // its fields
	inner strings.Builder // the types that it holds
}

func (d *protoDescriber) madeUp() string {
	d.names++
	return avroDefault + strconv.Itoa(d.names)
}

// message writes a message with all that it holds.
func (d *protoDescriber) message(name string, s *data.Schema, outer *protoScope) (string, *fault) {
	depth := 0
	for o := outer; o != nil; o = o.outer {
		depth++
	}
	if depth > maxDepth {
		return "", tooDeep()
	}
	m := &protoScope{outer: outer, name: name, types: map[string]*data.Schema{}, names: map[string]bool{},
		used: map[int]bool{}, next: 1}
	m.types[name] = s
	d.reserve(m, s)
	fmt.Fprintf(&m.out, "message %s {\n", name)
	for i := range s.Fields {
		if f := d.field(m, s.Fields[i].Name, s.Fields[i].Schema, false); f != nil {
			return "", f.in(s.Fields[i].Name)
		}
	}
	return m.out.String() + m.inner.String() + "}\n", nil
}

// reserve takes note of the names and numbers that fields have.
func (d *protoDescriber) reserve(m *protoScope, s *data.Schema) {
	for i := range s.Fields {
		of := s.Fields[i].Schema
		m.names[d.fieldName(s.Fields[i].Name)] = true
		if d.union(of) {
			d.reserve(m, of)
		} else if n, err := strconv.Atoi(of.Parameters[protoTag]); err == nil {
			m.used[n] = true
		}
	}
}

// number is the number of a field.
func (m *protoScope) number(s *data.Schema) int {
	if n, err := strconv.Atoi(s.Parameters[protoTag]); err == nil {
		return n
	}
	const reservedFrom, reservedTo = 19000, 19999
	for m.used[m.next] || m.next >= reservedFrom && m.next <= reservedTo {
		m.next++
	}
	m.used[m.next] = true
	return m.next
}

// field writes a field of a message, or of a union in it.
func (d *protoDescriber) field(m *protoScope, name string, s *data.Schema, member bool) *fault {
	if d.union(s) {
		return d.oneof(m, s)
	}
	label := ""
	of := s
	switch {
	case s.Type == data.Array:
		label = "repeated "
		if of = s.Elem; of.Type == data.Array || of.Type == data.Map || d.union(of) {
			return fail("Protobuf has no lists of lists, maps or unions")
		}
	case s.Type == data.Map:
		label = "repeated "
	case d.optional && s.Optional && !member:
		label = "optional "
	}
	if member && label != "" {
		return fail("Protobuf has no lists or maps in unions")
	}
	name = d.fieldName(name)
	number := m.number(s)
	kind, params, f := d.typeName(m, of, member || s.Type == data.Array)
	if f != nil {
		return f
	}
	fmt.Fprintf(&m.out, "%s%s %s = %d%s;\n", label, kind, name, number, d.meta(params))
	return nil
}

// meta is the option that keeps parameters.
func (d *protoDescriber) meta(params map[string]string) string {
	if len(params) == 0 {
		return ""
	}
	d.imports["confluent/meta.proto"] = true
	var entries []string
	for _, k := range sortedKeys(params) {
		entries = append(entries, fmt.Sprintf("{key: %s, value: %s}", quote(k), quote(params[k])))
	}
	return " [(confluent.field_meta) = {params: [" + strings.Join(entries, ", ") + "]}]"
}

func quote(s string) string { return string(rawjson.AppendString(nil, s)) }

func (d *protoDescriber) oneof(m *protoScope, s *data.Schema) *fault {
	name := strings.TrimPrefix(s.Name, protobufUnion+".")
	if general, ok := s.Parameters[generalUnion]; ok {
		name = general
	}
	name = name[strings.LastIndexByte(name, '.')+1:]
	fmt.Fprintf(&m.out, "oneof %s {\n", d.fieldName(name))
	for i := range s.Fields {
		if f := d.field(m, s.Fields[i].Name, s.Fields[i].Schema, true); f != nil {
			return f.in(s.Fields[i].Name)
		}
	}
	m.out.WriteString("}\n")
	return nil
}

// scalarType is the type of a single value, "" of what is none.
func scalarType(s *data.Schema) string {
	switch s.Type {
	case data.Int8, data.Int16, data.Int32:
		return "int32"
	case data.Int64:
		return "int64"
	case data.Float32:
		return "float"
	case data.Float64:
		return "double"
	case data.Boolean:
		return "bool"
	case data.String:
		return "string"
	case data.Bytes:
		return "bytes"
	}
	return ""
}

// logicalMessages are the messages of logical types, with their files.
var logicalMessages = map[string][2]string{
	data.Decimal:   {protoDecimal, "confluent/type/decimal.proto"},
	data.Date:      {protoDate, "google/type/date.proto"},
	data.Time:      {protoTime, "google/type/timeofday.proto"},
	data.Timestamp: {protoTimestamp, "google/protobuf/timestamp.proto"},
}

// typeName is the type of a field, and the parameters that keep what it does not say. Messages and enums that it needs
// are written. A single value of a union or a list is not put into a message of its own.
func (d *protoDescriber) typeName(m *protoScope, s *data.Schema, member bool) (
	kind string, params map[string]string, f *fault,
) {
	if logical, ok := logicalMessages[s.Name]; ok && s.Type != data.Struct {
		d.imports[logical[1]] = true
		params = map[string]string{}
		if p := s.Parameters[decimalPrecision]; p != "" && s.Name == data.Decimal {
			params["precision"] = p
		}
		if scale, given := s.Parameters[data.ScaleKey]; given && s.Name == data.Decimal {
			params["scale"] = scale
		}
		return "." + logical[0], params, nil
	}
	switch s.Type {
	case data.Struct:
		kind, f = d.structName(m, s)
		return kind, nil, f
	case data.Map:
		kind, f = d.mapName(m, s)
		return kind, nil, f
	case data.String, data.Int32:
		if name, ok := s.Parameters[d.enumKey()]; ok && name != "" {
			kind, f = d.enumName(m, name, s)
			return kind, nil, f
		}
	}
	kind = scalarType(s)
	if own := s.Parameters[protoType]; own != "" && (s.Type == data.Int32 || s.Type == data.Int64) {
		kind = own
	}
	if s.Type == data.Int8 || s.Type == data.Int16 {
		params = map[string]string{connectType: s.Type.String()}
	}
	if d.wrapper && s.Optional && (!member || s.Parameters[protoWrapper] == "true") {
		d.imports[wrapperFile] = true
		return "." + wrapperOf(kind), params, nil
	}
	return kind, params, nil
}

func wrapperOf(kind string) string {
	switch kind {
	case "fixed32":
		kind = "uint32"
	case "fixed64":
		kind = "uint64"
	case "sint32", "sfixed32":
		kind = "int32"
	case "sint64", "sfixed64":
		kind = "int64"
	}
	return wrappers[kind]
}

// unqualified is a name without its package.
func (d *protoDescriber) unqualified(name string) string {
	if name == "" {
		return d.madeUp()
	}
	return d.fieldName(name[strings.LastIndexByte(name, '.')+1:])
}

// defined finds a type by its name in a message and those around it.
func (m *protoScope) defined(name string, s *data.Schema) (bool, *fault) {
	for o := m; o != nil; o = o.outer {
		if before, ok := o.types[name]; ok {
			if !sameFields(before, s) {
				return false, fail("two schemas that differ have the name %s", clip(name))
			}
			return true, nil
		}
	}
	return false, nil
}

func (d *protoDescriber) structName(m *protoScope, s *data.Schema) (string, *fault) {
	name := d.unqualified(s.Name)
	if m.names[name] {
		name += "Message"
	}
	if found, f := m.defined(name, s); found || f != nil {
		return name, f
	}
	body, f := d.message(name, s, m)
	if f != nil {
		return "", f
	}
	m.types[name] = s
	m.inner.WriteString(body)
	return name, nil
}

func (d *protoDescriber) mapName(m *protoScope, s *data.Schema) (string, *fault) {
	name := upperCamel(d.unqualified(s.Name)) + "Entry"
	entry := data.NewStruct("", data.Field{Name: "key", Schema: s.Key}, data.Field{Name: "value", Schema: s.Elem})
	if found, f := m.defined(name, entry); found || f != nil {
		return name, f
	}
	for _, part := range entry.Fields {
		if t := part.Schema.Type; t == data.Array || t == data.Map || d.union(part.Schema) {
			return "", fail("Protobuf has no maps of lists, maps or unions")
		}
	}
	body, f := d.message(name, entry, m)
	if f != nil {
		return "", f
	}
	m.types[name] = entry
	m.inner.WriteString(body)
	return name, nil
}

// upperCamel is a name of words with underscores in the form that the entries of maps have.
func upperCamel(s string) string {
	if !strings.Contains(s, "_") {
		return s
	}
	var out strings.Builder
	for word := range strings.SplitSeq(s, "_") {
		if word != "" {
			out.WriteString(strings.ToUpper(word[:1]) + strings.ToLower(word[1:]))
		}
	}
	return out.String()
}

// lowerUnderscore is the way back.
func lowerUnderscore(s string) string {
	var out strings.Builder
	for i, c := range s {
		if c >= 'A' && c <= 'Z' {
			if i > 0 {
				out.WriteByte('_')
			}
			c |= 0x20
		}
		out.WriteRune(c)
	}
	return out.String()
}

func (d *protoDescriber) enumName(m *protoScope, name string, s *data.Schema) (string, *fault) {
	name = d.unqualified(name)
	enum := &data.Schema{Type: data.Bytes, Parameters: map[string]string{fixedSize: "enum " + name}}
	if found, f := m.defined(name, enum); found || f != nil {
		return name, f
	}
	m.types[name] = enum
	key := d.enumKey()
	var symbols []string
	for _, k := range sortedKeys(s.Parameters) {
		if symbol, ok := strings.CutPrefix(k, key+"."); ok {
			symbols = append(symbols, symbol)
		}
	}
	sortByNumber(symbols, func(symbol string) string { return s.Parameters[key+"."+symbol] })
	fmt.Fprintf(&m.inner, "enum %s {\n", name)
	for _, symbol := range symbols {
		n, err := strconv.ParseInt(s.Parameters[key+"."+symbol], 10, 32)
		if err != nil {
			return "", fail("the enum's symbol %s has no number", clip(symbol))
		}
		fmt.Fprintf(&m.inner, "%s = %d;\n", symbol, n)
	}
	m.inner.WriteString("}\n")
	return name, nil
}

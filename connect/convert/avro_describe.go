package convert

import (
	"math"
	"net/url"
	"strconv"
	"strings"

	"millrace/api/rawjson"
	"millrace/connect/data"
	"millrace/connect/plugin"
	"millrace/schemaregistry/schema"
)

// The settings of AvroConverter.
const (
	avroEnhanced     = "enhanced.avro.schema.support"
	avroMetadata     = "connect.meta.data"
	avroOptionalKeys = "allow.optional.map.keys"
	avroDiscardDoc   = "discard.type.doc.default"
)

func avroDefs() plugin.Defs {
	return append(registryDefs(),
		flag(avroEnhanced, false, "Whether enums are kept, and types of unions told apart by their full names."),
		flag(scrubNames, false, "Whether characters that names in Avro may not have are replaced by '_'."),
		flag(avroMetadata, true, "Whether names, versions, docs, parameters and defaults of Connect are kept as properties."),
		flag(avroOptionalKeys, false, "Whether a map whose keys are optional strings is a map in Avro."),
		flag(flattenSingle, true, "Whether a union of one type is read as that type."),
		flag(avroDiscardDoc, false, "Whether docs of fields are read as docs of their schemas."),
		flag(generalSumTypes, false, "Whether enums and unions are marked as Connect's own, whatever the format."),
	)
}

// The names that Confluent's converter gives to what Avro has no words for.
const (
	avroSpace     = "io.confluent.connect.avro"
	avroDefault   = "ConnectDefault"
	avroAnything  = avroSpace + ".Anything"
	avroMapEntry  = "MapEntry"
	avroInternal  = "connect.internal.type"
	avroEnum      = avroSpace + ".Enum"
	avroRecordDoc = avroSpace + ".record.doc"
	avroEnumDoc   = avroSpace + ".enum.doc."
	avroFieldDoc  = avroSpace + ".field.doc."
	avroFieldDef  = avroSpace + ".field.default"
	avroEnumDef   = avroSpace + ".enum.default."

	connectName       = "connect.name"
	connectDoc        = "connect.doc"
	connectRecordDoc  = "connect.record.doc"
	connectEnumDoc    = "connect.enum.doc"
	connectVersion    = "connect.version"
	connectDefault    = "connect.default"
	connectParameters = "connect.parameters"
	connectType       = "connect.type"
	fixedSize         = "connect.fixed.size"
	decimalPrecision  = "connect.decimal.precision"

	defaultPrecision = 64
)

// anything is the schema of values that have none.
const anything = `{"type":"record","name":"Anything","namespace":"io.confluent.connect.avro","fields":[` +
	`{"name":"boolean","type":["null","boolean"],"default":null},` +
	`{"name":"bytes","type":["null","bytes"],"default":null},` +
	`{"name":"double","type":["null","double"],"default":null},` +
	`{"name":"float","type":["null","float"],"default":null},` +
	`{"name":"int","type":["null","int"],"default":null},` +
	`{"name":"long","type":["null","long"],"default":null},` +
	`{"name":"string","type":["null","string"],"default":null},` +
	`{"name":"array","type":["null",{"type":"array","items":"Anything"}],"default":null},` +
	`{"name":"map","type":["null",{"type":"array","items":{"type":"record","name":"MapEntry","fields":[` +
	`{"name":"key","type":"Anything"},{"name":"value","type":"Anything"}]}}],"default":null}]}`

// avroLanguage is Avro.
type avroLanguage struct {
	enhanced, general, scrub, metadata, optionalKeys, flatten, discardDoc, ignoreDefaults, strict bool
}

func newAvro(key bool, props map[string]string, d Deps) (plugin.Converter, error) {
	s := avroDefs().Settings(props)
	l := &avroLanguage{
		enhanced: s.Bool(avroEnhanced), general: s.Bool(generalSumTypes), scrub: s.Bool(scrubNames),
		metadata: s.Bool(avroMetadata), optionalKeys: s.Bool(avroOptionalKeys), flatten: s.Bool(flattenSingle),
		discardDoc: s.Bool(avroDiscardDoc), ignoreDefaults: s.Bool(ignoreDefaults), strict: s.Bool(latestStrict),
	}
	c, err := newRegistered(key, s, d, l, schema.Avro)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// describe implements language.
func (l *avroLanguage) describe(s *data.Schema) (description, *fault) {
	if s == nil {
		return description{text: anything, name: avroAnything}, nil
	}
	if f := checkSchema(s, 0); f != nil {
		return description{}, f
	}
	d := avroDescriber{avroLanguage: l, named: map[string]*data.Schema{}}
	text, f := d.append(nil, s, 0)
	if f != nil {
		return description{}, f
	}
	of := description{text: string(text)}
	if s.Type == data.Struct && !l.union(s) {
		of.name = d.first
	}
	return of, nil
}

func (l *avroLanguage) union(s *data.Schema) bool { return isUnion(s, avroUnion) }

// isEnum says whether a text is written as an enum.
func (l *avroLanguage) isEnum(s *data.Schema) bool {
	if s.Type != data.String || !l.general && !l.enhanced {
		return false
	}
	_, ok := s.Parameters[l.enumKey()]
	return ok
}

// enumKey is the parameter that names an enum, and with a dot and a symbol each of its symbols.
func (l *avroLanguage) enumKey() string {
	if l.general {
		return generalEnum
	}
	return avroEnum
}

func isFixed(s *data.Schema) bool {
	return s.Type == data.Bytes && s.Name != "" && s.Parameters[fixedSize] != ""
}

// textMap says whether a map is a map in Avro.
func (l *avroLanguage) textMap(s *data.Schema) bool {
	return s.Key.Type == data.String && (!s.Key.Optional || l.optionalKeys)
}

// avroDescriber writes a schema in Avro.
type avroDescriber struct {
	*avroLanguage
	named   map[string]*data.Schema // by full name; not optional
	unnamed []*data.Schema          // whose names are made up
	first   string                  // the first record's full name
}

// name is the full name of a schema's record, and whether that is defined already.
func (d *avroDescriber) name(s *data.Schema) (full string, defined bool, f *fault) {
	full = s.Name
	if full == "" {
		for i, u := range d.unnamed {
			if sameFields(u, s) {
				return defaultName(i), true, nil
			}
		}
		d.unnamed = append(d.unnamed, s)
		return defaultName(len(d.unnamed) - 1), false, nil
	}
	if d.scrub {
		full = scrubFull(full, false)
	}
	if before, ok := d.named[full]; ok {
		if !sameFields(before, s) {
			return "", false, fail("two schemas that differ have the name %s", clip(full))
		}
		return full, true, nil
	}
	d.named[full] = s
	return full, false, nil
}

func defaultName(i int) string {
	if i == 0 {
		return avroSpace + "." + avroDefault
	}
	return avroSpace + "." + avroDefault + strconv.Itoa(i+1)
}

// sameFields says whether two schemas of one name are the same type.
func sameFields(a, b *data.Schema) bool {
	if a == b {
		return true
	}
	x := data.Schema{Type: a.Type, Fields: a.Fields, Key: a.Key, Elem: a.Elem}
	y := data.Schema{Type: b.Type, Fields: b.Fields, Key: b.Key, Elem: b.Elem}
	if a.Type == data.Bytes {
		return a.Type == b.Type && a.Parameters[fixedSize] == b.Parameters[fixedSize]
	}
	return x.Equal(&y)
}

// scrubFull replaces what names may not hold in each part of a full name.
func scrubFull(full string, protobuf bool) string {
	parts := strings.Split(full, ".")
	for i := range parts {
		parts[i] = scrub(parts[i], protobuf)
	}
	return strings.Join(parts, ".")
}

// scrub makes a name of a text as Confluent's converters do: percent-encoded, with '_' for what is not allowed. A name
// in Protobuf does not begin with '_' either.
func scrub(name string, protobuf bool) string {
	valid := func(s string) bool {
		for i := range len(s) {
			c := s[i]
			if c != '_' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
				return false
			}
		}
		return true
	}
	starts := func(s string) bool { return s[0] >= '0' && s[0] <= '9' || protobuf && s[0] == '_' }
	if name == "" || valid(name) && !starts(name) {
		return name
	}
	b := []byte(url.QueryEscape(name))
	for i, c := range b {
		if !valid(string(c)) {
			b[i] = '_'
		}
	}
	if protobuf && starts(url.QueryEscape(name)) || !protobuf && starts(string(b)) {
		return "x" + string(b)
	}
	return string(b)
}

// append appends a schema, as a union with null where it is optional.
func (d *avroDescriber) append(dst []byte, s *data.Schema, depth int) (_ []byte, f *fault) {
	if depth > maxDepth {
		return dst, tooDeep()
	}
	if d.union(s) {
		return d.appendUnion(dst, s, depth)
	}
	if !s.Optional {
		return d.appendBase(dst, s, depth)
	}
	if s.Default != nil {
		if dst, f = d.appendBase(append(dst, '['), s, depth); f != nil {
			return dst, f
		}
		return append(dst, `,"null"]`...), nil
	}
	dst, f = d.appendBase(append(dst, `["null",`...), s, depth)
	return append(dst, ']'), f
}

func (d *avroDescriber) appendUnion(dst []byte, s *data.Schema, depth int) (_ []byte, f *fault) {
	dst = append(dst, '[')
	if s.Optional {
		dst = append(dst, `"null"`...)
	}
	for i := range s.Fields {
		if i > 0 || s.Optional {
			dst = append(dst, ',')
		}
		if dst, f = d.appendBase(dst, s.Fields[i].Schema, depth+1); f != nil {
			return dst, f.in(s.Fields[i].Name)
		}
	}
	return append(dst, ']'), nil
}

// appendBase appends a schema as if it were not optional.
func (d *avroDescriber) appendBase(dst []byte, s *data.Schema, depth int) (_ []byte, f *fault) {
	start := len(dst)
	dst = append(dst, `{"type":`...)
	switch s.Type {
	case data.Int8, data.Int16, data.Int32:
		dst = append(dst, `"int"`...)
	case data.Int64:
		dst = append(dst, `"long"`...)
	case data.Float32:
		dst = append(dst, `"float"`...)
	case data.Float64:
		dst = append(dst, `"double"`...)
	case data.Boolean:
		dst = append(dst, `"boolean"`...)
	case data.String:
		if d.isEnum(s) {
			dst, f = d.appendEnum(dst, s)
		} else {
			dst = append(dst, `"string"`...)
		}
	case data.Bytes:
		var defined bool
		if dst, defined, f = d.appendBytes(dst, start, s); defined {
			return dst, nil
		}
	case data.Array:
		dst, f = d.append(append(dst, `"array","items":`...), s.Elem, depth+1)
	case data.Map:
		dst, f = d.appendMap(dst, s, depth)
	case data.Struct:
		var defined bool
		if dst, defined, f = d.appendRecord(dst, start, s, depth); defined {
			return dst, nil
		}
	}
	if f != nil {
		return dst, f
	}
	bare := len(dst)
	if dst, f = d.appendProps(dst, s); f != nil {
		return dst, f
	}
	if len(dst) == bare && (s.Type <= data.Bytes) && !d.isEnum(s) && !isFixed(s) { // "int" for {"type":"int"}
		return append(dst[:start], dst[start+len(`{"type":`):]...), nil
	}
	return append(dst, '}'), nil
}

func (d *avroDescriber) appendEnum(dst []byte, s *data.Schema) ([]byte, *fault) {
	key := d.enumKey()
	var symbols []string
	for _, p := range sortedKeys(s.Parameters) {
		if symbol, ok := strings.CutPrefix(p, key+"."); ok {
			symbols = append(symbols, symbol)
		}
	}
	if d.general {
		sortByNumber(symbols, func(symbol string) string { return s.Parameters[key+"."+symbol] })
	}
	name := s.Parameters[key]
	if name == "" {
		return dst, fail("the enum has no name")
	}
	dst = appendFullName(append(dst, `"enum"`...), name)
	simple := name[strings.LastIndexByte(name, '.')+1:]
	doc, def := s.Parameters[avroEnumDoc+simple], s.Parameters[avroEnumDef+simple]
	if d.discardDoc {
		doc, def = s.Parameters[connectEnumDoc], ""
	}
	if doc != "" {
		dst = rawjson.AppendString(append(dst, `,"doc":`...), doc)
	}
	dst = append(dst, `,"symbols":[`...)
	for i, symbol := range symbols {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = rawjson.AppendString(dst, symbol)
	}
	dst = append(dst, ']')
	if def != "" {
		dst = rawjson.AppendString(append(dst, `,"default":`...), def)
	}
	return dst, nil
}

// appendFullName appends name and namespace. A name without a namespace says so, for it may stand inside another.
func appendFullName(dst []byte, full string) []byte {
	space, name := "", full
	if i := strings.LastIndexByte(full, '.'); i >= 0 {
		space, name = full[:i], full[i+1:]
	}
	dst = rawjson.AppendString(append(dst, `,"name":`...), name)
	return rawjson.AppendString(append(dst, `,"namespace":`...), space)
}

func (d *avroDescriber) appendBytes(dst []byte, start int, s *data.Schema) (_ []byte, defined bool, f *fault) {
	if isFixed(s) {
		size, err := strconv.Atoi(s.Parameters[fixedSize])
		if err != nil || size <= 0 {
			return dst, false, fail("the size %q of the fixed is no number", clip(s.Parameters[fixedSize]))
		}
		full, defined, f := d.name(s)
		if defined || f != nil {
			return rawjson.AppendString(dst[:start], full), defined, f
		}
		dst = strconv.AppendInt(append(appendFullName(append(dst, `"fixed"`...), full), `,"size":`...), int64(size), 10)
	} else {
		dst = append(dst, `"bytes"`...)
	}
	if s.Name != data.Decimal {
		return dst, false, nil
	}
	scale, f := scaleOf(s)
	if f != nil {
		return dst, false, f
	}
	precision := defaultPrecision
	if text := s.Parameters[decimalPrecision]; text != "" {
		if n, err := strconv.ParseInt(text, 10, 32); err == nil && n > 0 {
			precision = int(n)
		}
	}
	dst = strconv.AppendInt(append(dst, `,"scale":`...), int64(scale), 10)
	return strconv.AppendInt(append(dst, `,"precision":`...), int64(precision), 10), false, nil
}

func (d *avroDescriber) appendMap(dst []byte, s *data.Schema, depth int) (_ []byte, f *fault) {
	if d.textMap(s) {
		return d.append(append(dst, `"map","values":`...), s.Elem, depth+1)
	}
	dst = append(dst, `"array","items":`...)
	entry := data.NewStruct(s.Name, data.Field{Name: "key", Schema: s.Key}, data.Field{Name: "value", Schema: s.Elem})
	full, defined := "", false
	if s.Name != "" {
		full, defined, f = d.name(entry)
	} else {
		full, defined = d.entryName(entry)
	}
	if f != nil || defined {
		return rawjson.AppendString(dst, full), f
	}
	dst = append(appendFullName(append(dst, `{"type":"record"`...), full), `,"fields":[`...)
	for i := range entry.Fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, f = d.appendField(dst, entry, i, depth); f != nil {
			return dst, f
		}
	}
	dst = append(dst, ']')
	if full != avroSpace+"."+avroMapEntry {
		dst = append(dst, `,"connect.internal.type":"MapEntry"`...)
	}
	return append(dst, '}'), nil
}

// entryName is the name of the entries of a map that has none. Other entries than the first have names of their own.
func (d *avroDescriber) entryName(entry *data.Schema) (full string, defined bool) {
	for i := 1; ; i++ {
		full = avroSpace + "." + avroMapEntry
		if i > 1 {
			full += strconv.Itoa(i)
		}
		before, ok := d.named[full]
		if !ok {
			d.named[full] = entry
			return full, false
		}
		if sameFields(before, entry) {
			return full, true
		}
	}
}

func (d *avroDescriber) appendRecord(dst []byte, start int, s *data.Schema, depth int) (
	_ []byte, defined bool, f *fault,
) {
	full, defined, f := d.name(s)
	if defined || f != nil {
		return rawjson.AppendString(dst[:start], full), defined, f
	}
	if d.first == "" {
		d.first = full
	}
	dst = appendFullName(append(dst, `"record"`...), full)
	doc := s.Parameters[avroRecordDoc]
	if d.discardDoc {
		doc = s.Parameters[connectRecordDoc]
	}
	if doc != "" {
		dst = rawjson.AppendString(append(dst, `,"doc":`...), doc)
	}
	dst = append(dst, `,"fields":[`...)
	for i := range s.Fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, f = d.appendField(dst, s, i, depth); f != nil {
			return dst, false, f.in(s.Fields[i].Name)
		}
	}
	return append(dst, ']'), false, nil
}

// fieldName is the name of a field in Avro.
func (l *avroLanguage) fieldName(name string) string {
	if l.scrub {
		return scrub(name, false)
	}
	return name
}

func (d *avroDescriber) appendField(dst []byte, s *data.Schema, i, depth int) (_ []byte, f *fault) {
	field := &s.Fields[i]
	dst = rawjson.AppendString(append(dst, `{"name":`...), d.fieldName(field.Name))
	start := len(dst)
	if dst, f = d.append(append(dst, `,"type":`...), field.Schema, depth+1); f != nil {
		return dst, f
	}
	reference := dst[start] != 0 && d.isReference(dst[start+len(`,"type":`):])
	doc := s.Parameters[avroFieldDoc+field.Name]
	if d.discardDoc {
		doc = field.Schema.Doc
	}
	if doc != "" {
		dst = rawjson.AppendString(append(dst, `,"doc":`...), doc)
	}
	switch def := field.Schema.Default; {
	case def != nil:
		if d.fits(field.Schema, def) {
			if dst, f = d.appendValue(append(dst, `,"default":`...), field.Schema, def); f != nil {
				return dst, f
			}
		}
	case field.Schema.Optional:
		dst = append(dst, `,"default":null`...)
	}
	if params := d.parameters(field.Schema); reference && d.metadata && len(params) > 0 {
		dst = appendStrings(append(dst, `,"connect.parameters":`...), params)
	}
	return append(dst, '}'), nil
}

// isReference says whether the text of a type is the name of one that is defined elsewhere.
func (d *avroDescriber) isReference(text []byte) bool {
	name := strings.Trim(strings.TrimSuffix(strings.TrimPrefix(string(text), `["null",`), `,"null"]`), `[]"`)
	if _, ok := d.named[name]; ok {
		return true
	}
	return strings.HasPrefix(name, avroSpace+"."+avroDefault)
}

// parameters are those that are kept.
func (l *avroLanguage) parameters(s *data.Schema) map[string]string {
	if l.discardDoc || s.Parameters[avroFieldDef] == "" {
		return s.Parameters
	}
	out := make(map[string]string, len(s.Parameters))
	for k, v := range s.Parameters {
		if k != avroFieldDef {
			out[k] = v
		}
	}
	return out
}

// appendProps appends the properties that keep what Avro does not say, in the order of Confluent's converter.
func (d *avroDescriber) appendProps(dst []byte, s *data.Schema) (_ []byte, f *fault) {
	if d.metadata {
		if s.Doc != "" {
			dst = rawjson.AppendString(append(dst, `,"connect.doc":`...), s.Doc)
		}
		if s.Version != 0 {
			dst = strconv.AppendInt(append(dst, `,"connect.version":`...), int64(s.Version), 10)
		}
		if params := d.parameters(s); len(params) > 0 {
			dst = appendStrings(append(dst, `,"connect.parameters":`...), params)
		}
		if s.Default != nil && (d.discardDoc || s.Parameters[avroFieldDef] == "" || !d.fits(s, s.Default)) {
			if dst, f = d.appendValue(append(dst, `,"connect.default":`...), s, s.Default); f != nil {
				return dst, f
			}
		}
		if s.Name != "" {
			dst = rawjson.AppendString(append(dst, `,"connect.name":`...), s.Name)
		}
		switch s.Type {
		case data.Int8, data.Int16:
			dst = append(append(append(dst, `,"connect.type":"`...), s.Type.String()...), '"')
		}
	}
	dst = append(dst, logicalProp(s)...)
	for _, k := range sortedKeys(s.Parameters) {
		if strings.HasPrefix(k, "avro") {
			dst = rawjson.AppendString(append(rawjson.AppendString(append(dst, ','), k), ':'), s.Parameters[k])
		}
	}
	return dst, nil
}

// logicalProp is the logical type of a schema as a property.
func logicalProp(s *data.Schema) string {
	switch {
	case s.Name == data.Decimal && s.Type == data.Bytes:
		return `,"logicalType":"decimal"`
	case s.Name == data.Date && s.Type == data.Int32:
		return `,"logicalType":"date"`
	case s.Name == data.Time && s.Type == data.Int32:
		return `,"logicalType":"time-millis"`
	case s.Name == data.Timestamp && s.Type == data.Int64:
		return `,"logicalType":"timestamp-millis"`
	}
	return ""
}

// fits says whether a value can be a default in Avro: where a union is, only a value of its first type can.
func (d *avroDescriber) fits(s *data.Schema, v any) bool {
	if v == nil {
		return s.Optional && s.Default == nil
	}
	return d.fitsBase(s, v)
}

func (d *avroDescriber) fitsInside(s *data.Schema, v any) bool {
	if s.Optional && (s.Default == nil) != (v == nil) {
		return false
	}
	return v == nil || d.fitsBase(s, v)
}

func (d *avroDescriber) fitsBase(s *data.Schema, v any) bool {
	switch x := v.(type) {
	case float32:
		return !math.IsNaN(float64(x)) && !math.IsInf(float64(x), 0)
	case float64:
		return !math.IsNaN(x) && !math.IsInf(x, 0)
	case []any:
		for _, e := range x {
			if s.Elem == nil || !d.fitsInside(s.Elem, e) {
				return false
			}
		}
	case map[string]any, []data.Entry:
		return each(s, v, func(key, value any) *fault {
			if s.Elem == nil || !d.fitsInside(s.Elem, value) || !d.fitsInside(s.Key, key) {
				return fail("no")
			}
			return nil
		}) == nil
	case *data.StructValue:
		if d.union(s) || len(x.Values) != len(s.Fields) {
			return false
		}
		for i := range x.Values {
			if !d.fitsInside(s.Fields[i].Schema, x.Values[i]) {
				return false
			}
		}
	}
	return true
}

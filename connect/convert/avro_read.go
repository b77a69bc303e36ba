package convert

import (
	"context"
	"encoding/binary"
	"maps"
	"math"
	"strconv"
	"strings"

	"millrace/api/rawjson"
	"millrace/connect/data"
	"millrace/schemaregistry/avro"
	"millrace/schemaregistry/serde"
)

// avroReader reads values of a type in Avro. Bytes are checked before.
type avroReader struct {
	schema   *data.Schema
	kind     string
	branches []*avroReader // of a union; nil where the type is null
	choice   []int         // of a union that is a struct: the field of each branch
	fields   []*avroReader
	item     *avroReader
	key      *avroReader // of a map in an array
	symbols  []string
	size     int
}

// avroNote is what the place of a type says of it.
type avroNote struct {
	optional bool
	def      []byte // the default of a record's field, as JSON
	doc      string
}

// maxSchemaParts bounds the types that a schema has, where each that occurs twice counts twice.
const maxSchemaParts = 20_000

// avroCompiler makes the readers of a schema.
type avroCompiler struct {
	*avroLanguage
	parts  int
	open   []avro.Type // the records that are being made
	unions int
}

// reader implements language.
func (l *avroLanguage) reader(_ context.Context, o *serde.Opened, version int) (*data.Schema, readFunc, *fault) {
	a, ok := o.Schema.(*avro.Schema)
	if !ok {
		return nil, nil, fail("it is no schema in Avro")
	}
	root := a.Root()
	if isAnything(root) {
		return nil, func(b []byte) (any, *fault) {
			p := avroBytesReader{b: b}
			return p.anything()
		}, nil
	}
	c := &avroCompiler{avroLanguage: l}
	r, f := c.compile(root, avroNote{}, 0)
	if f != nil {
		return nil, nil, f
	}
	if r.schema.Version == 0 {
		r.schema.Version = version
	}
	if root.Kind() == "bytes" {
		return r.schema, func(b []byte) (any, *fault) { return b, nil }, nil
	}
	return r.schema, func(b []byte) (any, *fault) {
		p := avroBytesReader{b: b}
		return p.read(r)
	}, nil
}

func propString(text []byte) string {
	s, _ := rawjson.Text(text)
	return string(s)
}

func (c *avroCompiler) compile(t avro.Type, note avroNote, depth int) (*avroReader, *fault) {
	if depth > maxDepth {
		return nil, tooDeep()
	}
	if c.parts++; c.parts > maxSchemaParts {
		return nil, fail("the schema has more than %d parts", maxSchemaParts)
	}
	r := &avroReader{kind: t.Kind(), schema: &data.Schema{Parameters: map[string]string{}}}
	if r.kind == "union" {
		if done, f := c.compileUnion(r, t, note, depth); done || f != nil {
			return r, f
		}
	} else if f := c.compileType(r, t, depth); f != nil {
		return nil, f
	}
	if f := c.annotate(r.schema, t, note); f != nil {
		return nil, f
	}
	r.schema.Optional = r.schema.Optional || note.optional
	if len(r.schema.Parameters) == 0 {
		r.schema.Parameters = nil
	}
	if r.schema.Type == data.Struct {
		r.schema.Index()
	}
	return r, nil
}

func (c *avroCompiler) compileType(r *avroReader, t avro.Type, depth int) (f *fault) {
	s := r.schema
	switch r.kind {
	case "boolean":
		s.Type = data.Boolean
	case "int":
		return intSchema(s, t)
	case "long":
		s.Type = data.Int64
		if propString(t.Prop("logicalType")) == "timestamp-millis" {
			s.Name, s.Version = data.Timestamp, 1
		}
	case "float":
		s.Type = data.Float32
	case "double":
		s.Type = data.Float64
	case "string":
		s.Type = data.String
	case "bytes", "fixed":
		r.size = -1
		if r.kind == "fixed" {
			r.size = t.Size()
		}
		return bytesSchema(s, t)
	case "enum":
		r.symbols = t.Symbols()
		c.enumSchema(s, t)
	case "array":
		return c.compileArray(r, t, depth)
	case "map":
		s.Type, s.Key = data.Map, &data.Schema{Type: data.String}
		if r.item, f = c.compile(t.Item(), avroNote{}, depth+1); f == nil {
			s.Elem = r.item.schema
		}
		return f
	case "record":
		return c.compileRecord(r, t, depth)
	default:
		return fail("a value that is always null has no type in Connect")
	}
	return nil
}

func intSchema(s *data.Schema, t avro.Type) *fault {
	s.Type = data.Int32
	logical := propString(t.Prop("logicalType"))
	switch {
	case logical == "date":
		s.Name, s.Version = data.Date, 1
	case logical == "time-millis":
		s.Name, s.Version = data.Time, 1
	case logical != "":
	default:
		switch name := propString(t.Prop(connectType)); name {
		case "int8":
			s.Type = data.Int8
		case "int16":
			s.Type = data.Int16
		case "", "int32":
		default:
			return fail("an int of the Connect type %q is none", clip(name))
		}
	}
	return nil
}

func bytesSchema(s *data.Schema, t avro.Type) *fault {
	s.Type = data.Bytes
	if propString(t.Prop("logicalType")) == "decimal" {
		s.Name, s.Version = data.Decimal, 1
		scale := t.Prop("scale")
		if _, ok := rawjson.Int64(scale); !ok {
			scale = []byte("0")
		}
		s.Parameters[data.ScaleKey] = string(scale)
		if p, ok := rawjson.Int64(t.Prop("precision")); ok && p != defaultPrecision {
			s.Parameters[decimalPrecision] = strconv.FormatInt(p, 10)
		}
		if _, f := scaleOf(s); f != nil {
			return f
		}
	}
	if t.Kind() == "fixed" {
		s.Parameters[fixedSize] = strconv.Itoa(t.Size())
	}
	return nil
}

func (c *avroCompiler) enumSchema(s *data.Schema, t avro.Type) {
	s.Type = data.String
	simple := t.Name()[strings.LastIndexByte(t.Name(), '.')+1:]
	if c.metadata {
		if doc := t.Doc(); doc != "" && c.discardDoc {
			s.Parameters[connectEnumDoc] = doc
		} else if doc != "" {
			s.Parameters[avroEnumDoc+simple] = doc
		}
		if def := t.DefaultSymbol(); def != "" && !c.discardDoc {
			s.Parameters[avroEnumDef+simple] = def
		}
	}
	key := c.enumKey()
	s.Parameters[key] = t.Name()
	for i, symbol := range t.Symbols() {
		s.Parameters[key+"."+symbol] = symbol
		if c.general {
			s.Parameters[key+"."+symbol] = strconv.Itoa(i)
		}
	}
}

func (c *avroCompiler) compileArray(r *avroReader, t avro.Type, depth int) (f *fault) {
	if !isMapEntry(t.Item()) {
		r.schema.Type = data.Array
		if r.item, f = c.compile(t.Item(), avroNote{}, depth+1); f == nil {
			r.schema.Elem = r.item.schema
		}
		return f
	}
	fields := t.Item().Fields()
	r.schema.Type = data.Map
	if r.key, f = c.compile(fields[0].Type(), avroNote{}, depth+1); f != nil {
		return f.in("key")
	}
	if r.item, f = c.compile(fields[1].Type(), avroNote{}, depth+1); f != nil {
		return f.in("value")
	}
	r.schema.Key, r.schema.Elem = r.key.schema, r.item.schema
	return nil
}

func (c *avroCompiler) compileRecord(r *avroReader, t avro.Type, depth int) *fault {
	for _, o := range c.open {
		if o.Same(t) {
			return fail("the record %s holds itself, which no schema of Connect can say here", clip(t.Name()))
		}
	}
	c.open = append(c.open, t)
	s := r.schema
	s.Type = data.Struct
	docs := !c.discardDoc && c.metadata
	if doc := t.Doc(); doc != "" && docs {
		s.Parameters[avroRecordDoc] = doc
	}
	for _, field := range t.Fields() {
		if field.Doc() != "" && docs {
			s.Parameters[avroFieldDoc+field.Name()] = field.Doc()
		}
		of, f := c.compile(field.Type(), avroNote{def: field.Default(), doc: field.Doc()}, depth+1)
		if f != nil {
			return f.in(field.Name())
		}
		if params := field.Prop(connectParameters); params != nil && c.metadata {
			own, f := stringsOf(params)
			if f != nil {
				return f.in(field.Name())
			}
			of.schema = withParameters(of.schema, own)
		}
		r.fields = append(r.fields, of)
		s.Fields = append(s.Fields, data.Field{Name: field.Name(), Schema: of.schema})
	}
	c.open = c.open[:len(c.open)-1]
	return nil
}

// withParameters is a schema with more parameters.
func withParameters(s *data.Schema, more map[string]string) *data.Schema {
	o := *s
	o.Parameters = maps.Clone(s.Parameters)
	if o.Parameters == nil {
		o.Parameters = map[string]string{}
	}
	maps.Copy(o.Parameters, more)
	return &o
}

func stringsOf(text []byte) (map[string]string, *fault) {
	m, f := membersOf(text)
	if f != nil {
		return nil, f
	}
	out := make(map[string]string, len(m.members))
	for name := range m.members {
		if out[name], f = m.text(name); f != nil {
			return nil, f
		}
	}
	return out, nil
}

// compileUnion makes the reader of a union: of an optional value, or of a struct with a field for each type.
func (c *avroCompiler) compileUnion(r *avroReader, t avro.Type, note avroNote, depth int) (done bool, f *fault) {
	branches := t.Branches()
	r.branches = make([]*avroReader, len(branches))
	single, nulls := -1, 0
	for i, b := range branches {
		if b.Kind() == "null" {
			nulls++
		} else {
			single = i
		}
	}
	if single >= 0 && len(branches) == nulls+1 && (nulls > 0 || c.flatten) {
		r.branches[single], f = c.compile(branches[single], avroNote{optional: nulls > 0, doc: note.doc}, depth+1)
		if f == nil {
			r.schema = r.branches[single].schema
		}
		return true, f
	}
	r.choice = make([]int, len(branches))
	s := r.schema
	s.Type, s.Name = data.Struct, avroUnion
	if c.general {
		s.Name = "connect_union_" + strconv.Itoa(c.unions)
		s.Parameters[generalUnion] = s.Name
		c.unions++
	}
	names := map[string]bool{}
	for i, b := range branches {
		if b.Kind() == "null" {
			s.Optional = true
			continue
		}
		name := c.memberName(b, i)
		if names[name] {
			return false, fail("two types of the union have the name %s; %s=true tells them apart", clip(name), avroEnhanced)
		}
		names[name] = true
		if r.branches[i], f = c.compile(b, avroNote{optional: true}, depth+1); f != nil {
			return false, f.in(name)
		}
		r.choice[i] = len(s.Fields)
		s.Fields = append(s.Fields, data.Field{Name: name, Schema: r.branches[i].schema})
	}
	s.Index()
	return false, nil
}

// memberName is the field that a type of a union has in a struct.
func (l *avroLanguage) memberName(t avro.Type, i int) string {
	name := t.Name()
	switch {
	case l.general:
		return "connect_union_field_" + strconv.Itoa(i)
	case name == "":
		return t.Kind()
	case l.enhanced:
		return name
	default:
		return name[strings.LastIndexByte(name, '.')+1:]
	}
}

// annotate adds to a schema what the properties of a type say.
func (c *avroCompiler) annotate(s *data.Schema, t avro.Type, note avroNote) *fault {
	c.document(s, t, note)
	if v, ok := rawjson.Int64(t.Prop(connectVersion)); ok && v > 0 && v <= math.MaxInt32 {
		s.Version = int(v)
	}
	if params := t.Prop(connectParameters); params != nil && c.metadata {
		own, f := stringsOf(params)
		if f != nil {
			return f
		}
		maps.Copy(s.Parameters, own)
	}
	for _, name := range t.Props() {
		if strings.HasPrefix(name, "avro") {
			value := t.Prop(name)
			if text, ok := rawjson.Text(value); ok {
				value = text
			}
			s.Parameters[name] = string(value)
		}
	}
	if f := c.named(s, t); f != nil {
		return f
	}
	def := t.Prop(connectDefault)
	if note.def != nil && !rawjson.IsNull(note.def) {
		if def == nil && !c.discardDoc && c.metadata {
			s.Parameters[avroFieldDef] = "true"
		}
		def = note.def
	}
	if def != nil {
		if v, f := c.readValue(&rawjson.Cursor{Data: def}, s, 0); f == nil { // one that does not fit is none
			s.Default = v
		}
	}
	return nil
}

func (c *avroCompiler) document(s *data.Schema, t avro.Type, note avroNote) {
	own := propString(t.Prop(connectDoc))
	if !c.discardDoc {
		if c.metadata {
			s.Doc = own
		}
		return
	}
	switch doc := ""; {
	case note.doc != "":
		s.Doc = note.doc
	case t.Kind() == "record" || t.Kind() == "enum" || t.Kind() == "fixed":
		doc = t.Doc()
		fallthrough
	default:
		if s.Doc = doc; doc == "" {
			s.Doc = own
		}
	}
	if c.metadata && t.Kind() == "record" && t.Doc() != "" {
		s.Parameters[connectRecordDoc] = t.Doc()
	}
}

// named gives a schema the name that its type has.
func (c *avroCompiler) named(s *data.Schema, t avro.Type) *fault {
	name := propString(t.Prop(connectName))
	if name == "" && s.Name == "" {
		name = t.Name()
	}
	if name == "" || strings.HasPrefix(name, avroSpace+"."+avroDefault) {
		return nil
	}
	if s.Name != "" && s.Name != name {
		return fail("the name %s stands for the logical type %s", clip(name), s.Name)
	}
	s.Name = name
	return nil
}

// avroBytesReader reads the bytes of a value.
type avroBytesReader struct {
	b []byte
}

func (p *avroBytesReader) long() int64 {
	if len(p.b) > 0 && p.b[0] < 0x80 {
		u := p.b[0]
		p.b = p.b[1:]
		return int64(u>>1) ^ -int64(u&1)
	}
	n, size := binary.Varint(p.b)
	p.b = p.b[max(size, 0):]
	return n
}

func (p *avroBytesReader) take(n int) []byte {
	n = min(max(n, 0), len(p.b))
	out := p.b[:n:n]
	p.b = p.b[n:]
	return out
}

func (p *avroBytesReader) read(r *avroReader) (any, *fault) {
	switch r.kind {
	case "boolean":
		b := p.take(1)
		return len(b) == 1 && b[0] == 1, nil
	case "int":
		return r.int(p.long())
	case "long":
		return p.long(), nil
	case "float":
		var b [4]byte
		copy(b[:], p.take(4))
		return math.Float32frombits(binary.LittleEndian.Uint32(b[:])), nil
	case "double":
		var b [8]byte
		copy(b[:], p.take(8))
		return math.Float64frombits(binary.LittleEndian.Uint64(b[:])), nil
	case "string":
		return string(p.take(int(p.long()))), nil
	case "bytes":
		return p.take(int(p.long())), nil
	case "fixed":
		return p.take(r.size), nil
	case "enum":
		return r.symbols[p.long()], nil
	case "union":
		return p.union(r)
	case "record":
		v := data.New(r.schema)
		for i := range r.fields {
			var f *fault
			if v.Values[i], f = p.read(r.fields[i]); f != nil {
				return nil, f.in(r.schema.Fields[i].Name)
			}
		}
		return v, nil
	default:
		return p.blocks(r)
	}
}

func (r *avroReader) int(n int64) (any, *fault) {
	switch r.schema.Type {
	case data.Int8:
		if n != int64(int8(n)) {
			return nil, fail("the number is too large for an int8")
		}
		return int8(n), nil
	case data.Int16:
		if n != int64(int16(n)) {
			return nil, fail("the number is too large for an int16")
		}
		return int16(n), nil
	}
	return int32(n), nil
}

func (p *avroBytesReader) union(r *avroReader) (any, *fault) {
	i := p.long()
	b := r.branches[i]
	if b == nil {
		return nil, nil
	}
	v, f := p.read(b)
	if r.choice == nil || f != nil {
		return v, f
	}
	s := data.New(r.schema)
	s.Values[r.choice[i]] = v
	return s, nil
}

// blocks reads an array or a map.
func (p *avroBytesReader) blocks(r *avroReader) (any, *fault) {
	var (
		list    = []any{}
		entries = []data.Entry{}
		texts   map[string]any
	)
	if r.kind == "map" {
		texts = map[string]any{}
	}
	for {
		count := p.long()
		if count == 0 {
			break
		}
		if count < 0 {
			count = -count
			p.long() // the size of the block
		}
		for range count {
			var (
				key any
				f   *fault
			)
			if texts != nil {
				key = string(p.take(int(p.long())))
			} else if r.key != nil {
				if key, f = p.read(r.key); f != nil {
					return nil, f.in("key")
				}
			}
			v, f := p.read(r.item)
			switch {
			case f != nil:
				return nil, f
			case texts != nil:
				texts[key.(string)] = v
			case r.key != nil:
				entries = append(entries, data.Entry{Key: key, Value: v})
			default:
				list = append(list, v)
			}
		}
	}
	switch {
	case texts != nil:
		return texts, nil
	case r.key == nil:
		return list, nil
	case r.key.schema.Type == data.String:
		return textKeys(entries), nil
	default:
		return entries, nil
	}
}

// isAnything says whether a type is that of values without a schema.
func isAnything(t avro.Type) bool {
	if t.Kind() != "record" || t.Name() != avroAnything || len(t.Fields()) != anyFields {
		return false
	}
	kinds := [anyFields]string{"boolean", "bytes", "double", "float", "int", "long", "string", "array", "array"}
	for i, field := range t.Fields() {
		if field.Type().Kind() != "union" || len(field.Type().Branches()) != 2 {
			return false
		}
		null, of := field.Type().Branches()[0], field.Type().Branches()[1]
		if null.Kind() != "null" || of.Kind() != kinds[i] || i == anyArray && !of.Item().Same(t) {
			return false
		}
		if i == anyMap {
			if !isMapEntry(of.Item()) {
				return false
			}
			for _, part := range of.Item().Fields() {
				if !part.Type().Same(t) {
					return false
				}
			}
		}
	}
	return true
}

// anything reads a value of Anything.
func (p *avroBytesReader) anything() (v any, _ *fault) {
	for i := range anyFields {
		if p.long() == 0 {
			continue
		}
		switch i {
		case anyBoolean:
			v = p.take(1)[0] == 1
		case anyBytes:
			v = p.take(int(p.long()))
		case anyDouble:
			v = math.Float64frombits(binary.LittleEndian.Uint64(p.take(8)))
		case anyFloat:
			v = math.Float32frombits(binary.LittleEndian.Uint32(p.take(4)))
		case anyInt:
			v = int32(p.long())
		case anyLong:
			v = p.long()
		case anyString:
			v = string(p.take(int(p.long())))
		default:
			var f *fault
			if v, f = p.anyBlocks(i == anyMap); f != nil {
				return nil, f
			}
		}
	}
	return v, nil
}

func (p *avroBytesReader) anyBlocks(isMap bool) (any, *fault) {
	list, entries := []any{}, []data.Entry{}
	for {
		count := p.long()
		if count == 0 {
			break
		}
		if count < 0 {
			count = -count
			p.long()
		}
		for range count {
			v, f := p.anything()
			if f != nil {
				return nil, f
			}
			if !isMap {
				list = append(list, v)
				continue
			}
			e := data.Entry{Key: v}
			if e.Value, f = p.anything(); f != nil {
				return nil, f
			}
			entries = append(entries, e)
		}
	}
	if isMap {
		return textKeys(entries), nil
	}
	return list, nil
}

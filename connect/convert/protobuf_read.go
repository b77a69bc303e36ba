package convert

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"millrace/connect/data"
	"millrace/schemaregistry/protobuf"
	"millrace/schemaregistry/serde"
)

// protoReader reads messages of one type. Bytes are checked before.
type protoReader struct {
	schema  *data.Schema
	logical string
	scale   int
	wrapped *protoSlot // of a message that holds one value
	slots   map[protowire.Number]*protoSlot
	absent  []any // what fields are that are not in the message
}

// protoSlot is a field of a message.
type protoSlot struct {
	number  protowire.Number
	schema  *data.Schema // of one value
	field   int          // of the struct
	choice  int          // of the union that the field is, or -1
	union   *data.Schema // nil: it is in none
	kind    protoreflect.Kind
	list    bool
	entry   bool // of a map
	key     *protoSlot
	value   *protoSlot
	message *protoReader
	symbols map[int32]string
	enum    string
}

// protoCompiler makes the readers of a schema.
type protoCompiler struct {
	*protoLanguage
	parts int
	open  []protoreflect.FullName
}

// reader implements language.
func (l *protoLanguage) reader(_ context.Context, o *serde.Opened, version int) (*data.Schema, readFunc, *fault) {
	d, err := protobuf.Descriptor(o.Schema, o.Index)
	if err != nil {
		return nil, nil, &fault{err: err}
	}
	c := &protoCompiler{protoLanguage: l}
	var r *protoReader
	var f *fault
	if l.raw && isWrapper(d) {
		r, f = c.single(d)
	} else {
		r, f = c.message(d)
	}
	if f != nil {
		return nil, nil, f
	}
	if r.schema.Version == 0 {
		r.schema.Version = version
	}
	return r.schema, func(b []byte) (any, *fault) {
		p := protoDecoder{slots: spareSlots + timesSlots*len(b)}
		return p.message(r, b, nil)
	}, nil
}

func (c *protoCompiler) message(d protoreflect.MessageDescriptor) (*protoReader, *fault) {
	for _, name := range c.open {
		if name == d.FullName() {
			return nil, fail("the message %s holds itself, which no schema of Connect can say here", name)
		}
	}
	if len(c.open) > maxDepth {
		return nil, tooDeep()
	}
	c.open = append(c.open, d.FullName())
	defer func() { c.open = c.open[:len(c.open)-1] }()
	s := &data.Schema{Type: data.Struct, Name: c.name(d)}
	r := &protoReader{schema: s, slots: map[protowire.Number]*protoSlot{}}
	for i := range d.Oneofs().Len() {
		if one := d.Oneofs().Get(i); !one.IsSynthetic() {
			if f := c.oneof(r, one, i); f != nil {
				return nil, f
			}
		}
	}
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		if one := fd.ContainingOneof(); one != nil && !one.IsSynthetic() {
			continue
		}
		if f := c.add(r, fd, false); f != nil {
			return nil, f
		}
	}
	s.Index()
	return r, nil
}

func (c *protoCompiler) name(d protoreflect.Descriptor) string {
	if c.enhanced {
		return string(d.FullName())
	}
	return string(d.Name())
}

// add adds a field to a struct.
func (c *protoCompiler) add(r *protoReader, fd protoreflect.FieldDescriptor, member bool) *fault {
	slot, s, f := c.field(fd, member)
	if f != nil {
		return f.in(string(fd.Name()))
	}
	slot.field, slot.choice = len(r.schema.Fields), -1
	r.slots[fd.Number()] = slot
	r.schema.Fields = append(r.schema.Fields, data.Field{Name: string(fd.Name()), Schema: s})
	r.absent = append(r.absent, c.absent(slot, fd, member))
	return nil
}

func (c *protoCompiler) oneof(r *protoReader, one protoreflect.OneofDescriptor, index int) *fault {
	if c.flatten {
		for i := range one.Fields().Len() {
			if f := c.add(r, one.Fields().Get(i), true); f != nil {
				return f
			}
		}
		return nil
	}
	u := &data.Schema{Type: data.Struct, Optional: true, Name: protobufUnion + "." + c.name(one)}
	if c.general {
		u.Name = string(one.Name())
		u.Parameters = map[string]string{generalUnion: u.Name}
	}
	for i := range one.Fields().Len() {
		fd := one.Fields().Get(i)
		slot, s, f := c.field(fd, true)
		if f != nil {
			return f.in(string(fd.Name()))
		}
		slot.field, slot.choice, slot.union = len(r.schema.Fields), i, u
		r.slots[fd.Number()] = slot
		u.Fields = append(u.Fields, data.Field{Name: string(fd.Name()), Schema: s})
	}
	u.Index()
	name := string(one.Name())
	if c.index {
		name += "_" + strconv.Itoa(index)
	}
	r.schema.Fields = append(r.schema.Fields, data.Field{Name: name, Schema: u})
	r.absent = append(r.absent, nil)
	return nil
}

// isOptional says whether a field tells that it is not set from that it is zero, by its label.
func (c *protoCompiler) isOptional(fd protoreflect.FieldDescriptor) bool {
	return fd.HasOptionalKeyword() && (c.proto2 || fd.ParentFile().Syntax() != protoreflect.Proto2)
}

// absent is the value of a field that a message does not have.
func (c *protoCompiler) absent(slot *protoSlot, fd protoreflect.FieldDescriptor, member bool) any {
	switch {
	case slot.entry:
		if slot.key.schema.Type == data.String {
			return map[string]any{}
		}
		return []data.Entry{}
	case slot.list:
		return []any{}
	case slot.message != nil:
		if c.structs && !member && slot.message.logical == "" && slot.message.wrapped == nil {
			p := protoDecoder{slots: spareSlots}
			if v, f := p.message(slot.message, nil, nil); f == nil {
				return v
			}
		}
		return nil
	case member || c.isOptional(fd):
		return nil
	}
	if fd.HasDefault() {
		if v, f := slot.defaultOf(fd); f == nil {
			return v
		}
	}
	return slot.number64(0)
}

// field makes the slot of a field, and the schema that it has in its struct.
func (c *protoCompiler) field(fd protoreflect.FieldDescriptor, member bool) (*protoSlot, *data.Schema, *fault) {
	if c.parts++; c.parts > maxSchemaParts {
		return nil, nil, fail("the schema has more than %d parts", maxSchemaParts)
	}
	slot := &protoSlot{number: fd.Number(), kind: fd.Kind(), choice: -1}
	s, f := c.typeOf(slot, fd)
	if f != nil {
		return nil, nil, f
	}
	slot.schema = s
	if fd.IsList() && !slot.entry || slot.entry {
		slot.list = !slot.entry
	}
	if slot.list {
		s.Optional = true
		s = &data.Schema{Type: data.Array, Elem: s, Optional: true}
	}
	switch {
	case member:
		s.Optional = true
		if c.wrapper && slot.message != nil && slot.message.wrapped != nil {
			param(s, protoWrapper, "true")
		}
	case c.optional:
		s.Optional = s.Optional || fd.HasOptionalKeyword()
	case !c.wrapper:
		s.Optional = true
	}
	param(s, protoTag, strconv.Itoa(int(fd.Number())))
	return slot, s, nil
}

func param(s *data.Schema, name, value string) {
	if s.Parameters == nil {
		s.Parameters = map[string]string{}
	}
	s.Parameters[name] = value
}

// typeOf is the schema of one value of a field.
func (c *protoCompiler) typeOf(slot *protoSlot, fd protoreflect.FieldDescriptor) (*data.Schema, *fault) {
	s := &data.Schema{}
	switch fd.Kind() {
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		s.Type = smallType(metaOf(fd))
		if s.Type == data.Int32 && fd.Kind() != protoreflect.Int32Kind {
			param(s, protoType, fd.Kind().String())
		}
	case protoreflect.Int64Kind:
		s.Type = data.Int64
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Uint64Kind, protoreflect.Sint64Kind,
		protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind:
		s.Type = data.Int64
		param(s, protoType, fd.Kind().String())
	case protoreflect.FloatKind:
		s.Type = data.Float32
	case protoreflect.DoubleKind:
		s.Type = data.Float64
	case protoreflect.BoolKind:
		s.Type = data.Boolean
	case protoreflect.StringKind:
		s.Type = data.String
	case protoreflect.BytesKind:
		s.Type = data.Bytes
	case protoreflect.EnumKind:
		c.enum(s, slot, fd.Enum())
	default:
		return c.messageType(slot, fd)
	}
	return s, nil
}

// smallType is the type of a number of 32 bits, which may stand for a smaller one.
func smallType(meta map[string]string) data.Type {
	switch meta[connectType] {
	case "int8":
		return data.Int8
	case "int16":
		return data.Int16
	}
	return data.Int32
}

func (c *protoCompiler) enum(s *data.Schema, slot *protoSlot, e protoreflect.EnumDescriptor) {
	s.Type, s.Name, s.Optional = data.String, c.name(e), true
	slot.enum = string(e.Name())
	if c.intEnums {
		s.Type = data.Int32
	} else {
		slot.symbols = map[int32]string{}
	}
	param(s, c.enumKey(), string(e.Name()))
	for i := range e.Values().Len() {
		v := e.Values().Get(i)
		param(s, c.enumKey()+"."+string(v.Name()), strconv.Itoa(int(v.Number())))
		if _, twice := slot.symbols[int32(v.Number())]; !twice && slot.symbols != nil {
			slot.symbols[int32(v.Number())] = string(v.Name())
		}
	}
}

func (c *protoCompiler) messageType(slot *protoSlot, fd protoreflect.FieldDescriptor) (*data.Schema, *fault) {
	d := fd.Message()
	if isEntry(fd) {
		return c.mapType(slot, d)
	}
	logical := map[string]string{
		protoDecimal: data.Decimal, protoDate: data.Date, protoTime: data.Time, protoTimestamp: data.Timestamp,
	}[string(d.FullName())]
	var f *fault
	switch {
	case logical != "":
		s := &data.Schema{Type: data.Int32, Name: logical, Version: 1}
		slot.message = &protoReader{schema: s, logical: logical}
		switch logical {
		case data.Timestamp:
			s.Type = data.Int64
		case data.Decimal:
			slot.message.scale, f = decimalSchema(s, metaOf(fd))
		}
	case c.wrapper && isWrapper(d):
		if slot.message, f = c.single(d); f == nil && slot.message.schema.Type == data.Int32 {
			slot.message.schema.Type = smallType(metaOf(fd))
		}
	default:
		slot.message, f = c.message(d)
	}
	if f != nil {
		return nil, f
	}
	slot.message.schema.Optional = true
	return slot.message.schema, nil
}

func decimalSchema(s *data.Schema, meta map[string]string) (int, *fault) {
	s.Type = data.Bytes
	param(s, data.ScaleKey, "0")
	if scale := meta["scale"]; scale != "" {
		param(s, data.ScaleKey, scale)
	}
	if p := meta["precision"]; p != "" {
		param(s, decimalPrecision, p)
	}
	return scaleOf(s)
}

// single makes the reader of a message that holds one value.
func (c *protoCompiler) single(d protoreflect.MessageDescriptor) (*protoReader, *fault) {
	slot := &protoSlot{number: 1, kind: d.Fields().ByNumber(1).Kind(), choice: -1}
	s, f := c.typeOf(slot, d.Fields().ByNumber(1))
	if f != nil {
		return nil, f
	}
	s.Parameters = nil
	slot.schema = s
	return &protoReader{schema: s, wrapped: slot}, nil
}

func (c *protoCompiler) mapType(slot *protoSlot, d protoreflect.MessageDescriptor) (*data.Schema, *fault) {
	key, ks, f := c.field(d.Fields().ByNumber(1), false)
	if f != nil {
		return nil, f.in("key")
	}
	value, vs, f := c.field(d.Fields().ByNumber(2), false)
	if f != nil {
		return nil, f.in("value")
	}
	slot.entry, slot.key, slot.value = true, key, value
	name := c.name(d)
	return &data.Schema{Type: data.Map, Key: ks, Elem: vs, Optional: true,
		Name: lowerUnderscore(name[:len(name)-len("Entry")])}, nil
}

// metaOf are the parameters that Confluent's options keep with a field.
func metaOf(fd protoreflect.FieldDescriptor) map[string]string {
	const metaNumber, paramsNumber = 1088, 2
	options, err := proto.Marshal(fd.Options())
	if err != nil {
		return nil
	}
	out := map[string]string{}
	eachField(options, func(n protowire.Number, meta []byte) {
		if n != metaNumber {
			return
		}
		eachField(meta, func(n protowire.Number, entry []byte) {
			if n != paramsNumber {
				return
			}
			var parts [3]string
			eachField(entry, func(n protowire.Number, text []byte) {
				if n < 3 {
					parts[n] = string(text)
				}
			})
			out[parts[1]] = parts[2]
		})
	})
	return out
}

// eachField calls f with the fields of a message that are bytes.
func eachField(b []byte, f func(n protowire.Number, value []byte)) {
	for len(b) > 0 {
		number, wire, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(number, wire, b); n < 0 {
			return
		}
		if wire == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(b)
			f(number, value)
		}
		b = b[n:]
	}
}

// protoDecoder reads the bytes of a message. It bounds what its structs cost by its size.
type protoDecoder struct{ slots int }

// message reads a message, on top of what was read of it before.
func (p *protoDecoder) message(r *protoReader, b []byte, before any) (any, *fault) {
	switch {
	case r.logical != "":
		v, f := r.readLogical(b)
		if x, ok := v.([]byte); ok && len(x) > len(b) { // by another scale
			if p.slots -= len(x) - len(b); p.slots < 0 {
				return nil, fail("the message is made of too many long numbers for its size")
			}
		}
		return v, f
	case r.wrapped != nil:
		v := r.wrapped.number64(0)
		f := p.each(b, func(n protowire.Number, wire protowire.Type, b []byte) (f *fault) {
			if n == 1 && wire == wireType(r.wrapped.kind) {
				v, f = p.single(r.wrapped, b, nil)
			}
			return f
		})
		return v, f
	}
	s, ok := before.(*data.StructValue)
	if !ok {
		if p.slots -= len(r.absent) + 1; p.slots < 0 {
			return nil, fail("the message is made of too many messages for its size")
		}
		s = data.New(r.schema)
		for i, v := range r.absent {
			s.Values[i] = fresh(v)
		}
	}
	f := p.each(b, func(n protowire.Number, wire protowire.Type, b []byte) *fault {
		slot := r.slots[n]
		if slot == nil {
			return nil
		}
		return p.field(s, slot, wire, b).in(slot.name(r))
	})
	return s, f
}

// fresh is an empty list or map that belongs to one value; other values are shared.
func fresh(v any) any {
	switch v.(type) {
	case map[string]any:
		return map[string]any{}
	case []data.Entry:
		return []data.Entry{}
	case []any:
		return []any{}
	}
	return v
}

func (s *protoSlot) name(r *protoReader) string {
	if s.union != nil {
		return s.union.Fields[s.choice].Name
	}
	return r.schema.Fields[s.field].Name
}

// each calls f with each field of a message.
func (p *protoDecoder) each(b []byte, f func(protowire.Number, protowire.Type, []byte) *fault) *fault {
	for len(b) > 0 {
		number, wire, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fail("the message is broken")
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(number, wire, b); n < 0 {
			return fail("the message is broken")
		}
		if f := f(number, wire, b[:n]); f != nil {
			return f
		}
		b = b[n:]
	}
	return nil
}

// field takes a field of a message into its struct.
func (p *protoDecoder) field(s *data.StructValue, slot *protoSlot, wire protowire.Type, b []byte) *fault {
	at := &s.Values[slot.field]
	packed := slot.list && wire == protowire.BytesType && wireType(slot.kind) != protowire.BytesType
	if wire != wireType(slot.kind) && !packed {
		return nil // unknown
	}
	switch {
	case slot.entry:
		return p.entry(at, slot, b)
	case packed:
		return p.packed(at, slot, b)
	case slot.list:
		v, f := p.single(slot, b, nil)
		list, _ := (*at).([]any)
		*at = append(list, v)
		return f
	case slot.union != nil:
		u, _ := (*at).(*data.StructValue)
		var before any
		if u != nil {
			before = u.Values[slot.choice]
		}
		if p.slots -= len(slot.union.Fields); p.slots < 0 {
			return fail("the message is made of too many messages for its size")
		}
		v, f := p.single(slot, b, before)
		u = data.New(slot.union)
		u.Values[slot.choice] = v
		*at = u
		return f
	}
	v, f := p.single(slot, b, *at)
	*at = v
	return f
}

func (p *protoDecoder) packed(at *any, slot *protoSlot, b []byte) *fault {
	list, _ := (*at).([]any)
	b, n := protowire.ConsumeBytes(b)
	for len(b) > 0 && n >= 0 {
		if n = protowire.ConsumeFieldValue(1, wireType(slot.kind), b); n < 0 {
			break
		}
		v, f := p.single(slot, b[:n], nil)
		if f != nil {
			return f.at(len(list))
		}
		list, b = append(list, v), b[n:]
	}
	*at = list
	if n < 0 {
		return fail("the message is broken")
	}
	return nil
}

func (p *protoDecoder) entry(at *any, slot *protoSlot, b []byte) *fault {
	b, _ = protowire.ConsumeBytes(b)
	key, value := slot.key.zero(p), slot.value.zero(p)
	f := p.each(b, func(n protowire.Number, wire protowire.Type, b []byte) (f *fault) {
		switch {
		case n == 1 && wire == wireType(slot.key.kind):
			key, f = p.single(slot.key, b, nil)
		case n == 2 && wire == wireType(slot.value.kind):
			value, f = p.single(slot.value, b, value)
		}
		return f
	})
	switch m := (*at).(type) {
	case map[string]any:
		if k, ok := key.(string); ok {
			m[k] = value
		}
	case []data.Entry:
		*at = append(m, data.Entry{Key: key, Value: value})
	}
	return f
}

// zero is the value of a part of a map's entry that is not there.
func (s *protoSlot) zero(*protoDecoder) any {
	if s.message != nil {
		return nil
	}
	return s.number64(0)
}

// single reads one value, on top of what was read of it before.
func (p *protoDecoder) single(slot *protoSlot, b []byte, before any) (any, *fault) {
	switch wireType(slot.kind) {
	case protowire.Fixed32Type:
		n, _ := protowire.ConsumeFixed32(b)
		return slot.number32(n), nil
	case protowire.Fixed64Type:
		n, _ := protowire.ConsumeFixed64(b)
		if slot.kind == protoreflect.DoubleKind {
			return math.Float64frombits(n), nil
		}
		return int64(n), nil
	case protowire.StartGroupType:
		b, n := protowire.ConsumeGroup(slot.number, b)
		if n < 0 {
			return nil, fail("the message is broken")
		}
		return p.message(slot.message, b, before)
	case protowire.BytesType:
		value, _ := protowire.ConsumeBytes(b)
		switch slot.kind {
		case protoreflect.StringKind:
			return string(value), nil
		case protoreflect.BytesKind:
			return value[:len(value):len(value)], nil
		}
		return p.message(slot.message, value, before)
	}
	n, _ := protowire.ConsumeVarint(b)
	return slot.integer(n)
}

func (s *protoSlot) number32(n uint32) any {
	switch s.kind {
	case protoreflect.FloatKind:
		return math.Float32frombits(n)
	case protoreflect.Fixed32Kind:
		return int64(n)
	}
	return int32(n)
}

// integer is the value that a varint stands for.
func (s *protoSlot) integer(n uint64) (any, *fault) {
	switch s.kind {
	case protoreflect.Sint32Kind:
		n = uint64(protowire.DecodeZigZag(n & math.MaxUint32))
	case protoreflect.Sint64Kind:
		n = uint64(protowire.DecodeZigZag(n))
	case protoreflect.Uint32Kind:
		n &= math.MaxUint32
	case protoreflect.BoolKind:
		return n != 0, nil
	}
	switch x := int32(n); s.schema.Type {
	case data.Int8:
		if x != int32(int8(x)) {
			return nil, fail("the number is too large for an int8")
		}
	case data.Int16:
		if x != int32(int16(x)) {
			return nil, fail("the number is too large for an int16")
		}
	}
	return s.number64(int64(n)), nil
}

// number64 is a number as a value of the slot's schema; of other types it is their zero.
func (s *protoSlot) number64(n int64) any {
	switch s.schema.Type {
	case data.Int8:
		return int8(n)
	case data.Int16:
		return int16(n)
	case data.Int32:
		return int32(n)
	case data.Int64:
		return n
	case data.Float32:
		return float32(n)
	case data.Float64:
		return float64(n)
	case data.Boolean:
		return n != 0
	case data.Bytes:
		return []byte{}
	}
	if s.kind != protoreflect.EnumKind {
		return ""
	}
	if name, ok := s.symbols[int32(n)]; ok {
		return name
	}
	return fmt.Sprintf("UNKNOWN_ENUM_VALUE_%s_%d", s.enum, int32(n))
}

// defaultOf is the default that a field of proto2 has.
func (s *protoSlot) defaultOf(fd protoreflect.FieldDescriptor) (any, *fault) {
	v := fd.Default()
	switch s.kind {
	case protoreflect.StringKind:
		return v.String(), nil
	case protoreflect.BytesKind:
		return clone(v.Bytes()), nil
	case protoreflect.FloatKind:
		return float32(v.Float()), nil
	case protoreflect.DoubleKind:
		return v.Float(), nil
	case protoreflect.BoolKind:
		return v.Bool(), nil
	case protoreflect.EnumKind:
		return s.number64(int64(v.Enum())), nil
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return int64(v.Uint()), nil
	}
	return s.number64(v.Int()), nil
}

// readLogical reads the message that stands for a logical type.
func (r *protoReader) readLogical(b []byte) (any, *fault) {
	var (
		numbers [5]int64
		bytes   []byte
	)
	for len(b) > 0 {
		number, wire, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, fail("the message is broken")
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(number, wire, b); n < 0 {
			return nil, fail("the message is broken")
		}
		switch {
		case wire == protowire.VarintType && number < 5:
			v, _ := protowire.ConsumeVarint(b)
			numbers[number] = int64(v)
		case wire == protowire.BytesType && number == 1:
			bytes, _ = protowire.ConsumeBytes(b)
		}
		b = b[n:]
	}
	switch r.logical {
	case data.Decimal:
		scale := int(int32(numbers[3]))
		if scale == r.scale {
			return bytes[:len(bytes):len(bytes)], nil
		}
		if len(bytes) > maxScale || scale > maxScale || scale < -maxScale {
			return nil, fail("the decimal has too many digits")
		}
		n, ok := rescale(data.DecimalInt(bytes), scale, r.scale)
		if !ok {
			return nil, fail("the decimal has the scale %d, and its field's options say %d", scale, r.scale)
		}
		return data.DecimalBytes(n), nil
	case data.Date:
		year, month, day := int(int32(numbers[1])), time.Month(int32(numbers[2])), int(int32(numbers[3]))
		t := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
		if t.Month() != month || t.Year() != year || year < 1 || year > 9999 {
			return nil, fail("the date is none of the calendar")
		}
		return int32(t.Unix() / (dayMillis / 1000)), nil
	case data.Time:
		ms := numbers[1]*3_600_000 + numbers[2]*60_000 + numbers[3]*1000 + numbers[4]/1_000_000
		if numbers[1]|numbers[2]|numbers[3]|numbers[4] < 0 || numbers[1] > 24 || numbers[2] > 59 || numbers[3] > 60 ||
			numbers[4] > 999_999_999 || ms > dayMillis {
			return nil, fail("the time is none of a day")
		}
		return int32(ms), nil
	}
	const most = math.MaxInt64/1000 - 1
	if numbers[1] > most || numbers[1] < -most || numbers[2] < 0 || numbers[2] > 999_999_999 {
		return nil, fail("the timestamp is too far away")
	}
	return numbers[1]*1000 + numbers[2]/1_000_000, nil
}

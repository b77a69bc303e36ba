package protobuf_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
	"pgregory.net/rapid"

	"millrace/schemaregistry/schema"
)

// genField is a field of a drawn schema.
type genField struct {
	label  string
	typ    string
	number int
	oneof  int // of oneofs, from 1; 0 for none
}

// genSchema is a drawn schema: messages A, B and C, each with fields, and an enum.
type genSchema struct {
	proto2   bool
	messages [3][]genField
	order    []int
	values   int
}

var genTypes = []string{
	"int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64",
	"bool", "string", "bytes",
	"float", "double", "E", "A", "B", "C", "map<string, int32>", "map<int32, A>", "map<uint64, bytes>",
}

func drawField(t *rapid.T, proto2 bool) genField {
	f := genField{
		typ: rapid.SampledFrom(genTypes).Draw(t, "type"), number: rapid.IntRange(1, 6).Draw(t, "number"),
		oneof: max(rapid.IntRange(-3, 2).Draw(t, "oneof"), 0),
	}
	labels := []string{"", "optional ", "repeated "}
	if proto2 {
		labels = []string{"optional ", "repeated ", "required "}
	}
	f.label = rapid.SampledFrom(labels).Draw(t, "label")
	if strings.HasPrefix(f.typ, "map") {
		f.label, f.oneof = "", 0
	}
	if f.oneof > 0 {
		f.label = ""
	}
	if f.label == "required " && f.typ >= "A" && f.typ <= "C" {
		f.label = "optional " // or no message ends
	}
	return f
}

func drawSchema(t *rapid.T) genSchema {
	s := genSchema{proto2: rapid.Bool().Draw(t, "proto2"), order: []int{0, 1, 2}, values: rapid.IntRange(1,
		4).Draw(t, "values")}
	for i := range s.messages {
		for range rapid.IntRange(0, 5).Draw(t, "fields") {
			s.messages[i] = put(s.messages[i], drawField(t, s.proto2))
		}
	}
	return s
}

// put adds a field, or takes the place of the one with its number.
func put(fields []genField, f genField) []genField {
	out := []genField{}
	for _, g := range fields {
		if g.number != f.number {
			out = append(out, g)
		}
	}
	return append(out, f)
}

// evolve changes a schema in some places.
func (s genSchema) evolve(t *rapid.T) genSchema {
	for range rapid.IntRange(1, 3).Draw(t, "changes") {
		i := rapid.IntRange(0, 2).Draw(t, "message")
		fields := append([]genField{}, s.messages[i]...)
		switch rapid.IntRange(0, 5).Draw(t, "change") {
		case 0:
			fields = put(fields, drawField(t, s.proto2))
		case 1:
			if len(fields) > 0 {
				fields = fields[1:]
			}
		case 2, 3:
			if len(fields) > 0 {
				f := drawField(t, s.proto2)
				at := rapid.IntRange(0, len(fields)-1).Draw(t, "at")
				f.number = fields[at].number
				if rapid.Bool().Draw(t, "only the type") {
					f.label, f.oneof = fields[at].label, fields[at].oneof
					if strings.HasPrefix(f.typ,
						"map") || f.label == "" && s.proto2 && f.oneof == 0 || f.label == "required " && f.typ <= "C" {
						f = fields[at]
					}
				}
				fields = put(fields, f)
			}
		case 4:
			s.order = rapid.Permutation(s.order).Draw(t, "order")
		case 5:
			s.values = rapid.IntRange(1, 4).Draw(t, "values")
		}
		s.messages[i] = fields
	}
	return s
}

func (s genSchema) String() string {
	var b strings.Builder
	if s.proto2 {
		b.WriteString("syntax = \"proto2\";\n")
	} else {
		b.WriteString("syntax = \"proto3\";\n")
	}
	b.WriteString("package p;\n")
	for _, i := range s.order {
		fmt.Fprintf(&b, "message %c {\n", 'A'+i)
		oneofs := map[int][]string{}
		for _, f := range s.messages[i] {
			line := fmt.Sprintf("  %s%s f%d = %d;\n", f.label, f.typ, f.number, f.number)
			if f.oneof == 0 {
				b.WriteString(line)
			} else {
				oneofs[f.oneof] = append(oneofs[f.oneof], line)
			}
		}
		for n := 1; n <= 2; n++ {
			if len(oneofs[n]) > 0 {
				fmt.Fprintf(&b, "  oneof o%d {\n%s  }\n", n, strings.Join(oneofs[n], ""))
			}
		}
		b.WriteString("}\n")
	}
	b.WriteString("enum E {\n" + repeat(s.values, func(i int) string {
		return fmt.Sprintf("  V%d = %d;\n", i,
			i)
	}) + "}\n")
	return b.String()
}

// What is printed is read back as the same, in both forms.
func TestCanonicalTextOfRandomSchemas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := drawSchema(t).String()
		for _, o := range []schema.ParseOptions{{Strict: true}, {Strict: true, Normalize: true}} {
			s, err := format().Parse(text, nil, o)
			require.NoError(t, err)
			again, err := format().Parse(s.Text(), nil, o)
			require.NoError(t, err)
			require.Equal(t, s.Text(), again.Text())
			require.True(t, proto.Equal(ordered(t, s), ordered(t, again)))
			c, err := format().Compare(s, again, schema.CompareOptions{})
			require.NoError(t, err)
			require.Empty(t, c.Differences)
		}
	})
}

func messageOf(t *rapid.T, s schema.Schema, name string) protoreflect.MessageDescriptor {
	f, err := protodesc.NewFile(descriptorOf(t, s), protoregistry.GlobalFiles)
	require.NoError(t, err)
	return f.Messages().ByName(protoreflect.Name(name))
}

// drawMessage fills a message.
func drawMessage(t *rapid.T, m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.Cardinality() != protoreflect.Required && rapid.IntRange(0, 3).Draw(t,
			"absent") == 0 || f.Message() != nil && depth > 2 {
			continue
		}
		switch {
		case f.IsMap():
			v := m.Mutable(f).Map().NewValue()
			if f.MapValue().Message() != nil {
				drawMessage(t, v.Message(), depth+1)
			} else {
				v = drawScalar(t, f.MapValue())
			}
			m.Mutable(f).Map().Set(drawScalar(t, f.MapKey()).MapKey(), v)
		case f.IsList():
			for range rapid.IntRange(0, 3).Draw(t, "elements") {
				v := m.Mutable(f).List().NewElement()
				if f.Message() != nil {
					drawMessage(t, v.Message(), depth+1)
				} else {
					v = drawScalar(t, f)
				}
				m.Mutable(f).List().Append(v)
			}
		case f.Message() != nil:
			drawMessage(t, m.Mutable(f).Message(), depth+1)
		default:
			m.Set(f, drawScalar(t, f))
		}
	}
}

func drawScalar(t *rapid.T, f protoreflect.FieldDescriptor) protoreflect.Value {
	n := rapid.Uint64().Draw(t, "n")
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(n%2 == 1)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(rapid.String().Draw(t, "s"))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(rapid.SliceOf(rapid.Byte()).Draw(t, "b"))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(f.Enum().Values().Get(int(n % uint64(f.Enum().Values().Len()))).Number())
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(n))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(float64(n))
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(n))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(int64(n))
	default:
		return protoreflect.ValueOfUint64(n)
	}
}

// What is called compatible, without a warning, reads what was written before: the library reads it, Check passes it,
// and fields that both have keep their values where the types are the same.
func TestCompatibleSchemasReadOldData(t *testing.T) {
	compatible, total := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		before := drawSchema(t)
		after := before.evolve(t)
		strict := schema.ParseOptions{Strict: true}
		older, err := format().Parse(before.String(), nil, strict)
		require.NoError(t, err)
		newer, err := format().Parse(after.String(), nil, strict)
		require.NoError(t, err)
		c, err := format().Compare(newer, older, schema.CompareOptions{ReaderName: "new", WriterName: "old"})
		require.NoError(t, err)
		total++
		if !c.Compatible() || len(c.Warnings) > 0 {
			return
		}
		compatible++
		for _, name := range []string{"A", "B", "C"} {
			old := dynamicpb.NewMessage(messageOf(t, older, name))
			drawMessage(t, old, 0)
			raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(old)
			require.NoError(t, err)
			read := dynamicpb.NewMessage(messageOf(t, newer, name))
			require.NoError(t, proto.Unmarshal(raw, read), "%s\n%s\n%v", before, after, found(c))
			index, ok := newer.(schema.Messages).MessageIndex("p." + name)
			require.True(t, ok)
			codec, err := newer.(schema.Messages).Message(index)
			require.NoError(t, err)
			require.NoError(t, codec.Check(raw), "%s\n%s\n%v", before, after, found(c))
			out, err := codec.Decode(nil, raw)
			require.NoError(t, err, "%s\n%s", before, after)
			_, err = codec.Encode(nil, out)
			require.NoError(t, err, "%s", out)
		}
	})
	require.Greater(t, compatible*20, total, "too few of the drawn pairs are compatible")
}

// Check and the library agree on any bytes, but that Check bounds depth, wants UTF-8 everywhere, and refuses entries of
// maps over which the library trips.
func agree(t require.TestingT, c schema.Codec, d protoreflect.MessageDescriptor, raw []byte) {
	err := c.Check(raw)
	if err != nil && strings.Contains(err.Error(), "entry") {
		return
	}
	lib := proto.UnmarshalOptions{RecursionLimit: 101}.Unmarshal(raw, dynamicpb.NewMessage(d))
	if err == nil {
		require.NoError(t, lib, "%x", raw)
		return
	}
	if lib == nil {
		require.Regexp(t, "UTF-8|deeper", err.Error(), "%x", raw)
	}
}

func TestCheckAgreesWithTheLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, err := format().Parse(drawSchema(t).String(), nil, schema.ParseOptions{Strict: true})
		require.NoError(t, err)
		name := s.Name()[len("p."):]
		d := messageOf(t, s, name)
		m := dynamicpb.NewMessage(d)
		drawMessage(t, m, 0)
		raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		require.NoError(t, err)
		c, err := s.Codec()
		require.NoError(t, err)
		agree(t, c, d, raw)
		for range 5 { // and with a byte changed
			if len(raw) > 0 {
				raw[rapid.IntRange(0, len(raw)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
			}
			agree(t, c, d, raw)
			agree(t, c, d, protowire.AppendVarint(raw, uint64(rapid.Byte().Draw(t, "more"))))
		}
	})
}

// agreeButForAny is agree where the bytes may hold an Any, into which the library does not look.
func agreeButForAny(t require.TestingT, c schema.Codec, d protoreflect.MessageDescriptor, raw []byte) {
	if c.Check(raw) == nil {
		agree(t, c, d, raw)
	}
}

package protobuf_test

import (
	"encoding/binary"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"millrace/schemaregistry/protobuf"
	"millrace/schemaregistry/schema"
)

func codecOf(t *testing.T, text string, deps ...schema.Dependency) schema.Codec {
	t.Helper()
	c, err := parse(t, text, deps...).Codec()
	require.NoError(t, err)
	return c
}

const all = `
import "google/protobuf/any.proto"; import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto";
import "google/protobuf/struct.proto"; import "google/protobuf/wrappers.proto";
import "google/protobuf/field_mask.proto";
import "google/protobuf/empty.proto";
message All {
  int32 small = 1; int64 large = 2; uint32 u = 3; uint64 ul = 4; sint32 s = 5; sint64 sl = 6;
  fixed32 f = 7; fixed64 fl = 8; sfixed32 sf = 9; sfixed64 sfl = 10;
  float x = 11; double y = 12; bool b = 13; string text_value = 14; bytes raw = 15; E e = 16;
  All nested = 17; repeated int32 list = 18; map<string, All> by_name = 19; optional int32 maybe = 20;
  oneof one { string left = 21; int32 right = 22; }
  google.protobuf.Timestamp at = 23; google.protobuf.Duration took = 24; google.protobuf.Value value = 25;
  google.protobuf.Int64Value boxed = 26; google.protobuf.FieldMask mask = 27; google.protobuf.Any any = 28;
  google.protobuf.Empty empty = 29; repeated string names = 30; map<int32, bool> flags = 31;
  google.protobuf.Struct object = 32; string chosen = 33 [json_name = "CHOSEN"];
}
enum E { ZERO = 0; ONE = 1; }
`

// What JSON says comes back, with defaults where the schema cannot tell them from nothing.
func TestCodecTranslatesBothWays(t *testing.T) {
	c := codecOf(t, all)
	for _, in := range []string{
		`{}`,
		`{"small":-7,"large":"9007199254740993","u":7,"ul":"18446744073709551615","s":-7,"sl":"-7"}`,
		`{"f":7,"fl":"7","sf":-7,"sfl":"-7","x":0.5,"y":1e+100,"b":true,"textValue":"grün","raw":"AAEC","e":"ONE"}`,
		`{"x":"NaN","y":"-Infinity"}`,
		`{"nested":{"nested":{"small":1}},"list":[1,2,3],"byName":{"a":{"small":1},"b":{}}}`,
		`{"maybe":0,"left":""}`,
		`{"right":0}`,
		`{"at":"2026-09-18T10:00:00.500Z","took":"3.100s","value":{"a":[1,"b",null,true]},"boxed":"0","mask":"a,b.cD"}`,
		`{"any":{"@type":"type.googleapis.com/All","small":3},"empty":{}}`,
		`{"any":{"@type":"type.googleapis.com/google.protobuf.Duration","value":"3s"}}`,
		`{"object":{"x":{"y":[{}]}},"value":null,"names":["","a"],"flags":{"-1":true,"2":false},"CHOSEN":"x"}`,
	} {
		raw, err := c.Encode([]byte("head"), []byte(in))
		require.NoError(t, err, in)
		require.Equal(t, "head", string(raw[:4]))
		require.NoError(t, c.Check(raw[4:]), in)
		out, err := c.Decode([]byte("head"), raw[4:])
		require.NoError(t, err, in)
		require.Equal(t, "head", string(out[:4]))
		var want, got map[string]any
		require.NoError(t, json.Unmarshal([]byte(in), &want))
		require.NoError(t, json.Unmarshal(out[4:], &got))
		for k, v := range want {
			if k == "nested" || k == "byName" || k == "any" {
				require.Contains(t, got, k)
				continue
			}
			require.Equal(t, v, got[k], k)
		}
		again, err := c.Encode(nil, out[4:])
		require.NoError(t, err, "%s", out[4:])
		require.Equal(t, string(raw[4:]), string(again), in)
	}
}

func TestCodecWritesDefaultsButNotWhatIsTold(t *testing.T) {
	c := codecOf(t,
		`message M { int32 a = 1; string b = 2; repeated int32 c = 3; map<int32, int32> d = 4; E e = 5; bytes f = 6;
		optional int32 g = 7; M h = 8; oneof o { int32 i = 9; } int64 long_name = 10; } enum E { Z = 0; }`)
	out, err := c.Decode(nil, nil)
	require.NoError(t, err)
	require.Equal(t, `{"a":0,"b":"","c":[],"d":{},"e":"Z","f":"","longName":"0"}`, string(out))
	c = codecOf(t, `2 message M { optional int32 a = 1 [default = 7]; repeated int32 b = 2; }`)
	out, err = c.Decode(nil, nil)
	require.NoError(t, err)
	require.Equal(t, `{"b":[]}`, string(out))
}

func TestCodecTakesNamesOfTheSchemaToo(t *testing.T) {
	c := codecOf(t, "message M { int32 long_name = 1; }")
	one, err := c.Encode(nil, []byte(`{"long_name":5}`))
	require.NoError(t, err)
	two, err := c.Encode(nil, []byte(`{"longName":"5"}`))
	require.NoError(t, err)
	require.Equal(t, one, two)
}

func TestEncodeRefuses(t *testing.T) {
	c := codecOf(t, all)
	for in, want := range map[string]string{
		``:                                     "$",
		`null`:                                 "$",
		`[]`:                                   "$",
		`{"small":1`:                           "$",
		`{"unknown":1}`:                        `$: unknown field "unknown"`,
		`{"small":"x"}`:                        "$.small",
		`{"small":2147483648}`:                 "$.small",
		`{"u":-1}`:                             "$.u",
		`{"b":1}`:                              "$.b",
		`{"e":"TWO"}`:                          "$.e",
		`{"raw":"!"}`:                          "$.raw",
		`{"textValue":5}`:                      "$.textValue",
		"{\"textValue\":\"\xff\"}":             "$",
		`{"list":[1,2,"x"]}`:                   "$.list[2]",
		`{"list":{}}`:                          "$.list",
		`{"nested":{"nested":{"small":true}}}`: "$.nested.nested.small",
		"{\"nested\":\n  {\"list\":[0,\n true]}}":         "$.nested.list[1]",
		`{"byName":{"grün":{"small":[]}}}`:                "$.byName.grün.small",
		`{"left":"a","right":1}`:                          "$",
		`{"small":1,"small":2}`:                           "$",
		`{"at":"yesterday"}`:                              "$.at",
		`{"any":{"@type":"type.googleapis.com/Nothing"}}`: "$.any",
		`{} {}`: "$",
	} {
		_, err := c.Encode(nil, []byte(in))
		require.ErrorIs(t, err, schema.ErrMismatch, in)
		require.Truef(t, strings.HasPrefix(err.Error(), want), "%s: %v", in, err)
		require.NotContains(t, err.Error(), "proto:", in)
	}
	_, err := codecOf(t, "2 message M { required int32 a = 1; optional M m = 2; }").Encode(nil,
		[]byte(`{"a":1,"m":{}}`))
	require.ErrorIs(t, err, schema.ErrMismatch)
	require.ErrorContains(t, err, "a")
}

func field(number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
}

func varint(number protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), value)
}

func join(parts ...[]byte) []byte {
	var out []byte
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

func groups(number protowire.Number, n int) []byte {
	var out []byte
	for range n {
		out = protowire.AppendTag(out, number, protowire.StartGroupType)
	}
	for range n {
		out = protowire.AppendTag(out, number, protowire.EndGroupType)
	}
	return out
}

func nested(number protowire.Number, n int) []byte {
	var out []byte
	for range n {
		out = field(number, out)
	}
	return out
}

func TestCheck(t *testing.T) {
	const text = `2 message M { optional int32 a = 1; optional string s = 2; optional M m = 3;
		repeated int32 l = 4 [packed = true];
		repeated fixed32 f = 5; optional group G = 6 { required int32 r = 1; } optional R q = 7; map<string, R> map = 8;
		optional E e = 9; extensions 100 to 200; message R { required int32 x = 1; optional int32 y = 2; required R z = 3; } }
		enum E { Z = 0; } extend M { optional string xs = 100; optional M.R xm = 101; }`
	c := codecOf(t, text)
	start, end := protowire.AppendTag(nil, 6, protowire.StartGroupType), protowire.AppendTag(nil, 6,
		protowire.EndGroupType)
	for _, v := range []struct {
		name string
		raw  []byte
		want string // part of the fault; "" for none
	}{
		{"nothing", nil, ""},
		{"a number", varint(1, 5), ""},
		{"a number twice", join(varint(1, 5), varint(1, 6)), ""},
		{"a negative number", varint(1, 1<<64-1), ""},
		{"an unknown field", varint(99, 5), ""},
		{"an unknown group", groups(99, 3), ""},
		{"a field of another encoding", field(1, []byte("x")), ""},
		{"packed numbers", field(4, []byte{1, 2, 3}), ""},
		{"unpacked numbers", join(varint(4, 1), varint(4, 2)), ""},
		{"packed numbers of fixed size", field(5, make([]byte, 8)), ""},
		{"an enum value that is not listed", varint(9, 77), ""},
		{"a group", join(start, varint(1, 5), end), ""},
		{"100 levels", nested(3, 99), ""},
		{"cut off in a tag", []byte{0x80}, "unexpected EOF"},
		{"cut off in a number", []byte{0x08, 0x80}, "unexpected EOF"},
		{"cut off in a string", []byte{0x12, 5, 'a'}, "unexpected EOF"},
		{"cut off in a packed number", field(4, []byte{0x80}), "unexpected EOF"},
		{"packed numbers that do not fit their size", field(5, make([]byte, 7)), "unexpected EOF"},
		{"a number that is too long", append([]byte{0x08}, strings.Repeat("\xff", 11)...), "overflow"},
		{"field 0", []byte{0x00, 0x00}, "M: "},
		{"a field number that none may have", protowire.AppendVarint(nil, 1<<33), "no field has the number"},
		{"an encoding that is not one", []byte{0x0f}, "M: "},
		{"a string that is not UTF-8", field(2, []byte{0xff}), "M.s: the string is not UTF-8"},
		{"a nested string that is not UTF-8", field(3, field(2, []byte{0xff})), "M.s: the string is not UTF-8"},
		{"an extension that is not UTF-8", field(100, []byte{0xff}), "not UTF-8"},
		{"101 levels", nested(3, 100), "deeper than 100"},
		{"groups within groups", groups(99, 100), "deeper than 100"},
		{"many groups within groups", groups(99, 100_000), "deeper than 100"},
		{"a group that does not end", start, "does not end"},
		{"a group that did not begin", end, "did not begin"},
		{"a group without what is required", join(start, end), "required"},
		{"a message without what is required", field(7, varint(2, 1)), "required"},
		{"an extension without what is required", field(101, nil), "required"},
		{"a map without the message that lacks what is required", field(8, nil), "required"},
		{"what is required in another encoding", field(7, field(1, nil)), "required"},
		{"a map whose key is encoded otherwise", field(8, varint(1, 1)), "encoded otherwise"},
		{"a map's message without what is required", field(8, join(field(1, []byte("k")), field(2, varint(1,
			1)))), "required"},
	} {
		err := c.Check(v.raw)
		_, decodeErr := c.Decode(nil, v.raw)
		if v.want == "" {
			require.NoError(t, err, v.name)
			require.NoError(t, decodeErr, v.name)
			continue
		}
		require.ErrorIs(t, err, schema.ErrMismatch, v.name)
		require.ErrorContains(t, err, v.want, v.name)
		require.ErrorIs(t, decodeErr, schema.ErrMismatch, v.name)
	}
}

// A message may be written in pieces; what one lacks another has.
func TestCheckPutsPiecesTogether(t *testing.T) {
	c := codecOf(t, "2 message M { optional R r = 1; message R { required int32 x = 1; required int32 y = 2; } }")
	require.Error(t, c.Check(field(1, varint(1, 5))))
	require.NoError(t, c.Check(join(field(1, varint(1, 5)), field(1, varint(2, 6)))))
	out, err := c.Decode(nil, join(field(1, varint(1, 5)), field(1, varint(2, 6))))
	require.NoError(t, err)
	require.JSONEq(t, `{"r":{"x":5,"y":6}}`, string(out))
}

// Many required fields are all looked for.
func TestCheckOfManyRequiredFields(t *testing.T) {
	const n = 70
	c := codecOf(t, "2 message M {"+repeat(n, func(i int) string {
		return "required int32 a" + itoa(i) + "=" + itoa(i+1) + ";"
	})+"}")
	var raw []byte
	for i := range n {
		require.Error(t, c.Check(raw))
		raw = append(raw, varint(protowire.Number(i+1), 1)...)
	}
	require.NoError(t, c.Check(raw))
}

func TestCheckLooksIntoAny(t *testing.T) {
	c := codecOf(t,
		`import "google/protobuf/any.proto"; message M { google.protobuf.Any a = 1; string s = 2; M m = 3; }`)
	any := func(name string, value []byte) []byte {
		return field(1, join(field(1, []byte("type.googleapis.com/"+name)), field(2, value)))
	}
	require.NoError(t, c.Check(any("M", field(2, []byte("x")))))
	require.ErrorContains(t, c.Check(any("M", field(2, []byte{0xff}))), "not UTF-8")
	require.NoError(t, c.Check(any("of.Others", []byte{0xff})), "what it holds is not known")
	_, err := c.Decode(nil, any("of.Others", nil))
	require.ErrorIs(t, err, schema.ErrMismatch)
	var deep []byte
	for range 60 {
		deep = any("M", deep)
	}
	require.ErrorContains(t, c.Check(deep), "deeper than 100")
	out, err := c.Decode(nil, any("google.type.Date", varint(1, 2026)))
	require.NoError(t, err)
	require.Contains(t, string(out), `"year":2026`)
}

// No value becomes more than a small multiple of itself.
func TestDecodeIsBounded(t *testing.T) {
	const mib = 1 << 20
	long := repeat(300, func(i int) string {
		return "int32 a_field_with_a_long_name_" + itoa(i) + "=" +
			itoa(i+10) + ";"
	})
	c := codecOf(t,
		"message M { repeated N n = 1; repeated int32 l = 2; repeated M m = 3; bytes b = 4; string s = 5;"+
			" map<int32, N> map = 6; repeated E e = 7; } message N {"+long+"} enum E { "+strings.Repeat("Z",
			900)+" = 0; }")
	for name, raw := range map[string][]byte{
		"empty messages with many defaults": []byte(strings.Repeat("\x0a\x00", mib/2)),
		"some messages with many defaults":  []byte(strings.Repeat("\x0a\x00", 20_000)),
		"empty messages":                    []byte(strings.Repeat("\x1a\x00", mib/2)),
		"numbers":                           field(2, make([]byte, mib-10)),
		"numbers that are not packed":       []byte(strings.Repeat("\x10\x00", mib/2)),
		"bytes":                             field(4, make([]byte, mib-10)),
		"controls":                          field(5, []byte(strings.Repeat("\x01", mib-10))),
		"entries":                           []byte(strings.Repeat("\x32\x00", mib/2)),
		"enums of a long name":              field(7, make([]byte, mib-10)),
		"unknown fields":                    []byte(strings.Repeat("\xf8\x01\x00", mib/3)),
	} {
		out, err := c.Decode(nil, raw)
		if err != nil {
			require.ErrorIs(t, err, schema.ErrMismatch, name)
			require.ErrorContains(t, err, "allowed", name)
			continue
		}
		require.LessOrEqual(t, len(out), 16*len(raw)+mib, name)
	}
	_, err := c.Decode(nil, []byte(strings.Repeat("\x0a\x00", mib/2)))
	require.Error(t, err)
	_, err = c.Decode(nil, field(7, make([]byte, mib-10)))
	require.Error(t, err)
	_, err = c.Decode(nil, field(4, make([]byte, mib-10)))
	require.NoError(t, err)
	_, err = c.Decode(nil, field(2, make([]byte, 1000)))
	require.NoError(t, err)
}

func TestEncodeIsBounded(t *testing.T) {
	c := codecOf(t,
		`import "google/protobuf/struct.proto"; message M { repeated M m = 1; google.protobuf.Value v = 2; }`)
	for name, in := range map[string]string{
		"messages":          `{"m":[` + strings.Repeat(`{},`, 1<<18) + `{}]}`,
		"nested messages":   strings.Repeat(`{"m":[`, 1000) + strings.Repeat(`]}`, 1000),
		"nested lists":      `{"v":` + strings.Repeat(`[`, 100_000) + strings.Repeat(`]`, 100_000) + `}`,
		"lists without end": `{"v":` + strings.Repeat(`[`, 100_000),
	} {
		_, err := c.Encode(nil, []byte(in))
		require.ErrorIs(t, err, schema.ErrMismatch, name)
	}
}

// A file may not pass off a message of its own as one that JSON treats in its own way.
func TestForeignWellKnownTypes(t *testing.T) {
	for _, text := range []string{
		"package google.protobuf; message Timestamp { string seconds = 1; }",
		"package google.protobuf; message Any { int32 type_url = 1; }",
		"package google.protobuf; message Struct { map<string, string> fields = 1; }",
		"package google.protobuf; message Value {} message ListValue {}",
	} {
		_, err := format().Parse(source(text), nil, schema.ParseOptions{Strict: true})
		require.ErrorIs(t, err, schema.ErrInvalid, text)
		_, err = format().Parse(source("import \"x\"; message M {}"), []schema.Dependency{dependency("x", text)},
			schema.ParseOptions{Strict: true})
		require.ErrorIs(t, err, schema.ErrInvalid, text)
	}
	c := codecOf(t, "package google.protobuf; message Timestamp { int64 seconds = 1; int32 nanos = 2; }")
	out, err := c.Decode(nil, varint(1, 5))
	require.NoError(t, err)
	require.Equal(t, `"1970-01-01T00:00:05Z"`, string(out))
}

func TestMessages(t *testing.T) {
	s := parse(t,
		`package p; message A { map<int32, int32> m = 1; message B { message C { int32 c = 1; } } message D {} }
		enum E { Z = 0; } message F {}`).(schema.Messages)
	require.Equal(t, "p.A", s.Name())
	for name, want := range map[string][]int{
		"p.A": {0}, "p.A.B": {0, 0}, "p.A.B.C": {0, 0, 0}, "p.A.D": {0, 1}, "p.F": {1},
	} {
		index, ok := s.MessageIndex(name)
		require.True(t, ok, name)
		require.Equal(t, want, index, name)
		_, err := s.Message(index)
		require.NoError(t, err)
	}
	for _, name := range []string{"", "A", "p", "p.", "p.E", "p.A.MEntry", "p.A.B.D", "q.A", ".p.A"} {
		_, ok := s.MessageIndex(name)
		require.False(t, ok, name)
	}
	for _, index := range [][]int{nil, {}, {2}, {-1}, {0, 2}, {0, 0, 0, 0}} {
		_, err := s.Message(index)
		require.ErrorIs(t, err, schema.ErrMismatch)
	}
	c, err := s.Message([]int{0, 0, 0})
	require.NoError(t, err)
	raw, err := c.Encode(nil, []byte(`{"c":5}`))
	require.NoError(t, err)
	require.Equal(t, varint(1, 5), raw)
}

// The place of a message does not depend on where in the text fields stand, nor on groups.
func TestMessageIndexIsThatOfTheCanonicalText(t *testing.T) {
	s := parse(t, `2 message M { message A {} optional group G = 1 {} message B {} map<int32, int32> m = 2; }`)
	again := parse(t, s.Text()).(schema.Messages)
	for _, m := range []schema.Messages{s.(schema.Messages), again} {
		index, ok := m.MessageIndex("M.B")
		require.True(t, ok)
		require.Equal(t, []int{0, 1}, index)
	}
}

// A file without types of its own stands for the one that it imports publicly.
func TestPublicImportStandsForItsFile(t *testing.T) {
	s := parse(t, `import public "i.proto";`, dependency("i.proto",
		"package p; message A {} message B { int32 b = 1; }")).(schema.Messages)
	require.Equal(t, "p.A", s.Name())
	index, ok := s.MessageIndex("p.B")
	require.True(t, ok)
	require.Equal(t, []int{1}, index)
	c, err := s.Message(index)
	require.NoError(t, err)
	out, err := c.Decode(nil, varint(1, 5))
	require.NoError(t, err)
	require.Equal(t, `{"b":5}`, string(out))
	require.Equal(t, "google.protobuf.Timestamp", parse(t, `import public "google/protobuf/timestamp.proto";`).Name())
	require.Equal(t, "p.E", parse(t, "package p; enum E { Z = 0; }").Name())
	require.Empty(t, parse(t, "package p;").Name())
	_, err = parse(t, "package p;").Codec()
	require.Error(t, err)
}

func TestIndex(t *testing.T) {
	for _, c := range []struct {
		index []int
		raw   []byte
	}{
		{[]int{0}, []byte{0}}, {[]int{1}, []byte{2, 2}}, {[]int{0, 0}, []byte{4, 0, 0}}, {[]int{1, 0, 63},
			[]byte{6, 2, 0, 126}},
		{[]int{64}, []byte{2, 0x80, 1}},
	} {
		require.Equal(t, c.raw, protobuf.AppendIndex(nil, c.index))
		index, rest, err := protobuf.ReadIndex(append(c.raw, 9, 9))
		require.NoError(t, err)
		require.Equal(t, c.index, index)
		require.Equal(t, []byte{9, 9}, rest)
	}
	require.Equal(t, []byte{1, 0}, protobuf.AppendIndex([]byte{1}, nil))
	index, rest, err := protobuf.ReadIndex([]byte{2, 0, 7})
	require.NoError(t, err)
	require.Equal(t, []int{0}, index)
	require.Equal(t, []byte{7}, rest)
	for _, raw := range [][]byte{
		nil, {1}, {2}, {2, 1}, {4, 0}, {0x80}, binary.AppendVarint(nil, 1<<40), binary.AppendVarint(nil, -1),
		append(binary.AppendVarint(nil, 101), make([]byte, 200)...), append([]byte{2}, binary.AppendVarint(nil,
			1<<40)...),
		[]byte(strings.Repeat("\xff", 20)),
	} {
		_, _, err := protobuf.ReadIndex(raw)
		require.ErrorIs(t, err, schema.ErrMismatch, "%x", raw)
	}
}

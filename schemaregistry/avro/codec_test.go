package avro_test

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/schemaregistry/avro"
	"millrace/schemaregistry/schema"
)

func codecOf(t require.TestingT, text string, deps ...string) schema.Codec {
	c, err := parse(t, text, deps...).Codec()
	require.NoError(t, err)
	return c
}

func TestCodec(t *testing.T) {
	for _, c := range []struct{ why, schema, json, bytes string }{
		{"null", `"null"`, `null`, ""},
		{"true", `"boolean"`, `true`, "01"},
		{"false", `"boolean"`, `false`, "00"},
		{"int 0", `"int"`, `0`, "00"},
		{"int -1", `"int"`, `-1`, "01"},
		{"int 64", `"int"`, `64`, "8001"},
		{"smallest int", `"int"`, `-2147483648`, "ffffffff0f"},
		{"largest long", `"long"`, `9223372036854775807`, "feffffffffffffffff01"},
		{"smallest long", `"long"`, `-9223372036854775808`, "ffffffffffffffffff01"},
		{"float", `"float"`, `1.5`, "0000c03f"},
		{"float of few digits", `"float"`, `0.1`, "cdcccc3d"},
		{"double", `"double"`, `-0.1`, "9a9999999999b9bf"},
		{"whole double", `"double"`, `1.0E10`, "000000205fa00242"},
		{"NaN", `"double"`, `"NaN"`, "000000000000f87f"},
		{"infinite", `"float"`, `"-Infinity"`, "000080ff"},
		{"bytes", `"bytes"`, `"A\u0000ÿ\""`, "08" + "4100ff22"},
		{"string", `"string"`, `"é\n"`, "06" + "c3a90a"},
		{"empty string", `"string"`, `""`, "00"},
		{"record", `{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"string"}]}`,
			`{"a":1,"b":"x"}`, "02" + "0278"},
		{"empty record", `{"type":"record","name":"R","fields":[]}`, `{}`, ""},
		{"enum", `{"type":"enum","name":"E","symbols":["A","B"]}`, `"B"`, "02"},
		{"fixed", `{"type":"fixed","name":"F","size":2}`, `"\u0001þ"`, "01fe"},
		{"array", `{"type":"array","items":"int"}`, `[1,2]`, "04020400"},
		{"empty array", `{"type":"array","items":"int"}`, `[]`, "00"},
		{"array of null", `{"type":"array","items":"null"}`, `[null,null]`, "0400"},
		{"map", `{"type":"map","values":"int"}`, `{"k":1}`, "02026b0200"},
		{"empty map", `{"type":"map","values":"int"}`, `{}`, "00"},
		{"null of a union", `["null","string"]`, `null`, "00"},
		{"union", `["null","string"]`, `{"string":"x"}`, "020278"},
		{"union of named types", `["null",{"type":"record","name":"n.R","fields":[]}]`, `{"n.R":{}}`, "02"},
		{"union of an array", `[{"type":"array","items":"int"},"null"]`, `{"array":[1]}`, "00020200"},
		{"timestamp", `{"type":"long","logicalType":"timestamp-millis"}`, `1700000000000`, "80a0abfef962"},
		{"decimal", `{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}`, `"\u0004Ò"`, "0404d2"},
		{"recursion", `{"type":"record","name":"L","fields":[{"name":"v","type":"int"},{"name":"n","type":["null","L"]}]}`,
			`{"v":1,"n":{"L":{"v":2,"n":null}}}`, "02020400"},
	} {
		t.Run(c.why, func(t *testing.T) {
			codec := codecOf(t, c.schema)
			want, err := hex.DecodeString(c.bytes)
			require.NoError(t, err)
			got, err := codec.Encode([]byte("before"), []byte(" "+c.json+" "))
			require.NoError(t, err)
			require.Equal(t, "before"+string(want), string(got))
			require.NoError(t, codec.Check(want))
			text, err := codec.Decode([]byte("before"), want)
			require.NoError(t, err)
			require.Equal(t, "before"+c.json, string(text))
		})
	}
}

func TestEncodeRecordMembers(t *testing.T) {
	codec := codecOf(t, `{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int"},
		{"name":"c","type":"int","default":7}]}`)
	for json, want := range map[string]string{
		`{"a":1,"b":2,"c":3}`:           "020406",
		`{"c":3,"b":2,"a":1}`:           "020406",
		`{"a":1,"c":3,"b":2}`:           "020406",
		`{"\u0061":1,"b":2,"\u0063":3}`: "020406",
	} {
		got, err := codec.Encode(nil, []byte(json))
		require.NoError(t, err)
		require.Equal(t, want, hex.EncodeToString(got))
	}
}

func TestEncodeMismatch(t *testing.T) {
	const rec = `{"type":"record","name":"n.R","fields":[{"name":"a","type":"int"},{"name":"u","type":["null","string",` +
		`{"type":"array","items":"long"}],"default":null}]}`
	for _, c := range []struct{ why, schema, json, reason string }{
		{"not JSON", `"int"`, `{`, "not valid JSON"},
		{"text behind the value", `"int"`, `1 2`, "there is text after the value"},
		{"int too large", `"int"`, `2147483648`, "a whole number of at most 32 bits is wanted, not 2147483648"},
		{"int with a fraction", `"int"`, `1.5`, "without fraction or exponent, is wanted, not 1.5"},
		{"int as text", `"int"`, `"1"`, `is wanted, not "1"`},
		{"long too large", `"long"`, `9223372036854775808`, "at most 64 bits"},
		{"float too large", `"float"`, `1e39`, "a number in the range of a float is wanted, not 1e39"},
		{"double as text", `"double"`, `"1"`, `a number or "NaN", "Infinity" or "-Infinity" is wanted, not "1"`},
		{"boolean", `"boolean"`, `0`, "true or false is wanted, not 0"},
		{"null", `"null"`, `0`, "null is wanted, not 0"},
		{"string", `"string"`, `null`, "a string is wanted, not null"},
		{"half of a surrogate pair", `"string"`, `"\ud800"`, "a string is wanted"},
		{"bytes beyond a byte", `"bytes"`, `"Ā"`, "characters beyond U+00FF stand for none"},
		{"bytes as an array", `"bytes"`, `[1]`, "a string of one character for each byte is wanted, not an array"},
		{"fixed of another length", `{"type":"fixed","name":"F","size":2}`, `"x"`, "the fixed F has 2 bytes, not 1"},
		{"enum", `{"type":"enum","name":"E","symbols":["A","B"]}`, `"C"`, `the enum E has no symbol "C", only A, B`},
		{"array", `{"type":"array","items":"int"}`, `{}`, "an array is wanted, not an object"},
		{"item", `{"type":"array","items":"int"}`, `[1,"x"]`, "at /1: a whole number"},
		{"map", `{"type":"map","values":"int"}`, `[]`, "an object is wanted, not an array"},
		{"value of a map", `{"type":"map","values":"int"}`, `{"k":null}`, "at /k: a whole number"},
		{"record", rec, `1`, "an object with the fields of the record n.R is wanted, not 1"},
		{"missing field", rec, `{"u":null}`, `the field "a" of the record n.R is missing`},
		{"missing field with a default", rec, `{"a":1}`, "its default is for readers, so write it out: null"},
		{"unknown field", rec, `{"a":1,"u":null,"z":1}`, `the record n.R has no field "z"`},
		{"field twice", rec, `{"a":1,"a":2,"u":null}`, `the field "a" is there twice`},
		{"field twice, out of order", rec, `{"u":null,"a":2,"u":null}`, `the field "u" is there twice`},
		{"field", rec, `{"a":"x","u":null}`, "at /a: a whole number"},
		{"untagged", rec, `{"a":1,"u":"x"}`, `at /u: a value of a union is an object with its type as the only name, ` +
			`not "x": write {"string": "x"} (the types are null, "string", "array")`},
		{"unknown tag", rec, `{"a":1,"u":{"int":1}}`, `not "int" (the types are`},
		{"tag null", rec, `{"a":1,"u":{"null":null}}`, `not "null"`},
		{"two tags", rec, `{"a":1,"u":{"string":"x","array":[]}}`, "not an object (the types"},
		{"under a tag", rec, `{"a":1,"u":{"array":[true]}}`, "at /u/array/0: a whole number"},
		{"null without null", `["int","string"]`, `null`, `not null (the types are "int", "string")`},
		{"simple name as a tag", `["null",` + rec + `]`, `{"R":{"a":1,"u":null}}`, `not "R" (the types are null, "n.R")`},
	} {
		t.Run(c.why, func(t *testing.T) {
			out, err := codecOf(t, c.schema).Encode([]byte("x"), []byte(c.json))
			require.ErrorIs(t, err, schema.ErrMismatch)
			require.ErrorContains(t, err, c.reason)
			require.Equal(t, "x", string(out))
		})
	}
}

// varints encodes numbers one behind the other.
func varints(numbers ...int64) string {
	var b []byte
	for _, n := range numbers {
		b = binary.AppendVarint(b, n)
	}
	return string(b)
}

// hostile are bytes that are not a value of their schema, many of which take other decoders long or make them lie.
func hostile() []struct{ why, schema, bytes, reason string } {
	array := func(item string) string { return `{"type":"array","items":` + item + `}` }
	empty := `{"type":"record","name":"R","fields":[]}`
	return []struct{ why, schema, bytes, reason string }{
		{"30 million nulls", array(`"null"`), varints(30_000_000, 0), "more than 4096 items of no bytes"},
		{"30 million empty records", array(empty), varints(30_000_000, 0), "more than 4096 items of no bytes"},
		{"nulls in two blocks", array(`"null"`), varints(4096, 1, 0), "more than 4096 items of no bytes"},
		{"fixed of no bytes", array(`{"type":"fixed","name":"F","size":0}`), varints(5000, 0), "more than 4096"},
		{"30 million longs that are not there", array(`"long"`), varints(30_000_000), "cannot fit into the 0 bytes"},
		{"a map of 30 million nulls that are not there", `{"type":"map","values":"null"}`, varints(30_000_000), "cannot fit"},
		{"doubles that cannot fit", array(`"double"`), varints(2) + "12345678", "a block of 2 items cannot fit into the 8"},
		{"the most negative count", array(`"long"`), varints(math.MinInt64, 0, 0), "more items than can be counted"},
		{"a negative block size", array(`"long"`), varints(-1, -1, 0, 0), "a block has the size -1"},
		{"a block size beyond the value", array(`"long"`), varints(-1, 100, 0, 0), "a block has the size 100; 2 bytes"},
		{"a block that ends early", array(`"long"`), varints(-1, 2, 0, 0), "said to end 1 bytes from where it does"},
		{"no end of an array", array(`"long"`), varints(1, 1), "the value ends inside a number"},
		{"a negative length", `"string"`, varints(-1), "a string has the length -1"},
		{"a length beyond the value", `"bytes"`, varints(5) + "abc", "bytes of 5 bytes ends behind the value, which has 3"},
		{"the largest length", `"bytes"`, varints(math.MaxInt64), "ends behind the value"},
		{"no UTF-8", `"string"`, varints(1) + "\xff", "a string is not valid UTF-8"},
		{"no UTF-8 in a key", `{"type":"map","values":"int"}`, varints(1, 1) + "\xff" + varints(0, 0), "not valid UTF-8"},
		{"an enum index beyond the symbols", `{"type":"enum","name":"E","symbols":["A"]}`, varints(1), "no symbol of number"},
		{"a negative enum index", `{"type":"enum","name":"E","symbols":["A"]}`, varints(-1), "no symbol of number -1"},
		{"a union index beyond the types", `["null","int"]`, varints(2), "the union has no type of number 2"},
		{"a negative union index", `["null","int"]`, varints(-1), "the union has no type of number -1"},
		{"a boolean of 2", `"boolean"`, "\x02", "a boolean is 0 or 1, not 2"},
		{"no boolean", `"boolean"`, "", "a boolean of 1 bytes ends behind the value"},
		{"half a float", `"float"`, "ab", "a float of 4 bytes ends"},
		{"half a fixed", `{"type":"fixed","name":"F","size":4}`, "ab", "a fixed of 4 bytes ends"},
		{"an int of 33 bits", `"int"`, varints(math.MaxInt32 + 1), "an int has more than 32 bits"},
		{"an int of six bytes", `"int"`, "\x80\x80\x80\x80\x80\x00", "an int has more than 32 bits"},
		{"a long of 65 bits", `"long"`, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", "a number has more than 64 bits"},
		{"a number without end", `"long"`, strings.Repeat("\x80", 100), "a number has more than 64 bits"},
		{"nothing", `"int"`, "", "the value ends inside a number"},
		{"bytes behind the value", `"int"`, varints(1, 1), "1 bytes follow the value"},
		{"bytes behind null", `"null"`, "\x00", "1 bytes follow the value"},
		{"a list without end", `{"type":"record","name":"L","fields":[{"name":"n","type":["null","L"]}]}`,
			strings.Repeat("\x02", 1<<20), "nested more than 200 levels deep"},
		{"a record that holds itself", `{"type":"record","name":"L","fields":[{"name":"n","type":"L"}]}`, "", "nested more"},
		{"a place", `{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"array","items":["null","int"]}}]}`,
			varints(2, 0, 5), "at /a/1: the union has no type of number 5"},
	}
}

func TestCheckHostile(t *testing.T) {
	for _, c := range hostile() {
		t.Run(c.why, func(t *testing.T) {
			codec := codecOf(t, c.schema)
			soon(t, func() {
				err := codec.Check([]byte(c.bytes))
				require.ErrorIs(t, err, schema.ErrMismatch)
				require.ErrorContains(t, err, c.reason)
				out, err := codec.Decode([]byte("x"), []byte(c.bytes))
				require.ErrorIs(t, err, schema.ErrMismatch)
				require.Equal(t, "x", string(out))
			})
		})
	}
}

func TestCheckAccepts(t *testing.T) {
	for _, c := range []struct{ why, schema, bytes, json string }{
		{"blocks with sizes", `{"type":"array","items":"int"}`, varints(-2, 2, 1, 2, 1, 3, 0), `[1,2,3]`},
		{"maps in blocks", `{"type":"map","values":"null"}`, varints(-1, 2, 1) + "k" + varints(1, 1) + "l" + varints(0),
			`{"k":null,"l":null}`},
		{"a number longer than it must be", `"long"`, "\x82\x80\x00", `1`},
		{"4096 nulls", `{"type":"array","items":"null"}`, varints(4096, 0), "[null" + strings.Repeat(",null", 4095) + "]"},
		{"a string of more than a MiB", `"string"`, varints(2<<20) + strings.Repeat("x", 2<<20),
			`"` + strings.Repeat("x", 2<<20) + `"`},
	} {
		t.Run(c.why, func(t *testing.T) {
			codec := codecOf(t, c.schema)
			require.NoError(t, codec.Check([]byte(c.bytes)))
			out, err := codec.Decode(nil, []byte(c.bytes))
			require.NoError(t, err)
			require.Equal(t, c.json, string(out))
		})
	}
}

// TestDecodeGrowth decodes values that become much larger as JSON.
func TestDecodeGrowth(t *testing.T) {
	long := strings.Repeat("n", 100_000)
	codec := codecOf(t, `{"type":"array","items":`+rec("R", f(long, `"null"`))+`}`)
	soon(t, func() {
		require.NoError(t, codec.Check([]byte(varints(4096, 0))))
		_, err := codec.Decode(nil, []byte(varints(4096, 0)))
		require.ErrorIs(t, err, schema.ErrMismatch)
		require.ErrorContains(t, err, "as JSON the value has more than")
	})

	// Two empty records in each of many levels: exponentially many parts of a value of no bytes.
	text := `{"type":"record","name":"R0","fields":[]}`
	for i := range 40 {
		text = `{"type":"record","name":"R` + string(rune('a'+i/26)) + string(rune('a'+i%26)) + `","fields":[` +
			`{"name":"a","type":` + text + `},{"name":"b","type":"R` + previous(i) + `"}]}`
	}
	soon(t, func() { require.ErrorContains(t, codecOf(t, text).Check(nil), "too many parts") })
}

func previous(i int) string {
	if i == 0 {
		return "0"
	}
	return string(rune('a'+(i-1)/26)) + string(rune('a'+(i-1)%26))
}

func TestPayload(t *testing.T) {
	bare, err := parse(t, `"bytes"`).Payload()
	require.NoError(t, err)
	out, err := bare.Encode([]byte("x"), []byte(`"aÿ"`))
	require.NoError(t, err)
	require.Equal(t, "xa\xff", string(out))
	out, err = bare.Decode(nil, []byte("a\xff"))
	require.NoError(t, err)
	require.Equal(t, `"aÿ"`, string(out))
	require.NoError(t, bare.Check([]byte("anything")))
	for _, json := range []string{`1`, `"Ā"`, `"a" x`} {
		_, err = bare.Encode(nil, []byte(json))
		require.ErrorIs(t, err, schema.ErrMismatch)
	}
	framed, err := parse(t, `"string"`).Payload()
	require.NoError(t, err)
	out, err = framed.Encode(nil, []byte(`"a"`))
	require.NoError(t, err)
	require.Equal(t, "\x02a", string(out))
}

func TestEncodeDepth(t *testing.T) {
	codec := codecOf(t, `{"type":"record","name":"L","fields":[{"name":"n","type":["null","L"]}]}`)
	deep := func(levels int) []byte {
		return []byte(strings.Repeat(`{"n":{"L":`, levels) + `{"n":null}` + strings.Repeat(`}}`, levels))
	}
	b, err := codec.Encode(nil, deep(99))
	require.NoError(t, err)
	require.NoError(t, codec.Check(b))
	for _, levels := range []int{100, 10_000, 100_000} {
		_, err = codec.Encode(nil, deep(levels))
		require.ErrorIs(t, err, schema.ErrMismatch)
		require.ErrorContains(t, err, "nested more than 200 levels deep")
	}
	_, err = avro.New(avro.Limits{}).Parse(string(deep(10_000)), nil, schema.ParseOptions{})
	require.ErrorIs(t, err, schema.ErrInvalid)
}

package rawjson_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"millrace/api/rawjson"
)

var documents = []struct {
	text string
	ok   bool
}{
	{`null`, true}, {`true`, true}, {`false`, true}, {`nul`, false}, {`nulls`, false}, {`True`, false}, {``, false},
	{` `, false}, {`0`, true}, {`-0`, true}, {`-`, false}, {`01`, false}, {`1.`, false}, {`.5`, false}, {`1.5`, true},
	{`1e5`, true}, {`1E+5`, true}, {`1e-5`, true}, {`1e`, false}, {`1e+`, false}, {`+1`, false}, {`0x1`, false},
	{`123456789012345678901234567890`, true}, {`NaN`, false}, {`Infinity`, false},
	{`""`, true}, {`"a`, false}, {`"`, false}, {`"a" `, true}, {` "a"`, true}, {`"a" "b"`, false}, {`"\"`, false},
	{`"\\"`, true}, {`"\n"`, true}, {`"\x"`, false}, {`"\u12"`, false}, {`"\u12gz"`, false}, {`"\u00e9"`, true},
	{`"\ud800"`, true}, {"\"a\nb\"", false}, {"\"a\tb\"", false}, {"\"\x7f\"", true}, {"\"\x00\"", false},
	{`"é漢😀"`, true}, {"\"\xff\"", false}, {"\"\xc0\x80\"", false}, {"\"\xed\xa0\x80\"", false},
	{"\"\xf4\x90\x80\x80\"", false},
	{"\"\xe2\x82\"", false}, {"\"\xe2\x82", false}, {"\"\xf0\x8f\xbf\xbf\"", false}, {"\"\xe0\x9f\xbf\"", false},
	{`[]`, true}, {`[ ]`, true}, {`[1]`, true}, {`[1,]`, false}, {`[,1]`, false}, {`[1 2]`, false}, {`[1`, false},
	{`[`, false}, {`]`, false}, {`[1}`, false}, {`[[]]`, true}, {`[[],{}]`, true}, {"[1,\n2]", true}, {`[1]]`, false},
	{`{}`, true}, {`{ }`, true}, {`{"a":1}`, true}, {`{"a" : 1 , "b" : 2}`, true}, {`{"a":1,}`, false}, {`{"a"}`, false},
	{`{"a":}`, false}, {`{a:1}`, false}, {`{1:1}`, false}, {`{"a":1 "b":2}`, false}, {`{"a":1]`, false}, {`{`, false},
	{`{"a"`, false}, {`{"a":`, false}, {`{"a":1`, false}, {`{"a":1,`, false}, {`{"":{"":[{}]}}`, true}, {`{,}`, false},
	{"\ufeff1", false}, {"1\x00", false}, {"\x0b1", false}, {"[1\x0c]", false}, {`/**/1`, false}, {`'a'`, false},
}

func TestDocumentAcceptsExactlyJSON(t *testing.T) {
	for _, d := range documents {
		value, _, err := rawjson.Document([]byte(d.text), rawjson.MaxDepth)
		require.Equal(t, d.ok, err == nil, "%q: %v", d.text, err)
		if d.ok {
			require.Equal(t, strings.TrimSpace(d.text), string(value))
		} else {
			var s *rawjson.SyntaxError
			require.ErrorAs(t, err, &s)
			require.LessOrEqual(t, s.Offset, len(d.text), "%q", d.text)
			require.GreaterOrEqual(t, s.Offset, 0)
		}
	}
}

// Every byte at every place of words of every alignment, as a string's content.
func TestStringsOfEveryByte(t *testing.T) {
	for length := range 40 {
		for at := range length {
			for b := range 256 {
				text := bytes.Repeat([]byte{'x'}, length)
				text[at] = byte(b)
				text = append(append([]byte{'"'}, text...), '"')
				_, _, err := rawjson.Document(text, rawjson.MaxDepth)
				require.Equal(t, json.Valid(text) && utf8.Valid(text), err == nil, "%q: %v", text, err)
			}
		}
	}
}

func TestDepth(t *testing.T) {
	nested := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	mixed := func(n int) []byte {
		return []byte(strings.Repeat(`[{"a":`, n/2) + "1" + strings.Repeat("}]", n/2))
	}
	for _, limit := range []int{0, 1, 2, 63, 64, 65, 128, 130, 1000, rawjson.MaxDepth} {
		_, _, err := rawjson.Document(nested(limit+1), limit)
		require.ErrorContains(t, err, "nested too deeply", "%d", limit)
		if limit > 0 {
			_, _, err = rawjson.Document(nested(limit), limit)
			require.NoError(t, err, "%d", limit)
		}
		_, _, err = rawjson.Document(mixed(limit), limit)
		require.NoError(t, err, "%d", limit)
	}
	// What closes must be what opened, also below the first word of the stack.
	_, _, err := rawjson.Document([]byte(strings.Repeat("[", 100)+strings.Repeat("]", 35)+"}"), 100)
	require.Error(t, err)
}

func TestFlags(t *testing.T) {
	for text, want := range map[string]rawjson.Flags{
		`{"a":[1,"x y"]}`: 0, ` {"a":1} `: 0, `{"a": 1}`: rawjson.Blank, "{\"a\":\t1}": rawjson.Blank,
		"[1,\n2]": rawjson.Blank | rawjson.Newline, "[1\r,2]": rawjson.Blank | rawjson.Newline, "\n1\n": 0,
		`[1, 2]`: rawjson.Blank, `{ }`: rawjson.Blank, `{"a" :1}`: rawjson.Blank,
	} {
		_, f, err := rawjson.Document([]byte(text), 64)
		require.NoError(t, err)
		require.Equal(t, want, f, "%q", text)
	}
}

func TestCompact(t *testing.T) {
	for _, d := range documents {
		if !d.ok {
			continue
		}
		value, _, err := rawjson.Document([]byte(d.text), rawjson.MaxDepth)
		require.NoError(t, err)
		var want bytes.Buffer
		require.NoError(t, json.Compact(&want, value))
		require.Equal(t, want.String(), string(rawjson.Compact(nil, value)), "%q", d.text)
	}
}

func TestTextAndAppendString(t *testing.T) {
	for _, s := range []string{"", "a", "a\"b\\c/d\be\ff\ng\rh\ti\x00\x1f\x7f", "é漢😀", strings.Repeat("long ", 100)} {
		raw := rawjson.AppendString(nil, s)
		var back string
		require.NoError(t, json.Unmarshal(raw, &back), "%s", raw)
		require.Equal(t, s, back)
		got, ok := rawjson.Text(raw)
		require.True(t, ok)
		require.Equal(t, s, string(got))
		require.Equal(t, raw, rawjson.AppendString(nil, []byte(s)))
	}
	require.Equal(t, "\"a\ufffdb\"", string(rawjson.AppendString(nil, "a\xffb")))
	for raw, want := range map[string]string{
		`"\u0041\u00e9\u6f22"`: "Aé漢", `"\ud83d\ude00"`: "😀", `"\/\b\f"`: "/\b\f", `"x\u0000y"`: "x\x00y",
	} {
		got, ok := rawjson.Text([]byte(raw))
		require.True(t, ok, raw)
		require.Equal(t, want, string(got))
	}
	for _, raw := range []string{`"\ud83d"`, `"\ud83dx"`, `"\ude00"`, `"\ud83d\ud83d"`, `"\ud83d\n"`, `1`, `null`} {
		_, ok := rawjson.Text([]byte(raw))
		require.False(t, ok, raw)
	}
}

func TestInt64(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "-1": -1, "9223372036854775807": 1<<63 - 1} {
		n, ok := rawjson.Int64([]byte(text))
		require.True(t, ok)
		require.Equal(t, want, n)
	}
	for _, text := range []string{"9223372036854775808", "1.0", "1e3", `"1"`, "null", ""} {
		_, ok := rawjson.Int64([]byte(text))
		require.False(t, ok, text)
	}
}

// members walks an object with a Cursor and returns "name=value" for each member.
func members(text string) (out []string, err error) {
	c := rawjson.Cursor{Data: []byte(text)}
	if err := c.Begin('{'); err != nil {
		return nil, err
	}
	for first := true; ; first = false {
		more, err := c.More('}', first)
		if err != nil {
			return nil, err
		}
		if !more {
			return out, c.End()
		}
		name, err := c.Name()
		if err != nil {
			return nil, err
		}
		value, _, err := c.Value(8)
		if err != nil {
			return nil, err
		}
		out = append(out, string(name)+"="+string(value))
	}
}

func TestCursor(t *testing.T) {
	got, err := members(" { \"a\" : 1 ,\n\"b\\u0041\":[ 1, 2 ],\"\":null } ")
	require.NoError(t, err)
	require.Equal(t, []string{"a=1", "bA=[ 1, 2 ]", "=null"}, got)
	got, err = members("{}")
	require.NoError(t, err)
	require.Empty(t, got)
	for _, text := range []string{
		"", "[", "{", `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{,"a":1}`, `{"a":1 "b":2}`, `{"a" 1}`, `{"a":1]`,
		`{"\ud800":1}`, `{"a":1} x`, `{1:2}`,
	} {
		_, err := members(text)
		require.Error(t, err, "%q", text)
	}
}

// A value of another kind is told from text that is not JSON.
func TestBeginRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":1}`: "an array is wanted, not an object",
		`"a"`:     "an array is wanted, not a string",
		` 1.5`:    "an array is wanted, not a number",
		`true`:    "an array is wanted, not a boolean",
		`null`:    "an array is wanted, not null",
		`{"a":1`:  "not valid JSON at byte 7",
		`hello`:   "not valid JSON at byte 1",
		``:        "not valid JSON at byte 1",
	} {
		c := rawjson.Cursor{Data: []byte(text)}
		err := c.Begin('[')
		require.ErrorContains(t, err, want, "%s", text)
		require.Zero(t, c.Pos-len(text)+len(strings.TrimLeft(text, " ")), "nothing is taken")
		inField := rawjson.InField(rawjson.InField(err, "headers"), "outer")
		if strings.HasPrefix(want, "an array") {
			require.EqualError(t, inField, `field "headers": `+want)
		} else {
			require.Equal(t, err, inField)
		}
	}
}

// What the walk accepts is exactly what the scan accepts.
func FuzzScan(f *testing.F) {
	for _, d := range documents {
		f.Add([]byte(d.text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		value, _, err := rawjson.Document(data, rawjson.MaxDepth)
		want := json.Valid(data) && utf8.Valid(data)
		require.Equal(t, want, err == nil, "%q: %v", data, err)
		if err != nil {
			return
		}
		var compact bytes.Buffer
		require.NoError(t, json.Compact(&compact, value))
		require.Equal(t, compact.String(), string(rawjson.Compact(nil, value)))
		if value[0] == '"' {
			var s string
			require.NoError(t, json.Unmarshal(value, &s))
			if text, ok := rawjson.Text(value); ok {
				require.Equal(t, s, string(text))
			} else {
				require.Contains(t, s, "\ufffd")
			}
		}
		if value[0] == '{' {
			_, err := members(string(data))
			var deep json.RawMessage
			require.NoError(t, json.Unmarshal(data, &deep))
			if err != nil {
				require.Regexp(t, "nested|surrogate", err.Error())
			}
		}
	})
}

func FuzzAppendString(f *testing.F) {
	f.Add("a\xff\"\\\n")
	f.Fuzz(func(t *testing.T, s string) {
		raw := rawjson.AppendString([]byte("x"), s)[1:]
		require.True(t, json.Valid(raw) && utf8.Valid(raw))
		var back string
		require.NoError(t, json.Unmarshal(raw, &back))
		require.Equal(t, strings.ToValidUTF8(s, "\ufffd") == s, back == s)
	})
}

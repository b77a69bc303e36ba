package rawjson_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/api/rawjson"
)

func TestIsEmpty(t *testing.T) {
	for body, want := range map[string]bool{
		"": true, " \r\n\t": true, "null": true, " null\n": true,
		"nul": false, "null 1": false, "{}": false, "0": false, "\x00": false,
	} {
		require.Equal(t, want, rawjson.IsEmpty([]byte(body)), "%q", body)
	}
}

func TestExcerpt(t *testing.T) {
	require.Equal(t, "[1]", rawjson.Excerpt([]byte("[1]")))
	require.Equal(t, strings.Repeat("x", 64)+"...", rawjson.Excerpt([]byte(strings.Repeat("x", 65))))
}

func TestBase64(t *testing.T) {
	for value, want := range map[string]string{
		`""`: "", `"aGVsbG8="`: "hello", `"Pz8\/"`: "???", `"\u0061GVsbG8="`: "hello",
	} {
		got, err := rawjson.Base64([]byte(value))
		require.NoError(t, err, value)
		require.Equal(t, want, string(got))
	}
	for _, value := range []string{`"a"`, `"aGVsbG8"`, `"aGV sbG8="`, `"\ud800"`} {
		_, err := rawjson.Base64([]byte(value))
		require.Error(t, err, value)
	}
}

func TestMember(t *testing.T) {
	c := rawjson.Cursor{Data: []byte(`{"a":1,"":2} `)}
	require.NoError(t, c.Begin('{'))
	for i, want := range []string{"a", ""} {
		name, more, err := c.Member(i == 0)
		require.NoError(t, err)
		require.True(t, more)
		require.Equal(t, want, string(name))
		_, _, err = c.Value(1)
		require.NoError(t, err)
	}
	_, more, err := c.Member(false)
	require.NoError(t, err)
	require.False(t, more)
	for _, text := range []string{`{`, `{1`, `{"a"`, `{,`} {
		c := rawjson.Cursor{Data: []byte(text)}
		require.NoError(t, c.Begin('{'))
		_, _, err := c.Member(true)
		require.Error(t, err, text)
	}
}

// What is wrong with base64 is said in words that tell what to change.
func TestBase64Explained(t *testing.T) {
	for text, want := range map[string]string{
		`"AA"`:        `the padding is missing: "==" must follow`,
		`"AAAAAAA"`:   `the padding is missing: "=" must follow`,
		`"AAAAA"`:     "a character is missing",
		`"A*AA"`:      "character 2 is not one of base64",
		`"AAAA-A=="`:  "character 5 is '-', of base64 for URLs",
		`"AAAA_A=="`:  "for URLs",
		`"=AAA"`:      "padding at character 1",
		`"AA==AAAA"`:  "",
		`"AA A"`:      "character 3",
		`"AAA\u003d"`: "ok",
	} {
		_, err := rawjson.Base64([]byte(text))
		if want == "ok" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, want, "%s", text)
		require.NotContains(t, err.Error(), "illegal", "%s", text)
	}
	_, err := base64.StdEncoding.Strict().DecodeString("AB==")
	require.ErrorContains(t, rawjson.ExplainBase64([]byte("AB=="), err), "more bits")
}

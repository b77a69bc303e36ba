package main

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// readAll turns input text into records, up to the end or the first error.
func readAll(in *input, text string) (records []string, err error) {
	in.r = bufio.NewReaderSize(strings.NewReader(text), 16) // small, so that long lines come in pieces
	for {
		rec, err := in.next()
		if errors.Is(err, io.EOF) {
			return records, nil
		}
		if err != nil {
			return records, err
		}
		records = append(records, string(rec))
	}
}

func TestInputFormats(t *testing.T) {
	key := "k"
	long := strings.Repeat("x", 100)
	for _, c := range []struct {
		name string
		in   input
		text string
		want []string
	}{
		{"lines", input{format: "lines"}, "a\nb", []string{`{"value_text":"a"}`, `{"value_text":"b"}`}},
		{"an empty line is an empty value", input{format: "lines"}, "a\n\n",
			[]string{`{"value_text":"a"}`, `{"value_text":""}`}},
		{"line ends of Windows", input{format: "lines"}, "a\r\n", []string{`{"value_text":"a"}`}},
		{"a long line", input{format: "lines"}, long + "\n", []string{`{"value_text":"` + long + `"}`}},
		{"not UTF-8", input{format: "lines"}, "\xff\n", []string{`{"value_base64":"/w=="}`}},
		{"quotes", input{format: "lines"}, `say "hi"`, []string{`{"value_text":"say \"hi\""}`}},
		{"fixed key", input{format: "lines", key: &key}, "a", []string{`{"key_text":"k","value_text":"a"}`}},
		{"keys", input{format: "lines", keySep: "::"}, "k::v::w", []string{`{"key_text":"k","value_text":"v::w"}`}},
		{"json", input{format: "json"}, "{\"a\":1}\n\n[2]\n", []string{`{"value":{"a":1}}`, `{"value":[2]}`}},
		{"json with a key", input{format: "json", key: &key}, "1", []string{`{"key_text":"k","value":1}`}},
		{"headers", input{format: "json", headers: []header{{"h", "1"}, {"b", "\xff"}}}, "1",
			[]string{`{"value":1,"headers":[{"name":"h","value":"1"},{"name":"b","value_base64":"/w=="}]}`}},
		{"records", input{format: "records"}, `{"key":1,"value":2}`, []string{`{"key":1,"value":2}`}},
		{"nothing", input{format: "lines"}, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := readAll(&c.in, c.text)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestInputNamesTheBadLine(t *testing.T) {
	for _, c := range []struct {
		in   input
		text string
		want string
	}{
		{input{format: "json"}, "1\nnot json\n", "line 2 is not JSON"},
		{input{format: "records"}, "[1]\n", "line 1 is not a record"},
		{input{format: "lines", keySep: "="}, "a=b\nno separator\n", `line 2 has no "="`},
	} {
		_, err := readAll(&c.in, c.text)
		require.ErrorContains(t, err, c.want)
		require.Equal(t, exitFailed, codeOf(err))
	}
}

func TestTemplate(t *testing.T) {
	raw := []byte(`{"partition":3,"offset":7,"timestamp":"2026-01-02T03:04:05.678Z","key_base64":"aw==",` +
		`"value_base64":"dg==","headers":[{"name":"a","value":"1"},{"name":"b","value_base64":"/w=="}]}`)
	for format, want := range map[string]string{
		"{value}":                     "v\n",
		`{partition}/{offset}\t{key}`: "3/7\tk\n",
		"{timestamp} {headers} end":   "2026-01-02T03:04:05.678Z a=1,b=\xff end\n",
		`a\\b`:                        `a\b` + "\n",
		"":                            "\n",
	} {
		tmpl, err := parseTemplate(format)
		require.NoError(t, err)
		var b strings.Builder
		w := bufio.NewWriter(&b)
		require.NoError(t, tmpl.print(w, raw))
		require.NoError(t, w.Flush())
		require.Equal(t, want, b.String(), format)
	}
	for _, bad := range []string{"{", "{valu}", "{value", "a {key"} {
		_, err := parseTemplate(bad)
		require.Equal(t, exitUsage, codeOf(err), bad)
	}
}

func TestFromTime(t *testing.T) {
	now := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"15m":                  now.Add(-15 * time.Minute),
		"@1700000000000":       time.UnixMilli(1700000000000),
		"2026-01-02T03:04:05Z": time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		"2026-01-02":           time.Date(2026, 1, 2, 0, 0, 0, 0, time.Local),
	} {
		got, err := parseTime(text, now)
		require.NoError(t, err, text)
		require.True(t, want.Equal(got), text)
	}
	_, err := parseTime("yesterday", now)
	require.Equal(t, exitUsage, codeOf(err))
}

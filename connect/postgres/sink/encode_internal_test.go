package sink

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What is read as a time has one form, and that reads as the same.
func FuzzParseISO(f *testing.F) {
	for _, s := range []string{"2024-02-29", "2024-02-29T12:34:56.789+05:30", "-0043-03-15T00:00:00Z",
		"+12024-01-01T24:00Z",
		"2024-02-30", "0000-01-01 00:00:00-00:00:01", "infinity", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, ok := parseISO(s)
		if !ok {
			return
		}
		text := string(p.append(nil, true))
		if strings.HasSuffix(text, " BC") {
			return // a form of the server's own
		}
		again, ok := parseISO(text)
		require.True(t, ok, "%q gives %q", s, text)
		require.Equal(t, text, string(again.append(nil, true)))
		if at, err := time.Parse(time.RFC3339Nano, s); err == nil && at.Year() > 0 {
			require.Equal(t, at.UTC().Format("2006-01-02 15:04:05"), text[:19])
		}
	})
}

// Bytes that are no geometry are refused, whatever they are.
func FuzzReadWKB(f *testing.F) {
	f.Add([]byte{1, 2, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{1, 3, 0, 0, 0x20, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		points, _, err := readWKB(b)
		require.LessOrEqual(t, len(points)*16, len(b))
		require.True(t, err == nil || points == nil)
	})
}

func TestStripEscapedNUL(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":"x\u0000y"}`: `{"a":"xy"}`, `"\\u0000"`: `"\\u0000"`, `"\\\u0000"`: `"\\"`, `\`: `\`, `"\u0001"`: `"\u0001"`,
	} {
		require.Equal(t, want, stripEscapedNUL(in))
	}
}

func TestTableNames(t *testing.T) {
	source := func(name string) (string, bool) { return map[string]string{"table": "a.b"}[name], name == "table" }
	for _, c := range []struct {
		format, topic  string
		underscores    bool
		schema, table  string
		ok, fails, low bool
	}{
		{format: "${topic}", topic: "t", table: "t", ok: true},
		{format: "${topic}", topic: "s.T", schema: "s", table: "T", ok: true},
		{format: "${topic}", topic: "s.T", schema: "s", table: "t", ok: true, low: true},
		{format: "${topic}", topic: "server.s.t", schema: "s", table: "t", ok: true},
		{format: "${topic}", topic: "a.b.c.d", ok: true, fails: true},
		{format: "x_${topic}_y", topic: "a.b", underscores: true, table: "x_a_b_y", ok: true},
		{format: `s."${topic}"`, topic: "a.b", schema: "s", table: "a.b", ok: true},
		{format: "${source.table}", topic: "t", schema: "a", table: "b", ok: true},
		{format: "${source.schema}", topic: "t"},
		{format: "s.", topic: "t", ok: true, fails: true},
	} {
		cfg := &config{class: nativeClass, format: c.format, underscores: c.underscores, fold: c.low}
		name, ok := cfg.tableName(c.topic, source)
		require.Equal(t, c.ok, ok, c.format)
		if !ok {
			continue
		}
		schema, table, err := cfg.parseTable(name)
		require.Equal(t, c.fails, err != nil, "%s %v", c.format, err)
		require.Equal(t, [2]string{c.schema, c.table}, [2]string{schema, table}, c.format)
	}
}

package avro_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/schemaregistry/avro"
	"millrace/schemaregistry/schema"
)

// hostileTime is what hostile input may cost. On a machine that does nothing else it costs less than 50 ms; what is
// not linear would cost minutes.
const hostileTime = time.Second

// soon fails when f takes longer than hostile input may. The best try counts: other tests may be running.
func soon(t *testing.T, f func()) {
	t.Helper()
	least := time.Hour
	for try := 0; try < 10 && least >= hostileTime*slowdown; try++ {
		start := time.Now()
		f()
		least = min(least, time.Since(start))
	}
	t.Logf("%v", least)
	require.Less(t, least, hostileTime*slowdown)
}

// fill repeats what part makes of the numbers from 0 on, with commas between, up to a size.
func fill(before, after string, size int, part func(i int) string) string {
	var b strings.Builder
	b.WriteString(before)
	for i := 0; b.Len() < size; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(part(i))
	}
	return b.String() + after
}

const textBytes = 1<<20 - 1000

func hostileTexts() map[string]string {
	nest := func(open, middle, end string, levels int) string {
		return strings.Repeat(open, levels) + middle + strings.Repeat(end, levels)
	}
	return map[string]string{
		"10,000 arrays of JSON":      nest("[", "", "]", 10_000),
		"10,000 open arrays":         strings.Repeat("[", 10_000),
		"10,000 arrays":              nest(`{"type":"array","items":`, `"int"`, "}", 10_000),
		"10,000 levels of a default": `{"type":"string","p":` + nest(`{"a":`, "1", "}", 10_000) + "}",
		"a MiB of opening brackets":  strings.Repeat("[", textBytes),
		"a MiB of blanks":            strings.Repeat(" ", textBytes) + `"int"`,
		"a MiB of comments":          strings.Repeat("/**/", textBytes/4) + `"int"`,
		"a MiB of open comment":      "/*" + strings.Repeat("*", textBytes),
		"a MiB of a name":            `{"type":"record","name":"` + strings.Repeat("a", textBytes) + `","fields":[]}`,
		"a MiB of dots":              `{"type":"record","name":"` + strings.Repeat(".a", textBytes/2) + `","fields":[]}`,
		"a MiB of digits":            `{"type":"string","p":` + strings.Repeat("1", textBytes) + `}`,
		"a MiB of numbers": fill(`{"type":"string","p":[`, `]}`, textBytes,
			func(i int) string { return fmt.Sprintf("%d.5e300", i) }),
		"a MiB of escapes": `{"type":"string","p":"` + strings.Repeat(`\u0001`, textBytes/6) + `"}`,
		"many members": fill(`{"type":"string",`, `}`, textBytes,
			func(i int) string { return fmt.Sprintf(`"p%d":%d`, i, i) }),
		"many members of one name": fill(`{"type":"string",`, `}`, textBytes, func(int) string { return `"p":1` }),
		"many fields": fill(`{"type":"record","name":"R","fields":[`, `]}`, textBytes,
			func(i int) string { return fmt.Sprintf(`{"name":"f%d","type":"int"}`, i) }),
		"many symbols": fill(`{"type":"enum","name":"E","symbols":[`, `]}`, textBytes,
			func(i int) string { return fmt.Sprintf(`"s%d"`, i) }),
		"many aliases": fill(`{"type":"fixed","name":"F","size":1,"aliases":[`, `]}`, textBytes,
			func(i int) string { return fmt.Sprintf(`"s%d"`, i) }),
		"many types in a union": fill(`[`, `]`, textBytes,
			func(i int) string { return fmt.Sprintf(`{"type":"fixed","name":"F%d","size":1}`, i) }),
		"a union of ints": fill(`[`, `]`, textBytes, func(int) string { return `"int"` }),
		"types that were used before": fill(`{"type":"record","name":"R","fields":[`, `]}`, textBytes, func(i int) string {
			return fmt.Sprintf(`{"name":"f%d","type":{"type":"record","name":"T%d","fields":[{"name":"a","type":"T%d"}]}}`,
				i, i, max(i-1, 0))
		}),
		"types that come later": fill(`{"type":"record","name":"R","fields":[`,
			`,{"name":"z","type":{"type":"fixed","name":"T15000","size":1}}]}`, 900_000, func(i int) string {
				return fmt.Sprintf(`{"name":"f%d","type":{"type":"record","name":"T%d","fields":[{"name":"a","type":"T%d"}]}}`,
					i, i, min(i+1, 15_000))
			}),
		"one definition again and again": fill(`{"type":"record","name":"R","fields":[`, `]}`, textBytes, func(i int) string {
			return fmt.Sprintf(`{"name":"f%d","type":{"type":"enum","name":"E","symbols":["A","B"],"p":{"x":1}}}`, i)
		}),
		"defaults that need themselves": `{"type":"record","name":"R","fields":[{"name":"a","type":"R","default":{}}]}`,
		"defaults of many fields": fill(`{"type":"record","name":"R","fields":[`, `]}`, textBytes, func(i int) string {
			return fmt.Sprintf(`{"name":"f%d","type":["null",{"type":"array","items":"R"},"R"],"default":{}}`, i)
		}),
		"a record with many fields as a default": `{"type":"record","name":"Q","fields":[{"name":"r","type":` +
			fill(`{"type":"record","name":"R","fields":[`, `]}`, textBytes/2,
				func(i int) string { return fmt.Sprintf(`{"name":"f%d","type":"int"}`, i) }) + `,"default":` +
			fill(`{`, `}`, textBytes/2-10_000, func(i int) string { return fmt.Sprintf(`"f%d":1`, i) }) + `}]}`,
		"fields just within the limits": fill(`{"type":"record","name":"R","fields":[`, `]}`, 800_000,
			func(i int) string { return fmt.Sprintf(`{"name":"f%d","type":["null","int"]}`, i) }),
		"types just within the limits": fill(`{"type":"record","name":"R","fields":[`, `]}`, 850_000, func(i int) string {
			return fmt.Sprintf(`{"name":"f%d","type":{"type":"record","name":"T%d","fields":[{"name":"a","type":"T%d"}]}}`,
				i, i, max(i-1, 0))
		}),
		"types that come later, just within the limits": fill(`{"type":"record","name":"R","fields":[`,
			`,{"name":"z","type":{"type":"fixed","name":"T9000","size":1}}]}`, 700_000, func(i int) string {
				return fmt.Sprintf(`{"name":"f%d","type":{"type":"record","name":"T%d","fields":[{"name":"a","type":"T%d"}]}}`,
					i, i, 9000+i/1000_000)
			}),
		"many aliases of fields": fill(`{"type":"record","name":"R","fields":[{"name":"a","type":"int","aliases":[`,
			`]}]}`, textBytes, func(i int) string { return fmt.Sprintf(`"s%d"`, i) }),
		"unknown names far inside": nest(`{"type":"array","items":`, fill(`[`, `]`, textBytes/2,
			func(i int) string { return fmt.Sprintf(`"T%d"`, i) }), "}", 400),
	}
}

func TestParseHostile(t *testing.T) {
	f := avro.New(avro.Limits{})
	for why, text := range hostileTexts() {
		t.Run(why, func(t *testing.T) {
			for _, o := range []schema.ParseOptions{{Strict: true}, {Normalize: true}} {
				soon(t, func() {
					s, err := f.Parse(text, nil, o)
					if err != nil {
						require.ErrorIs(t, err, schema.ErrInvalid)
						return
					}
					require.LessOrEqual(t, len(s.Text()), 1<<20)
				})
			}
		})
	}
}

// hostilePairs are schemas that take long to compare.
func hostilePairs() map[string][2]string {
	// Records in unions that lead to all records of the next level, of which none can be read.
	unions := func(levels, width int, last string) string {
		text := `"` + last + `"`
		for level := range levels {
			var types []string
			for i := range width {
				name := fmt.Sprintf("n%d.R%d", i, level)
				field := text
				if i > 0 && level > 0 {
					field = again(level-1, width)
				}
				types = append(types, `{"type":"record","name":"`+name+`","fields":[{"name":"f","type":`+field+`}]}`)
			}
			text = "[" + strings.Join(types, ",") + "]"
		}
		return text
	}
	cycle := func(name string, length int, kind string) string {
		text := `{"type":"record","name":"` + name + `0","fields":[`
		for i := 1; i < length; i++ {
			text += fmt.Sprintf(`{"name":"n","type":{"type":"record","name":"x%d.%s0","fields":[{"name":"v","type":"%s"},`,
				i, name, kind)
		}
		return text + `{"name":"n","type":"` + name + `0"}` + strings.Repeat(`]}}`, length-1) + `]}`
	}
	many := func(kind string) string {
		return fill(`{"type":"record","name":"R","fields":[`, `]}`, 700_000,
			func(i int) string { return fmt.Sprintf(`{"name":"f%d","type":"%s"}`, i, kind) })
	}
	fixeds := func(prefix string) string {
		return fill(`[`, `]`, 900_000, func(i int) string {
			return fmt.Sprintf(`{"type":"fixed","name":"%s%d","size":1}`, prefix, i)
		})
	}
	enums := func(prefix string) string {
		return fill(`{"type":"enum","name":"E","symbols":[`, `]}`, 600_000,
			func(i int) string { return fmt.Sprintf(`"%s%d"`, prefix, i) })
	}
	return map[string][2]string{
		"unions of unions":           {unions(5, 90, "int"), unions(5, 90, "string")},
		"unions of unions that fit":  {unions(5, 90, "int"), unions(5, 90, "int")},
		"two cycles":                 {cycle("R", 150, "int"), cycle("R", 149, "string")},
		"many fields that fail":      {many("int"), many("string")},
		"many fields that may fail":  {many("double"), many("long")},
		"many types in unions":       {fixeds("A"), fixeds("B")},
		"many symbols":               {enums("a"), enums("b")},
		"a union and many types":     {fixeds("A"), `{"type":"fixed","name":"Z","size":1}`},
		"many types read as a union": {`"int"`, fixeds("A")},
	}
}

func again(level, width int) string {
	var types []string
	for i := range width {
		types = append(types, fmt.Sprintf(`"n%d.R%d"`, i, level))
	}
	return "[" + strings.Join(types, ",") + "]"
}

func TestCompareHostile(t *testing.T) {
	f := avro.New(avro.Limits{})
	for why, texts := range hostilePairs() {
		t.Run(why, func(t *testing.T) {
			reader, writer := parse(t, texts[0]), parse(t, texts[1])
			soon(t, func() {
				c, err := f.Compare(reader, writer, schema.CompareOptions{ReaderName: "new", WriterName: "old"})
				if err != nil {
					require.ErrorIs(t, err, schema.ErrInvalid)
				}
				size := 0
				for _, d := range c.Differences {
					size += len(d.Description) + len(d.Info) + len(d.Reader) + len(d.Writer)
				}
				require.Less(t, size, 8<<20)
			})
		})
	}
}

func TestCompareLimits(t *testing.T) {
	format := avro.New(avro.Limits{CompareSteps: 20})
	s, err := format.Parse(rec("R", f("a", `["int","long"]`), f("b", `["int","long"]`)), nil, schema.ParseOptions{})
	require.NoError(t, err)
	_, err = format.Compare(s, s, schema.CompareOptions{})
	require.ErrorIs(t, err, schema.ErrInvalid)
	require.ErrorContains(t, err, "more than 20 steps")
}

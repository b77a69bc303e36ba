package avro_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/schemaregistry/avro"
	"millrace/schemaregistry/schema"
)

// TestParse holds the verdicts on texts and the forms in which they are stored to what is written in the file: read
// strictly, not strictly ("lax", where that differs) and normalised (where it differs). But for half of a surrogate
// pair, which is refused here, Avro for Java 1.12.2 says the same of all of them.
func TestParse(t *testing.T) {
	for _, e := range entries(t, "testdata/parse.txt") {
		t.Run(e.heading+"/"+e.name, func(t *testing.T) {
			check := func(word string, o schema.ParseOptions) bool {
				text, reason := e.all(word), e.all(word+"!")
				s, err := parseWith(e.first("text"), o)
				switch {
				case len(reason) > 0:
					require.EqualError(t, err, reason[0])
					require.ErrorIs(t, err, schema.ErrInvalid)
				case len(text) > 0:
					require.NoError(t, err)
					require.Equal(t, text[0], s.Text())
				default:
					return false
				}
				return true
			}
			require.True(t, check("strict", schema.ParseOptions{Strict: true}))
			if !check("lax", schema.ParseOptions{}) {
				s, err := parseWith(e.first("text"), schema.ParseOptions{})
				if err == nil {
					require.Equal(t, e.first("strict"), s.Text())
				} else {
					require.EqualError(t, err, e.first("strict!"))
				}
			}
			s, err := parseWith(e.first("text"), schema.ParseOptions{Normalize: true})
			if err == nil && !check("normal", schema.ParseOptions{Normalize: true}) {
				plain, err := parseWith(e.first("text"), schema.ParseOptions{})
				require.NoError(t, err)
				require.Equal(t, plain.Text(), s.Text())
			}
			if err == nil {
				again, err := parseWith(s.Text(), schema.ParseOptions{Normalize: true})
				require.NoError(t, err)
				require.Equal(t, s.Text(), again.Text(), "the normal form of the normal form")
				plain := parse(t, e.first("text"))
				require.Equal(t, plain.Text(), parse(t, plain.Text()).Text(), "the stored form of the stored form")
			}
		})
	}
}

func TestParseBeyondJava(t *testing.T) {
	for _, c := range []struct{ why, text, want string }{
		{
			"a type of no namespace is found inside another namespace while it is being read",
			rec("A", f("b", rec("x.B", f("a", `["null","A"]`)))),
			rec("A", f("b", `{"type":"record","name":"B","namespace":"x","fields":[`+f("a", `["null","A"]`)+`]}`)),
		},
		{
			"an alias of no namespace stays one",
			`{"type":"record","name":"n.A","aliases":[".D"],"fields":[]}`,
			`{"type":"record","name":"A","namespace":"n","fields":[],"aliases":[".D"]}`,
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			require.Equal(t, c.want, parse(t, c.text).Text())
			require.Equal(t, c.want, parse(t, c.want).Text())
		})
	}
}

func TestReferences(t *testing.T) {
	enum := `{"type":"enum","name":"n.E","symbols":["A"]}`
	user := rec("n.User", f("e", `"E"`), f("f", `{"type":"fixed","name":"F","size":1}`))
	within := func(fields ...string) string {
		return strings.Replace(rec("X", fields...), `"X",`, `"X","namespace":"n",`, 1)
	}
	for _, c := range []struct{ why, text, stored, resolved string }{
		{
			"a name stays a name",
			rec("n.X", f("u", `"User"`), f("v", `["null","n.User"]`)),
			within(f("u", `"User"`), f("v", `["null","User"]`)),
			within(f("u", rec("User", f("e", `{"type":"enum","name":"E","symbols":["A"]}`),
				f("f", `{"type":"fixed","name":"F","size":1}`))), f("v", `["null","User"]`)),
		},
		{
			"in another namespace the name is full",
			`{"type":"record","name":"m.X","fields":[{"name":"u","type":"n.E"}]}`,
			`{"type":"record","name":"X","namespace":"m","fields":[{"name":"u","type":"n.E"}]}`,
			`{"type":"record","name":"X","namespace":"m","fields":[` +
				f("u", `{"type":"enum","name":"E","namespace":"n","symbols":["A"]}`) + `]}`,
		},
		{"the text is a name alone", `"n.E"`, `"n.E"`, `{"type":"enum","name":"E","namespace":"n","symbols":["A"]}`},
		{
			"a type inside a referred one is written out",
			`{"type":"array","items":"n.F"}`,
			`{"type":"array","items":{"type":"fixed","name":"F","namespace":"n","size":1}}`,
			`{"type":"array","items":{"type":"fixed","name":"F","namespace":"n","size":1}}`,
		},
		{
			"a definition repeated becomes the name",
			`{"type":"array","items":{"type":"enum","name":"n.E","symbols":["A"]}}`,
			`{"type":"array","items":"n.E"}`,
			`{"type":"array","items":{"type":"enum","name":"E","namespace":"n","symbols":["A"]}}`,
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			s := parse(t, c.text, enum, user)
			require.Equal(t, c.stored, s.Text())
			require.Equal(t, c.stored, s.Format(""))
			require.Equal(t, c.stored, s.Format("serialized"))
			require.Equal(t, c.resolved, s.Format("resolved"))
			require.Equal(t, c.stored, parse(t, s.Text(), enum, user).Text())
			require.Equal(t, c.resolved, parse(t, c.resolved).Text())
		})
	}
	_, err := parseWith(`"n.Other"`, schema.ParseOptions{}, enum)
	require.EqualError(t, err, `at /: no type has the name "n.Other": define it in the schema or name a reference to it`)
	_, err = parseWith(`"int"`, schema.ParseOptions{}, user)
	require.EqualError(t, err, `reference "dep" (subject "s", version 1): at /fields/0/type: `+
		`no type has the name "n.E" (written "E"): define it in the schema or name a reference to it`)
	require.ErrorIs(t, err, schema.ErrInvalid)
	_, err = parseWith(`{"type":"enum","name":"n.E","symbols":["B"]}`, schema.ParseOptions{}, enum)
	require.EqualError(t, err, `at /: the type "n.E" is defined twice, and not in the same way`)
	_, err = parseWith(`"a-b"`, schema.ParseOptions{Strict: true}, `{"type":"fixed","name":"a-b","size":1}`)
	require.NoError(t, err, "what is stored is not read strictly")
}

func TestName(t *testing.T) {
	for text, want := range map[string]string{
		`"int"`: "",
		`{"type":"record","name":"n.R","fields":[]}`:           "n.R",
		`{"type":"fixed","name":"F","namespace":"a","size":1}`: "a.F",
		`[{"type":"record","name":"n.R","fields":[]}]`:         "",
	} {
		require.Equal(t, want, parse(t, text).Name())
	}
}

func TestTags(t *testing.T) {
	const text = `{"type":"record","name":"n.R","fields":[{"name":"a","type":"int","confluent:tags":["PII","PII","X"]},` +
		`{"name":"l","type":{"type":"array","items":{"type":"record","name":"N","fields":[{"name":"b","type":"int"}],` +
		`"confluent:tags":["Y"]}}}],"aliases":["Q"]}`
	tagged := func(path, kind string, tags ...string) schema.Tagged {
		return schema.Tagged{Entity: schema.Entity{Path: path, Type: kind}, Tags: tags}
	}
	s := parse(t, text)
	require.Equal(t, []schema.Tagged{
		tagged("n.R.a", "sr_field", "PII", "X"),
		tagged("n.N", "sr_record", "Y"),
	}, s.Entities())

	changed, err := s.WithTags(
		[]schema.Tagged{tagged("n.R", "sr_record", "R"), tagged("n.N.b", "sr_field", "B", "C", "B")},
		[]schema.Tagged{tagged("n.R.a", "sr_field", "PII"), tagged("n.N", "sr_record", "Y", "Z")})
	require.NoError(t, err)
	require.Equal(t, `{"type":"record","name":"R","namespace":"n","fields":[`+
		`{"name":"a","type":"int","confluent:tags":["X"]},`+
		`{"name":"l","type":{"type":"array","items":{"type":"record","name":"N","fields":[{"name":"b","type":"int",`+
		`"confluent:tags":["B","C"]}]}}}],"confluent:tags":["R"],"aliases":["Q"]}`, changed)
	require.Equal(t, changed, parse(t, changed).Text())
	require.Len(t, s.Entities(), 2, "the schema itself has not changed")

	for _, e := range []schema.Tagged{
		tagged("n.R.z", "sr_field", "X"), tagged("R", "sr_record", "X"), tagged("n.R", "sr_message", "X"),
	} {
		_, err = s.WithTags([]schema.Tagged{e}, nil)
		require.ErrorIs(t, err, schema.ErrInvalid)
	}
	require.Empty(t, parse(t, `"dep"`, `{"type":"record","name":"dep","fields":[],"confluent:tags":["X"]}`).Entities(),
		"tags in a schema that is referred to are not this one's")
}

func TestParseLimits(t *testing.T) {
	f := avro.New(avro.Limits{TextBytes: 200, Depth: 10, Nodes: 5})
	for why, text := range map[string]string{
		"bytes": `{"type":"string","p":"` + string(make([]byte, 300)) + `"}`,
		"depth": `{"type":"string","p":[[[[[[[[[[[]]]]]]]]]]]}`,
		"nodes": `["null","int","long","float","double"]`,
	} {
		t.Run(why, func(t *testing.T) {
			_, err := f.Parse(text, nil, schema.ParseOptions{})
			require.ErrorIs(t, err, schema.ErrInvalid)
			require.Regexp(t, "more than|at most", err.Error())
		})
	}
}

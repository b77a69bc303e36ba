package schemaregistry

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/schemaregistry/schema"
)

func TestKeysAreWrittenExactly(t *testing.T) {
	in := func(context, name string) Subject { return Subject{context, name} }
	for want, k := range map[string]key{
		`{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}`:      {kindSchema, in(".", "s"), 1},
		`{"keytype":"SCHEMA","subject":"","version":1,"magic":1}`:       {kindSchema, in(".", ""), 1},
		`{"keytype":"SCHEMA","subject":":.c:s","version":12,"magic":1}`: {kindSchema, in(".c", "s"), 12},
		`{"keytype":"SCHEMA","subject":"a/\"\\<&>é ` + "\u2028" + `","version":1,"magic":1}`: {
			kindSchema, in(".", "a/\"\\<&>é \u2028"), 1,
		},
		`{"keytype":"CONFIG","subject":"s","magic":0}`:                      {kindConfig, in(".", "s"), 0},
		`{"keytype":"CONFIG","magic":0}`:                                    {kindConfig, in(".", ""), 0},
		`{"keytype":"CONFIG","subject":":.c:","magic":0}`:                   {kindConfig, in(".c", ""), 0},
		`{"keytype":"MODE","subject":":.__GLOBAL:","magic":0}`:              {kindMode, in(globalContext, ""), 0},
		`{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}`:              {kindDeleteSubject, in(".", "s"), 0},
		`{"keytype":"CLEAR_SUBJECT","subject":"s","magic":0}`:               {kindClearSubject, in(".", "s"), 0},
		`{"keytype":"CONTEXT","tenant":"default","context":".c","magic":0}`: {kindContext, in(".c", ""), 0},
		`{"keytype":"MILLRACE_IDS","context":".","magic":0}`:                {kindIDs, in(".", ""), 0},
	} {
		require.Equal(t, want, string(k.append(nil)))
		back, err := readKey([]byte(want))
		require.NoError(t, err, want)
		require.Equal(t, k, back, want)
		e, err := readEntry([]byte(want), nil)
		require.NoError(t, err)
		require.Empty(t, e.spelling, want)
	}
}

func TestKeysAreReadInAnyForm(t *testing.T) {
	for in, want := range map[string]key{
		` { "magic":0, "version":3, "subject":"s", "keytype":"SCHEMA" } `: {kindSchema, Subject{".", "s"}, 3},
		`{"keytype":"SCHEMA","subject":":.:s","version":3,"magic":1}`:     {kindSchema, Subject{".", "s"}, 3},
		`{"keytype":"CONFIG","subject":null,"magic":0}`:                   {kindConfig, Subject{".", ""}, 0},
		`{"keytype":"CONFIG","subject":"","magic":0}`:                     {kindConfig, Subject{".", ""}, 0},
		`{"keytype":"MODE","subject":"s","magic":0,"new":[1]}`:            {kindMode, Subject{".", "s"}, 0},
		`{"keytype":"CONTEXT","context":".c","magic":0}`:                  {kindContext, Subject{".c", ""}, 0},
	} {
		e, err := readEntry([]byte(in), nil)
		require.NoError(t, err, in)
		require.Equal(t, want, e.key, in)
		require.Equal(t, in, e.spelling)
	}
	for _, in := range []string{`{"keytype":"NOOP","magic":0}`, `{"keytype":"ASSOC","x":1}`, `{}`} {
		e, err := readEntry([]byte(in), []byte("whatever"))
		require.NoError(t, err, in)
		require.Equal(t, kindOther, e.key.kind)
	}
	for _, in := range []string{
		``, `x`, `[]`, `{"keytype":"SCHEMA","subject":"s","version":0}`, `{"keytype":"SCHEMA","subject":"s","version":"1"}`,
		`{"keytype":"SCHEMA","subject":"s","version":2147483648}`, `{"keytype":"CONTEXT"}`, `{"keytype":"MILLRACE_IDS"}`,
	} {
		_, err := readEntry([]byte(in), []byte("{}"))
		require.Error(t, err, in)
	}
	_, err := readEntry(nil, []byte("{}"))
	require.Error(t, err)
}

func TestValues(t *testing.T) {
	h := held{number: 2, content: &content{Content: schema.Content{Type: schema.Avro, Text: `"<int>"`}, id: 7}}
	h.content.identity = contentOf(h.content.Content)
	v := schemaRecord(target{Subject{".", "s"}, 2}, h)
	require.Equal(t, `{"subject":"s","version":2,"id":7,"md5":"zlEzePkJxNuddyaKm6Q68Q==","schema":"\"<int>\"",`+
		`"deleted":false}`,
		string(encode(v)))
	h.content.Type, h.deleted = schema.JSON, true
	h.content.References = []schema.Reference{{Name: "n", Subject: "t", Version: 1}}
	h.content.Metadata, h.content.RuleSet = &schema.Metadata{}, &schema.RuleSet{EnableAt: "ALL"}
	v = schemaRecord(target{Subject{".c", "s"}, 2}, h)
	v.MD5 = nil
	text := string(encode(v))
	require.Equal(t, `{"subject":":.c:s","version":2,"id":7,"schemaType":"JSON","references":[{"name":"n","subject":"t",`+
		`"version":1}],"metadata":{},"ruleSet":{"enableAt":"ALL"},"schema":"\"<int>\"","deleted":true}`, text)

	k := `{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}`
	e, err := readEntry([]byte(k), []byte(text))
	require.NoError(t, err)
	require.Equal(t, readSchemaValue{
		ID: 7, SchemaType: schema.JSON, Schema: `"<int>"`, Deleted: true, References: h.content.References,
		Metadata: h.content.Metadata, RuleSet: h.content.RuleSet,
	}, e.schema)
	e, err = readEntry([]byte(k), []byte(`{"deleted":false,"schema":"\"int\"","id":1,"md5":"?","more":{}}`))
	require.NoError(t, err)
	require.Equal(t, readSchemaValue{ID: 1, SchemaType: schema.Avro, Schema: `"int"`}, e.schema)
	e, err = readEntry([]byte(k), []byte(` null`))
	require.NoError(t, err)
	require.True(t, e.gone)
	for _, bad := range []string{
		``, `x`, `[1]`, `{"id":-1,"schema":""}`, `{"id":2147483648}`, `{"id":1.5}`, `{"schema":3}`,
	} {
		_, err := readEntry([]byte(k), []byte(bad))
		require.Error(t, err, bad)
	}
	e, err = readEntry([]byte(`{"keytype":"CONFIG","magic":0}`), []byte(`{"compatibilityLevel":"FULL","normalize":true}`))
	require.NoError(t, err)
	require.Equal(t, "FULL", *e.config.CompatibilityLevel)
	require.True(t, *e.config.Normalize)
}

func FuzzReadEntry(f *testing.F) {
	f.Add([]byte(`{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}`), []byte(`{"id":1,"schema":"\"int\""}`))
	f.Add([]byte(`{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}`), []byte(`{"version":1}`))
	f.Add([]byte(`{"keytype":"CONFIG","subject":null,"magic":0}`), []byte(`{"compatibilityLevel":"FULL"}`))
	f.Fuzz(func(t *testing.T, k, value []byte) {
		e, err := readEntry(k, value)
		if err != nil {
			return
		}
		s := newState()
		s.apply(&e) // anything that is read can be folded, and then taken away again
		e.gone = true
		s.apply(&e)
		require.Zero(t, s.versions)
		require.Empty(t, s.spellings)
	})
}

// The quick ways of reading say what the careful ones do.
func FuzzReadQuickly(f *testing.F) {
	for _, value := range []string{
		`{"subject":"s","version":1,"id":1,"md5":"AA==","schemaType":"JSON","schema":"{\"a\":\"\\u00e9\"}"}`,
		`{"id":1,"id":2,"schema":"x","references":[]}`, `{"ID":1}`, `{"id":1.0}`, `{"schema":"\ud800"}`, `{"deleted":null}`,
		`{"deleted":true}`,
	} {
		f.Add([]byte(`{"keytype":"SCHEMA","subject":":.c:s","version":1,"magic":1}`), []byte(value))
	}
	f.Add([]byte(`{"keytype":"SCHEMA","subject":":.:s","version":01,"magic":1}`), []byte(`{}`))
	f.Fuzz(func(t *testing.T, k, value []byte) {
		if quick, ok := readOwnKey(k); ok {
			careful, err := readKey(k)
			require.NoError(t, err)
			require.Equal(t, careful, quick)
			require.Equal(t, string(k), string(quick.append(nil)))
		}
		var quick, careful readSchemaValue
		if quick.read(value) {
			require.NoError(t, json.Unmarshal(value, &careful))
			require.Equal(t, careful, quick)
		}
	})
}

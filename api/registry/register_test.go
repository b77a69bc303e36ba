package registry_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// What becomes of a registration, by what is there before.
func TestRegister(t *testing.T) {
	f := start(t)
	register := func(subject string) string { return "POST /subjects/" + subject + "/versions" }
	plain := `{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}`
	spaced := `{ "name" : "R", "fields" : [ {"type":"int", "name":"a"} ], "type" : "record" }`
	f.run(
		step{register("s"), body(plain), `{"id":1,"version":1,"schemaType":"AVRO","schema":` + quoted(plain) + `}`},
		step{register("s"), body(plain), `{"id":1,"version":1}`},
		step{register("s"), body(spaced), `{"id":1,"version":1}`},
		step{"GET /subjects/s/versions", "", `[1]`},
		step{register("s"), body(`{"type":"record","name":"R","doc":"d","fields":[{"name":"a","type":"int"}]}`),
			`{"id":2,"version":2}`},
		step{register("s"), body(plain, `"metadata":{"properties":{"k":"v"}}`),
			`{"id":3,"version":3,"metadata":{"properties":{"k":"v"}}}`},
		step{register("s"), body(plain,
			`"ruleSet":{"domainRules":[{"name":"r","kind":"CONDITION","type":"CEL","mode":"WRITE"}]}`),
			`{"id":4,"version":4,"ruleSet":{"domainRules":[{"name":"r","kind":"CONDITION","type":"CEL","mode":"WRITE"}]}}`},
		step{register("other"), body(plain), `{"id":1,"version":1}`},
		step{register("other"), body(record(fieldA, fieldB)), `{"id":5,"version":2}`},
		step{register("other"), body(plain), `{"id":1,"version":1}`},
		step{"GET /subjects/other/versions", "", `[1,2]`},
		step{"DELETE /subjects/other/versions/1", "", `1`},
		step{register("other"), body(plain), `{"id":1,"version":3}`},
		step{"GET /subjects/other/versions?deleted=true", "", `[2,3]`},
		step{"DELETE /subjects/other", "", `[2,3]`},
		step{"DELETE /subjects/other?permanent=true", "", `[2,3]`},
		step{register("other"), body(plain), `{"id":1,"version":1}`},
		step{register(":.ctx:s"), body(record(fieldA, fieldB)), `{"id":1,"version":1}`},
		step{register("minus"), body(plain, `"version":-1`), `{"version":1}`},
		step{register("minus"), body(record(fieldA, fieldB), `"version":-1`),
			`{"version":2,"metadata":{"properties":{"confluent:version":"2"}}}`},
		step{register("plain"), body(record(fieldA, fieldB)), `{"version":1}`},
		step{register("minus"), body(record(fieldA, fieldB, fieldC), `"version":3`), `{"version":3}`},
		step{register("minus"), body(record(needful), `"version":4`), "40901"},
		step{"POST /subjects/minus/versions?force=true", body(record(needful)), `{"version":4}`},
	)
	guids := map[string]bool{}
	for _, at := range []string{":.ctx:s/versions/1", "plain/versions/1"} {
		guids[guidOf(t, f.send("GET", "/subjects/"+at, ""))] = true
	}
	require.Len(t, guids, 1, "a GUID is the same in all contexts")
}

func quoted(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string has a JSON form
	}
	return string(text)
}

func guidOf(t *testing.T, a *answer) string {
	t.Helper()
	var v struct{ GUID string }
	require.NoError(t, json.Unmarshal([]byte(a.text), &v), a.text)
	require.Len(t, v.GUID, 36, a.text)
	return v.GUID
}

// A conflict is told with all its reasons, which tools read from the text.
func TestConflict(t *testing.T) {
	f := start(t)
	f.run(step{"POST /subjects/s/versions", body(record(fieldA)), `{"version":1}`})
	a := f.send("POST", "/subjects/s/versions", body(record(needful)))
	require.Equal(t, 409, a.status)
	require.Equal(t, 40901, a.code())
	require.Regexp(t, `(?s)details: \[\{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'.*\}.*\]$`,
		a.message())
}

// Several schemas are checked together, and none is registered.
func TestCheckOfSeveral(t *testing.T) {
	f := start(t)
	base := entry("base", `{"type":"record","name":"Base","fields":[]}`)
	user := entry("user", record(`{"name":"x","type":"Base"}`),
		`"references":[{"name":"Base","subject":"base","version":-1}]`)
	f.run(
		step{"POST /v1/schemas:check", `{"schemas":[` + base + `,` + user + `,` + entry("bad", `{}`) + `]}`,
			`{"results":[{"is_compatible":true,"messages":[]},{"is_compatible":true,"messages":[]},{"is_compatible":false}]}`},
		step{"POST /v1/schemas:check", `{"schemas":[` + user + `,` + base + `]}`,
			`{"results":[{"is_compatible":false},{"is_compatible":true}]}`},
		step{"POST /v1/schemas:check", `{"schemas":[]}`, "422"},
		step{"POST /v1/schemas:check", `{"schemas":[` + entry("__EMPTY", `"int"`) + `]}`, "42208"},
		step{"GET /v1/schemas:check", "", "405"},
		step{"GET /subjects", "", `[]`},
	)
}

// Several schemas are registered together or not at all.
func TestBatch(t *testing.T) {
	f := start(t)
	base := entry("base", `{"type":"record","name":"Base","fields":[]}`)
	user := entry("user", record(`{"name":"x","type":"Base"}`),
		`"references":[{"name":"Base","subject":"base","version":1}]`)
	f.run(
		step{"POST /v1/schemas:batch", `{"schemas":[` + base + `,` + entry("bad", `{}`) + `]}`, "42201"},
		step{"GET /subjects", "", `[]`},
		step{"POST /v1/schemas:batch", `{"schemas":[` + user + `,` + base + `]}`, "42201"}, // in order
		step{"POST /v1/schemas:batch", `{"schemas":[` + base + `,` + user + `]}`, `{"schemas":[` +
			`{"subject":"base","version":1,"id":1,"schemaType":"AVRO","schema":` +
			quoted(`{"type":"record","name":"Base","fields":[]}`) + `},` +
			`{"subject":"user","version":1,"id":2,"schemaType":"AVRO"}]}`},
		step{"POST /v1/schemas:batch", `{"schemas":[` + base + `,` + user + `]}`, `{}`},
		step{"GET /subjects/base/versions", "", `[1]`},
		step{"GET /subjects/base/versions/1/referencedby", "", `[2]`},
	)
	require.NotEmpty(t, f.send("POST", "/v1/schemas:batch",
		`{"schemas":[`+base+`]}`).header.Get("Millrace-Registry-Offset"))
}

// A soft delete can be taken back.
func TestUndelete(t *testing.T) {
	f := start(t)
	f.run(
		step{"POST /subjects/s/versions", body(record(fieldA)), `{"id":1}`},
		step{"POST /subjects/s/versions", body(record(fieldA, fieldB)), `{"id":2}`},
		step{"DELETE /subjects/s", "", `[1,2]`},
		step{"POST /subjects/s/versions/2:undelete", "", `{"id":2,"version":2}`},
		step{"GET /subjects/s/versions", "", `[2]`},
		step{"GET /subjects/s/versions/latest", "", `{"version":2,"deleted":null}`},
		step{"POST /subjects/s/versions/1:undelete", "", `{"id":1,"version":1}`},
		step{"GET /subjects/s/versions", "", `[1,2]`},
	)
}

package registry_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/client"
	"millrace/server/servertest"
)

// The places where a plain implementation goes wrong, as clients see them. What no client sees of them is tested
// where it
// is decided.
func TestTraps(t *testing.T) {
	for name, steps := range traps {
		t.Run(name, func(t *testing.T) { start(t).run(steps...) })
	}
}

// traps are the traps by their numbers in the list of them.
var traps = map[string][]step{
	"1: what is known is registered in READONLY": {
		{"POST /subjects/s/versions", body(record(fieldA)), `{"id":1}`},
		{"PUT /mode", `{"mode":"READONLY"}`, `{}`},
		{"POST /subjects/s/versions", body(record(fieldA)), `{"id":1,"version":1}`},
		{"POST /subjects/s", body(record(fieldA)), `{"id":1,"version":1}`},
		{"POST /subjects/s/versions", body(record(fieldA, fieldB)), "42205"},
		{"POST /subjects/t/versions", body(record(fieldA)), "42205"},
	},
	"2: the two names of the level, and what a removal answers": {
		{"PUT /config/s", `{"compatibilityLevel":"FULL"}`, `{"compatibility":null}`},
		{"PUT /config/s", `{"compatibility":"FULL"}`, `{"compatibility":"FULL","compatibilityLevel":null}`},
		{"GET /config/s", "", `{"compatibilityLevel":"FULL","compatibility":null}`},
		{"DELETE /config/s", "", `{"compatibilityLevel":"FULL","compatibility":null}`},
	},
	"3: the same schema is so by its text, not by Avro's parsing form": {
		{"PUT /config", `{"compatibility":"NONE"}`, `{}`},
		{"POST /subjects/s/versions", body(record(`{"name":"a","type":"int","default":1}`)), `{"id":1}`},
		{"POST /subjects/s/versions", body(record(`{"name":"a","type":"int","default":2}`)), `{"id":2}`},
		{"POST /subjects/s/versions", body(record(`{"name":"a","type":"int","aliases":["z"]}`)), `{"id":3}`},
		{"POST /subjects/s/versions", body(record(`{"name":"a","type":"int","doc":"d"}`)), `{"id":4}`},
		{"POST /subjects/s/versions", body(record(`{"name":"a","type":{"type":"int"},"default":1}`)), `{"id":1,"version":1}`},
	},
	"4: ids outlive soft deletes": {
		{"POST /subjects/s/versions", body(record(fieldA)), `{"id":1}`},
		{"DELETE /subjects/s", "", `[1]`},
		{"GET /schemas/ids/1", "", `{"schemaType":"AVRO"}`},
		{"POST /subjects/s/versions", body(record(fieldA)), `{"id":1,"version":2}`},
	},
	"5: deleted versions count": {
		{"POST /subjects/s/versions", body(record(fieldA)), `{"version":1}`},
		{"DELETE /subjects/s/versions/1", "", `1`},
		{"POST /subjects/s/versions", body(record(fieldC)), `{"version":2}`},
		{"DELETE /subjects/s", "", `[2]`},
		{"DELETE /subjects/s?permanent=true", "", `[1,2]`},
		{"POST /subjects/s/versions", body(record(fieldC)), `{"version":1}`},
	},
	"6: the subject is missing before the version is": {
		{"GET /subjects/s/versions/1", "", "40401"},
		{"POST /subjects/s/versions", body(record(fieldA)), `{"version":1}`},
		{"GET /subjects/s/versions/2", "", "40402"},
		{"DELETE /subjects/s/versions/1?permanent=true", "", "40407"},
		{"DELETE /subjects/s?permanent=true", "", "40405"},
		{"POST /subjects/s/versions", body(record(fieldA, fieldB)), `{"version":2}`},
		{"DELETE /subjects/s/versions/1", "", `1`},
		{"DELETE /subjects/s/versions/1", "", "40406"},
		{"DELETE /subjects/s", "", `[2]`},
		{"DELETE /subjects/s", "", "40404"},
	},
	"7: latest is the latest live version": {
		{"POST /subjects/s/versions", body(record(fieldA)), `{"version":1}`},
		{"POST /subjects/s/versions", body(record(fieldA, fieldB)), `{"version":2}`},
		{"DELETE /subjects/s/versions/2", "", `2`},
		{"GET /subjects/s/versions/latest", "", `{"version":1}`},
		{"GET /subjects/s/versions/LaTest", "", `{"version":1}`},
		{"GET /subjects/s/versions/-1", "", `{"version":1}`},
		{"GET /subjects/s/versions/0", "", "42202"},
		{"GET /subjects/s/versions/-2", "", "42202"},
		{"DELETE /subjects/s/versions/latest", "", `1`},
	},
	"8: checks of nothing, and of what cannot be read": {
		{"POST /compatibility/subjects/s/versions/latest", body(record(fieldA)), `{"is_compatible":true}`},
		{"POST /compatibility/subjects/s/versions", body(record(fieldA)), `{"is_compatible":true}`},
		{"POST /compatibility/subjects/s/versions/latest", body("x"), "42201"},
		{"POST /compatibility/subjects/s/versions/latest?verbose=true", body(`{"type":"none"}`), `{"is_compatible":false}`},
	},
	"9: hard deletes are blocked by deleted referrers, soft ones are not": {
		{"POST /subjects/base/versions", body(`{"type":"record","name":"Base","fields":[]}`), `{"id":1}`},
		{"POST /subjects/user/versions", body(record(`{"name":"x","type":"Base"}`),
			`"references":[{"name":"Base","subject":"base","version":1}]`), `{"id":2}`},
		{"DELETE /subjects/base/versions/1", "", "42206"},
		{"DELETE /subjects/user/versions/1", "", `1`},
		{"DELETE /subjects/base/versions/1", "", `1`},
		{"DELETE /subjects/base/versions/1?permanent=true", "", "42206"},
		{"GET /subjects/base/versions/1/referencedby?deleted=true", "", `[2]`},
		{"GET /schemas/ids/2?format=resolved", "", `{"schemaType":"AVRO"}`},
		{"GET /subjects/user/versions/1?deleted=true", "", `{"deleted":true}`},
	},
	"10: a plus in a path is a plus": {
		{"POST /subjects/a+b/versions/", body(record(fieldA)), `{"version":1}`},
		{"POST /subjects/a%20b/versions/", body(record(fieldB)), `{"version":1}`},
		{"POST /subjects/a%2Fb/versions/", body(record(fieldC)), `{"version":1}`},
		{"GET /subjects/", "", `["a b","a+b","a/b"]`},
	},
	"11: open and closed models, and numbers": {
		{"POST /subjects/o/versions", body(`{"type":"object","properties":{"a":{"type":"integer"}}}`,
			`"schemaType":"JSON"`), `{"version":1}`},
		{"POST /compatibility/subjects/o/versions", body(`{"type":"object","properties":{"a":{"type":"integer"},`+
			`"b":{"type":"string"}}}`, `"schemaType":"JSON"`), `{"is_compatible":false}`},
		{"POST /subjects/c/versions",
			body(`{"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":false}`, `"schemaType":"JSON"`),
			`{"version":1}`},
		{"POST /compatibility/subjects/c/versions", body(`{"type":"object","properties":{"a":{"type":"integer"},`+
			`"b":{"type":"string"}},"additionalProperties":false}`, `"schemaType":"JSON"`), `{"is_compatible":true}`},
		{"POST /subjects/n/versions", body(`{"type":"integer","maximum":1}`, `"schemaType":"JSON"`), `{"version":1}`},
		{"POST /subjects/n/versions", body(`{"type":"integer","maximum":1.0}`, `"schemaType":"JSON"`), `{"version":2}`},
	},
	"12: namespaces are a part of the identity alone": {
		{"POST /subjects/s/versions", body(`{"type":"record","name":"R","namespace":"a","fields":[]}`), `{"version":1}`},
		{"POST /subjects/s/versions", body(`{"type":"record","name":"R","namespace":"b","fields":[]}`), `{"version":2}`},
	},
	"14: comments of Protobuf do not count, the order does": {
		{"POST /subjects/p/versions", body("syntax = \"proto3\";\nmessage A {\n  int32 a = 1;\n}\nmessage B {}\n",
			`"schemaType":"PROTOBUF"`), `{"version":1}`},
		{"POST /subjects/p/versions", body("// c\nsyntax=\"proto3\"; message A{int32 a=1;/* d */} message B{}",
			`"schemaType":"PROTOBUF"`), `{"version":1}`},
		{"POST /subjects/p/versions", body("syntax=\"proto3\"; message B{} message A{int32 a=1;}",
			`"schemaType":"PROTOBUF"`), `{"version":2}`},
	},
	"15: what is not known is ignored": {
		{"POST /subjects/s/versions?format=none&x=y", body(record(fieldA), `"x":1`), `{"version":1}`},
		{"GET /subjects/s/versions/1?format=none&referenceFormat=none", "", `{"version":1}`},
		{"GET /schemas/ids/1?format=none", "", `{"schemaType":"AVRO"}`},
	},
	"17: what was written is found when it is sent again": {
		{"POST /subjects/s/versions", body(record(fieldA)), `{"version":1}`},
		{"POST /subjects/s/versions", body(record(fieldA)), `{"version":1}`},
		{"GET /subjects/s/versions", "", `[1]`},
	},
	"19: an imported id raises the next one, and is of one schema": {
		{"PUT /mode/i", `{"mode":"IMPORT"}`, `{}`},
		{"POST /subjects/i/versions", body(record(fieldA), `"id":100,"version":7`), `{"id":100,"version":7}`},
		{"POST /subjects/i/versions", body(record(fieldB), `"id":100`), "42205"},
		{"POST /subjects/s/versions", body(record(fieldC)), `{"id":101}`},
		{"POST /subjects/i/versions", body(record(fieldB), `"id":50`), `{"id":50,"version":8}`},
		{"GET /schemas/ids/50?fetchMaxId=true", "", `{"maxId":101}`},
	},
	"20: a conflict is status 409": {
		{"POST /subjects/s/versions", body(record(fieldA)), `{"version":1}`},
		{"POST /subjects/s/versions", body(record(needful)), "40901"},
	},
}

// 13 and 18: hostile schemas cost little, whatever they are.
func TestTrapHostile(t *testing.T) {
	f := start(t)
	for name, text := range map[string][2]string{
		"deep avro":  {"AVRO", strings.Repeat(`{"type":"array","items":`, 20_000) + `"int"` + strings.Repeat("}", 20_000)},
		"deep json":  {"JSON", strings.Repeat(`{"items":`, 20_000) + `{}` + strings.Repeat("}", 20_000)},
		"1000 items": {"JSON", strings.Repeat(`{"items":`, 1000) + `{}` + strings.Repeat("}", 1000)},
		"file":       {"JSON", `{"$ref":"file:///etc/passwd"}`},
		"http":       {"JSON", `{"$ref":"http://127.0.0.1:1/x"}`},
		"a cycle": {"JSON",
			`{"$ref":"#/definitions/a","definitions":{"a":{"$ref":"#/definitions/b"},"b":{"$ref":"#/definitions/a"}}}`},
		"deep proto":   {"PROTOBUF", `syntax="proto3";` + strings.Repeat("message A{", 20_000) + strings.Repeat("}", 20_000)},
		"great array":  {"AVRO", `{"type":"enum","name":"E","symbols":[` + strings.Repeat(`"a",`, 200_000) + `"b"]}`},
		"an import":    {"PROTOBUF", `syntax="proto3"; import "/etc/passwd";`},
		"a lone quote": {"AVRO", `"`},
	} {
		began := time.Now()
		a := f.send("POST", "/subjects/"+strings.ReplaceAll(name, " ", "-")+"/versions", body(text[1],
			`"schemaType":"`+text[0]+`"`))
		require.Less(t, time.Since(began), 20*time.Second, name) // what is not linear takes minutes
		require.Less(t, a.status, 500, "%s: %s", name, a.text)
		if name != "1000 items" && name != "a cycle" {
			require.Equal(t, 422, a.status, "%s: %.300s", name, a.text)
		}
	}
	f.run(step{"POST /subjects/s/versions", body(`"int"`), `{"version":1}`})
}

// 16: what stands in the log and is no record of a registry does no harm.
func TestTrapRecords(t *testing.T) {
	n := servertest.Start(t, servertest.Options{})
	f := &fixture{t, n.URL(), n.Client}
	f.run(step{"POST /subjects/s/versions", body(`"int"`), `{"id":1}`})
	produce := func(key, value string) {
		a := f.send("POST", "/v1/topics/_schemas/records", `[{"key_text":`+quoted(key)+`,"value_text":`+quoted(value)+`}]`,
			"Content-Type", "application/vnd.millrace.records+json")
		require.Equal(t, 200, a.status, a.text)
	}
	produce("no JSON", "at all")
	produce(`{"keytype":"SOMETHING","magic":9}`, `{}`)
	produce(`{"keytype":"SCHEMA","subject":"s","version":2,"magic":1}`, `{"subject":`)
	produce(`{"magic":1,"version":3,"keytype":"SCHEMA","subject":"s","new":1}`,
		`{"subject":"s","version":3,"id":9,"schema":"\"long\"","new":true}`)
	f.run(
		step{"GET /subjects/s/versions", "", `[1,3]`},
		step{"POST /subjects/s/versions", body(`"float"`), `{"id":10,"version":4}`},
		step{"DELETE /subjects/s/versions/3", "", `3`},
		step{"DELETE /subjects/s/versions/3?permanent=true", "", `3`},
	)
	require.NoError(t, client.New(n.Requestor(), client.Options{}).DeleteTopic(t.Context(), "_schemas"))
	require.Eventually(t, func() bool { // this node learns of it a little later
		return strings.TrimSpace(f.send("GET", "/subjects", "").text) == "[]"
	}, time.Minute, 10*time.Millisecond)
	f.run(step{"POST /subjects/s/versions", body(`"int"`), `{"id":1}`})
}

// Clients cannot delete the log of the schemas: ids would be given out again.
func TestTheLogCannotBeDeleted(t *testing.T) {
	f := start(t)
	f.run(step{"POST /subjects/s/versions", body(`"string"`), `{"id":1,"version":1}`})
	for _, path := range []string{"/v1/topics/_schemas", "/v3/clusters/" + f.clusterID() + "/topics/_schemas"} {
		a := f.send("DELETE", path, "")
		require.Contains(t, []int{400, 409}, a.status, a.text)
		require.Contains(t, a.text, "holds the schemas of the registry")
	}
	f.run(step{"GET /schemas/ids/1/schema", "", `"string"`})
}

func (f *fixture) clusterID() string {
	f.t.Helper()
	var root struct {
		ID string `json:"kafka_cluster_id"`
	}
	require.NoError(f.t, json.Unmarshal([]byte(f.send("GET", "/", "").text), &root))
	return root.ID
}

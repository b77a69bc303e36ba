package registry_test

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// Contexts are apart: ids, versions, configs and modes; and each can be written in two ways.
func TestContexts(t *testing.T) {
	f := start(t)
	f.run(
		step{"POST /subjects/s/versions", body(record(fieldA)), `{"id":1}`},
		step{"POST /subjects/s/versions", body(record(fieldA, fieldB)), `{"id":2}`},
		step{"POST /contexts/.ctx/subjects/s/versions", body(record(fieldA, fieldB)), `{"id":1,"version":1}`},
		step{"POST /contexts/ctx/subjects/:.ctx:s", body(record(fieldA, fieldB)),
			`{"subject":":.ctx:s","version":1,"id":1}`},
		step{"POST /subjects/:.ctx:s", body(record(fieldA, fieldB)), `{"subject":":.ctx:s","version":1,"id":1}`},
		step{"GET /subjects", "", `[":.ctx:s","s"]`},
		step{"GET /subjects?subjectPrefix=", "", `["s"]`},
		step{"GET /subjects?subjectPrefix=:.ctx:", "", `[":.ctx:s"]`},
		step{"GET /subjects?subjectPrefix=:*:s", "", `[":.ctx:s","s"]`},
		step{"GET /contexts/.ctx/subjects", "", `[":.ctx:s"]`},
		step{"GET /contexts/:.ctx:/subjects?subjectPrefix=x", "", `[]`},
		step{"GET /contexts/:.:/subjects", "", `["s"]`},
		step{"GET /contexts", "", `[".",".ctx"]`},
		step{"GET /contexts?contextPrefix=.c", "", `[".ctx"]`},
		step{"GET /contexts/.ctx/contexts", "", `[".",".ctx"]`},

		step{"GET /schemas/ids/1", "", `{"schema":` + quoted(record(fieldA)) + `}`},
		step{"GET /contexts/.ctx/schemas/ids/1", "", `{"schema":` + quoted(record(fieldA, fieldB)) + `}`},
		step{"GET /schemas/ids/1?subject=:.ctx:", "", `{"schema":` + quoted(record(fieldA, fieldB)) + `}`},
		step{"GET /contexts/.ctx/schemas/ids/2", "", "40403"},
		step{"GET /contexts/.ctx/schemas/ids/1/versions", "", `[{"subject":":.ctx:s","version":1}]`},
		step{"GET /contexts/.ctx/schemas/ids/1/subjects?subject=s", "", `[":.ctx:s"]`},
		step{"GET /contexts/.ctx/schemas", "", `[{"subject":":.ctx:s"}]`},
		step{"GET /contexts/.ctx/schemas/types", "", `["JSON","PROTOBUF","AVRO"]`},

		step{"PUT /contexts/.ctx/config", `{"compatibility":"NONE"}`, `{"compatibility":"NONE"}`},
		step{"GET /config/:.ctx:", "", `{"compatibilityLevel":"NONE"}`},
		step{"GET /contexts/.ctx/config/s?defaultToGlobal=true", "", `{"compatibilityLevel":"NONE"}`},
		step{"GET /contexts/.ctx/config/s", "", "40408"},
		step{"GET /config", "", `{"compatibilityLevel":"BACKWARD"}`},
		step{"PUT /contexts/.ctx/mode", `{"mode":"READONLY"}`, `{"mode":"READONLY"}`},
		step{"GET /mode", "", `{"mode":"READWRITE"}`},
		step{"POST /contexts/.ctx/subjects/t/versions", body(record(fieldA)), "42205"},
		step{"DELETE /contexts/.ctx/mode", "", `{"mode":"READONLY"}`},
		step{"POST /contexts/.ctx/compatibility/subjects/s/versions", body(record(needful)), `{"is_compatible":true}`},

		step{"DELETE /contexts/.ctx", "", "42211"},
		step{"DELETE /contexts/.ctx/subjects/s", "", `[1]`},
		step{"DELETE /contexts/.ctx", "", "42211"},
		step{"DELETE /contexts/.ctx/subjects/s?permanent=true", "", `[1]`},
		step{"DELETE /contexts/.ctx/", "", "204"},
		step{"GET /contexts", "", `["."]`},
	)
}

// Subjects of any form survive their way through the path.
func TestSubjectsInPaths(t *testing.T) {
	f := start(t)
	names := []string{
		"a/b", "a b", "a+b", "a%b", "a%2Fb", "größe", "日本", "a?b#c", "a:b", "a.b", "a;b", "..", "versions", `a"b\c`,
		"{x}",
		"*", "a/",
		":.ctx:a/b", ":.ctx:a+b",
	}
	for i, name := range names {
		path := "/subjects/" + url.PathEscape(name)
		f.run(
			step{"POST " + path + "/versions/", body(record(fieldA), `"metadata":{"properties":{"of":`+quoted(name)+`}}`),
				`{"version":1}`},
			step{"GET " + path + "/versions/latest/", "", `{"subject":` + quoted(name) + `}`},
			step{"POST " + path + "/", body(record(fieldA), `"metadata":{"properties":{"of":`+quoted(name)+`}}`),
				`{"version":1}`},
			step{"POST /compatibility" + path + "/versions/", body(record(fieldA)), `{"is_compatible":true}`},
			step{"PUT /config/" + url.PathEscape(name) + "/", `{"compatibility":"FULL"}`, `{"compatibility":"FULL"}`},
			step{"GET /config/" + url.PathEscape(name), "", `{"compatibilityLevel":"FULL"}`},
		)
		require.Contains(t, f.send("GET", "/subjects/", "").text, quoted(name), i)
	}
	f.run(
		step{"POST /subjects//versions", body(record(fieldA)), `{"version":1}`},
		step{"GET /subjects/:.:/versions/1", "", `{"subject":"","version":1}`},
		step{"POST /contexts/.ctx/subjects//versions/", body(record(fieldA)), `{"version":1}`},
		step{"GET /subjects/:.ctx:/versions", "", `[1]`},
	)
}

// Requests for a subject with an alias go to the subject that it names, in one step.
func TestAliases(t *testing.T) {
	f := start(t)
	f.run(
		step{"POST /subjects/orders/versions", body(record(fieldA)), `{"id":1}`},
		step{"PUT /config/old", `{"alias":"orders"}`, `{"alias":"orders"}`},
		step{"PUT /config/older", `{"alias":"old"}`, `{"alias":"old"}`},
		step{"GET /subjects/old/versions", "", `[1]`},
		step{"GET /subjects/older/versions", "", "40401"},
		step{"GET /subjects/old/versions/latest", "", `{"subject":"orders"}`},
		step{"GET /subjects/old/versions/1/referencedby", "", `[]`},
		step{"POST /subjects/old", body(record(fieldA)), `{"subject":"orders"}`},
		step{"POST /compatibility/subjects/old/versions", body(record(needful)), `{"is_compatible":false}`},
		step{"POST /subjects/old/versions", body(record(fieldA, fieldB)), `{"version":2}`},
		step{"GET /subjects/orders/versions", "", `[1,2]`},
		step{"GET /schemas/ids/1?subject=old", "", `{"subject":"orders","version":1}`},
		step{"GET /schemas/ids/1/versions?subject=old", "", `[{"subject":"orders","version":1}]`},
		step{"GET /subjects", "", `["orders"]`},
		step{"GET /schemas?aliases=true&latestOnly=true", "", `[{"subject":"orders","version":2,"aliases":["old"]}]`},
		step{"GET /config/old", "", `{"alias":"orders"}`},
		step{"GET /config/orders", "", "40408"},
		step{"PUT /mode/old", `{"mode":"READONLY"}`, `{"mode":"READONLY"}`},
		step{"GET /mode/orders", "", "40409"},
		step{"DELETE /mode/old", "", `{"mode":"READONLY"}`},
		step{"DELETE /subjects/old/versions/1", "", `1`},
		step{"POST /subjects/old/versions/1:undelete", "", `{"version":1}`},
		step{"DELETE /subjects/old", "", `[1,2]`},
		step{"POST /subjects/:.ctx:target/versions", body(record(fieldA)), `{"id":1}`},
		step{"PUT /config/:.ctx:alias", `{"alias":"target"}`, `{"alias":"target"}`},
		step{"GET /subjects/:.ctx:alias/versions/1", "", `{"subject":":.ctx:target"}`},
		step{"PUT /config/old", `{"alias":null}`, `{"alias":null}`},
		step{"GET /subjects/old/versions", "", "40401"},
	)
}

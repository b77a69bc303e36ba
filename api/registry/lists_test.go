package registry_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Lists in parts, and what they show of what is deleted.
func TestLists(t *testing.T) {
	f := start(t)
	f.run(
		step{"POST /subjects/a/versions", body(record(fieldA)), `{"id":1}`},
		step{"POST /subjects/a/versions", body(record(fieldA, fieldB)), `{"id":2}`},
		step{"POST /subjects/a/versions", body(record(fieldA, fieldC)), `{"id":3}`},
		step{"POST /subjects/b/versions", body(record(fieldA)), `{"id":1}`},
		step{"POST /subjects/c/versions", body(record(fieldA)), `{"id":1}`},
		step{"DELETE /subjects/a/versions/2", "", `2`},
		step{"DELETE /subjects/c", "", `[1]`},

		step{"GET /subjects", "", `["a","b"]`},
		step{"GET /subjects?deleted=true", "", `["a","b","c"]`},
		step{"GET /subjects?deleted=True", "", `["a","b","c"]`}, // as Python writes it
		step{"GET /subjects?deletedOnly=true&deleted=true", "", `["c"]`},
		step{"GET /subjects?deleted=true&offset=1&limit=1", "", `["b"]`},
		step{"GET /subjects?limit=-1", "", `["a","b"]`},
		step{"GET /subjects?limit=0", "", `["a","b"]`},
		step{"GET /subjects?offset=9", "", `[]`},
		step{"GET /subjects?subjectPrefix=b", "", `["b"]`},

		step{"GET /subjects/a/versions", "", `[1,3]`},
		step{"GET /subjects/a/versions?deleted=true", "", `[1,2,3]`},
		step{"GET /subjects/a/versions?deletedOnly=true&deleted=true", "", `[2]`},
		step{"GET /subjects/a/versions?deletedAsNegative=true&deletedOnly=true", "", `[1,-2,3]`},
		step{"GET /subjects/a/versions?deleted=true&offset=1&limit=1", "", `[2]`},

		step{"GET /schemas", "",
			`[{"subject":"a","version":1,"id":1},{"subject":"a","version":3,"id":3},{"subject":"b","version":1}]`},
		step{"GET /schemas?latestOnly=true", "", `[{"subject":"a","version":3},{"subject":"b"}]`},
		step{"GET /schemas?deleted=true&offset=1&limit=2", "",
			`[{"subject":"a","version":2,"deleted":true},{"subject":"a","version":3}]`},
		step{"GET /schemas?subjectPrefix=b", "", `[{"subject":"b"}]`},
		step{"GET /schemas?resourceType=topic&lifecycle=STRONG", "", `[{},{},{}]`}, // what there is none of is passed over

		step{"GET /schemas/ids/1/subjects", "", `["a","b"]`},
		step{"GET /schemas/ids/1/subjects?deleted=true", "", `["a","b","c"]`},
		step{"GET /schemas/ids/1/subjects?deleted=true&offset=2", "", `["c"]`},
		step{"GET /schemas/ids/1/versions?limit=1", "", `[{"subject":"a","version":1}]`},
		step{"GET /schemas/ids/1/versions?subject=b", "", `[{"subject":"b","version":1}]`},
	)
}

// A list of large schemas comes in pieces, and whole.
func TestLargeList(t *testing.T) {
	f := start(t)
	for i := range 4 {
		doc := `{"name":"a","type":"int","doc":"` + strings.Repeat("d", 700_000+i) + `"}`
		f.run(step{"POST /subjects/s" + strconv.Itoa(i) + "/versions", body(record(doc)), `{"version":1}`})
	}
	f.run(step{"GET /schemas", "", `[{"subject":"s0"},{"subject":"s1"},{"subject":"s2"},{"subject":"s3"}]`})
	f.run(step{"GET /schemas?limit=1", "", `[{"subject":"s0"}]`})
}

// Metadata and rules find their versions.
func TestMetadata(t *testing.T) {
	f := start(t)
	rule := `"ruleSet":{"domainRules":[{"name":"r","kind":"CONDITION","type":"CEL","mode":"WRITE","expr":"true"}]}`
	f.run(
		step{"POST /subjects/s/versions", body(record(fieldA), `"metadata":{"properties":{"a":"1","b":"2"}}`),
			`{"version":1}`},
		step{"POST /subjects/s/versions", body(record(fieldA, fieldB), `"metadata":{"properties":{"a":"1"}}`, rule),
			`{"version":2}`},
		step{"GET /subjects/s/metadata?key=a&value=1", "", `{"subject":"s","version":2,"id":2}`},
		step{"GET /subjects/s/metadata?key=a&value=1&key=b&value=2", "", `{"version":1}`},
		step{"GET /subjects/s/metadata?key=b&value=1", "", "40403"},
		step{"GET /subjects/s/metadata", "", `{"version":2}`},
		step{"GET /schemas?ruleType=CEL", "", `[{"version":2,"ruleSet":{"domainRules":[{"name":"r","expr":"true"}]}}]`},
		step{"POST /subjects/s/versions/2/tags", `{` + aTag + `}`, `{"version":3}`},
		step{"GET /subjects/s/versions/3?findTags=PII", "",
			`{"schemaTags":[{"schemaEntity":{"entityPath":"R.a","entityType":"sr_field"},"tags":["PII"]}]}`},
		step{"GET /schemas/ids/3?findTags=PII&findTags=X", "", `{"schemaTags":[{"tags":["PII"]}]}`},
		step{"GET /schemas/ids/3?findTags=X", "", `{"schemaTags":null}`},
		step{"POST /subjects/s/versions/3/tags", `{"rulesToRemove":["r"]}`, `{"version":4}`},
		step{"GET /subjects/s/versions/4", "", `{"ruleSet":{"domainRules":null}}`},
	)
	guid := guidOf(t, f.send("GET", "/subjects/s/versions/1", ""))
	f.run(
		step{"GET /schemas/guids/" + guid, "", `{"subject":null,"version":null,"guid":"` + guid + `","schemaType":"AVRO"}`},
		step{"GET /schemas/guids/" + guid + "/ids", "", `[{"context":".","id":1}]`},
		step{"GET /schemas/guids/00000000-0000-0000-0000-000000000000/ids", "", `[]`},
		step{"GET /schemas/guids/none/ids", "", `[]`},
		step{"GET /v1/metadata/version", "", `{}`},
		step{"GET /v1/metadata/deployment", "", `{"attributes":[]}`},
		step{"GET /v1/metadata/id", "",
			`{"id":"","scope":{"path":[],"clusters":{"schema-registry-cluster":"schema-registry"}}}`},
	)
}

// Configs are read under one name and written under another.
func TestConfigs(t *testing.T) {
	f := start(t)
	f.run(
		step{"GET /config", "", `{"compatibilityLevel":"BACKWARD","compatibility":null}`},
		step{"PUT /config", `{"compatibility":"full"}`, `{"compatibility":"FULL","compatibilityLevel":null}`},
		step{"GET /config", "", `{"compatibilityLevel":"FULL"}`},
		step{"GET /config/s?defaultToGlobal=true", "", `{"compatibilityLevel":"FULL"}`},
		step{"PUT /config/s", `{"compatibility":"NONE","normalize":true,"compatibilityGroup":"g"}`,
			`{"compatibility":"NONE","normalize":true,"compatibilityGroup":"g"}`},
		step{"PUT /config/s", `{"normalize":null,"defaultMetadata":{"properties":{"k":"v"}}}`,
			`{"compatibility":"NONE","normalize":null,"compatibilityGroup":"g","defaultMetadata":{"properties":{"k":"v"}}}`},
		step{"GET /config/s", "", `{"compatibilityLevel":"NONE","compatibility":null,"compatibilityGroup":"g"}`},
		step{"POST /subjects/s/versions", body(record(fieldA)), `{"version":1,"metadata":{"properties":{"k":"v"}}}`},
		step{"POST /subjects/s/versions", body(record(needful)), `{"version":2}`},
		step{"DELETE /config/s", "", `{"compatibilityLevel":"NONE","compatibilityGroup":"g"}`},
		step{"GET /config/s", "", "40408"},
		step{"DELETE /config", "", `{"compatibilityLevel":"FULL"}`},
		step{"GET /config", "", `{"compatibilityLevel":"BACKWARD"}`},
		step{"PUT /config/:.__GLOBAL:", `{"compatibility":"NONE"}`, `{"compatibility":"NONE"}`},
		step{"PUT /config/", `{"normalize":true}`, `{"normalize":true}`},
	)
}

// Modes say what may be written.
func TestModes(t *testing.T) {
	f := start(t)
	f.run(
		step{"GET /mode", "", `{"mode":"READWRITE"}`},
		step{"POST /subjects/s/versions", body(record(fieldA)), `{"id":1}`},
		step{"PUT /mode/s", `{"mode":"READONLY"}`, `{"mode":"READONLY"}`},
		step{"GET /mode/s", "", `{"mode":"READONLY"}`},
		step{"GET /mode/t?defaultToGlobal=true", "", `{"mode":"READWRITE"}`},
		step{"POST /subjects/s/versions", body(record(fieldA)), `{"id":1}`},
		step{"PUT /mode/s", `{"mode":null}`, `{"mode":null}`},
		step{"GET /mode/s", "", "40409"},
		step{"PUT /mode/s", `{"mode":"IMPORT"}`, "42205"},
		step{"PUT /mode/s?force=true", `{"mode":"IMPORT"}`, `{"mode":"IMPORT"}`},
		step{"DELETE /mode/s", "", `{"mode":"IMPORT"}`},
		step{"PUT /mode/:.ctx:x", `{"mode":"READONLY"}`, `{}`},
		step{"DELETE /mode/:.ctx:?recursive=true", "", `{"mode":null}`},
		step{"GET /mode/:.ctx:x", "", "40409"},
		step{"PUT /mode", `{"mode":"READONLY"}`, `{}`},
		step{"PUT /config/s", `{"compatibility":"FULL"}`, "42205"},
		step{"DELETE /mode", "", `{"mode":"READONLY"}`},
	)
}

// The answers to many ids are kept within a bound, and each stays its own.
func TestManyIDs(t *testing.T) {
	f := start(t)
	for i := range 40 {
		id := strconv.Itoa(i + 1)
		f.run(step{"POST /subjects/s" + id + "/versions", body(record(`{"name":"f` + id + `","type":"int"}`)),
			`{"id":` + id + `}`})
	}
	for range 2 {
		for i := range 40 {
			id := strconv.Itoa(i + 1)
			a := f.send("GET", "/schemas/ids/"+id, "")
			require.Contains(t, a.text, `\"f`+id+`\"`)
			require.Equal(t, strconv.Itoa(len(a.text)), a.header.Get("Content-Length"))
		}
	}
}

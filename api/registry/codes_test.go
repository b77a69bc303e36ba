package registry_test

import (
	"strings"
	"testing"
)

// Every error that the operations know, of every operation that knows it.
func TestErrorCodes(t *testing.T) {
	f := start(t)
	f.run(
		step{"POST /subjects/live/versions", body(record(fieldA)), `{"version":1}`},
		step{"POST /subjects/live/versions", body(record(fieldA, fieldB)), `{"version":2}`},
		step{"POST /subjects/half/versions", body(record(fieldA)), `{"version":1}`},
		step{"POST /subjects/half/versions", body(record(fieldA, fieldC)), `{"version":2}`},
		step{"DELETE /subjects/half/versions/1", "", `1`},
		step{"POST /subjects/soft/versions", body(record(fieldC)), `{"version":1}`},
		step{"DELETE /subjects/soft", "", `[1]`},
		step{"POST /subjects/base/versions", body(`{"type":"record","name":"Base","fields":[]}`), `{"version":1}`},
		step{"POST /subjects/user/versions", body(record(`{"name":"x","type":"Base"}`),
			`"references":[{"name":"Base","subject":"base","version":1}]`), `{"version":1}`},
		step{"POST /subjects/:.full:s/versions", body(record(fieldA)), `{"version":1}`},
		step{"POST /subjects/shut/versions", body(record(fieldA)), `{"version":1}`},
		step{"PUT /mode/shut", `{"mode":"READONLY"}`, `{"mode":"READONLY"}`},
	)
	for name, steps := range errorCodes {
		t.Run(name, func(t *testing.T) {
			g := *f
			g.t = t
			g.run(steps...)
		})
	}
}

// errorCodes are requests that are refused, by what they ask for.
var errorCodes = map[string][]step{
	"look up": {
		{"POST /subjects/none", body(record(fieldA)), "40401"},
		{"POST /subjects/soft", body(record(fieldC)), "40401"},
		{"POST /subjects/live", body(record(fieldC)), "40403"},
		{"POST /subjects/live", body(`{"type":"nothing"}`), "42201"},
		{"POST /subjects/live", body(`"string"`, `"schemaType":"XML"`), "42201"},
		{"POST /subjects/live", body(record(`{"name":"x","type":"No"}`),
			`"references":[{"name":"No","subject":"none","version":1}]`), "42201"},
		{"POST /subjects/live", "", "422"},
		{"POST /subjects/live", "null", "422"},
		{"POST /subjects/live", "{", "400"},
	},
	"delete a subject": {
		{"DELETE /subjects/none", "", "40401"},
		{"DELETE /subjects/soft", "", "40404"},
		{"DELETE /subjects/none?permanent=true", "", "40401"},
		{"DELETE /subjects/live?permanent=true", "", "40405"},
		{"DELETE /subjects/half?permanent=true", "", "40405"},
		{"DELETE /subjects/base", "", "42206"},
		{"DELETE /subjects/shut", "", "42205"},
	},
	"metadata": {
		{"GET /subjects/none/metadata", "", "40401"},
		{"GET /subjects/soft/metadata", "", "40401"},
		{"GET /subjects/live/metadata?key=a&value=b", "", "40403"},
		{"GET /subjects/live/metadata?key=a", "", "400"},
	},
	"versions": {
		{"GET /subjects/none/versions", "", "40401"},
		{"GET /subjects/soft/versions", "", "40401"},
		{"GET /subjects/live/versions?offset=-1", "", "400"},
		{"GET /subjects/live/versions?deleted=maybe", "", "400"},
	},
	"register": {
		{"POST /subjects/live/versions", body(record(needful)), "40901"},
		{"POST /subjects/live/versions", body(`{"type":"nothing"}`), "42201"},
		{"POST /subjects/new/versions", body(""), "42201"},
		{"POST /subjects/new/versions", `{}`, "42201"},
		{"POST /subjects/new/versions", body(`"string"`, `"schemaType":"XML"`), "42201"},
		{"POST /subjects/new/versions", body(`"string"`, `"version":7`), "42201"},
		{"POST /subjects/new/versions", body(`"string"`, `"references":[{"name":"x"}]`), "42201"},
		{"POST /subjects/new/versions", body(`"string"`, `"id":7`), "42205"},
		{"POST /subjects/shut/versions", body(record(fieldA, fieldB)), "42205"},
		{"POST /subjects/__GLOBAL/versions", body(`"string"`), "42208"},
		{"POST /subjects/__EMPTY/versions", body(`"string"`), "42208"},
		{"POST /subjects/a%01b/versions", body(`"string"`), "42208"},
		{"POST /subjects/:.__GLOBAL:s/versions", body(`"string"`), "42208"},
		{"POST /subjects/new/versions", body(`"` + strings.Repeat("x", 1<<20) + `"`), "42209"},
		{"POST /subjects/new/versions", strings.Repeat(" ", 5<<20), "42209"},
		{"POST /subjects/new/versions", body(`"string"`,
			`"ruleSet":{"domainRules":[{"name":"","kind":"CONDITION"}]}`), "42210"},
		{"POST /subjects/new/versions", "", "422"},
		{"POST /subjects/new/versions", `{"schema":7}`, "400"},
		{"POST /subjects/new/versions", `{"schema":"\"string\""}x`, "400"},
		{"POST /subjects/new/versions", `{"schema":"\"string\"","schema":"\"int\""}`, "400"},
		{"POST /subjects/new/versions", `[]`, "400"},
	},
	"read a version": {
		{"GET /subjects/none/versions/1", "", "40401"},
		{"GET /subjects/soft/versions/1", "", "40401"},
		{"GET /subjects/soft/versions/latest", "", "40401"},
		{"GET /subjects/live/versions/9", "", "40402"},
		{"GET /subjects/half/versions/1", "", "40402"},
		{"GET /subjects/live/versions/0", "", "42202"},
		{"GET /subjects/live/versions/-2", "", "42202"},
		{"GET /subjects/live/versions/one", "", "42202"},
		{"GET /subjects/live/versions/2147483648", "", "42202"},
		{"GET /subjects/none/versions/1/schema", "", "40401"},
		{"GET /subjects/live/versions/9/schema", "", "40402"},
		{"GET /subjects/live/versions/x/schema", "", "42202"},
		{"GET /subjects/none/versions/1/referencedby", "", "40401"},
		{"GET /subjects/live/versions/9/referencedby", "", "40402"},
		{"GET /subjects/live/versions/x/referencedby", "", "42202"},
	},
	"delete a version": {
		{"DELETE /subjects/none/versions/1", "", "40401"},
		{"DELETE /subjects/live/versions/9", "", "40402"},
		{"DELETE /subjects/half/versions/1", "", "40406"},
		{"DELETE /subjects/live/versions/1?permanent=true", "", "40407"},
		{"DELETE /subjects/live/versions/x", "", "42202"},
		{"DELETE /subjects/shut/versions/1", "", "42205"},
		{"DELETE /subjects/base/versions/1", "", "42206"},
	},
	"undelete": {
		{"POST /subjects/none/versions/1:undelete", "", "40401"},
		{"POST /subjects/live/versions/9:undelete", "", "40402"},
		{"POST /subjects/live/versions/x:undelete", "", "42202"},
		{"POST /subjects/live/versions/1:undelete", "", `{"version":1}`}, // it is live, as is wanted
	},
	"tags": {
		{"POST /subjects/none/versions/1/tags", `{}`, "40401"},
		{"POST /subjects/live/versions/9/tags", `{}`, "40402"},
		{"POST /subjects/live/versions/x/tags", `{}`, "42202"},
		{"POST /subjects/live/versions/1/tags", `{"newVersion":9,` + aTag + `}`, "42201"},
		{"POST /subjects/shut/versions/1/tags", `{` + aTag + `}`, "42205"},
		{"POST /subjects/live/versions/1/tags", `{"ruleSet":{},"rulesToRemove":["a"]}`, "42210"},
		{"POST /subjects/live/versions/1/tags", "", "422"},
	},
	"schemas": {
		{"GET /schemas/ids/999", "", "40403"},
		{"GET /schemas/ids/999?subject=live", "", "40403"},
		{"GET /schemas/ids/999/schema", "", "40403"},
		{"GET /schemas/ids/999/subjects", "", "40403"},
		{"GET /schemas/ids/999/versions", "", "40403"},
		{"GET /schemas/ids/one", "", "404"},
		{"GET /schemas/ids/1?fetchMaxId=x", "", "400"},
		{"GET /schemas/ids/2147483648", "", "404"},
		{"GET /schemas/guids/00000000-0000-0000-0000-000000000000", "", "40403"},
		{"GET /schemas/guids/none", "", "40403"},
	},
	"batch": {
		{"POST /v1/schemas:batch", `{"schemas":[` + entry("live", record(needful)) + `]}`, "40901"},
		{"POST /v1/schemas:batch", `{"schemas":[` + entry("new", `{}`) + `]}`, "42201"},
		{"POST /v1/schemas:batch", `{"schemas":[` + entry("shut", record(fieldC)) + `]}`, "42205"},
		{"POST /v1/schemas:batch", `{"schemas":[` + entry("__EMPTY", `"int"`) + `]}`, "42208"},
		{"POST /v1/schemas:batch", `{"schemas":[]}`, "422"},
		{"POST /v1/schemas:batch", `{"schemas":[{"schema":"\"int\""}]}`, "422"},
		{"POST /v1/schemas:batch", `{"schemas":{}}`, "400"},
		{"POST /v1/schemas:batch", "", "422"},
	},
	"compatibility": {
		{"POST /compatibility/subjects/live/versions/9", body(record(fieldA)), "40402"},
		{"POST /compatibility/subjects/live/versions/x", body(record(fieldA)), "42202"},
		{"POST /compatibility/subjects/live/versions/latest", body(`{"type":"nothing"}`), "42201"},
		{"POST /compatibility/subjects/live/versions", body(`{"type":"nothing"}`), "42201"},
		{"POST /compatibility/subjects/live/versions", strings.Repeat(" ", 5<<20), "42209"},
		{"POST /compatibility/subjects/live/versions", "", "422"},
	},
	"config": {
		{"GET /config/none", "", "40408"},
		{"DELETE /config/none", "", "40401"},
		{"PUT /config", `{"compatibility":"SOME"}`, "42203"},
		{"PUT /config/live", `{"compatibility":"SOME"}`, "42203"},
		{"PUT /config/shut", `{"compatibility":"FULL"}`, "42205"},
		{"PUT /config/__GLOBAL", `{"compatibility":"FULL"}`, "42208"},
		{"PUT /config/live", `{"defaultRuleSet":{"domainRules":[{"name":""}]}}`, "42210"},
		{"PUT /config/live", `{"normalize":"yes"}`, "400"},
		{"PUT /config/live", "", "422"},
	},
	"mode": {
		{"GET /mode/none", "", "40409"},
		{"DELETE /mode/none", "", "40401"},
		{"PUT /mode", `{"mode":"SOME"}`, "42204"},
		{"PUT /mode/live", `{"mode":"FORWARD"}`, "42204"},
		{"PUT /mode/live", `{"mode":"IMPORT"}`, "42205"},
		{"PUT /mode", `{"mode":"IMPORT"}`, "42205"},
		{"PUT /mode/__EMPTY", `{"mode":"READONLY"}`, "42208"},
		{"PUT /mode/live", "", "422"},
		{"PUT /mode/live", `{"mode":7}`, "400"},
	},
	"contexts": {
		{"DELETE /contexts/.full", "", "42211"},
		{"DELETE /contexts/a:b", "", "400"},
		{"GET /contexts/a:b/subjects", "", "400"},
	},
}

const aTag = `"tagsToAdd":[{"schemaEntity":{"entityPath":"R.a","entityType":"sr_field"},"tags":["PII"]}]`

// entry is a schema of a batch.
func entry(subject, text string, more ...string) string {
	return `{"subject":"` + subject + `",` + body(text, more...)[1:]
}

// A hard delete is refused while anybody refers, though softly deleted; and IMPORT and its ids.
func TestErrorCodesOfLaterStates(t *testing.T) {
	f := start(t)
	base := `{"type":"record","name":"Base","fields":[]}`
	f.run(
		step{"POST /subjects/base/versions", body(base), `{"id":1,"version":1}`},
		step{"POST /subjects/user/versions", body(record(`{"name":"x","type":"Base"}`),
			`"references":[{"name":"Base","subject":"base","version":1}]`), `{"id":2}`},
		step{"DELETE /subjects/user/versions/1", "", `1`},
		step{"DELETE /subjects/base/versions/1", "", `1`},
		step{"DELETE /subjects/base/versions/1?permanent=true", "", "42206"},
		step{"DELETE /subjects/base?permanent=true", "", "42206"},
		step{"DELETE /subjects/user?permanent=true", "", `[1]`},
		step{"DELETE /subjects/base?permanent=true", "", `[1]`},
		step{"GET /schemas/ids/1", "", "40403"},
		step{"POST /subjects/base/versions", body(`"string"`), `{"id":3}`}, // no id is given out twice
		step{"PUT /mode/moved", `{"mode":"IMPORT"}`, `{"mode":"IMPORT"}`},
		step{"POST /subjects/moved/versions", body(`"int"`), "42205"},
		step{"POST /subjects/moved/versions", body(`"int"`, `"id":3`), "42205"},
		step{"POST /subjects/moved/versions", body(`"int"`, `"id":30,"version":5`), `{"id":30,"version":5}`},
		step{"POST /subjects/moved/versions", body(`"int"`, `"id":30,"version":5`), `{"id":30,"version":5}`},
	)
}

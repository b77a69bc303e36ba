package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// restoreRegistry makes the schemas that the examples name, after the registry's log was deleted: orders-value of two
// versions with the ids 1 and 2 and a config and a mode of its own, the schema customer to refer to and one that does,
// retired-value, which is softly deleted, the context .archive, in which nothing is left, and the
// context .used.
func (g *rig) restoreRegistry(t *testing.T) {
	t.Helper()
	schema := func(text string) map[string]any { return map[string]any{"schema": text} }
	const order = `{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}`
	g.call(t, "POST", "/subjects/orders-value/versions", schema(order+`]}`), nil)
	second := schema(order + `,{"name":"note","type":"string","default":""}]}`)
	second["metadata"] = map[string]any{"properties": map[string]string{"owner": "sales"}}
	g.call(t, "POST", "/subjects/orders-value/versions", second, nil)
	g.call(t, "POST", "/subjects/customer/versions",
		schema(`{"type":"record","name":"Customer","fields":[{"name":"name","type":"string"}]}`), nil)
	referrer := schema(`{"type":"record","name":"Invoice","fields":[{"name":"to","type":"Customer"}]}`)
	referrer["references"] = []map[string]any{{"name": "Customer", "subject": "customer", "version": 1}}
	g.call(t, "POST", "/subjects/invoices-value/versions", referrer, nil)
	g.call(t, "POST", "/subjects/retired-value/versions", schema(`"string"`), nil)
	g.call(t, "DELETE", "/subjects/retired-value", nil, nil)
	g.call(t, "POST", "/subjects/:.archive:old/versions", schema(`"string"`), nil)
	g.call(t, "DELETE", "/subjects/:.archive:old", nil, nil)
	g.call(t, "DELETE", "/subjects/:.archive:old?permanent=true", nil, nil)
	g.call(t, "POST", "/subjects/:.used:new/versions", schema(`"string"`), nil)
	g.call(t, "PUT", "/config/orders-value", map[string]string{"compatibility": "BACKWARD"}, nil)
	g.call(t, "PUT", "/mode/orders-value", map[string]string{"mode": "READWRITE"}, nil)
}

// softly deletes softly what the request deletes for ever.
func softly(t *testing.T, g *rig, q *request) {
	first := q.clone()
	first.query.Del("permanent")
	require.Equal(t, http.StatusOK, g.send(t, first).status)
}

// bySchema makes the request one of data that fit the schemas of orders, among them one of keys.
func bySchema(value, key string) func(*testing.T, *rig, *request) {
	return func(t *testing.T, g *rig, q *request) {
		g.call(t, "POST", "/subjects/orders-key/versions", map[string]any{"schema": `"string"`}, nil)
		q.body = []byte(value)
		if key != "" {
			q.query.Set("key", key)
		}
	}
}

// alsoVersion says whether the last part of an operation's path is also a version, though one that cannot be: with
// other methods it is refused as that.
func alsoVersion(op *operation) bool { return strings.HasSuffix(op.path, "/{version}:undelete") }

// ofOrders are the parameters of requests about the subject orders-value.
var ofOrders = by{"subject": "orders-value"}

// registryParticulars are the faults of the registry that the contract tells of in words only.
var registryParticulars = []particular{
	{op: "lookUpSchema", what: "no such subject", params: by{"subject": "nobody"}, status: 404},
	{op: "lookUpSchema", what: "another schema", body: `{"schema":"\"long\""}`, status: 404},
	{op: "lookUpSchema", what: "no schema", body: `{"schema":"{}"}`, status: 422},
	{op: "deleteRegistrySubject", what: "no such subject", params: by{"subject": "nobody"}, status: 404},
	{op: "deleteRegistrySubject", what: "live for ever", params: by{"permanent": "true"}, status: 404},
	{op: "deleteRegistrySubject", what: "one that is referred to", params: by{"subject": "customer"}, status: 422},
	{op: "getSchemaByMetadata", what: "no such subject", params: by{"subject": "nobody"}, status: 404},
	{op: "getSchemaByMetadata", what: "no such property", params: by{"key": "owner", "value": "nobody"}, status: 404},
	{op: "getSchemaByMetadata", what: "half a pair", params: by{"key": "owner"}, status: 400},
	{op: "listSchemaVersions", what: "no such subject", params: by{"subject": "nobody"}, status: 404},
	{op: "registerSchema", what: "an incompatible schema", params: ofOrders, status: 409,
		body: `{"schema":"{\"type\":\"record\",\"name\":\"Order\",\"fields\":[{\"name\":\"n\",\"type\":\"int\"}]}"}`},
	{op: "registerSchema", what: "a later version", body: `{"schema":"\"long\"","version":7}`, status: 422},
	{op: "registerSchema", what: "an id", body: `{"schema":"\"long\"","id":7}`, status: 422},
	{op: "registerSchema", what: "a reference to nothing", status: 422,
		body: `{"schema":"\"A\"","references":[{"name":"A","subject":"nobody","version":1}]}`},
	{op: "registerSchema", what: "a subject that none may be", params: by{"subject": "__EMPTY"}, status: 422},
	{op: "getSchemaVersion", what: "no such version", params: by{"version": "7"}, status: 404},
	{op: "getSchemaVersion", what: "a deleted version", params: by{"subject": "retired-value"}, status: 404},
	{op: "getSchemaVersionText", what: "no such version", params: by{"version": "7"}, status: 404},
	{op: "listSchemaReferrers", what: "no such version", params: by{"version": "7"}, status: 404},
	{op: "deleteSchemaVersion", what: "no such version", params: by{"version": "7"}, status: 404},
	{op: "deleteSchemaVersion", what: "live for ever", params: by{"permanent": "true"}, status: 404},
	{op: "deleteSchemaVersion", what: "one that is referred to", params: by{"subject": "customer"}, status: 422},
	{op: "undeleteSchemaVersion", what: "no such subject", params: by{"subject": "nobody"}, status: 404},
	{op: "undeleteSchemaVersion", what: "no such version", params: by{"version": "7"}, status: 404},
	{op: "modifySchemaTags", what: "no such version", params: by{"version": "7"}, status: 404},
	{op: "modifySchemaTags", what: "rules in two ways", body: `{"ruleSet":{},"rulesToRemove":["a"]}`, status: 422},
	{op: "getSchemaByGUID", what: "no GUID", params: by{"guid": "nobody"}, status: 404},
	{op: "registerSchemas", what: "an incompatible schema", status: 409, body: `{"schemas":[{"subject":"orders-value",` +
		`"schema":"{\"type\":\"record\",\"name\":\"Order\",\"fields\":[{\"name\":\"n\",\"type\":\"int\"}]}"}]}`},
	{op: "registerSchemas", what: "a bad schema behind a good one", status: 422,
		body: `{"schemas":[{"subject":"a","schema":"\"long\""},{"subject":"b","schema":"{}"}]}`},
	{op: "checkSchemas", what: "a subject that none may be", status: 422,
		body: `{"schemas":[{"subject":"a","schema":"\"long\""},{"subject":"__EMPTY","schema":"\"long\""}]}`},
	{op: "checkCompatibility", what: "no schema", body: `{"schema":"{}"}`, status: 422},
	{op: "checkCompatibilityWithVersion", what: "no such version", params: by{"version": "7"}, status: 404},
	{op: "checkCompatibilityWithVersion", what: "no schema", body: `{"schema":"{}"}`, status: 422},
	{op: "getSubjectConfig", what: "none", params: by{"subject": "nobody"}, status: 404},
	{op: "resetSubjectConfig", what: "none", params: by{"subject": "nobody"}, status: 404},
	{op: "getSubjectMode", what: "none", params: by{"subject": "nobody"}, status: 404},
	{op: "resetSubjectMode", what: "none", params: by{"subject": "nobody"}, status: 404},
	{op: "setSubjectMode", what: "an import over versions", body: `{"mode":"IMPORT"}`, status: 422},
	{op: "setRegistryMode", what: "an import over versions", body: `{"mode":"IMPORT"}`, status: 422},
	{op: "deleteRegistryContext", what: "one that is not empty", params: by{"context": ".used"}, status: 422},
}

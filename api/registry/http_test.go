package registry_test

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"millrace/api"
)

// The types of bodies, both ways.
func TestMediaTypes(t *testing.T) {
	f := start(t)
	post := func(headers ...string) *answer {
		return f.send("POST", "/subjects/s/versions", body(`"string"`), headers...)
	}
	for contentType, status := range map[string]int{
		"":                                       200,
		"application/json":                       200,
		"application/json; charset=utf-8":        200,
		"application/vnd.schemaregistry+json":    200,
		"application/vnd.schemaregistry.v1+json": 200,
		"Application/VND.SchemaRegistry.v1+JSON": 200,
		"application/octet-stream":               200,
		"text/plain":                             415,
		"application/x-www-form-urlencoded":      415,
		"application/vnd.kafka.v2+json":          415,
		"application/vnd.schemaregistry.v2+json": 415,
	} {
		a := post("Content-Type", contentType)
		require.Equal(t, status, a.status, "%s: %s", contentType, a.text)
		if status == 415 {
			require.Equal(t, 415, a.code())
		}
	}
	const v1, v0, plain = api.RegistryType, "application/vnd.schemaregistry+json", "application/json"
	for _, path := range []string{"/schemas/ids/1", "/schemas/ids/1?format=x", "/subjects",
		"/subjects/s/versions/1/schema"} {
		for accept, want := range map[string]string{
			"": v1, "*/*": v1, "application/*": v1, v1: v1, v0: v0, plain: plain, v1 + ", " + v0 + ", " + plain: v1,
			plain + ";q=0.9, " + v0 + ";q=0.5": plain, v1 + "; qs=0.9, " + plain + "; qs=0.5": v1, "text/html, */*;q=0.1": v1,
			"text/html": "", "application/vnd.kafka.v2+json": "", v1 + ";q=0": "",
		} {
			a := f.send("GET", path, "", "Accept", accept)
			if want == "" {
				require.Equal(t, 406, a.status, "%s %s", path, accept)
				require.Equal(t, 406, a.code())
				want = v1
			} else {
				require.Equal(t, 200, a.status, "%s %s: %s", path, accept, a.text)
			}
			require.Equal(t, want, a.header.Get("Content-Type"), "%s %s", path, accept)
		}
	}
}

// Every answer carries the id of its request.
func TestRequestID(t *testing.T) {
	f := start(t)
	f.run(step{"POST /subjects/s/versions", body(`"string"`), `{"id":1}`})
	for _, path := range []string{
		"/schemas/ids/1", "/schemas/ids/9", "/schemas/ids/1?format=x", "/subjects", "/subjects/none/versions",
		"/schemas/none",
		"/contexts/.c/subjects", "/contexts/a:b/subjects", "/v1/metadata/id", "/mode/",
	} {
		require.Equal(t, "mine", f.send("GET", path, "", "X-Request-ID", "mine").header.Get("X-Request-ID"), path)
		first := f.send("GET", path, "").header.Get("X-Request-ID")
		require.NoError(t, uuid.Validate(first), path)
		require.NotEqual(t, first, f.send("GET", path, "").header.Get("X-Request-ID"), path)
	}
}

// Errors of the HTTP layer are told in the registry's form too.
func TestFaultsOfHTTP(t *testing.T) {
	f := start(t)
	for _, c := range []struct {
		request string
		code    int
	}{
		{"GET /subjects/s/none", 404}, {"GET /schemas/none", 404}, {"GET /compatibility", 404},
		{"GET /v1/metadata/none", 404},
		{"GET /contexts/.c/topics", 404}, {"GET /subjects/s/versions/1/schema/x", 404}, {"GET /config/a/b", 404},
		{"PUT /subjects", 405}, {"PATCH /subjects/s", 405}, {"POST /schemas/ids/1", 405}, {"POST /config", 405},
		{"DELETE /contexts", 405}, {"PUT /v1/metadata/id", 405}, {"GET /v1/schemas:batch", 405}, {"GET /contexts/.c", 405},
		{"GET /contexts/.c/compatibility/subjects/s/versions", 405},
	} {
		method, path, _ := strings.Cut(c.request, " ")
		a := f.send(method, path, "")
		require.Equal(t, c.code, a.status, c.request)
		require.Equal(t, c.code, a.code(), c.request)
		require.NotEmpty(t, a.message(), c.request)
		require.Equal(t, api.RegistryType, a.header.Get("Content-Type"), c.request)
	}
	require.Equal(t, "GET, HEAD, OPTIONS, POST", f.send("DELETE", "/subjects/s/versions", "").header.Get("Allow"))
	require.Contains(t, f.send("GET", "/metrics", "").text, `millrace_http_requests_total{api="registry",status="4xx"}`)

	a := f.send("POST", "/", "")
	require.Equal(t, 200, a.status)
	require.Equal(t, "{}\n", a.text)
	a = f.send("GET", "/", "", "Accept", api.RegistryType)
	require.Equal(t, 200, a.status)
	require.Equal(t, api.RegistryType, a.header.Get("Content-Type"))
	for _, path := range []string{"/associations/subjects/s", "/exporters", "/dek-registry/v1/keks", "/catalog/v1/types"} {
		a := f.send("GET", path, "")
		require.Equal(t, 404, a.status, path) // clients take it that there is no such API
		require.Equal(t, 404, a.code(), path)
	}
}

// What is in a body and is not known does not count, not even as a known name in another case.
func TestUnknownMembers(t *testing.T) {
	f := start(t)
	f.run(
		step{"POST /subjects/s/versions",
			`{"Schema":"\"int\"","x":{"y":[1,{"schema":2}]},"schema":"\"string\"","SCHEMATYPE":"JSON",` +
				`"sch\u0065matype":7,"metadata":{"properties":{"Any":"1"},"x":1},"references":null,"version":null}`,
			`{"version":1,"schemaType":"AVRO","schema":"\"string\"","metadata":{"properties":{"Any":"1"}}}`},
		step{"PUT /config/s", `{"Compatibility":"FULL","compatibility":"NONE","x":1}`, `{"compatibility":"NONE"}`},
		step{"PUT /config/s", `{"\ud800":1}`, "400"},
	)
	many := strings.Repeat(`"x":1,`, 100_000)
	require.Equal(t, 200, f.send("POST", "/subjects/s",
		`{`+many+`"schema":"\"string\"","metadata":{"properties":{"Any":"1"}}}`).status)
}

// What is empty is left out of answers.
func TestEmptyMembers(t *testing.T) {
	f := start(t)
	f.run(step{"POST /subjects/s/versions", body(`"string"`, `"references":[],"metadata":{"tags":{},"properties":{}}`),
		`{"references":null,"ruleSet":null,"deleted":null,"schemaTags":null,"metadata":{"tags":null,"properties":null}}`})
	f.run(
		step{"GET /schemas/ids/1", "", `{"subject":null,"version":null,"id":null,"maxId":null,"schema":"\"string\""}`},
		step{"GET /schemas/ids/1?subject=s", "", `{"subject":"s","version":1}`},
		step{"GET /schemas/ids/1?subject=", "", `{"subject":"s","version":1}`},
		step{"GET /schemas/ids/1?fetchMaxId=true", "", `{"maxId":1}`},
		step{"GET /subjects/s/versions/1", "", `{"subject":"s","version":1,"id":1,"schemaType":"AVRO","deleted":null}`},
		step{"GET /config", "", `{"compatibilityLevel":"BACKWARD","alias":null,"normalize":null}`},
		step{"POST /compatibility/subjects/s/versions", body(`"string"`), `{"is_compatible":true,"messages":null}`},
		step{"POST /compatibility/subjects/s/versions?verbose=true", body(`"string"`),
			`{"is_compatible":true,"messages":[]}`},
	)
	require.Equal(t, `"string"`, f.send("GET", "/schemas/ids/1/schema", "").text)
	require.Equal(t, `"string"`, f.send("GET", "/subjects/s/versions/latest/schema", "").text)
}

// Bodies may be compressed, and what a client waits for is never more than the limits allow.
func TestBodies(t *testing.T) {
	f := start(t)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write([]byte(body(record(fieldA))))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	a := f.send("POST", "/subjects/s/versions", packed.String(), "Content-Encoding", "gzip")
	require.Equal(t, 200, a.status, a.text)

	packed.Reset()
	w.Reset(&packed)
	_, err = w.Write(bytes.Repeat([]byte(" "), 7<<20))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	a = f.send("POST", "/subjects/s/versions", packed.String(), "Content-Encoding", "gzip")
	require.Equal(t, 42209, a.code(), "%d %s", a.status, a.text)
	a = f.send("PUT", "/config", packed.String(), "Content-Encoding", "gzip")
	require.Equal(t, http.StatusRequestEntityTooLarge, a.status, a.text)
	a = f.send("PUT", "/config", `{"x":"`+strings.Repeat("x", 1<<20)+`"}`)
	require.Equal(t, http.StatusRequestEntityTooLarge, a.status, a.text)
}

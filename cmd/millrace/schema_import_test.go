package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/server/servertest"
)

// ask sends a request to a registry and returns the status and the body.
func ask(t *testing.T, base, line, body string) (int, string) {
	t.Helper()
	method, path, _ := strings.Cut(line, " ")
	req, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(text)
}

// must is ask where the request has to succeed.
func must(t *testing.T, base, line, body string) string {
	t.Helper()
	status, text := ask(t, base, line, body)
	require.Less(t, status, 300, "%s %s: %s", line, body, text)
	return text
}

// schemaBody is the body of a register request; more are further members of it.
func schemaBody(kind, text, more string) string {
	quoted, _ := json.Marshal(text)
	if more != "" {
		more = "," + more
	}
	return fmt.Sprintf(`{"schemaType":%q,"schema":%s%s}`, kind, quoted, more)
}

func avroRecord(name, fields string) string {
	return fmt.Sprintf(`{"type":"record","name":%q,"fields":[%s]}`, name, fields)
}

const (
	intA = `{"name":"a","type":"int"}`
	intB = `{"name":"b","type":"int","default":0}`
	intC = `{"name":"c","type":"int","default":1}`
)

// fillRegistry gives a registry some of everything that can be copied.
func fillRegistry(t *testing.T, base string) {
	t.Helper()
	put := func(subject, body string) { must(t, base, "POST /subjects/"+url.PathEscape(subject)+"/versions", body) }
	put("orders-value", schemaBody("AVRO", avroRecord("Order", intA), ""))
	put("orders-value", schemaBody("AVRO", avroRecord("Order", intA+","+intB),
		`"metadata":{"properties":{"owner":"billing"}},
		"ruleSet":{"domainRules":[{"name":"r","kind":"CONDITION","type":"CEL","mode":"WRITE","expr":"true"}]}`))
	put("copies/of it", schemaBody("AVRO", avroRecord("Order", intA), ""))
	put(":.staging:orders-value", schemaBody("AVRO", avroRecord("Order", intB), ""))
	put(":.staging:orders-value", schemaBody("AVRO", avroRecord("Order", intB+","+intC), ""))
	put("zz-address", schemaBody("JSON", `{"type":"object","properties":{"city":{"type":"string"}}}`, ""))
	put("people", schemaBody("JSON", `{"type":"object","properties":{"at":{"$ref":"address.json"}}}`,
		`"references":[{"name":"address.json","subject":"zz-address","version":1}]`))
	put(":.staging:money", schemaBody("PROTOBUF", `syntax = "proto3"; package m; message Money { int64 units = 1; }`, ""))
	put(":.staging:a-sale", schemaBody("PROTOBUF",
		"syntax = \"proto3\"; import \"money.proto\"; message Sale { m.Money total = 1; }",
		`"references":[{"name":"money.proto","subject":"money","version":1}]`))
	put("gone", schemaBody("AVRO", avroRecord("Gone", intA), ""))
	put("by-gone", schemaBody("AVRO", avroRecord("ByGone", `{"name":"g","type":"Gone"}`),
		`"references":[{"name":"Gone","subject":"gone","version":1}]`))
	must(t, base, "DELETE /subjects/by-gone", "")
	must(t, base, "DELETE /subjects/gone", "")
	put("holes", schemaBody("AVRO", `"int"`, ""))
	put("holes", schemaBody("AVRO", `"long"`, ""))
	put("holes", schemaBody("AVRO", `"double"`, ""))
	must(t, base, "DELETE /subjects/holes/versions/2", "")
	must(t, base, "DELETE /subjects/holes/versions/1", "")
	must(t, base, "DELETE /subjects/holes/versions/1?permanent=true", "")
	must(t, base, "PUT /mode/twins", `{"mode":"IMPORT"}`)
	for _, v := range []int{3, 7, 9} { // the same id in several versions, and several ids for one schema
		put("twins", schemaBody("AVRO", `"bytes"`, fmt.Sprintf(`"version":%d,"id":%d`, v, 70+v/7)))
	}
	must(t, base, "PUT /mode/twins", `{"mode":"READWRITE"}`)
	must(t, base, "PUT /config", `{"compatibility":"FORWARD"}`)
	must(t, base, "PUT /config/orders-value", `{"compatibility":"FULL_TRANSITIVE","normalize":true,
		"compatibilityGroup":"owner"}`)
	must(t, base, "PUT /config/:.staging:", `{"compatibility":"NONE"}`)
	must(t, base, "PUT /config/old-orders", `{"alias":"orders-value"}`)
	must(t, base, "PUT /mode/people", `{"mode":"READONLY"}`)
	must(t, base, "PUT /mode/:.staging:", `{"mode":"READONLY"}`)
}

// contents is all that a registry has, but for the times.
func contents(t *testing.T, base string, scopes ...string) map[string]any {
	t.Helper()
	out := map[string]any{}
	note := func(path string, without ...string) {
		status, text := ask(t, base, "GET "+path, "")
		var value any
		require.NoError(t, json.Unmarshal([]byte(text), &value))
		if status != http.StatusOK {
			value = status
		} else if object, ok := value.(map[string]any); ok {
			for _, name := range without {
				delete(object, name)
			}
		}
		out[path] = value
	}
	var subjects []string
	require.NoError(t, json.Unmarshal([]byte(must(t, base, "GET /subjects?deleted=true", "")), &subjects))
	note("/subjects?deleted=true")
	note("/subjects")
	note("/contexts")
	for _, subject := range subjects {
		path := "/subjects/" + url.PathEscape(subject) + "/versions"
		var versions []int
		require.NoError(t, json.Unmarshal([]byte(must(t, base, "GET "+path+"?deleted=true", "")), &versions))
		note(path)
		for _, v := range versions {
			at := path + "/" + strconv.Itoa(v)
			note(at+"?deleted=true", "ts")
			note(at + "/referencedby?deleted=true")
		}
	}
	for _, scope := range append(scopes, subjects...) {
		note("/config/" + url.PathEscape(scope))
		note("/mode/" + url.PathEscape(scope))
	}
	return out
}

// A registry is copied with all that it has, also when the copy is cut off at any request and goes on later.
func TestSchemaImport(t *testing.T) {
	from := servertest.Start(t, servertest.Options{})
	fillRegistry(t, from.URL())
	scopes := []string{"", ":.staging:", "old-orders"}
	want := contents(t, from.URL(), scopes...)
	require.Len(t, want["/subjects?deleted=true"], 11)
	require.Len(t, want["/subjects"], 9)

	to := servertest.Start(t, servertest.Options{})
	proxied, requests := cutOff(t, to.URL(), -1)
	out, stderr, code := command(t, "", "schema", "import", "--from", from.URL(), "--dry-run", "--url", proxied)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "11 subjects: 16 versions to copy, 0 here already, 3 deleted as there, 4 configs, 3 modes\n", out)
	require.JSONEq(t, `[]`, must(t, to.URL(), "GET /subjects?deleted=true", ""))
	dry := requests.Load()

	out, stderr, code = command(t, "", "schema", "import", "--from", from.URL(), "--url", proxied)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "11 subjects: 16 versions copied, 0 here already, 3 deleted as there, 4 configs, 3 modes\n", out)
	require.Equal(t, want, contents(t, to.URL(), scopes...))
	whole := requests.Load() - dry

	report := filepath.Join(t.TempDir(), "report.json")
	again := []string{"schema", "import", "--from", from.URL(), "--url", to.URL(), "--report", report}
	out, stderr, code = command(t, "", again...)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "11 subjects: 0 versions copied, 16 here already, 0 deleted as there, 0 configs, 0 modes\n", out)
	text, err := os.ReadFile(report)
	require.NoError(t, err)
	require.JSONEq(t, `{"subjects":11,"copied":0,"present":16,"deleted":0,"configs":0,"modes":0,"notes":[],
		"failed":[]}`, string(text))
	require.Equal(t, want, contents(t, to.URL(), scopes...))

	// The next id is above all that were copied.
	next := must(t, to.URL(), "POST /subjects/next/versions", schemaBody("AVRO", `"float"`, ""))
	require.Contains(t, next, `"id":72,`)

	// What changes there afterwards is copied too.
	must(t, from.URL(), "DELETE /mode/people", "")
	must(t, from.URL(), "POST /subjects/holes/versions/2:undelete", "")
	must(t, from.URL(), "DELETE /subjects/twins/versions/3", "")
	must(t, from.URL(), "DELETE /subjects/people", "")
	out, stderr, code = command(t, "", again...)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "11 subjects: 1 version copied, 15 here already, 2 deleted as there, 0 configs, 0 modes\n", out)
	require.Contains(t, must(t, to.URL(), "GET /mode/people", ""), "READONLY", "what is here stays")
	_, text2 := ask(t, to.URL(), "GET /subjects/holes/versions", "")
	require.JSONEq(t, `[2,3]`, text2)
	_, text2 = ask(t, to.URL(), "GET /subjects/twins/versions", "")
	require.JSONEq(t, `[7,9]`, text2)

	for n := whole / 7; n < whole; n += whole / 7 {
		t.Run(fmt.Sprintf("cut off after %d of %d requests", n, whole), func(t *testing.T) {
			must(t, from.URL(), "PUT /mode/people", `{"mode":"READONLY"}`)
			to := servertest.Start(t, servertest.Options{})
			proxied, _ := cutOff(t, to.URL(), n)
			_, stderr, code := command(t, "", "schema", "import", "--from", from.URL(), "--url", proxied)
			require.Contains(t, []exitCode{exitUnknown, exitUnreachable}, code, stderr)
			_, stderr, code = command(t, "", "schema", "import", "--from", from.URL(), "--url", to.URL())
			require.Equal(t, exitOK, code, stderr)
			require.Equal(t, contents(t, from.URL(), scopes...), contents(t, to.URL(), scopes...))
		})
	}
}

// cutOff is a proxy that ends connections without an answer once it has passed on n requests; a negative n is endless.
// Of the requests that it cuts off every other one was passed on.
func cutOff(t *testing.T, target string, n int64) (string, *atomic.Int64) {
	t.Helper()
	at, err := url.Parse(target)
	require.NoError(t, err)
	passOn := httputil.NewSingleHostReverseProxy(at)
	passOn.ErrorLog = log.New(io.Discard, "", 0) // of requests that the command gave up
	var requests atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch i := requests.Add(1) - n; {
		case n >= 0 && i > 0 && i%2 == 0:
			panic(http.ErrAbortHandler)
		case n >= 0 && i > 0:
			passOn.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		passOn.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, &requests
}

// What means something else here is listed, and nothing that is here changes.
func TestSchemaImportClashes(t *testing.T) {
	from, to := servertest.Start(t, servertest.Options{}), servertest.Start(t, servertest.Options{})
	put := func(n *servertest.Node, subject, text, more string) {
		must(t, n.URL(), "POST /subjects/"+subject+"/versions", schemaBody("AVRO", text, more))
	}
	put(from, "same", `"int"`, "")                                  // id 1 in both
	put(from, "other", avroRecord("R", intA), "")                   // id 2, version 1: another schema here
	put(from, "moved", `"long"`, "")                                // id 3; version 1 has id 4 here
	put(from, "taken", `"bytes"`, "")                               // id 4, which is of another schema here
	put(from, "alias", `"double"`, "")                              // id 5
	put(from, "refers", avroRecord("S", `{"name":"r","type":"R"}`), // id 6, whose reference means something else
		`"references":[{"name":"R","subject":"other","version":1}]`)
	put(from, "live", `"float"`, "") // id 7
	put(to, "same", `"int"`, "")
	put(to, "other", avroRecord("Mine", intA), "")
	put(to, "filler", `"string"`, "") // id 3
	put(to, "moved", `"long"`, "")    // id 4
	must(t, to.URL(), "PUT /config/alias", `{"alias":"filler"}`)
	must(t, to.URL(), "PUT /config", `{"compatibility":"FULL"}`)
	must(t, from.URL(), "PUT /mode", `{"mode":"READONLY"}`)
	before := contents(t, to.URL(), "")

	want := []string{
		"note: the other registry is in mode READONLY; modes of all are not copied\n",
		"note: the config of all differs: BACKWARD there, FULL here; it is left as it is\n",
		"NOT COPIED other version 1, id 2: version 1 with id 2 is another schema here\n",
		"NOT COPIED moved version 1, id 3: version 1 has id 4 here\n",
		"NOT COPIED alias version 1, id 5: the subject is an alias of filler here\n",
	}
	args := []string{"schema", "import", "--from", from.URL(), "--url", to.URL()}
	out, stderr, code := command(t, "", append(args, "--dry-run")...)
	require.Equal(t, exitFailed, code)
	require.Equal(t, "millrace: 4 items not copied\n", stderr)
	require.Contains(t, out, "7 subjects: 2 versions to copy, 1 here already")
	require.Contains(t, out, "NOT COPIED taken version 1, id 4: id 4 is of another schema here\n")
	for _, line := range want {
		require.Contains(t, out, line)
	}
	require.Equal(t, before, contents(t, to.URL(), ""))

	out, stderr, code = command(t, "", args...)
	require.Equal(t, exitFailed, code)
	require.Equal(t, "millrace: 5 items not copied\n", stderr)
	require.Contains(t, out, "7 subjects: 1 version copied, 1 here already")
	require.Contains(t, out, "NOT COPIED taken version 1, id 4: id 4 is of another schema")
	require.Contains(t, out, "NOT COPIED refers version 1, id 6: ")
	for _, line := range want {
		require.Contains(t, out, line)
	}
	require.Contains(t, must(t, to.URL(), "GET /schemas/ids/7", ""), "float")
	after := contents(t, to.URL(), "")
	for path, value := range before {
		if !strings.HasPrefix(path, "/subjects?") && path != "/subjects" {
			require.Equal(t, value, after[path], path)
		}
	}
	out, _, code = command(t, "", append(args, "-o", "json")...)
	require.Equal(t, exitFailed, code)
	var report importReport
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	require.Equal(t, 2, report.Present)
	require.Len(t, report.Failed, 5)
}

// A subject that is here with a mode of its own has it again afterwards, and also when the copy fails.
func TestSchemaImportGivesModesBack(t *testing.T) {
	from, to := servertest.Start(t, servertest.Options{}), servertest.Start(t, servertest.Options{})
	for _, subject := range []string{"shut", "open"} {
		for _, text := range []string{`"int"`, `"long"`} {
			must(t, from.URL(), "POST /subjects/"+subject+"/versions", schemaBody("AVRO", text, ""))
		}
		must(t, to.URL(), "POST /subjects/"+subject+"/versions", schemaBody("AVRO", `"int"`, ""))
	}
	must(t, to.URL(), "PUT /mode/shut", `{"mode":"READONLY"}`)
	must(t, from.URL(), "PUT /mode/open", `{"mode":"READONLY"}`)
	modes := func() {
		t.Helper()
		require.JSONEq(t, `{"mode":"READONLY"}`, must(t, to.URL(), "GET /mode/shut", ""))
		status, text := ask(t, to.URL(), "GET /mode/open", "")
		require.Equal(t, http.StatusNotFound, status, text)
	}
	refuse := atomic.Bool{}
	refuse.Store(true)
	at, err := url.Parse(to.URL())
	require.NoError(t, err)
	passOn := httputil.NewSingleHostReverseProxy(at)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuse.Load() && r.Method == http.MethodPost {
			answer(500, `{"error_code":50001,"message":"no disk"}`)(w, r)
			return
		}
		passOn.ServeHTTP(w, r)
	}))
	defer s.Close()
	_, stderr, code := command(t, "", "schema", "import", "--from", from.URL(), "--url", s.URL)
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "no disk")
	modes()
	refuse.Store(false)
	out, stderr, code := command(t, "", "schema", "import", "--from", from.URL(), "--url", s.URL)
	require.Equal(t, exitOK, code, stderr)
	require.Contains(t, out, "2 versions copied, 2 here already")
	require.Contains(t, out, "note: open: its mode there is READONLY; here it is left as it is\n")
	modes()
}

func TestSchemaImportPrefix(t *testing.T) {
	from := servertest.Start(t, servertest.Options{})
	fillRegistry(t, from.URL())
	for prefix, want := range map[string]struct{ list, staging string }{
		"orders":      {`["orders-value"]`, ``},
		":*:orders":   {`[":.staging:orders-value","orders-value"]`, ``},
		":.staging:":  {`[":.staging:a-sale",":.staging:money",":.staging:orders-value"]`, `{"compatibilityLevel":"NONE"}`},
		":.staging:o": {`[":.staging:orders-value"]`, ``},
	} {
		to := servertest.Start(t, servertest.Options{})
		_, stderr, code := command(t, "", "schema", "import", "--from", from.URL(), "--url", to.URL(),
			"--prefix", prefix)
		require.Equal(t, exitOK, code, stderr)
		require.JSONEq(t, want.list, must(t, to.URL(), "GET /subjects?deleted=true", ""), prefix)
		require.JSONEq(t, `{"compatibilityLevel":"BACKWARD"}`, must(t, to.URL(), "GET /config", ""))
		status, text := ask(t, to.URL(), "GET /config/:.staging:", "")
		if want.staging == "" {
			require.Equal(t, http.StatusNotFound, status, text)
		} else {
			require.JSONEq(t, want.staging, text)
		}
	}
}

// A URL that ends in a context has everything copied into that one, whose ids are its own.
func TestSchemaImportIntoContext(t *testing.T) {
	from, to := servertest.Start(t, servertest.Options{}), servertest.Start(t, servertest.Options{})
	fillRegistry(t, from.URL())
	must(t, to.URL(), "POST /subjects/mine/versions", schemaBody("AVRO", `"double"`, ""))
	args := []string{"schema", "import", "--from", from.URL(), "--url", to.URL() + "/contexts/.old"}
	for _, flag := range []string{"--dry-run", "--prefix=:*:"} {
		out, stderr, code := command(t, "", append(args, flag)...)
		require.Equal(t, exitOK, code, stderr)
		require.Contains(t, out, " 0 here already, 3 deleted as there, 4 configs, 3 modes\n")
	}
	out, stderr, code := command(t, "", args...)
	require.Equal(t, exitOK, code, stderr)
	require.Contains(t, out, " 16 here already, 0 deleted as there, 0 configs, 0 modes\n")
	require.JSONEq(t, `["mine"]`, must(t, to.URL(), "GET /subjects?subjectPrefix=", ""))
	require.JSONEq(t, `["copies/of it","holes","orders-value","people","twins","zz-address"]`, strings.ReplaceAll(
		must(t, to.URL(), "GET /subjects?subjectPrefix=:.old:", ""), ":.old:", ""))
	require.JSONEq(t, `{"compatibilityLevel":"FORWARD"}`, must(t, to.URL(), "GET /config/:.old:", ""))
	require.JSONEq(t, `{"compatibilityLevel":"BACKWARD"}`, must(t, to.URL(), "GET /config", ""))
	require.Contains(t, must(t, to.URL(), "GET /schemas/ids/1?subject=:.old:", ""), "Order")
	require.Contains(t, must(t, to.URL(), "GET /subjects/:.old:people/versions/1", ""), "address.json")
}

// olderRegistry answers as registries did before they had contexts: parameters are ignored, Avro goes without saying,
// and every 404 of a setting is 40401.
func olderRegistry(t *testing.T, subjects map[string][]string) string {
	t.Helper()
	reply := func(w http.ResponseWriter, value any) {
		w.Header().Set("Content-Type", "application/vnd.schemaregistry.v1+json")
		_ = json.NewEncoder(w).Encode(value)
	}
	missing := func(w http.ResponseWriter, code int) {
		w.WriteHeader(http.StatusNotFound)
		reply(w, map[string]any{"error_code": code, "message": "Not found."})
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /subjects", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Basic dTpw" {
			w.WriteHeader(http.StatusUnauthorized)
			reply(w, map[string]any{"error_code": 401, "message": "Unauthorized"})
			return
		}
		names := []string{}
		for name := range subjects {
			names = append(names, name)
		}
		reply(w, names)
	})
	mux.HandleFunc("GET /subjects/{subject}/versions", func(w http.ResponseWriter, r *http.Request) {
		numbers := []int{}
		for i := range subjects[r.PathValue("subject")] {
			numbers = append(numbers, i+1)
		}
		reply(w, numbers)
	})
	mux.HandleFunc("GET /subjects/{subject}/versions/{version}", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.PathValue("version"))
		members := map[string]any{}
		_ = json.Unmarshal([]byte(subjects[r.PathValue("subject")][n-1]), &members)
		members["subject"], members["version"] = r.PathValue("subject"), n
		reply(w, members)
	})
	mux.HandleFunc("GET /config", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, map[string]any{"compatibilityLevel": "FULL"})
	})
	mux.HandleFunc("GET /config/{subject}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("subject") == "b" {
			reply(w, map[string]any{"compatibilityLevel": "NONE"})
			return
		}
		missing(w, 40401)
	})
	mux.HandleFunc("GET /mode", func(w http.ResponseWriter, _ *http.Request) { missing(w, 404) })
	mux.HandleFunc("GET /mode/{subject}", func(w http.ResponseWriter, _ *http.Request) { missing(w, 40401) })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "<html><body>Not Found</body></html>", http.StatusNotFound)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

func TestSchemaImportFromOlderRegistry(t *testing.T) {
	from := olderRegistry(t, map[string][]string{
		"a": {`{"id":2,"schema":"\"int\""}`, `{"id":1,"schema":"{\"type\":\"long\"}"}`},
		"b": {`{"id":3,"schema":"{\"type\":\"object\"}","schemaType":"JSON"}`, `{"id":2,"schema":"\"int\""}`},
		"c": {`{"id":9,"schema":"\"nonsense\""}`},
	})
	to := servertest.Start(t, servertest.Options{})
	args := []string{"schema", "import", "--from", from, "--url", to.URL()}
	_, stderr, code := command(t, "", args...)
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "Unauthorized")
	require.Contains(t, stderr, "MILLRACE_FROM_AUTHORIZATION")

	out, stderr, code := commandWith(t, []string{"MILLRACE_FROM_AUTHORIZATION=Basic dTpw"}, "", args...)
	require.Equal(t, exitFailed, code, stderr)
	require.Contains(t, out, "3 subjects: 4 versions copied, 0 here already, 0 deleted as there, 2 configs, 0 modes\n")
	require.Contains(t, out, "NOT COPIED c version 1, id 9: ")
	for path, want := range map[string]string{
		"/subjects/a/versions/1": `"id":2,`, "/subjects/a/versions/2": `"id":1,`, "/subjects/b/versions/1": `"id":3,`,
		"/subjects/b/versions/2": `"id":2,`, "/config": `FULL`, "/config/b": `NONE`,
	} {
		require.Contains(t, must(t, to.URL(), "GET "+path, ""), want)
	}
	status, text := ask(t, to.URL(), "GET /mode/a", "")
	require.Equal(t, http.StatusNotFound, status, text)
	// The texts of the second version of a differ, and are one schema.
	out, _, _ = commandWith(t, []string{"MILLRACE_FROM_AUTHORIZATION=Basic dTpw"}, "", args...)
	require.Contains(t, out, "3 subjects: 0 versions copied, 4 here already")
}

func TestSchemaImportOfMany(t *testing.T) {
	const subjects, each = 500, 4
	many := map[string][]string{}
	for i := range subjects {
		name := "subject-" + strconv.Itoa(i)
		for j := range each {
			refs, field := "", intA
			if i%2 == 1 { // to the version of the subject before, whose id is higher
				refs = fmt.Sprintf(`"id":%d,"references":[{"name":"R%d_%d","subject":"subject-%d","version":%d}]`,
					i*each+j+1, i-1, j, i-1, j+1)
				field = fmt.Sprintf(`{"name":"r","type":"R%d_%d"}`, i-1, j)
			} else {
				refs = fmt.Sprintf(`"id":%d`, 100_000-i*each-j)
			}
			many[name] = append(many[name], schemaBody("AVRO", avroRecord(fmt.Sprintf("R%d_%d", i, j), field), refs))
		}
	}
	from := olderRegistry(t, many)
	to := servertest.Start(t, servertest.Options{Uncoded: true})
	args := []string{"schema", "import", "--from", from, "--url", to.URL()}
	environ := []string{"MILLRACE_FROM_AUTHORIZATION=Basic dTpw"}
	start := time.Now()
	out, stderr, code := commandWith(t, environ, "", args...)
	require.Equal(t, exitOK, code, stderr)
	require.Contains(t, out, "500 subjects: 2000 versions copied, 0 here already")
	t.Logf("2,000 versions in %v", time.Since(start).Round(time.Millisecond))
	start = time.Now()
	out, stderr, code = commandWith(t, environ, "", args...)
	require.Equal(t, exitOK, code, stderr)
	require.Contains(t, out, "0 versions copied, 2000 here already")
	t.Logf("again in %v", time.Since(start).Round(time.Millisecond))
	require.Contains(t, must(t, to.URL(), "GET /subjects/subject-499/versions/4", ""), `"id":2000,`)
}

func TestSchemaImportRefusals(t *testing.T) {
	to, requests := answering(t, answer(200, `[]`))
	for _, args := range [][]string{
		{}, {"--from", "registry:8081"}, {"--from", "ftp://registry"}, {"--from", to + "/", "--url", to},
		{"x", "--from", to},
	} {
		_, stderr, code := command(t, "", append([]string{"schema", "import", "--url", to}, args...)...)
		require.Equal(t, exitUsage, code, "%v %s", args, stderr)
	}
	require.Empty(t, requests())
	_, stderr, code := command(t, "", "schema", "import", "--from", "http://127.0.0.1:1", "--url", to)
	require.Equal(t, exitUnreachable, code)
	require.Contains(t, stderr, "no node answers at http://127.0.0.1:1: ")
	require.Contains(t, stderr, "Check --from.")
	html, _ := answering(t, answer(502, "<html>"))
	_, stderr, code = command(t, "", "schema", "import", "--from", html, "--url", to)
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "check --from")
}

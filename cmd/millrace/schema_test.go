package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/server/servertest"
)

const noSubject = `{"error_code":40401,"message":"subject \"s\" does not exist"}`

func TestSchemaList(t *testing.T) {
	full := make([]string, schemasPage)
	for i := range full {
		full[i] = fmt.Sprintf(`{"subject":"s%d","version":1,"id":1,"schemaType":"AVRO","schema":"\"int\""}`, i)
	}
	last := `[{"subject":"t","version":12,"id":7,"schemaType":"PROTOBUF","schema":"x","deleted":true},
		{"subject":":.c:u","version":1,"id":1,"schema":"{}"}]`
	url, requests := answering(t, answer(200, "["+strings.Join(full, ",")+"]"), answer(200, last))
	out, stderr, code := command(t, "", "schema", "list", "--deleted", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	lines := strings.Split(out, "\n")
	require.Len(t, lines, 1+schemasPage+2+1)
	require.Equal(t, "SUBJECT  VERSION  ID  TYPE      BYTES", lines[0])
	require.Equal(t, "s0       1        1   AVRO      5", lines[1])
	require.Equal(t, "t        12       7   PROTOBUF  1  deleted", lines[schemasPage+1])
	require.Equal(t, ":.c:u    1        1   AVRO      2", lines[schemasPage+2])
	require.Equal(t, []string{
		"GET /schemas?deleted=true&latestOnly=true&limit=1000&offset=0&subjectPrefix=%3A%2A%3A  ",
		"GET /schemas?deleted=true&latestOnly=true&limit=1000&offset=1000&subjectPrefix=%3A%2A%3A  ",
	}, requests())

	url, requests = answering(t, answer(200, `[]`))
	out, stderr, code = command(t, "", "schema", "list", "--all", "--prefix", "a b", "--url", url)
	require.Equal(t, exitOK, code)
	require.Empty(t, out)
	require.Equal(t, "no schemas\n", stderr)
	require.Equal(t, []string{"GET /schemas?latestOnly=false&limit=1000&offset=0&subjectPrefix=a+b  "}, requests())
	out, _, _ = command(t, "", "schema", "list", "-o", "json", "--url", url)
	require.Equal(t, "[]\n", out)
}

func TestSchemaGet(t *testing.T) {
	body := `{"subject":"a/b","version":2,"id":7,"schemaType":"JSON","schema":"{\"type\":\"object\"}"}`
	url, requests := answering(t, answer(200, body))
	out, stderr, code := command(t, "", "schema", "get", "a/b", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "{\n  \"type\": \"object\"\n}\n", out)
	out, _, _ = command(t, "", "schema", "get", "a/b", "--version", "2", "--deleted", "--format", "resolved",
		"-o", "json", "--url", url)
	require.JSONEq(t, body, out)
	_, _, code = command(t, "", "schema", "get", "--id", "7", "--format", "serialized", "--url", url)
	require.Equal(t, exitOK, code)
	require.Equal(t, []string{
		"GET /subjects/a%2Fb/versions/latest  ", "GET /subjects/a%2Fb/versions/2?deleted=true&format=resolved  ",
		"GET /schemas/ids/7?format=serialized  ",
	}, requests())
	for kind, text := range map[string]string{"PROTOBUF": `"syntax = \"proto3\";\n"`, "AVRO": `"not JSON"`} {
		url, _ := answering(t, answer(200, fmt.Sprintf(`{"schemaType":%q,"schema":%s}`, kind, text)))
		out, _, _ = command(t, "", "schema", "get", "s", "--url", url)
		var want string
		require.NoError(t, json.Unmarshal([]byte(text), &want))
		require.Equal(t, strings.TrimSpace(want)+"\n", out)
	}
	url, _ = answering(t, answer(404, noSubject))
	_, stderr, code = command(t, "", "schema", "get", "s", "--url", url)
	require.Equal(t, exitNotFound, code)
	require.Equal(t, "millrace: subject \"s\" does not exist (HTTP 404, error 40401)\n", stderr)
	url, requests = answering(t, answer(500, ""))
	for _, args := range [][]string{
		{}, {"s", "--id", "1"}, {"--id", "1", "--version", "2"}, {"--id", "1", "--deleted"}, {"s", "t"}, {"--id", "x"},
	} {
		_, stderr, code := command(t, "", append([]string{"schema", "get", "--url", url}, args...)...)
		require.Equal(t, exitUsage, code, "%v %s", args, stderr)
	}
	require.Empty(t, requests())
}

// files writes files into a folder of their own.
func files(t *testing.T, texts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range texts {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func TestSchemaRegister(t *testing.T) {
	dir := files(t, map[string]string{
		"a.avsc": `"int"`, "a.proto": "syntax", "a.json": "{}", "a.txt": "?", "r.avsc": `"R"`,
		"r.avsc.references": `[{"name":"R","subject":"r","version":3},{"name":"S","subject":"s"}]`,
		"bad.avsc":          `"B"`, "bad.avsc.references": `[{"name":"R"}]`,
		"worse.avsc": `"W"`, "worse.avsc.references": `{}`,
	})
	for _, one := range []struct {
		args []string
		body string
	}{
		{[]string{"a.avsc"}, `{"schemaType":"AVRO","schema":"\"int\""}`},
		{[]string{"a.proto"}, `{"schemaType":"PROTOBUF","schema":"syntax"}`},
		{[]string{"a.json"}, `{"schemaType":"JSON","schema":"{}"}`},
		{[]string{"a.txt", "--type", "jsonschema"}, `{"schemaType":"JSON","schema":"?"}`},
		{[]string{"a.txt", "--type", "avro", "--reference", "x.Y=:.c:s:2", "--reference", "Z=z:latest"},
			`{"schemaType":"AVRO","references":[{"name":"x.Y","subject":":.c:s","version":2},` +
				`{"name":"Z","subject":"z","version":-1}],"schema":"?"}`},
		{[]string{"r.avsc"}, `{"schemaType":"AVRO","references":[{"name":"R","subject":"r","version":3},` +
			`{"name":"S","subject":"s","version":-1}],"schema":"\"R\""}`},
	} {
		url, requests := answering(t, answer(200, `{"id":7,"version":2}`))
		one.args[0] = filepath.Join(dir, one.args[0])
		out, stderr, code := command(t, "", append([]string{"schema", "register", "s t", "--url", url}, one.args...)...)
		require.Equal(t, exitOK, code, stderr)
		require.Equal(t, "s t version 2, id 7\n", out)
		require.Equal(t, []string{"POST /subjects/s%20t/versions  " + one.body}, requests())
	}
	url, requests := answering(t, answer(200, `{"id":7}`))
	out, stderr, code := command(t, `"long"`, "schema", "register", "s", "-", "--type", "avro", "--normalize",
		"--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "s: id 7\n", out, "older registries tell the id alone")
	require.Equal(t, []string{`POST /subjects/s/versions?normalize=true  {"schemaType":"AVRO","schema":"\"long\""}`},
		requests())
	out, _, _ = command(t, "", "schema", "register", "s", filepath.Join(dir, "a.avsc"), "-o", "json", "--url", url)
	require.Equal(t, "{\"id\":7}\n", out)

	url, requests = answering(t, answer(500, ""))
	for _, args := range [][]string{
		{"s"}, {"s", dir + "/a.txt"}, {"s", "-"}, {"s", dir + "/a.avsc", "--type", "xml"},
		{"s", dir + "/a.avsc", "--reference", "R=r"}, {"s", dir + "/a.avsc", "--reference", "r:1"},
		{"s", dir + "/a.avsc", "--reference", "R=r:x"},
	} {
		_, stderr, code := command(t, "", append([]string{"schema", "register", "--url", url}, args...)...)
		require.Equal(t, exitUsage, code, "%v %s", args, stderr)
	}
	for _, name := range []string{"none.avsc", "bad.avsc", "worse.avsc"} {
		_, stderr, code := command(t, "", "schema", "register", "s", filepath.Join(dir, name), "--url", url)
		require.Equal(t, exitFailed, code)
		require.Contains(t, stderr, name)
	}
	require.Empty(t, requests())
	url, _ = answering(t, hangUp)
	_, stderr, code = command(t, "", "schema", "register", "s", filepath.Join(dir, "a.avsc"), "--url", url)
	require.Equal(t, exitUnknown, code, stderr)
	url, _ = answering(t, answer(500, `{"error_code":50002,"message":"send it again"}`))
	_, stderr, code = command(t, "", "schema", "register", "s", filepath.Join(dir, "a.avsc"), "--url", url)
	require.Equal(t, exitUnknown, code, stderr)
}

// Why a schema is not compatible is asked for, and where the registry does not say more its own words are shown.
func TestSchemaRegisterRefused(t *testing.T) {
	file := filepath.Join(files(t, map[string]string{"a.avsc": `"int"`}), "a.avsc")
	conflict := answer(409, `{"error_code":40901,"message":"incompatible; details: [x]"}`)
	url, requests := answering(t, conflict, answer(200, `{"is_compatible":false,"messages":["m"],"differences":[
		{"kind":"K","path":"/a","compatible":false,"description":"at '/a' it is so","version":3},
		{"kind":"L","path":"/b","compatible":true,"description":"fine"},
		{"kind":"M","path":"/c","compatible":false,"description":"it is so"}],"warnings":["careful"]}`))
	_, stderr, code := command(t, "", "schema", "register", "s", file, "--normalize", "--url", url)
	require.Equal(t, exitFailed, code)
	require.Equal(t, `millrace: the schema is not compatible with subject s, and was not registered:
  K, against version 3: at '/a' it is so
  M at /c: it is so
  warning: careful
`, stderr)
	require.Equal(t, `POST /compatibility/subjects/s/versions?normalize=true&verbose=true  `+
		`{"schemaType":"AVRO","schema":"\"int\""}`, requests()[1])
	for _, second := range []http.HandlerFunc{
		answer(200, `{"is_compatible":false}`), answer(200, `{"is_compatible":true}`), answer(404, "")} {
		url, _ = answering(t, conflict, second)
		_, stderr, code = command(t, "", "schema", "register", "s", file, "--url", url)
		require.Equal(t, exitFailed, code)
		require.Equal(t, "millrace: incompatible; details: [x] (HTTP 409, error 40901)\n", stderr)
	}
}

func TestSchemaDelete(t *testing.T) {
	url, requests := answering(t, answer(200, `[1,2,4]`))
	out, stderr, code := command(t, "", "schema", "delete", "a b", "--permanent", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "a b: versions 1, 2, 4 deleted for good\n", out)
	require.Equal(t, []string{"DELETE /subjects/a%20b?permanent=true  "}, requests())
	url, requests = answering(t, answer(200, `3`))
	out, _, _ = command(t, "", "schema", "delete", "s", "--version", "latest", "--url", url)
	require.Equal(t, "s: version 3 deleted\n", out)
	require.Equal(t, []string{"DELETE /subjects/s/versions/latest  "}, requests())
	out, _, _ = command(t, "", "schema", "delete", "s", "-o", "json", "--url", url)
	require.Equal(t, "3\n", out)
	url, _ = answering(t, answer(422, `{"error_code":42206,"message":"version 1 is referred to"}`))
	_, stderr, code = command(t, "", "schema", "delete", "s", "--url", url)
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "is referred to")
	_, _, code = command(t, "", "schema", "delete", "--url", url)
	require.Equal(t, exitUsage, code)
}

func TestSchemaCompat(t *testing.T) {
	read, written := answer(200, `{"compatibilityLevel":"FULL"}`), answer(200, `{"compatibility":"NONE"}`)
	for _, one := range []struct {
		answer        http.HandlerFunc
		args          []string
		request, want string
	}{
		{read, nil, "GET /config?defaultToGlobal=true  ", "all subjects: FULL\n"},
		{read, []string{"a b"}, "GET /config/a%20b?defaultToGlobal=true  ", "a b: FULL\n"},
		{written, []string{"s", "none"}, `PUT /config/s  {"compatibility":"none"}`, "s: NONE\n"},
		{written, []string{"", "NONE"}, `PUT /config  {"compatibility":"NONE"}`, "all subjects: NONE\n"},
		{written, []string{":.c:", "NONE"}, `PUT /config/:.c:  {"compatibility":"NONE"}`, ":.c:: NONE\n"},
		{read, []string{"s", "--unset"}, "DELETE /config/s  ", "s: no level of its own any more; it was FULL\n"},
		{read, []string{"-o", "json"}, "GET /config?defaultToGlobal=true  ", "{\"compatibilityLevel\":\"FULL\"}\n"},
	} {
		url, requests := answering(t, one.answer)
		out, stderr, code := command(t, "", append([]string{"schema", "compat", "--url", url}, one.args...)...)
		require.Equal(t, exitOK, code, stderr)
		require.Equal(t, one.want, out)
		require.Equal(t, []string{one.request}, requests())
	}
	url, requests := answering(t, read)
	for _, args := range [][]string{{"--unset"}, {"s", "FULL", "--unset"}, {"a", "b", "c"}} {
		_, stderr, code := command(t, "", append([]string{"schema", "compat", "--url", url}, args...)...)
		require.Equal(t, exitUsage, code, stderr)
	}
	require.Empty(t, requests())
}

// schemaNode is a node, and a function that runs commands against it with files of a folder.
func schemaNode(t *testing.T) func(want exitCode, args ...string) (stdout, stderr string) {
	t.Helper()
	n := servertest.Start(t, servertest.Options{})
	dir := files(t, map[string]string{
		"v1.avsc":    avroRecord("Order", intA),
		"v2.avsc":    avroRecord("Order", intA+","+intB),
		"bad.avsc":   avroRecord("Order", intA+`,{"name":"c","type":"long"}`),
		"wrong.avsc": `{"type":"record"}`,
		"order.avsc": avroRecord("Line", `{"name":"order","type":"Order"}`),
	})
	return func(want exitCode, args ...string) (stdout, stderr string) {
		t.Helper()
		for i, arg := range args {
			if strings.HasSuffix(arg, ".avsc") {
				args[i] = filepath.Join(dir, arg)
			}
		}
		stdout, stderr, code := command(t, "", append([]string{"schema", "--url", n.URL()}, args...)...)
		require.Equal(t, want, code, stderr)
		return stdout, stderr
	}
}

// What one command writes the others read.
func TestSchemaCommands(t *testing.T) {
	do := schemaNode(t)
	_, stderr := do(exitOK, "list")
	require.Equal(t, "no schemas\n", stderr)
	for range 2 {
		out, _ := do(exitOK, "register", "orders", "v1.avsc")
		require.Equal(t, "orders version 1, id 1\n", out)
	}
	_, stderr = do(exitFailed, "register", "orders", "bad.avsc")
	require.Contains(t, stderr, "the schema is not compatible with subject orders, and was not registered:\n"+
		"  READER_FIELD_MISSING_DEFAULT_VALUE, against version 1: ")
	_, stderr = do(exitFailed, "register", "orders", "wrong.avsc")
	require.Contains(t, stderr, "error 42201")
	do(exitOK, "register", "orders", "v2.avsc", "--normalize")
	do(exitOK, "register", ":.c:orders", "v1.avsc")
	out, _ := do(exitOK, "register", "lines", "order.avsc", "--reference", "Order=orders:latest")
	require.Equal(t, "lines version 1, id 3\n", out)
	out, _ = do(exitOK, "list")
	require.Equal(t, `SUBJECT     VERSION  ID  TYPE  BYTES
:.c:orders  1        1   AVRO  69
lines       1        3   AVRO  74
orders      2        2   AVRO  107
`, out)
	out, _ = do(exitOK, "list", "--all", "--prefix", "ord")
	require.Equal(t, 3, strings.Count(out, "\n"))

	out, _ = do(exitOK, "get", "lines", "--format", "resolved")
	require.Contains(t, out, `"name": "b"`)
	out, _ = do(exitOK, "get", "--id", "1")
	require.NotContains(t, out, `"name": "b"`)
	out, _ = do(exitOK, "get", "lines", "-o", "json")
	require.Contains(t, out, `"references":[{"name":"Order","subject":"orders","version":2}]`)

	out, _ = do(exitOK, "diff", "orders", "--from", "1", "--to", "2")
	require.Contains(t, out, "--- orders version 1\n+++ orders version 2\n")
	require.Contains(t, out, "+      \"name\": \"b\",\n")
	require.True(t, strings.HasSuffix(out, "\ncompatible\n"), out)
	out, _ = do(exitOK, "diff", "orders", "bad.avsc", "--from", "1")
	require.Contains(t, out, "\nNOT compatible\n  READER_FIELD_MISSING_DEFAULT_VALUE, against version 1: ")
	out, _ = do(exitOK, "diff", "orders", "v2.avsc")
	require.Equal(t, "the texts are the same\n\ncompatible\n", out)
	var d schemaComparison
	out, _ = do(exitOK, "diff", "orders", "bad.avsc", "-o", "json")
	require.NoError(t, json.Unmarshal([]byte(out), &d))
	require.False(t, d.Compatible)
	require.NotEmpty(t, d.Differences)
	do(exitNotFound, "diff", "nothing", "v1.avsc")
	do(exitUsage, "diff", "orders")
	do(exitUsage, "diff", "orders", "v1.avsc", "--to", "1")

	out, _ = do(exitOK, "compat", "orders", "full_transitive")
	require.Equal(t, "orders: FULL_TRANSITIVE\n", out)
	_, stderr = do(exitFailed, "compat", "orders", "ALL")
	require.Contains(t, stderr, "error 42203")
	do(exitOK, "compat", "orders", "--unset")
	do(exitNotFound, "compat", "orders", "--unset")

}

func TestSchemaDeletes(t *testing.T) {
	do := schemaNode(t)
	do(exitOK, "register", "orders", "v1.avsc")
	do(exitOK, "register", "orders", "v2.avsc")
	do(exitOK, "register", "lines", "order.avsc", "--reference", "Order=orders:2")
	_, stderr := do(exitFailed, "delete", "orders", "--version", "2")
	require.Contains(t, stderr, `referred to by version 1 of subject "lines"`)
	do(exitOK, "delete", "lines")
	out, _ := do(exitOK, "delete", "orders")
	require.Equal(t, "orders: versions 1, 2 deleted\n", out)
	do(exitNotFound, "get", "orders")
	do(exitOK, "get", "orders", "--version", "1", "--deleted")
	do(exitOK, "get", "--id", "2")
	out, _ = do(exitOK, "list", "--deleted", "--prefix", "orders")
	require.Contains(t, out, "orders   2        2   AVRO  107  deleted\n")
	_, stderr = do(exitNotFound, "delete", "orders")
	require.Contains(t, stderr, "delete it permanently")
	do(exitOK, "delete", "lines", "--permanent")
	do(exitOK, "delete", "orders", "--permanent")
	do(exitNotFound, "get", "--id", "2")
}

func TestSchemaHelp(t *testing.T) {
	for _, name := range []string{"", "list", "get", "register", "check", "diff", "delete", "compat", "import"} {
		args := append([]string{"schema"}, strings.Fields(name)...)
		out, _, code := command(t, "", append(args, "--help")...)
		require.Equal(t, exitOK, code)
		require.Contains(t, out, "Examples:\n  millrace schema "+name)
	}
}

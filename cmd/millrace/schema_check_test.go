package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/server/servertest"
)

// folderToCheck is a folder with files of each verdict.
func folderToCheck(t *testing.T) string {
	t.Helper()
	return files(t, map[string]string{
		"breaks.avsc":                avroRecord("Breaks", intA+`,{"name":"c","type":"long"}`),
		"fits.avsc":                  avroRecord("Fits", intA+","+intB),
		"invalid.avsc":               `{"type":"recrod","name":"X"}`,
		"kind.json":                  `{"type":"integer"}`,
		"new.jsonschema":             `{"type":"object"}`,
		"README.md":                  "not a schema",
		"deep/sale.proto":            `syntax = "proto3"; import "money.proto"; message Sale { shop.Money total = 1; }`,
		"deep/sale.proto.references": `[{"name":"money.proto","subject":"money","version":"latest"}]`,
		"deep/money.proto":           "syntax = \"proto3\"; package shop; message Money { int64 units = 1; }",
		"person.json":                `{"type":"object","properties":{"at":{"$ref":"address.json"}}}`,
		"person.json.references":     `[{"name":"address.json","subject":"zz-address"}]`,
		"zz-address.json":            `{"type":"object","properties":{"city":{"type":"string"}}}`,
		"base.avsc":                  avroRecord("Base", intA+`,{"name":"c","type":"long"}`), // breaks on-base too
		"on-base.avsc":               avroRecord("OnBase", `{"name":"b","type":"Base"}`),
		"on-base.avsc.references":    `[{"name":"Base","subject":"base"}]`,
		"fixed.avsc":                 avroRecord("Fixed", `{"name":"b","type":"Base"}`),
		"fixed.avsc.references":      `[{"name":"Base","subject":"base","version":1}]`,
		"astray.avsc":                avroRecord("Astray", `{"name":"b","type":"Nowhere"}`),
		"astray.avsc.references":     `[{"name":"Nowhere","subject":"nowhere"}]`,
		"unsaid.avsc":                avroRecord("Unsaid", `{"name":"b","type":"Base"}`),
	})
}

// A folder is checked as a step of CI would: what is new, what fits, what does not and why, and files that refer to
// each other before any is registered.
func TestSchemaCheck(t *testing.T) {
	n := servertest.Start(t, servertest.Options{})
	put := func(subject, body string) { must(t, n.URL(), "POST /subjects/"+subject+"/versions", body) }
	put("fits", schemaBody("AVRO", avroRecord("Fits", intA), ""))
	put("breaks", schemaBody("AVRO", avroRecord("Breaks", intA), ""))
	put("kind", schemaBody("AVRO", `"int"`, ""))
	put("base", schemaBody("AVRO", avroRecord("Base", intA), ""))
	put("on-base", schemaBody("AVRO", avroRecord("OnBase", `{"name":"b","type":"Base"}`),
		`"references":[{"name":"Base","subject":"base","version":1}]`))
	put("fixed", schemaBody("AVRO", avroRecord("Fixed", `{"name":"b","type":"Base"}`),
		`"references":[{"name":"Base","subject":"base","version":1}]`))
	before := contents(t, n.URL())
	dir := folderToCheck(t)
	out, stderr, code := command(t, "", "schema", "check", dir, "--url", n.URL())
	require.Equal(t, exitFailed, code, stderr)
	require.Equal(t, "millrace: 7 of 14 schemas cannot be registered\n", stderr)
	var verdicts []string
	for _, line := range strings.Split(strings.ReplaceAll(out, dir+"/", ""), "\n") {
		if line != "" && !strings.HasPrefix(line, "   ") {
			verdicts = append(verdicts, line)
		}
	}
	require.Equal(t, []string{
		"REFUSED  astray.avsc (astray)",
		"REFUSED  base.avsc (base)",
		"REFUSED  breaks.avsc (breaks)",
		"new      deep/money.proto (money)",
		"new      deep/sale.proto (sale)",
		"ok       fits.avsc (fits)",
		"ok       fixed.avsc (fixed)",
		"REFUSED  invalid.avsc (invalid)",
		"REFUSED  kind.json (kind)",
		"new      new.jsonschema (new)",
		"REFUSED  on-base.avsc (on-base)",
		"new      person.json (person)",
		"REFUSED  unsaid.avsc (unsaid)",
		"new      zz-address.json (zz-address)",
	}, verdicts)
	require.Contains(t, out, "(breaks)\n         READER_FIELD_MISSING_DEFAULT_VALUE, against version 1: ")
	require.Contains(t, out, "(kind)\n         the schema is of type JSON, version 1 of type AVRO\n")
	require.Contains(t, out, `(astray)
         reference "Nowhere" leads to `)
	require.Contains(t, out, "recrod")
	require.Equal(t, before, contents(t, n.URL()), "nothing is registered")

	var all []checked
	out, _, code = command(t, "", "schema", "check", dir, "-o", "json", "--url", n.URL())
	require.Equal(t, exitFailed, code)
	require.NoError(t, json.Unmarshal([]byte(out), &all))
	require.Len(t, all, len(verdicts))
	require.Equal(t, "money", all[3].Subject)
	require.True(t, all[3].New && all[3].Compatible)
	require.False(t, all[2].Compatible)
	require.NotEmpty(t, all[2].Differences)

	out, stderr, code = command(t, "", "schema", "check", filepath.Join(dir, "deep"), filepath.Join(dir, "fits.avsc"),
		"--url", n.URL())
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, 3, strings.Count(out, "\n"), out)
	out, _, code = command(t, avroRecord("Fits", intA), "schema", "check", "-", "--type", "avro", "--subject", "fits",
		"--normalize", "--url", n.URL())
	require.Equal(t, exitOK, code)
	require.Equal(t, "ok       - (fits)\n", out)
	out, _, code = command(t, "", "schema", "check", filepath.Join(dir, "breaks.avsc"), "--subject", "other",
		"--url", n.URL())
	require.Equal(t, exitOK, code)
	require.Contains(t, out, "breaks.avsc (other)\n")
}

func TestSchemaCheckRefusals(t *testing.T) {
	dir := files(t, map[string]string{
		"a/s.avsc": `"int"`, "b/s.json": `{}`, "c/x.txt": "", "d/one.avsc": `"Two"`, "d/two.avsc": `"int"`,
		"d/one.avsc.references": `[{"name":"Two","subject":"two"}]`,
	})
	url, requests := answering(t, answer(500, ""))
	for _, args := range [][]string{
		{}, {dir + "/c"}, {dir + "/c/x.txt"}, {"-"}, {dir + "/d", "--subject", "s"}, {dir + "/a", dir + "/b"},
	} {
		_, stderr, code := command(t, "", append([]string{"schema", "check", "--url", url}, args...)...)
		require.Equal(t, exitUsage, code, "%v %s", args, stderr)
	}
	_, stderr, code := command(t, "", "schema", "check", dir+"/nothing", "--url", url)
	require.Equal(t, exitFailed, code, stderr)
	require.Empty(t, requests())
	_, stderr, code = command(t, "", "schema", "check", dir+"/a", "--url", url)
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "s.avsc: ")

	// A registry of another make checks files by themselves.
	url, requests = answering(t, answer(200, `{"is_compatible":true}`), answer(404, noSubject))
	out, stderr, code := command(t, "", "schema", "check", dir+"/a", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "new      "+dir+"/a/s.avsc (s)\n", out)
	require.Equal(t, []string{
		`POST /compatibility/subjects/s/versions?verbose=true  {"schemaType":"AVRO","schema":"\"int\""}`,
		"GET /subjects/s/versions  ",
	}, requests())
	url, _ = answering(t, answer(404, noSubject), answer(404, noSubject),
		answer(404, `{"error_code":404,"message":"no"}`))
	_, stderr, code = command(t, "", "schema", "check", dir+"/d", "--url", url)
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "one.avsc refers to the latest version of two, and the registry at "+url+" cannot check")
	url, _ = answering(t, answer(200, `[1]`), answer(200, `[1]`), answer(200, `{"results":[]}`))
	_, _, code = command(t, "", "schema", "check", dir+"/d", "--url", url)
	require.Equal(t, exitFailed, code)
}

// Files of a context are checked by a URL that ends in it, and versions that a file names may be those of files.
func TestSchemaCheckInContext(t *testing.T) {
	n := servertest.Start(t, servertest.Options{})
	must(t, n.URL(), "POST /subjects/:.c:base/versions", schemaBody("AVRO", avroRecord("Base", intA), ""))
	dir := files(t, map[string]string{
		"base.avsc":            avroRecord("Base", intA+","+intB),
		"old.avsc":             avroRecord("Old", `{"name":"b","type":"Base"}`),
		"old.avsc.references":  `[{"name":"Base","subject":"base","version":1}]`,
		"next.avsc":            avroRecord("Next", `{"name":"b","type":"Base"}`),
		"next.avsc.references": `[{"name":"Base","subject":"base","version":2}]`,
	})
	for _, context := range []string{".c", ":.c:", "c"} {
		out, stderr, code := command(t, "", "schema", "check", dir, "--url", n.URL()+"/contexts/"+context)
		require.Equal(t, exitOK, code, stderr)
		require.Equal(t, "ok       base.avsc (base)\nnew      next.avsc (next)\nnew      old.avsc (old)\n",
			strings.ReplaceAll(out, dir+"/", ""))
	}
	_, _, code := command(t, "", "schema", "check", dir, "--url", n.URL())
	require.Equal(t, exitFailed, code, "elsewhere there is no version 2")

	// Another make is asked about each.
	only := filepath.Join(dir, "old.avsc")
	url, requests := answering(t, answer(404, noSubject), answer(404, noSubject), answer(404, noSubject),
		answer(200, `{"is_compatible":true}`))
	out, stderr, code := command(t, "", "schema", "check", only, filepath.Join(dir, "base.avsc"), "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, 2, strings.Count(out, "new "))
	require.Len(t, requests(), 5)
}

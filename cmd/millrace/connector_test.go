package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	startingStatus = `{"name":"a","type":"source","connector":{"state":"RUNNING","worker_id":"n1:8082"},"tasks":[]}`
	runningStatus  = `{"name":"a","type":"source","connector":{"state":"RUNNING","worker_id":"n1:8082"},
		"tasks":[{"id":0,"state":"RUNNING","worker_id":"n2:8082"}]}`
	failedStatus = `{"name":"a","type":"source","connector":{"state":"RUNNING","worker_id":"n1:8082"},
		"tasks":[{"id":0,"state":"RUNNING","worker_id":"n2:8082"},
			{"id":1,"state":"FAILED","worker_id":"n1:8082","trace":"table public.t:\nno such column"}]}`
	stoppedStatus = `{"name":"a","type":"source","connector":{"state":"STOPPED","worker_id":""},"tasks":[]}`
)

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestConnectorList(t *testing.T) {
	body := `{"b b":{"info":{"config":{"connector.class":"PostgresSink"}},"status":{"name":"b b","type":"sink",
		"connector":{"state":"STOPPED","worker_id":""},"tasks":[]}},
		"a":{"info":{"config":{"connector.class":"PostgresSource"}},"status":` + failedStatus + `}}`
	url, requests := answering(t, answer(200, body))
	out, stderr, code := command(t, "", "connector", "list", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, `CONNECTOR  TYPE    STATE    TASKS                CLASS
a          source  RUNNING  1 FAILED, 1 RUNNING  PostgresSource
b b        sink    STOPPED  -                    PostgresSink
`, out)
	require.Equal(t, []string{"GET /connectors?expand=info&expand=status  "}, requests())
	out, _, _ = command(t, "", "connector", "list", "-o", "json", "--url", url)
	require.JSONEq(t, body, out)

	url, _ = answering(t, answer(200, `{}`))
	out, stderr, code = command(t, "", "connector", "list", "--url", url)
	require.Equal(t, exitOK, code)
	require.Empty(t, out)
	require.Equal(t, "no connectors\n", stderr)
}

func TestConnectorStatus(t *testing.T) {
	url, requests := answering(t, answer(200, failedStatus))
	out, stderr, code := command(t, "", "connector", "status", "a/b", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, `PART      STATE    WORKER
source a  RUNNING  n1:8082
task 0    RUNNING  n2:8082
task 1    FAILED   n1:8082

task 1:
  table public.t:
  no such column
`, out)
	require.Equal(t, "GET /connectors/a%2Fb/status  ", requests()[0])

	url, _ = answering(t, answer(404, `{"error_code":404,"message":"There is no connector \"a\"."}`))
	_, stderr, code = command(t, "", "connector", "status", "a", "--url", url)
	require.Equal(t, exitNotFound, code)
	require.Contains(t, stderr, `There is no connector "a".`)
}

// A config may be JSON, a request, or properties, and settings on the command line go before it.
func TestConnectorCreateReadsAllForms(t *testing.T) {
	created := answer(201, `{"name":"a","config":{},"tasks":[],"type":"source"}`)
	for _, c := range []struct {
		name, file, text string
		args             []string
		sent             string
	}{
		{"flat", "c.json", `{"connector.class":"X","tasks.max":2}`, []string{"a"},
			`{"config":{"connector.class":"X","tasks.max":2},"name":"a"}`},
		{"named within", "c.json", `{"name":"a","connector.class":"X"}`, nil,
			`{"config":{"connector.class":"X","name":"a"},"name":"a"}`},
		{"the argument goes first", "c.json", `{"name":"b","connector.class":"X"}`, []string{"a"},
			`{"config":{"connector.class":"X","name":"a"},"name":"a"}`},
		{"a request", "c.json", `{"name":"a","config":{"connector.class":"X"},"initial_state":"STOPPED"}`, nil,
			`{"config":{"connector.class":"X"},"initial_state":"STOPPED","name":"a"}`},
		{"settings", "c.json", `{"connector.class":"X","k":"1"}`, []string{"a", "--set", "k=2=3", "--state", "paused"},
			`{"config":{"connector.class":"X","k":"2=3"},"initial_state":"PAUSED","name":"a"}`},
		{"properties", "c.properties",
			"# comment\r\n! too\n\nname = a \nconnector.class: X\nq=SELECT 1, \\\n   2\nurl=a\\:b=c\n" +
				`re=a\\.b` + "\n", nil, `{"config":{"connector.class":"X","name":"a","q":"SELECT 1, 2","re":"a\\.b",` +
				`"url":"a:b=c"},"name":"a"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			url, requests := answering(t, created)
			args := append([]string{"connector", "create", "--url", url, "-f", file(t, c.file, c.text)}, c.args...)
			out, stderr, code := command(t, "", args...)
			require.Equal(t, exitOK, code, stderr)
			require.Equal(t, "created connector a\n", out)
			require.Equal(t, []string{"POST /connectors  " + c.sent}, requests())
		})
	}
}

func TestConnectorCreateRefuses(t *testing.T) {
	url, requests := answering(t,
		answer(400, `{"error_code":400,"message":"The connector's config has 1 error(s):\nbad"}`))
	_, stderr, code := command(t, `{"connector.class":"X"}`, "connector", "create", "a", "-f", "-", "--url", url)
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "has 1 error(s):\nbad")
	require.Len(t, requests(), 1)
	for _, c := range []struct {
		stdin string
		args  []string
		code  exitCode
		says  string
	}{
		{"", []string{"a"}, exitUsage, "no config: give a file with -f"},
		{"{}", []string{"-f", "-"}, exitUsage, "the connector has no name"},
		{`{"a":`, []string{"a", "-f", "-"}, exitFailed, "it is no JSON object"},
		{"nonsense", []string{"a", "-f", "-"}, exitFailed, "neither a JSON object nor KEY=VALUE"},
		{"", []string{"a", "--set", "x"}, exitUsage, `--set "x": want KEY=VALUE`},
		{"", []string{"a", "-f", "no-such-file"}, exitFailed, "no-such-file"},
	} {
		_, stderr, code := command(t, c.stdin, append([]string{"connector", "create", "--url", url}, c.args...)...)
		require.Equal(t, c.code, code, stderr)
		require.Contains(t, stderr, c.says)
	}
	require.Len(t, requests(), 1)
}

// With --wait it is told how a connector gets going, through answers that it is too early.
func TestConnectorCreateWaits(t *testing.T) {
	created := answer(201, `{"name":"a","config":{},"tasks":[],"type":"source"}`)
	args := []string{"connector", "create", "a", "--set", "connector.class=X", "--wait", "--url"}
	url, requests := answering(t, created, answer(404, `{"error_code":404,"message":"no status"}`),
		answer(409, `{"error_code":409,"message":"rebalance"}`), answer(200, startingStatus), answer(200, runningStatus))
	out, stderr, code := command(t, "", append(args, url)...)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "created connector a\n", out)
	require.Equal(t, "a: connector RUNNING, tasks -\na: connector RUNNING, tasks 1 RUNNING\n", stderr)
	require.Len(t, requests(), 5)

	url, _ = answering(t, created, answer(200, failedStatus))
	_, stderr, code = command(t, "", append(args, url)...)
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "task 1 of connector a has failed: table public.t:\nno such column")

	url, _ = answering(t, created, answer(200, startingStatus))
	_, stderr, code = command(t, "", append(args, url, "--wait-for", "2s")...)
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "connector a is not running after 2s: connector RUNNING, tasks -")
}

func TestConnectorValidate(t *testing.T) {
	bad := `{"name":"X","error_count":2,"groups":[],"configs":[{"definition":null,"value":{"name":"slot.name","value":"s",
		"recommended_values":[],"errors":["the slot s is in use"],"visible":true}},{"definition":null,"value":{"name":"table",
		"value":null,"recommended_values":[],"errors":["it is missing"],"visible":true}}],
		"settings":{"understood":[],"ignored":[{"name":"foo","reason":"nobody reads it"}],"refused":[]}}`
	url, requests := answering(t, answer(200, bad))
	out, stderr, code := command(t, `{"connector.class":"a.X","p":1}`, "connector", "validate", "-f", "-", "--url", url)
	require.Equal(t, exitFailed, code)
	require.Equal(t, `error    slot.name: the slot s is in use
error    table: it is missing
ignored  foo: nobody reads it
`, out)
	require.Contains(t, stderr, "the config has 2 errors")
	require.Equal(t, []string{
		`PUT /connector-plugins/a.X/config/validate  {"connector.class":"a.X","name":"unnamed","p":1}`,
	}, requests())

	url, _ = answering(t, answer(200, `{"name":"X","error_count":0,"groups":[],"configs":[],"settings":{}}`))
	out, stderr, code = command(t, "", "connector", "validate", "a", "--set", "connector.class=X", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "the config is good\n", out)

	_, stderr, code = command(t, "", "connector", "validate", "--set", "k=v", "--url", url)
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "millrace connector plugins")
}

func TestConnectorConfig(t *testing.T) {
	url, requests := answering(t, answer(200, `{"name":"a","connector.class":"X","k":"v"}`))
	out, stderr, code := command(t, "", "connector", "config", "a", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "connector.class=X\nk=v\nname=a\n", out)
	require.Equal(t, "GET /connectors/a/config  ", requests()[0])

	url, requests = answering(t, answer(200, `{"name":"a","config":{"k":"2"},"tasks":[],"type":"sink"}`))
	out, stderr, code = command(t, "", "connector", "config", "a", "--set", "k=2", "--unset", "j", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "k=2\n", out)
	require.Equal(t, `PATCH /connectors/a/config  {"j":null,"k":"2"}`, requests()[0])

	out, stderr, code = command(t, `{"k":"2"}`, "connector", "config", "a", "-f", "-", "-o", "json", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.JSONEq(t, `{"k":"2"}`, out)
	require.Equal(t, `PUT /connectors/a/config  {"k":"2"}`, requests()[1])

	_, stderr, code = command(t, "", "connector", "config", "a", "-f", "x", "--unset", "j", "--url", url)
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "leave the setting out of the file")
}

func TestConnectorTargets(t *testing.T) {
	url, requests := answering(t, answer(202, ""))
	out, stderr, code := command(t, "", "connector", "pause", "a", "b", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "a is pausing\nb is pausing\n", out)
	require.Equal(t, []string{"PUT /connectors/a/pause  ", "PUT /connectors/b/pause  "}, requests())

	url, requests = answering(t, answer(204, ""), answer(200, runningStatus), answer(200, stoppedStatus))
	out, stderr, code = command(t, "", "connector", "stop", "a", "--wait", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "a is stopped\n", out)
	require.Len(t, requests(), 3)

	url, requests = answering(t, answer(202, ""), answer(200, runningStatus))
	out, stderr, code = command(t, "", "connector", "resume", "a", "--wait", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "a is running\n", out)
	require.Equal(t, "PUT /connectors/a/resume  ", requests()[0])
}

func TestConnectorRestart(t *testing.T) {
	url, requests := answering(t, answer(204, ""), answer(202, runningStatus), answer(204, ""))
	out, stderr, code := command(t, "", "connector", "restart", "a", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "a restarts\n", out)
	out, stderr, code = command(t, "", "connector", "restart", "a", "--tasks", "--only-failed", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Contains(t, out, "task 0    RUNNING  n2:8082\n")
	_, stderr, code = command(t, "", "connector", "restart", "a", "--task", "2", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, []string{
		"POST /connectors/a/restart  ", "POST /connectors/a/restart?includeTasks=true&onlyFailed=true  ",
		"POST /connectors/a/tasks/2/restart  ",
	}, requests())
	_, _, code = command(t, "", "connector", "restart", "a", "--task", "2", "--tasks", "--url", url)
	require.Equal(t, exitUsage, code)
}

func TestConnectorOffsets(t *testing.T) {
	body := `{"offsets":[{"partition":{"table":"public.t"},"offset":{"incrementing":42,"done":true}},
		{"partition":{"kafka_topic":"t","kafka_partition":0},"offset":null}]}`
	url, requests := answering(t, answer(200, body))
	out, stderr, code := command(t, "", "connector", "offsets", "a", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, `PARTITION                        OFFSET
table=public.t                   done=true incrementing=42
kafka_partition=0 kafka_topic=t  -
`, out)
	require.Equal(t, "GET /connectors/a/offsets  ", requests()[0])

	url, requests = answering(t, answer(200, `{"message":"The offsets are set."}`))
	out, stderr, code = command(t, body, "connector", "offsets", "a", "-f", "-", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "The offsets are set.\n", out)
	_, stderr, code = command(t, "", "connector", "offsets", "a", "--reset", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "DELETE /connectors/a/offsets  ", requests()[1])
	_, _, code = command(t, "x", "connector", "offsets", "a", "-f", "-", "--url", url)
	require.Equal(t, exitFailed, code)
	_, _, code = command(t, "x", "connector", "offsets", "a", "-f", "-", "--reset", "--url", url)
	require.Equal(t, exitUsage, code)
}

func TestConnectorDelete(t *testing.T) {
	url, requests := answering(t, answer(204, ""))
	out, stderr, code := command(t, "", "connector", "delete", "a", "b", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "deleted connector a\ndeleted connector b\n", out)
	require.Equal(t, []string{"DELETE /connectors/a  ", "DELETE /connectors/b  "}, requests())

	url, requests = answering(t, answer(204, ""), answer(200, stoppedStatus), answer(200, `{"message":"done"}`),
		answer(204, ""))
	_, stderr, code = command(t, "", "connector", "delete", "a", "--offsets", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, []string{
		"PUT /connectors/a/stop  ", "GET /connectors/a/status  ", "DELETE /connectors/a/offsets  ", "DELETE /connectors/a  ",
	}, requests())

	url, requests = answering(t, answer(204, ""), answer(200, stoppedStatus),
		answer(http.StatusInternalServerError, `{"error_code":500,"message":"the group has members"}`))
	_, stderr, code = command(t, "", "connector", "delete", "a", "--offsets", "--url", url)
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "the group has members")
	require.Len(t, requests(), 3, "what could not be reset is not deleted")
}

// Verbs that take several names go on behind one that fails, and tell of each.
func TestSeveralNames(t *testing.T) {
	gone := answer(http.StatusNotFound, `{"error_code":404,"message":"it is not there"}`)
	failing := answer(http.StatusInternalServerError, `{"error_code":500,"message":"it cannot be"}`)
	for _, verb := range [][]string{{"connector", "delete"}, {"topic", "delete"}, {"group", "delete"}} {
		url, requests := answering(t, gone, answer(204, ""), failing)
		out, stderr, code := command(t, "", append(verb, "a", "b", "c", "--url", url)...)
		require.Equal(t, exitNotFound, code)
		require.Equal(t, "deleted "+verb[0]+" b\n", out)
		require.Contains(t, stderr, verb[0]+" a: it is not there (HTTP 404")
		require.Contains(t, stderr, verb[0]+" c: it cannot be (HTTP 500")
		require.Contains(t, stderr, "2 of 3 "+verb[0]+"s failed\n")
		require.Len(t, requests(), 3)
	}
	url, requests := answering(t, gone, answer(202, ""), answer(200, runningStatus))
	out, stderr, code := command(t, "", "connector", "resume", "none", "a", "--wait", "--url", url)
	require.Equal(t, exitNotFound, code)
	require.Equal(t, "a is running\n", out)
	require.Contains(t, stderr, "connector none: it is not there (HTTP 404")
	require.Len(t, requests(), 3)
	url, requests = answering(t, gone)
	_, stderr, code = command(t, "", "topic", "delete", "a", "--url", url)
	require.Equal(t, exitNotFound, code)
	require.Equal(t, "millrace: it is not there (HTTP 404, error 404)\n", stderr)
	require.Len(t, requests(), 1)
}

// Where no node answers any more nothing else is tried, and that is told once.
func TestNobodyAnswersTheSecondName(t *testing.T) {
	var s *httptest.Server
	s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.Listener.Close()
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusAccepted)
	}))
	defer s.Close()
	out, stderr, code := command(t, "", "connector", "resume", "a", "b", "c", "--wait", "--url", s.URL)
	require.Equal(t, exitUnreachable, code)
	require.Empty(t, out)
	require.Equal(t, 1, strings.Count(stderr, "no node answers"), stderr)
}

func TestConnectorPlugins(t *testing.T) {
	url, requests := answering(t, answer(200, `[{"class":"PostgresSource","type":"source","version":"1"},
		{"class":"x.Filter","type":"transformation"}]`))
	out, stderr, code := command(t, "", "connector", "plugins", "--all", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, `CLASS           TYPE            VERSION
PostgresSource  source          1
x.Filter        transformation  -
`, out)
	require.Equal(t, "GET /connector-plugins?connectorsOnly=false  ", requests()[0])

	url, requests = answering(t, answer(200, `[{"name":"name","type":"STRING","required":true,"default_value":null,
		"documentation":"The name.\nMore."},{"name":"tasks.max","type":"INT","default_value":"1","documentation":"Tasks."}]`))
	out, stderr, code = command(t, "", "connector", "plugins", "PostgresSource", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, `SETTING    TYPE    DEFAULT     WHAT IT DOES
name       string  (required)  The name.
tasks.max  int     1           Tasks.
`, out)
	require.Equal(t, "GET /connector-plugins/PostgresSource/config  ", requests()[0])
}

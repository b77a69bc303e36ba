package connectors_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A connector is created, read in all forms, changed and deleted.
func TestLifeOfAConnector(t *testing.T) {
	f := start(t)
	info := `{"name":"c","config":{"name":"c","connector.class":"org.example.CountSourceConnector","topic":"counts",
		"tasks.max":"2","mode":"slow","password":"[hidden]"},"type":"source"}`
	f.run(
		step{"GET /connectors", "", 200, `[]`},
		step{"GET /connectors?expand=info&expand=status", "", 200, `{}`},
		step{"POST /connectors", `{"name":"c","config":{` + source + `,"tasks.max":2,"mode":"slow","password":"pw"}}`, 201,
			info},
		step{"GET /connectors", "", 200, `["c"]`},
		step{"GET /connectors/c", "", 200, info},
		step{"GET /connectors/c/config", "", 200, `{"tasks.max":"2","name":"c","password":"[hidden]"}`},
	)
	f.await("/connectors/c/status", `{"name":"c","type":"source","connector":{"state":"RUNNING"},
		"tasks":[{"id":0,"state":"RUNNING"},{"id":1,"state":"RUNNING"}]}`)
	f.run(
		step{"GET /connectors/c/tasks", "", 200,
			`[{"id":{"connector":"c","task":0},"config":{"share":"0","password":"[hidden]"}},
			{"id":{"connector":"c","task":1},"config":{"share":"1"}}]`},
		step{"GET /connectors/c/tasks-config", "", 200, `{"c-0":{"share":"0"},"c-1":{"share":"1"}}`},
		step{"GET /connectors/c/tasks/1/status", "", 200, `{"id":1,"state":"RUNNING"}`},
		step{"GET /connectors?expand=status&expand=nonsense", "", 200, `{"c":{"info":null,"status":{"name":"c"}}}`},
		step{"GET /connectors?expand=info", "", 200, `{"c":{"status":null,"info":{"tasks":[{"connector":"c","task":0},
			{"connector":"c","task":1}]}}}`},
		step{"PATCH /connectors/c/config", `{"mode":null,"tasks.max":1,"fast":true}`, 200,
			`{"config":{"mode":null,"tasks.max":"1","fast":"true","topic":"counts"}}`},
		step{"PUT /connectors/c/config", `{` + source + `,"password":"[hidden]"}`, 200,
			`{"config":{"name":"c","password":"[hidden]","fast":null,"tasks.max":null}}`},
		step{"PUT /connectors/new/config", `{` + source + `}`, 201, `{"name":"new","config":{"name":"new"}}`},
		step{"PUT /connectors/new/config", `{` + source + `}`, 200, `{"name":"new"}`},
		step{"DELETE /connectors/new", "", 204, ``},
		step{"DELETE /connectors/new", "", 404, `There is no connector "new"`},
	)
	f.await("/connectors/c/topics", `{"c":{"topics":["counts"]}}`)
	f.run(
		step{"GET /connectors/nobody/topics", "", 200, `{"nobody":{"topics":[]}}`},
		step{"PUT /connectors/c/stop", "", 204, ``},
		step{"GET /connectors/c/tasks", "", 200, `[]`},
	)
	f.await("/connectors/c/status", `{"connector":{"state":"STOPPED"},"tasks":[]}`)
	f.eventually("nothing is left of the topics", func() bool { // which a task that ends may note once more
		reset := f.send("PUT", "/connectors/c/topics/reset", "")
		return reset.status == 202 && fits(f.send("GET", "/connectors/c/topics", ""), `{"c":{"topics":[]}}`)
	})
	f.run(step{"PUT /connectors/c/resume", "", 202, ``})
	f.await("/connectors/c/status", `{"connector":{"state":"RUNNING"},"tasks":[{"state":"RUNNING"}]}`)
	f.run(step{"PUT /connectors/c/pause", "", 202, ``})
	f.await("/connectors/c/status", `{"connector":{"state":"PAUSED"},"tasks":[{"state":"PAUSED"}]}`)
	f.run(step{"DELETE /connectors/c", "", 204, ``}, step{"GET /connectors/c/status", "", 404, `There is no connector`})
}

// Where a new connector is found, in its own words.
func TestLocationOfANewConnector(t *testing.T) {
	f := start(t)
	a := f.send("POST", "/connectors", `{"name":" a b/ü% ","config":{`+source+`},"initial_state":"stopped"}`)
	require.Equal(t, http.StatusCreated, a.status, a.text)
	require.Equal(t, f.url+"/connectors/a%20b%2F%C3%BC%25", a.header.Get("Location"))
	f.run(
		step{"GET " + strings.TrimPrefix(a.header.Get("Location"), f.url), "", 200, `{"name":"a b/ü%"}`},
		step{"GET /connectors/a+b%2F%C3%BC%25", "", 404, "There is no connector"},
		step{"GET /connectors", "", 200, `["a b/ü%"]`},
		step{"GET /connectors/a%20b%2F%C3%BC%25/status/", "", 200, `{"name":"a b/ü%","tasks":[]}`},
		step{"DELETE /connectors/a%20b%2F%C3%BC%25/", "", 204, ""},
	)
	a = f.send("PUT", "/connectors/x%2F/config/", `{`+source+`}`)
	require.Equal(t, http.StatusCreated, a.status, a.text)
	require.Equal(t, f.url+"/connectors/x%2F", a.header.Get("Location"))
	f.run(step{"GET /connectors/x%2F/", "", 200, `{"name":"x/"}`}, step{"DELETE /connectors/x%2F", "", 204, ""})
}

func TestInitialStates(t *testing.T) {
	f := start(t)
	for _, state := range []string{"RUNNING", "paused", "Stopped"} {
		name := strings.ToLower(state)
		f.run(step{"POST /connectors/", `{"name":"` + name + `","config":{` + source + `},"initial_state":"` + state + `"}`,
			201, `{"name":"` + name + `"}`})
		f.await("/connectors/"+name+"/status", `{"connector":{"state":"`+strings.ToUpper(state)+`"}}`)
	}
	f.run(
		step{"GET /connectors/stopped/tasks", "", 200, `[]`},
		step{"POST /connectors", `{"name":"x","config":{` + source + `},"initial_state":"asleep"}`, 400, "initial state"},
		// A replacement leaves what a connector does.
		step{"PUT /connectors/stopped/config", `{` + source + `,"mode":"slow"}`, 200, `{"config":{"mode":"slow"}}`},
	)
	f.await("/connectors/stopped/status", `{"connector":{"state":"STOPPED"},"tasks":[]}`)
}

// What is wrong with a request is 400 and says what.
func TestRefusedRequests(t *testing.T) {
	f := start(t)
	f.run(step{"POST /connectors", `{"name":"c","config":{` + source + `}}`, 201, ``})
	create := func(body, want string) step { return step{"POST /connectors", body, 400, want} }
	f.run(
		create(`{`, ""), create(`[]`, "the body"), create(`"x"`, "the body"), create(`null`, "no body"),
		create(`{"name":"x"}`, "config is missing"), create(`{"name":"x","config":null}`, "config is missing"),
		create(`{"config":{`+source+`}}`, "no name"), create(`{"name":" ","config":{`+source+`}}`, "no name"),
		create(`{"name":"x","config":{`+source+`},"more":1}`, "more"),
		create(`{"name":7,"config":{`+source+`}}`, "name"), create(`{"name":"x","config":[]}`, "config"),
		create(`{"name":"x","config":{"name":"y",`+source+`}}`, `"y"`),
		create(`{"name":"x","config":{}}`, "connector.class"),
		create(`{"name":"x","config":{"connector.class":"No"}}`, "org.example.NullSinkConnector"),
		create(`{"name":"x","config":{"a":{},`+source+`}}`, `"a" is an object`),
		create(`{"name":"x","config":{"a":[1],`+source+`}}`, `"a" is an object or an array`),
		create(`{"name":"x","config":{"a":null,`+source+`}}`, `"a" is null`),
		create(`{"name":"x","config":{"a":1,"a":2,`+source+`}}`, `twice`),
		create(`{"name":"`+strings.Repeat("x", 256)+`","config":{`+source+`}}`, "255"),
		create(`{"name":"a\nb","config":{`+source+`}}`, "control"),
		create(`{"name":"x","config":{`+source+`,"mode":"odd","tasks.max":0}}`, "has 2 error(s)"),
		create(`{"name":"x","config":{`+source+`,"host":"nowhere"}}`, "nobody answers at nowhere"),
		create(`{"name":"x","config":{`+source+`,"password":"[hidden]"}}`, "give the password"),
		step{"POST /connectors", `{"name":"c","config":{` + source + `}}`, 409, "already"},
		step{"PUT /connectors/x/config", `{"a":null,` + source + `}`, 400, "null"},
		step{"PUT /connectors/x/config", `{"name":"y",` + source + `}`, 400, `"y"`},
		step{"PUT /connectors/x/config", `[]`, 400, ""},
		step{"PATCH /connectors/x/config", `{"a":"b"}`, 404, "There is no connector"},
		step{"PATCH /connectors/c/config", `{"topic":null}`, 400, "topic"},
		step{"PATCH /connectors/c/config", `{"a":{}}`, 400, "object"},
		step{"GET /connectors/c/tasks/x/status", "", 404, ""},
		step{"GET /connectors/c/tasks/77/status", "", 404, "task 77"},
		step{"POST /connectors/c/tasks/77/restart", "", 404, "task 77"},
		step{"POST /connectors/c/restart?includeTasks=maybe", "", 400, "includeTasks"},
		step{"GET /connectors/c/nonsense", "", 404, ""},
		step{"POST /connectors/c/tasks", `[]`, 405, "POST"},
		step{"PUT /connectors", `{}`, 405, ""},
	)
	for _, at := range []string{
		"GET %", "GET %/config", "GET %/status", "GET %/tasks", "GET %/tasks-config", "GET %/offsets", "GET %/tasks/0/status",
		"PUT %/pause", "PUT %/resume", "PUT %/stop", "POST %/restart", "POST %/restart?includeTasks=true",
		"POST %/tasks/0/restart", "DELETE %", "DELETE %/offsets",
	} {
		f.run(step{strings.Replace(at, "%", "/connectors/nobody", 1), "", 404, `There is no connector "nobody"`})
	}
	a := f.send("POST", "/connectors", `{}`, "Content-Type", "text/plain")
	require.Equal(t, http.StatusUnsupportedMediaType, a.status)
	require.Contains(t, a.text, `"error_code":415`)
	a = f.send("GET", "/connectors", "", "Accept", "text/html")
	require.Equal(t, http.StatusNotAcceptable, a.status)
	a = f.send("POST", "/connectors", `{"name":"x","config":{"a":"`+strings.Repeat("x", 1<<20)+`"}}`)
	require.Equal(t, http.StatusRequestEntityTooLarge, a.status, a.text)
	keys := map[string]string{}
	for i := range 2001 {
		keys[strconv.Itoa(i)] = ""
	}
	many, err := json.Marshal(keys)
	require.NoError(t, err)
	a = f.send("PUT", "/connectors/x/config", string(many))
	require.Equal(t, http.StatusBadRequest, a.status)
}

// A restart alone is done at once; with others it says what will restart.
func TestRestarts(t *testing.T) {
	f := start(t, "connect.restart.backoff.ms=60000")
	f.run(step{"POST /connectors", `{"name":"c","config":{` + source + `,"tasks.max":2,"fail":1}}`, 201, ``})
	f.await("/connectors/c/status", `{"connector":{"state":"RUNNING"},"tasks":[{"state":"RUNNING"},{"state":"FAILED"}]}`)
	var s struct{ Tasks []struct{ Trace string } }
	require.NoError(t, json.Unmarshal([]byte(f.send("GET", "/connectors/c/status", "").text), &s))
	require.Contains(t, s.Tasks[1].Trace, "told to fail")
	f.run(
		step{"POST /connectors/c/restart", "", 204, ``},
		step{"POST /connectors/c/restart?includeTasks=false&onlyFailed=false", "", 204, ``},
	)
	f.await("/connectors/c/status", `{"connector":{"state":"RUNNING"},"tasks":[{"state":"RUNNING"},{"state":"FAILED"}]}`)
	f.again(step{"POST /connectors/c/restart?onlyFailed=true", "", 202, // what is said of the restarts may come late
		`{"connector":{"state":"RUNNING"},"tasks":[{"state":"RUNNING"},{"state":"FAILED"}]}`})
	f.run(
		step{"POST /connectors/c/restart?includeTasks=true&onlyFailed=true", "", 202,
			`{"name":"c","type":"source","tasks":[{"state":"RUNNING"},{"id":1,"state":"RESTARTING"}]}`},
	)
	f.await("/connectors/c/status", `{"connector":{"state":"RUNNING"},"tasks":[{"state":"RUNNING"},{"state":"FAILED"}]}`)
	f.run(
		step{"POST /connectors/c/restart?includeTasks=true", "", 202,
			`{"connector":{"state":"RESTARTING"},"tasks":[{"state":"RESTARTING"},{"state":"RESTARTING"}]}`},
		step{"PATCH /connectors/c/config", `{"fail":null}`, 200, ``},
	)
	f.await("/connectors/c/status", `{"connector":{"state":"RUNNING"},"tasks":[{"state":"RUNNING"},{"state":"RUNNING"}]}`)
	f.run(step{"POST /connectors/c/tasks/1/restart", "", 204, ``})
	f.await("/connectors/c/status", `{"connector":{"state":"RUNNING"},"tasks":[{"state":"RUNNING"},{"state":"RUNNING"}]}`)
}

func TestOffsets(t *testing.T) {
	f := start(t)
	f.run(step{"POST /connectors", `{"name":"c","config":{` + source + `,"tasks.max":2}}`, 201, ``})
	f.await("/connectors/c/offsets", `{"offsets":[{"partition":{"share":"0"}},{"partition":{"share":"1"}}]}`)
	alter := func(body string, status int, want string) step {
		return step{"PATCH /connectors/c/offsets", body, status, want}
	}
	f.run(
		alter(`{"offsets":[{"partition":{"share":"0"},"offset":{"count":1}}]}`, 400, "stop"),
		step{"DELETE /connectors/c/offsets", "", 400, "stop"},
		step{"PUT /connectors/c/stop", "", 204, ``},
	)
	f.await("/connectors/c/status", `{"connector":{"state":"STOPPED"},"tasks":[]}`)
	f.run(
		alter(`{}`, 400, "offsets"), alter(`{"offsets":[]}`, 400, "entries"), alter(`{"offsets":[{}]}`, 400, "partition"),
		alter(`{"offsets":[{"partition":{"share":"0"}}]}`, 400, "offset"),
		alter(`{"offsets":[{"partition":null,"offset":null}]}`, 400, "partition"),
		alter(`{"offsets":[{"partition":[],"offset":null}]}`, 400, "object"),
		alter(`{"offsets":[{"partition":{"a":{}},"offset":null}]}`, 400, "object"),
		alter(`{"offsets":[{"partition":{"share":"0"},"offset":{"count":1e999}}]}`, 400, "range"),
		alter(`{"offsets":[{"partition":{"share":"0"},"offset":{"count":"veto"}}]}`, 500, "a count is a number"),
		alter(`{"offsets":[{"partition":{"share":"0"},"offset":{"count":9007199254740993}},
			{"partition":{"share":"1"},"offset":null}]}`, 200, ``),
		step{"GET /connectors/c/offsets", "", 200, `{"offsets":[{"partition":{"share":"0"}}]}`},
	)
	require.Contains(t, f.send("GET", "/connectors/c/offsets", "").text, `"count":9007199254740993`)
	f.run(
		step{"DELETE /connectors/c/offsets", "", 200, ``},
		step{"GET /connectors/c/offsets", "", 200, `{"offsets":[]}`},
		step{"PATCH /connectors/nobody/offsets", `{"offsets":[{"partition":{"a":1},"offset":null}]}`, 404, "no connector"},
	)
}

func TestOffsetsOfASink(t *testing.T) {
	f := start(t)
	for range 3 {
		require.Equal(t, 200, f.send("POST", "/v1/topics/in/records", `1`).status)
	}
	f.run(step{"POST /connectors", `{"name":"s","config":{"connector.class":"NullSink","topics":"in",
		"value.converter":"StringConverter"}}`, 201,
		`{"type":"sink"}`})
	f.await("/connectors/s/offsets",
		`{"offsets":[{"partition":{"kafka_topic":"in","kafka_partition":0},"offset":{"kafka_offset":3}}]}`)
	f.run(step{"PUT /connectors/s/stop", "", 204, ``})
	f.await("/connectors/s/status", `{"connector":{"state":"STOPPED"},"tasks":[]}`)
	alter := func(partition, offset string, status int, want string) step {
		return step{"PATCH /connectors/s/offsets",
			`{"offsets":[{"partition":` + partition + `,"offset":` + offset + `}]}`, status, want}
	}
	in := `{"kafka_topic":"in","kafka_partition":"0"}`
	f.again(alter(in, `{"kafka_offset":"1"}`, 200, ``)) // it is refused until the tasks have left their group
	f.run(
		step{"GET /connectors/s/offsets", "", 200, `{"offsets":[{"offset":{"kafka_offset":1}}]}`},
		alter(in, `{"kafka_offset":2}`, 200, ``),
		alter(in, `{"kafka_offset":-1}`, 400, ""), alter(in, `{"kafka_offset":"x"}`, 400, ""),
		alter(in, `{"other":1}`, 400, ""), alter(`{"kafka_topic":"in"}`, `null`, 400, ""),
		alter(`{"kafka_topic":"in","kafka_partition":0,"more":1}`, `null`, 400, ""),
		alter(in, `null`, 200, ``),
		step{"GET /connectors/s/offsets", "", 200, `{"offsets":[]}`},
		step{"DELETE /connectors/s/offsets", "", 200, ``},
	)
}

package connectors_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// What kcctl sends: it looks at the root, posts and puts with a slash at the end, and reads with both expansions.
func TestAsKcctl(t *testing.T) {
	f := start(t)
	var info struct {
		Version string `json:"version"`
		Commit  string `json:"commit"`
		Cluster string `json:"kafka_cluster_id"`
	}
	a := f.send("GET", "/", "", "Accept", "application/json")
	require.Equal(t, 200, a.status)
	require.NoError(t, json.Unmarshal([]byte(a.text), &info))
	require.NotEmpty(t, info.Version)
	require.NotEmpty(t, info.Cluster)
	f.run(
		step{"POST /connectors/", `{"name":"k","config":{` + source + `}}`, 201, `{"name":"k"}`},
		step{"GET /connectors/?expand=status&expand=info", "", 200, `{"k":{"info":{"type":"source"},"status":{"name":"k"}}}`},
		step{"PUT /connectors/k/config", `{` + source + `,"mode":"slow"}`, 200, `{"config":{"mode":"slow"}}`},
		step{"GET /connector-plugins/?connectorsOnly=false", "", 200, ``},
		step{"GET /admin/loggers/", "", 200, ``},
		step{"PUT /admin/loggers/connect", `{"level":"INFO"}`, 200, ``},
		step{"PUT /connectors/k/stop", ``, 204, ``},
	)
	f.await("/connectors/k/status", `{"connector":{"state":"STOPPED"},"tasks":[]}`)
	f.run(
		step{"PATCH /connectors/k/offsets", `{"offsets":[{"partition":{"share":"0"},"offset":{"count":7}}]}`, 200, ``},
		step{"GET /connectors/k/offsets", "", 200, `{"offsets":[{"partition":{"share":"0"},"offset":{"count":7}}]}`},
		step{"DELETE /connectors/k/", "", 204, ``},
	)
}

// What Kafka UI sends: it validates before it saves, with all settings as JSON of their own types, and shows the tasks
// of each connector by their states.
func TestAsKafkaUI(t *testing.T) {
	f := start(t)
	v := f.validate("CountSourceConnector", `{"name":"u",`+source+`,"tasks.max":1,"errors.log.enable":true}`)
	require.Zero(t, v.Count, "%v", v.errors())
	f.run(
		step{"POST /connectors", `{"name":"u","config":{` + source + `,"tasks.max":1,"errors.log.enable":true}}`, 201,
			`{"name":"u","config":{"errors.log.enable":"true"},"type":"source"}`},
		step{"GET /connectors/u/topics", "", 200, `{"u":{}}`},
	)
	f.await("/connectors/u/status", `{"connector":{"state":"RUNNING"},"tasks":[{"id":0,"state":"RUNNING"}]}`)
	f.run(
		step{"GET /connectors/u/tasks", "", 200, `[{"id":{"connector":"u","task":0},"config":{}}]`},
		step{"GET /connectors/u/tasks/0/status", "", 200, `{"id":0,"state":"RUNNING"}`},
		step{"POST /connectors/u/restart?includeTasks=false&onlyFailed=false", "", 204, ``},
		step{"POST /connectors/u/restart?includeTasks=true&onlyFailed=false", "", 202, `{"name":"u"}`},
		step{"POST /connectors/u/restart?includeTasks=true&onlyFailed=true", "", 202, `{"name":"u"}`},
		step{"PUT /connectors/u/pause", "", 202, ``}, step{"PUT /connectors/u/resume", "", 202, ``},
		step{"DELETE /connectors/u", "", 204, ``},
	)
}

// What Redpanda Console sends: it validates configs that have no name yet, and all bodies have a charset.
func TestAsRedpandaConsole(t *testing.T) {
	f := start(t)
	a := f.send("PUT", "/connector-plugins/org.example.CountSourceConnector/config/validate", `{`+source+`}`,
		"Content-Type", "application/json; charset=utf-8", "Accept", "application/json, */*")
	require.Equal(t, 200, a.status, a.text)
	require.Contains(t, a.text, `"error_count":1`)
	f.run(
		step{"GET /connectors?expand=info&expand=status", "", 200, `{}`},
		step{"POST /connectors", `{"name":"r","config":{` + source + `}}`, 201, ``},
		step{"PUT /connectors/r/config", `{"name":"r",` + source + `}`, 200, ``},
	)
	f.await("/connectors?expand=info&expand=status",
		`{"r":{"info":{"tasks":[{"task":0}]},"status":{"tasks":[{"state":"RUNNING"}]}}}`)
	f.run(step{"POST /connectors/r/tasks/0/restart", "", 204, ``}, step{"DELETE /connectors/r", "", 204, ``})
}

// What the Terraform provider sends: it creates, reads back the config and compares, puts, and deletes.
func TestAsTerraform(t *testing.T) {
	f := start(t)
	f.run(step{"GET /connectors/t", "", 404, ``},
		step{"POST /connectors", `{"name":"t","config":{"name":"t",` + source + `,"tasks.max":"2"}}`, 201, ``})
	var config map[string]string
	require.NoError(t, json.Unmarshal([]byte(f.send("GET", "/connectors/t/config", "").text), &config))
	require.Equal(t, map[string]string{
		"name": "t", "connector.class": "org.example.CountSourceConnector", "topic": "counts", "tasks.max": "2",
	}, config)
	f.await("/connectors/t/status", `{"connector":{"state":"RUNNING"}}`)
	f.run(
		step{"PUT /connectors/t/config", `{"name":"t",` + source + `,"tasks.max":"1"}`, 200, `{"name":"t"}`},
		step{"DELETE /connectors/t", "", 204, ``}, step{"GET /connectors/t", "", 404, ``},
	)
}

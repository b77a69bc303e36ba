package connectors_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPlugins(t *testing.T) {
	f := start(t)
	type listed struct{ Class, Type, Version string }
	list := func(path string) (out []listed) {
		a := f.send("GET", path, "")
		require.Equal(t, 200, a.status, a.text)
		require.NoError(t, json.Unmarshal([]byte(a.text), &out))
		return out
	}
	for _, path := range []string{"/connector-plugins", "/connector-plugins/", "/connector-plugins?connectorsOnly=true"} {
		got := list(path)
		require.Contains(t, got, listed{"org.example.CountSourceConnector", "source", "1.2"})
		require.Contains(t, got, listed{"org.example.NullSinkConnector", "sink", ""})
		for _, p := range got {
			require.Contains(t, []string{"source", "sink"}, p.Type)
		}
	}
	require.NotContains(t, f.send("GET", "/connector-plugins", "").text, `"version":""`)
	all := list("/connector-plugins?connectorsOnly=false")
	for _, kind := range []string{"source", "sink", "converter", "header_converter"} {
		require.True(t, slices.ContainsFunc(all, func(p listed) bool { return p.Type == kind }), kind)
	}
	f.run(step{"GET /connector-plugins?connectorsOnly=maybe", "", 400, "connectorsOnly"})
}

func TestPluginConfig(t *testing.T) {
	f := start(t)
	var keys []struct{ Name, Group string }
	for _, name := range []string{"CountSource", "org.example.CountSourceConnector", "Counter"} {
		a := f.send("GET", "/connector-plugins/"+name+"/config", "")
		require.Equal(t, 200, a.status, a.text)
		require.NoError(t, json.Unmarshal([]byte(a.text), &keys))
		names := []string{}
		for _, k := range keys {
			names = append(names, k.Name)
		}
		require.Subset(t, names, []string{"name", "connector.class", "tasks.max", "transforms", "errors.tolerance",
			"topic.creation.groups", "topic", "mode"})
		require.NotContains(t, names, "topics")
	}
	a := f.send("GET", "/connector-plugins/JsonConverter/config", "")
	require.Equal(t, 200, a.status, a.text)
	require.Contains(t, a.text, `"schemas.enable"`)
	require.NotContains(t, a.text, `"tasks.max"`)
	f.run(step{"GET /connector-plugins/Nothing/config", "", 404, "Nothing"})
}

func TestLoggers(t *testing.T) {
	f := start(t)
	f.run(
		step{"GET /admin/loggers", "", 200,
			`{"root":{"level":"WARN"},"connect":{"level":"WARN"},"connect.task":{"level":"WARN"}}`},
		step{"GET /admin/loggers/root", "", 200, `{"level":"WARN"}`},
		step{"GET /admin/loggers/no.such", "", 404, "no.such"},
		step{"PUT /admin/loggers/connect", `{"level":"debug"}`, 200, ``},
		step{"GET /admin/loggers/connect.task/", "", 200, `{"level":"DEBUG"}`},
		step{"GET /admin/loggers/root", "", 200, `{"level":"WARN"}`},
		step{"PUT /admin/loggers/org.apache.kafka", `{"level":"TRACE"}`, 200, `["org.apache.kafka"]`},
		step{"PUT /admin/loggers/a?scope=worker", `{"level":"OFF"}`, 200, `["a"]`},
		step{"PUT /admin/loggers/a?scope=nonsense", `{"level":"ERROR"}`, 200, `["a"]`},
		step{"GET /admin/loggers/a", "", 200, `{"level":"ERROR"}`},
		step{"PUT /admin/loggers/a", `{"level":"LOUD"}`, 404, "LOUD"},
		step{"PUT /admin/loggers/a?scope=cluster", `{"level":"LOUD"}`, 404, "LOUD"},
		step{"PUT /admin/loggers/a", `{}`, 400, "level"},
		step{"PUT /admin/loggers/a", `{"level":null}`, 400, "level"},
		step{"PUT /admin/loggers/a", `{"level":7}`, 400, "level"},
		step{"PUT /admin/loggers/a", `{"level":"INFO","x":1}`, 400, "x"},
		step{"PUT /admin/loggers/root?scope=cluster", `{"level":"ERROR"}`, 204, ``},
	)
	f.await("/admin/loggers", `{"root":{"level":"ERROR"},"connect.task":{"level":"ERROR"},"a":{"level":"ERROR"}}`)
	f.run(
		step{"PUT /admin/loggers/root", `{"level":"FATAL"}`, 200, ``},
		step{"GET /admin/loggers/a", "", 200, `{"level":"FATAL"}`},
		step{"PUT /admin/loggers/root?scope=cluster", `{"level":"ERROR"}`, 204, ``}, // what it was for all before
	)
	f.await("/admin/loggers/a", `{"level":"ERROR"}`)
	var level struct {
		Modified *int64 `json:"last_modified"`
	}
	require.NoError(t, json.Unmarshal([]byte(f.send("GET", "/admin/loggers/root", "").text), &level))
	require.NotNil(t, level.Modified)
}

func TestHealth(t *testing.T) {
	f := start(t)
	f.await("/health", `{"status":"healthy"}`)
	f.run(step{"GET /health/", "", 200, `{"status":"healthy"}`}, step{"POST /health", "", 405, ""})
	f.run(step{"GET /", "", 200, `{"kafka_cluster_id":` + clusterID(t, f) + `}`})
}

func clusterID(t *testing.T, f *fixture) string {
	t.Helper()
	var all struct {
		Data []struct {
			ID string `json:"cluster_id"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(f.send("GET", "/v3/clusters", "").text), &all))
	quoted, err := json.Marshal(all.Data[0].ID)
	require.NoError(t, err)
	return string(quoted)
}

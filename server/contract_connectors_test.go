package server_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/connect/plugin"
	"millrace/server"
)

// exampleConnectors gives a node stand-ins for the classes that the examples name, which need no database, and the
// secret that one of them refers to.
func exampleConnectors(c *server.Config) {
	connection := plugin.Defs{
		{Name: "connection.url", Type: plugin.String, Required: true},
		{Name: "connection.user", Type: plugin.String, Required: true},
		{Name: "connection.password", Type: plugin.Password, Required: true},
	}
	c.Connectors = []plugin.Class{
		{
			Info: plugin.Info{Class: "PostgresSource", Kind: plugin.SourceKind, Version: "0.1.0",
				Defs: append(connection, plugin.Def{Name: "topic.prefix", Type: plugin.String, Required: true})},
			New: func() plugin.Connector { return idle{} },
		},
		{
			Info: plugin.Info{Class: "PostgresSink", Kind: plugin.SinkKind, Version: "0.1.0", Defs: connection},
			New:  func() plugin.Connector { return idle{} },
		},
	}
	c.Environment = func(name string) (string, bool) { return "secret", name == "SHOP_PASSWORD" }
}

// idle is a connector of one task that has nothing to do. As a task it is a source.
type idle struct{}

func (idle) Validate(context.Context, map[string]string) []plugin.Problem            { return nil }
func (idle) Start(context.Context, map[string]string, plugin.ConnectorContext) error { return nil }
func (idle) Stop(context.Context) error                                              { return nil }
func (idle) AlterOffsets(context.Context, map[string]string, []plugin.Offset) (bool, error) {
	return true, nil
}
func (idle) NewSource() plugin.SourceTask { return idleTask{} }
func (idle) NewSink() plugin.SinkTask     { return nil }

func (idle) TaskConfigs(context.Context, int) ([]map[string]string, error) {
	return []map[string]string{{"task.class": "PostgresSource"}}, nil
}

type idleTask struct{}

func (idleTask) Start(context.Context, map[string]string, plugin.SourceContext) error { return nil }
func (idleTask) Stored(context.Context) error                                         { return nil }
func (idleTask) Stop(context.Context) error                                           { return nil }

func (idleTask) Poll(ctx context.Context) ([]*plugin.SourceRecord, error) {
	t := time.NewTimer(50 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return nil, nil
}

// ofConnect says whether a topic is one in which workers keep what they share.
func ofConnect(topic string) bool { return strings.HasPrefix(topic, "connect-") }

// restoreConnectors makes the connectors that the examples name, orders-source with a task that runs and orders-stopped
// with an offset, and removes all others.
func (g *rig) restoreConnectors(t *testing.T) {
	t.Helper()
	g.deleteConnectors(t, "orders-source", "orders-stopped")
	config := map[string]string{
		"connector.class": "PostgresSource", "connection.url": "postgresql://127.0.0.1:5432/shop", "connection.user": "millrace",
		"connection.password": "not-a-secret", "topic.prefix": "shop.",
	}
	for _, name := range []string{"orders-source", "orders-stopped"} {
		g.call(t, "PUT", "/connectors/"+name+"/config", config, nil)
	}
	g.bare(t, "PUT", "/connectors/orders-stopped/stop")
	g.bare(t, "PUT", "/connectors/orders-source/resume")
	g.call(t, "DELETE", "/connectors/orders-stopped/offsets", nil, nil)
	g.call(t, "PATCH", "/connectors/orders-stopped/offsets", map[string]any{"offsets": []map[string]any{{
		"partition": map[string]string{"table": "public.orders"}, "offset": map[string]int{"incrementing": 42},
	}}}, nil)
	await(t, "the connector runs", func() bool {
		var status struct {
			Connector struct{ State string }
			Tasks     []struct{ State string }
		}
		g.call(t, "GET", "/connectors/orders-source/status", nil, &status)
		return status.Connector.State == "RUNNING" && len(status.Tasks) == 1 && status.Tasks[0].State == "RUNNING"
	})
	for _, logger := range []string{"root", "connect", "connect.task"} {
		g.call(t, "PUT", "/admin/loggers/"+logger, map[string]string{"level": "WARN"}, nil)
	}
}

// deleteConnectors deletes all connectors but some.
func (g *rig) deleteConnectors(t *testing.T, but ...string) {
	t.Helper()
	var names []string
	g.call(t, "GET", "/connectors", nil, &names)
	for _, name := range names {
		if !strings.Contains(strings.Join(but, " "), name) {
			g.bare(t, "DELETE", "/connectors/"+url.PathEscape(name))
		}
	}
}

// bare makes a request without a body that must succeed.
func (g *rig) bare(t *testing.T, method, path string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, g.node.URL()+path, http.NoBody)
	require.NoError(t, err)
	resp, err := g.node.Client.Do(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Less(t, resp.StatusCode, 300, "%s %s", method, path)
}

// newName makes the request one about a connector that is not there.
func newName(_ *testing.T, _ *rig, q *request) { q.path["connector"] = "orders-new" }

// nobody is a connector that is not there.
var nobody = by{"connector": "nobody"}

// connectParticulars are the faults of the API of connectors that the contract tells of in words only.
var connectParticulars = []particular{
	{op: "createConnector", what: "a name that is taken", status: 409,
		body: `{"name":"orders-source","config":{"connector.class":"PostgresSource","connection.url":"a",` +
			`"connection.user":"b","connection.password":"c","topic.prefix":"d"}}`},
	{op: "createConnector", what: "no class", body: `{"name":"n","config":{}}`, status: 400},
	{op: "createConnector", what: "a class that there is not", body: `{"name":"n","config":{"connector.class":"N"}}`,
		status: 400},
	{op: "createConnector", what: "another name within", status: 400,
		body: `{"name":"n","config":{"name":"m","connector.class":"PostgresSource"}}`},
	{op: "createConnector", what: "a config with errors", status: 400,
		body: `{"name":"n","config":{"connector.class":"PostgresSource"}}`},
	{op: "createConnector", what: "an object within", status: 400,
		body: `{"name":"n","config":{"connector.class":"PostgresSource","a":{}}}`},
	{op: "createConnector", what: "a null within", status: 400,
		body: `{"name":"n","config":{"connector.class":"PostgresSource","a":null}}`},
	{op: "putConnectorConfig", what: "another name within", body: `{"name":"m","connector.class":"PostgresSource"}`,
		status: 400},
	{op: "putConnectorConfig", what: "an array within", body: `{"connector.class":"PostgresSource","a":[]}`, status: 400},
	{op: "patchConnectorConfig", what: "no such connector", params: nobody, status: 404},
	{op: "patchConnectorConfig", what: "what must be there removed", body: `{"topic.prefix":null}`, status: 400},
	{op: "getConnector", what: "no such connector", params: nobody, status: 404},
	{op: "deleteConnector", what: "no such connector", params: nobody, status: 404},
	{op: "getConnectorConfig", what: "no such connector", params: nobody, status: 404},
	{op: "getConnectorStatus", what: "no such connector", params: nobody, status: 404},
	{op: "restartConnector", what: "no such connector", params: nobody, status: 404},
	{op: "pauseConnector", what: "no such connector", params: nobody, status: 404},
	{op: "resumeConnector", what: "no such connector", params: nobody, status: 404},
	{op: "stopConnector", what: "no such connector", params: nobody, status: 404},
	{op: "listConnectorTasks", what: "no such connector", params: nobody, status: 404},
	{op: "getConnectorTasksConfig", what: "no such connector", params: nobody, status: 404},
	{op: "getConnectorTaskStatus", what: "no such connector", params: nobody, status: 404},
	{op: "restartConnectorTask", what: "no such connector", params: nobody, status: 404},
	{op: "getConnectorOffsets", what: "no such connector", params: nobody, status: 404},
	{op: "alterConnectorOffsets", what: "no such connector", params: nobody, status: 404},
	{op: "alterConnectorOffsets", what: "one that runs", params: by{"connector": "orders-source"}, status: 400},
	{op: "resetConnectorOffsets", what: "no such connector", params: nobody, status: 404},
	{op: "resetConnectorOffsets", what: "one that runs", params: by{"connector": "orders-source"}, status: 400},
	{op: "getConnectorPluginConfig", what: "no such plugin", params: by{"plugin": "Nothing"}, status: 404},
	{op: "validateConnectorConfig", what: "no class", body: `{}`, status: 400},
	{op: "validateConnectorConfig", what: "another class", body: `{"connector.class":"PostgresSink"}`, status: 400},
	{op: "getLogger", what: "no such logger", params: by{"logger": "no.such"}, status: 404},
	{op: "setLogger", what: "no such level", body: `{"level":"LOUD"}`, status: 404},
}

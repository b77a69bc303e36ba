package server_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	instances = "/consumers/billing"
	v2Generic = "application/vnd.kafka.v2+json"
)

// restoreInstances makes the consumer instance that the examples name: c1 of billing, which is subscribed to orders and
// reads them from the start.
func (g *rig) restoreInstances(t *testing.T) {
	t.Helper()
	g.dropInstance(t, "c1")
	g.instance(t, `{"name":"c1","auto.offset.reset":"earliest","auto.commit.enable":false,`+
		`"consumer.request.timeout.ms":100}`, `{"topics":["orders"]}`)
}

// instance makes an instance of billing with a subscription, if there is one, and returns its id.
func (g *rig) instance(t *testing.T, config, subscription string) string {
	t.Helper()
	status, body := g.v2(t, "POST", instances, config)
	require.Equal(t, http.StatusOK, status, "%s", body)
	var made struct {
		ID string `json:"instance_id"`
	}
	require.NoError(t, json.Unmarshal(body, &made))
	if subscription != "" {
		status, body = g.v2(t, "POST", instances+"/instances/"+made.ID+"/subscription", subscription)
		require.Equal(t, http.StatusNoContent, status, "%s", body)
	}
	return made.ID
}

func (g *rig) dropInstance(t *testing.T, id string) {
	t.Helper()
	status, body := g.v2(t, "DELETE", instances+"/instances/"+id, "")
	require.Contains(t, []int{http.StatusNoContent, http.StatusNotFound}, status, "%s", body)
}

func (g *rig) v2(t *testing.T, method, path, body string) (int, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, g.node.URL()+path, bytes.NewReader([]byte(body)))
	require.NoError(t, err)
	r.Header.Set("Content-Type", v2Generic)
	resp, err := g.node.Client.Do(r)
	require.NoError(t, err)
	defer func() { require.NoError(t, resp.Body.Close()) }()
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, got
}

// withoutC1 makes room for the instance that an example makes.
func withoutC1(t *testing.T, g *rig, _ *request) { g.dropInstance(t, "c1") }

// bare makes the request one to an instance without a subscription.
func bare(t *testing.T, g *rig, q *request) { q.path["instance"] = g.instance(t, `{}`, "") }

// of makes the request one to an instance of a format. It begins at the end: the records of orders do not fit.
func of(format string) func(*testing.T, *rig, *request) {
	return func(t *testing.T, g *rig, q *request) {
		q.path["instance"] = g.instance(t, `{"format":"`+format+`","consumer.request.timeout.ms":50}`,
			`{"topics":["orders"]}`)
	}
}

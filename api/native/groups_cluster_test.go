package native_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/client"
	"millrace/server/servertest"
)

// Whichever node is asked, the groups are the same, wherever their coordinators are; and they stay when a coordinator
// stops.
func TestAnyNodeManagesGroups(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three nodes on real ports")
	}
	c := servertest.StartCluster(t, servertest.ClusterOptions{Broker: map[string]string{
		"offsets.topic.num.partitions": "6", "offsets.topic.replication.factor": "3", "default.replication.factor": "3",
	}})
	ask := func(node int, method, path, body string) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, c.URL(node)+path, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		resp, err := c.Client.Do(r)
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Less(t, resp.StatusCode, 300, "%s", text)
		return string(text)
	}
	ask(1, http.MethodPost, "/v1/topics", `{"name":"t","partitions":3}`)
	for i := range 9 {
		ask(1+i%3, http.MethodPost, fmt.Sprintf("/v1/topics/t/records?partition=%d", i%3), "1")
	}
	const groups = 12
	for i := range groups {
		ask(1+i%3, http.MethodPost, fmt.Sprintf("/v1/groups/g%d/offsets:reset", i), `{"offset":1,"topics":["t"]}`)
	}
	want := ask(1, http.MethodGet, "/v1/groups?lag=true", "")
	require.Equal(t, groups, strings.Count(want, `"lag":{"max_records":2,"partitions":3,"records":6,"unknown":0}`), want)
	require.Equal(t, want, ask(2, http.MethodGet, "/v1/groups?lag=true", ""))
	require.Equal(t, want, ask(3, http.MethodGet, "/v1/groups?lag=true", ""))

	where, err := client.New(c.Node(1).Requestor(), client.Options{}).Coordinators(t.Context(), []string{"g0"})
	require.NoError(t, err)
	gone := int(where["g0"])
	other := 1 + gone%3
	c.Stop(gone)
	require.Equal(t, want, ask(other, http.MethodGet, "/v1/groups?lag=true", ""))
	require.Contains(t, ask(other, http.MethodPost, "/v1/groups/g0/offsets:reset", `{"to":"latest"}`),
		`{"clamped":false,"from":1,"partition":0,"to":3,"topic":"t"}`)
	require.Contains(t, ask(other, http.MethodGet, "/v1/groups/g0/lag", ""), `"records":0`)
	ask(other, http.MethodDelete, "/v1/groups/g0", "")
	c.Start(gone)
	require.Equal(t, groups-1, strings.Count(ask(gone, http.MethodGet, "/v1/groups", ""), `"group":`))
}

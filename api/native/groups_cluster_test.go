package native_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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
	g := &crew{t, c, 3}
	ask := func(node int, method, path, body string) string {
		t.Helper()
		status, _, text := g.do(node, method, path, http.Header{"Content-Type": {"application/json"}}, body)
		require.Less(t, status, 300, text)
		return text
	}
	tells := func(node int, want string) { // leaders and coordinators may be on the move
		t.Helper()
		var got string
		until(t, func() bool {
			got = ask(node, http.MethodGet, "/v1/groups?lag=true", "")
			return got == want
		})
	}
	ask(1, http.MethodPost, "/v1/topics", `{"name":"t","partitions":3}`)
	for i := range 9 {
		ask(1+i%3, http.MethodPost, fmt.Sprintf("/v1/topics/t/records?partition=%d", i%3), "1")
	}
	const groups = 12
	for i := range groups {
		ask(1+i%3, http.MethodPost, fmt.Sprintf("/v1/groups/g%d/offsets:reset", i), `{"offset":1,"topics":["t"]}`)
	}
	var want string
	until(t, func() bool {
		want = ask(1, http.MethodGet, "/v1/groups?lag=true", "")
		return groups == strings.Count(want, `"lag":{"max_records":2,"partitions":3,"records":6,"unknown":0}`)
	})
	tells(2, want)
	tells(3, want)

	gone := g.coordinator(1, "g0")
	other := 1 + gone%3
	c.Stop(gone)
	tells(other, want)
	require.Contains(t, ask(other, http.MethodPost, "/v1/groups/g0/offsets:reset", `{"to":"latest"}`),
		`{"clamped":false,"from":1,"partition":0,"to":3,"topic":"t"}`)
	require.Contains(t, ask(other, http.MethodGet, "/v1/groups/g0/lag", ""), `"records":0`)
	ask(other, http.MethodDelete, "/v1/groups/g0", "")
	c.Start(gone)
	until(t, func() bool {
		return groups-1 == strings.Count(ask(gone, http.MethodGet, "/v1/groups", ""), `"group":`)
	})
}

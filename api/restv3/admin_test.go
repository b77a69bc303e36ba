package restv3_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/api/restv3"
)

func TestListClustersNamesTheOneServed(t *testing.T) {
	f := start(t, restv3.Options{})
	a := f.call("GET", "/v3/clusters", "")
	require.Equal(t, 200, a.status)
	require.Equal(t, "application/json", a.header.Get("Content-Type"))
	data := a.body["data"].([]any)
	require.Len(t, data, 1)
	fmt.Println(a.text)
	meta := data[0].(map[string]any)["metadata"].(map[string]any)
	require.Equal(t, "crn:///kafka="+clusterID, meta["resource_name"])
	require.Contains(t, a.text, `"next":null`)
	for _, p := range []string{"", "/brokers", "/broker-configs", "/topics", "/topics/orders", "/topics/orders/partitions/0/offset", "/topics/orders/configs/retention.ms"} {
		a := f.call("GET", at(p), "")
		fmt.Println(a.status, a.text)
	}
}

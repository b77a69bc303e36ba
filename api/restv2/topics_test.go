package restv2_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReadsDescribeTheCluster(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		a := f.get("/brokers")
		require.Equal(t, 200, a.status)
		require.Equal(t, genericType, a.header.Get("Content-Type"))
		require.JSONEq(t, `{"brokers":[`+f.broker+`]}`, a.text)
		require.JSONEq(t, `["orders","payments"]`, f.get("/topics").text)

		partition := `{"partition":0,"leader":` + f.broker + `,"replicas":[{"broker":` + f.broker +
			`,"leader":true,"in_sync":true}]}`
		require.JSONEq(t, "["+partition+"]", f.get("/topics/payments/partitions").text)
		require.JSONEq(t, partition, f.get("/topics/payments/partitions/0").text)

		var topic struct {
			Name       string            `json:"name"`
			Configs    map[string]string `json:"configs"`
			Partitions []any             `json:"partitions"`
		}
		f.get("/topics/orders").decode(t, &topic)
		require.Equal(t, "orders", topic.Name)
		require.Equal(t, "delete", topic.Configs["cleanup.policy"])
		require.Len(t, topic.Partitions, 3)
	}, "payments")
}

func TestOffsetsAreTheBounds(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		require.JSONEq(t, `{"beginning_offset":0,"end_offset":0}`, f.get("/topics/orders/partitions/1/offsets").text)
		f.produced("/topics/orders/partitions/1", jsonType, `{"records":[{"value":1},{"value":2}]}`)
		require.JSONEq(t, `{"beginning_offset":0,"end_offset":2}`, f.get("/topics/orders/partitions/1/offsets").text)
	})
}

func TestReadsRefuse(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		for _, c := range []struct {
			path         string
			status, code int
		}{
			{"/topics/none", 404, 40403},
			{"/topics/none/partitions", 404, 40403},
			{"/topics/none/partitions/0", 404, 40403},
			{"/topics/none/partitions/0/offsets", 404, 40403},
			{"/topics/orders/partitions/3", 404, 40402},
			{"/topics/orders/partitions/-1", 404, 40402},
			{"/topics/orders/partitions/3/offsets", 404, 40402},
			{"/topics/orders/partitions/x", 404, 404},
			{"/topics/orders/partitions/99999999999", 404, 404},
			{"/topics/..%2f..%2fetc", 400, 40002},
			{"/topics/a%20b", 400, 40002},
			{"/topics/%00", 400, 40002},
			{"/topics/orders/partitions/0/messages", 404, 404},
		} {
			t.Run(c.path, func(t *testing.T) {
				f := *f
				f.t = t
				f.refused(f.get(c.path), c.status, c.code, "")
			})
		}
		f.refused(f.get("/topics", "Accept", "text/plain"), 406, 406, "application/vnd.kafka.v2+json")
		a := f.call("DELETE", "/topics/orders", "", "")
		f.refused(a, 405, 405, "")
		require.Equal(t, "GET, HEAD, OPTIONS, POST", a.header.Get("Allow"))
	})
}

func TestReadsAcceptWhatTheyCanAnswer(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		for _, accept := range []string{
			"", "*/*", "application/*", "application/json", genericType, genericType + "; q=0.5",
			"application/vnd.kafka.json.v2+json, application/vnd.kafka.v2+json, application/json",
		} {
			a := f.get("/brokers", "Accept", accept)
			require.Equal(t, 200, a.status, accept)
		}
	})
}

package native_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/client"
)

// The other APIs serve a request with a key once too: what creates, and what produces in one answer.
func TestIdempotencyKeyOfOtherAPIs(t *testing.T) {
	e := onNode(t)
	cluster, err := e.client.Cluster(t.Context())
	require.NoError(t, err)
	const v2, jsonV2 = "application/vnd.kafka.v2+json", "application/vnd.kafka.json.v2+json"
	topics := "/v3/clusters/" + cluster.ID + "/topics"
	for name, c := range map[string]struct {
		path, contentType, body string
		status                  int
	}{
		"produce":        {"/topics/t", jsonV2, `{"records":[{"value":"once"}]}`, http.StatusOK},
		"to a partition": {"/topics/t3/partitions/1", jsonV2, `{"records":[{"value":"once"}]}`, http.StatusOK},
		"a record refused": {"/topics/t3", jsonV2, `{"records":[{"value":1,"partition":2},{"value":1,"partition":9}]}`,
			http.StatusOK},
		"no body":            {"/topics/t", jsonV2, `{`, http.StatusBadRequest},
		"instance":           {"/consumers/g", v2, `{"format":"json"}`, http.StatusOK},
		"instance of a name": {"/consumers/g", v2, `{"name":"one","format":"json"}`, http.StatusOK},
		"bad instance":       {"/consumers/g", v2, `{"format":"none"}`, http.StatusUnprocessableEntity},
		"topic":              {topics, "application/json", `{"topic_name":"made"}`, http.StatusCreated},
		"prefixed":           {"/kafka" + topics, "application/json", `{"topic_name":"made2"}`, http.StatusCreated},
		"topic that is":      {topics, "application/json", `{"topic_name":"t"}`, http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			first := e.keyed("key of "+name, c.path, c.contentType, c.body)
			require.Equal(t, c.status, first.status, first.body)
			require.Empty(t, first.header.Get("Idempotent-Replayed"))
			for range 2 {
				replayed(t, first, e.keyed("key of "+name, c.path, c.contentType, c.body))
			}
			reused := e.keyed("key of "+name, c.path, c.contentType, c.body+" ")
			require.Equal(t, http.StatusUnprocessableEntity, reused.status)
			require.Contains(t, reused.body, `"error_code":422`)
		})
	}
	require.Equal(t, []string{`"once"`}, e.values("t", 0))
	require.Equal(t, []string{`"once"`}, e.values("t3", 1))
	require.Equal(t, []string{"1"}, e.values("t3", 2))
	until(t, func() bool {
		return strings.Count(e.send(http.MethodGet, "/v1/groups/g", "").body, `"member":`) == 2
	})
	_, err = e.client.Topic(t.Context(), "made2", client.Refuse)
	require.NoError(t, err)
}

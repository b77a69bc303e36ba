package native_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/api"
	"millrace/client"
)

// call sends JSON and decodes the answer.
func (e *writes) call(method, path, body string, status int, answer any) reply {
	e.t.Helper()
	r := e.send(method, path, body, "Content-Type", "application/json")
	require.Equal(e.t, status, r.status, r.body)
	if answer != nil {
		require.Equal(e.t, "application/json", r.header.Get("Content-Type"))
		require.NoError(e.t, json.Unmarshal([]byte(r.body), answer), r.body)
	}
	return r
}

type topicItem struct {
	Name              string `json:"name"`
	Partitions        int    `json:"partitions"`
	ReplicationFactor int    `json:"replication_factor"`
	Internal          bool   `json:"internal"`
}

type topicPage struct {
	Items      []topicItem `json:"items"`
	NextCursor *string     `json:"next_cursor"`
}

type topicDetail struct {
	Name       string `json:"name"`
	ID         string `json:"id"`
	Partitions []struct {
		Partition      int32   `json:"partition"`
		Leader         int32   `json:"leader"`
		Replicas       []int32 `json:"replicas"`
		ISR            []int32 `json:"isr"`
		EarliestOffset *int64  `json:"earliest_offset"`
		LatestOffset   *int64  `json:"latest_offset"`
	} `json:"partitions"`
	Configs []struct {
		Name    string  `json:"name"`
		Value   *string `json:"value"`
		Source  string  `json:"source"`
		Default bool    `json:"default"`
	} `json:"configs"`
}

func (d topicDetail) config(name string) (value, source string) {
	for _, c := range d.Configs {
		if c.Name == name && c.Value != nil {
			return *c.Value, c.Source
		}
	}
	return "", ""
}

func TestListTopics(t *testing.T) {
	e := newWrites(t, api.Limits{})
	for i := range 5 {
		body := fmt.Sprintf(`{"name":"page-%d","partitions":2}`, i)
		e.call(http.MethodPost, "/v1/topics", body, http.StatusCreated, nil)
	}
	var names []string
	path := "/v1/topics?limit=3"
	for pages := 1; ; pages++ {
		var p topicPage
		e.call(http.MethodGet, path, "", http.StatusOK, &p)
		for _, item := range p.Items {
			names = append(names, item.Name)
		}
		if p.NextCursor == nil {
			require.Equal(t, 3, pages)
			break
		}
		require.Len(t, p.Items, 3)
		path = "/v1/topics?limit=3&cursor=" + *p.NextCursor
	}
	require.Equal(t, []string{"page-0", "page-1", "page-2", "page-3", "page-4", "t", "t3"}, names)
	var p topicPage
	e.call(http.MethodGet, "/v1/topics", "", http.StatusOK, &p)
	require.Len(t, p.Items, 7)
	require.Equal(t, topicItem{Name: "t3", Partitions: 3, ReplicationFactor: 1}, p.Items[6])
	for _, bad := range []string{"limit=0", "limit=1001", "limit=x", "cursor=*", "cursor=Li4", "internal=maybe"} {
		e.problem(e.send(http.MethodGet, "/v1/topics?"+bad, ""), 400, "INVALID_PARAMETER")
	}
}

func TestCreateTopic(t *testing.T) {
	e := newWrites(t, api.Limits{})
	var item topicItem
	r := e.call(http.MethodPost, "/v1/topics",
		`{"name":"orders","partitions":4,"replication_factor":1,"configs":{"retention.ms":"5000","segment.ms":null}}`,
		http.StatusCreated, &item)
	require.Equal(t, "/v1/topics/orders", r.header.Get("Location"))
	require.Equal(t, topicItem{Name: "orders", Partitions: 4, ReplicationFactor: 1}, item)
	var d topicDetail
	e.call(http.MethodGet, r.header.Get("Location"), "", http.StatusOK, &d)
	require.Len(t, d.Partitions, 4)
	value, source := d.config("retention.ms")
	require.Equal(t, "5000", value)
	require.Equal(t, "DYNAMIC_TOPIC_CONFIG", source)

	p := e.problem(e.send(http.MethodPost, "/v1/topics", `{"name":"orders"}`), 409, "TOPIC_ALREADY_EXISTS")
	require.EqualValues(t, 40002, p["error_code"])
	e.call(http.MethodPost, "/v1/topics?validate_only=true", `{"name":"checked"}`, http.StatusOK, &item)
	_, err := e.client.Topic(t.Context(), "checked", client.Refuse)
	require.Error(t, err)
	// A bare curl -d sends JSON under another name.
	curl := e.send(http.MethodPost, "/v1/topics", `{"name":"curl"}`,
		"Content-Type", "application/x-www-form-urlencoded")
	require.Equal(t, http.StatusCreated, curl.status, curl.body)
}

func TestManagementBodiesAreReadStrictly(t *testing.T) {
	e := newWrites(t, api.Limits{})
	const (
		topics  = "/v1/topics"
		remove  = "/v1/topics/t/records/delete"
		beyond  = "OFFSET_OUT_OF_RANGE"
		unknown = "UNKNOWN_TOPIC_OR_PARTITION"
	)
	for name, c := range map[string]struct {
		method, path, body string
		status             int
		fault, detail      string
	}{
		"empty":            {"POST", topics, ``, 400, malformed, "empty"},
		"not JSON":         {"POST", topics, `{name}`, 400, malformed, "byte 2"},
		"text behind":      {"POST", topics, `{"name":"x"} {}`, 400, malformed, "after the value"},
		"not an object":    {"POST", topics, `["x"]`, 400, malformed, "may not be a JSON array"},
		"deep":             {"POST", topics, strings.Repeat("[", 65) + "]", 400, malformed, "nested"},
		"invalid UTF-8":    {"POST", topics, "{\"name\":\"\xff\"}", 400, malformed, "UTF-8"},
		"unknown field":    {"POST", topics, `{"name":"x","partition":1}`, 422, noField, "partition"},
		"other case":       {"POST", topics, `{"Name":"x"}`, 422, noField, "Name"},
		"twice":            {"POST", topics, `{"name":"x","name":"y"}`, 400, malformed, "twice"},
		"config twice":     {"POST", topics, `{"name":"x","configs":{"a":"1","a":"2"}}`, 400, malformed, "configs.a"},
		"wrong type":       {"POST", topics, `{"name":1}`, 400, malformed, "name"},
		"number as text":   {"POST", topics, `{"name":"x","partitions":"1"}`, 400, malformed, "partitions"},
		"config a number":  {"POST", topics, `{"name":"x","configs":{"retention.ms":1}}`, 400, malformed, "configs"},
		"too large a one":  {"POST", topics, `{"name":"x","partitions":3000000000}`, 400, malformed, "32-bit"},
		"half a surrogate": {"POST", topics, `{"name":"\ud800"}`, 400, malformed, "surrogate"},
		"no name":          {"POST", topics, `{}`, 400, malformed, "name is missing"},
		"no partitions":    {"POST", topics, `{"name":"x","partitions":0}`, 400, malformed, "at least 1"},
		"factor":           {"POST", topics, `{"name":"x","replication_factor":40000}`, 400, malformed, "replication_factor"},
		"illegal name":     {"POST", topics, `{"name":"a/b"}`, 400, badName, "a/b"},
		"internal":         {"POST", topics, `{"name":"__consumer_offsets"}`, 400, badName, "the cluster's own"},
		"dots":             {"POST", topics, `{"name":".."}`, 400, badName, ".."},
		"change nothing":   {"PATCH", "/v1/topics/t", `{}`, 400, malformed, "neither"},
		"unknown topic":    {"PATCH", "/v1/topics/none", `{"partitions":9}`, 404, unknown, "none"},
		"fewer partitions": {"PATCH", "/v1/topics/t3", `{"partitions":1}`, 400, "INVALID_PARTITIONS", ""},
		"delete none":      {"POST", remove, `{}`, 400, malformed, "partitions"},
		"delete unknown":   {"POST", remove, `{"partitions":[{"partition":5}]}`, 404, unknown, ""},
		"delete twice":     {"POST", remove, `{"partitions":[{"partition":0},{"partition":0}]}`, 400, malformed, "twice"},
		"delete negative":  {"POST", remove, `{"partitions":[{"partition":0,"before_offset":-2}]}`, 400, malformed, "before"},
		"delete beyond": {"POST", remove, `{"partitions":[{"partition":0,"before_offset":9}]}`, 416, beyond,
			"from 0 up to, but not including, 0"},
		"unknown deletion": {"POST", remove, `{"partitions":[{"partition":0,"x":1}]}`, 422, noField, "unrecognized field"},
	} {
		t.Run(name, func(t *testing.T) {
			e.t = t
			p := e.problem(e.send(c.method, c.path, c.body, "Content-Type", "application/json"), c.status, c.fault)
			require.Contains(t, strings.ToLower(p["detail"].(string)), strings.ToLower(c.detail))
		})
	}
}

// What stands around a management body is read as strictly.
func TestManagementRequestsAreReadStrictly(t *testing.T) {
	e := newWrites(t, api.Limits{})
	e.problem(e.send("POST", "/v1/topics", "<x/>", "Content-Type", "text/xml"), 415, "UNSUPPORTED_MEDIA_TYPE")
	e.problem(e.send("POST", "/v1/topics", `{"name":"`+strings.Repeat("x", 1<<20+1000)+`"}`), 413, "BODY_TOO_LARGE")
	for query, detail := range map[string]string{
		"validate_only=maybe": `Parameter validate_only="maybe": want true or false`, "%zz": `begins no escape`,
		"validate_only=%zz": `begins no escape`,
	} {
		p := e.problem(e.send("POST", "/v1/topics?"+query, `{"name":"x"}`), 400, "INVALID_PARAMETER")
		require.Contains(t, p["detail"], detail)
	}
	for query, detail := range map[string]string{
		"internal=yes": "want true or false", "limit=x": "want a whole number from 1 to 1000",
		"limit=": "want a whole number",
	} {
		p := e.problem(e.send("GET", "/v1/topics?"+query, ""), 400, "INVALID_PARAMETER")
		require.Contains(t, p["detail"], detail)
		require.NotContains(t, p["detail"], "strconv")
	}
	for _, path := range []string{"/v1/topics/t/records?wait=%zz", "/v1/topics/t/partitions/0/records?%zz"} {
		p := e.problem(e.send("GET", path, ""), 400, "INVALID_PARAMETER")
		require.Contains(t, p["detail"], "begins no escape")
	}
	p := e.problem(e.send("POST", "/v1/topics/__consumer_offsets/records", "1"), 400, "INVALID_TOPIC_EXCEPTION")
	require.Contains(t, p["detail"], "the cluster's own")
}

func TestDescribeUpdateDeleteTopic(t *testing.T) {
	e := newWrites(t, api.Limits{})
	e.stored(e.post(path, "text/plain", "v"))
	var d topicDetail
	e.call(http.MethodGet, "/v1/topics/t", "", http.StatusOK, &d)
	require.Len(t, d.ID, 36)
	require.Len(t, d.Partitions, 1)
	require.EqualValues(t, 0, *d.Partitions[0].EarliestOffset)
	require.EqualValues(t, 1, *d.Partitions[0].LatestOffset)
	require.NotEmpty(t, d.Configs)

	e.call(http.MethodPatch, "/v1/topics/t?validate_only=true", `{"partitions":2}`, http.StatusOK, &d)
	require.Len(t, d.Partitions, 1)
	e.call(http.MethodPatch, "/v1/topics/t", `{"partitions":2,"configs":{"retention.ms":"1000"}}`, http.StatusOK, &d)
	require.Len(t, d.Partitions, 2)
	e.call(http.MethodPatch, "/v1/topics/t", `{"partitions":2}`, http.StatusOK, &d)
	require.Len(t, d.Partitions, 2, "as asked, though nothing was to be done")
	value, _ := d.config("retention.ms")
	require.Equal(t, "1000", value)
	e.call(http.MethodPatch, "/v1/topics/t", `{"configs":{"retention.ms":null}}`, http.StatusOK, &d)
	_, source := d.config("retention.ms")
	require.NotEqual(t, "DYNAMIC_TOPIC_CONFIG", source)

	var starts struct {
		Partitions []struct {
			Partition      int32 `json:"partition"`
			LogStartOffset int64 `json:"log_start_offset"`
		} `json:"partitions"`
	}
	e.call(http.MethodPost, "/v1/topics/t/records/delete", `{"partitions":[{"partition":0}]}`, http.StatusOK, &starts)
	require.EqualValues(t, 1, starts.Partitions[0].LogStartOffset)

	require.Equal(t, http.StatusNoContent, e.send(http.MethodDelete, "/v1/topics/t", "").status)
	e.problem(e.send(http.MethodDelete, "/v1/topics/t", ""), 404, "UNKNOWN_TOPIC_OR_PARTITION")
	p := e.problem(e.send(http.MethodGet, "/v1/topics/t", ""), 404, "UNKNOWN_TOPIC_OR_PARTITION")
	require.EqualValues(t, 40403, p["error_code"])
	e.problem(e.send(http.MethodGet, "/v1/topics/%2e%2e", ""), 400, "INVALID_TOPIC_EXCEPTION")
}

func TestListErrors(t *testing.T) {
	e := newWrites(t, api.Limits{})
	var all struct {
		Items []struct {
			Name      string `json:"name"`
			Status    int    `json:"status"`
			ErrorCode int    `json:"error_code"`
			KafkaCode *int   `json:"kafka_code"`
			Advice    string `json:"advice"`
		} `json:"items"`
	}
	e.call(http.MethodGet, "/v1/errors", "", http.StatusOK, &all)
	require.Greater(t, len(all.Items), 140)
	e.call(http.MethodGet, "/v1/errors?name=UNKNOWN_TOPIC_OR_PARTITION", "", http.StatusOK, &all)
	require.Len(t, all.Items, 1)
	require.Equal(t, 3, *all.Items[0].KafkaCode)
	e.problem(e.send(http.MethodGet, "/v1/errors?name=NO_SUCH", ""), 404, "NOT_FOUND")
}

func TestPathsAndMethodsOfV1(t *testing.T) {
	e := newWrites(t, api.Limits{})
	e.problem(e.send(http.MethodGet, "/v1/nothing", ""), 404, "NOT_FOUND")
	r := e.send(http.MethodPut, "/v1/topics/t/records", "")
	e.problem(r, 405, "METHOD_NOT_ALLOWED")
	require.Equal(t, []string{"GET, HEAD, OPTIONS, POST"}, r.header["Allow"])
}

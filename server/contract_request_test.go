package server_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"millrace/client"
	"millrace/record"
	"millrace/schemaregistry"
	"millrace/server"
	"millrace/server/servertest"
	"millrace/storage/storagetest"
)

// rig is a real node, and what requests made from the contract need to know of it.
type rig struct {
	*contract
	node    *servertest.Node
	txn     string // the transactional id in place of the one in the examples, its epoch is 0
	txns    int    // how many there were
	cluster string // the node's cluster id, in place of the one in the examples
	clean   bool   // nothing has changed the node since restore
	seen    map[string]bool
}

func newRig(t *testing.T) *rig {
	t.Helper()
	g := &rig{contract: loadContract(t), seen: map[string]bool{}}
	g.node = servertest.Start(t, servertest.Options{ // in memory, since a sync takes long
		Disk: storagetest.New(), Change: func(c *server.Config) {
			c.Broker = map[string]string{
				"offsets.topic.num.partitions": "1", "group.consumer.assignment.interval.ms": "0",
				"connect.config.providers.env.allowlist.pattern": "SHOP_.*",
				"consumer.instance.timeout.ms":                   "1800000", // longer than the tests take
			}
			exampleConnectors(c)
		},
	})
	var clusters struct {
		Data []struct {
			ID string `json:"cluster_id"`
		}
	}
	g.call(t, "GET", "/v3/clusters", nil, &clusters)
	require.Len(t, clusters.Data, 1)
	g.cluster = clusters.Data[0].ID
	g.call(t, "POST", "/v1/topics", map[string]any{"name": "orders"}, nil)
	warm := g.request(t, g.op(t, "runTransaction")) // makes the topics that the cluster needs for itself
	g.set(t, warm, warm.op.param("Idempotency-Key"))
	require.Equal(t, http.StatusOK, g.send(t, warm).status)
	return g
}

// restore brings the node into the state that the examples are written for: a topic `orders` of one partition with four
// records, the last by the producer `till-9`, the groups `reports` and `audit`, a broker config that was set for the
// cluster and for the broker, and nothing else.
func (g *rig) restore(t *testing.T) {
	t.Helper()
	if g.clean {
		return
	}
	g.clearTopics(t)
	g.call(t, "POST", "/v1/topics", map[string]any{"name": "orders", "partitions": 1}, nil)
	for i, key := range []string{"customer-7", "customer-8", "customer-7"} {
		g.call(t, "POST", "/v1/topics/orders/records?key="+key, map[string]int{"order": i}, nil)
	}
	g.call(t, "POST", "/v1/topics", map[string]any{
		"name": "customers", "configs": map[string]string{"cleanup.policy": "compact"},
	}, nil)
	g.call(t, "POST", "/v1/topics/customers/records?key=customer-7", map[string]string{"name": "Ada"}, nil)
	last := g.request(t, g.op(t, "produceRecords"))
	last.header = http.Header{"Producer-Id": {"till-9"}, "Producer-Epoch": {"3"}, "Producer-Seq": {"0"}}
	require.Equal(t, http.StatusOK, g.send(t, last).status)
	for _, configs := range []string{"/broker-configs/", "/brokers/1/configs/"} {
		path := "/v3/clusters/" + g.cluster + configs + "message.max.bytes"
		g.call(t, "PUT", path, map[string]string{"value": "2097164"}, nil)
	}
	g.restoreGroups(t)
	g.restoreInstances(t)
	g.restoreTransactions(t)
	g.restoreRegistry(t)
	g.restoreConnectors(t)
	g.clean = true
}

// clear deletes all topics, with which goes what groups have committed, and all connectors.
func (g *rig) clear(t *testing.T) {
	t.Helper()
	g.clearTopics(t)
	g.deleteConnectors(t)
}

// clearTopics deletes all topics but those in which workers keep what they share.
func (g *rig) clearTopics(t *testing.T) {
	t.Helper()
	var topics struct{ Items []struct{ Name string } }
	g.call(t, "GET", "/v1/topics", nil, &topics)
	for _, topic := range topics.Items {
		if ofConnect(topic.Name) {
			continue
		}
		if topic.Name == schemaregistry.DefaultTopic { // which clients cannot delete
			require.NoError(t, client.New(g.node.Requestor(), client.Options{}).DeleteTopic(t.Context(), topic.Name))
			continue
		}
		g.call(t, "DELETE", "/v1/topics/"+topic.Name, nil, nil)
	}
	g.clean = false
}

// call makes a request that must succeed.
func (g *rig) call(t *testing.T, method, path string, body, into any) {
	t.Helper()
	var text []byte
	if body != nil {
		var err error
		text, err = json.Marshal(body)
		require.NoError(t, err)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, g.node.URL()+path, bytes.NewReader(text))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	resp, err := g.node.Client.Do(r)
	require.NoError(t, err)
	defer func() { require.NoError(t, resp.Body.Close()) }()
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Less(t, resp.StatusCode, 300, "%s %s: %s", method, path, got)
	if into != nil {
		require.NoError(t, json.Unmarshal(got, into), "%s %s: %s", method, path, got)
	}
}

// request is a request for an operation. Its parts can be changed before it is sent.
type request struct {
	op     *operation
	method string
	path   map[string]string // path parameters, as they are before encoding
	query  url.Values
	header http.Header
	body   []byte
}

// request is the plainest good request for an operation: the required parameters, and the first example of a body.
func (g *rig) request(t *testing.T, op *operation) *request {
	t.Helper()
	q := &request{op: op, method: op.method, path: map[string]string{}, query: url.Values{}, header: http.Header{}}
	for _, p := range op.params {
		if p.Required || slices.Contains(needed[op.OperationID], p.Name) {
			g.set(t, q, p)
		}
	}
	if op.RequestBody != nil {
		mediaType := plainest(op.RequestBody.Value.Content)
		q.header.Set("Content-Type", mediaType)
		q.body = bodies(t, mediaType, op.RequestBody.Value.Content[mediaType])[0].text
	}
	return q
}

// plainest is the media type that most clients would send.
func plainest(content openapi3.Content) string {
	if content["application/json"] != nil {
		return "application/json"
	}
	return slices.Sorted(maps.Keys(content))[0]
}

// companions are the parameters that only mean something together with others.
var companions = map[string][]string{
	"Producer-Id":     {"Producer-Seq"},
	"Producer-Seq":    {"Producer-Id"},
	"Producer-Epoch":  {"Producer-Id", "Producer-Seq"},
	"Expected-Offset": {"partition"},
}

// companionsOf are the companions of a parameter.
func companionsOf(op *operation, p *openapi3.Parameter) []string {
	if op.OperationID == "getV2Committed" && p.In == "query" { // pairs
		return map[string][]string{"topic": {"partition"}, "partition": {"topic"}}[p.Name]
	}
	if op.OperationID == "getSchemaByMetadata" { // pairs
		return map[string][]string{"key": {"value"}, "value": {"key"}}[p.Name]
	}
	if op.OperationID == "produceRecordsInTransaction" { // whose producer is that of the transaction
		return nil
	}
	return companions[p.Name]
}

// needed are the parameters that are not required and that a request is no good, or slow, without.
var needed = map[string][]string{
	"readGroupRecords": {"topics", "session", "wait"}, "produceRecordsInTransaction": {"topic"},
}

// set gives a parameter the value of its example, and others that belong to it theirs.
func (g *rig) set(t *testing.T, q *request, p *openapi3.Parameter) {
	t.Helper()
	q.put(p, g.example(t, p))
	for _, name := range companionsOf(q.op, p) {
		other := q.op.param(name)
		require.NotNil(t, other, "%s has no parameter %s", q.op, name)
		q.put(other, g.example(t, other))
	}
}

// put gives a parameter a value.
func (q *request) put(p *openapi3.Parameter, value string) {
	switch p.In {
	case "path":
		q.path[p.Name] = value
	case "query":
		q.query.Set(p.Name, value)
	default:
		q.header.Set(p.Name, value)
	}
}

func (g *rig) example(t *testing.T, p *openapi3.Parameter) string {
	t.Helper()
	if own, ok := g.ofItsOwn(p.Name); ok {
		return own
	}
	v := p.Example
	for _, name := range slices.Sorted(maps.Keys(p.Examples)) {
		v = p.Examples[name].Value.Value
		break
	}
	require.NotNil(t, v, "parameter %s has no example", p.Name)
	if list, ok := v.([]any); ok { // of which one is enough
		v = list[0]
	}
	if text, ok := v.(string); ok {
		return text
	}
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}

// example is a body.
type example struct {
	name string
	text []byte
}

// bodies are the examples of a body, at least one. What YAML cannot hold is made here.
func bodies(t *testing.T, mediaType string, m *openapi3.MediaType) []example {
	t.Helper()
	values := map[string]any{}
	isJSON := strings.HasSuffix(mediaType, "json") && m.Schema.Value.Type != nil && !m.Schema.Value.Type.Is("string")
	for name, e := range m.Examples {
		values[name] = e.Value.Value
	}
	if m.Example != nil {
		values["example"] = m.Example
	}
	var out []example
	for _, name := range slices.Sorted(maps.Keys(values)) {
		text, isText := values[name].(string)
		if !isText || isJSON {
			b, err := json.Marshal(values[name])
			require.NoError(t, err)
			text = string(b)
		}
		out = append(out, example{name, []byte(text)})
	}
	switch {
	case len(out) > 0:
	case mediaType == "application/vnd.apache.kafka.recordbatch":
		out = []example{{"built", batch("batch")}}
	case m.Schema.Value.Format == "binary":
		out = []example{{"bytes", []byte{0, 0xff, 0xfe}}}
	default:
		require.Fail(t, "a body has no example", mediaType)
	}
	return out
}

// batch is a batch of one record.
func batch(value string) []byte {
	var b record.Builder
	b.Append(&record.Record{Timestamp: 1767319445678, Value: []byte(value)})
	return bytes.Clone(b.Build())
}

func (q *request) clone() *request {
	c := *q
	c.path, c.query, c.header = maps.Clone(q.path), maps.Clone(q.query), q.header.Clone()
	return &c
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   []byte // of a stream without end, its beginning with one event at least
}

// patience bounds a request of the tests.
const patience = 45 * time.Second

// send sends the request. A live stream is cut by its context once an event has come.
func (g *rig) send(t *testing.T, q *request) *answer {
	t.Helper()
	if q.method != http.MethodGet {
		g.clean = false
	}
	ctx, cut := context.WithTimeout(t.Context(), patience)
	defer cut()
	resp, err := g.node.Client.Do(q.http(ctx, t, g.node.URL()))
	require.NoError(t, err, "%s: no answer", q)
	defer func() { _ = resp.Body.Close() }()
	a := &answer{status: resp.StatusCode, header: resp.Header}
	if q.method == http.MethodGet && strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		var read bytes.Buffer
		_, err = readEvents(io.TeeReader(resp.Body, &read), 1)
		cut()
		whole := bytes.LastIndex(read.Bytes(), []byte("\n\n")) // the rest was read ahead of its end
		a.body = read.Bytes()[:whole+2]
	} else {
		a.body, err = io.ReadAll(resp.Body)
	}
	require.NoError(t, err, "%s: the answer breaks off", q)
	return a
}

func (q *request) http(ctx context.Context, t *testing.T, base string) *http.Request {
	t.Helper()
	path := q.op.path
	for name, v := range q.path {
		path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(v))
	}
	if len(q.query) > 0 {
		path += "?" + q.query.Encode()
	}
	var body io.Reader
	if q.body != nil {
		body = bytes.NewReader(q.body)
	}
	r, err := http.NewRequestWithContext(ctx, q.method, base+path, body)
	require.NoError(t, err)
	r.Header = q.header.Clone()
	return r
}

func (q *request) String() string {
	return fmt.Sprintf("%s: %s %s %v ?%s %v %.200q", q.op, q.method, q.op.path, q.path, q.query.Encode(), q.header, q.body)
}

// compress makes the body fit a Content-Encoding that was set.
func (q *request) compress(t *testing.T) {
	t.Helper()
	require.Equal(t, "gzip", q.header.Get("Content-Encoding"))
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(q.body)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	q.body = out.Bytes()
}

// event is a server-sent event.
type event struct{ id, name, data string }

// readEvents reads so many events that carry data, or all there are if n is negative.
func readEvents(r io.Reader, n int) ([]event, error) {
	var out []event
	var e event
	lines := bufio.NewScanner(r)
	for len(out) != n && lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			e.id = value
		case "event":
			e.name = value
		case "data":
			e.data += value
		case "": // a comment, or the end of an event
			if lines.Text() == "" && e.data != "" {
				out = append(out, e)
				e = event{}
			}
		case "retry":
		default:
			return out, fmt.Errorf("a line of the event stream is none of its fields: %q", lines.Text())
		}
	}
	return out, lines.Err()
}

package restv2_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"millrace/api"
	"millrace/api/restv2"
	"millrace/client"
	"millrace/record"
	"millrace/server/servertest"
)

func TestMain(m *testing.M) { servertest.VerifyNoLeaks(m) }

const (
	genericType = "application/vnd.kafka.v2+json"
	jsonType    = "application/vnd.kafka.json.v2+json"
	binaryType  = "application/vnd.kafka.binary.v2+json"
)

// fixture is the API on a cluster of one broker, behind a real listener.
type fixture struct {
	t      *testing.T
	url    string
	broker string // the one broker's id
	client *client.Client
	http   *http.Client

	cluster *kfake.Cluster   // nil on a node of ours
	node    *servertest.Node // nil on a double of Kafka
}

// each runs a test on a double of Kafka and on a node of ours. Both have a topic orders with three
// partitions, and further ones with one.
func each(t *testing.T, test func(t *testing.T, f *fixture), topics ...string) {
	t.Run("kfake", func(t *testing.T) { test(t, start(t, kfake.SeedTopics(1, topics...))) })
	t.Run("node", func(t *testing.T) { test(t, startNode(t, topics...)) })
}

func startNode(t *testing.T, topics ...string) *fixture {
	t.Helper()
	n := servertest.Start(t, servertest.Options{})
	c := client.New(n.Requestor(), client.Options{})
	f := &fixture{t: t, url: n.URL(), broker: "1", client: c, http: n.Client, node: n}
	for _, name := range append(topics, "orders") {
		of := client.NewTopic{Name: name, Partitions: 1, ReplicationFactor: -1}
		if name == "orders" {
			of.Partitions = 3
		}
		_, err := f.client.CreateTopic(t.Context(), of)
		require.NoError(t, err)
	}
	return f
}

func start(t *testing.T, with ...kfake.Opt) *fixture {
	t.Helper()
	opts := append([]kfake.Opt{kfake.NumBrokers(1), kfake.DefaultNumPartitions(3), kfake.SeedTopics(3, "orders")}, with...)
	cluster := kfake.MustCluster(opts...)
	t.Cleanup(cluster.Close)
	kc, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	require.NoError(t, err)
	t.Cleanup(kc.Close)
	c := client.New(kc.Broker(0), client.Options{})
	edge, err := api.NewEdge(api.Options{Client: c, Pool: record.NewPool(1 << 20)})
	require.NoError(t, err)
	srv := httptest.NewServer(api.NewRouter(edge, restv2.New(edge, c, restv2.Options{}).Mount))
	t.Cleanup(srv.Close)
	return &fixture{t: t, url: srv.URL, broker: "0", client: c, http: srv.Client(), cluster: cluster}
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	text   string
}

func (a answer) decode(t *testing.T, v any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(a.text), v), a.text)
}

func (f *fixture) call(method, path, contentType, body string, header ...string) answer {
	f.t.Helper()
	req, err := http.NewRequest(method, f.url+path, strings.NewReader(body))
	require.NoError(f.t, err)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := f.http.Do(req)
	require.NoError(f.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(f.t, err)
	return answer{resp.StatusCode, resp.Header, string(text)}
}

func (f *fixture) get(path string, header ...string) answer {
	f.t.Helper()
	return f.call("GET", path, "", "", header...)
}

// refused requires an error body with the given status and number, and a text that holds part.
func (f *fixture) refused(a answer, status, code int, part string) {
	f.t.Helper()
	require.Equal(f.t, status, a.status, a.text)
	require.Equal(f.t, genericType, a.header.Get("Content-Type"))
	var body struct {
		ErrorCode int    `json:"error_code"`
		Message   string `json:"message"`
	}
	a.decode(f.t, &body)
	require.Equal(f.t, code, body.ErrorCode, a.text)
	require.Contains(f.t, body.Message, part)
}

// outcome is one element of offsets.
type outcome struct {
	Partition *int32  `json:"partition"`
	Offset    *int64  `json:"offset"`
	ErrorCode *int    `json:"error_code"`
	Error     *string `json:"error"`
}

// produced sends records and requires the answer's shape.
func (f *fixture) produced(path, contentType, body string) []outcome {
	f.t.Helper()
	a := f.call("POST", path, contentType, body)
	require.Equal(f.t, 200, a.status, a.text)
	require.Equal(f.t, genericType, a.header.Get("Content-Type"))
	var out struct {
		Offsets       []outcome       `json:"offsets"`
		KeySchemaID   json.RawMessage `json:"key_schema_id"`
		ValueSchemaID json.RawMessage `json:"value_schema_id"`
	}
	a.decode(f.t, &out)
	require.Equal(f.t, "null", string(out.KeySchemaID))
	require.Equal(f.t, "null", string(out.ValueSchemaID))
	return out.Offsets
}

// stored reads a partition from its start.
func (f *fixture) stored(topic string, partition int32) []record.Record {
	f.t.Helper()
	meta, err := f.client.Topic(f.t.Context(), topic, client.Refuse)
	require.NoError(f.t, err)
	var out []record.Record
	for offset := int64(0); ; {
		got, err := f.client.Fetch(f.t.Context(), client.FetchRequest{
			Topic: meta, MaxBytes: 64 << 20, Partitions: []client.FetchPartition{{Partition: partition, Offset: offset}},
		})
		require.NoError(f.t, err)
		require.NoError(f.t, got[0].Err)
		if len(got[0].Batches) == 0 {
			return out
		}
		for rest := got[0].Batches; len(rest) > 0; {
			var b record.Batch
			b, rest, err = record.Next(rest)
			require.NoError(f.t, err)
			require.NoError(f.t, b.Verify())
			rd := record.NewReader(b, 64<<20)
			var r record.Record
			for rd.Next(&r) {
				out = append(out, record.Record{
					Offset: r.Offset, Timestamp: r.Timestamp, Key: clone(r.Key), Value: clone(r.Value),
				})
			}
			require.NoError(f.t, rd.Err())
			rd.Close()
			offset = b.NextOffset()
		}
	}
}

func clone(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append([]byte{}, b...)
}

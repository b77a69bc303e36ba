package restv3_test

import (
	"bytes"
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
	"millrace/api/restv3"
	"millrace/client"
	"millrace/record"
	"millrace/server/servertest"
)

// clusterID is the id of the doubles of Kafka in these tests.
const clusterID = "MkU3OEVBNTcwNTJENDM2Qg"

// fixture is the API on a cluster of one broker, behind a real listener.
type fixture struct {
	t      *testing.T
	url    string
	id     string // of the cluster
	broker string // its one broker's id
	client *client.Client
	http   *http.Client

	cluster *kfake.Cluster // nil on a node of ours
}

// at is a path below the cluster, in which {b} stands for the broker's id.
func (f *fixture) at(path string) string {
	return "/v3/clusters/" + f.id + strings.ReplaceAll(path, "{b}", f.broker)
}

// each runs a test on a double of Kafka and on a node of ours. Both have a topic orders with three
// partitions, and further ones with one.
func each(t *testing.T, test func(t *testing.T, f *fixture), topics ...string) {
	t.Run("kfake", func(t *testing.T) { test(t, start(t, restv3.Options{}, kfake.SeedTopics(1, topics...))) })
	t.Run("node", func(t *testing.T) { test(t, startNode(t, topics...)) })
}

func startNode(t *testing.T, topics ...string) *fixture {
	t.Helper()
	n := servertest.Start(t, servertest.Options{})
	f := &fixture{t: t, url: n.URL(), broker: "1", client: client.New(n.Requestor(), client.Options{}), http: n.Client}
	cluster, err := f.client.Cluster(t.Context())
	require.NoError(t, err)
	f.id = cluster.ID
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

func start(t *testing.T, o restv3.Options, with ...kfake.Opt) *fixture {
	t.Helper()
	return startWith(t, o, setup{}, with...)
}

// setup is what a test changes of the HTTP side before it starts.
type setup struct {
	edge func(*api.Options)
	srv  func(*httptest.Server) // starts it
}

func startWith(t *testing.T, o restv3.Options, s setup, with ...kfake.Opt) *fixture {
	t.Helper()
	opts := append([]kfake.Opt{
		kfake.NumBrokers(1), kfake.ClusterID(clusterID), kfake.AllowAutoTopicCreation(), kfake.DefaultNumPartitions(3),
		kfake.SeedTopics(3, "orders"),
	}, with...)
	cluster := kfake.MustCluster(opts...)
	t.Cleanup(cluster.Close)
	kc, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	require.NoError(t, err)
	t.Cleanup(kc.Close)
	c := client.New(kc.Broker(0), client.Options{})
	of := api.Options{Client: c, Pool: record.NewPool(1 << 20)}
	if s.edge != nil {
		s.edge(&of)
	}
	edge, err := api.NewEdge(of)
	require.NoError(t, err)
	srv := httptest.NewUnstartedServer(api.NewRouter(edge, restv3.New(edge, c, o).Mount))
	if s.srv == nil {
		s.srv = (*httptest.Server).Start
	}
	s.srv(srv)
	t.Cleanup(srv.Close)
	return &fixture{t: t, url: srv.URL, id: clusterID, broker: "0", client: c, http: srv.Client(), cluster: cluster}
}

// answer is what came back, its body read as JSON if there was one.
type answer struct {
	status int
	header http.Header
	text   string
	body   map[string]any
}

// errorCode is the number of an error body.
func (a answer) errorCode() int {
	n, _ := a.body["error_code"].(float64)
	return int(n)
}

func (a answer) message() string { s, _ := a.body["message"].(string); return s }

// call sends a request with a JSON body, or without one if body is empty.
func (f *fixture) call(method, path, body string, header ...string) answer {
	f.t.Helper()
	return f.do(f.request(method, path, body, header...))
}

func (f *fixture) request(method, path, body string, header ...string) *http.Request {
	f.t.Helper()
	if !strings.HasPrefix(path, "http") {
		path = f.url + path
	}
	var from io.Reader
	if body != "" {
		from = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, path, from)
	require.NoError(f.t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return req
}

func (f *fixture) do(req *http.Request) answer {
	f.t.Helper()
	resp, err := f.http.Do(req)
	require.NoError(f.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(f.t, err)
	out := answer{status: resp.StatusCode, header: resp.Header, text: string(text)}
	if len(text) > 0 && text[0] == '{' {
		_ = json.NewDecoder(bytes.NewReader(text)).Decode(&out.body)
	}
	return out
}

// refused requires an error body with the given status and number.
func (f *fixture) refused(a answer, status, code int, text string) {
	f.t.Helper()
	require.Equal(f.t, status, a.status, a.text)
	require.Equal(f.t, "application/json", a.header.Get("Content-Type"), a.text)
	require.Equal(f.t, code, a.errorCode(), a.text)
	require.Contains(f.t, a.message(), text)
}

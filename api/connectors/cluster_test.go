package connectors_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/server/servertest"
)

// Every call sent to every node of three gives the same answer, and each node sees at once what another did.
func TestAnyNodeAnswersAlike(t *testing.T) {
	c := servertest.StartCluster(t, servertest.ClusterOptions{
		Broker:     map[string]string{"offsets.topic.num.partitions": "3", "connect.session.timeout.ms": patientSession},
		Connectors: classes(),
	})
	nodes := make([]*fixture, 3)
	for i := range nodes {
		nodes[i] = &fixture{t, c.URL(i + 1), c.Client}
	}
	for i, f := range nodes {
		name := string(rune('a' + i))
		f.run(step{"POST /connectors", `{"name":"` + name + `","config":{` + source + `,"tasks.max":2}}`, 201, ``})
		for _, g := range nodes {
			g.run(
				step{"GET /connectors/" + name + "/config", "", 200, `{"tasks.max":"2"}`},
				step{"POST /connectors", `{"name":"` + name + `","config":{` + source + `}}`, 409, "already"},
			)
		}
		nodes[(i+1)%3].await("/connectors/"+name+"/status",
			`{"connector":{"state":"RUNNING"},"tasks":[{"state":"RUNNING"},{"state":"RUNNING"}]}`)
		nodes[(i+1)%3].run(step{"PATCH /connectors/" + name + "/config", `{"mode":"slow"}`, 200, ``})
		nodes[(i+2)%3].run(
			step{"GET /connectors/" + name, "", 200, `{"config":{"mode":"slow"}}`},
			step{"PUT /connectors/" + name + "/stop", "", 204, ``},
		)
		f.run(step{"GET /connectors/" + name + "/tasks", "", 200, `[]`})
		f.await("/connectors/"+name+"/status", `{"connector":{"state":"STOPPED"},"tasks":[]}`)
	}
	for _, request := range []string{
		"GET /connectors", "GET /connectors?expand=info&expand=status", "GET /connectors/a", "GET /connectors/a/config",
		"GET /connectors/a/status", "GET /connectors/a/tasks", "GET /connectors/a/tasks-config", "GET /connectors/a/offsets",
		"GET /connectors/a/topics", "GET /connectors/a/tasks/0/status", "GET /connectors/nobody/status",
		"GET /connector-plugins", "GET /connector-plugins?connectorsOnly=false", "GET /connector-plugins/CountSource/config",
		"DELETE /connectors/nobody", "PUT /connectors/nobody/stop",
	} {
		same(t, nodes, request)
	}
	// What is set through one node is deleted through the next, and gone for the third.
	for i, f := range nodes {
		name := string(rune('a' + i))
		nodes[(i+1)%3].run(step{"DELETE /connectors/" + name, "", 204, ``})
		f.run(step{"GET /connectors/" + name, "", 404, ``}, step{"DELETE /connectors/" + name, "", 404, ``})
	}
	nodes[0].run(step{"PUT /admin/loggers/connect?scope=cluster", `{"level":"ERROR"}`, 204, ``})
	for _, f := range nodes {
		f.await("/admin/loggers/connect", `{"level":"ERROR"}`)
		f.await("/health", `{"status":"healthy"}`)
	}
}

// same sends a request to all nodes until their answers are equal, which they are at once but for what tasks do
// meanwhile.
func same(t *testing.T, nodes []*fixture, request string) {
	t.Helper()
	method, path, _ := strings.Cut(request, " ")
	var got []string
	equal := func() bool {
		got = nil
		for _, f := range nodes {
			a := f.send(method, path, "")
			got = append(got, http.StatusText(a.status)+" "+a.text)
		}
		return len(slices.Compact(slices.Clone(got))) == 1
	}
	defer func() {
		if t.Failed() {
			t.Logf("%s: %q", request, got)
		}
	}()
	require.Eventually(t, equal, patience, 20*time.Millisecond, request)
}

// While a node dies, the others answer, with nothing but success or that it is too early, and then run what it ran.
func TestNodeLossIsNoFault(t *testing.T) {
	for what, end := range map[string]func(c *servertest.Cluster) error{
		"stopped": func(c *servertest.Cluster) error { return c.Node(3).Close() },
		"killed":  func(c *servertest.Cluster) error { return c.Node(3).Kill() },
	} {
		t.Run(what, func(t *testing.T) { testNodeLoss(t, end) })
	}
}

// testNodeLoss asks for everything while a node ends, and then for all of its tasks to run elsewhere. That takes
// leaders of the partitions that they write to.
func testNodeLoss(t *testing.T, end func(c *servertest.Cluster) error) {
	t.Helper()
	c := servertest.StartCluster(t, servertest.ClusterOptions{
		Broker: map[string]string{
			"offsets.topic.num.partitions": "3", "connect.session.timeout.ms": "5000", "default.replication.factor": "3",
		},
		Connectors: classes(),
	})
	f := &fixture{t, c.URL(1), c.Client}
	f.run(step{"POST /connectors", `{"name":"c","config":{` + source + `,"tasks.max":3}}`, 201, ``})
	running := `{"connector":{"state":"RUNNING"},"tasks":[{"state":"RUNNING"},{"state":"RUNNING"},{"state":"RUNNING"}]}`
	f.await("/connectors/c/status", running)
	ended := make(chan error, 1)
	var ending sync.WaitGroup
	ending.Go(func() { ended <- end(c) })
	defer ending.Wait()
	good := []int{200, 201, 202, 204, 409, 503}
	for until := time.Now().Add(3 * time.Second); time.Now().Before(until); {
		for _, request := range []string{"GET /connectors/c/status", "GET /connectors", "PUT /connectors/c/resume",
			"GET /connectors/c/offsets", "POST /connectors/c/restart?onlyFailed=true", "GET /connectors/c/topics"} {
			method, path, _ := strings.Cut(request, " ")
			a := f.send(method, path, "")
			require.Contains(t, good, a.status, "%s: %s", request, a.text)
		}
		for _, body := range []string{`{"mode":"slow"}`, `{"mode":"fast"}`} {
			a := f.send("PATCH", "/connectors/c/config", body)
			require.Contains(t, good, a.status, a.text)
		}
	}
	require.NoError(t, <-ended)
	f.await("/connectors/c/status", running)
	var before map[string]int
	f.eventually("it is told how far they have come", func() bool {
		before = counts(f)
		return len(before) == 3
	})
	f.eventually("all tasks go on", func() bool {
		now := counts(f)
		return now["0"] > before["0"] && now["1"] > before["1"] && now["2"] > before["2"]
	})
	f.eventually("all tasks are told to run elsewhere", func() bool {
		var s struct {
			Tasks []struct {
				Worker string `json:"worker_id"`
			}
		}
		a := f.send("GET", "/connectors/c/status", "")
		if json.Unmarshal([]byte(a.text), &s) != nil || len(s.Tasks) != 3 {
			return false
		}
		for _, task := range s.Tasks {
			if strings.TrimPrefix(c.URL(3), "http://") == task.Worker {
				return false
			}
		}
		return true
	})
	f.eventually("it is deleted", func() bool { // the last node that stops could not end its transactions
		a := f.send("DELETE", "/connectors/c", "")
		if a.status == http.StatusNotFound { // by a try before
			return true
		}
		if !slices.Contains(good, a.status) {
			t.Errorf("DELETE: %d %s", a.status, a.text)
			return true
		}
		return a.status == http.StatusNoContent
	})
}

// counts is how far the tasks of connector c have come, by their shares.
func counts(f *fixture) map[string]int {
	f.t.Helper()
	var all struct {
		Offsets []struct {
			Partition struct{ Share string }
			Offset    struct{ Count int }
		}
	}
	if a := f.send("GET", "/connectors/c/offsets", ""); a.status == http.StatusOK {
		require.NoError(f.t, json.Unmarshal([]byte(a.text), &all), a.text)
	}
	out := make(map[string]int)
	for _, o := range all.Offsets {
		out[o.Partition.Share] = o.Offset.Count
	}
	return out
}

package restv2_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/server/servertest"
)

// nodes is a cluster each of whose calls goes to another node.
type nodes struct {
	*servertest.Cluster
	t    *testing.T
	next int
	f    *fixture
}

func startNodes(t *testing.T) *nodes {
	t.Helper()
	c := servertest.StartCluster(t, servertest.ClusterOptions{Broker: map[string]string{
		"offsets.topic.num.partitions": "5", "group.consumer.assignment.interval.ms": "0",
	}})
	n := &nodes{Cluster: c, t: t, f: &fixture{t: t, http: c.Client}}
	n.turn()
	n.f.client = client.New(c.Node(1).Requestor(), client.Options{})
	_, err := n.f.client.CreateTopic(t.Context(), client.NewTopic{Name: "orders", Partitions: 3, ReplicationFactor: 3})
	require.NoError(t, err)
	require.Equal(t, 404, n.calm("GET", "/consumers/g/instances/none/subscription", "").status, "there is a coordinator")
	return n
}

// turn is a fixture at the next running node.
func (n *nodes) turn() *fixture {
	for range 3 {
		n.next = n.next%3 + 1
		if n.Node(n.next) != nil {
			break
		}
	}
	n.f.url = n.URL(n.next)
	return n.f
}

// coordinator is the node that coordinates a group, as the others know it.
func (n *nodes) coordinator(group string) int {
	n.t.Helper()
	var id int
	require.Eventually(n.t, func() bool {
		n.turn()
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorKeys = []string{group}
		resp, err := req.RequestWith(n.t.Context(), n.Node(n.next).Requestor())
		if err != nil || resp.Coordinators[0].ErrorCode != 0 {
			return false
		}
		id = int(resp.Coordinators[0].NodeID)
		return true
	}, patience, 50*time.Millisecond)
	return id
}

// patience is how long a test waits for a cluster that has lost a node.
const patience = 2 * time.Minute

// put stores a JSON value in a partition that may be without a leader, once however often it is sent.
func (n *nodes) put(partition int, value string) {
	n.t.Helper()
	path := fmt.Sprintf("/v1/topics/orders/records?partition=%d", partition)
	require.Eventually(n.t, func() bool {
		a := n.turn().call("POST", path, "application/json", value, "Producer-Id", "tester", "Producer-Epoch", "0",
			"Producer-Seq", "0")
		return a.status == http.StatusOK
	}, patience, 50*time.Millisecond)
}

// kill takes a node away without a word to the others.
func (n *nodes) kill(id int) {
	n.t.Helper()
	require.NoError(n.t, n.Node(id).Kill())
	n.Stop(id)
}

// calm makes calls until one is answered otherwise than by 500 or 503: a node that is gone is found out meanwhile.
func (n *nodes) calm(method, path, body string) answer {
	n.t.Helper()
	var a answer
	require.Eventually(n.t, func() bool {
		a = n.turn().call(method, path, genericType, body)
		return a.status < http.StatusInternalServerError
	}, patience, 50*time.Millisecond)
	return a
}

func TestConsumerAnyNode(t *testing.T) {
	n := startNodes(t)
	n.turn().store("orders", `1`, `2`, `3`, `4`)
	for i := range 6 {
		group := fmt.Sprintf("a b/%d", i)
		c := n.turn().created(group, `{"name":"c/1","format":"json","auto.offset.reset":"earliest",`+
			`"auto.commit.enable":false}`)
		n.turn().refused(n.f.post("/consumers/a%20b%2F"+fmt.Sprint(i), `{"id":"c/1"}`), 409, 40902, "")
		n.turn().done(n.f.post(c+"/subscription", `{"topics":["orders"]}`))
		n.turn()
		require.JSONEq(t, `{"topics":["orders"]}`, n.f.get(c+"/subscription").text)
		n.turn()
		require.Equal(t, []int64{0, 1}, offsets(n.f.read(c+"/records?max_bytes=3")))
		n.turn()
		require.Equal(t, []int64{2, 3}, offsets(n.f.read(c+"/records")))
		n.turn()
		require.Equal(t, 3, strings.Count(n.f.get(c+"/assignments").text, "topic"))
		n.turn().done(n.f.post(c+"/positions", `{"offsets":[{"topic":"orders","partition":0,"offset":1}]}`))
		n.turn()
		require.Equal(t, []int64{1}, offsets(n.f.read(c+"/records?max_bytes=1")))
		n.turn()
		require.Equal(t, "[]", n.f.post(c+"/offsets", `{"offsets":[{"topic":"orders","partition":0,"offset":1}]}`).text)
		n.turn()
		require.JSONEq(t, `{"offsets":[{"topic":"orders","partition":0,"offset":2,"metadata":""}]}`,
			n.f.call("GET", c+"/offsets", genericType, `{"partitions":[{"topic":"orders","partition":0}]}`).text)
		n.turn().done(n.f.post(c+"/positions/end", `{"partitions":[]}`))
		n.turn()
		require.Equal(t, 200, n.f.call("HEAD", c+"/records", "", "").status)
		n.turn().done(n.f.post(c+"/positions/beginning", `{"partitions":[]}`))
		n.turn()
		require.Equal(t, 200, n.f.call("HEAD", c+"/records", "", "").status, "HEAD is sent on as HEAD")
		n.turn()
		require.Len(t, n.f.read(c+"/records"), 4)
		n.turn().done(n.f.call("DELETE", c, "", ""))
		n.turn().refused(n.f.get(c+"/records"), 404, 40403, "Consumer instance not found.")
	}
}

// Of several that create an instance of one name at the same time, one gets it.
func TestConsumerOneName(t *testing.T) {
	n := startNodes(t)
	for round := range 5 {
		var wg sync.WaitGroup
		codes := make([]int, 6)
		for i := range codes {
			f := &fixture{t: t, url: n.URL(i%3 + 1), http: n.Client}
			wg.Go(func() {
				codes[i] = f.post("/consumers/g", fmt.Sprintf(`{"name":"c%d"}`, round)).status
			})
		}
		wg.Wait()
		count := map[int]int{}
		for _, code := range codes {
			count[code]++
		}
		require.Equal(t, map[int]int{200: 1, 409: 5}, count)
	}
}

// An instance outlives the node that runs it: subscription, format, positions and commits are what they were, and no
// record is missed.
func TestConsumerNodeGoes(t *testing.T) {
	for name, gone := range map[string]func(*nodes, int){
		"stopped": func(n *nodes, id int) { n.Stop(id) },
		"killed":  (*nodes).kill,
	} {
		t.Run(name, func(t *testing.T) {
			n := startNodes(t)
			n.turn().store("orders", `1`, `2`, `3`, `4`)
			early := n.f.subscribed("g", `{"name":"early","format":"json","auto.offset.reset":"earliest"}`, "orders")
			late := n.f.created("g", `{"name":"late","format":"json","auto.commit.enable":"false"}`)
			n.f.done(n.f.post(late+"/assignments", `{"partitions":[{"topic":"orders","partition":1}]}`))
			sought := n.f.created("g", `{"name":"sought","format":"json","auto.commit.enable":"false"}`)
			n.f.done(n.f.post(sought+"/assignments", `{"partitions":[{"topic":"orders","partition":0}]}`))
			n.f.done(n.f.post(sought+"/positions", `{"offsets":[{"topic":"orders","partition":0,"offset":3}]}`))
			require.Equal(t, []int64{0, 1}, offsets(n.f.read(early+"/records?max_bytes=3")))
			require.Equal(t, "[]", n.f.post(early+"/offsets", "").text)
			require.Empty(t, n.f.read(late+"/records?timeout=50"), "it begins at the end")

			gone(n, n.coordinator("g"))
			n.put(1, `7`) // the partition may have been led there too

			require.Equal(t, 409, n.calm("POST", "/consumers/g", `{"name":"early"}`).status, "the name is still taken")
			var got []string
			for end := time.Now().Add(patience); len(got) < 3; {
				require.True(t, time.Now().Before(end), "%q", got)
				a := n.calm("GET", early+"/records", "")
				require.Equal(t, 200, a.status, a.text)
				var list []given
				a.decode(t, &list)
				for _, g := range list {
					got = append(got, string(g.Value))
				}
			}
			require.ElementsMatch(t, []string{`3`, `4`, `7`}, got)
			for path, want := range map[string]string{late: `7`, sought: `4`} {
				var list []given
				for end := time.Now().Add(patience); len(list) == 0; {
					require.True(t, time.Now().Before(end), path)
					a := n.calm("GET", path+"/records", "")
					require.Equal(t, 200, a.status, a.text)
					require.Equal(t, jsonType, a.header.Get("Content-Type"))
					a.decode(t, &list)
				}
				require.Equal(t, []string{want}, values(list), path)
			}
			require.JSONEq(t, `{"topics":["orders"]}`, n.calm("GET", early+"/subscription", "").text)
			require.Equal(t, 204, n.calm("DELETE", early, "").status)
			n.turn().refused(n.calm("GET", early+"/records", ""), 404, 40403, "")
		})
	}
}

// The node that runs an instance goes in the middle of a read and of a commit; each ends with an answer, and no record
// that was stored is lost to the reader.
func TestConsumerNodeGoesMeanwhile(t *testing.T) {
	n := startNodes(t)
	c := n.turn().subscribed("g", `{"name":"c1","format":"json","auto.offset.reset":"earliest",`+
		`"consumer.request.timeout.ms":5000}`, "orders")
	require.Empty(t, n.f.read(c+"/records?timeout=10"))
	id := n.coordinator("g")
	other := id%3 + 1
	var wg sync.WaitGroup
	answers := make([]answer, 4)
	for i := range answers {
		f := &fixture{t: t, url: n.URL(other), http: n.Client}
		wg.Go(func() {
			if i%2 == 0 {
				answers[i] = f.get(c + "/records")
			} else {
				answers[i] = f.post(c+"/offsets", "")
			}
		})
	}
	n.Stop(id)
	wg.Wait()
	for _, a := range answers {
		if a.status != 200 {
			require.Contains(t, []int{500, 503}, a.status, a.text)
			require.True(t, strings.Contains(a.text, "50003") || strings.Contains(a.text, "50302"), a.text)
		}
	}
	require.Eventually(t, func() bool {
		a := n.turn().call("POST", "/topics/orders/partitions/0", jsonType, `{"records":[{"value":1},{"value":2}]}`)
		return a.status == 200 && !strings.Contains(a.text, `"error_code":5`)
	}, patience, 50*time.Millisecond)
	seen := map[string]bool{}
	for end := time.Now().Add(patience); !seen["1"] || !seen["2"]; {
		require.True(t, time.Now().Before(end), "%v", seen)
		a := n.calm("GET", c+"/records", "")
		require.Equal(t, 200, a.status, a.text)
		var list []given
		a.decode(t, &list)
		for _, g := range list {
			seen[string(g.Value)] = true
		}
	}
}

package restv3_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/internal/ktag"
	"millrace/server/servertest"
)

// groups is a node of ours with the topic orders of three partitions, in each of which are ten records.
type groups struct {
	*fixture
	node *servertest.Node
}

func newGroups(t *testing.T) *groups {
	t.Helper()
	n := servertest.Start(t, servertest.Options{Broker: map[string]string{
		"offsets.topic.num.partitions": "3", "group.consumer.assignment.interval.ms": "0",
	}})
	f := &fixture{t: t, url: n.URL(), broker: "1", client: client.New(n.Requestor(), client.Options{}), http: n.Client}
	cluster, err := f.client.Cluster(t.Context())
	require.NoError(t, err)
	f.id = cluster.ID
	_, err = f.client.CreateTopic(t.Context(), client.NewTopic{Name: "orders", Partitions: 3, ReplicationFactor: -1})
	require.NoError(t, err)
	g := &groups{f, n}
	for p := range 3 {
		a := f.call("POST", f.at("/topics/orders/records"),
			strings.Repeat(fmt.Sprintf(`{"partition_id":%d,"value":{"type":"JSON","data":1}}`, p), 10))
		require.Equal(t, 200, a.status, a.text)
	}
	return g
}

// member is a member of a group that heartbeats when it is told to.
type member struct {
	g         *groups
	group, id string
	epoch     int32
	owned     map[int32]bool
}

func (g *groups) join(group, id string, instance *string) *member {
	m := &member{g: g, group: group, id: id, owned: map[int32]bool{}}
	beat := m.request()
	beat.InstanceID, beat.RebalanceTimeoutMillis = instance, 60_000
	beat.SubscribedTopicNames = []string{"orders"}
	beat.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	ktag.SetClient(&beat.UnknownTags, "client-of-"+id, "/127.0.0.1")
	m.send(beat)
	return m
}

func (m *member) request() *kmsg.ConsumerGroupHeartbeatRequest {
	beat := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	beat.Group, beat.MemberID, beat.MemberEpoch, beat.RebalanceTimeoutMillis = m.group, m.id, m.epoch, -1
	return beat
}

func (m *member) send(beat *kmsg.ConsumerGroupHeartbeatRequest) {
	m.g.t.Helper()
	resp, err := beat.RequestWith(m.g.t.Context(), m.g.node.Requestor())
	require.NoError(m.g.t, err)
	require.Zero(m.g.t, resp.ErrorCode, "%v", resp.ErrorMessage)
	m.epoch = resp.MemberEpoch
	if resp.Assignment == nil {
		return
	}
	clear(m.owned)
	for _, t := range resp.Assignment.Topics {
		for _, p := range t.Partitions {
			m.owned[p] = true
		}
	}
}

// beat says what the member has.
func (m *member) beat() {
	m.g.t.Helper()
	beat := m.request()
	beat.RebalanceTimeoutMillis, beat.SubscribedTopicNames = 60_000, []string{"orders"}
	beat.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	topic, err := m.g.client.Topic(m.g.t.Context(), "orders", client.Refuse)
	require.NoError(m.g.t, err)
	if len(m.owned) > 0 {
		t := kmsg.NewConsumerGroupHeartbeatRequestTopic()
		t.TopicID = topic.ID
		for p := range m.owned {
			t.Partitions = append(t.Partitions, p)
		}
		beat.Topics = append(beat.Topics, t)
	}
	m.send(beat)
}

func (m *member) leave() {
	m.g.t.Helper()
	m.epoch = -1
	m.send(m.request())
}

// settle has members send heartbeats until each has so many partitions, and the group knows it.
func settle(want int, members ...*member) {
	g := members[0].g
	require.Eventually(g.t, func() bool {
		settled := true
		for _, m := range members {
			m.beat()
			settled = settled && len(m.owned) == want
		}
		return settled && g.call("GET", g.at("/consumer-groups/"+members[0].group), "").body["state"] == "STABLE"
	}, time.Minute, 5*time.Millisecond)
}

func (g *groups) commit(group string, m *member, offsets ...int64) {
	g.t.Helper()
	commit := client.GroupCommit{Group: group, Epoch: -1}
	if m != nil {
		commit.Member, commit.Epoch = m.id, m.epoch
	}
	for p, offset := range offsets {
		commit.Offsets = append(commit.Offsets, client.CommittedOffset{
			TopicPartition: client.TopicPartition{Topic: "orders", Partition: int32(p)}, Offset: offset, LeaderEpoch: -1,
		})
	}
	errs, err := g.client.CommitOffsets(g.t.Context(), commit)
	require.NoError(g.t, err)
	for _, err := range errs {
		require.NoError(g.t, err)
	}
}

// list is the data of a list.
func (g *groups) list(path string) (out []map[string]any) {
	g.t.Helper()
	a := g.call("GET", g.at(path), "")
	require.Equal(g.t, 200, a.status, a.text)
	require.Equal(g.t, g.url+g.at(path), a.body["metadata"].(map[string]any)["self"])
	for _, item := range a.body["data"].([]any) {
		out = append(out, item.(map[string]any))
	}
	return out
}

func TestConsumerGroups(t *testing.T) {
	g := newGroups(t)
	require.Empty(t, g.list("/consumer-groups"))
	g.commit("b/ü", nil, 0)
	one := g.join("a", "m1", nil)
	settle(3, one)
	items := g.list("/consumer-groups")
	require.Len(t, items, 2)
	root := g.url + g.at("")
	require.Equal(t, map[string]any{
		"kind": "KafkaConsumerGroup", "cluster_id": g.id, "consumer_group_id": "a", "is_simple": false,
		"partition_assignor": "uniform", "state": "STABLE", "type": "CONSUMER", "is_mixed_consumer_group": false,
		"metadata": map[string]any{
			"self": root + "/consumer-groups/a", "resource_name": "crn:///kafka=" + g.id + "/consumer-group=a",
		},
		"coordinator": map[string]any{"related": root + "/brokers/1"},
		"consumers":   map[string]any{"related": root + "/consumer-groups/a/consumers"},
		"lag_summary": map[string]any{"related": root + "/consumer-groups/a/lag-summary"},
	}, items[0])
	simple := items[1]
	require.Equal(t, "b/ü", simple["consumer_group_id"])
	require.Equal(t, true, simple["is_simple"])
	require.Equal(t, "EMPTY", simple["state"])
	require.Equal(t, "CLASSIC", simple["type"])
	require.Equal(t, root+"/consumer-groups/"+url.PathEscape("b/ü"), simple["metadata"].(map[string]any)["self"])
	require.Equal(t, simple, g.call("GET", simple["metadata"].(map[string]any)["self"].(string), "").body)
	require.Equal(t, items[0], g.call("GET", g.at("/consumer-groups/a"), "").body)
	a := g.call("GET", "/kafka"+g.at("/consumer-groups/a"), "")
	require.Equal(t, g.url+"/kafka"+g.at("/consumer-groups/a"), a.body["metadata"].(map[string]any)["self"])

	for _, path := range []string{
		"", "/consumers", "/consumers/m1", "/consumers/m1/assignments", "/consumers/m1/assignments/orders/partitions/0",
		"/lags", "/lag-summary", "/lags/orders/partitions/0",
	} {
		for _, id := range []string{"none", "%00", "%FF", strings.Repeat("a", 300)} {
			g.refused(g.call("GET", g.at("/consumer-groups/"+id+path), ""), 404, 404, "Consumer group ")
		}
	}
	g.refused(g.call("GET", "/v3/clusters/another/consumer-groups", ""), 404, 404, "Cluster another")
}

// Consumers, their assignments and the lags agree with each other while members join, leave and fall behind.
func TestConsumersAssignmentsAndLags(t *testing.T) {
	g := newGroups(t)
	at := "/consumer-groups/g"
	static := "static-1"
	one := g.join("g", "m 1", &static)
	settle(3, one)
	g.refused(g.call("GET", g.at(at+"/lags"), ""), 404, 404, "Consumer group offsets could not be found.")
	g.refused(g.call("GET", g.at(at+"/lag-summary"), ""), 404, 404, "Consumer group offsets could not be found.")
	g.refused(g.call("GET", g.at(at+"/lags/orders/partitions/0"), ""), 404, 404, "could not be found.")
	g.commit("g", one, 10, 3, 12)

	consumers := g.list(at + "/consumers")
	require.Len(t, consumers, 1)
	root := g.url + g.at(at)
	require.Equal(t, map[string]any{
		"kind": "KafkaConsumer", "cluster_id": g.id, "consumer_group_id": "g", "consumer_id": "m 1",
		"instance_id": "static-1", "client_id": "client-of-m 1", "metadata": map[string]any{
			"self": root + "/consumers/m%201", "resource_name": "crn:///kafka=" + g.id + "/consumer-group=g/consumer=m 1",
		},
		"assignments": map[string]any{"related": root + "/consumers/m%201/assignments"},
	}, consumers[0])
	require.Equal(t, consumers[0], g.call("GET", root+"/consumers/m%201", "").body)

	assignments := g.list(at + "/consumers/m%201/assignments")
	require.Len(t, assignments, 3)
	require.Equal(t, map[string]any{
		"kind": "KafkaConsumerAssignment", "cluster_id": g.id, "consumer_group_id": "g", "consumer_id": "m 1",
		"topic_name": "orders", "partition_id": 1.0, "metadata": map[string]any{
			"self":          root + "/consumers/m%201/assignments/orders/partitions/1",
			"resource_name": "crn:///kafka=" + g.id + "/consumer-group=g/consumer=m 1/assignment=orders/partition=1",
		},
		"partition": map[string]any{"related": g.url + g.at("/topics/orders/partitions/1")},
		"lag":       map[string]any{"related": root + "/lags/orders/partitions/1"},
	}, assignments[1])

	lags := g.list(at + "/lags")
	require.Len(t, lags, 3)
	lag := map[string]any{
		"kind": "KafkaConsumerLag", "cluster_id": g.id, "consumer_group_id": "g", "topic_name": "orders",
		"partition_id": 1.0, "current_offset": 3.0, "log_end_offset": 10.0, "lag": 7.0, "consumer_id": "m 1",
		"instance_id": "static-1", "client_id": "client-of-m 1", "metadata": map[string]any{
			"self":          root + "/lags/orders/partitions/1",
			"resource_name": "crn:///kafka=" + g.id + "/consumer-group=g/lag=orders/partition=1",
		},
	}
	require.Equal(t, lag, lags[0], "the greatest first")
	require.Equal(t, 0.0, lags[2]["lag"], "never negative, past the end")
	require.Equal(t, lag, g.call("GET", root+"/lags/orders/partitions/1", "").body)
	require.Equal(t, map[string]any{
		"kind": "KafkaConsumerGroupLagSummary", "cluster_id": g.id, "consumer_group_id": "g", "max_lag_consumer_id": "m 1",
		"max_lag_instance_id": "static-1", "max_lag_client_id": "client-of-m 1", "max_lag_topic_name": "orders",
		"max_lag_partition_id": 1.0, "max_lag": 7.0, "total_lag": 7.0, "metadata": map[string]any{
			"self": root + "/lag-summary", "resource_name": "crn:///kafka=" + g.id + "/consumer-group=g/lag-summary",
		},
		"max_lag_consumer":  map[string]any{"related": root + "/consumers/m%201"},
		"max_lag_partition": map[string]any{"related": g.url + g.at("/topics/orders/partitions/1")},
	}, g.call("GET", root+"/lag-summary", "").body)
	g.follow(g.call("GET", g.at("/consumer-groups"), "").body)
	for _, path := range []string{"/consumers", "/consumers/m%201/assignments", "/lags", "/lag-summary"} {
		g.follow(g.call("GET", root+path, "").body)
	}

	g.comeAndGo(one)
}

// comeAndGo has a second member join the group of the first, and then both leave.
func (g *groups) comeAndGo(one *member) {
	t, at := g.t, "/consumer-groups/g"
	root := g.url + g.at(at)
	two := g.join("g", "m2", nil)
	settleUneven(one, two)
	g.agree(at, one, two)
	require.Len(t, g.list(at+"/consumers"), 2)
	one.leave()
	settle(3, two)
	g.agree(at, two)
	two.leave()
	require.Equal(t, "EMPTY", g.call("GET", root, "").body["state"])
	require.Empty(t, g.list(at+"/consumers"))
	summary := g.call("GET", root+"/lag-summary", "").body
	require.Equal(t, "", summary["max_lag_consumer_id"])
	require.Nil(t, summary["max_lag_instance_id"])
	require.Equal(t, 7.0, summary["total_lag"])
	g.follow(summary)
	g.refused(g.call("GET", root+"/consumers/m2", ""), 404, 404, "Consumer m2 could not be found in group g.")
	for _, path := range []string{"/lags/orders/partitions/3", "/lags/none/partitions/0", "/lags/orders/partitions/x",
		"/lags/orders/partitions/-1"} {
		require.Equal(t, 404, g.call("GET", root+path, "").status, path)
	}
}

// settleUneven has two members share three partitions.
func settleUneven(one, two *member) {
	g := one.g
	require.Eventually(g.t, func() bool {
		one.beat()
		two.beat()
		return len(one.owned)+len(two.owned) == 3 && len(two.owned) > 0 &&
			g.call("GET", g.at("/consumer-groups/"+one.group), "").body["state"] == "STABLE"
	}, time.Minute, 5*time.Millisecond)
}

// agree compares what the resources of a group say with what its members have.
func (g *groups) agree(at string, members ...*member) {
	g.t.Helper()
	owners := map[float64]string{}
	for _, m := range members {
		for p := range m.owned {
			owners[float64(p)] = m.id
		}
		assignments := g.list(at + "/consumers/" + url.PathEscape(m.id) + "/assignments")
		require.Len(g.t, assignments, len(m.owned))
		for _, a := range assignments {
			require.True(g.t, m.owned[int32(a["partition_id"].(float64))])
		}
	}
	for _, l := range g.list(at + "/lags") {
		require.Equal(g.t, owners[l["partition_id"].(float64)], l["consumer_id"])
	}
}

// follow asks for every address in an answer: each is served.
func (g *groups) follow(v any) {
	g.t.Helper()
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			g.follow(item)
		}
	case map[string]any:
		for name, item := range v {
			if address, ok := item.(string); ok && (name == "related" || name == "self") {
				require.Equal(g.t, 200, g.call("GET", address, "").status, address)
				continue
			}
			g.follow(item)
		}
	}
}

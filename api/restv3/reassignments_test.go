package restv3_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/api/restv3"
)

// moving makes the double of Kafka tell of a reassignment of partition 1 of topic orders, and of one of another topic.
func moving(f *fixture) {
	f.cluster.ControlKey(46, func(r kmsg.Request) (kmsg.Response, error, bool) {
		f.cluster.KeepControl()
		resp := r.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
		for _, topic := range []string{"payments", "orders"} {
			t := kmsg.NewListPartitionReassignmentsResponseTopic()
			p := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
			t.Topic, p.Partition = topic, 1
			p.Replicas, p.AddingReplicas, p.RemovingReplicas = []int32{4, 0}, []int32{4}, []int32{0}
			t.Partitions = append(t.Partitions, p)
			resp.Topics = append(resp.Topics, t)
		}
		return resp, nil, true
	})
}

func TestReassignments(t *testing.T) {
	f := start(t, restv3.Options{}, kfake.SeedTopics(2, "payments"))
	moving(f)
	a := f.call("GET", f.at("/topics/-/partitions/-/reassignment"), "")
	require.Equal(t, 200, a.status, a.text)
	require.Equal(t, "KafkaReassignmentList", a.body["kind"])
	data := a.body["data"].([]any)
	require.Len(t, data, 2)
	require.Equal(t, "payments", data[1].(map[string]any)["topic_name"], "sorted by topic")

	a = f.call("GET", f.at("/topics/orders/partitions/-/reassignment"), "")
	require.Len(t, a.body["data"], 1)
	a = f.call("GET", f.at("/topics/nobody/partitions/-/reassignment"), "")
	require.Equal(t, 200, a.status)
	require.Empty(t, a.body["data"])

	a = f.call("GET", f.at("/topics/orders/partitions/1/reassignment"), "")
	require.Equal(t, 200, a.status, a.text)
	path := f.url + f.at("/topics/orders/partitions/1")
	require.Equal(t, map[string]any{
		"kind": "KafkaReassignment", "cluster_id": f.id, "topic_name": "orders", "partition_id": 1.0,
		"adding_replicas": []any{4.0}, "removing_replicas": []any{0.0},
		"replicas": map[string]any{"related": path + "/replicas"},
		"metadata": map[string]any{
			"self":          path + "/reassignment",
			"resource_name": "crn:///kafka=" + f.id + "/topic=orders/partition=1/reassignment",
		},
	}, a.body)
	f.refused(f.call("GET", f.at("/topics/orders/partitions/0/reassignment"), ""), 404, 404, "not being reassigned")
	f.refused(f.call("GET", f.at("/topics/orders/partitions/9/reassignment"), ""), 404, 40402, "")
	f.refused(f.call("GET", f.at("/topics/nobody/partitions/0/reassignment"), ""), 404, 40403, "")
}

// A node's leaders tell how far replicas are; of a cluster whose brokers do not, the metadata has to do.
func TestReplicaStatus(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		a := f.call("POST", f.at("/topics/orders/records"), `{"partition_id":1,"value":{"type":"JSON","data":1}}`)
		require.Equal(t, 200, a.status, a.text)
		a = f.call("GET", f.at("/topics/orders/partitions/1/replica-status"), "")
		require.Equal(t, 200, a.status, a.text)
		require.Equal(t, "KafkaReplicaStatusList", a.body["kind"])
		data := a.body["data"].([]any)
		require.Len(t, data, 1)
		r := data[0].(map[string]any)
		for _, name := range []string{"is_leader", "is_isr_eligible", "is_in_isr", "is_caught_up"} {
			require.Equal(t, true, r[name], name)
		}
		require.Equal(t, false, r["is_observer"])
		if f.cluster == nil {
			require.Equal(t, []any{0.0, 1.0}, []any{r["log_start_offset"], r["log_end_offset"]})
			require.Greater(t, r["last_caught_up_time_ms"], 1.7e12)
		} else {
			require.Equal(t, []any{-1.0, -1.0}, []any{r["log_start_offset"], r["log_end_offset"]})
		}
		require.Len(t, f.call("GET", f.at("/topics/orders/partitions/-/replica-status"), "").body["data"], 3)
		require.Len(t, f.call("GET", f.at("/topics/-/partitions/-/replica-status"), "").body["data"], 4)
		f.refused(f.call("GET", f.at("/topics/orders/partitions/9/replica-status"), ""), 404, 40402, "")
		f.refused(f.call("GET", f.at("/topics/nobody/partitions/-/replica-status"), ""), 404, 40403, "")
	}, "payments")
}

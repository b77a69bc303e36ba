package controller_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// explained lists where the fake Kafka and this controller answer with other codes, and why ours is
// the one we want. A step is "request item".
var explained = []struct {
	step        string
	fake, ours  int16
	explanation string
}{
	{"create dots", 0, 17, "the fake does not check names; Kafka does"},
	{"create slash", 0, 17, "the fake does not check names; Kafka does"},
	{"create negative partitions", 0, 37, "the fake takes every negative number for the default; Kafka only -1"},
	{"create zero replicas", 0, 38, "the fake does not check for 0; Kafka does"},
	{"create negative replicas", 0, 38, "the fake takes every negative number for the default; Kafka only -1"},
	{"create unknown key", 0, 40, "the fake does not check configuration at creation; Kafka does"},
	{"create bad value", 0, 40, "the fake does not check configuration at creation; Kafka does"},
	{"create unknown broker", 0, 39, "the fake does not check brokers of an assignment; Kafka does"},
	{"raise same", 0, 37, "the fake allows the number there is; Kafka says it is there already"},
	{"raise other factor", 0, 39, "the fake does not check the replication factor; Kafka does"},
	{"alter unknown key", 0, 40, "the fake takes any key; Kafka refuses unknown ones"},
	{"alter bad value", 0, 40, "the fake checks few values; Kafka all"},
	{"alter append to a number", 42, 40, "Kafka: INVALID_CONFIG for what is wrong with a key or value"},
	{"alter null", 0, 40, "the fake takes null for a value; Kafka refuses it"},
	{"alter key twice", 0, 42, "the fake takes the last; Kafka refuses"},
	{"alter broker bad value", 42, 40, "Kafka: INVALID_CONFIG for what is wrong with a key or value"},
	{"elect plain/0", 0, 84, "the fake moves every leader on; Kafka leaves a preferred one"},
	{"reassign nowhere", 0, 39, "the fake does not check replicas; Kafka does"},
	{"reassign unknown broker", 0, 39, "the fake does not check replicas; Kafka does"},
	{"reassign twice the same broker", 0, 39, "the fake does not check replicas; Kafka does"},
	{"alter unknown broker", 42, 102, "the fake has one broker configuration; Kafka names the reason"},
}

// TestLikeKafka sends the same requests to a fake Kafka of three brokers and to a controller of three
// brokers, and compares the error codes and what comes to be.
func TestLikeKafka(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.DefaultNumPartitions(1))
	require.NoError(t, err)
	t.Cleanup(fake.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	cluster, err := kmsg.NewPtrMetadataRequest().RequestWith(t.Context(), client)
	require.NoError(t, err)
	theirs := client.Broker(int(cluster.ControllerID)) // all to one broker, which must be the controller
	ours := newCluster(t, 3, map[string]string{"default.replication.factor": "3"})
	unused := make(map[string]bool)
	for _, e := range explained {
		unused[e.step] = true
	}
	compare := func(step string, fake, ours int16) {
		t.Helper()
		for _, e := range explained {
			if e.step == step {
				require.Equal(t, []int16{e.fake, e.ours}, []int16{fake, ours}, "%s: %s", step, e.explanation)
				delete(unused, step)
				return
			}
		}
		require.Equal(t, fake, ours, step)
	}
	compareCreate(t, theirs, ours, compare)
	compareRaise(t, theirs, ours, compare)
	compareAlter(t, theirs, ours, compare)
	compareTopics(t, theirs, ours)
	compareElect(t, theirs, ours, compare)
	compareReassign(t, theirs, ours, compare)
	compareDelete(t, theirs, ours, compare)
	require.Empty(t, unused, "explained differences that are none")
}

type compareFunc func(step string, fake, ours int16)

func compareCreate(t *testing.T, fake, ours kmsg.Requestor, compare compareFunc) {
	type step struct {
		name  string
		topic kmsg.CreateTopicsRequestTopic
	}
	for _, s := range []step{
		{"plain", newTopic("plain", 3, 2)}, {"exists", newTopic("plain", 1, 1)}, {"defaults", newTopic("defaults", -1, -1)},
		{"dotted", newTopic("a.b", 1, 1)}, {"collides", newTopic("a_b", 1, 1)},
		{"dots", newTopic("..", 1, 1)}, {"slash", newTopic("a/b", 1, 1)},
		{"no partitions", newTopic("t1", 0, 1)}, {"negative partitions", newTopic("t2", -2, 1)},
		{"zero replicas", newTopic("t3", 1, 0)}, {"negative replicas", newTopic("t4", 1, -2)},
		{"many replicas", newTopic("t5", 1, 4)},
		{"configured", newTopic("configured", 1, 1, "retention.ms", "5")},
		{"unknown key", newTopic("t6", 1, 1, "nope", "5")}, {"bad value", newTopic("t7", 1, 1, "retention.ms", "x")},
		{"assigned", assigned("assigned", []int32{0, 1, 2}, []int32{1, 2, 0})},
		{"assigned with a gap", assigned("t8", []int32{0, 1}, []int32{2, 1})},
		{"assigned nothing", assigned("t9", []int32{0})}, {"unknown broker", assigned("t10", []int32{0, 9})},
	} {
		var codes []int16
		for i, to := range []kmsg.Requestor{fake, ours} {
			r := kmsg.NewPtrCreateTopicsRequest()
			r.TimeoutMillis = 10_000
			r.Topics = []kmsg.CreateTopicsRequestTopic{s.topic}
			if i == 1 {
				r.Topics = []kmsg.CreateTopicsRequestTopic{shiftBrokers(s.topic)}
			}
			resp, err := r.RequestWith(t.Context(), to)
			require.NoError(t, err)
			require.Len(t, resp.Topics, 1)
			codes = append(codes, resp.Topics[0].ErrorCode)
		}
		compare("create "+s.name, codes[0], codes[1])
	}
}

// shiftBrokers moves an assignment from the fake's brokers 0 to 2 to ours, 1 to 3.
func shiftBrokers(topic kmsg.CreateTopicsRequestTopic) kmsg.CreateTopicsRequestTopic {
	assignment := topic.ReplicaAssignment
	topic.ReplicaAssignment = nil
	for _, a := range assignment {
		shifted := a
		shifted.Replicas = nil
		for _, id := range a.Replicas {
			shifted.Replicas = append(shifted.Replicas, id+1)
		}
		topic.ReplicaAssignment = append(topic.ReplicaAssignment, shifted)
	}
	return topic
}

func compareRaise(t *testing.T, fake, ours kmsg.Requestor, compare compareFunc) {
	type step struct {
		name  string
		topic kmsg.CreatePartitionsRequestTopic
	}
	for _, s := range []step{
		{"more", raise("plain", 4)}, {"same", raise("plain", 4)}, {"fewer", raise("plain", 2)}, {"unknown", raise("none", 3)},
		{"assigned", raise("plain", 5, []int32{1, 2})}, {"too few assigned", raise("plain", 7, []int32{1, 2})},
		{"unknown broker", raise("plain", 6, []int32{1, 9})}, {"no replicas", raise("plain", 6, []int32{})},
		{"other factor", raise("a.b", 2, []int32{1, 2})},
	} {
		var codes []int16
		for _, to := range []kmsg.Requestor{fake, ours} {
			r := kmsg.NewPtrCreatePartitionsRequest()
			r.TimeoutMillis = 10_000
			r.Topics = []kmsg.CreatePartitionsRequestTopic{s.topic}
			resp, err := r.RequestWith(t.Context(), to)
			require.NoError(t, err)
			codes = append(codes, resp.Topics[0].ErrorCode)
		}
		compare("raise "+s.name, codes[0], codes[1])
	}
}

func compareAlter(t *testing.T, fake, ours kmsg.Requestor, compare compareFunc) {
	type step struct {
		name     string
		resource kmsg.IncrementalAlterConfigsRequestResource
	}
	for _, s := range []step{
		{"set", resource(topicKind, "plain", set("retention.ms", "9"))},
		{"unset", resource(topicKind, "configured", unset("retention.ms"))},
		{"append", resource(topicKind, "plain", appendTo("cleanup.policy", "compact"))},
		{"unknown topic", resource(topicKind, "none", set("retention.ms", "9"))},
		{"unknown key", resource(topicKind, "plain", set("nope", "9"))},
		{"bad value", resource(topicKind, "plain", set("retention.ms", "x"))},
		{"append to a number", resource(topicKind, "plain", appendTo("retention.ms", "1"))},
		{"null", resource(topicKind, "plain", alter{"retention.ms", kmsg.IncrementalAlterConfigOpSet, nil})},
		{"key twice", resource(topicKind, "plain", set("segment.ms", "1"), set("segment.ms", "2"))},
		{"unknown operation", resource(topicKind, "plain", alter{"retention.ms", 7, kmsg.StringPtr("1")})},
		{"default of all", resource(brokerKind, "", set("log.retention.ms", "9"))},
		{"broker bad value", resource(brokerKind, "", set("log.retention.ms", "x"))},
		{"unknown broker", resource(brokerKind, "77", set("log.retention.ms", "9"))},
	} {
		var codes []int16
		for _, to := range []kmsg.Requestor{fake, ours} {
			r := kmsg.NewPtrIncrementalAlterConfigsRequest()
			r.Resources = []kmsg.IncrementalAlterConfigsRequestResource{s.resource}
			resp, err := r.RequestWith(t.Context(), to)
			require.NoError(t, err)
			require.Len(t, resp.Resources, 1)
			codes = append(codes, resp.Resources[0].ErrorCode)
		}
		compare("alter "+s.name, codes[0], codes[1])
	}
}

// compareTopics compares what became of the topics that both took.
func compareTopics(t *testing.T, fake kmsg.Requestor, ours *cluster) {
	names := []string{"plain", "defaults", "configured", "assigned"}
	r := kmsg.NewPtrMetadataRequest()
	for _, name := range names {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = &name
		r.Topics = append(r.Topics, topic)
	}
	resp, err := r.RequestWith(t.Context(), fake)
	require.NoError(t, err)
	for _, want := range resp.Topics {
		got := ours.machine.Image().Topic(*want.Topic)
		require.NotNil(t, got, *want.Topic)
		if *want.Topic == "plain" {
			require.Len(t, got.Partitions, 5)
		}
		require.Len(t, got.Partitions, len(want.Partitions), *want.Topic)
		for _, p := range want.Partitions {
			require.Len(t, got.Partitions[p.Partition].Replicas, len(p.Replicas), "%s/%d", *want.Topic, p.Partition)
		}
	}
	require.Equal(t, map[string]string{"retention.ms": "9", "cleanup.policy": "delete,compact"},
		ours.machine.Image().Topic("plain").Configs)
}

func compareDelete(t *testing.T, fake, ours kmsg.Requestor, compare compareFunc) {
	for i, topic := range []kmsg.DeleteTopicsRequestTopic{
		byName("plain"), byName("plain"), byName("none"), byID([16]byte{3: 9}),
	} {
		var codes []int16
		for _, to := range []kmsg.Requestor{fake, ours} {
			r := kmsg.NewPtrDeleteTopicsRequest()
			r.TimeoutMillis = 10_000
			r.Topics = []kmsg.DeleteTopicsRequestTopic{topic}
			resp, err := r.RequestWith(t.Context(), to)
			require.NoError(t, err)
			codes = append(codes, resp.Topics[0].ErrorCode)
		}
		compare(fmt.Sprint("delete ", i), codes[0], codes[1])
	}
}

func compareElect(t *testing.T, fake, ours kmsg.Requestor, compare compareFunc) {
	for _, kind := range []int8{0, 1} {
		for name, r := range map[string]*kmsg.ElectLeadersRequest{
			"none/0": electRequest(kind, "none", 0), "plain/77": electRequest(kind, "plain", 77),
		} {
			compare("elect "+name, electCodes(t, fake, r)[name], electCodes(t, ours, r)[name])
		}
	}
	r := electRequest(0, "plain", 0)
	compare("elect plain/0", electCodes(t, fake, r)["plain/0"], electCodes(t, ours, r)["plain/0"])
}

func compareReassign(t *testing.T, fake, ours kmsg.Requestor, compare compareFunc) {
	for _, s := range []struct {
		name string
		move move
	}{
		{"cancel", move{"plain", 0, nil}}, {"unknown topic", move{"none", 0, []int32{1}}},
		{"unknown partition", move{"plain", 77, []int32{1}}}, {"cancel unknown", move{"none", 0, nil}},
		{"nowhere", move{"plain", 0, []int32{}}}, {"unknown broker", move{"plain", 0, []int32{1, 9}}},
		{"twice the same broker", move{"plain", 0, []int32{1, 1}}},
	} {
		codes := make([]int16, 0, 2)
		for _, to := range []kmsg.Requestor{fake, ours} {
			resp, err := reassign(s.move).RequestWith(t.Context(), to)
			require.NoError(t, err)
			codes = append(codes, resp.Topics[0].Partitions[0].ErrorCode)
		}
		compare("reassign "+s.name, codes[0], codes[1])
	}
	for _, to := range []kmsg.Requestor{fake, ours} {
		require.Empty(t, listReassignments(t, to, nil).Topics)
	}
}

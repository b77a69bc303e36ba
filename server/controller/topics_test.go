package controller_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (c *cluster) delete(t testing.TB, topics ...kmsg.DeleteTopicsRequestTopic) []kmsg.DeleteTopicsResponseTopic {
	t.Helper()
	r := kmsg.NewPtrDeleteTopicsRequest()
	r.Topics = topics
	resp, err := r.RequestWith(t.Context(), c)
	require.NoError(t, err)
	return resp.Topics
}

func byName(name string) kmsg.DeleteTopicsRequestTopic {
	t := kmsg.NewDeleteTopicsRequestTopic()
	t.Topic = &name
	return t
}

func byID(id [16]byte) kmsg.DeleteTopicsRequestTopic {
	t := kmsg.NewDeleteTopicsRequestTopic()
	t.TopicID = id
	return t
}

func TestDeleteTopics(t *testing.T) {
	c := newCluster(t, 1, nil)
	a := c.mustCreate(t, newTopic("a", 1, 1)).TopicID
	b := c.mustCreate(t, newTopic("b", 1, 1)).TopicID
	c.mustCreate(t, newTopic("c", 1, 1))
	both := byName("c")
	both.TopicID = a
	answers := c.delete(t, byName("a"), byID(b), byName("none"), byID([16]byte{9}), both,
		kmsg.NewDeleteTopicsRequestTopic())
	for i, want := range []*kerr.Error{
		nil, nil, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.InvalidRequest, kerr.InvalidRequest,
	} {
		requireCode(t, want, answers[i].ErrorCode, answers[i].ErrorMessage)
	}
	require.Equal(t, "a", *answers[0].Topic)
	require.Equal(t, a, answers[0].TopicID)
	require.Equal(t, "b", *answers[1].Topic)
	require.Equal(t, b, answers[1].TopicID)
	require.Equal(t, 1, c.machine.Image().TopicCount())

	again := c.mustCreate(t, newTopic("a", 1, 1))
	require.NotEqual(t, a, again.TopicID, "a topic made anew is another topic")
}

func TestDeleteTopicsNamedTwice(t *testing.T) {
	c := newCluster(t, 1, nil)
	a := c.mustCreate(t, newTopic("a", 1, 1)).TopicID
	for _, answer := range c.delete(t, byName("a"), byID(a), byName("none"), byName("none")) {
		requireCode(t, kerr.InvalidRequest, answer.ErrorCode, answer.ErrorMessage)
	}
	require.NotNil(t, c.machine.Image().Topic("a"))
}

func TestDeleteTopicsOldNameList(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.mustCreate(t, newTopic("a", 1, 1))
	r := kmsg.NewPtrDeleteTopicsRequest()
	r.TopicNames = []string{"a"}
	resp, err := r.RequestWith(t.Context(), c)
	require.NoError(t, err)
	require.Len(t, resp.Topics, 1)
	require.Zero(t, resp.Topics[0].ErrorCode)
	require.Zero(t, c.machine.Image().TopicCount())
}

func TestDeleteTopicsDisabled(t *testing.T) {
	c := newCluster(t, 1, map[string]string{"delete.topic.enable": "false"})
	c.mustCreate(t, newTopic("a", 1, 1))
	answers := c.delete(t, byName("a"))
	requireCode(t, kerr.TopicDeletionDisabled, answers[0].ErrorCode, answers[0].ErrorMessage)
	require.Equal(t, 1, c.machine.Image().TopicCount())
}

func (c *cluster) addPartitions(
	t testing.TB, r *kmsg.CreatePartitionsRequest, topics ...kmsg.CreatePartitionsRequestTopic,
) []kmsg.CreatePartitionsResponseTopic {
	t.Helper()
	r.Topics = topics
	resp, err := r.RequestWith(t.Context(), c)
	require.NoError(t, err)
	return resp.Topics
}

func raise(name string, count int32, assignment ...[]int32) kmsg.CreatePartitionsRequestTopic {
	t := kmsg.NewCreatePartitionsRequestTopic()
	t.Topic, t.Count = name, count
	for _, replicas := range assignment {
		a := kmsg.NewCreatePartitionsRequestTopicAssignment()
		a.Replicas = replicas
		t.Assignment = append(t.Assignment, a)
	}
	return t
}

func (c *cluster) morePartitions(t testing.TB, name string, count int32) kmsg.CreatePartitionsResponseTopic {
	t.Helper()
	return c.addPartitions(t, kmsg.NewPtrCreatePartitionsRequest(), raise(name, count))[0]
}

func TestCreatePartitions(t *testing.T) {
	cases := []struct {
		name  string
		topic kmsg.CreatePartitionsRequestTopic
		want  *kerr.Error
		says  string
	}{
		{"placed", raise("t", 5), nil, ""},
		{"assigned", raise("t", 4, []int32{3, 1}, []int32{1, 2}), nil, ""},
		{"unknown topic", raise("none", 5), kerr.UnknownTopicOrPartition, "none"},
		{"same number", raise("t", 2), kerr.InvalidPartitions, "already"},
		{"lower", raise("t", 1), kerr.InvalidPartitions, "lowered"},
		{"negative", raise("t", -1), kerr.InvalidPartitions, "lowered"},
		{"too many", raise("t", 10_001), kerr.PolicyViolation, "10000"},
		{"too few assigned", raise("t", 5, []int32{1, 2}), kerr.InvalidReplicaAssignment, "3 more"},
		{"other replication factor", raise("t", 3, []int32{1}), kerr.InvalidReplicaAssignment, "1 replica,"},
		{"unknown broker", raise("t", 3, []int32{1, 8}), kerr.InvalidReplicaAssignment, "broker 8"},
		{"no replicas", raise("t", 3, []int32{}), kerr.InvalidReplicaAssignment, "no replicas"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c := newCluster(t, 3, nil)
			c.mustCreate(t, newTopic("t", 2, 2))
			before := c.machine.Image()
			dry := kmsg.NewPtrCreatePartitionsRequest()
			dry.ValidateOnly = true
			for _, r := range []*kmsg.CreatePartitionsRequest{dry, kmsg.NewPtrCreatePartitionsRequest()} {
				require.Same(t, before, c.machine.Image())
				answer := c.addPartitions(t, r, tc.topic)[0]
				requireCode(t, tc.want, answer.ErrorCode, answer.ErrorMessage)
				if tc.want != nil {
					require.Contains(t, *answer.ErrorMessage, tc.says)
				}
			}
			if tc.want != nil {
				require.Same(t, before, c.machine.Image())
				return
			}
			topic := c.machine.Image().Topic("t")
			require.Len(t, topic.Partitions, int(tc.topic.Count))
			for i, p := range topic.Partitions {
				require.Len(t, p.Replicas, 2)
				if i < 2 {
					require.Equal(t, before.Topic("t").Partitions[i], p, "partitions that were there stay as they are")
				} else if len(tc.topic.Assignment) > 0 {
					require.Equal(t, tc.topic.Assignment[i-2].Replicas, p.Replicas)
				}
			}
		})
	}
}

func TestCreatePartitionsNamedTwice(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.mustCreate(t, newTopic("t", 1, 1))
	answers := c.addPartitions(t, kmsg.NewPtrCreatePartitionsRequest(), raise("t", 2), raise("t", 3))
	require.Len(t, answers, 1)
	requireCode(t, kerr.InvalidRequest, answers[0].ErrorCode, answers[0].ErrorMessage)
}

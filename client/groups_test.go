package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"millrace/client"
)

// byName are the versions of a cluster that names topics in commits by name, as ours does.
func byName() *kversion.Versions {
	v := kversion.Stable()
	v.SetMaxKeyVersion(8, 9)
	v.SetMaxKeyVersion(9, 9)
	return v
}

// groupEnv is a client on a test double with the topic t of three partitions and u of one.
type groupEnv struct {
	*env
	cluster *kfake.Cluster
}

func newGroupEnv(t *testing.T, opts ...kfake.Opt) *groupEnv {
	t.Helper()
	opts = append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(3, "t"), kfake.SeedTopics(1, "u")}, opts...)
	c, err := kfake.NewCluster(opts...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.MaxVersions(byName()))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	e := &env{t: t, broker: cl.Broker(0), now: time.UnixMilli(1_700_000_000_000)}
	e.client = client.New(e, client.Options{Now: e.clock})
	return &groupEnv{e, c}
}

// member joins a group with a real client and returns when it has partitions.
func (e *groupEnv) member(group string, opts ...kgo.Opt) *kgo.Client {
	e.t.Helper()
	got := make(chan struct{}, 16)
	opts = append([]kgo.Opt{
		kgo.SeedBrokers(e.cluster.ListenAddrs()...), kgo.ConsumerGroup(group), kgo.ConsumeTopics("t"),
		kgo.ClientID("worker"), kgo.MaxVersions(byName()), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { got <- struct{}{} }),
	}, opts...)
	cl, err := kgo.NewClient(opts...)
	require.NoError(e.t, err)
	e.t.Cleanup(cl.Close)
	select {
	case <-got:
	case <-e.t.Context().Done():
	}
	return cl
}

func at(topic string, partition int32) client.TopicPartition {
	return client.TopicPartition{Topic: topic, Partition: partition}
}

func (e *groupEnv) commit(group string, offsets ...client.CommittedOffset) []error {
	e.t.Helper()
	errs, err := e.client.CommitOffsets(e.t.Context(), client.GroupCommit{Group: group, Epoch: -1, Offsets: offsets})
	require.NoError(e.t, err)
	require.Len(e.t, errs, len(offsets))
	return errs
}

func TestGroupOffsets(t *testing.T) {
	e := newGroupEnv(t)
	none, err := e.client.Committed(t.Context(), "g", false)
	require.NoError(t, err)
	require.Empty(t, none)
	errs := e.commit("g",
		client.CommittedOffset{TopicPartition: at("t", 2), Offset: 7, LeaderEpoch: -1, Metadata: "m"},
		client.CommittedOffset{TopicPartition: at("u", 0), Offset: 3, LeaderEpoch: -1},
		client.CommittedOffset{TopicPartition: at("t", 0), Offset: 1 << 60, LeaderEpoch: -1})
	require.NoError(t, errors.Join(errs...))

	all, err := e.client.Committed(t.Context(), "g", true)
	require.NoError(t, err)
	require.Len(t, all, 3)
	require.Equal(t, at("t", 0), all[0].TopicPartition)
	require.Equal(t, int64(1<<60), all[0].Offset)
	require.Equal(t, "m", all[1].Metadata)
	require.Equal(t, at("u", 0), all[2].TopicPartition)

	some, err := e.client.Committed(t.Context(), "g", false, at("u", 0), at("t", 1), at("t", 2))
	require.NoError(t, err)
	require.Equal(t, []int64{3, -1, 7}, []int64{some[0].Offset, some[1].Offset, some[2].Offset})

	many, err := e.client.CommittedOfAll(t.Context(), []string{"none", "g"}, false)
	require.NoError(t, err)
	require.Equal(t, "none", many[0].ID)
	require.Empty(t, many[0].Offsets)
	require.Len(t, many[1].Offsets, 3)

	gone, err := e.client.DeleteOffsets(t.Context(), "g", []client.TopicPartition{at("t", 0), at("u", 0)})
	require.NoError(t, err)
	require.NoError(t, errors.Join(gone...))
	all, err = e.client.Committed(t.Context(), "g", false)
	require.NoError(t, err)
	require.Len(t, all, 1)
	_, err = e.client.DeleteOffsets(t.Context(), "none", []client.TopicPartition{at("t", 0)})
	require.ErrorIs(t, err, kerr.GroupIDNotFound)
}

func TestGroupsAreListedAndDescribed(t *testing.T) {
	e := newGroupEnv(t)
	e.commit("simple", client.CommittedOffset{TopicPartition: at("u", 0), Offset: 1, LeaderEpoch: -1})
	e.member("live", kgo.InstanceID("one"), kgo.Balancers(kgo.RangeBalancer()))

	list, err := e.client.Groups(t.Context(), nil, nil)
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, "live", list[0].ID)
	require.Equal(t, client.GroupStable, list[0].State)
	require.Equal(t, "simple", list[1].ID)
	require.Equal(t, client.GroupEmpty, list[1].State)
	list, err = e.client.Groups(t.Context(), []string{client.GroupEmpty}, nil)
	require.NoError(t, err)
	require.Len(t, list, 1)

	g, err := e.client.DescribeGroup(t.Context(), "live")
	require.NoError(t, err)
	require.Equal(t, client.ClassicGroup, g.Type)
	require.Equal(t, "consumer", g.Protocol)
	require.Equal(t, "range", g.Assignor)
	require.Zero(t, g.Coordinator)
	require.Len(t, g.Members, 1)
	m := g.Members[0]
	require.Equal(t, "one", *m.InstanceID)
	require.Equal(t, "worker", m.ClientID)
	require.Equal(t, []string{"t"}, m.Subscription)
	require.Equal(t, []client.TopicPartition{at("t", 0), at("t", 1), at("t", 2)}, m.Assignment)
	require.Equal(t, m.ID, g.Owners()[at("t", 1)].ID)
	require.Nil(t, g.Owners()[at("u", 0)])

	g, err = e.client.DescribeGroup(t.Context(), "simple")
	require.NoError(t, err)
	require.Empty(t, g.Protocol)
	require.Empty(t, g.Members)
	_, err = e.client.DescribeGroup(t.Context(), "none")
	require.ErrorIs(t, err, kerr.GroupIDNotFound)
	require.ErrorContains(t, err, "group none does not exist")
	some, err := e.client.DescribeGroups(t.Context(), []string{"none", "live", "simple"})
	require.NoError(t, err)
	require.ErrorIs(t, some[0].Err, kerr.GroupIDNotFound)
	require.Nil(t, some[0].Group)
	require.Equal(t, "live", some[1].ID)
	require.Equal(t, "simple", some[2].ID)

	err = e.client.DeleteGroup(t.Context(), "live")
	require.ErrorIs(t, err, kerr.NonEmptyGroup)
	require.ErrorContains(t, err, "group live has members")
	require.NoError(t, e.client.DeleteGroup(t.Context(), "simple"))
	require.ErrorIs(t, e.client.DeleteGroup(t.Context(), "simple"), kerr.GroupIDNotFound)
	errs, err := e.client.DeleteOffsets(t.Context(), "live", []client.TopicPartition{at("t", 0)})
	require.NoError(t, err)
	require.ErrorIs(t, errs[0], kerr.GroupSubscribedToTopic)
}

func TestConsumerGroupIsDescribed(t *testing.T) {
	e := newGroupEnv(t)
	e.reply = func(r kmsg.Request) (kmsg.Response, error) {
		req, ok := r.(*kmsg.ConsumerGroupDescribeRequest)
		if !ok {
			return nil, nil
		}
		resp := req.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
		g := kmsg.NewConsumerGroupDescribeResponseGroup()
		g.Group, g.State, g.Epoch, g.AssignorName = req.Groups[0], client.GroupReconciling, 5, "uniform"
		m := kmsg.NewConsumerGroupDescribeResponseGroupMember()
		m.MemberID, m.MemberEpoch, m.SubscribedTopicRegex = "b", 4, kmsg.StringPtr("t.*")
		m.Assignment.TopicPartitions = []kmsg.AssignmentTopicPartition{
			{Topic: "u", Partitions: []int32{0}}, {Topic: "", Partitions: []int32{1}},
			{Topic: "t", Partitions: []int32{2, 1}},
		}
		m.TargetAssignment.TopicPartitions = []kmsg.AssignmentTopicPartition{{Topic: "t", Partitions: []int32{1}}}
		first := m
		first.MemberID, first.Assignment, first.SubscribedTopics = "a", kmsg.Assignment{}, []string{"u", "t"}
		g.Members = []kmsg.ConsumerGroupDescribeResponseGroupMember{m, first}
		resp.Groups = append(resp.Groups, g)
		return resp, nil
	}
	g, err := e.client.DescribeGroup(t.Context(), "g")
	require.NoError(t, err)
	require.Equal(t, client.ConsumerGroup, g.Type)
	require.Equal(t, "uniform", g.Assignor)
	require.EqualValues(t, 5, g.Epoch)
	require.Equal(t, "a", g.Members[0].ID)
	require.Equal(t, []string{"t", "u"}, g.Members[0].Subscription)
	require.Equal(t, []client.TopicPartition{at("t", 1), at("t", 2), at("u", 0)}, g.Members[1].Assignment)
	require.Equal(t, []client.TopicPartition{at("t", 1)}, g.Members[1].Target)
	require.Equal(t, "t.*", g.Members[1].Pattern)
	require.Zero(t, e.count(15), "a group of one type is not asked for as another")
}

func TestGroupRequestsWithoutAnswer(t *testing.T) {
	e := newGroupEnv(t)
	lost := errors.New("lost")
	e.reply = func(kmsg.Request) (kmsg.Response, error) { return nil, lost }
	ctx, of := t.Context(), []client.TopicPartition{at("t", 0)}
	for name, ask := range map[string]func() error{
		"list":      func() error { _, err := e.client.Groups(ctx, nil, nil); return err },
		"describe":  func() error { _, err := e.client.DescribeGroup(ctx, "g"); return err },
		"delete":    func() error { return e.client.DeleteGroup(ctx, "g") },
		"committed": func() error { _, err := e.client.Committed(ctx, "g", false); return err },
		"forget":    func() error { _, err := e.client.DeleteOffsets(ctx, "g", of); return err },
		"ends":      func() error { _, err := e.client.EndOffsets(ctx, of, client.ReadCommitted); return err },
		"commit": func() error {
			_, err := e.client.CommitOffsets(ctx, client.GroupCommit{Group: "g", Offsets: []client.CommittedOffset{{}}})
			return err
		},
	} {
		err := ask()
		require.ErrorIs(t, err, client.ErrNoAnswer, name)
		require.ErrorIs(t, err, lost, name)
	}
}

func TestGroupListThatLacksSomeIsAFault(t *testing.T) {
	e := newGroupEnv(t)
	e.reply = func(r kmsg.Request) (kmsg.Response, error) {
		resp := r.ResponseKind()
		if list, ok := resp.(*kmsg.ListGroupsResponse); ok {
			list.ErrorCode = kerr.CoordinatorLoadInProgress.Code
		}
		return resp, nil
	}
	_, err := e.client.Groups(t.Context(), nil, nil)
	require.ErrorIs(t, err, kerr.CoordinatorLoadInProgress)
	// An answer that leaves out what was asked about is none.
	_, err = e.client.DescribeGroup(t.Context(), "g")
	require.ErrorIs(t, err, client.ErrNoAnswer)
	require.ErrorIs(t, e.client.DeleteGroup(t.Context(), "g"), client.ErrNoAnswer)
	errs := e.commit("g", client.CommittedOffset{TopicPartition: at("t", 0)})
	require.ErrorIs(t, errs[0], client.ErrNoAnswer)
	_, err = e.client.Committed(t.Context(), "g", false)
	require.ErrorIs(t, err, client.ErrNoAnswer)
}

func TestOffsetsOfSeveralTopics(t *testing.T) {
	e := newGroupEnv(t)
	cl, err := kgo.NewClient(kgo.SeedBrokers(e.cluster.ListenAddrs()...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer cl.Close()
	for i, topic := range []string{"t", "t", "u"} {
		r := &kgo.Record{Topic: topic, Value: []byte("v"), Timestamp: time.UnixMilli(int64(1000 * (i + 1)))}
		require.NoError(t, cl.ProduceSync(t.Context(), r).FirstErr())
	}
	of := []client.TopicPartition{at("u", 0), at("t", 0), at("t", 1), at("none", 0)}
	ends, err := e.client.EndOffsets(t.Context(), of, client.ReadCommitted)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2, 0}, []int64{ends[0].Offset, ends[1].Offset, ends[2].Offset})
	require.ErrorIs(t, ends[3].Err, kerr.UnknownTopicOrPartition)
	starts, err := e.client.StartOffsets(t.Context(), of[:2])
	require.NoError(t, err)
	require.Zero(t, starts[1].Offset)
	found, err := e.client.OffsetsForTimes(t.Context(), of[:2], 1500, client.ReadCommitted)
	require.NoError(t, err)
	require.Equal(t, []int64{0, 1}, []int64{found[0].Offset, found[1].Offset})
	require.EqualValues(t, 2000, found[1].Timestamp)
}

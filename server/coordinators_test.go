package server_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server"
	"millrace/server/metadata"
	"millrace/server/servertest"
)

// makeTopic makes a topic with one partition.
func makeTopic(ctx context.Context, t *testing.T, to kmsg.Requestor, name string) {
	req := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, 1, -1
	req.Topics, req.TimeoutMillis = append(req.Topics, topic), 30_000
	tries := 0
	require.NoError(t, persist(ctx, func() error {
		tries++
		resp, err := req.RequestWith(ctx, to)
		if err != nil {
			return err
		}
		if err = kerr.ErrorForCode(resp.Topics[0].ErrorCode); tries > 1 && errors.Is(err, kerr.TopicAlreadyExists) {
			return nil // an earlier try was done
		}
		return err
	}))
}

// commitOffset commits an offset of partition 0 for a group without members.
func commitOffset(ctx context.Context, to kmsg.Requestor, group, topic string, offset int64) error {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = group, -1
	part := kmsg.NewOffsetCommitRequestTopicPartition()
	part.Offset = offset
	of := kmsg.NewOffsetCommitRequestTopic()
	of.Topic, of.Partitions = topic, append(of.Partitions, part)
	req.Topics = append(req.Topics, of)
	return persist(ctx, func() error {
		resp, err := req.RequestWith(ctx, to)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	})
}

// committed fetches what groups have committed for partition 0 of a topic.
func committed(ctx context.Context, t *testing.T, to kmsg.Requestor, topic string, groups ...string) map[string]int64 {
	req := kmsg.NewPtrOffsetFetchRequest()
	for _, id := range groups {
		of := kmsg.NewOffsetFetchRequestGroupTopic()
		of.Topic, of.Partitions = topic, []int32{0}
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group, g.Topics = id, append(g.Topics, of)
		req.Groups = append(req.Groups, g)
	}
	var resp *kmsg.OffsetFetchResponse
	require.NoError(t, persist(ctx, func() (err error) {
		if resp, err = req.RequestWith(ctx, to); err != nil {
			return err
		}
		for _, g := range resp.Groups {
			err = errors.Join(err, kerr.ErrorForCode(g.ErrorCode))
		}
		return err
	}))
	out := make(map[string]int64)
	for i, g := range resp.Groups {
		require.Equal(t, groups[i], g.Group)
		out[g.Group] = g.Topics[0].Partitions[0].Offset
	}
	return out
}

// listed lists the groups of the cluster.
func listed(ctx context.Context, t *testing.T, to kmsg.Requestor) (ids []string) {
	var resp *kmsg.ListGroupsResponse
	require.NoError(t, persist(ctx, func() (err error) {
		if resp, err = kmsg.NewPtrListGroupsRequest().RequestWith(ctx, to); err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.ErrorCode)
	}))
	for _, g := range resp.Groups {
		ids = append(ids, g.Group)
	}
	slices.Sort(ids)
	return ids
}

// lists waits until just these groups are listed: a new coordinator may not have heard yet that it is one.
func lists(ctx context.Context, t *testing.T, to kmsg.Requestor, ids []string) {
	t.Helper()
	want := slices.Sorted(slices.Values(ids))
	await(t, "all groups are listed", func() bool { return slices.Equal(want, listed(ctx, t, to)) })
}

func groupNames(n int) (ids []string, offsets map[string]int64) {
	offsets = make(map[string]int64)
	for i := range n {
		ids = append(ids, fmt.Sprintf("group %d", i))
		offsets[ids[i]] = int64(i)
	}
	return ids, offsets
}

func TestGroupsOfOneNode(t *testing.T) {
	n := servertest.Start(t, servertest.Options{})
	ctx, to := t.Context(), n.Requestor()
	require.Empty(t, listed(ctx, t, to))
	makeTopic(ctx, t, to, "t")
	ids, offsets := groupNames(30)
	var wg sync.WaitGroup
	errs := make([]error, len(ids))
	for i, id := range ids { // the first of them make the topic, all at once
		wg.Go(func() { errs[i] = commitOffset(ctx, to, id, "t", offsets[id]) })
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.ElementsMatch(t, ids, listed(ctx, t, to))
	n.Restart()
	require.Equal(t, offsets, committed(ctx, t, n.Requestor(), "t", ids...))
}

// Any node answers for any group, and what was committed survives the end of any node.
func TestGroupsOfACluster(t *testing.T) {
	c := servertest.StartCluster(t, servertest.ClusterOptions{Change: func(cfg *server.Config) {
		cfg.Broker = map[string]string{"default.replication.factor": "3"}
	}})
	ctx := t.Context()
	makeTopic(ctx, t, c.Node(1).Requestor(), "t")
	everywhere(t, c, "t")
	ids, offsets := groupNames(40)
	var wg sync.WaitGroup
	errs := make([]error, len(ids))
	for i, id := range ids {
		wg.Go(func() { errs[i] = commitOffset(ctx, c.Node(i%3+1).Requestor(), id, "t", offsets[id]) })
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.CoordinatorKeys = ids
	var found *kmsg.FindCoordinatorResponse
	require.NoError(t, persist(ctx, func() (err error) {
		if found, err = find.RequestWith(ctx, c.Node(1).Requestor()); err != nil {
			return err
		}
		for _, one := range found.Coordinators {
			err = errors.Join(err, kerr.ErrorForCode(one.ErrorCode))
		}
		return err
	}))
	at := make(map[int32]int)
	for _, one := range found.Coordinators {
		at[one.NodeID]++
	}
	require.Len(t, at, 3, "coordinators are on all nodes")
	for _, id := range []int{1, 2, 3} {
		require.Equal(t, offsets, committed(ctx, t, c.Node(id).Requestor(), "t", ids...))
		lists(ctx, t, c.Node(id).Requestor(), ids)
	}
	c.Stop(2)
	require.Equal(t, offsets, committed(ctx, t, c.Node(1).Requestor(), "t", ids...))
	lists(ctx, t, c.Node(3).Requestor(), ids)
	for _, id := range ids {
		offsets[id] += 100
		require.NoError(t, commitOffset(ctx, c.Node(3).Requestor(), id, "t", offsets[id]))
	}
	c.Start(2)
	c.Stop(1)
	require.Equal(t, offsets, committed(ctx, t, c.Node(2).Requestor(), "t", ids...))
}

// The internal topics are as the settings say, and are nobody's to change.
func TestInternalTopicsAreProtected(t *testing.T) {
	n := servertest.Start(t, servertest.Options{Change: func(cfg *server.Config) {
		cfg.Broker = map[string]string{"offsets.topic.num.partitions": "4"}
	}})
	ctx, to := t.Context(), n.Requestor()
	makeTopic(ctx, t, to, "t")
	require.NoError(t, commitOffset(ctx, to, "g", "t", 7))

	described := kmsg.NewPtrMetadataRequest()
	name := metadata.GroupTopic
	described.Topics = append(described.Topics, kmsg.MetadataRequestTopic{Topic: &name})
	meta, err := described.RequestWith(ctx, to)
	require.NoError(t, err)
	require.Len(t, meta.Topics[0].Partitions, 4)

	more := kmsg.NewPtrCreatePartitionsRequest()
	topic := kmsg.NewCreatePartitionsRequestTopic()
	topic.Topic, topic.Count = name, 8
	more.Topics, more.TimeoutMillis = append(more.Topics, topic), 30_000
	grown, err := more.RequestWith(ctx, to)
	require.NoError(t, err)
	require.ErrorIs(t, kerr.ErrorForCode(grown.Topics[0].ErrorCode), kerr.InvalidTopicException)

	remove := kmsg.NewPtrDeleteTopicsRequest()
	gone := kmsg.NewDeleteTopicsRequestTopic()
	gone.Topic = &name
	remove.Topics, remove.TimeoutMillis = append(remove.Topics, gone), 30_000
	deleted, err := remove.RequestWith(ctx, to)
	require.NoError(t, err)
	require.ErrorIs(t, kerr.ErrorForCode(deleted.Topics[0].ErrorCode), kerr.InvalidTopicException)
	require.Equal(t, map[string]int64{"g": 7}, committed(ctx, t, to, "t", "g"))
}

// What groups have committed for a topic goes with it.
func TestOffsetsGoWithTheirTopic(t *testing.T) {
	n := servertest.Start(t, servertest.Options{})
	ctx, to := t.Context(), n.Requestor()
	makeTopic(ctx, t, to, "t")
	require.NoError(t, commitOffset(ctx, to, "g", "t", 7))
	remove := kmsg.NewPtrDeleteTopicsRequest()
	name, gone := "t", kmsg.NewDeleteTopicsRequestTopic()
	gone.Topic = &name
	remove.Topics, remove.TimeoutMillis = append(remove.Topics, gone), 30_000
	deleted, err := remove.RequestWith(ctx, to)
	require.NoError(t, err)
	require.NoError(t, kerr.ErrorForCode(deleted.Topics[0].ErrorCode))
	await(t, "the offset is gone", func() bool { return committed(ctx, t, to, "t", "g")["g"] == -1 })
}

// initTxn gives a transactional id its producer.
func initTxn(ctx context.Context, t *testing.T, to kmsg.Requestor, id string) *kmsg.InitProducerIDResponse {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = &id, 60_000
	var resp *kmsg.InitProducerIDResponse
	require.NoError(t, persist(ctx, func() (err error) {
		if resp, err = req.RequestWith(ctx, to); err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.ErrorCode)
	}))
	return resp
}

// Any node begins and ends a transaction, of offsets too, and what it holds outlives the end of any node.
func TestTransactionsOfACluster(t *testing.T) {
	c := servertest.StartCluster(t, servertest.ClusterOptions{Change: func(cfg *server.Config) {
		cfg.Broker = map[string]string{
			"default.replication.factor": "3", "offsets.topic.num.partitions": "6", "transaction.state.log.num.partitions": "6",
		}
	}})
	ctx := t.Context()
	makeTopic(ctx, t, c.Node(1).Requestor(), "t")
	everywhere(t, c, "t")
	ids := []string{"one", "two", "three", "four"}
	for i, id := range ids {
		moveOffset(ctx, t, c.Node(i%3+1).Requestor(), c.Node((i+1)%3+1).Requestor(), id, int64(i+1))
	}
	want := map[string]int64{"group of one": 1, "group of two": -1, "group of three": 3, "group of four": -1}
	groups := []string{"group of one", "group of two", "group of three", "group of four"}
	await(t, "the markers are written", func() bool { // which is done behind the answer
		return maps.Equal(want, committed(ctx, t, c.Node(2).Requestor(), "t", groups...))
	})
	c.Stop(1)
	require.Equal(t, want, committed(ctx, t, c.Node(2).Requestor(), "t", groups...))
	await(t, "all transactions are listed", func() bool { return len(txnStates(ctx, t, c.Node(3).Requestor())) == 4 })
	describe := kmsg.NewPtrDescribeTransactionsRequest()
	describe.TransactionalIDs = ids
	var described *kmsg.DescribeTransactionsResponse
	require.NoError(t, persist(ctx, func() (err error) {
		if described, err = describe.RequestWith(ctx, c.Node(2).Requestor()); err != nil {
			return err
		}
		for _, s := range described.TransactionStates {
			err = errors.Join(err, kerr.ErrorForCode(s.ErrorCode))
		}
		return err
	}))
	require.Len(t, described.TransactionStates, 4)
	for i, s := range described.TransactionStates {
		require.Equal(t, ids[i], s.TransactionalID)
	}
}

// moveOffset commits an offset in a transaction by way of one node, and ends it by way of another: odd offsets are
// committed, even ones are not.
func moveOffset(ctx context.Context, t *testing.T, to, last kmsg.Requestor, id string, offset int64) {
	p := initTxn(ctx, t, to, id)
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = id, p.ProducerID, p.ProducerEpoch, "group of "+id
	require.NoError(t, persist(ctx, func() error {
		added, err := add.RequestWith(ctx, to)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(added.ErrorCode)
	}))
	commit := kmsg.NewPtrTxnOffsetCommitRequest()
	commit.TransactionalID, commit.Group = id, add.Group
	commit.ProducerID, commit.ProducerEpoch = p.ProducerID, p.ProducerEpoch
	part := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	part.Offset = offset
	of := kmsg.NewTxnOffsetCommitRequestTopic()
	of.Topic, of.Partitions = "t", append(of.Partitions, part)
	commit.Topics = append(commit.Topics, of)
	require.NoError(t, persist(ctx, func() error {
		done, err := commit.RequestWith(ctx, to)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(done.Topics[0].Partitions[0].ErrorCode)
	}))
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = id, p.ProducerID, p.ProducerEpoch, offset%2 == 1
	require.NoError(t, persist(ctx, func() error {
		ended, err := end.RequestWith(ctx, last)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(ended.ErrorCode)
	}))
}

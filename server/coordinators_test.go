package server_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

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
	req.Topics, req.TimeoutMillis = append(req.Topics, topic), 10_000
	resp, err := req.RequestWith(ctx, to)
	require.NoError(t, err)
	require.NoError(t, kerr.ErrorForCode(resp.Topics[0].ErrorCode))
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
	resp, err := req.RequestWith(ctx, to)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
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
	resp, err := req.RequestWith(ctx, to)
	require.NoError(t, err)
	out := make(map[string]int64)
	for i, g := range resp.Groups {
		require.Equal(t, groups[i], g.Group)
		require.NoError(t, kerr.ErrorForCode(g.ErrorCode), g.Group)
		out[g.Group] = g.Topics[0].Partitions[0].Offset
	}
	return out
}

// listed lists the groups of the cluster.
func listed(ctx context.Context, t *testing.T, to kmsg.Requestor) (ids []string) {
	resp, err := kmsg.NewPtrListGroupsRequest().RequestWith(ctx, to)
	require.NoError(t, err)
	require.NoError(t, kerr.ErrorForCode(resp.ErrorCode))
	for _, g := range resp.Groups {
		ids = append(ids, g.Group)
	}
	return ids
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	makeTopic(ctx, t, c.Node(1).Requestor(), "t")
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
	found, err := find.RequestWith(ctx, c.Node(1).Requestor())
	require.NoError(t, err)
	at := make(map[int32]int)
	for _, one := range found.Coordinators {
		require.NoError(t, kerr.ErrorForCode(one.ErrorCode))
		at[one.NodeID]++
	}
	require.Len(t, at, 3, "coordinators are on all nodes")
	for _, id := range []int{1, 2, 3} {
		require.Equal(t, offsets, committed(ctx, t, c.Node(id).Requestor(), "t", ids...))
		require.ElementsMatch(t, ids, listed(ctx, t, c.Node(id).Requestor()))
	}
	c.Stop(2)
	require.Equal(t, offsets, committed(ctx, t, c.Node(1).Requestor(), "t", ids...))
	require.ElementsMatch(t, ids, listed(ctx, t, c.Node(3).Requestor()))
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
	more.Topics, more.TimeoutMillis = append(more.Topics, topic), 1000
	grown, err := more.RequestWith(ctx, to)
	require.NoError(t, err)
	require.ErrorIs(t, kerr.ErrorForCode(grown.Topics[0].ErrorCode), kerr.InvalidTopicException)

	remove := kmsg.NewPtrDeleteTopicsRequest()
	gone := kmsg.NewDeleteTopicsRequestTopic()
	gone.Topic = &name
	remove.Topics, remove.TimeoutMillis = append(remove.Topics, gone), 1000
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
	remove.Topics, remove.TimeoutMillis = append(remove.Topics, gone), 1000
	deleted, err := remove.RequestWith(ctx, to)
	require.NoError(t, err)
	require.NoError(t, kerr.ErrorForCode(deleted.Topics[0].ErrorCode))
	require.Eventually(t, func() bool {
		return committed(ctx, t, to, "t", "g")["g"] == -1
	}, 10*time.Second, 5*time.Millisecond)
}

// initTxn gives a transactional id its producer.
func initTxn(ctx context.Context, t *testing.T, to kmsg.Requestor, id string) *kmsg.InitProducerIDResponse {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = &id, 60_000
	resp, err := req.RequestWith(ctx, to)
	require.NoError(t, err)
	require.NoError(t, kerr.ErrorForCode(resp.ErrorCode))
	return resp
}

// Any node begins and ends a transaction, of offsets too, and what it holds outlives the end of any node.
func TestTransactionsOfACluster(t *testing.T) {
	c := servertest.StartCluster(t, servertest.ClusterOptions{Change: func(cfg *server.Config) {
		cfg.Broker = map[string]string{
			"default.replication.factor": "3", "offsets.topic.num.partitions": "6", "transaction.state.log.num.partitions": "6",
		}
	}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	makeTopic(ctx, t, c.Node(1).Requestor(), "t")
	ids := []string{"one", "two", "three", "four"}
	for i, id := range ids {
		to := c.Node(i%3 + 1).Requestor()
		p := initTxn(ctx, t, to, id)
		add := kmsg.NewPtrAddOffsetsToTxnRequest()
		add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = id, p.ProducerID, p.ProducerEpoch, "group of "+id
		added, err := add.RequestWith(ctx, to)
		require.NoError(t, err)
		require.NoError(t, kerr.ErrorForCode(added.ErrorCode))
		commit := kmsg.NewPtrTxnOffsetCommitRequest()
		commit.TransactionalID, commit.Group = id, add.Group
		commit.ProducerID, commit.ProducerEpoch = p.ProducerID, p.ProducerEpoch
		part := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		part.Offset = int64(i + 1)
		of := kmsg.NewTxnOffsetCommitRequestTopic()
		of.Topic, of.Partitions = "t", append(of.Partitions, part)
		commit.Topics = append(commit.Topics, of)
		done, err := commit.RequestWith(ctx, to)
		require.NoError(t, err)
		require.NoError(t, kerr.ErrorForCode(done.Topics[0].Partitions[0].ErrorCode))
		end := kmsg.NewPtrEndTxnRequest()
		end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = id, p.ProducerID, p.ProducerEpoch, i%2 == 0
		ended, err := end.RequestWith(ctx, c.Node((i+1)%3+1).Requestor())
		require.NoError(t, err)
		require.NoError(t, kerr.ErrorForCode(ended.ErrorCode))
	}
	want := map[string]int64{"group of one": 1, "group of two": -1, "group of three": 3, "group of four": -1}
	groups := []string{"group of one", "group of two", "group of three", "group of four"}
	require.Eventually(t, func() bool { // the markers are written behind the answer
		got := committed(ctx, t, c.Node(2).Requestor(), "t", groups...)
		return fmt.Sprint(got) == fmt.Sprint(want)
	}, 20*time.Second, 10*time.Millisecond)
	c.Stop(1)
	require.Equal(t, want, committed(ctx, t, c.Node(2).Requestor(), "t", groups...))
	list, err := kmsg.NewPtrListTransactionsRequest().RequestWith(ctx, c.Node(3).Requestor())
	require.NoError(t, err)
	require.NoError(t, kerr.ErrorForCode(list.ErrorCode))
	require.Len(t, list.TransactionStates, 4)
	describe := kmsg.NewPtrDescribeTransactionsRequest()
	describe.TransactionalIDs = ids
	described, err := describe.RequestWith(ctx, c.Node(2).Requestor())
	require.NoError(t, err)
	for i, s := range described.TransactionStates {
		require.Equal(t, ids[i], s.TransactionalID)
		require.NoError(t, kerr.ErrorForCode(s.ErrorCode))
	}
}

package broker_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
)

func metadataRequest(auto bool, names ...string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = auto
	req.Topics = []kmsg.MetadataRequestTopic{}
	for i := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &names[i]
		req.Topics = append(req.Topics, t)
	}
	return req
}

func TestMetadata(t *testing.T) {
	n := newNode(t, options{recoded: true})
	defer n.stop()
	n.create("b", 2)
	n.create("a", 1)
	req := metadataRequest(false)
	req.Topics = nil
	resp, err := req.RequestWith(t.Context(), n.r)
	require.NoError(t, err)
	require.Equal(t, n.machine.Image().ClusterID, *resp.ClusterID)
	require.Equal(t, int32(1), resp.ControllerID)
	require.Len(t, resp.Brokers, 1)
	require.Equal(t, "127.0.0.1", resp.Brokers[0].Host)
	require.Equal(t, int32(8082), resp.Brokers[0].Port)
	require.Len(t, resp.Topics, 2)
	require.Equal(t, "a", *resp.Topics[0].Topic)
	require.Equal(t, n.id("b"), resp.Topics[1].TopicID)
	require.Equal(t, int32(1), resp.Topics[1].Partitions[1].Leader)
	require.Equal(t, []int32{1}, resp.Topics[1].Partitions[1].ISR)

	resp, err = metadataRequest(false, "b", "absent", "a/b", "__consumer_offsets").RequestWith(t.Context(), n.r)
	require.NoError(t, err)
	require.Equal(t, "NONE", name(resp.Topics[0].ErrorCode))
	require.Equal(t, "UNKNOWN_TOPIC_OR_PARTITION", name(resp.Topics[1].ErrorCode))
	require.Equal(t, "absent", *resp.Topics[1].Topic)
	require.Equal(t, "INVALID_TOPIC_EXCEPTION", name(resp.Topics[2].ErrorCode))
	require.Equal(t, "UNKNOWN_TOPIC_OR_PARTITION", name(resp.Topics[3].ErrorCode))
	require.True(t, resp.Topics[3].IsInternal)

	byID := metadataRequest(false)
	byID.Topics = []kmsg.MetadataRequestTopic{{TopicID: n.id("a")}, {TopicID: [16]byte{9}}}
	resp, err = byID.RequestWith(t.Context(), n.r)
	require.NoError(t, err)
	require.Equal(t, "a", *resp.Topics[0].Topic)
	require.Equal(t, "UNKNOWN_TOPIC_ID", name(resp.Topics[1].ErrorCode))

	resp, err = metadataRequest(false).RequestWith(t.Context(), n.r)
	require.NoError(t, err)
	require.Empty(t, resp.Topics)
}

func TestAutoCreation(t *testing.T) {
	n := newNode(t, options{static: map[string]string{"num.partitions": "3"}})
	defer n.stop()
	resp, err := metadataRequest(true, "new", "a/b", "__consumer_offsets").RequestWith(t.Context(), n.r)
	require.NoError(t, err)
	require.Equal(t, "NONE", name(resp.Topics[0].ErrorCode))
	require.Len(t, resp.Topics[0].Partitions, 3)
	require.Equal(t, "INVALID_TOPIC_EXCEPTION", name(resp.Topics[1].ErrorCode))
	require.Equal(t, "UNKNOWN_TOPIC_OR_PARTITION", name(resp.Topics[2].ErrorCode))
	n.produce("new", 2, plain("v"))
	resp, err = metadataRequest(true, "ne_w", "n.e", "n_e").RequestWith(t.Context(), n.r)
	require.NoError(t, err)
	require.Equal(t, "NONE", name(resp.Topics[1].ErrorCode))
	require.Equal(t, "INVALID_TOPIC_EXCEPTION", name(resp.Topics[2].ErrorCode), "n.e and n_e collide")

	off := newNode(t, options{static: map[string]string{"auto.create.topics.enable": "false"}})
	defer off.stop()
	resp, err = metadataRequest(true, "new").RequestWith(t.Context(), off.r)
	require.NoError(t, err)
	require.Equal(t, "UNKNOWN_TOPIC_OR_PARTITION", name(resp.Topics[0].ErrorCode))
}

func TestAutoCreationByManyAtOnce(t *testing.T) {
	n := newNode(t, options{})
	defer n.stop()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			resp, err := metadataRequest(true, "new").RequestWith(context.Background(), n.r)
			if err != nil || resp.Topics[0].ErrorCode != 0 || len(resp.Topics[0].Partitions) != 1 {
				t.Errorf("error %v, answer %+v", err, resp)
			}
		})
	}
	wg.Wait()
}

func TestDescribeConfigs(t *testing.T) {
	n := newNode(t, options{recoded: true, static: map[string]string{"log.retention.hours": "2"}})
	defer n.stop()
	n.create("t", 1, "retention.ms", "1000")
	n.create("u", 1)
	describe := func(kind kmsg.ConfigResourceType, resource string, names ...string) kmsg.DescribeConfigsResponseResource {
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.IncludeSynonyms, req.IncludeDocumentation = true, true
		req.Resources = []kmsg.DescribeConfigsRequestResource{{
			ResourceType: kind, ResourceName: resource, ConfigNames: names,
		}}
		resp, err := req.RequestWith(t.Context(), n.r)
		require.NoError(t, err)
		return resp.Resources[0]
	}
	topic, brokers := kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceTypeBroker
	c := describe(topic, "t", "retention.ms").Configs
	require.Len(t, c, 1)
	require.Equal(t, "1000", *c[0].Value)
	require.Equal(t, kmsg.ConfigSourceDynamicTopicConfig, c[0].Source)
	require.Equal(t, kmsg.ConfigTypeLong, c[0].ConfigType)
	require.NotEmpty(t, *c[0].Documentation)
	require.Equal(t, "log.retention.hours", c[0].ConfigSynonyms[1].Name)
	require.Equal(t, kmsg.ConfigSourceStaticBrokerConfig, c[0].ConfigSynonyms[1].Source)

	c = describe(topic, "u", "retention.ms").Configs
	require.Equal(t, "7200000", *c[0].Value)
	require.Equal(t, kmsg.ConfigSourceStaticBrokerConfig, c[0].Source)
	require.Greater(t, len(describe(topic, "u").Configs), 25)
	require.Greater(t, len(describe(brokers, "1").Configs), 100)
	require.Empty(t, describe(brokers, "").Configs)
	require.Equal(t, "INVALID_REQUEST", name(describe(brokers, "2").ErrorCode))
	require.Equal(t, "UNKNOWN_TOPIC_OR_PARTITION", name(describe(topic, "absent").ErrorCode))
	require.Equal(t, "INVALID_TOPIC_EXCEPTION", name(describe(topic, "..").ErrorCode))
	require.Equal(t, "INVALID_REQUEST", name(describe(kmsg.ConfigResourceTypeBrokerLogger, "1").ErrorCode))
}

func TestDescribeClusterAndLogDirs(t *testing.T) {
	n := newNode(t, options{recoded: true})
	defer n.stop()
	n.create("t", 2)
	n.create("a", 1)
	n.produce("t", 1, plain("v"))
	cluster, err := kmsg.NewPtrDescribeClusterRequest().RequestWith(t.Context(), n.r)
	require.NoError(t, err)
	require.Equal(t, n.machine.Image().ClusterID, cluster.ClusterID)
	require.Equal(t, int32(1), cluster.ControllerID)
	require.Len(t, cluster.Brokers, 1)
	controllers := kmsg.NewPtrDescribeClusterRequest()
	controllers.EndpointType = 2
	cluster, err = controllers.RequestWith(t.Context(), n.r)
	require.NoError(t, err)
	require.Equal(t, "UNSUPPORTED_ENDPOINT_TYPE", name(cluster.ErrorCode))

	dirs, err := kmsg.NewPtrDescribeLogDirsRequest().RequestWith(t.Context(), n.r)
	require.NoError(t, err)
	require.Len(t, dirs.Dirs, 1)
	d := dirs.Dirs[0]
	require.Equal(t, "/data", d.Dir)
	require.Equal(t, int64(1000), d.TotalBytes)
	require.Equal(t, int64(400), d.UsableBytes)
	require.Equal(t, "a", d.Topics[0].Topic)
	require.Equal(t, int64(len(plain("v"))), d.Topics[1].Partitions[1].Size)
	some := kmsg.NewPtrDescribeLogDirsRequest()
	some.Topics = []kmsg.DescribeLogDirsRequestTopic{{Topic: "t", Partitions: []int32{1, 5}}, {Topic: "absent"}}
	dirs, err = some.RequestWith(t.Context(), n.r)
	require.NoError(t, err)
	require.Len(t, dirs.Dirs[0].Topics, 1)
	require.Len(t, dirs.Dirs[0].Topics[0].Partitions, 1)
}

func TestInitProducerID(t *testing.T) {
	n := newNode(t, options{recoded: true})
	defer n.stop()
	seen := make(map[int64]bool)
	for i := range 2500 {
		resp, err := kmsg.NewPtrInitProducerIDRequest().RequestWith(t.Context(), n.r)
		require.NoError(t, err)
		require.Equal(t, "NONE", name(resp.ErrorCode), "id %d", i)
		require.False(t, seen[resp.ProducerID], "producer id %d was given twice", resp.ProducerID)
		require.Equal(t, int16(0), resp.ProducerEpoch)
		seen[resp.ProducerID] = true
	}
	n.restart()
	resp, err := kmsg.NewPtrInitProducerIDRequest().RequestWith(t.Context(), n.r)
	require.NoError(t, err)
	require.False(t, seen[resp.ProducerID], "a restart gives out ids anew")

	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID = kmsg.StringPtr("x")
	resp, err = req.RequestWith(t.Context(), n.r)
	require.NoError(t, err)
	require.Equal(t, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", name(resp.ErrorCode))
	require.Equal(t, int64(-1), resp.ProducerID)
}

func TestInitProducerIDFromManyAtOnce(t *testing.T) {
	n := newNode(t, options{})
	defer n.stop()
	ids := make(chan int64, 3000)
	var wg sync.WaitGroup
	for range 30 {
		wg.Go(func() {
			for range 100 {
				resp, err := kmsg.NewPtrInitProducerIDRequest().RequestWith(context.Background(), n.r)
				if err == nil && resp.ErrorCode == 0 {
					ids <- resp.ProducerID
				}
			}
		})
	}
	wg.Wait()
	close(ids)
	seen := make(map[int64]bool)
	for id := range ids {
		require.False(t, seen[id], "producer id %d was given twice", id)
		seen[id] = true
	}
	require.Equal(t, 3000, len(seen))
}

func TestDescribeProducers(t *testing.T) {
	n := newNode(t, options{recoded: true})
	defer n.stop()
	n.create("t", 2)
	named := ktag.NamedProducerID("x")
	n.produce("t", 0, batch(5, 1, 0, "a", "b"))
	n.produce("t", 0, batch(named, 2, 7, "a"))
	describe := func(filter int64, partitions ...int32) []kmsg.DescribeProducersResponseTopicPartition {
		req := kmsg.NewPtrDescribeProducersRequest()
		req.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: "t", Partitions: partitions}}
		if filter >= 0 {
			ktag.SetProducerFilter(&req.UnknownTags, filter)
		}
		resp, err := req.RequestWith(t.Context(), n.r)
		require.NoError(t, err)
		return resp.Topics[0].Partitions
	}
	p := describe(-1, 0, 1, 2)
	require.Len(t, p[0].ActiveProducers, 2)
	require.Equal(t, int64(5), p[0].ActiveProducers[0].ProducerID)
	require.Equal(t, int32(1), p[0].ActiveProducers[0].LastSequence)
	require.Equal(t, int64(-1), p[0].ActiveProducers[0].CurrentTxnStartOffset)
	require.Empty(t, p[1].ActiveProducers)
	require.Equal(t, "UNKNOWN_TOPIC_OR_PARTITION", name(p[2].ErrorCode))
	p = describe(named, 0)
	require.Len(t, p[0].ActiveProducers, 1)
	require.Equal(t, int32(7), p[0].ActiveProducers[0].LastSequence)
	require.Equal(t, int32(2), p[0].ActiveProducers[0].ProducerEpoch)
}

func TestOffsetForLeaderEpoch(t *testing.T) {
	n := newNode(t, options{recoded: true})
	defer n.stop()
	n.create("t", 1)
	n.produce("t", 0, plain("a", "b"))
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{
		Topic: "t", Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{
			{Partition: 0, CurrentLeaderEpoch: -1, LeaderEpoch: 0},
			{Partition: 0, CurrentLeaderEpoch: 9, LeaderEpoch: 0},
			{Partition: 3, CurrentLeaderEpoch: -1, LeaderEpoch: 0},
		},
	}}
	resp, err := req.RequestWith(t.Context(), n.r)
	require.NoError(t, err)
	p := resp.Topics[0].Partitions
	require.Equal(t, int64(2), p[0].EndOffset)
	require.Equal(t, int32(0), p[0].LeaderEpoch)
	require.Equal(t, "UNKNOWN_LEADER_EPOCH", name(p[1].ErrorCode))
	require.Equal(t, "UNKNOWN_TOPIC_OR_PARTITION", name(p[2].ErrorCode))
}

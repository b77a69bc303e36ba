package broker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/record"
	"millrace/server/metadata"
	"millrace/server/partition"
	"millrace/storage"
	"millrace/storage/storagetest"
)

// coordinator is a transaction coordinator that does as it is told.
type coordinator struct {
	asked  []string // the partitions of each request
	code   func(topic string, partition int32) int16
	before func()
}

func (c *coordinator) Request(_ context.Context, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.AddPartitionsToTxnRequest)
	if c.before != nil {
		c.before()
	}
	txn := req.Transactions[0]
	said := fmt.Sprintf("%s %d/%d", txn.TransactionalID, txn.ProducerID, txn.ProducerEpoch)
	resp := req.ResponseKind().(*kmsg.AddPartitionsToTxnResponse)
	out := kmsg.NewAddPartitionsToTxnResponseTransaction()
	out.TransactionalID = txn.TransactionalID
	for _, t := range txn.Topics {
		topic := kmsg.NewAddPartitionsToTxnResponseTransactionTopic()
		topic.Topic = t.Topic
		for _, number := range t.Partitions {
			said += fmt.Sprintf(" %s-%d", t.Topic, number)
			p := kmsg.NewAddPartitionsToTxnResponseTransactionTopicPartition()
			p.Partition = number
			if c.code != nil {
				p.ErrorCode = c.code(t.Topic, number)
			}
			topic.Partitions = append(topic.Partitions, p)
		}
		out.Topics = append(out.Topics, topic)
	}
	resp.Transactions = append(resp.Transactions, out)
	c.asked = append(c.asked, said)
	return resp, nil
}

func newTxnNode(t *testing.T) (*node, *coordinator) {
	c := new(coordinator)
	n := newNode(t, options{cluster: c.Request, recoded: true})
	t.Cleanup(func() { n.stop() })
	n.create("t", 3)
	return n, c
}

func inTxn(b record.Batch) record.Batch {
	b[22] |= 0x10
	b.Seal()
	return b
}

// txnRequest is a produce of one transaction with a batch for each of some partitions.
func (n *node) txnRequest(id int64, epoch int16, sequence int32, partitions ...int32) *kmsg.ProduceRequest {
	req := n.produceRequest("t", partitions[0], inTxn(batch(id, epoch, sequence, "v")))
	req.TransactionID = kmsg.StringPtr("x")
	for _, number := range partitions[1:] {
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = number, inTxn(batch(id, epoch, sequence, "v"))
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, p)
	}
	return req
}

// codes sends a request and gives the names of the answers' codes, with a star where nothing was written for certain.
func (n *node) codes(req *kmsg.ProduceRequest) (out []string) {
	resp, err := req.RequestWith(context.Background(), n.r)
	require.NoError(n.t, err)
	for _, t := range resp.Topics {
		for i := range t.Partitions {
			said := name(t.Partitions[i].ErrorCode)
			if ktag.NotWritten(&t.Partitions[i].UnknownTags) {
				said += "*"
			}
			out = append(out, said)
		}
	}
	return out
}

// mark ends a transaction on partitions of a topic, and gives the codes.
func (n *node) mark(topic string, id int64, epoch int16, commit bool, partitions ...int32) (out []string) {
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.Version = 2
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.ProducerEpoch, m.Committed, m.CoordinatorEpoch, m.TransactionVersion = id, epoch, commit, 3, 2
	t := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
	t.Topic, t.Partitions = topic, partitions
	m.Topics = append(m.Topics, t)
	req.Markers = append(req.Markers, m)
	resp, err := req.RequestWith(context.Background(), n.r)
	require.NoError(n.t, err)
	require.Equal(n.t, id, resp.Markers[0].ProducerID)
	for i, p := range resp.Markers[0].Topics[0].Partitions {
		require.Equal(n.t, partitions[i], p.Partition)
		out = append(out, name(p.ErrorCode))
	}
	return out
}

// The first batch of a transaction on a partition has the coordinator asked, once for a request; no other has.
func TestProduceInTransactions(t *testing.T) {
	n, c := newTxnNode(t)
	require.Equal(t, []string{"NONE", "NONE"}, n.codes(n.txnRequest(7, 0, 0, 0, 2)))
	require.Equal(t, []string{"NONE", "NONE"}, n.codes(n.txnRequest(7, 0, 1, 0, 2)))
	require.Equal(t, []string{"NONE", "NONE"}, n.codes(n.txnRequest(7, 0, 1, 0, 2)), "a repeat")
	byID := n.txnRequest(7, 0, 0, 1)
	byID.Topics[0].Topic = ""
	resp, err := byID.RequestWith(t.Context(), n.broker)
	require.NoError(t, err)
	require.Zero(t, resp.Topics[0].Partitions[0].ErrorCode)
	require.Equal(t, []string{"NONE", "NONE", "NONE"}, n.mark("t", 7, 1, true, 0, 1, 2))
	require.Equal(t, []string{"INVALID_PRODUCER_EPOCH"}, n.codes(n.txnRequest(7, 0, 2, 0)))
	late := n.send(n.txnRequest(7, 0, 2, 0))
	epoch, ok := ktag.CurrentEpoch(&late.UnknownTags)
	require.True(t, ok)
	require.Equal(t, int16(1), epoch)
	require.Equal(t, []string{"NONE"}, n.codes(n.txnRequest(7, 1, 0, 0)))
	require.Equal(t, []string{"x 7/0 t-0 t-2", "x 7/0 t-1", "x 7/1 t-0"}, c.asked)
}

// What the coordinator says, the producer hears; what passes is asked again, as long as the request has time.
func TestCoordinatorRefuses(t *testing.T) {
	n, c := newTxnNode(t)
	for _, e := range []struct {
		code int16
		want string
	}{{51, "CONCURRENT_TRANSACTIONS"}, {90, "INVALID_PRODUCER_EPOCH"}, {49, "INVALID_PRODUCER_ID_MAPPING"},
		{120, "TRANSACTION_ABORTABLE"}} {
		c.code = func(string, int32) int16 { return e.code }
		require.Equal(t, []string{e.want + "*"}, n.codes(n.txnRequest(7, 0, 0, 0)))
	}
	c.code = func(_ string, number int32) int16 { return [...]int16{55, 90}[number] }
	require.Equal(t, []string{"OPERATION_NOT_ATTEMPTED*", "INVALID_PRODUCER_EPOCH*"}, n.codes(n.txnRequest(7, 0, 0, 0, 1)))
	for _, passing := range []int16{14, 15, 16, 3, 13} {
		times := 0
		c.code = func(string, int32) int16 {
			if times++; times < 4 {
				return passing
			}
			return 0
		}
		require.Equal(t, []string{"NONE"}, n.codes(n.txnRequest(int64(20+passing), 0, 0, 0)))
		c.code = func(string, int32) int16 { return passing }
		req := n.txnRequest(int64(40+passing), 0, 0, 0)
		req.TimeoutMillis = 50
		require.Equal(t, []string{"COORDINATOR_NOT_AVAILABLE*"}, n.codes(req))
	}
	ctx, cancel := context.WithCancel(t.Context())
	c.before = cancel
	_, err := n.txnRequest(8, 0, 0, 0).RequestWith(ctx, n.r)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, n.values("t", 2))
}

// values are all values of a partition.
func (n *node) values(topic string, number int32) []string {
	req := kmsg.NewPtrFetchRequest()
	ft := kmsg.NewFetchRequestTopic()
	ft.Topic, ft.TopicID = topic, n.id(topic)
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.PartitionMaxBytes = number, 1<<20
	ft.Partitions = append(ft.Partitions, p)
	req.Topics = append(req.Topics, ft)
	resp, err := req.RequestWith(context.Background(), n.r)
	require.NoError(n.t, err)
	return values(n.t, resp.Topics[0].Partitions[0].RecordBatches)
}

func TestTransactionalRequestsThatMakeNoSense(t *testing.T) {
	n, c := newTxnNode(t)
	empty := n.txnRequest(7, 0, 0, 0)
	empty.TransactionID = kmsg.StringPtr("")
	require.Equal(t, []string{"INVALID_REQUEST"}, n.codes(empty))
	two := n.txnRequest(7, 0, 0, 0, 1)
	two.Topics[0].Partitions[1].Records = inTxn(batch(7, 1, 0, "v"))
	require.Equal(t, []string{"INVALID_PRODUCER_ID_MAPPING", "INVALID_PRODUCER_ID_MAPPING"}, n.codes(two))
	mixed := n.txnRequest(7, 0, 0, 0, 1)
	mixed.Topics[0].Partitions[1].Records = plain("v")
	require.Equal(t, []string{"NONE", "INVALID_RECORD"}, n.codes(mixed))
	without := n.txnRequest(7, 0, 0, 0)
	without.Topics[0].Partitions[0].Records = inTxn(plain("v"))
	require.Equal(t, []string{"INVALID_RECORD"}, n.codes(without))
	none := n.txnRequest(7, 0, 1, 0)
	none.TransactionID = nil
	require.Equal(t, []string{"TRANSACTIONAL_ID_AUTHORIZATION_FAILED"}, n.codes(none))
	hasty := n.txnRequest(7, 0, 1, 0)
	hasty.Acks = 1
	require.Equal(t, []string{"INVALID_REQUIRED_ACKS"}, n.codes(hasty))
	elsewhere := n.txnRequest(7, 0, 0, 2, 9)
	require.Equal(t, []string{"NONE", "UNKNOWN_TOPIC_OR_PARTITION*"}, n.codes(elsewhere))
	require.Len(t, c.asked, 2)

	alone := newNode(t, options{})
	defer alone.stop()
	alone.create("t", 1)
	req := alone.txnRequest(7, 0, 0, 0)
	req.TimeoutMillis = 10
	require.Equal(t, []string{"COORDINATOR_NOT_AVAILABLE*"}, alone.codes(req))
}

// A marker that comes while the coordinator is asked ends the transaction for good.
func TestProduceComesTooLate(t *testing.T) {
	n, c := newTxnNode(t)
	c.before = func() {
		c.before = nil
		require.Equal(t, []string{"NONE"}, n.mark("t", 7, 1, false, 0))
	}
	require.Equal(t, []string{"INVALID_PRODUCER_EPOCH"}, n.codes(n.txnRequest(7, 0, 0, 0)))
	require.Equal(t, []string{"NONE"}, n.codes(n.produceRequest("t", 0, plain("v"))))
	f := n.fetchCommitted("t", 0, 0)
	require.Equal(t, []int64{2, 2}, []int64{f.HighWatermark, f.LastStableOffset})
}

func (n *node) committedRequest(topic string, number int32, offset int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.IsolationLevel, req.MinBytes = 1, 1
	ft := kmsg.NewFetchRequestTopic()
	ft.Topic, ft.TopicID = topic, n.id(topic)
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = number, offset, 1<<20
	ft.Partitions = append(ft.Partitions, p)
	req.Topics = append(req.Topics, ft)
	return req
}

func (n *node) fetchCommitted(topic string, number int32, offset int64) *kmsg.FetchResponseTopicPartition {
	resp, err := n.committedRequest(topic, number, offset).RequestWith(context.Background(), n.r)
	require.NoError(n.t, err)
	require.Zero(n.t, resp.Topics[0].Partitions[0].ErrorCode)
	return &resp.Topics[0].Partitions[0]
}

// Markers are answered one by one; those for offsets go to the group coordinator.
func TestWriteTxnMarkers(t *testing.T) {
	var told []string
	refusal := error(nil)
	c := new(coordinator)
	n := newNode(t, options{cluster: c.Request, marker: func(_ context.Context, number int32, m *partition.Marker) error {
		told = append(told, fmt.Sprintf("%d %+v", number, *m))
		return refusal
	}})
	defer n.stop()
	n.create("t", 2)
	require.Equal(t, []string{"NONE", "UNKNOWN_TOPIC_OR_PARTITION"}, n.mark("t", 7, 1, true, 0, 5))
	require.Equal(t, []string{"NONE"}, n.mark("t", 7, 1, true, 0), "again")
	require.Equal(t, []string{"INVALID_PRODUCER_EPOCH"}, n.mark("t", 7, 0, true, 0))
	require.Equal(t, []string{"UNKNOWN_TOPIC_OR_PARTITION"}, n.mark("absent", 7, 1, true, 0))
	require.Equal(t, []string{"NONE"}, n.mark(metadata.GroupTopic, 7, 1, true, 4))
	require.Equal(t, []string{
		"4 {ProducerID:7 ProducerEpoch:1 CoordinatorEpoch:3 Commit:true Version:2 Epoch:-1}",
	}, told)
	refusal = partition.ErrNotLeader
	require.Equal(t, []string{"NOT_LEADER_FOR_PARTITION"}, n.mark(metadata.GroupTopic, 7, 1, true, 4))
	refusal = errors.New("odd")
	require.Equal(t, []string{"UNKNOWN_SERVER_ERROR"}, n.mark(metadata.GroupTopic, 7, 1, true, 4))
}

// A reader of committed records waits over what is not decided, however much of that comes, and no longer.
func TestLongPollOfCommittedRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := new(coordinator)
		n := newNode(t, options{fs: storagetest.New(), policy: storage.SyncAck, cluster: c.Request})
		defer n.stop()
		n.create("t", 3)
		require.Equal(t, []string{"NONE"}, n.codes(n.txnRequest(7, 0, 0, 0)))
		answers := make(chan *kmsg.FetchResponse, 1)
		poll := func(minBytes int32, offset int64) {
			req := n.committedRequest("t", 0, offset)
			req.MaxWaitMillis, req.MinBytes = 60_000, minBytes
			go func() {
				resp, _ := req.RequestWith(context.Background(), n.r)
				answers <- resp
			}()
			synctest.Wait()
		}
		poll(1, 0)
		for range 10 {
			require.Equal(t, []string{"NONE"}, n.codes(n.produceRequest("t", 0, plain("v"))))
			time.Sleep(time.Second)
		}
		require.Empty(t, answers)
		require.Equal(t, []string{"NONE"}, n.mark("t", 7, 1, false, 0))
		synctest.Wait()
		require.Len(t, answers, 1)
		p := (<-answers).Topics[0].Partitions[0]
		require.Len(t, values(t, p.RecordBatches), 12)
		require.Equal(t, int64(12), p.LastStableOffset)
		require.Equal(t, int64(7), p.AbortedTransactions[0].ProducerID)
		require.Zero(t, p.AbortedTransactions[0].FirstOffset)

		require.Equal(t, []string{"NONE"}, n.codes(n.produceRequest("t", 0, plain("v"))))
		require.Equal(t, []string{"NONE"}, n.codes(n.txnRequest(7, 1, 0, 0)))
		for range 10 { // bytes behind the open transaction do not count
			require.Equal(t, []string{"NONE"}, n.codes(n.produceRequest("t", 0, plain("v"))))
		}
		poll(300, 12)
		time.Sleep(time.Second)
		require.Empty(t, answers)
		require.Equal(t, []string{"NONE"}, n.mark("t", 7, 2, true, 0))
		synctest.Wait()
		require.Len(t, answers, 1)
		require.Equal(t, int64(25), (<-answers).Topics[0].Partitions[0].LastStableOffset)
	})
}

// Transactions that are open, and who coordinates them, are told of.
func TestDescribeTransactionalProducers(t *testing.T) {
	n, _ := newTxnNode(t)
	require.Equal(t, []string{"NONE"}, n.codes(n.produceRequest("t", 0, plain("v"))))
	require.Equal(t, []string{"NONE"}, n.codes(n.txnRequest(7, 0, 0, 0)))
	describe := func() kmsg.DescribeProducersResponseTopicPartitionActiveProducer {
		req := kmsg.NewPtrDescribeProducersRequest()
		dt := kmsg.NewDescribeProducersRequestTopic()
		dt.Topic, dt.Partitions = "t", []int32{0}
		req.Topics = append(req.Topics, dt)
		resp, err := req.RequestWith(t.Context(), n.r)
		require.NoError(t, err)
		return resp.Topics[0].Partitions[0].ActiveProducers[0]
	}
	p := describe()
	require.Equal(t, []int64{7, 0, 0, -1, 1}, []int64{
		p.ProducerID, int64(p.ProducerEpoch), int64(p.LastSequence), int64(p.CoordinatorEpoch), p.CurrentTxnStartOffset,
	})
	require.Equal(t, []string{"NONE"}, n.mark("t", 7, 1, false, 0))
	p = describe()
	require.Equal(t, []int64{7, 1, -1, 3, -1}, []int64{
		p.ProducerID, int64(p.ProducerEpoch), int64(p.LastSequence), int64(p.CoordinatorEpoch), p.CurrentTxnStartOffset,
	})
}

// Who leads a partition of an internal topic hears of it, once for each epoch.
func TestInternalTopicsAreToldOf(t *testing.T) {
	n := newNode(t, options{})
	defer n.stop()
	n.create("t", 1)
	require.Empty(t, n.led)
	n.create(metadata.GroupTopic, 2)
	slices.Sort(n.led)
	require.Equal(t, []string{"__consumer_offsets-0 led true epoch 0", "__consumer_offsets-1 led true epoch 0"}, n.led)
	n.led = nil
	req := kmsg.NewPtrDeleteTopicsRequest()
	dt := kmsg.NewDeleteTopicsRequestTopic()
	dt.Topic = kmsg.StringPtr(metadata.GroupTopic)
	req.Topics = append(req.Topics, dt)
	resp, err := req.RequestWith(t.Context(), n.r)
	require.NoError(t, err)
	if resp.Topics[0].ErrorCode == 0 {
		slices.Sort(n.led)
		require.Equal(t, []string{"__consumer_offsets-0 led false epoch 0", "__consumer_offsets-1 led false epoch 0"}, n.led)
	}
}

// Ids for coordinators come from the blocks that producers' ids come from.
func TestAllocateProducerID(t *testing.T) {
	n := newNode(t, options{})
	defer n.stop()
	first, err := n.broker.AllocateProducerID(t.Context())
	require.NoError(t, err)
	second, err := n.broker.AllocateProducerID(t.Context())
	require.NoError(t, err)
	require.Equal(t, first+1, second)
}

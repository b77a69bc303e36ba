package server_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/record"
	"millrace/server"
	"millrace/server/servertest"
)

// transactor is a transactional producer that speaks to the cluster through any node.
type transactor struct {
	t          *testing.T
	to         func() kmsg.Requestor
	id         string
	producerID int64
	epoch      int16
	sequences  map[string]int32
}

// patiently asks again while the last transaction is being ended, and while a coordinator or a leader is looked for.
// Nothing that a transactor asks for does harm twice.
func (p *transactor) patiently(do func() (int16, error)) error {
	return persist(p.t.Context(), func() error {
		code, err := do()
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(code)
	})
}

func (p *transactor) init() {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = &p.id, 60_000
	require.NoError(p.t, p.patiently(func() (int16, error) {
		resp, err := req.RequestWith(p.t.Context(), p.to())
		if err != nil {
			return 0, err
		}
		p.use(resp.ProducerID, resp.ProducerEpoch)
		return resp.ErrorCode, nil
	}))
}

func (p *transactor) use(producerID int64, epoch int16) {
	p.producerID, p.epoch, p.sequences = producerID, epoch, make(map[string]int32)
}

// send produces one record.
func (p *transactor) send(topic string, partition int32, text string) error {
	key := fmt.Sprint(topic, "/", partition)
	return p.patiently(func() (int16, error) {
		var b record.Builder
		b.Reset(nil)
		b.SetTransactional()
		b.SetProducer(p.producerID, p.epoch, p.sequences[key])
		b.Append(&record.Record{Timestamp: 1, Value: []byte(text)})
		part := kmsg.NewProduceRequestTopicPartition()
		part.Partition, part.Records = partition, b.Build()
		of := kmsg.NewProduceRequestTopic()
		of.Topic, of.Partitions = topic, append(of.Partitions, part)
		req := kmsg.NewPtrProduceRequest()
		req.TransactionID, req.Acks, req.TimeoutMillis = &p.id, -1, 30_000
		req.Topics = append(req.Topics, of)
		resp, err := req.RequestWith(p.t.Context(), p.to())
		if err != nil {
			return 0, err
		}
		code := resp.Topics[0].Partitions[0].ErrorCode
		if code == 0 {
			p.sequences[key]++
		}
		return code, nil
	})
}

// commitOffset puts an offset of a group into the transaction.
func (p *transactor) commitOffset(group, topic string, offset int64) error {
	return p.patiently(func() (int16, error) {
		part := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		part.Offset = offset
		of := kmsg.NewTxnOffsetCommitRequestTopic()
		of.Topic, of.Partitions = topic, append(of.Partitions, part)
		req := kmsg.NewPtrTxnOffsetCommitRequest()
		req.TransactionalID, req.Group, req.Generation = p.id, group, -1
		req.ProducerID, req.ProducerEpoch, req.Topics = p.producerID, p.epoch, append(req.Topics, of)
		resp, err := req.RequestWith(p.t.Context(), p.to())
		if err != nil {
			return 0, err
		}
		return resp.Topics[0].Partitions[0].ErrorCode, nil
	})
}

func (p *transactor) end(commit bool) error {
	return p.patiently(func() (int16, error) {
		req := kmsg.NewPtrEndTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = p.id, p.producerID, p.epoch, commit
		resp, err := req.RequestWith(p.t.Context(), p.to())
		if err != nil {
			return 0, err
		}
		if resp.ErrorCode == 0 {
			p.use(resp.ProducerID, resp.ProducerEpoch)
		}
		return resp.ErrorCode, nil
	})
}

// readCommitted reads a partition from its start as consumers of committed records do.
func readCommitted(ctx context.Context, t *testing.T, to kmsg.Requestor, topic string, partition int32) (
	texts []string,
) {
	active := make(map[int64]bool)
	reader := record.Reader{Codecs: record.NewCodecs(1)}
	defer reader.Close()
	for at := int64(0); ; {
		part := kmsg.NewFetchRequestTopicPartition()
		part.Partition, part.FetchOffset, part.PartitionMaxBytes = partition, at, 1<<20
		of := kmsg.NewFetchRequestTopic()
		of.Topic, of.Partitions = topic, append(of.Partitions, part)
		req := kmsg.NewPtrFetchRequest()
		req.IsolationLevel, req.MaxBytes, req.Topics = 1, 1<<20, append(req.Topics, of)
		var got *kmsg.FetchResponseTopicPartition
		require.NoError(t, persist(ctx, func() error {
			resp, err := req.RequestWith(ctx, to)
			if err != nil {
				return err
			}
			got = &resp.Topics[0].Partitions[0]
			return kerr.ErrorForCode(got.ErrorCode)
		}))
		if len(got.RecordBatches) == 0 {
			return texts
		}
		aborted := got.AbortedTransactions
		slices.SortFunc(aborted, func(a, b kmsg.FetchResponseTopicPartitionAbortedTransaction) int {
			return cmp.Compare(a.FirstOffset, b.FirstOffset)
		})
		for batches := got.RecordBatches; len(batches) > 0; {
			b, rest, err := record.Next(batches)
			require.NoError(t, err)
			batches, at = rest, b.NextOffset()
			for len(aborted) > 0 && aborted[0].FirstOffset <= b.BaseOffset() {
				active[aborted[0].ProducerID], aborted = true, aborted[1:]
			}
			var rec record.Record
			for reader.Reset(b, 1<<20); reader.Next(&rec); {
				switch {
				case b.IsControl():
					delete(active, b.ProducerID())
				case !active[b.ProducerID()]:
					texts = append(texts, string(rec.Value))
				}
			}
		}
	}
}

// txnStates are the states of transactional ids, as one list of the cluster has them.
func txnStates(ctx context.Context, t *testing.T, to kmsg.Requestor) map[string]string {
	var resp *kmsg.ListTransactionsResponse
	require.NoError(t, persist(ctx, func() (err error) {
		if resp, err = kmsg.NewPtrListTransactionsRequest().RequestWith(ctx, to); err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.ErrorCode)
	}))
	out := make(map[string]string)
	for _, one := range resp.TransactionStates {
		out[one.TransactionalID] = one.TransactionState
	}
	return out
}

// txnCluster is three nodes with topics a, b and in, asked in turn.
type txnCluster struct {
	*servertest.Cluster
	t     *testing.T
	ctx   context.Context
	asked int
	away  int // a node that is not asked
}

func startTxnCluster(t *testing.T) *txnCluster {
	c := &txnCluster{t: t, ctx: t.Context()}
	c.Cluster = servertest.StartCluster(t, servertest.ClusterOptions{Change: func(cfg *server.Config) {
		cfg.Broker = map[string]string{
			"default.replication.factor": "3", "offsets.topic.num.partitions": "6",
			"transaction.state.log.num.partitions": "6",
		}
	}})
	for _, name := range []string{"a", "b", "in"} {
		makeTopic(c.ctx, t, c.Node(1).Requestor(), name)
		everywhere(t, c.Cluster, name)
	}
	return c
}

// anywhere is the next node.
func (c *txnCluster) anywhere() kmsg.Requestor {
	c.asked++
	if c.asked%3+1 == c.away {
		c.asked++
	}
	return c.Node(c.asked%3 + 1).Requestor()
}

// eventually waits until a topic has just these records that are committed: markers are written behind the answer.
func (c *txnCluster) eventually(topic string, want ...string) {
	c.t.Helper()
	await(c.t, fmt.Sprintf("%s holds just %q", topic, want), func() bool {
		return slices.Equal(want, readCommitted(c.ctx, c.t, c.anywhere(), topic, 0))
	})
}

func (c *txnCluster) offset() int64 { return committed(c.ctx, c.t, c.anywhere(), "in", "g")["g"] }

// Records of several topics and offsets of a group count all or not at all, and what comes late counts for nothing.
func TestTransactionsAreAllOrNothing(t *testing.T) {
	c := startTxnCluster(t)
	p := &transactor{t: t, to: c.anywhere, id: "id"}
	p.init()
	require.NoError(t, p.send("a", 0, "a1"))
	require.NoError(t, p.send("b", 0, "b1"))
	require.NoError(t, p.send("a", 0, "a2"))
	require.NoError(t, p.commitOffset("g", "in", 7))
	require.Empty(t, readCommitted(c.ctx, t, c.anywhere(), "a", 0), "nothing of a transaction that is open")
	require.Equal(t, int64(-1), c.offset())
	require.NoError(t, p.end(true))
	c.eventually("a", "a1", "a2")
	c.eventually("b", "b1")
	await(t, "the offset is committed", func() bool { return c.offset() == 7 })

	require.NoError(t, p.send("a", 0, "aborted"))
	require.NoError(t, p.commitOffset("g", "in", 9))
	before := *p
	require.NoError(t, p.end(false))
	require.NoError(t, p.send("a", 0, "a3"))
	require.ErrorIs(t, before.send("a", 0, "late"), kerr.InvalidProducerEpoch)
	require.ErrorIs(t, before.send("b", 0, "late"), kerr.InvalidProducerEpoch)
	require.NoError(t, p.end(true))
	c.eventually("a", "a1", "a2", "a3")
	c.eventually("b", "b1")
	require.Equal(t, int64(7), c.offset())
}

// Another process takes the id over, with a transaction open, and then the nodes go one after the other.
func TestTransactionsOverProcessesAndNodesThatGo(t *testing.T) {
	c := startTxnCluster(t)
	p := &transactor{t: t, to: c.anywhere, id: "id"}
	p.init()
	require.NoError(t, p.send("a", 0, "zombie"))
	q := &transactor{t: t, to: c.anywhere, id: "id"}
	q.init()
	require.ErrorIs(t, p.send("a", 0, "zombie"), kerr.InvalidProducerEpoch)
	require.ErrorIs(t, p.end(true), kerr.ProducerFenced)
	require.ErrorIs(t, p.commitOffset("g", "in", 11), kerr.ProducerFenced)
	require.NoError(t, q.send("a", 0, "a1"))
	await(t, "the transaction is listed", func() bool {
		return maps.Equal(map[string]string{"id": "Ongoing"}, txnStates(c.ctx, t, c.anywhere()))
	})
	for c.away = 1; c.away <= 3; c.away++ {
		c.Stop(c.away)
		require.NoError(t, q.send("b", 0, fmt.Sprint("without ", c.away)))
		require.NoError(t, q.end(true))
		await(t, "the id is listed", func() bool { return txnStates(c.ctx, t, c.anywhere())["id"] != "" })
		c.Start(c.away)
	}
	c.eventually("a", "a1")
	c.eventually("b", "without 1", "without 2", "without 3")
}

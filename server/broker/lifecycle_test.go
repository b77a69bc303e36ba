package broker_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/storage"
	"millrace/storage/storagetest"
)

func (n *node) delete(topic string) {
	req := kmsg.NewPtrDeleteTopicsRequest()
	t := kmsg.NewDeleteTopicsRequestTopic()
	t.Topic = &topic
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(context.Background(), n.r)
	require.NoError(n.t, err)
	require.Equal(n.t, "NONE", name(resp.Topics[0].ErrorCode))
}

func (n *node) alter(topic, key, value string) {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Value = key, &value
	r.Configs = append(r.Configs, c)
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(context.Background(), n.r)
	require.NoError(n.t, err)
	require.Equal(n.t, "NONE", name(resp.Resources[0].ErrorCode))
}

// fetched are the values of partition 0 from offset on, or the error.
func (n *node) fetched(topic string, offset int64) ([]string, string) {
	resp, err := n.fetchRequest(topic, offset).RequestWith(context.Background(), n.r)
	require.NoError(n.t, err)
	p := resp.Topics[0].Partitions[0]
	return values(n.t, p.RecordBatches), name(p.ErrorCode)
}

func TestTopicsComeAndGo(t *testing.T) {
	n := newNode(t, options{})
	defer func() { n.stop() }()
	n.create("t", 1)
	n.produce("t", 0, plain("old"))
	old := n.produceRequest("t", 0, plain("late"))
	n.delete("t")
	_, code := n.fetched("t", 0)
	require.Equal(t, "UNKNOWN_TOPIC_OR_PARTITION", code)
	n.create("t", 2)
	got, _ := n.fetched("t", 0)
	require.Empty(t, got, "a topic of the same name is another topic")
	require.Equal(t, "UNKNOWN_TOPIC_ID", name(n.send(old).ErrorCode), "who means the old topic does not reach the new one")
	require.Equal(t, int64(0), n.produce("t", 1, plain("new")))

	more := kmsg.NewPtrCreatePartitionsRequest()
	more.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "t", Count: 4}}
	resp, err := more.RequestWith(t.Context(), n.r)
	require.NoError(t, err)
	require.Equal(t, "NONE", name(resp.Topics[0].ErrorCode))
	require.Equal(t, int64(0), n.produce("t", 3, plain("v")))
	require.Equal(t, int64(1), n.produce("t", 1, plain("v")), "partitions that were there stay as they were")
	n.restart()
	require.Equal(t, int64(2), n.produce("t", 1, plain("v")))
}

func TestSettingsActAtOnce(t *testing.T) {
	n := newNode(t, options{})
	defer n.stop()
	n.create("t", 1)
	n.produce("t", 0, plain(strings.Repeat("x", 500)))
	n.alter("t", "max.message.bytes", "300")
	p := n.send(n.produceRequest("t", 0, plain(strings.Repeat("x", 500))))
	require.Equal(t, "MESSAGE_TOO_LARGE", name(p.ErrorCode))
	n.alter("t", "message.timestamp.type", "LogAppendTime")
	p = n.send(n.produceRequest("t", 0, plain("v")))
	require.Equal(t, "NONE", name(p.ErrorCode))
	require.Positive(t, p.LogAppendTime)
}

// What is on disk and belongs to no topic is kept aside, not served and not deleted.
func TestStraysAreSetAside(t *testing.T) {
	disk := storagetest.New()
	n := newNode(t, options{fs: disk})
	n.create("gone", 1)
	n.create("again", 1)
	n.create("kept", 1)
	n.produce("gone", 0, plain("v"))
	n.produce("again", 0, plain("v"))
	n.produce("kept", 0, plain("v"))
	n.stop()
	n.delete("gone") // while the broker is down
	n.delete("again")
	n.create("again", 1)
	n.start()
	got, _ := n.fetched("again", 0)
	require.Empty(t, got)
	got, _ = n.fetched("kept", 0)
	require.Equal(t, []string{"v"}, got)
	stray := 0
	for _, file := range disk.Files() {
		if strings.Contains(file, "-stray/") && strings.HasSuffix(file, ".log") {
			stray++
		}
	}
	require.Equal(t, 2, stray, "%v", disk.Files())
	n.restart()
	n.stop()
}

// One partition whose log cannot be used leaves the others alone and says what is wrong.
func TestDamagedPartition(t *testing.T) {
	disk := storagetest.New()
	n := newNode(t, options{fs: disk})
	n.create("t", 2)
	n.produce("t", 0, plain(strings.Repeat("a", 100)))
	n.produce("t", 1, plain("b"))
	n.stop()
	require.NoError(t, disk.FlipBit("t-0/00000000000000000000.log", 100, 1))
	n.start()
	defer n.stop()
	resp, err := n.fetchRequest("t", 0, 0).RequestWith(t.Context(), n.r)
	require.NoError(t, err)
	p := resp.Topics[0].Partitions
	require.Equal(t, []string{"b"}, values(t, p[1].RecordBatches))
	require.Equal(t, "CORRUPT_MESSAGE", name(p[0].ErrorCode))
	resume, ok := ktag.ResumeOffset(&p[0].UnknownTags)
	require.True(t, ok)
	require.Equal(t, int64(1), resume)
	require.Equal(t, int64(1), n.produce("t", 1, plain("b")))
}

// slowSyncs delays every sync of a log, in fake time.
func slowSyncs(d time.Duration) storagetest.Fault {
	return func(op storagetest.Op, file string) (time.Duration, error) {
		if op == storagetest.OpSync && strings.HasSuffix(file, ".log") || op == storagetest.OpSyncAll {
			return d, nil
		}
		return 0, nil
	}
}

func TestProduceTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := storagetest.New()
		n := newNode(t, options{fs: disk, policy: storage.SyncAck})
		n.create("t", 1)
		n.create("u", 1)
		disk.SetFault(slowSyncs(10 * time.Second))

		// acks=1 does not wait for the disk, but consumers see the batch only when it is there.
		start := time.Now()
		req := n.produceRequest("t", 0, plain("a"))
		req.Acks = 1
		require.Equal(t, "NONE", name(n.send(req).ErrorCode))
		require.Zero(t, time.Since(start))
		got, _ := n.fetched("t", 0)
		require.Empty(t, got)

		// acks=all waits, at most as long as the request says, for all partitions together.
		req = n.produceRequest("t", 0, plain("b"))
		req.Topics = append(req.Topics, n.produceRequest("u", 0, plain("c")).Topics...)
		req.TimeoutMillis = 3000
		resp, err := req.RequestWith(t.Context(), n.r)
		require.NoError(t, err)
		require.Equal(t, 3*time.Second, time.Since(start))
		for _, topic := range resp.Topics {
			require.Equal(t, "REQUEST_TIMED_OUT", name(topic.Partitions[0].ErrorCode))
		}
		require.Equal(t, int64(1), resp.Topics[0].Partitions[0].BaseOffset, "where it will be, if it is")

		// Who goes away meanwhile gets no answer.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = n.produceRequest("t", 0, plain("d")).RequestWith(ctx, n.r)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		// It all was written and comes to light in time.
		fetch := n.fetchRequest("t", 0)
		fetch.MaxWaitMillis, fetch.MinBytes = 60_000, int32(3*len(plain("a")))
		o := <-n.fetchLater(t, t.Context(), fetch)
		require.Equal(t, []string{"a", "b", "d"}, o.values)
		disk.SetFault(nil)
		n.stop()
	})
}

// A repeat of a batch that is not committed yet waits for it like the first attempt.
func TestRepeatWaitsForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := storagetest.New()
		n := newNode(t, options{fs: disk, policy: storage.SyncAck})
		n.create("t", 1)
		n.produce("t", 0, plain("v"))
		disk.SetFault(slowSyncs(10 * time.Second))
		start := time.Now()
		req := n.produceRequest("t", 0, batch(1, 0, 0, "a"))
		req.TimeoutMillis = 1000
		require.Equal(t, "REQUEST_TIMED_OUT", name(n.send(req).ErrorCode))
		p := n.send(n.produceRequest("t", 0, batch(1, 0, 0, "a")))
		require.Equal(t, "NONE", name(p.ErrorCode))
		require.Equal(t, int64(1), p.BaseOffset)
		require.True(t, ktag.Duplicate(&p.UnknownTags))
		require.GreaterOrEqual(t, time.Since(start), 10*time.Second)
		disk.SetFault(nil)
		n.stop()
	})
}

// A fetch that waits for many bytes is not woken, and does not read, at every append.
func TestWaitingFetchRestsUntilThereIsEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := storagetest.New()
		n := newNode(t, options{fs: disk, policy: storage.SyncAck})
		n.create("t", 1)
		var reads atomic.Int64
		disk.SetFault(func(op storagetest.Op, file string) (time.Duration, error) {
			if op == storagetest.OpRead && strings.HasSuffix(file, ".log") {
				reads.Add(1)
			}
			return 0, nil
		})
		req := n.fetchRequest("t", 0)
		req.MaxWaitMillis, req.MinBytes = 60_000, int32(100*len(plain("v")))
		done := n.fetchLater(t, t.Context(), req)
		for range 99 {
			n.produce("t", 0, plain("v"))
		}
		synctest.Wait()
		require.Empty(t, done)
		require.Zero(t, reads.Load(), "the fetch looked before there was enough")
		n.produce("t", 0, plain("v"))
		require.Len(t, (<-done).values, 100)
		require.LessOrEqual(t, reads.Load(), int64(3))
		n.stop()
	})
}

func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, options{fs: storagetest.New(), static: map[string]string{
			"log.retention.check.interval.ms": "60000", "producer.id.expiration.ms": "3600000",
		}})
		n.create("t", 1, "retention.ms", "600000", "internal.segment.bytes", "200")
		for i := range int32(5) {
			n.produce("t", 0, batch(1, 0, i, "v"))
		}
		time.Sleep(5 * time.Minute)
		got, _ := n.fetched("t", 0)
		require.NotEmpty(t, got)
		time.Sleep(7 * time.Minute)
		_, code := n.fetched("t", 0)
		require.Equal(t, "OFFSET_OUT_OF_RANGE", code, "nothing was removed after retention.ms")
		p := n.send(n.produceRequest("t", 0, batch(1, 0, 9, "v")))
		require.Equal(t, "OUT_OF_ORDER_SEQUENCE_NUMBER", name(p.ErrorCode), "the producer outlives its records")
		time.Sleep(time.Hour)
		p = n.send(n.produceRequest("t", 0, batch(1, 0, 9, "v")))
		require.Equal(t, "NONE", name(p.ErrorCode), "the producer was not forgotten")
		n.stop()
	})
}

// A partition that could not be made for want of room, or of a file to open, or because the disk had a fault, can be
// used once there is nothing in the way any more.
func TestPartitionsComeBackByThemselves(t *testing.T) {
	for _, cause := range []error{syscall.ENOSPC, syscall.EMFILE, syscall.EIO} {
		synctest.Test(t, func(t *testing.T) {
			disk := storagetest.New()
			n := newNode(t, options{fs: disk})
			n.create("before", 1)
			disk.SetFault(func(op storagetest.Op, name string) (time.Duration, error) {
				if (op == storagetest.OpOpen || op == storagetest.OpCreate) && strings.HasPrefix(name, "t-") {
					return 0, cause
				}
				return 0, nil
			})
			n.create("t", 2)
			p := n.send(n.produceRequest("t", 1, plain("v")))
			require.Equal(t, "KAFKA_STORAGE_ERROR", name(p.ErrorCode))
			require.True(t, ktag.NotWritten(&p.UnknownTags))
			time.Sleep(2 * time.Minute)
			p = n.send(n.produceRequest("t", 1, plain("v")))
			require.Equal(t, "KAFKA_STORAGE_ERROR", name(p.ErrorCode), "nothing has changed")
			disk.SetFault(nil)
			time.Sleep(40 * time.Second)
			require.Equal(t, int64(0), n.produce("t", 1, plain("v")))
			require.Equal(t, int64(0), n.produce("before", 0, plain("v")))
			n.restart()
			require.Equal(t, int64(1), n.produce("t", 1, plain("v")))
			n.stop()
		})
	}
}

// A controller that does not answer costs new producers a retry, and no more.
func TestProducerIDsWithoutAController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, options{fs: storagetest.New()})
		n.down.Store(true)
		resp, err := kmsg.NewPtrInitProducerIDRequest().RequestWith(t.Context(), n.r)
		require.NoError(t, err)
		require.Equal(t, "COORDINATOR_LOAD_IN_PROGRESS", name(resp.ErrorCode))
		n.down.Store(false)
		resp, err = kmsg.NewPtrInitProducerIDRequest().RequestWith(t.Context(), n.r)
		require.NoError(t, err)
		require.Equal(t, "NONE", name(resp.ErrorCode))
		n.stop()
	})
}

var errDown = errors.New("the controller is down")

func TestClosedBroker(t *testing.T) {
	n := newNode(t, options{})
	n.create("t", 1)
	require.NoError(t, n.broker.Close())
	require.NoError(t, n.broker.Close())
	p := n.send(n.produceRequest("t", 0, plain("v")))
	require.Equal(t, "NOT_LEADER_FOR_PARTITION", name(p.ErrorCode))
	_, code := n.fetched("t", 0)
	require.Contains(t, []string{"NONE", "NOT_LEADER_FOR_PARTITION"}, code)
	require.NoError(t, n.dir.Close())
}

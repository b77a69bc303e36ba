package server_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/record"
	"millrace/server"
	"millrace/server/servertest"
)

// A rolling restart of a cluster of three under producers that need acks=all and name themselves to nobody: each
// record is acknowledged, and is there once.
func TestClusterRollingRestart(t *testing.T) {
	c := servertest.StartCluster(t, servertest.ClusterOptions{Change: func(cfg *server.Config) {
		cfg.DrainTimeout = time.Minute // so that a slow machine has the time to hand everything over
	}})
	createTopic(t, c.Client, c.URL(2),
		`{"name":"t","partitions":3,"replication_factor":3,"configs":{"min.insync.replicas":"2"}}`)
	everywhere(t, c, "t")

	r := &rolling{c: c}
	r.through.Store(2)
	for p := range int32(6) {
		r.wg.Go(func() { r.produce(t.Context(), p) })
	}
	for id := 1; id <= 3; id++ {
		r.more(t, 300)
		r.through.Store(int32(id%3 + 1))
		r.users[id].Lock() // nobody is on the way through it any more
		c.Stop(id)
		c.Start(id)
		r.users[id].Unlock()
	}
	r.more(t, 300)
	r.stop.Store(true)
	r.wg.Wait()
	require.Empty(t, r.failed[:min(len(r.failed), 5)], "%d failed, %d were acknowledged", len(r.failed), len(r.acked))
	var got []string
	await(t, "all can be read", func() bool { // a new leader learns a little later what is committed
		got = r.readAll(t)
		return len(got) >= len(r.acked)
	})
	slices.Sort(got)
	slices.Sort(r.acked)
	require.Equal(t, r.acked, got)
}

// rolling is producers that write through one node after the other.
type rolling struct {
	c       *servertest.Cluster
	through atomic.Int32
	users   [4]sync.RWMutex // by node; read-locked by who produces through it
	stop    atomic.Bool
	wg      sync.WaitGroup

	mu     sync.Mutex
	enough chan struct{} // guarded by mu; closed when so many are acknowledged as wanted
	wanted int           // guarded by mu
	acked  []string      // guarded by mu
	failed []string      // guarded by mu
}

func (r *rolling) produce(ctx context.Context, producer int32) {
	for i := 0; !r.stop.Load(); i++ {
		value := fmt.Sprintf("%d/%06d", producer, i)
		err := r.send(ctx, producer%3, value)
		r.mu.Lock()
		if err == nil {
			r.acked = append(r.acked, value)
			if len(r.acked) == r.wanted {
				close(r.enough)
			}
		} else {
			r.failed = append(r.failed, fmt.Sprintf("%s: %v", value, err))
		}
		r.mu.Unlock()
	}
}

func (r *rolling) send(ctx context.Context, number int32, value string) error {
	id := r.through.Load()
	for !r.users[id].TryRLock() {
		id = r.through.Load()
	}
	defer r.users[id].RUnlock()
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 60_000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = "t"
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition = number
	var b record.Builder
	b.Reset(nil)
	b.Append(&record.Record{Timestamp: time.Now().UnixMilli(), Value: []byte(value)})
	p.Records = b.Build()
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, r.c.Node(int(id)).Requestor())
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}

// more waits until so many more records are acknowledged.
func (r *rolling) more(t *testing.T, n int) {
	enough := make(chan struct{})
	r.mu.Lock()
	r.wanted, r.enough = len(r.acked)+n, enough
	r.mu.Unlock()
	select {
	case <-enough:
	case <-time.After(longest):
		require.FailNow(t, "nothing is acknowledged any more")
	}
}

func (r *rolling) readAll(t *testing.T) (values []string) {
	for number := range int32(3) {
		for offset := int64(0); ; {
			req := kmsg.NewPtrFetchRequest()
			req.MaxBytes = 1 << 20
			topic := kmsg.NewFetchRequestTopic()
			topic.Topic = "t"
			p := kmsg.NewFetchRequestTopicPartition()
			p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = number, offset, 1<<20, -1
			topic.Partitions = append(topic.Partitions, p)
			req.Topics = append(req.Topics, topic)
			var got kmsg.FetchResponseTopicPartition
			require.NoError(t, persist(t.Context(), func() error {
				resp, err := req.RequestWith(t.Context(), r.c.Node(1).Requestor())
				if err != nil {
					return err
				}
				got = resp.Topics[0].Partitions[0]
				return kerr.ErrorForCode(got.ErrorCode)
			}))
			if len(got.RecordBatches) == 0 {
				break
			}
			for rest := got.RecordBatches; len(rest) > 0; {
				b, after, err := record.Next(rest)
				require.NoError(t, err)
				reader := record.NewReader(b, 1<<20)
				var rec record.Record
				for reader.Next(&rec) {
					values = append(values, string(rec.Value))
				}
				reader.Close()
				rest, offset = after, b.NextOffset()
			}
		}
	}
	return values
}

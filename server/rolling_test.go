package server_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/record"
	"millrace/server/metadata"
)

// A rolling restart of a cluster of three under producers that need acks=all and name themselves to nobody: each
// record is acknowledged, and is there once. A machine that stands still in the midst of it could not keep that.
func TestClusterRollingRestart(t *testing.T) {
	inLab(t, 3, func(l *lab) {
		l.start(1, 2, 3)
		l.ready(1, 2, 3)
		status, text := l.do(2, http.MethodPost, "/v1/topics", // which knows the topic then
			`{"name":"t","partitions":3,"replication_factor":3,"configs":{"min.insync.replicas":"2"}}`)
		require.Equal(l.t, http.StatusCreated, status, text)
		r := &rolling{lab: l}
		r.through.Store(2)
		for p := range int32(6) {
			r.wg.Go(func() { r.produce(l.t.Context(), p) })
		}
		for id := int32(1); id <= 3; id++ {
			r.more(300)
			r.through.Store(id%3 + 1)
			l.until("nobody is on the way through it", func() bool { return r.users[id].Load() == 0 })
			require.NoError(l.t, l.boxes[id].node.Close())
			l.stop(id)
			l.start(id)
			l.ready(id)
			l.until("all replicas are in sync", func() bool { return r.whole(id) })
		}
		r.more(300)
		r.stop.Store(true)
		r.wg.Wait()
		require.Empty(l.t, r.failed[:min(len(r.failed), 5)], "%d failed, %d were acknowledged", len(r.failed), len(r.acked))
		got := r.readAll()
		slices.Sort(got)
		slices.Sort(r.acked)
		require.Equal(l.t, r.acked, got)
	})
}

// rolling is producers that write through one node after the other.
type rolling struct {
	lab     *lab
	through atomic.Int32
	users   [4]atomic.Int32 // by node: how many produce through it
	stop    atomic.Bool
	wg      sync.WaitGroup

	mu     sync.Mutex
	enough chan struct{} // guarded by mu; closed when so many are acknowledged as wanted
	wanted int           // guarded by mu
	acked  []string      // guarded by mu
	failed []string      // guarded by mu
}

// whole says whether a node knows that all replicas are in sync.
func (r *rolling) whole(id int32) bool {
	topic := r.lab.boxes[id].node.Probe().Image.Topic("t")
	short := func(p metadata.Partition) bool { return len(p.ISR) < 3 }
	return topic != nil && !slices.ContainsFunc(topic.Partitions, short)
}

// enter gives the node to produce through, which is not stopped before its user leaves.
func (r *rolling) enter() int32 {
	for {
		id := r.through.Load()
		r.users[id].Add(1)
		if r.through.Load() == id {
			return id
		}
		r.users[id].Add(-1)
	}
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
		if err != nil {
			return // it is the end of the test, which must not go round without a pause
		}
	}
}

func (r *rolling) send(ctx context.Context, number int32, value string) error {
	id := r.enter()
	defer r.users[id].Add(-1)
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
	resp, err := req.RequestWith(ctx, r.lab.boxes[id].node.Requestor())
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}

// more waits until so many more records are acknowledged.
func (r *rolling) more(n int) {
	enough := make(chan struct{})
	r.mu.Lock()
	r.wanted, r.enough = len(r.acked)+n, enough
	r.mu.Unlock()
	select {
	case <-enough:
	case <-time.After(longest):
		r.stop.Store(true)
		r.wg.Wait()
		require.FailNow(r.lab.t, "nothing is acknowledged any more", "%v", r.failed)
	}
}

func (r *rolling) readAll() (values []string) {
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
			require.NoError(r.lab.t, persist(r.lab.t.Context(), func() error {
				resp, err := req.RequestWith(r.lab.t.Context(), r.lab.boxes[1].node.Requestor())
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
				require.NoError(r.lab.t, err)
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

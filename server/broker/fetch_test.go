package broker_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/record"
	"millrace/storage"
)

func TestFetchErrors(t *testing.T) {
	n := newNode(t, options{})
	defer n.stop()
	n.create("t", 1)
	n.produce("t", 0, plain("a", "b"))
	for _, c := range []struct {
		name   string
		topic  string
		change func(*kmsg.FetchRequest)
		want   string
	}{
		{"below the start", "t", func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].FetchOffset = -1 },
			"OFFSET_OUT_OF_RANGE"},
		{"above the end", "t", func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].FetchOffset = 3 },
			"OFFSET_OUT_OF_RANGE"},
		{"unknown topic", "absent", func(*kmsg.FetchRequest) {}, "UNKNOWN_TOPIC_OR_PARTITION"},
		{"unknown id", "t", func(r *kmsg.FetchRequest) { r.Topics[0].TopicID[0]++ }, "UNKNOWN_TOPIC_ID"},
		{"unknown partition", "t", func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].Partition = 1 },
			"UNKNOWN_TOPIC_OR_PARTITION"},
		{"newer epoch", "t", func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].CurrentLeaderEpoch = 1 },
			"UNKNOWN_LEADER_EPOCH"},
		{"follower", "t", func(r *kmsg.FetchRequest) { r.ReplicaID = 2 }, "NOT_LEADER_FOR_PARTITION"},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := n.fetchRequest(c.topic, 0)
			req.MaxWaitMillis = 600_000 // an error is answered at once
			c.change(req)
			resp, err := req.RequestWith(t.Context(), n.r)
			require.NoError(t, err)
			require.Equal(t, c.want, name(resp.Topics[0].Partitions[0].ErrorCode))
			require.Empty(t, resp.Topics[0].Partitions[0].RecordBatches)
		})
	}
	req := n.fetchRequest("t", 0)
	req.SessionID = 4
	resp, err := req.RequestWith(t.Context(), n.r)
	require.NoError(t, err)
	require.Equal(t, "FETCH_SESSION_ID_NOT_FOUND", name(resp.ErrorCode))
}

func TestFetchLimits(t *testing.T) {
	n := newNode(t, options{})
	defer n.stop()
	n.create("t", 3)
	big := strings.Repeat("x", 1000)
	for partition := range int32(3) {
		for range 3 {
			n.produce("t", partition, plain(big))
		}
	}
	size := len(plain(big))
	for _, c := range []struct {
		name             string
		maxBytes, ofEach int
		want             []int // bytes of each partition
	}{
		{"all", 1 << 20, 1 << 20, []int{3 * size, 3 * size, 3 * size}},
		{"one whole batch, whatever the limits", 1, 1, []int{size, 0, 0}},
		{"limit of each partition", 1 << 20, 2 * size, []int{2 * size, 2 * size, 2 * size}},
		{"only the first batch of all may exceed", 1 << 20, 10, []int{size, 10, 10}},
		{"limit of all", 4 * size, 1 << 20, []int{3 * size, size, 0}},
		{"limit of all falls into a batch", 3*size + 10, 1 << 20, []int{3 * size, 10, 0}},
		{"nothing asked for", 0, 0, []int{size, 0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := n.fetchRequest("t", 0, 0, 0)
			req.MaxBytes = int32(c.maxBytes)
			for i := range req.Topics[0].Partitions {
				req.Topics[0].Partitions[i].PartitionMaxBytes = int32(c.ofEach)
			}
			resp, err := req.RequestWith(t.Context(), n.r)
			require.NoError(t, err)
			var got []int
			for _, p := range resp.Topics[0].Partitions {
				require.Equal(t, int64(3), p.HighWatermark)
				got = append(got, len(p.RecordBatches))
			}
			require.Equal(t, c.want, got)
		})
	}
}

func TestFetchUsesTheArena(t *testing.T) {
	n := newNode(t, options{})
	defer n.stop()
	n.create("t", 1)
	n.produce("t", 0, plain(strings.Repeat("x", 10_000)))
	pool := record.NewPool(1 << 20)
	for range 3 {
		arena := pool.Arena()
		resp, err := n.fetchRequest("t", 0).RequestWith(record.WithArena(t.Context(), arena), n.r)
		require.NoError(t, err)
		require.Len(t, values(t, resp.Topics[0].Partitions[0].RecordBatches), 1)
		arena.Free()
	}
	require.Positive(t, pool.Held(), "the record bytes came from elsewhere")
}

// bubble runs f with a node in fake time.
func bubble(t *testing.T, o options, f func(t *testing.T, n *node)) {
	fs, err := storage.OSFS(t.TempDir())
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		o.fs = fs
		n := newNode(t, o)
		f(t, n)
		n.stop()
	})
}

// outcome is a fetch that ended.
type outcome struct {
	values []string
	after  time.Duration
	code   string
	err    error
}

// fetchLater starts a fetch and gives its outcome when it ends.
func (n *node) fetchLater(t *testing.T, ctx context.Context, req *kmsg.FetchRequest) chan outcome {
	done := make(chan outcome, 1)
	start := time.Now()
	go func() {
		resp, err := req.RequestWith(ctx, n.r)
		o := outcome{after: time.Since(start), err: err}
		if err == nil {
			for _, p := range resp.Topics[0].Partitions {
				o.values = append(o.values, values(t, p.RecordBatches)...)
				if p.ErrorCode != 0 {
					o.code = name(p.ErrorCode)
				}
			}
		}
		done <- o
	}()
	synctest.Wait()
	return done
}

func TestFetchWaitsForAnAppend(t *testing.T) {
	for _, policy := range []storage.SyncPolicy{storage.SyncAck, storage.SyncNever} {
		bubble(t, options{policy: policy}, func(t *testing.T, n *node) {
			n.create("t", 3)
			req := n.fetchRequest("t", 0, 0, 0)
			req.MaxWaitMillis = 60_000
			done := n.fetchLater(t, t.Context(), req)
			time.Sleep(7 * time.Second)
			require.Empty(t, done)
			n.produce("t", 1, plain("a"))
			require.Equal(t, outcome{values: []string{"a"}, after: 7 * time.Second}, <-done)
		})
	}
}

func TestFetchWaitsForMinBytes(t *testing.T) {
	bubble(t, options{}, func(t *testing.T, n *node) {
		n.create("t", 2)
		n.produce("t", 0, plain("a"))
		req := n.fetchRequest("t", 0, 0)
		req.MaxWaitMillis, req.MinBytes = 60_000, int32(3*len(plain("a")))
		done := n.fetchLater(t, t.Context(), req)
		time.Sleep(time.Second)
		n.produce("t", 1, plain("b"))
		time.Sleep(time.Second)
		require.Empty(t, done, "two of three batches are not enough")
		n.produce("t", 0, plain("c"))
		require.Equal(t, outcome{values: []string{"a", "c", "b"}, after: 2 * time.Second}, <-done)
	})
}

func TestFetchGivesUpAtMaxWait(t *testing.T) {
	bubble(t, options{}, func(t *testing.T, n *node) {
		n.create("t", 1)
		n.produce("t", 0, plain("a"))
		req := n.fetchRequest("t", 0)
		req.MaxWaitMillis, req.MinBytes = 5000, 1<<20
		require.Equal(t, outcome{values: []string{"a"}, after: 5 * time.Second}, <-n.fetchLater(t, t.Context(), req))
		req = n.fetchRequest("t", 1)
		req.MaxWaitMillis = 5000
		require.Equal(t, outcome{after: 5 * time.Second}, <-n.fetchLater(t, t.Context(), req))
		req = n.fetchRequest("t", 1)
		require.Equal(t, outcome{}, <-n.fetchLater(t, t.Context(), req), "no MaxWait: no waiting")
	})
}

func TestFetchEndsWithItsContext(t *testing.T) {
	bubble(t, options{}, func(t *testing.T, n *node) {
		n.create("t", 1)
		req := n.fetchRequest("t", 0)
		req.MaxWaitMillis = 60_000
		ctx, cancel := context.WithCancel(t.Context())
		done := n.fetchLater(t, ctx, req)
		time.AfterFunc(time.Second, cancel)
		o := <-done
		require.ErrorIs(t, o.err, context.Canceled)
		require.Equal(t, time.Second, o.after)
	})
}

func TestFetchEndsWithItsPartition(t *testing.T) {
	bubble(t, options{}, func(t *testing.T, n *node) {
		n.create("t", 1)
		req := n.fetchRequest("t", 0)
		req.MaxWaitMillis = 60_000
		done := n.fetchLater(t, t.Context(), req)
		time.Sleep(time.Second)
		del := kmsg.NewPtrDeleteTopicsRequest()
		topic := kmsg.NewDeleteTopicsRequestTopic()
		topic.Topic = kmsg.StringPtr("t")
		del.Topics = append(del.Topics, topic)
		_, err := del.RequestWith(t.Context(), n.r)
		require.NoError(t, err)
		o := <-done
		require.Equal(t, time.Second, o.after)
		require.Contains(t, []string{"UNKNOWN_TOPIC_ID", "UNKNOWN_TOPIC_OR_PARTITION"}, o.code)
	})
}

func TestFetchEndsWithTheBroker(t *testing.T) {
	bubble(t, options{}, func(t *testing.T, n *node) {
		n.create("t", 1)
		req := n.fetchRequest("t", 0)
		req.MaxWaitMillis = 60_000
		done := n.fetchLater(t, t.Context(), req)
		n.restart()
		require.Equal(t, outcome{code: "NOT_LEADER_FOR_PARTITION"}, <-done)
	})
}

func TestManyWaitAtOneTail(t *testing.T) {
	bubble(t, options{}, func(t *testing.T, n *node) {
		n.create("t", 1)
		var mu sync.Mutex
		var got []string
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				req := n.fetchRequest("t", 0)
				req.MaxWaitMillis = 60_000
				resp, err := req.RequestWith(t.Context(), n.r)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					got = append(got, values(t, resp.Topics[0].Partitions[0].RecordBatches)...)
				}
			})
		}
		synctest.Wait()
		n.produce("t", 0, plain("a"))
		wg.Wait()
		require.Equal(t, slices.Repeat([]string{"a"}, 100), got)
	})
}

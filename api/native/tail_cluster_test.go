package native_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/api"
	"millrace/api/native"
	"millrace/client"
	"millrace/record"
)

// memoryCluster is a topic t of some partitions in memory, each with a leader. A fetch of several partitions is
// answered as a node of a cluster does: at once where one has records or an error, else when something comes; a
// partition that is frozen holds up a fetch of it alone for 15 s.
type memoryCluster struct {
	logs []*memoryLog

	mu      sync.Mutex
	leader  []int32       // by partition; guarded by mu
	frozen  map[int]bool  // guarded by mu
	start   map[int]int64 // log end that fetches are held against, where it is set; guarded by mu
	first   map[int]int64 // log start offset, where records were deleted; guarded by mu
	foreign bool          // refused fetches do not tell where the log starts
	racks   map[string]bool
	fetches int           // guarded by mu
	changed chan struct{} // guarded by mu
}

func newMemoryCluster(partitions int) *memoryCluster {
	c := &memoryCluster{
		frozen: map[int]bool{}, start: map[int]int64{}, first: map[int]int64{}, racks: map[string]bool{},
		changed: make(chan struct{}),
	}
	for i := range partitions {
		c.logs, c.leader = append(c.logs, newMemoryLog()), append(c.leader, int32(i))
	}
	return c
}

// change changes the cluster under its lock, and wakes who waits.
func (c *memoryCluster) change(fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn()
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *memoryCluster) put(partition int, values ...string) {
	c.change(func() { c.logs[partition].put(values...) })
}

func (c *memoryCluster) fail(partition int, err *kerr.Error) {
	c.change(func() { c.logs[partition].fail(err) })
}

func (c *memoryCluster) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	switch r := r.(type) {
	case *kmsg.MetadataRequest:
		name := "t"
		t := kmsg.NewMetadataResponseTopic()
		t.Topic, t.TopicID = &name, [16]byte{1}
		c.mu.Lock()
		defer c.mu.Unlock()
		for i, leader := range c.leader {
			p := kmsg.NewMetadataResponseTopicPartition()
			p.Partition, p.Leader = int32(i), leader
			t.Partitions = append(t.Partitions, p)
		}
		resp := kmsg.NewPtrMetadataResponse()
		resp.Topics = append(resp.Topics, t)
		return resp, nil
	case *kmsg.ListOffsetsRequest:
		t := kmsg.NewListOffsetsResponseTopic()
		t.Topic = "t"
		for _, asked := range r.Topics[0].Partitions {
			p := kmsg.NewListOffsetsResponseTopicPartition()
			p.Partition = asked.Partition
			if p.Offset = c.lowest(int(asked.Partition)); asked.Timestamp == client.Latest {
				p.Offset = c.highest(int(asked.Partition))
			}
			t.Partitions = append(t.Partitions, p)
		}
		resp := kmsg.NewPtrListOffsetsResponse()
		resp.Topics = append(resp.Topics, t)
		return resp, nil
	}
	return c.fetch(ctx, r.(*kmsg.FetchRequest))
}

func (c *memoryCluster) lowest(partition int) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.first[partition]
}

func (c *memoryCluster) highest(partition int) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, _ := c.look(partition, c.first[partition])
	return p.HighWatermark
}

// look is what a partition answers, and whether it does at all. It is called with mu held.
func (c *memoryCluster) look(partition int, from int64) (p kmsg.FetchResponseTopicPartition, frozen bool) {
	p, _ = c.logs[partition].look(from)
	p.Partition = int32(partition)
	if end, ok := c.start[partition]; ok {
		if p.HighWatermark = end; from > end {
			p.ErrorCode, p.RecordBatches = kerr.OffsetOutOfRange.Code, nil
		}
	}
	if low := c.first[partition]; from < low {
		p.ErrorCode, p.RecordBatches, p.LogStartOffset = kerr.OffsetOutOfRange.Code, nil, low
		if c.foreign {
			p.LogStartOffset = -1
		}
	}
	return p, c.frozen[partition]
}

// grow adds a partition of some records, of which those below first are deleted already.
func (c *memoryCluster) grow(first int64, values ...string) {
	c.change(func() {
		i := len(c.logs)
		c.logs, c.leader = append(c.logs, newMemoryLog()), append(c.leader, int32(i))
		c.logs[i].put(values...)
		c.first[i] = first
	})
}

func (c *memoryCluster) fetch(ctx context.Context, r *kmsg.FetchRequest) (kmsg.Response, error) {
	wait := time.NewTimer(time.Duration(r.MaxWaitMillis) * time.Millisecond)
	budget := time.NewTimer(15 * time.Second)
	defer wait.Stop()
	defer budget.Stop()
	c.mu.Lock()
	c.racks[r.Rack] = true
	c.fetches++
	c.mu.Unlock()
	for over, gone := r.MaxWaitMillis == 0, false; ; {
		c.mu.Lock()
		t := kmsg.NewFetchResponseTopic()
		t.Topic = "t"
		news, stuck := false, false
		for _, asked := range r.Topics[0].Partitions {
			p, frozen := c.look(int(asked.Partition), asked.FetchOffset)
			if frozen {
				p = kmsg.NewFetchResponseTopicPartition()
				p.Partition, p.HighWatermark, p.ErrorCode = asked.Partition, -1, kerr.NetworkException.Code
				stuck = true
			} else {
				news = news || len(p.RecordBatches) > 0 || p.ErrorCode != 0
			}
			t.Partitions = append(t.Partitions, p)
		}
		changed := c.changed
		c.mu.Unlock()
		if news || over && !stuck || gone {
			resp := kmsg.NewPtrFetchResponse()
			resp.Topics = append(resp.Topics, t)
			return resp, nil
		}
		select {
		case <-changed:
		case <-wait.C:
			over = true
		case <-budget.C:
			gone = true
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// stream is one reader of t in fake time.
func (c *memoryCluster) stream(t *testing.T, query string, fn func(f *flow, ended chan struct{})) {
	cl := client.New(c, client.Options{})
	edge, err := api.NewEdge(api.Options{Client: cl, Pool: record.NewPool(1 << 20)})
	require.NoError(t, err)
	s := native.New(native.Options{Edge: edge, Client: cl})
	defer s.Close()
	r := chi.NewRouter()
	s.Mount(r)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/topics/t/records"+query, nil)
	req.Header.Set("Accept", "text/event-stream")
	f, ended := &flow{header: http.Header{}}, make(chan struct{})
	go func() {
		r.ServeHTTP(f, req)
		close(ended)
	}()
	synctest.Wait()
	fn(f, ended)
	cancel()
	<-ended
}

// shownValues are the values of the events in text, in order.
func shownValues(text string) (out []string) {
	for line := range strings.Lines(text) {
		if _, v, ok := strings.Cut(strings.TrimSpace(line), `"value":`); ok {
			out = append(out, strings.TrimSuffix(v, "}"))
		}
	}
	return out
}

// A partition whose leader does not answer, or says that it is none, holds up no other, ends no stream and loses
// nothing.
func TestTailGoesOnBesideAFailingPartition(t *testing.T) {
	faults := map[string]func(c *memoryCluster, on bool){
		"frozen": func(c *memoryCluster, on bool) { c.change(func() { c.frozen[0] = on }) },
	}
	for _, err := range []*kerr.Error{
		kerr.NetworkException, kerr.LeaderNotAvailable, kerr.NotLeaderForPartition, kerr.OffsetNotAvailable,
		kerr.FencedLeaderEpoch, kerr.ReplicaNotAvailable,
	} {
		faults[err.Message] = func(c *memoryCluster, on bool) {
			if c.fail(0, nil); on {
				c.fail(0, err)
			}
		}
	}
	for name, set := range faults {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newMemoryCluster(3)
				c.stream(t, "", func(f *flow, ended chan struct{}) {
					c.put(0, "1")
					require.Equal(t, []string{"1"}, shownValues(f.takeText()))
					set(c, true)
					c.put(0, "2")
					for i := range 300 { // five minutes: far beyond any patience
						time.Sleep(time.Second)
						c.put(1+i%2, strconv.Itoa(1000+i))
						require.Equal(t, []string{strconv.Itoa(1000 + i)}, shownValues(f.takeText()), "at once")
					}
					select {
					case <-ended:
						require.Fail(t, "the stream ended")
					default:
					}
					set(c, false)
					time.Sleep(2 * time.Second)
					require.Equal(t, []string{"2"}, shownValues(f.takeText()))
					c.put(0, "3")
					c.put(1, "4")
					require.ElementsMatch(t, []string{"3", "4"}, shownValues(f.takeText()), "all at once again")
				})
			})
		})
	}
}

// A stream that is behind in a partition that fails reads the others on.
func TestBehindStreamBesideAFailingPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMemoryCluster(3)
		for p := range 3 {
			c.put(p, fmt.Sprint(10*p), fmt.Sprint(10*p+1))
		}
		c.frozen[0] = true
		c.stream(t, "?from=0,0,0", func(f *flow, ended chan struct{}) {
			time.Sleep(3 * time.Second)
			require.ElementsMatch(t, []string{"10", "11", "20", "21"}, shownValues(f.takeText()))
			for i := range 100 {
				time.Sleep(time.Second)
				c.put(1+i%2, strconv.Itoa(1000+i))
			}
			time.Sleep(2 * time.Second)
			require.Len(t, shownValues(f.takeText()), 100)
			c.change(func() { c.frozen[0] = false })
			time.Sleep(2 * time.Second)
			require.Equal(t, []string{"0", "1"}, shownValues(f.takeText()))
		})
	})
}

// A start beyond the log is told once the leader answers, also when it did not at first.
func TestTailBeyondTheLogOfAFailingPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMemoryCluster(2)
		c.put(0, "1")
		c.start[0], c.frozen[0] = 1, true
		c.stream(t, "?from=7,0", func(f *flow, ended chan struct{}) {
			time.Sleep(5 * time.Second)
			c.change(func() { c.frozen[0] = false })
			select {
			case <-ended:
				text := f.takeText()
				require.Contains(t, text, `"status":416`)
				require.NotContains(t, text, "are gone", "there never were any")
			case <-time.After(time.Minute):
				require.Fail(t, "the stream waits at an offset that is not there")
			}
		})
	})
}

// When nothing can be read for a minute the stream ends, and says why.
func TestTailEndsWhenNothingCanBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMemoryCluster(2)
		c.stream(t, "", func(f *flow, ended chan struct{}) {
			c.fail(0, kerr.LeaderNotAvailable)
			c.change(func() { c.frozen[1] = true })
			start := time.Now()
			<-ended
			require.GreaterOrEqual(t, time.Since(start), time.Minute)
			require.Less(t, time.Since(start), 100*time.Second)
			require.Contains(t, f.takeText(), "event: error\n")
		})
	})
}

// A log that ends before what was read ends the stream with the bounds, and with what that means.
func TestTailOfATruncatedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMemoryCluster(2)
		c.stream(t, "", func(f *flow, ended chan struct{}) {
			c.put(0, "1", "2", "3")
			require.Len(t, shownValues(f.takeText()), 3)
			c.change(func() { c.start[0] = 1 })
			<-ended
			text := f.takeText()
			require.Contains(t, text, "event: error\n")
			require.Contains(t, text, `"high_watermark":1`)
			require.Contains(t, text, "are gone")
			require.Contains(t, text, `"status":416`)
		})
	})
}

// Leaders move and fail all the time: each record comes once, in the order of its partition.
func TestTailWhileLeadersMove(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 1))
				const partitions, records = 4, 400
				c := newMemoryCluster(partitions)
				c.stream(t, "?from=0,0,0,0", func(f *flow, _ chan struct{}) {
					codes := []*kerr.Error{nil, nil, kerr.NotLeaderForPartition, kerr.NetworkException, kerr.LeaderNotAvailable}
					for i := range records {
						p := rng.IntN(partitions)
						c.put(i%partitions, strconv.Itoa(i))
						switch rng.IntN(6) {
						case 0:
							c.fail(p, codes[rng.IntN(len(codes))])
						case 1:
							c.change(func() { c.leader[p] = int32(rng.IntN(3)) })
						case 2:
							c.change(func() { c.frozen[p] = rng.IntN(3) == 0 })
						}
						time.Sleep(time.Duration(rng.IntN(900)) * time.Millisecond)
					}
					for p := range partitions {
						c.fail(p, nil)
						c.change(func() { c.frozen[p] = false })
					}
					time.Sleep(5 * time.Second)
					last, seen := make([]int, partitions), 0
					for _, v := range shownValues(f.takeText()) {
						n, err := strconv.Atoi(v)
						require.NoError(t, err)
						require.True(t, n >= last[n%partitions], "record %d after %d", n, last[n%partitions])
						last[n%partitions] = n + partitions
						seen++
					}
					require.Equal(t, records, seen)
				})
			})
		})
	}
}

// An idle hub asks each leader once in a while, not more.
func TestIdleTailAsksLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMemoryCluster(3)
		c.stream(t, "?rack=eu-1a&from=0,0,0", func(f *flow, _ chan struct{}) {
			time.Sleep(time.Minute)
			c.mu.Lock()
			defer c.mu.Unlock()
			require.LessOrEqual(t, c.fetches, 60)
			require.Equal(t, map[string]bool{"eu-1a": true}, c.racks)
		})
	})
}

// A read that waits waits for faults to pass too, and tells one that does not.
func TestLongPollOutlastsAChangeOfLeaders(t *testing.T) {
	for _, form := range []string{"application/json", "application/vnd.apache.kafka.recordbatch"} {
		synctest.Test(t, func(t *testing.T) {
			c := newMemoryCluster(1)
			cl := client.New(c, client.Options{})
			edge, err := api.NewEdge(api.Options{Client: cl, Pool: record.NewPool(1 << 20)})
			require.NoError(t, err)
			s := native.New(native.Options{Edge: edge, Client: cl})
			defer s.Close()
			r := chi.NewRouter()
			s.Mount(r)
			get := func() (*httptest.ResponseRecorder, time.Duration) {
				path := "/v1/topics/t/partitions/0/records?offset=0&wait=30s"
				req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
				req.Header.Set("Accept", form)
				w, start := httptest.NewRecorder(), time.Now()
				r.ServeHTTP(w, req)
				return w, time.Since(start)
			}
			c.fail(0, kerr.NotLeaderForPartition)
			time.AfterFunc(12*time.Second, func() {
				c.fail(0, nil)
				c.put(0, "1")
			})
			w, took := get()
			require.Equal(t, http.StatusOK, w.Code, w.Body.String())
			require.NotEmpty(t, w.Body.String())
			require.InDelta(t, 12*time.Second, took, float64(200*time.Millisecond))

			c.fail(0, kerr.NotLeaderForPartition)
			w, took = get()
			require.Equal(t, http.StatusServiceUnavailable, w.Code)
			require.InDelta(t, 30*time.Second, took, float64(time.Second))
		})
	}
}

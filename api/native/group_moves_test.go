package native_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// worker reads as one member as a careful client does: it says what it has, and asks another node when one fails.
type worker struct {
	g      *crew
	query  string
	member string
	nodes  func() []int // that may be asked

	ack    int64
	asked  int
	fenced int
	failed int
	seen   map[string]int // how often each value came
	slow   time.Duration  // the longest time between two pages
	last   time.Time
}

// once makes one call and returns what came; nothing when the call failed.
func (w *worker) once(ctx context.Context) []string {
	nodes := w.nodes()
	w.asked++
	base := w.g.c.URL(nodes[w.asked%len(nodes)])
	url := fmt.Sprintf("%s/v1/groups/g/records?%s&member=%s&ack=%d", base, w.query, w.member, w.ack)
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		panic(err)
	}
	resp, err := w.g.c.Client.Do(r)
	if err != nil {
		w.failed++
		return nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.failed++
		return nil
	}
	var p worked
	switch {
	case resp.StatusCode == http.StatusConflict && strings.Contains(string(text), "FENCED_MEMBER_EPOCH"):
		w.fenced++
		w.ack = 0
		return nil
	case resp.StatusCode != http.StatusOK:
		w.g.t.Logf("%s: %d %s", w.member, resp.StatusCode, text)
		w.failed++
		return nil
	}
	if err := json.Unmarshal(text, &p); err != nil {
		panic(err)
	}
	w.ack = p.Delivery
	if !w.last.IsZero() {
		w.slow = max(w.slow, time.Since(w.last))
	}
	w.last = time.Now()
	for _, v := range p.values() {
		w.seen[v]++
	}
	return p.values()
}

// The coordinator dies under working members: they go on under their ids on other nodes, and everything is read.
func TestWorkersOutliveTheirCoordinator(t *testing.T) {
	g := newCrew(t, 3)
	status, _, text := g.do(1, "POST", "/v1/topics", nil, `{"name":"t","partitions":6,"replication_factor":3}`)
	require.Equal(t, 201, status, text)
	first, _ := g.read(1, "g", "topics=t&member=w0&auto_offset_reset=earliest&wait=0s&session=60s")
	require.Equal(t, "w0", first.Member)
	victim := g.coordinator(1, "g")
	var dead atomic.Int32
	alive := func() (ids []int) {
		for id := 1; id <= 3; id++ {
			if int32(id) != dead.Load() {
				ids = append(ids, id)
			}
		}
		return ids
	}
	const total = 600
	var got atomic.Int64 // values seen by anybody at least once
	var mu sync.Mutex
	all := map[string]int{}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	var workers []*worker
	var wg sync.WaitGroup
	for i := range 3 {
		w := &worker{
			g: g, query: "topics=t&auto_offset_reset=earliest&wait=500ms&session=60s", member: fmt.Sprintf("w%d", i),
			nodes: alive, asked: i, seen: map[string]int{},
		}
		if i == 0 {
			w.ack = first.Delivery
		}
		workers = append(workers, w)
		wg.Go(func() {
			for got.Load() < total && ctx.Err() == nil {
				values := w.once(ctx)
				mu.Lock()
				for _, v := range values {
					if all[v]++; all[v] == 1 {
						got.Add(1)
					}
				}
				mu.Unlock()
			}
		})
	}
	var killed time.Time
	for i := range total {
		if i == total/3 {
			dead.Store(int32(victim))
			killed = time.Now()
			wg.Go(func() { _ = g.c.Node(victim).Kill() })
		}
		g.insist(ctx, alive()[i%len(alive())], i)
	}
	wg.Wait()
	require.EqualValues(t, total, got.Load())
	twice := 0
	for _, n := range all {
		twice += n - 1
	}
	for _, w := range workers {
		require.Zero(t, w.fenced, w.member)
		t.Logf("%s: %d calls, %d failed, longest pause %v", w.member, w.asked, w.failed, w.slow)
	}
	t.Logf("all read %v after the coordinator was killed; %d records came twice", time.Since(killed), twice)
}

// insist produces a number, again until it is stored.
func (g *crew) insist(ctx context.Context, node, i int) {
	g.t.Helper()
	for {
		path := fmt.Sprintf("%s/v1/topics/t/records?key=%d", g.c.URL(node), i)
		resp, err := g.c.Client.Post(path, "application/json", strings.NewReader(fmt.Sprint(i)))
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		require.NoError(g.t, ctx.Err())
	}
}

// While nothing moves, each record comes once and in order.
func TestWorkersStable(t *testing.T) {
	g := newCrew(t, 1)
	g.topic("t", 2)
	w := &worker{
		g: g, query: "topics=t&auto_offset_reset=earliest&wait=200ms&max_records=7", member: "w",
		nodes: func() []int { return []int{1} }, seen: map[string]int{},
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 100 {
			g.put("t", i%2, count(10*i, 10*i+10)...)
		}
	})
	next := [2]int{0, 10}
	for len(w.seen) < 1000 {
		require.False(t, t.Failed(), "not all was written")
		for _, v := range w.once(t.Context()) {
			var n int
			_, err := fmt.Sscan(v, &n)
			require.NoError(t, err)
			p := n / 10 % 2
			require.Equal(t, next[p], n)
			if next[p] = n + 1; next[p]%10 == 0 {
				next[p] += 10
			}
		}
		require.Zero(t, w.failed)
	}
	wg.Wait()
}

// fleet is many members at work, and what they have read.
type fleet struct {
	*crew
	wg    sync.WaitGroup
	stops []chan struct{} // closing one makes its member's call under way its last

	mu      sync.Mutex
	at      map[string]time.Time // guarded by mu: when a value was read first
	settled atomic.Int64         // how many values were read
	written int
}

// dies is the member whose session ends soon.
const dies = 8

// session is the parameter for a member's session.
func session(member int) string {
	if member == dies {
		return "&session=2s"
	}
	return ""
}

// had are the partitions that a member has whose own calls have ended.
func (f *fleet) had(member int) (all []int32) {
	f.t.Helper()
	until(f.t, func() bool {
		query := fmt.Sprintf("topics=t&auto_offset_reset=earliest&wait=0s&member=w%d", member) + session(member)
		status, _, text := f.do(1, "GET", "/v1/groups/g/records?"+query, nil, "")
		if member == dies && status == http.StatusConflict { // its session was over: the next call joins again
			return false
		}
		require.Equal(f.t, http.StatusOK, status, text)
		var p worked
		require.NoError(f.t, json.Unmarshal([]byte(text), &p), text)
		for _, a := range p.Assignment {
			all = append(all, a.Partitions...)
		}
		return len(all) > 0
	})
	return all
}

// start starts a member.
func (f *fleet) start(ctx context.Context) {
	stop := make(chan struct{})
	w := &worker{
		g: f.crew, query: "topics=t&auto_offset_reset=earliest&wait=10s" + session(len(f.stops)),
		member: fmt.Sprintf("w%d", len(f.stops)), nodes: func() []int { return []int{1} }, seen: map[string]int{},
	}
	f.stops = append(f.stops, stop)
	f.wg.Go(func() {
		for ctx.Err() == nil {
			select {
			case <-stop:
				return
			default:
			}
			now := w.once(ctx)
			f.mu.Lock()
			for _, v := range now {
				if _, ok := f.at[v]; !ok {
					f.at[v] = time.Now()
				}
			}
			f.settled.Store(int64(len(f.at)))
			f.mu.Unlock()
		}
	})
}

// round writes to partitions and returns when all of it was read.
func (f *fleet) round(to []int32) time.Time {
	from := f.written
	for i, p := range to {
		f.put("t", int(p), fmt.Sprint(from+i))
	}
	f.written += len(to)
	last := time.Now()
	until(f.t, func() bool { return f.settled.Load() == int64(f.written) })
	f.mu.Lock()
	defer f.mu.Unlock()
	for v := from; v < f.written; v++ {
		if first := f.at[fmt.Sprint(v)]; first.After(last) {
			last = first
		}
	}
	return last
}

// 50 members over 200 partitions: one leaves, one dies, and the time until the others read what it had.
func TestWorkersOfManyPartitions(t *testing.T) {
	const count, partitions = 50, 200
	f := &fleet{crew: newCrew(t, 1), at: map[string]time.Time{}}
	f.topic("t", partitions)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began := time.Now()
	for range count {
		f.start(ctx)
	}
	var every []int32
	for p := range int32(partitions) {
		every = append(every, p)
	}
	f.round(every)
	t.Logf("%d members joined and read %d partitions within %v", count, partitions, time.Since(began))
	f.round(every)
	for _, i := range []int{7, dies} {
		close(f.stops[i])
		had := f.had(i)
		gone, how := time.Now(), "its last call, with a session of 2 s"
		if i != dies {
			status, _, text := f.do(1, "DELETE", "/v1/groups/g/members/w7", nil, "")
			require.Equal(t, http.StatusNoContent, status, text)
			how = "it left"
		}
		t.Logf("what a member had was read by others %v after %s", f.round(had).Sub(gone), how)
	}
	cancel()
	f.wg.Wait()
}

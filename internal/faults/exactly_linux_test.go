package faults_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var copied = flag.Int("faults.records", 40_000, "how many records to copy exactly once")

// What is copied, by whom, to where.
const (
	input   = "input"
	output  = "output"
	copiers = "copiers"
)

const (
	lanes      = 12  // partitions of the input and of the output
	workers    = 9   // of which a third each does its transactions in one of three ways
	txnRecords = 100 // in a transaction, at most
	keys       = 240
	keyRun     = 25 // records of a key come in runs
	// workSession is how long a worker that has crashed keeps its partitions.
	workSession = 6 * time.Second
	// standstill is how long nothing may be copied.
	standstill = 2 * time.Minute
)

// copying is workers that copy a topic in transactions, and readers that follow the copy.
type copying struct {
	*load
	records int
	readers []*follower

	mu    sync.Mutex
	fates map[string]fate // guarded by mu: of transactions, as their workers were told

	resent, lives, crashes atomic.Int64
	latest                 atomic.Int64 // when the last transaction was committed, in nanoseconds since 1970
}

// fate is what a worker was told of a transaction.
type fate int

const (
	unknownFate fate = iota
	committed
	aborted
)

// Workers of a group copy a topic in transactions, while nodes are killed, frozen and stopped and workers come, go and
// crash: each record is copied once, each key's in order, and no reader ever sees what was not committed.
func TestExactlyOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes and takes most of a minute")
	}
	prepare(t)
	c := startCluster(t)
	l := newLoad(t, c, probes)
	c.makeTopic(input, lanes, 16<<20)
	c.makeTopic(output, lanes, 16<<20)
	j := &copying{load: l, records: *copied, fates: make(map[string]fate)}
	j.fill()
	j.follow()
	start := time.Now()
	for id := range workers {
		l.run(fmt.Sprint("worker-", id), func(c *client) {
			(&worker{client: c, job: j, id: id, way: way(id % 3), epoch: -1}).run()
		})
	}
	n := &nemesis{t: t, cluster: c, load: l, rand: rand.New(rand.NewPCG(*seed, 3)), each: 8 * time.Second}
	done := j.disturb(n)
	took := time.Unix(0, j.latest.Load()).Sub(start)
	t.Logf("%d records copied in %v, %.0f/s; %v", j.records, took.Round(time.Millisecond),
		float64(j.records)/took.Seconds(), done)
	n.report()
	j.check()
}

// prepare draws a seed and builds the binary, where neither is given.
func prepare(t *testing.T) {
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", *seed)
	build(t)
}

// fill writes the input: record n of key k has the value "k-n".
func (j *copying) fill() {
	c := j.client("filler")
	defer c.http.CloseIdleConnections()
	next := make([]int, keys)
	const batch = 200 * keyRun
	for at := 0; at < j.records; at += batch {
		var b strings.Builder
		for i := at; i < min(at+batch, j.records); i++ {
			k := i / keyRun % keys
			fmt.Fprintf(&b, `{"key_text":"k%d","value":"%d-%d"}`+"\n", k, k, next[k])
			next[k]++
		}
		c.insist("/v1/topics/"+input+"/records", "application/vnd.millrace.records+ndjson", b.String(), at/batch)
	}
}

// disturb does faults until all is copied, and says how many of which.
func (j *copying) disturb(n *nemesis) map[string]int {
	kinds := allKinds()[:4]                     // which need no namespaces
	weights := []int{0, 0, 0, 0, 0, 1, 1, 2, 3} // kills, most of the time
	done := make(map[string]int)
	was, at := int64(-1), time.Now()
	for {
		now := j.progress()
		if now == int64(j.records) {
			return done
		}
		if now != was {
			j.t.Logf("%.1f s: %d records copied", j.history.Now().Seconds(), now)
			was, at = now, time.Now()
		}
		require.Less(j.t, time.Since(at), standstill, "nothing is copied behind the first %d records", now)
		require.False(j.t, j.t.Failed())
		k := kinds[weights[n.rand.IntN(len(weights))]]
		k.do(n)
		n.heal()
		done[k.name]++
		n.last(500*time.Millisecond, 3*time.Second)
	}
}

// progress is how many records of the input the group has committed.
func (j *copying) progress() (sum int64) {
	for _, offset := range j.offsets() {
		sum += offset
	}
	return sum
}

// offsets are the group's, by partition; nil while no node tells them.
func (j *copying) offsets() []int64 {
	for id := 1; id <= nodes; id++ {
		ctx, cancel := context.WithTimeout(context.Background(), attention)
		url := j.cluster.nodes[id].url() + "/v1/groups/" + copiers + "/offsets"
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		require.NoError(j.t, err)
		code, body, err := do(j.cluster.http, req)
		cancel()
		var got struct {
			Partitions []struct {
				Partition int
				Offset    int64
			}
		}
		if err != nil || code != http.StatusOK || json.Unmarshal(body, &got) != nil {
			continue
		}
		out := make([]int64, lanes)
		for _, p := range got.Partitions {
			out[p.Partition] = p.Offset
		}
		return out
	}
	return nil
}

// tell notes what a worker was told of a transaction.
func (j *copying) tell(txn string, f fate) {
	if f == committed {
		j.latest.Store(time.Now().UnixNano())
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fates[txn] = f
}

// fatesOf counts them.
func (j *copying) fatesOf(f fate) (count int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, one := range j.fates {
		if one == f {
			count++
		}
	}
	return count
}

// kinds of transactions.
type way int

const (
	keyed way = iota // one request with an Idempotency-Key, sent until its outcome is known
	bare             // one request without
	long             // begin, records, offsets, commit
)

// worker is one of those who copy.
type worker struct {
	*client
	job    *copying
	id     int
	way    way
	member string
	lives  int
	txns   int
	epoch  int // of its transactional id; -1: it has to begin
}

// workPage is what a member is given.
type workPage struct {
	Delivery int64
	Records  []jsonRecord
}

func (w *worker) run() {
	for w.ctx.Err() == nil {
		w.live()
	}
}

// live is one membership. It ends where the worker does not know where the group is, and now and then for no reason.
// Whoever comes next, under a name of its own, reads on where the group is.
func (w *worker) live() {
	w.lives++
	w.job.lives.Add(1)
	w.member = fmt.Sprintf("worker-%d-%d", w.id, w.lives)
	ack := int64(0)
	for w.ctx.Err() == nil {
		if w.rand.IntN(300) == 0 {
			w.job.crashes.Add(1)
			return // without a word: the session ends it
		}
		page, code := w.read(ack)
		switch {
		case code == 0 || code >= 500 || code == http.StatusTooManyRequests:
			w.elsewhere()
			pause(w.ctx, pace)
			continue
		case code != http.StatusOK, len(page.Records) > 0 && !w.copy(page.Records):
			w.leave()
			return
		}
		ack = page.Delivery
	}
	w.leave()
}

// read reads as the member. The code is 0 without an answer.
func (w *worker) read(ack int64) (page workPage, code int) {
	path := fmt.Sprintf("/v1/groups/%s/records?topics=%s&member=%s&commit=manual&auto_offset_reset=earliest"+
		"&session=%v&max_records=%d&wait=2s&ack=%d", copiers, input, w.member, workSession, txnRecords, ack)
	code, text, err := w.call(w.ctx, http.MethodGet, path, "")
	switch {
	case err != nil:
		return page, 0
	case code == http.StatusOK:
		if err := json.Unmarshal(text, &page); err != nil {
			w.t.Errorf("%s: %v in %s", w.member, err, text)
		}
	case code < 500 && !slices.Contains([]int{http.StatusConflict, http.StatusNotFound, http.StatusTooManyRequests}, code):
		w.t.Errorf("%s: read: %d %s", w.member, code, text)
	}
	return page, code
}

// leave leaves the group, if a node is there to hear it.
func (w *worker) leave() {
	path := "/v1/groups/" + copiers + "/members/" + w.member
	_, _, _ = w.call(context.Background(), http.MethodDelete, path, "") // its session ends it otherwise
}

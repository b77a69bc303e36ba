package faults_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/server/servertest/history"
)

// The topics of the load.
const (
	sequenced = "sequenced" // by producers that name themselves, each request sent until it is acknowledged
	plain     = "plain"     // by producers that send each request once
	probes    = "probes"    // by those who measure
)

const (
	partitions = 3
	// pace is the pause of a producer between two requests.
	pace = 15 * time.Millisecond
	// attention is how long a client waits for an answer. It is then unknown what came of the request.
	attention = 8 * time.Second
)

// load is clients that produce and read, and the history of what they were told.
type load struct {
	t       testing.TB
	cluster *cluster
	history *history.History
	ctx     context.Context // of all clients
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	acked   atomic.Int64
	values  atomic.Int64
	events  atomic.Int64 // read as Server-Sent Events
}

// client is one of them. It talks to any node, and to another one after a fault.
type client struct {
	*load
	name string
	http *http.Client
	rand *rand.Rand
	node int
}

// newLoad makes a load of no clients yet, and topics for it.
func newLoad(t testing.TB, c *cluster, topics ...string) *load {
	l := &load{t: t, cluster: c, history: history.New()}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	t.Cleanup(l.stop)
	for _, topic := range topics {
		c.makeTopic(topic, partitions, 1<<20)
	}
	return l
}

// makeTopic makes a topic and waits until all nodes know it.
func (c *cluster) makeTopic(topic string, partitions, segmentBytes int) {
	body := fmt.Sprintf(`{"name":%q,"partitions":%d,"configs":{"segment.bytes":"%d"}}`, topic, partitions, segmentBytes)
	for start, try := time.Now(), 0; ; try++ {
		code, text, err := c.post(1+try%nodes, "/v1/topics", body)
		if err == nil && (code == http.StatusCreated || try > 0 && code == http.StatusConflict) {
			break // by this try, or by one before of which nobody could tell
		}
		require.True(c.t, err != nil || code >= 500, "%d %s", code, text)
		require.Less(c.t, time.Since(start), patience, "%d %s %v", code, text, err)
		pause(context.Background(), 50*time.Millisecond)
	}
	for id := 1; id <= nodes; id++ {
		c.awaitLeaders(id, topic)
	}
}

// post sends JSON to a node, once.
func (c *cluster) post(id int, path, body string) (code int, text []byte, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), attention)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.nodes[id].url()+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return do(c.http, req)
}

func startLoad(t testing.TB, c *cluster) *load {
	l := newLoad(t, c, sequenced, plain, probes)
	for p := range int32(partitions) {
		l.run(fmt.Sprint("sequenced-", p), func(c *client) { c.sequence(p) })
		l.run(fmt.Sprint("plain-", p), func(c *client) { c.once(p) })
		l.run(fmt.Sprint("poll-", p), func(c *client) { c.poll(history.Partition{Topic: sequenced, Number: p}) })
		l.run(fmt.Sprint("raw-", p), func(c *client) { c.raw(history.Partition{Topic: plain, Number: p}) })
	}
	l.run("sse-sequenced", func(c *client) { c.stream(sequenced) })
	l.run("sse-plain", func(c *client) { c.stream(plain) })
	return l
}

func (l *load) run(name string, f func(*client)) {
	c := l.client(name)
	l.wg.Go(func() {
		defer c.http.CloseIdleConnections()
		f(c)
	})
}

func (l *load) client(name string) *client {
	sum := *seed
	for _, b := range []byte(name) {
		sum = sum*31 + uint64(b)
	}
	c := &client{load: l, name: name, rand: rand.New(rand.NewPCG(sum, 2))}
	c.http = &http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{Timeout: 2 * time.Second}).DialContext}}
	c.elsewhere()
	return c
}

// elsewhere chooses a node.
func (c *client) elsewhere() {
	c.http.CloseIdleConnections()
	c.node = 1 + c.rand.IntN(nodes)
}

// stop ends the clients.
func (l *load) stop() {
	l.cancel()
	l.wg.Wait()
}

// fault notes what was done to a node.
func (l *load) fault(id int, what string) {
	now := l.history.Now()
	l.history.Add(&history.Op{Kind: history.Fault, Client: "nemesis", Node: strconv.Itoa(id), Invoke: now, Return: now,
		Outcome: history.OK, Note: what})
}

// do sends a request and reads the whole answer.
func do(c *http.Client, req *http.Request) (code int, body []byte, err error) {
	resp, err := c.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// call sends a request to the client's node.
func (c *client) call(ctx context.Context, method, path, body string, header ...string) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, attention)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, c.cluster.nodes[c.node].url()+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return do(c.http, req)
}

// insist produces until that is acknowledged, to whatever node. As the request of that number of a producer that has
// the client's name it is stored once, however often it is sent.
func (c *client) insist(path, kind, body string, seq int) {
	c.t.Helper()
	for start := time.Now(); ; pause(context.Background(), pace) {
		code, text, err := c.call(context.Background(), http.MethodPost, path, body, "Content-Type", kind,
			"Producer-Id", c.name, "Producer-Epoch", "0", "Producer-Seq", strconv.Itoa(seq))
		if err == nil && code == http.StatusOK {
			return
		}
		require.True(c.t, err != nil || code >= 500, "%d %s", code, text)
		require.Less(c.t, time.Since(start), patience, "%d %s %v", code, text, err)
		c.elsewhere()
	}
}

// fresh makes values that were never sent.
func (c *client) fresh(n int) (values []string) {
	for range n {
		values = append(values, fmt.Sprintf("%s/%d", c.name, c.values.Add(1)))
	}
	return values
}

// send sends values once and notes what came of it. seq is below 0 without a sequence.
func (c *client) send(p history.Partition, seq int, values []string) history.Outcome {
	op := &history.Op{
		Kind: history.Send, Client: c.name, Session: c.name, Node: strconv.Itoa(c.node), API: "v1", Partition: p,
		Values: values, Acks: -1, Base: -1, Invoke: c.history.Now(),
	}
	header := []string{"Content-Type", "application/x-ndjson"}
	if seq >= 0 {
		op.Seq, op.Idempotent = seq, true
		header = append(header, "Producer-Id", c.name, "Producer-Epoch", "0", "Producer-Seq", strconv.Itoa(seq))
	}
	var body bytes.Buffer
	for _, v := range values {
		fmt.Fprintf(&body, "%q\n", v)
	}
	// The context is not the clients': what is under way at the end is answered.
	path := fmt.Sprintf("/v1/topics/%s/records?partition=%d", p.Topic, p.Number)
	code, text, err := c.call(context.Background(), http.MethodPost, path, body.String(), header...)
	op.Return = c.history.Now()
	c.outcome(op, code, text, err)
	c.history.Add(op)
	if op.Outcome == history.OK {
		c.acked.Add(1)
	}
	return op.Outcome
}

// outcome reads what came of a send.
func (c *client) outcome(op *history.Op, code int, text []byte, err error) {
	var dial *net.OpError
	if err != nil {
		op.Note = err.Error()
		if errors.As(err, &dial) && dial.Op == "dial" {
			op.Outcome = history.Fail // nothing was sent
		}
		return
	}
	var answer struct {
		Outcome string
		Offsets []struct {
			Base int64 `json:"base_offset"`
		}
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		c.t.Errorf("%v: %d %s", op, code, text)
		return
	}
	switch {
	case code == http.StatusOK && len(answer.Offsets) == 1:
		op.Outcome, op.Base = history.OK, answer.Offsets[0].Base
		return
	case code >= 500 && answer.Outcome == "failed":
		op.Outcome = history.Fail
	case code < 500 || answer.Outcome != "unknown":
		c.t.Errorf("%v: %d %s", op, code, text)
	}
	op.Note = fmt.Sprintf("%d %s", code, text)
}

// sequence sends each request of its sequence until it is acknowledged, to whatever node.
func (c *client) sequence(partition int32) {
	p := history.Partition{Topic: sequenced, Number: partition}
	for seq := 0; c.ctx.Err() == nil; seq++ {
		values := c.fresh(1 + c.rand.IntN(3))
		for c.ctx.Err() == nil && c.send(p, seq, values) != history.OK {
			c.elsewhere()
			pause(c.ctx, pace)
		}
		pause(c.ctx, pace)
	}
}

// once sends each request once.
func (c *client) once(partition int32) {
	p := history.Partition{Topic: plain, Number: partition}
	for c.ctx.Err() == nil {
		if c.send(p, -1, c.fresh(1+c.rand.IntN(3))) != history.OK {
			c.elsewhere()
		}
		pause(c.ctx, pace)
	}
}

// probe returns when a partition has taken a record, without asking the node that is down.
func (l *load) probe(partition int32, down int) {
	c := l.client(fmt.Sprintf("probe-%d-%d", partition, l.values.Add(1)))
	defer c.http.CloseIdleConnections()
	p := history.Partition{Topic: probes, Number: partition}
	for start := time.Now(); ; pause(context.Background(), 5*time.Millisecond) {
		for c.node == down {
			c.elsewhere()
		}
		if c.send(p, -1, c.fresh(1)) == history.OK {
			return
		}
		if time.Since(start) > patience {
			l.t.Errorf("%v takes no records %v after node %d was killed", p, patience, down)
			return
		}
	}
}

// acknowledged are the sends of the history that began and were acknowledged in a silence. Repeats may be: they tell of
// what was stored before.
func (l *load) acknowledged(s silence) (ops []*history.Op) {
	for _, o := range l.history.Ops() {
		if o.Kind == history.Send && !o.Idempotent && o.Outcome == history.OK && o.Invoke >= s.from && o.Return <= s.to {
			ops = append(ops, o)
		}
	}
	return ops
}

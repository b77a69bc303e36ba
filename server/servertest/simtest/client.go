package simtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"syscall"
	"time"

	"millrace/server/servertest/memnet"
)

// client is a host of its own from which one worker sends requests to any node.
type client struct {
	s    *sim
	name string
	rng  *rand.Rand
	host *memnet.Host
	http *http.Client
	ctx  context.Context // of its work
}

func (s *sim) newClient(name string, stream uint64) *client {
	c := &client{s: s, name: name, ctx: s.ctx, host: s.net.Boot(name)}
	c.rng = rand.New(rand.NewPCG(s.opts.Seed, 10_000+stream))
	c.http = &http.Client{Transport: &http.Transport{DialContext: c.host.Dial, MaxIdleConnsPerHost: 4}}
	return c
}

func (c *client) close() {
	c.host.Kill()
	c.http.CloseIdleConnections()
}

// node draws whom to ask.
func (c *client) node() *machine { return c.s.nodes[c.rng.IntN(len(c.s.nodes))] }

// think lets some time pass between requests.
func (c *client) think() bool { return sleep(c.s.ctx, around(c.rng, c.s.plan.think)) }

// request is one HTTP request.
type request struct {
	node         *machine
	method, path string
	header       map[string]string
	body         string
	wait         time.Duration // how long the answer may take; 0: the plan's patience
	long         time.Duration // how long the node was asked to wait
}

// reply is an answer, or why there is none.
type reply struct {
	status int
	header http.Header
	body   []byte
	err    error
}

// unsent says that certainly nothing reached a node.
func (r *reply) unsent() bool { return r.err != nil && errors.Is(r.err, syscall.ECONNREFUSED) }

// do sends a request and reads the whole answer.
func (c *client) do(ctx context.Context, q request) (r reply) {
	wait := q.wait
	if wait == 0 {
		wait = c.s.plan.patience
	}
	began := c.s.h.Now()
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	resp, err := c.send(limited, q)
	if err == nil {
		defer resp.Body.Close()
		var b bytes.Buffer
		_, err = b.ReadFrom(resp.Body)
		r = reply{status: resp.StatusCode, header: resp.Header, body: b.Bytes()}
	}
	r.err = err
	if limited.Err() != nil && ctx.Err() == nil && wait >= answerWithin+q.long && q.node.reachable(began) {
		c.s.violate("L3", "%s has no answer to %s %s after %v", q.node.name, q.method, q.path, wait)
	}
	return r
}

// answerWithin is when a node has answered, with a second to spare: it waits half a minute for others.
const answerWithin = 32 * time.Second

// send sends a request and gives the answer's head.
func (c *client) send(ctx context.Context, q request) (*http.Response, error) {
	var body io.Reader
	if q.body != "" {
		body = strings.NewReader(q.body)
	}
	req, err := http.NewRequestWithContext(ctx, q.method, q.node.url()+q.path, body)
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	req.GetBody = nil // else what has an Idempotency-Key is sent again without a word
	for k, v := range q.header {
		req.Header.Set(k, v)
	}
	return c.http.Do(req)
}

// disturb perhaps has something happen to a request that is about to be sent: its connection is reset somewhere, on the
// way there or back, or another copy of it arrives too, perhaps much later and elsewhere. It says whether there is one.
func (c *client) disturb(q request) (doubled bool) {
	if c.s.plan.chaos == 0 || c.rng.Float64() >= c.s.plan.chaos {
		return false
	}
	switch c.rng.IntN(4) {
	case 0:
		c.s.net.ResetAfter(c.name, q.node.name, c.rng.IntN(2*len(q.body)+200))
	case 1:
		c.s.net.ResetAfter(q.node.name, c.name, c.rng.IntN(600))
	default:
		copied := q
		copied.node = c.node()
		copied.wait = 30 * time.Second
		delay := around(c.rng, pick(c.rng, 10*time.Millisecond, time.Second, 10*time.Second))
		c.s.clients.Go(func() {
			if sleep(c.s.ctx, delay) {
				c.do(c.s.ctx, copied)
			}
		})
		return true
	}
	return false
}

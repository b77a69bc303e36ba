package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/record"
)

// Bounds of what a client reads.
const (
	maxAnswerBytes  = 256 << 20
	maxRefusalBytes = 4 << 10
)

// ClientOptions say who is asked and how.
type ClientOptions struct {
	Node      int32  // who is meant
	URL       string // of the node, such as http://host:8082
	Transport http.RoundTripper
	// Fetches carries Fetch requests, which it may send twice; nil: Transport does.
	Fetches    http.RoundTripper
	Credential Credential
	// ClusterID is the id of this node's cluster, "" while it is not known; nil is never known.
	ClusterID func() string
	// Pool lends memory for encoded requests; nil takes it from the heap.
	Pool *record.Pool
}

// Client sends requests to one node. It is a kmsg.Requestor, safe for concurrent use.
type Client struct {
	o    ClientOptions
	base *url.URL
	err  error // why URL cannot be used
}

// NewClient makes a Client. It does no I/O; a URL that cannot be used is told by every request.
func NewClient(o ClientOptions) *Client {
	c := &Client{o: o}
	c.base, c.err = url.Parse(strings.TrimSuffix(o.URL, "/"))
	if c.err == nil && c.base.Host == "" {
		c.err = fmt.Errorf("%q is not the URL of a node", o.URL)
	}
	return c
}

// Request implements kmsg.Requestor. It sets the version of the request.
func (c *Client) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	resp, err := c.request(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("node %d: %w", c.o.Node, err)
	}
	return resp, nil
}

func (c *Client) request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	if c.err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotSent, c.err)
	}
	p, err := c.encode(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	defer p.release()
	answer, err := c.transport(r).RoundTrip(c.message(ctx, r, p))
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		if !p.delivered() {
			return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
		}
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }() // all that matters of it has been read
	if answer.StatusCode != http.StatusOK {
		return nil, refusal(answer)
	}
	body, err := readAnswer(ctx, r, answer)
	if err != nil {
		return nil, fmt.Errorf("answer to %s: %w", kmsg.NameForKey(r.Key()), err)
	}
	return ReadResponse(r, body)
}

// transport is what carries a request.
func (c *Client) transport(r kmsg.Request) http.RoundTripper {
	if r.Key() == kmsg.Fetch.Int16() && c.o.Fetches != nil {
		return c.o.Fetches
	}
	return c.o.Transport
}

// encode makes the body.
func (c *Client) encode(r kmsg.Request) (*payload, error) {
	var arena *record.Arena
	if c.o.Pool != nil {
		arena = c.o.Pool.Arena()
	}
	bytes, err := AppendRequest(arena.Alloc(requestSize(r))[:0], r)
	if err != nil {
		arena.Free()
		return nil, err
	}
	return newPayload(bytes, arena), nil
}

// message is the HTTP request.
func (c *Client) message(ctx context.Context, r kmsg.Request, p *payload) *http.Request {
	u := *c.base
	u.Path += Path + strconv.Itoa(int(r.Key()))
	m := &http.Request{
		Method: http.MethodPost, URL: &u, Host: u.Host, Header: make(http.Header, 6),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: int64(len(p.bytes)), Body: p.open(),
		GetBody: func() (io.ReadCloser, error) { return p.open(), nil },
	}
	c.o.Credential.Set(m.Header)
	m.Header.Set("Content-Type", "application/octet-stream")
	m.Header.Set(headerTo, strconv.Itoa(int(c.o.Node)))
	m.Header.Set(headerVersion, strconv.Itoa(int(r.GetVersion())))
	if c.o.ClusterID != nil {
		if id := c.o.ClusterID(); id != "" {
			m.Header.Set(headerCluster, id)
		}
	}
	if deadline, ok := ctx.Deadline(); ok {
		left := max(time.Until(deadline).Milliseconds(), 1)
		m.Header.Set(headerTimeout, strconv.FormatInt(left, 10))
	}
	return m.WithContext(ctx)
}

// refusal is the error of an answer that is not 200. A handler says by the status whether it acted on the request.
func refusal(answer *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxRefusalBytes))
	said := strings.TrimSpace(string(text))
	if err != nil || said == "" {
		said = "no reason given"
	}
	if answer.StatusCode < 500 || answer.StatusCode == http.StatusServiceUnavailable {
		return fmt.Errorf("%w: refused with status %d: %s", ErrNotSent, answer.StatusCode, said)
	}
	return fmt.Errorf("status %d: %s", answer.StatusCode, said)
}

// readAnswer reads a body whole: of a Fetch into the arena in ctx, which then owns the record batches.
func readAnswer(ctx context.Context, r kmsg.Request, answer *http.Response) ([]byte, error) {
	n := answer.ContentLength
	if n < 0 || n > maxAnswerBytes {
		return nil, fmt.Errorf("%d bytes: %w", n, errTooLarge)
	}
	var arena *record.Arena
	if r.Key() == kmsg.Fetch.Int16() {
		arena = record.ArenaFrom(ctx)
	}
	body, err := readWhole(answer.Body, int(n), memory{arena: arena})
	if err != nil {
		return nil, fmt.Errorf("broken off: %w", err)
	}
	return body, nil
}

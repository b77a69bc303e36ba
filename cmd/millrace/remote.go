package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// remote is a node seen from outside: its URL and an HTTP client of our own, so that nothing is shared with the
// process.
type remote struct {
	base string
	http *http.Client
	flag string // which names its URL
}

// remote opens the node that --url or MILLRACE_URL names. Nothing is sent yet.
func (c *cli) remote() (*remote, error) {
	base := c.url
	if base == "" {
		base = c.getenv("MILLRACE_URL")
	}
	if base == "" {
		base = defaultURL
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, usagef("--url %q: want a URL such as %s", base, defaultURL)
	}
	tr := &http.Transport{
		DialContext:           (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		ResponseHeaderTimeout: 60 * time.Second,
		MaxIdleConnsPerHost:   workers,
	}
	return &remote{strings.TrimRight(base, "/"), &http.Client{Transport: tr}, "--url"}, nil
}

// problem is the body of a native API error, or of one of the registry, which has a number and a message alone.
type problem struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Detail    string `json:"detail"`
	Status    int    `json:"status"`
	Code      int    `json:"error_code"`
	Retryable bool   `json:"retryable"`
	Outcome   string `json:"outcome"`
	Message   string `json:"message"`
}

func (p *problem) Error() string {
	switch {
	case p.Detail == "":
		return fmt.Sprintf("%s (HTTP %d)", p.Title, p.Status)
	case p.Title == "" || strings.HasPrefix(p.Detail, p.Title):
		return fmt.Sprintf("%s (HTTP %d, error %d)", p.Detail, p.Status, p.Code)
	}
	return fmt.Sprintf("%s: %s (HTTP %d, error %d)", p.Title, p.Detail, p.Status, p.Code)
}

// call is one request and what to do with its answer.
type call struct {
	method, path string
	query        url.Values
	header       http.Header
	body         []byte
}

// request is a call made ready to send.
func (r *remote) request(ctx context.Context, c call) (*http.Request, error) {
	target := r.base + c.path
	if len(c.query) > 0 {
		target += "?" + c.query.Encode()
	}
	var body io.Reader
	if c.body != nil {
		body = bytes.NewReader(c.body)
	}
	req, err := http.NewRequestWithContext(ctx, c.method, target, body)
	if err != nil {
		return nil, usagef("request %s: %w", target, err)
	}
	for k, v := range c.header {
		req.Header[k] = v
	}
	req.Header.Set("User-Agent", "millrace/"+version)
	return req, nil
}

// pages reads a list to its end.
func pages[T any](ctx context.Context, r *remote, path string, query url.Values) ([]T, error) {
	all := []T{}
	for {
		var page struct {
			Items []T    `json:"items"`
			Next  string `json:"next_cursor"`
		}
		if err := r.do(ctx, call{method: http.MethodGet, path: path, query: query}, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if page.Next == "" {
			return all, nil
		}
		query.Set("cursor", page.Next)
	}
}

// do sends a call and decodes a 2xx answer, if it has a body, into out, which may be nil. Every other end is an error
// with its exit code.
func (r *remote) do(ctx context.Context, c call, out any) error {
	req, err := r.request(ctx, c)
	if err != nil {
		return err
	}
	resp, err := r.http.Do(req)
	if err != nil {
		return r.noAnswer(ctx, c, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return r.refused(resp)
	}
	if out == nil || resp.StatusCode == http.StatusNoContent {
		_, err = io.Copy(io.Discard, resp.Body)
	} else {
		d := json.NewDecoder(resp.Body)
		d.UseNumber()
		err = d.Decode(out)
	}
	if err != nil {
		return r.noAnswer(ctx, c, fmt.Errorf("read the answer: %w", err))
	}
	return nil
}

// noAnswer names the outcome of a call that got no whole answer: a connection that was never made did nothing; after
// that, a call that changes something may have taken effect.
func (r *remote) noAnswer(ctx context.Context, c call, err error) error {
	if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
		return &failure{exitInterrupted, context.Canceled}
	}
	if errors.Is(err, http.ErrSchemeMismatch) {
		return failf(exitUnreachable, "what answers at %s speaks http, not https: try http%s",
			r.base, strings.TrimPrefix(r.base, "https"))
	}
	var op *net.OpError
	var dns *net.DNSError
	if c.method == http.MethodGet || errors.As(err, &dns) || errors.As(err, &op) && op.Op == "dial" {
		hint := "Start one with 'millrace serve', or give its address with --url or MILLRACE_URL."
		if r.flag != "--url" {
			hint = "Check " + r.flag + "."
		}
		return failf(exitUnreachable, "no node answers at %s: %w\n%s", r.base, rootCause(err), hint)
	}
	return failf(exitUnknown, "%s %s: the connection ended before the answer, so it may or may not have taken effect: %w",
		c.method, c.path, rootCause(err))
}

// rootCause strips the method and URL that net/http puts in front of an error; the caller names them better.
func rootCause(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// registryTimeout is the number of the registry's error for a write that may have taken effect.
const registryTimeout = 50002

// refused turns an error answer into an error with its exit code.
func (r *remote) refused(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	p := &problem{Status: resp.StatusCode}
	known := json.Unmarshal(text, p) == nil
	if p.Detail == "" {
		p.Detail = p.Message
	}
	if !known || p.Title == "" && p.Detail == "" {
		p = &problem{
			Status: resp.StatusCode,
			Title:  resp.Status,
			Detail: "the server at " + r.base + " does not answer like Millrace; check " + r.flag,
		}
	}
	switch {
	case p.Outcome == "unknown", p.Outcome == "partial",
		p.Outcome == "" && p.Code == registryTimeout: // none says that nothing was done
		return &failure{exitUnknown, p}
	case resp.StatusCode == http.StatusNotFound:
		return &failure{exitNotFound, p}
	}
	return &failure{exitFailed, p}
}

// retryable reports whether a call that ended in err may be sent again: it is safe to repeat, and might go better.
func retryable(err error) bool {
	var f *failure
	if !errors.As(err, &f) {
		return false
	}
	var p *problem
	if errors.As(err, &p) {
		return p.Retryable || p.Outcome == "unknown"
	}
	return f.code == exitUnreachable || f.code == exitUnknown
}

package connectors_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/client"
	"millrace/connect/data"
	"millrace/connect/plugin"
	"millrace/server/servertest"
)

// fixture is connectors over HTTP: those of real nodes.
type fixture struct {
	t    testing.TB
	url  string
	http *http.Client
}

// patientSession keeps workers in their group that are held up for a while.
const patientSession = "20000"

// patience is how long tests wait for what must come.
const patience = 2 * time.Minute

// start starts a node by itself that has the classes of this test.
func start(t testing.TB, settings ...string) *fixture {
	t.Helper()
	broker := map[string]string{"offsets.topic.num.partitions": "1", "connect.session.timeout.ms": patientSession}
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "=")
		broker[name] = value
	}
	n := servertest.Start(t, servertest.Options{Broker: broker, Connectors: classes()})
	return &fixture{t, n.URL(), n.Client}
}

// classes are a source and a sink.
func classes() []plugin.Class {
	connection := plugin.Defs{
		{Name: "host", Type: plugin.String, Default: "localhost", Group: "Connection", Doc: "Where."},
		{Name: "password", Type: plugin.Password, Null: true, Group: "Connection", Doc: "The password."},
		{Name: "mode", Type: plugin.String, Default: "fast", Values: []string{"fast", "slow"}, Group: "Mode"},
		{Name: "cache", Type: plugin.Int, Default: "1", Group: "Mode", Unused: "nothing is cached here"},
	}
	return []plugin.Class{
		{
			Info: plugin.Info{
				Class: "org.example.CountSourceConnector", Aliases: []string{"com.old.Counter"}, Kind: plugin.SourceKind,
				Version: "1.2", Defs: append(connection, plugin.Def{Name: "topic", Type: plugin.String, Required: true}),
			},
			New: func() plugin.Connector { return &connector{kind: plugin.SourceKind} },
		}, {
			Info: plugin.Info{Class: "org.example.NullSinkConnector", Kind: plugin.SinkKind, Defs: connection},
			New:  func() plugin.Connector { return &connector{kind: plugin.SinkKind} },
		},
	}
}

// connector counts, or takes records and does nothing with them.
type connector struct {
	kind  plugin.Kind
	props map[string]string
}

// Validate says that nobody is at the host nowhere, and, as a careless one would, what it was given.
func (c *connector) Validate(_ context.Context, props map[string]string) (out []plugin.Problem) {
	if props["host"] == "nowhere" {
		out = append(out, plugin.Problem{Key: "host", Message: "nobody answers at " + props["host"]})
	}
	if strings.HasPrefix(props["host"], "bad-") {
		out = append(out, plugin.Problem{Key: "host", Message: "cannot go to " + props["host"]},
			plugin.Problem{Key: "slot", Message: "there is no slot"})
	}
	return out
}

func (c *connector) Start(_ context.Context, props map[string]string, _ plugin.ConnectorContext) error {
	c.props = props
	return nil
}

func (c *connector) TaskConfigs(_ context.Context, most int) ([]map[string]string, error) {
	out := make([]map[string]string, most)
	for i := range out {
		out[i] = map[string]string{"share": strconv.Itoa(i)}
	}
	return out, nil
}

func (c *connector) Stop(context.Context) error { return nil }

func (c *connector) AlterOffsets(_ context.Context, _ map[string]string, offsets []plugin.Offset) (bool, error) {
	for _, o := range offsets {
		if o.Offset["count"] == "veto" {
			return false, errors.New("a count is a number")
		}
	}
	return c.kind == plugin.SourceKind, nil
}

func (c *connector) NewSource() plugin.SourceTask {
	if c.kind == plugin.SinkKind {
		return nil
	}
	return &task{}
}

func (c *connector) NewSink() plugin.SinkTask {
	if c.kind == plugin.SourceKind {
		return nil
	}
	return &sink{}
}

// task writes numbers, one more than the last that was stored each time.
type task struct {
	topic, share string
	count        int64
	fail         bool
}

func (s *task) Start(ctx context.Context, props map[string]string, c plugin.SourceContext) error {
	s.topic, s.share, s.fail = props["topic"], props["share"], props["fail"] == props["share"] && props["fail"] != ""
	if s.fail {
		return errors.New("told to fail")
	}
	at, err := c.Offset(ctx, map[string]any{"share": s.share})
	s.count, _ = at["count"].(int64)
	return err
}

func (s *task) Poll(ctx context.Context) ([]*plugin.SourceRecord, error) {
	t := time.NewTimer(10 * time.Millisecond)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return nil, nil
	case <-t.C:
	}
	s.count++
	return []*plugin.SourceRecord{{
		Record: data.Record{Topic: s.topic, Partition: data.AnyPartition, Timestamp: data.NoTimestamp, Value: s.count},
		Source: plugin.Offset{Partition: map[string]any{"share": s.share}, Offset: map[string]any{"count": s.count}},
	}}, nil
}

func (s *task) Stored(context.Context) error { return nil }
func (s *task) Stop(context.Context) error   { return nil }

type sink struct{}

func (s *sink) Start(context.Context, map[string]string, plugin.SinkContext) error { return nil }
func (s *sink) Open(context.Context, []plugin.OpenPartition) error                 { return nil }
func (s *sink) Put(context.Context, *plugin.SinkBatch) error                       { return nil }
func (s *sink) Close(context.Context, []client.TopicPartition, bool) error         { return nil }
func (s *sink) Stop(context.Context) error                                         { return nil }

func (s *sink) PreCommit(_ context.Context, at map[client.TopicPartition]int64) (
	map[client.TopicPartition]int64, error,
) {
	return at, nil
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	text   string
}

// send sends a request with a body, unless that is empty, and headers in pairs.
func (f *fixture) send(method, path, body string, headers ...string) *answer {
	f.t.Helper()
	var sent io.Reader
	if body != "" {
		sent = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.url+path, sent)
	require.NoError(f.t, err)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := f.http.Do(r)
	require.NoError(f.t, err, "%s %s", method, path)
	defer func() { require.NoError(f.t, resp.Body.Close()) }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(f.t, err)
	return &answer{resp.StatusCode, resp.Header, string(text)}
}

// step is a request and what is wanted of its answer: its status and, behind it, JSON that it has, or words that are
// in the message of an error. Of an object only the members that are wanted count.
type step struct {
	request, body string
	status        int
	want          string
}

// again sends a request until its answer is as wanted, which is none of an error.
func (f *fixture) again(s step) {
	f.t.Helper()
	method, path, _ := strings.Cut(s.request, " ")
	f.eventually(s.request, func() bool {
		a := f.send(method, path, s.body)
		return a.status == s.status && fits(a, s.want)
	})
}

// fits says whether an answer that is no error has what is wanted.
func fits(a *answer, want string) bool {
	var w, got any
	return want == "" || json.Unmarshal([]byte(want), &w) == nil && json.Unmarshal([]byte(a.text), &got) == nil &&
		has(got, w)
}

// eventually waits until something holds.
func (f *fixture) eventually(what string, holds func() bool) {
	f.t.Helper()
	require.Eventually(f.t, holds, patience, 20*time.Millisecond, what)
}

// run sends requests one after the other. Each is a method and a path.
func (f *fixture) run(steps ...step) {
	f.t.Helper()
	for i, s := range steps {
		method, path, _ := strings.Cut(s.request, " ")
		a := f.send(method, path, s.body)
		at := fmt.Sprintf("step %d: %s %s\nanswered with %d %s", i, s.request, s.body, a.status, a.text)
		require.Equal(f.t, s.status, a.status, at)
		if a.text != "" {
			require.Equal(f.t, "application/json", a.header.Get("Content-Type"), at)
		}
		if s.status >= 400 && !strings.HasPrefix(path, "/health") {
			var e struct {
				Code    int `json:"error_code"`
				Message string
			}
			require.NoError(f.t, json.Unmarshal([]byte(a.text), &e), at)
			require.Equal(f.t, s.status, e.Code, at)
			require.NotEmpty(f.t, e.Message, at)
			require.Contains(f.t, e.Message, s.want, at)
			continue
		}
		if s.want == "" {
			continue
		}
		var want, got any
		require.NoError(f.t, json.Unmarshal([]byte(s.want), &want), s.want)
		require.NoError(f.t, json.Unmarshal([]byte(a.text), &got), at)
		require.True(f.t, has(got, want), "%s\nwant %s", at, s.want)
	}
}

// has says whether a value has all that is wanted. A wanted null stands for a member that is not there.
func has(got, want any) bool {
	if list, ok := want.([]any); ok {
		there, ok := got.([]any)
		if !ok || len(there) != len(list) {
			return false
		}
		for i := range list {
			if !has(there[i], list[i]) {
				return false
			}
		}
		return true
	}
	w, ok := want.(map[string]any)
	if !ok {
		return reflect.DeepEqual(got, want)
	}
	g, ok := got.(map[string]any)
	if !ok {
		return false
	}
	for name, member := range w {
		if there, ok := g[name]; member == nil && ok || member != nil && !has(there, member) {
			return false
		}
	}
	return true
}

// await asks until an answer has what is wanted.
func (f *fixture) await(path, want string) {
	f.t.Helper()
	var w any
	require.NoError(f.t, json.Unmarshal([]byte(want), &w), want)
	last := ""
	ok := func() bool {
		a := f.send("GET", path, "")
		last = a.text
		var got any
		return a.status == 200 && json.Unmarshal([]byte(a.text), &got) == nil && has(got, w)
	}
	defer func() {
		if f.t.Failed() {
			f.t.Logf("GET %s answers %s", path, last)
		}
	}()
	require.Eventually(f.t, ok, patience, 20*time.Millisecond, "GET %s: want %s", path, want)
}

const source = `"connector.class":"org.example.CountSourceConnector","topic":"counts"`

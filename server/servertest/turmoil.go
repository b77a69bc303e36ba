package servertest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Turmoil is clients that produce and read over HTTP while a node dies and comes back, and that hold it to what it
// told them: an acknowledged record is where the answer said, once, in the order of its producer, and stays there; a
// refused one is nowhere; what was read stays as it was read; and offsets are dense.
//
// One producer repeats each request of its sequence until it is acknowledged, one sends every request once, one appends
// under the condition that nobody was faster, and a reader follows each of their topics.
type Turmoil struct {
	t      testing.TB
	http   *http.Client
	ctx    context.Context // of all clients
	cancel context.CancelFunc
	wg     sync.WaitGroup
	acks   chan struct{}

	mu     sync.Mutex
	url    string           // guarded by mu
	moved  chan struct{}    // guarded by mu; closed when url is another
	values map[place]string // guarded by mu; what was said to lie where
	places map[string]place // guarded by mu
	fates  map[string]fate  // guarded by mu; by value
}

// place is where a record lies in a topic with one partition.
type place struct {
	topic  string
	offset int64
}

// fate is what a producer knows of a record.
type fate uint8

const (
	open fate = iota // it may or may not be stored
	refused
	acknowledged
)

// The topics of a Turmoil, one for each kind of producer.
const (
	repeated = "repeated"
	once     = "once"
	expected = "expected"
)

// patience is how long a Turmoil, or a cluster that starts, waits for a node before it gives up.
const patience = 60 * time.Second

// NewTurmoil makes the topics on the node at url and starts the clients.
func NewTurmoil(t testing.TB, url string) *Turmoil {
	t.Helper()
	m := &Turmoil{
		t: t, url: url, moved: make(chan struct{}), acks: make(chan struct{}, 1<<16),
		http:   &http.Client{Transport: &http.Transport{}, Timeout: patience},
		values: map[place]string{}, places: map[string]place{}, fates: map[string]fate{},
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	t.Cleanup(m.Stop)
	for _, topic := range []string{repeated, once, expected} {
		body := fmt.Sprintf(`{"name":%q,"configs":{"internal.segment.bytes":"3000"}}`, topic)
		m.makeTopic(body)
		m.wg.Go(func() { m.follow(topic) })
	}
	for i := range 2 {
		m.wg.Go(func() { m.repeat(fmt.Sprint("r", i)) })
		m.wg.Go(func() { m.once(fmt.Sprint("o", i)) })
		m.wg.Go(func() { m.expect(fmt.Sprint("e", i)) })
	}
	return m
}

// makeTopic makes a topic, however often that has to be asked for.
func (m *Turmoil) makeTopic(body string) {
	m.t.Helper()
	status, text := m.call(http.MethodPost, "/v1/topics", nil, body)
	for start := time.Now(); (status == 0 || status >= 500) && time.Since(start) < patience; {
		if status, text = m.call(http.MethodPost, "/v1/topics", nil, body); status == http.StatusConflict {
			return // it was made, and nobody could say so
		}
	}
	require.Equal(m.t, http.StatusCreated, status, text)
}

// Moved tells the clients where the node is now.
func (m *Turmoil) Moved(url string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.url = url
	close(m.moved)
	m.moved = make(chan struct{})
}

// AwaitAcks returns when n more requests were acknowledged.
func (m *Turmoil) AwaitAcks(n int) {
	m.t.Helper()
	limit := time.After(patience)
	for range n {
		select {
		case <-m.acks:
		case <-limit:
			require.Fail(m.t, "nothing was acknowledged for too long")
		}
	}
}

// Stop ends the clients.
func (m *Turmoil) Stop() {
	m.cancel()
	m.wg.Wait()
	m.http.CloseIdleConnections()
}

// node is where requests go, and a channel that is closed when that changes.
func (m *Turmoil) node() (url string, moved <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.url, m.moved
}

// call sends one request. Status 0 means that no whole answer came; then it waits for the node to move, or a moment.
func (m *Turmoil) call(method, path string, header map[string]string, body string) (status int, text string) {
	url, moved := m.node()
	req, err := http.NewRequestWithContext(m.ctx, method, url+path, strings.NewReader(body))
	if err == nil {
		for k, v := range header {
			req.Header.Set(k, v)
		}
		status, text, err = m.do(req)
	}
	if err == nil && status < 500 {
		return status, text
	}
	select {
	case <-moved:
	case <-m.ctx.Done():
	case <-time.After(20 * time.Millisecond):
	}
	if err != nil {
		return 0, ""
	}
	return status, text
}

func (m *Turmoil) do(req *http.Request) (status int, text string, err error) {
	resp, err := m.http.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(all), err
}

// produced is the answer to a produce.
type produced struct {
	Offsets []struct {
		Base      int64 `json:"base_offset"`
		Duplicate bool
	}
	Outcome string
	Actual  int64 `json:"actual_offset"`
}

// produce sends values, one a line, and notes what became of them.
func (m *Turmoil) produce(topic string, header map[string]string, values ...string) (fate, produced) {
	h := map[string]string{"Content-Type": "application/x-ndjson"}
	for k, v := range header {
		h[k] = v
	}
	var body bytes.Buffer
	for _, v := range values {
		fmt.Fprintf(&body, "%q\n", v)
	}
	status, text := m.call(http.MethodPost, "/v1/topics/"+topic+"/records", h, body.String())
	var p produced
	if status != 0 && json.Unmarshal([]byte(text), &p) != nil {
		m.t.Errorf("produce to %s: %d %s", topic, status, text)
	}
	f := open
	switch {
	case status == http.StatusOK:
		f = acknowledged
		select {
		case m.acks <- struct{}{}:
		default:
		}
	case p.Outcome == "failed":
		f = refused
		if status != http.StatusPreconditionFailed && status < 500 {
			m.t.Errorf("produce to %s: %d %s", topic, status, text)
		}
	}
	for i, v := range values {
		m.settle(v, f)
		if f == acknowledged && len(p.Offsets) == 1 && p.Offsets[0].Base >= 0 {
			m.saw(place{topic, p.Offsets[0].Base + int64(i)}, v)
		}
	}
	return f, p
}

// settle notes the fate of a record. A refusal of a repeat says nothing of the tries before it.
func (m *Turmoil) settle(value string, f fate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if old, tried := m.fates[value]; tried && (old == acknowledged || old == open && f == refused) {
		return
	}
	m.fates[value] = f
}

// saw notes what lies where, and compares that with all that was ever said.
func (m *Turmoil) saw(at place, value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if was, ok := m.values[at]; ok && was != value {
		m.t.Errorf("%s@%d was %s and is %s", at.topic, at.offset, was, value)
	}
	if was, ok := m.places[value]; ok && was != at {
		m.t.Errorf("%s lies at %s@%d and at %s@%d", value, was.topic, was.offset, at.topic, at.offset)
	}
	m.values[at], m.places[value] = value, at
}

// repeat sends each request of its sequence until it is acknowledged.
func (m *Turmoil) repeat(name string) {
	for seq := 0; m.ctx.Err() == nil; seq++ {
		h := map[string]string{"Producer-Id": name, "Producer-Seq": strconv.Itoa(seq)}
		for m.ctx.Err() == nil {
			f, _ := m.produce(repeated, h, id(name, seq, 0), id(name, seq, 1))
			if f == acknowledged {
				break
			}
		}
	}
}

// once sends each request once.
func (m *Turmoil) once(name string) {
	for seq := 0; m.ctx.Err() == nil; seq++ {
		m.produce(once, nil, id(name, seq, 0), id(name, seq, 1), id(name, seq, 2))
	}
}

// expect appends where it believes the log to end.
func (m *Turmoil) expect(name string) {
	next := int64(0)
	for seq := 0; m.ctx.Err() == nil; seq++ {
		f, p := m.produce(expected, map[string]string{"Expected-Offset": fmt.Sprint(next)}, id(name, seq, 0))
		switch {
		case f == acknowledged && p.Offsets[0].Base != next:
			m.t.Errorf("expected offset %d, got %d", next, p.Offsets[0].Base)
			return
		case f == acknowledged:
			next++
		case f == refused && p.Actual > 0:
			next = p.Actual
		}
	}
}

func id(name string, seq, i int) string { return fmt.Sprintf("%s/%d/%d", name, seq, i) }

// page is the answer to a read.
type page struct {
	Records []struct {
		Offset int64
		Value  string
	}
}

// follow reads a topic as it grows.
func (m *Turmoil) follow(topic string) {
	for next := int64(0); m.ctx.Err() == nil; {
		status, text := m.call(http.MethodGet, fmt.Sprintf("/v1/topics/%s/records?offset=%d&wait=1s", topic, next), nil, "")
		if status == http.StatusOK {
			next = m.takePage(topic, next, text)
		} else if status != 0 && status < 500 {
			m.t.Errorf("read %s from %d: %d %s", topic, next, status, text)
			return
		}
	}
}

// takePage takes in a page that begins at an offset and gives the offset after it.
func (m *Turmoil) takePage(topic string, next int64, text string) int64 {
	var p page
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		m.t.Errorf("page of %s: %v in %s", topic, err, text)
	}
	for _, r := range p.Records {
		if r.Offset != next {
			m.t.Errorf("%s goes on at offset %d, not %d", topic, r.Offset, next)
		}
		m.saw(place{topic, r.Offset}, r.Value)
		next = r.Offset + 1
	}
	return next
}

// Check ends the clients and compares the whole topics with what they were told. It gives how many records there are.
func (m *Turmoil) Check() (records int) {
	m.t.Helper()
	m.Stop()
	m.ctx, m.cancel = context.WithTimeout(context.Background(), patience)
	defer m.cancel()
	stored := map[string]place{}
	for _, topic := range []string{repeated, once, expected} {
		for i, v := range m.readAll(topic) {
			require.NotContains(m.t, stored, v, "stored twice")
			stored[v] = place{topic, int64(i)}
		}
	}
	for v, f := range m.fates {
		_, there := stored[v]
		require.False(m.t, f == acknowledged && !there, "%s was acknowledged and is gone", v)
		require.False(m.t, f == refused && there, "%s was refused and is stored", v)
	}
	for at, v := range m.values {
		require.Equal(m.t, at, stored[v], "%s was said to lie elsewhere", v)
	}
	m.http.CloseIdleConnections()
	return len(stored)
}

// end is the offset behind all that was said to lie in a topic: a node that has just started may know it a little
// later.
func (m *Turmoil) end(topic string) (end int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for at := range m.values {
		if at.topic == topic {
			end = max(end, at.offset+1)
		}
	}
	return end
}

// readAll gives all values of a topic by offset, and checks that each producer's are in the order it sent them.
func (m *Turmoil) readAll(topic string) (values []string) {
	last := map[string][2]int{}
	start := time.Now()
	for {
		path := fmt.Sprintf("/v1/topics/%s/records?offset=%d&max_records=5000", topic, len(values))
		status, text := m.call(http.MethodGet, path, nil, "")
		if (status == 0 || status >= 500) && time.Since(start) < patience/2 {
			continue
		}
		require.Equal(m.t, http.StatusOK, status, text)
		var p page
		require.NoError(m.t, json.Unmarshal([]byte(text), &p))
		if len(p.Records) == 0 {
			if m.end(topic) <= int64(len(values)) || time.Since(start) > patience/2 {
				return values
			}
			<-time.After(20 * time.Millisecond)
		}
		require.EqualValues(m.t, len(values)+len(p.Records), m.takePage(topic, int64(len(values)), text))
		for _, r := range p.Records {
			name, rest, _ := strings.Cut(r.Value, "/")
			var at [2]int
			_, err := fmt.Sscanf(rest, "%d/%d", &at[0], &at[1])
			require.NoError(m.t, err, r.Value)
			was, known := last[name]
			require.True(m.t, !known || was[0] < at[0] || was[0] == at[0] && was[1] < at[1], "%s follows %v", r.Value, was)
			last[name] = at
			values = append(values, r.Value)
		}
	}
}

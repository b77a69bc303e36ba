package faults_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
)

// member is a member of the group: a live stream, or one long poll after the other.
type member struct {
	*client
	churn  *churn
	id     string
	stream bool
	ctx    context.Context // the member's own
	cancel context.CancelFunc
	done   chan struct{}

	mu   sync.Mutex
	conn net.Conn // guarded by mu: the last one of a stream
}

// share is what a member is told that it has.
type share struct {
	Delivery   int64
	Records    []jsonRecord
	Assignment []struct{ Partitions []int }
}

func (s *share) partitions() (out []int) {
	for _, t := range s.Assignment {
		out = append(out, t.Partitions...)
	}
	return out
}

func (m *member) run() {
	dial := m.http.Transport.(*http.Transport).DialContext
	m.http.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.conn = conn
		return conn, err
	}
	if m.stream {
		m.follow()
	} else {
		m.poll()
	}
}

// part ends the member.
func (m *member) part(how parting) {
	if how == resets {
		m.mu.Lock()
		conn := m.conn
		m.mu.Unlock()
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // it is closed anyway
		}
	}
	m.cancel()
	if how == leaves {
		<-m.done
		for range nodes {
			code, _, err := m.call(m.churn.ctx, http.MethodDelete, "/v1/groups/"+churners+"/members/"+m.id, "")
			if err == nil && code < 500 {
				return
			}
			m.elsewhere()
		}
	}
}

// poll reads by long polls until the member ends.
func (m *member) poll() {
	for ack := int64(0); m.ctx.Err() == nil; {
		path := fmt.Sprintf("/v1/groups/%s/records?topics=%s&member=%s&session=%v&wait=1s&ack=%d&auto_offset_reset=earliest",
			churners, wide, m.id, pollSession, ack)
		code, text, err := m.call(m.ctx, http.MethodGet, path, "")
		var got share
		switch {
		case err == nil && code == http.StatusOK:
			if err := json.Unmarshal(text, &got); err != nil {
				m.t.Errorf("%s: %v in %s", m.id, err, text)
			}
			m.churn.assigned(m, got.partitions())
			for _, r := range got.Records {
				m.churn.read(m, r)
			}
			ack = got.Delivery
			continue
		case code == http.StatusConflict: // the group went on without it: it joins anew
			ack = 0
		}
		m.churn.assigned(m, nil)
		m.elsewhere()
		pause(m.ctx, pace)
	}
}

// follow reads a stream, and another one when that ends, until the member does.
func (m *member) follow() {
	for m.ctx.Err() == nil {
		m.followOnce()
		m.churn.assigned(m, nil)
		m.elsewhere()
		pause(m.ctx, pace)
	}
}

func (m *member) followOnce() {
	ctx, cancel := context.WithCancel(m.ctx)
	defer cancel()
	path := fmt.Sprintf("/v1/groups/%s/records?topics=%s&auto_offset_reset=earliest", churners, wide)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.cluster.nodes[m.node].url()+path, nil)
	if err != nil {
		m.t.Errorf("%s: %v", m.id, err)
		return
	}
	req.Header.Set("Accept", "text/event-stream")
	resp, err := m.http.Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		if resp.StatusCode < 500 && resp.StatusCode != http.StatusConflict {
			m.t.Errorf("%s: stream: %d", m.id, resp.StatusCode)
		}
		return
	}
	event, data := "", ""
	for s := bufio.NewScanner(resp.Body); s.Scan(); {
		name, value, _ := strings.Cut(s.Text(), ": ")
		switch {
		case name == "event":
			event = value
		case name == "data":
			data = value
		case name == "" && value == "": // the event is whole: a stream that is cut may end in the midst of a line
			m.take(event, data)
			if event == "error" || event == "end" {
				return
			}
			event, data = "", ""
		}
	}
}

// take takes in an event of a stream.
func (m *member) take(event, data string) {
	var err error
	switch {
	case data == "":
	case event == "assignment":
		var got share
		err = json.Unmarshal([]byte(data), &got)
		m.churn.assigned(m, got.partitions())
	case event == "":
		var r jsonRecord
		err = json.Unmarshal([]byte(data), &r)
		m.churn.read(m, r)
	}
	if err != nil {
		m.t.Errorf("%s: %v in %s", m.id, err, data)
	}
}

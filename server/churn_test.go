package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"millrace/server/servertest"
)

// A topic that is deleted and made again while clients write and read: once a deletion is answered, nothing is read
// that was acknowledged before it was asked for, and nothing is read twice.
func TestTopicsComeAndGoUnderLoad(t *testing.T) {
	c := &churn{t: t, node: servertest.Start(t, servertest.Options{}), http: &http.Client{Transport: &http.Transport{}}}
	defer c.http.CloseIdleConnections()
	var clients sync.WaitGroup
	for w := range 2 {
		clients.Go(func() {
			for i := 0; !c.over.Load(); i++ {
				c.write(fmt.Sprintf("%d/%d", w, i))
			}
		})
		clients.Go(func() {
			for !c.over.Load() {
				c.read()
			}
		})
	}
	for range 25 {
		status, text := c.call(http.MethodPost, "/v1/topics", `{"name":"t","partitions":2}`)
		if status != http.StatusCreated && status != http.StatusConflict { // a writer was faster
			t.Errorf("create: %d %s", status, text)
		}
		for wanted := c.stored.Load() + 20; c.stored.Load() < wanted && !t.Failed(); {
			c.read()
		}
		asked := c.clock.Add(1)
		status, text = c.call(http.MethodDelete, "/v1/topics/t", "")
		if status != http.StatusNoContent {
			t.Errorf("delete: %d %s", status, text)
		}
		c.gone.Store(asked)
	}
	c.over.Store(true)
	clients.Wait()
}

// churn is the clients of a topic that comes and goes.
type churn struct {
	t     *testing.T
	node  *servertest.Node
	http  *http.Client
	over  atomic.Bool
	clock atomic.Int64 // counts what happens
	gone  atomic.Int64 // when the last deletion that was answered was asked for

	stored atomic.Int64 // requests that were acknowledged
	acked  sync.Map     // of the clock by value: when that was acknowledged
}

func (c *churn) call(method, path, body string) (int, string) {
	req, err := http.NewRequest(method, c.node.URL()+path, strings.NewReader(body))
	if err != nil {
		c.t.Error(err)
		return 0, ""
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		c.t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Error(err)
	}
	return resp.StatusCode, string(text)
}

func (c *churn) write(value string) {
	status, text := c.call(http.MethodPost, "/v1/topics/t/records", fmt.Sprintf("%q", value))
	switch {
	case status == http.StatusOK:
		c.acked.Store(value, c.clock.Add(1))
		c.stored.Add(1)
	case status == http.StatusNotFound, status == http.StatusServiceUnavailable:
	case status == http.StatusGatewayTimeout: // the topic went, and was there again, before it was known what became of it
	default:
		c.t.Errorf("produce: %d %s", status, text)
	}
}

func (c *churn) read() {
	gone := c.gone.Load()
	status, text := c.call(http.MethodGet, "/v1/topics/t/records?max_records=1000", "")
	switch status {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusServiceUnavailable, http.StatusRequestedRangeNotSatisfiable:
		return
	default:
		c.t.Errorf("read: %d %s", status, text)
		return
	}
	var p struct{ Records []struct{ Value string } }
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		c.t.Errorf("page: %v in %s", err, text)
	}
	seen := map[string]bool{}
	for _, r := range p.Records {
		if at, ok := c.acked.Load(r.Value); ok && at.(int64) < gone {
			c.t.Errorf("%s was acknowledged before the topic was deleted", r.Value)
		}
		if seen[r.Value] {
			c.t.Errorf("%s is there twice", r.Value)
		}
		seen[r.Value] = true
	}
}

package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/server"
	"millrace/server/servertest"
)

// A clock that jumps changes timestamps, what is found by them and what retention makes of them, and nothing else: no
// record is refused, lost, out of order or stored twice.
func TestClockJumps(t *testing.T) {
	var by atomic.Int64
	n := servertest.Start(t, servertest.Options{Change: func(c *server.Config) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(by.Load())) }
		c.Broker = map[string]string{"log.retention.check.interval.ms": "1", "log.initial.task.delay.ms": "1"}
	}})
	status, text := post(t, n, "/v1/topics", "application/json",
		`{"name":"t","configs":{"internal.segment.bytes":"400","retention.ms":"-1","segment.ms":"3600000"}}`)
	require.Equal(t, http.StatusCreated, status, text)
	const day = 24 * time.Hour
	sent := 0
	jumps := []time.Duration{0, -time.Hour, 30 * day, -1000 * day, 0, 290 * 365 * day, -100 * 365 * day, -time.Minute}
	for k, jump := range jumps {
		by.Store(int64(jump))
		for i := range 5 {
			for range 2 { // each is sent again at once
				send(t, n, fmt.Sprint("producer ", k), i, sent)
			}
			sent++
		}
		n.Restart()
		require.Len(t, readFrom(t, n, "offset=earliest"), sent)
		if at := time.Now().Add(jump).Add(-10 * time.Minute); at.Unix() > 0 {
			found := readFrom(t, n, fmt.Sprint("timestamp=", at.UnixMilli()))
			require.LessOrEqual(t, 5, len(found), "the last records are at or after ten minutes ago")
		}
	}
}

// send produces one value under a sequence of a producer.
func send(t *testing.T, n *servertest.Node, producer string, seq, value int) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, n.URL()+"/v1/topics/t/records", strings.NewReader(fmt.Sprint(value)))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Producer-Id", producer)
	req.Header.Set("Producer-Seq", fmt.Sprint(seq))
	resp, err := n.Client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, "%s", text)
}

// readFrom gives the offsets of a topic from a place on, which are dense, and the value at each is its offset.
func readFrom(t *testing.T, n *servertest.Node, place string) (offsets []int) {
	t.Helper()
	status, text := get(t, n, "/v1/topics/t/records?max_records=1000&"+place)
	require.Equal(t, http.StatusOK, status, text)
	var p struct{ Records []struct{ Offset, Value int } }
	require.NoError(t, json.Unmarshal([]byte(text), &p))
	for i, r := range p.Records {
		require.Equal(t, p.Records[0].Offset+i, r.Offset)
		require.Equal(t, r.Offset, r.Value)
		offsets = append(offsets, r.Offset)
	}
	return offsets
}

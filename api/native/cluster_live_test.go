package native_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/server/servertest"
)

// Through one node, while the others stop and come back in turn: every produce of a named producer succeeds, and a
// stream gives each record once, in the order of its partition, and never ends.
func TestClientsOfOneNodeWhileOthersRestart(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three nodes on real ports")
	}
	c := servertest.StartCluster(t, servertest.ClusterOptions{})
	const partitions = 6
	e := &reads{t: t, url: c.URL(1), http: c.Client}
	body := fmt.Sprintf(`{"name":"t","partitions":%d,"replication_factor":3}`, partitions)
	resp, err := e.http.Post(e.url+"/v1/topics", "application/json", strings.NewReader(body))
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, http.StatusCreated, resp.StatusCode)
	l := e.live("/v1/topics/t/records?from=" + strings.TrimSuffix(strings.Repeat("0,", partitions), ","))

	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	defer writing.Wait()
	defer stop()
	sent := make([]int, partitions)
	var all atomic.Int64
	for p := range partitions {
		writing.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				status, text := post(e, p, i)
				if status != http.StatusOK {
					t.Errorf("partition %d record %d: %d %s", p, i, status, text)
					return
				}
				sent[p]++
				all.Add(1)
				select {
				case <-ctx.Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
		})
	}
	for _, id := range []int{2, 3, 2} {
		c.Stop(id)
		c.Start(id)
	}
	until(t, func() bool { return all.Load() > 100 || t.Failed() })
	stop()
	writing.Wait()
	want, seen := 0, make([]int, partitions)
	for p := range sent {
		want += sent[p]
	}
	require.False(t, t.Failed())
	for range want {
		r := l.take(1)[0]
		n, err := strconv.Atoi(string(r.Value))
		require.NoError(t, err)
		require.Equal(t, seen[r.Partition], n, "partition %d", r.Partition)
		seen[r.Partition]++
	}
	require.Equal(t, sent, seen)
}

// post sends record i of the producer of a partition and returns the status and the body.
func post(e *reads, partition, i int) (int, string) {
	path := fmt.Sprintf("%s/v1/topics/t/records?partition=%d", e.url, partition)
	req, err := http.NewRequest(http.MethodPost, path, strings.NewReader(strconv.Itoa(i)))
	if err != nil {
		return 0, err.Error()
	}
	req.Header.Set("Producer-Id", fmt.Sprint("writer-", partition))
	req.Header.Set("Producer-Epoch", "0")
	req.Header.Set("Producer-Seq", strconv.Itoa(i))
	resp, err := e.http.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

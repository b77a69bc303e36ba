package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/server"
	"millrace/server/servertest"
	"millrace/storage/storagetest"
)

// Whatever a crash keeps or takes away of what was not synced, everything acknowledged is there and nothing twice.
func TestAcknowledgedRecordsSurviveACrash(t *testing.T) {
	for _, mode := range storagetest.Modes() {
		t.Run(mode.String(), func(t *testing.T) {
			n := servertest.Start(t, servertest.Options{Disk: storagetest.New(), Seed: 7})
			for round := range 3 {
				for i := range 20 {
					produce(t, n, "orders", fmt.Sprintf(`"%d/%d"`, round, i))
				}
				n.Crash(mode)
				status, text := get(t, n, "/v1/topics/orders/records?offset=earliest")
				require.Equal(t, http.StatusOK, status, text)
				for r := range round + 1 {
					for i := range 20 {
						require.Equal(t, 1, strings.Count(text, fmt.Sprintf(`"%d/%d"`, r, i)), text)
					}
				}
			}
		})
	}
}

// A full disk refuses records and goes on reading; nothing half-written is served.
func TestFullDiskRefusesRecordsAndReadsGoOn(t *testing.T) {
	disk := storagetest.New()
	n := servertest.Start(t, servertest.Options{Disk: disk})
	produce(t, n, "t", `"before"`)
	disk.SetQuota(used(t, disk) + 64)
	status, text := post(t, n, "/v1/topics/t/records", "application/json", `"`+strings.Repeat("x", 4096)+`"`)
	require.Equal(t, http.StatusInsufficientStorage, status, text)
	require.Contains(t, text, "disk is full")
	require.Contains(t, text, `"outcome":"failed"`)
	require.NotContains(t, text, "unknown")
	status, text = get(t, n, "/v1/topics/t/records?offset=earliest")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, "before")
	require.NotContains(t, text, "xxx")
	disk.SetQuota(0)
	produce(t, n, "t", `"after"`)
}

// used adds up what a disk holds.
func used(t *testing.T, disk *storagetest.FS) (bytes int64) {
	t.Helper()
	for _, name := range disk.Files() {
		e, err := disk.Stat(name)
		require.NoError(t, err)
		bytes += e.Size
	}
	return bytes
}

// Retries of a named producer are not stored twice, also across a crash.
func TestNamedProducerAcrossACrash(t *testing.T) {
	n := servertest.Start(t, servertest.Options{Disk: storagetest.New()})
	send := func(seq int) {
		req, err := http.NewRequest(http.MethodPost, n.URL()+"/v1/topics/t/records", strings.NewReader(fmt.Sprint(seq)))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Producer-Id", "p")
		req.Header.Set("Producer-Seq", fmt.Sprint(seq))
		resp, err := n.Client.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		require.Equal(t, http.StatusOK, resp.StatusCode)
	}
	for seq := range 3 {
		send(seq)
	}
	n.Crash(storagetest.LoseAll)
	send(2)
	send(3)
	_, text := get(t, n, "/v1/topics/t/records?offset=earliest")
	require.Equal(t, 4, strings.Count(text, `"offset":`), text)
}

// With log.sync=never a crash may take records away, but the node starts and goes on.
func TestUnsyncedNodeStartsAfterACrash(t *testing.T) {
	n := servertest.Start(t, servertest.Options{Disk: storagetest.New(), Change: func(c *server.Config) {
		c.Broker = map[string]string{"log.sync": "never"}
	}})
	produce(t, n, "t", "1")
	n.Crash(storagetest.LoseAll)
	produce(t, n, "t", "2")
}

package server_test

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/server/servertest"
	"millrace/storage/storagetest"
)

// Who asks for what is deleted hears where the log begins and ends also where it is offline.
func TestBoundsOfAnOfflineLog(t *testing.T) {
	disk := storagetest.New()
	node := servertest.Start(t, servertest.Options{Disk: disk})
	call := func(method, path, form, body string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, node.URL()+path, strings.NewReader(body))
		require.NoError(t, err)
		if method == http.MethodGet {
			req.Header.Set("Accept", form)
		} else {
			req.Header.Set("Content-Type", form)
		}
		resp, err := node.Client.Do(req)
		require.NoError(t, err)
		var b strings.Builder
		require.NoError(t, resp.Write(&b))
		return resp.StatusCode, b.String()
	}
	for _, step := range [][3]string{
		{"/v1/topics", "application/json", `{"name":"t"}`},
		{"/v1/topics/t/records", "application/x-ndjson", "1\n2\n3"},
		{"/v1/topics/t/records/delete", "application/json", `{"partitions":[{"partition":0,"before_offset":2}]}`},
	} {
		status, answer := call(http.MethodPost, step[0], step[1], step[2])
		require.Less(t, status, 300, answer)
	}
	disk.SetFault(func(op storagetest.Op, name string) (time.Duration, error) {
		if op == storagetest.OpWrite && strings.HasSuffix(name, ".log") {
			return 0, syscall.EIO
		}
		return 0, nil
	})
	defer node.Crash(storagetest.KeepAll) // a log that is offline does not close in order
	status, answer := call(http.MethodPost, "/v1/topics/t/records", "application/json", "4")
	require.Equal(t, http.StatusGatewayTimeout, status, answer)
	for path, form := range map[string]string{
		"/v1/topics/t/partitions/0/records?offset=1": "application/json",
		"/v1/topics/t/partitions/0/records?offset=0": "application/vnd.apache.kafka.recordbatch",
	} {
		status, answer := call(http.MethodGet, path, form, "")
		require.Equal(t, http.StatusRequestedRangeNotSatisfiable, status, answer)
		require.Contains(t, answer, `"log_start_offset":2,"high_watermark":3`)
	}
}

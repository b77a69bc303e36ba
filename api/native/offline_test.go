package native_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/client"
	"millrace/server/servertest"
	"millrace/storage/storagetest"
)

// Who asks for what is deleted hears where the log begins and ends also where it takes and finds nothing any more.
func TestBoundsOfAnOfflineLog(t *testing.T) {
	disk := storagetest.New()
	node := servertest.Start(t, servertest.Options{Disk: disk})
	e := &writes{
		t: t, client: client.New(node.Requestor(), client.Options{MetadataTTL: time.Millisecond}),
		server: &httptest.Server{URL: node.URL()}, http: node.Client,
	}
	e.call(http.MethodPost, "/v1/topics", `{"name":"t"}`, http.StatusCreated, nil)
	e.stored(e.post("/v1/topics/t/records", "application/x-ndjson", "1\n2\n3"))
	e.call(http.MethodPost, "/v1/topics/t/records/delete", `{"partitions":[{"partition":0,"before_offset":2}]}`,
		http.StatusOK, nil)
	disk.SetFault(func(op storagetest.Op, name string) (time.Duration, error) {
		if op == storagetest.OpWrite && strings.HasSuffix(name, ".log") {
			return 0, syscall.EIO
		}
		return 0, nil
	})
	defer node.Crash(storagetest.KeepAll) // a log that is offline does not close in order
	e.problem(e.post("/v1/topics/t/records", "application/json", "4"), 504, "KAFKA_STORAGE_ERROR")
	for path, accept := range map[string]string{
		"/v1/topics/t/partitions/0/records?offset=1": "application/json",
		"/v1/topics/t/partitions/0/records?offset=0": "application/vnd.apache.kafka.recordbatch",
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, node.URL()+path, nil)
		require.NoError(t, err)
		req.Header.Set("Accept", accept)
		resp, err := node.Client.Do(req)
		require.NoError(t, err)
		var b strings.Builder
		require.NoError(t, resp.Write(&b))
		require.Contains(t, b.String(), `"log_start_offset":2,"high_watermark":3`, path)
		require.Equal(t, http.StatusRequestedRangeNotSatisfiable, resp.StatusCode)
	}
}

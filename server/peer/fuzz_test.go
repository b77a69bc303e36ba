package peer_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/record"
	"millrace/server/peer"
)

// FuzzHandler sends any body under any key. The handler answers, never panics, and takes memory in proportion to the
// body: a count in it sets nothing aside that its bytes cannot hold.
func FuzzHandler(f *testing.F) {
	for key := range int16(kmsg.MaxKey + 1) {
		r := kmsg.RequestForKey(key)
		if r == nil {
			continue
		}
		if wire, err := peer.AppendRequest(nil, r); err == nil {
			f.Add(key, r.GetVersion(), wire)
		}
	}
	produce := produceRequest([16]byte{1}, []byte("records"))
	wire, err := peer.AppendRequest(nil, produce)
	require.NoError(f, err)
	f.Add(int16(0), produce.Version, wire)
	h := peer.NewHandler(peer.HandlerOptions{
		Node: 1, Credential: secret, Pool: record.NewPool(1 << 20),
		To: requestor(func(_ context.Context, r kmsg.Request) (kmsg.Response, error) { return r.ResponseKind(), nil }),
	})
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		r := httptest.NewRequest(http.MethodPost, peer.Path+strconv.Itoa(int(key)), bytes.NewReader(body))
		r.Header.Set("Millrace-Version", strconv.Itoa(int(version)))
		secret.Set(r.Header)
		w := httptest.NewRecorder()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		h.ServeHTTP(w, r)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > uint64(1<<20+256*len(body)) {
			t.Fatalf("%d bytes of key %d version %d took %d", len(body), key, version, took)
		}
		require.Contains(t, []int{200, 400, 404}, w.Code)
	})
}

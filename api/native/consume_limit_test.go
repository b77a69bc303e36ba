package native

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/api"
	"millrace/record"
)

// Slow readers cannot make the server hold any amount of answers.
func TestAnswersBeingWrittenAreBounded(t *testing.T) {
	h, _, _ := idleHub(t, 0)
	k := h.tails.consumer
	k.writing.Store(answerBytes - 100)
	w := httptest.NewRecorder()
	require.NoError(t, k.writeBody(w, typeLines, make([]byte, 100)))
	require.Equal(t, "100", w.Header().Get("Content-Length"))
	w = httptest.NewRecorder()
	err := k.writeBody(w, typeLines, make([]byte, 101))
	require.Equal(t, api.Overloaded, api.FromError(err).Fault)
	require.EqualValues(t, answerBytes-100, k.writing.Load())
	k.writing.Store(0)
	w2 := httptest.NewRecorder()
	require.NoError(t, k.writeBody(w2, typeLines, make([]byte, answerBytes+1)), "one alone always goes")
	require.Equal(t, http.StatusOK, w.Code)
}

// What a batch expands to is held by few reads at a time.
func TestExpandedBatchesAreBounded(t *testing.T) {
	for codec, held := range map[record.Codec]int{record.None: 0, record.Gzip: 1} {
		var b record.Builder
		b.SetCodec(codec)
		b.Append(&record.Record{Value: []byte("v")})
		s := scanner{expanding: make(chan struct{}, 1)}
		records := 0
		_, err := s.scan(segment{batches: b.Build(), before: forever}, func(*record.Record) bool {
			records++
			require.Len(t, s.expanding, held, codec)
			return true
		})
		require.NoError(t, err)
		require.Equal(t, 1, records)
		require.Empty(t, s.expanding)
	}
}

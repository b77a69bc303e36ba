package native

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/api"
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

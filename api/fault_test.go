package api_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http/httptest"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/api"
	"millrace/client"
)

func textLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// Kafka's own idea of what is worth trying again differs for a client of HTTP in these codes.
var retryOverruled = map[string]bool{
	"CORRUPT_MESSAGE": false, "UNKNOWN_TOPIC_OR_PARTITION": false, "UNKNOWN_TOPIC_ID": false,
	"ELECTION_NOT_NEEDED": false, "INCONSISTENT_TOPIC_ID": false,
	"CONCURRENT_TRANSACTIONS": true, "REASSIGNMENT_IN_PROGRESS": true, "STALE_BROKER_EPOCH": true,
}

func TestEveryKafkaErrorIsInTheTable(t *testing.T) {
	byCode := map[int16]*api.Fault{}
	for _, f := range api.Catalogue() {
		if f.Kafka != 0 {
			require.Nil(t, byCode[f.Kafka], "%d is there twice", f.Kafka)
			byCode[f.Kafka] = f
		}
	}
	known := 0
	for code := int16(-1); code < 1000; code++ {
		if code == 0 {
			continue
		}
		k := kerr.TypedErrorForCode(code)
		if k.Code != code {
			continue // kerr does not know it
		}
		known++
		f := byCode[code]
		require.NotNil(t, f, "%s (%d) is not in the table", k.Message, code)
		require.Same(t, f, api.KafkaFault(k), "%d is not at its place", code)
		require.Equal(t, k.Message, f.Name)
		retry, overruled := retryOverruled[f.Name]
		if !overruled {
			retry = k.Retriable
		}
		require.Equal(t, retry, f.Retryable, f.Name)
	}
	require.Len(t, byCode, known)
	require.Equal(t, "UNKNOWN_SERVER_ERROR", api.KafkaFault(&kerr.Error{Code: 9999}).Name)
}

// A storage error leaves open whether something was stored, unless the cluster says that nothing was.
func TestNotWrittenIsNoUnknownOutcome(t *testing.T) {
	k := client.Fault(kerr.KafkaStorageError, "disk is full")
	require.Equal(t, api.Unknown, api.FromError(k).Fault.Outcome)
	k.NotWritten = true
	f := api.FromError(k).Fault
	require.Equal(t, api.Failed, f.Outcome)
	require.Equal(t, 507, f.Status)
	require.True(t, f.Retryable)
}

func TestCatalogue(t *testing.T) {
	names := map[string]bool{}
	for _, f := range api.Catalogue() {
		require.False(t, names[f.Name], f.Name)
		names[f.Name] = true
		require.Regexp(t, `^[A-Z][A-Z_]*$`, f.Name)
		require.Regexp(t, `^[A-Z].*[^.]$`, f.Title, f.Name)
		require.Regexp(t, `^[A-Z].*\.$`, f.Advice, f.Name)
		require.GreaterOrEqual(t, f.Status, 400, f.Name)
		require.Less(t, f.Status, 600, f.Name)
		require.Contains(t, []api.Outcome{api.Failed, api.Unknown}, f.Outcome, f.Name)
		if f.Status == 504 {
			require.Equal(t, api.Unknown, f.Outcome, f.Name)
			require.True(t, f.Retryable, f.Name)
		}
		if f.Outcome == api.Unknown {
			require.GreaterOrEqual(t, f.Status, 500, f.Name)
		}
		require.GreaterOrEqual(t, api.CompatStatus(f.Code), 400, f.Name)
		require.Less(t, api.CompatStatus(f.Code), 600, f.Name)
	}
}

// The codes after which something may be stored, and the numbers that clients of the REST Proxy know.
func TestWellKnownFaults(t *testing.T) {
	for code, want := range map[int16]struct {
		status, errorCode, compat int
		outcome                   api.Outcome
	}{
		-1: {500, 40002, 400, api.Unknown}, 3: {404, 40403, 404, api.Failed}, 7: {504, 50003, 500, api.Unknown},
		8: {503, 50302, 503, api.Failed}, 10: {413, 413, 413, api.Failed}, 13: {504, 50003, 500, api.Unknown},
		17: {400, 40002, 400, api.Failed}, 19: {503, 50003, 500, api.Failed}, 20: {504, 50003, 500, api.Unknown},
		29: {403, 40301, 403, api.Failed}, 36: {409, 40002, 400, api.Failed}, 40: {400, 40002, 400, api.Failed},
		45: {409, 50002, 500, api.Failed}, 47: {403, 50002, 500, api.Failed}, 56: {504, 50003, 500, api.Unknown},
		58: {401, 40101, 401, api.Failed}, 87: {400, 50002, 500, api.Failed}, 89: {429, 42901, 429, api.Failed},
		95: {412, 50002, 500, api.Failed},
	} {
		f := api.KafkaFault(kerr.TypedErrorForCode(code))
		require.Equal(t, want.status, f.Status, f.Name)
		require.Equal(t, want.errorCode, f.Code, f.Name)
		require.Equal(t, want.compat, api.CompatStatus(f.Code), f.Name)
		require.Equal(t, want.outcome, f.Outcome, f.Name)
	}
	for code, status := range map[int]int{
		400: 400, 422: 422, 40001: 422, 40401: 404, 40601: 406, 42206: 422, 42208: 422, 50002: 500, 50302: 503, 40902: 409,
	} {
		require.Equal(t, status, api.CompatStatus(code))
	}
}

func TestWrittenErrors(t *testing.T) {
	err := client.Fault(kerr.InvalidTopicException, "name %q is \xff bad", "a/b")
	w := httptest.NewRecorder()
	api.WriteProblem(w, err)
	require.Equal(t, 400, w.Code)
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	require.True(t, utf8.Valid(w.Body.Bytes()))
	var p map[string]any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
	require.Equal(t, "/v1/errors#INVALID_TOPIC_EXCEPTION", p["type"])
	require.EqualValues(t, 400, p["status"])
	require.EqualValues(t, 40002, p["error_code"])
	require.Equal(t, false, p["retryable"])
	require.Equal(t, "failed", p["outcome"])
	require.Contains(t, p["detail"], "Use 1 to 249")

	w = httptest.NewRecorder()
	api.WriteCompat(w, err, "application/vnd.kafka.v2+json")
	require.Equal(t, "application/vnd.kafka.v2+json", w.Header().Get("Content-Type"))
	var c map[string]any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &c))
	require.Len(t, c, 2)
	require.EqualValues(t, 40002, c["error_code"])

	w = httptest.NewRecorder()
	api.WriteProblem(w, api.Refuse(api.Overloaded, "full").With("x", []int{1}).Overrule(api.Unknown))
	require.Equal(t, "1", w.Header().Get("Retry-After"))
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
	require.Equal(t, "unknown", p["outcome"])
	require.Equal(t, []any{1.0}, p["x"])
}

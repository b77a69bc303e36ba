package api_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/api"
	"millrace/client"
)

// Whatever the cluster answers, what was only read has no unknown outcome, and nobody is told to check it.
func TestReadsHaveNoUnknownOutcome(t *testing.T) {
	errs := []error{client.ErrNoAnswer, http.ErrAbortHandler}
	for _, f := range api.Catalogue() {
		if f.Kafka != 0 {
			errs = append(errs, client.Fault(kerr.TypedErrorForCode(f.Kafka), "why"))
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		r := httptest.NewRequest(method, "/v1/topics", nil)
		for _, err := range errs {
			e := api.ErrorFor(r, err)
			require.Equal(t, api.Failed, e.Fault.Outcome, e.Fault.Name)
			require.NotEqual(t, http.StatusGatewayTimeout, e.Fault.Status, e.Fault.Name)
			require.NotContains(t, e.Text(), "effect", e.Fault.Name)
			require.NotContains(t, e.Text(), "safe to repeat", e.Fault.Name)
		}
	}
	r := httptest.NewRequest(http.MethodPost, "/v1/topics", nil)
	require.Equal(t, api.Unknown, api.ErrorFor(r, client.ErrNoAnswer).Fault.Outcome)
	require.Same(t, api.DamagedBatch, api.ForRead(kerr.CorruptMessage).Fault)
	require.Equal(t, http.StatusBadRequest, api.ErrorFor(r, kerr.CorruptMessage).Fault.Status, "whose batch it is")
}

// A detail begins as a sentence does, but not where its first word is the name of a parameter or setting.
func TestTextBegins(t *testing.T) {
	for detail, want := range map[string]string{
		"the body is empty":               "The body is empty. ",
		"max_records is for pages":        "max_records is for pages. ",
		"cleanup.policy is not compact":   "cleanup.policy is not compact. ",
		"nothing: it is gone already.":    "Nothing: it is gone already. ",
		"Idempotency-Key has a bad value": "Idempotency-Key has a bad value. ",
	} {
		e := api.Refuse(api.InvalidParameter, "%s", detail)
		require.Equal(t, want+e.Fault.Advice, e.Text())
	}
}

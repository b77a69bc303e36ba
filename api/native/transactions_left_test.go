package native_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/client"
	"millrace/record"
	"millrace/server/servertest"
)

// leave writes a record in a transaction, which stays open, and gives its producer.
func (e *writes) leave(id string) client.TxnProducer {
	e.t.Helper()
	ctx := e.t.Context()
	p, err := e.client.InitTxn(ctx, client.TxnInit{ID: id, Timeout: 10 * time.Minute})
	require.NoError(e.t, err)
	topic, err := e.client.Topic(ctx, "t", client.Refuse)
	require.NoError(e.t, err)
	s := e.client.NewSender(topic, nil, 1, client.SendOptions{Acks: client.AcksAll, Timeout: time.Minute, Txn: &p})
	defer s.Release()
	require.NoError(e.t, s.Add(record.Record{Value: []byte("left")}, 0))
	require.NoError(e.t, s.Send(ctx))
	require.NoError(e.t, s.Batches()[0].Err)
	return p
}

// A node that starts aborts what its last run has left open, and nothing else. Who asks what became of it is told
// that it was aborted.
func TestNodeAbortsWhatItHasLeft(t *testing.T) {
	node := servertest.Start(t, servertest.Options{})
	e := &writes{
		t: t, client: client.New(node.Requestor(), client.Options{MetadataTTL: time.Millisecond}),
		server: &httptest.Server{URL: node.URL()}, http: node.Client,
	}
	e.call(http.MethodPost, "/v1/topics", `{"name":"t"}`, http.StatusCreated, nil)
	const own, others = "__millrace-once-1-0123abcd-ef01-", "__millrace-once-11-0123abcd-ef01-7"
	var left []client.TxnProducer
	for _, n := range []string{"1", "2", "30"} {
		left = append(left, e.leave(own+n))
	}
	e.txn(e.post("/v1/transactions", "application/json", `{"records":[{"topic":"t","value":1}]}`))
	require.Empty(t, e.committed("t", 0))
	node.Restart()
	e.client = client.New(node.Requestor(), client.Options{MetadataTTL: time.Millisecond})
	e.server, e.http = &httptest.Server{URL: node.URL()}, node.Client
	began := time.Now()
	until(t, func() bool { return len(e.committed("t", 0)) == 1 })
	t.Logf("readers go on %v after the start", time.Since(began))
	for _, p := range left {
		_, err := e.client.EndTxn(t.Context(), p, client.Abort)
		require.NoError(t, err, "it is what the one that was left would be told")
	}
	foreign, mine := e.leave(others), e.leave(own+"4")
	node.Restart()
	e.client = client.New(node.Requestor(), client.Options{MetadataTTL: time.Millisecond})
	state := func(id string) string {
		now, err := e.client.DescribeTxn(t.Context(), id)
		require.NoError(t, err)
		return now.State
	}
	until(t, func() bool { return state(mine.ID) != client.TxnOngoing })
	require.Equal(t, client.TxnOngoing, state(foreign.ID))
}

package native_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/client"
)

// A retry by key of a transaction that was committed by a node that died is told so, also when the member whose offsets
// it has is no more by then: what the request would meet now says nothing of what it has done.
func TestIdempotencyKeyOfATransactionWhoseMemberHasLeft(t *testing.T) {
	e := onNode(t)
	const body = `{"records":[{"topic":"t3","partition":0,"value":1}],` +
		`"offsets":[{"group":"left","member":"gone","topic":"t","partition":0,"offset":1}]}`
	fp := fingerprintOf(t, e, "/v1/transactions", "", body)
	ctx := t.Context()
	p, err := e.client.InitTxn(ctx, client.TxnInit{ID: "died", Timeout: time.Minute})
	require.NoError(t, err)
	attemptAt(t, e, "k", fp, map[string]any{"id": p.ID, "epoch": p.Epoch, "producer_id": p.ProducerID})
	errs, err := e.client.CommitTxnOffsets(ctx, p, client.GroupCommit{
		Group: "left", Epoch: -1,
		Offsets: []client.CommittedOffset{{TopicPartition: client.TopicPartition{Topic: "t"}, Offset: 1}},
	})
	require.NoError(t, err)
	require.NoError(t, errs[0])
	_, err = e.client.EndTxn(ctx, p, client.Commit)
	require.NoError(t, err)
	r := e.keyed("k", "/v1/transactions", "", body)
	require.Equal(t, http.StatusOK, r.status, r.body)
	require.Contains(t, r.body, `"committed"`)
	e.problem(e.keyed("new", "/v1/transactions", "", body), http.StatusConflict, "UNKNOWN_MEMBER_ID")
}

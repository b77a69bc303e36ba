package server_test

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"millrace/api"
)

// restoreTransactions begins a transaction of an id of its own, in epoch 0, with an offset in it: one with records
// would hold readers of committed records up.
func (g *rig) restoreTransactions(t *testing.T) {
	t.Helper()
	g.txns++
	g.txn = "copier-" + strconv.Itoa(g.txns)
	g.call(t, "POST", "/v1/transactions/"+g.txn+"?timeout=5m", nil, nil)
	g.call(t, "POST", "/v1/transactions/"+g.txn+"/offsets?epoch=0", map[string]any{
		"offsets": []map[string]any{{"group": "copiers", "topic": "orders", "partition": 0, "offset": 1}},
	}, nil)
}

// ofItsOwn is the value of a parameter that differs from node to node, or from request to request.
func (g *rig) ofItsOwn(name string) (string, bool) {
	switch name {
	case "cluster_id":
		return g.cluster, true
	case "transactional_id":
		return g.txn, true
	case "Idempotency-Key":
		return uuid.NewString(), true
	}
	return "", false
}

// A key that comes again gets the answer that was given, one that comes with another body is refused as the contract
// says.
func (g *rig) testKeys(t *testing.T) {
	for _, op := range g.ops {
		if op.param("Idempotency-Key") == nil || op.OperationID == "createTopic" {
			continue
		}
		g.restore(t)
		q := g.request(t, op)
		g.set(t, q, op.param("Idempotency-Key"))
		if prepare := preparations[op.OperationID+" header Idempotency-Key"]; prepare != nil {
			prepare(t, g, q)
		}
		first := g.send(t, q)
		require.Less(t, first.status, 300, "%s: %s", q, first.body)
		again := g.send(t, q)
		g.note(t, q, again, "the same again")
		require.Equal(t, first.body, again.body, "%s", q)
		require.Equal(t, "true", again.header.Get("Idempotent-Replayed"), "%s", q)
		q.header.Set("Content-Type", "text/plain")
		reused := g.send(t, q)
		g.note(t, q, reused, "another request")
		require.Equal(t, http.StatusUnprocessableEntity, reused.status, "%s", q)
		require.Contains(t, string(reused.body), api.KeyReused.Name)
		g.clean = false
	}
}

// Requests of transactions are refused as the contract says when there is no such id, when the epoch is over, and
// when the transaction is in no state for them.
func (g *rig) testTransactions(t *testing.T) {
	ops := []string{
		"getTransaction", "commitTransaction", "abortTransaction", "commitTransactionOffsets", "produceRecordsInTransaction",
	}
	send := func(name string, status int, change func(q *request)) {
		t.Helper()
		op := g.op(t, name)
		q := g.request(t, op)
		if op.param("epoch") != nil {
			q.query.Set("epoch", "0")
		}
		change(q)
		a := g.send(t, q)
		g.note(t, q, a, name)
		require.Equal(t, status, a.status, "%s: %s", q, a.body)
	}
	for _, name := range ops {
		g.restore(t)
		send(name, http.StatusNotFound, func(q *request) { q.path["transactional_id"] = "nobody" })
		if name == "getTransaction" {
			continue
		}
		g.call(t, "POST", "/v1/transactions/"+g.txn, nil, nil)
		send(name, http.StatusForbidden, func(*request) {})
	}
	g.restore(t)
	seq := func(q *request) { q.header.Set("Producer-Seq", "0") }
	send("produceRecordsInTransaction", http.StatusOK, seq)
	send("produceRecordsInTransaction", http.StatusConflict, func(*request) {})
	body := func(text string) func(*request) { return func(q *request) { q.body = []byte(text) } }
	const alien = `{"offsets":[{"group":"copiers","topic":"orders","partition":0,"offset":1,"member":"m","epoch":7}]}`
	send("commitTransactionOffsets", http.StatusConflict, body(alien))
	send("runTransaction", http.StatusConflict, body(alien))
	send("runTransaction", http.StatusNotFound, body(`{"records":[{"topic":"orders","partition":7}]}`))
	send("commitTransaction", http.StatusOK, func(*request) {})
	send("abortTransaction", http.StatusConflict, func(*request) {})
	send("commitTransaction", http.StatusConflict, func(q *request) { q.query.Set("epoch", "1") })
}

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTxnList(t *testing.T) {
	url, requests := answering(t,
		answer(200, `{"items":[{"id":"copier-1","state":"open","producer_id":7}],"next_cursor":"c"}`),
		answer(200, `{"items":[{"id":"copier-2","state":"committed","producer_id":8}]}`))
	out, stderr, code := command(t, "", "txn", "list", "--state", "open", "--open-for", "5m", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "ID        STATE      PRODUCER\ncopier-1  open       7\ncopier-2  committed  8\n", out)
	require.Contains(t, requests()[0], "open_for=5m0s")
	require.Contains(t, requests()[0], "state=open")
	require.Contains(t, requests()[1], "cursor=c")
}

const describedTxn = `{"id":"a/b","state":"open","epoch":3,"producer_id":7,"timeout_ms":60000,` +
	`"started":"2026-01-02T03:04:05.678Z","partitions":[{"topic":"orders","partitions":[0,2]}]}`

func TestTxnDescribe(t *testing.T) {
	url, requests := answering(t, answer(200, describedTxn))
	out, stderr, code := command(t, "", "txn", "describe", "a/b", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, `id        a/b
state     open
epoch     3
producer  7
timeout   1m0s
started   2026-01-02T03:04:05.678Z

TOPIC   PARTITIONS
orders  0,2
`, out)
	require.Contains(t, requests()[0], "GET /v1/transactions/a%2Fb")
}

func TestTxnAbort(t *testing.T) {
	url, requests := answering(t, answer(200, describedTxn), answer(200, `{"id":"a/b","state":"aborted","epoch":5}`))
	out, stderr, code := command(t, "", "txn", "abort", "a/b", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "aborted the transaction of a/b; the epoch in use is 5 now\n", out)
	require.Contains(t, requests()[1], "POST /v1/transactions/a%2Fb/abort")

	url, requests = answering(t, answer(200, `{"id":"a","state":"aborted","epoch":5}`))
	_, stderr, code = command(t, "", "txn", "abort", "a", "--epoch", "4", "--url", url)
	require.Equal(t, exitOK, code, stderr)
	require.Contains(t, requests()[0], "epoch=4")
	_, _, code = command(t, "", "txn", "abort", "a", "--epoch", "-4", "--url", url)
	require.Equal(t, exitUsage, code)

	const done = `{"id":"a","state":"committed","epoch":5}`
	url, _ = answering(t, answer(200, done), answer(200, done))
	out, _, _ = command(t, "", "txn", "abort", "a", "--url", url)
	require.Equal(t, "a has nothing open: its last transaction is committed\n", out)
}

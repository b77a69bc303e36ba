package native_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/api"
	"millrace/api/native"
	"millrace/client"
	"millrace/record"
	"millrace/server/servertest"
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

// outpaced is a way to a node on which some commits of offsets come when the group has gone on.
type outpaced struct {
	kmsg.Requestor
	times atomic.Int32
}

func (o *outpaced) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	req, ok := r.(*kmsg.TxnOffsetCommitRequest)
	if !ok || o.times.Add(-1) < 0 {
		return o.Requestor.Request(ctx, r)
	}
	resp := kmsg.NewPtrTxnOffsetCommitResponse()
	for _, t := range req.Topics {
		out := kmsg.NewTxnOffsetCommitResponseTopic()
		out.Topic = t.Topic
		for _, p := range t.Partitions {
			part := kmsg.NewTxnOffsetCommitResponseTopicPartition()
			part.Partition, part.ErrorCode = p.Partition, kerr.IllegalGeneration.Code
			out.Partitions = append(out.Partitions, part)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp, nil
}

// The group gives its member another epoch while the member's transaction is on its way: the member is one as before,
// so that the transaction is done, once. Where the request has named the epoch it is refused.
func TestTransactionWhileTheGroupGoesOn(t *testing.T) {
	node := servertest.Start(t, servertest.Options{})
	way := &outpaced{Requestor: node.Requestor()}
	c := client.New(way, client.Options{MetadataTTL: time.Millisecond})
	edge, err := api.NewEdge(api.Options{Client: c, Pool: record.NewPool(64 << 20)})
	require.NoError(t, err)
	r := chi.NewRouter()
	s := native.New(native.Options{Edge: edge, Client: c})
	t.Cleanup(s.Close)
	s.Mount(r)
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	there := &writes{t: t, client: c, server: &httptest.Server{URL: node.URL()}, http: node.Client}
	there.call(http.MethodPost, "/v1/topics", `{"name":"t"}`, http.StatusCreated, nil)
	until(t, func() bool { // it has its partition
		var w worked
		there.call(http.MethodGet, "/v1/groups/g/records?topics=t&member=m&wait=0s", "", http.StatusOK, &w)
		return w.partitions() == 1
	})
	e := &writes{t: t, client: c, server: server, http: server.Client()}
	const head = `{"records":[{"topic":"t","value":1}],` +
		`"offsets":[{"group":"g","topic":"t","partition":0,"offset":1,"member":"m"`
	way.times.Store(2)
	e.txn(e.post("/v1/transactions", "application/json", head+`}]}`))
	way.times.Store(1000)
	p := e.problem(e.post("/v1/transactions", "application/json", head+`}]}`), http.StatusConflict, "ILLEGAL_GENERATION")
	require.Equal(t, true, p["retryable"])
	way.times.Store(1)
	named := e.post("/v1/transactions", "application/json", head+`,"epoch":1}]}`)
	p = e.problem(named, http.StatusConflict, "ILLEGAL_GENERATION")
	require.Equal(t, false, p["retryable"])
	require.Len(t, there.settled("t", 0), 1)
}

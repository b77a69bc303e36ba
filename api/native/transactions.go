package native

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/api"
	"millrace/client"
)

// Bounds of transactions over HTTP.
const (
	// onceTimeout is how long a transaction in one request may be open: readers of committed records wait that long for
	// one whose node has died and does not come back.
	onceTimeout = 10 * time.Second
	// onceProduce is how long its writes may take, so that there is time left to end it.
	onceProduce       = 8 * time.Second
	defaultTxnTimeout = time.Minute
	leastTxnTimeout   = time.Second
	// endTries is how often the end of a transaction is asked for while no answer comes.
	endTries = 3
	// concurrentTries is how often what waits for the end of the last transaction is tried, and concurrentPause the
	// time between. The coordinator waits too.
	concurrentTries = 20
	concurrentPause = 20 * time.Millisecond
	// maxTxnProducers bounds the producer ids that are known without asking.
	maxTxnProducers = 10_000
	// ownTxnPrefix begins the ids of transactions in one request.
	ownTxnPrefix = "__millrace-once-"
)

// transactions serves transactions: those in one request, and those that a client begins and ends. It is safe for
// concurrent use.
type transactions struct {
	edge     *api.Edge
	client   *client.Client
	producer *producer
	pool     *txnPool

	mu  sync.Mutex
	ids map[string]int64 // guarded by mu: producer ids of transactional ids that this node has met
}

func newTransactions(o Options, p *producer) *transactions {
	return &transactions{
		edge: o.Edge, client: o.Client, producer: p, pool: newTxnPool(o.Client, o.Node), ids: make(map[string]int64),
	}
}

// routes adds the operations to a router.
func (t *transactions) routes(r chi.Router, keys *idempotency) {
	const one = "/v1/transactions/{transactional_id}"
	r.Post("/v1/transactions", keys.wrap(onlyIfUndone, t.handle(t.once)))
	r.Get("/v1/transactions", t.handle(t.list))
	r.Get(one, t.handle(t.describe))
	r.Post(one, keys.wrap(again, t.handle(t.begin)))
	r.Post(one+"/records", t.handle(t.records))
	r.Post(one+"/offsets", keys.wrap(again, t.handle(t.offsets)))
	r.Post(one+"/commit", keys.wrap(again, t.handle(t.commit)))
	r.Post(one+"/abort", keys.wrap(again, t.handle(t.abort)))
}

// handle makes a handler of what returns an error when it has written nothing.
func (t *transactions) handle(serve func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := serve(w, r); err != nil {
			t.edge.Fail(w, r, err)
		}
	}
}

// answer writes an answer in JSON.
func answer(w http.ResponseWriter, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header()["Content-Type"] = jsonHeader
	_, _ = w.Write(append(body, '\n')) // a client that has gone needs no answer
	return nil
}

// pathID is the transactional id of a path.
func pathID(r *http.Request) (string, error) {
	id := api.PathParam(r, "transactional_id")
	if err := client.CheckTransactionalID(id); err != nil {
		return "", api.Refuse(api.InvalidParameter, "%v", detailOf(err))
	}
	return id, nil
}

// clientID is pathID for what only the client that has begun the transaction does.
func clientID(r *http.Request) (string, error) {
	id, err := pathID(r)
	if err == nil && strings.HasPrefix(id, ownTxnPrefix) {
		err = api.Refuse(api.InvalidParameter,
			"transactional id %q: ids that begin with %s are the server's", id, ownTxnPrefix)
	}
	return id, err
}

func detailOf(err error) string {
	var k *client.KafkaError
	if errors.As(err, &k) {
		return k.Detail()
	}
	return err.Error()
}

// jsonBody refuses bodies that are not JSON. What curl -d sends is taken for it.
func jsonBody(r *http.Request) error {
	switch mt := api.MediaType(r.Header.Get("Content-Type")); mt {
	case "application/json", "application/x-www-form-urlencoded", "":
		return nil
	default:
		return api.Refuse(api.UnsupportedMediaType, "the body is %s, but application/json is wanted", mt)
	}
}

// onlyParameters reads the query of an operation that takes some parameters.
func onlyParameters(r *http.Request, known ...string) (url.Values, error) {
	if err := checkQuery(r.URL.RawQuery, known); err != nil {
		return nil, err
	}
	return r.URL.Query(), nil
}

// begun is the answer to a begin, and to an end that says what comes next.
type begun struct {
	ID      string `json:"id"`
	State   string `json:"state"`
	Epoch   int16  `json:"epoch"`
	Timeout int64  `json:"timeout_ms,omitempty"`
}

// begin gives the next producer of a transactional id: whoever used it before is fenced.
func (t *transactions) begin(w http.ResponseWriter, r *http.Request) error {
	id, err := clientID(r)
	if err != nil {
		return err
	}
	query, err := onlyParameters(r, "timeout")
	if err != nil {
		return err
	}
	timeout := defaultTxnTimeout
	if v := query.Get("timeout"); query.Has("timeout") {
		if timeout, err = parseWait(v); err != nil || timeout < leastTxnTimeout || timeout > 24*24*time.Hour {
			return api.Refuse(api.InvalidParameter, "timeout=%.40q: want a time of at least %v, such as 60s; "+
				"transaction.max.timeout.ms is the most", v, leastTxnTimeout)
		}
	}
	p, err := t.init(r.Context(), client.TxnInit{ID: id, Timeout: timeout, ByRequest: true})
	if err != nil {
		return err
	}
	t.know(p)
	return answer(w, begun{ID: id, State: "open", Epoch: p.Epoch, Timeout: timeout.Milliseconds()})
}

// init asks for a producer, again while the end of the transaction before is under way.
func (t *transactions) init(ctx context.Context, in client.TxnInit) (client.TxnProducer, error) {
	for try := 1; ; try++ {
		p, err := t.client.InitTxn(ctx, in)
		if !errors.Is(err, kerr.ConcurrentTransactions) || try == concurrentTries {
			return p, err
		}
		if err := pauseFor(ctx, concurrentPause); err != nil {
			return p, err
		}
	}
}

// pauseFor waits, or fails when ctx ends.
func pauseFor(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// know remembers the producer id of a transactional id.
func (t *transactions) know(p client.TxnProducer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.ids) >= maxTxnProducers {
		clear(t.ids)
	}
	t.ids[p.ID] = p.ProducerID
}

func (t *transactions) forget(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.ids, id)
}

func (t *transactions) known(id string) (int64, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	producerID, ok := t.ids[id]
	return producerID, ok
}

// as calls do with the producer that an id and an epoch stand for, anew when what was known of the id is out of date. A
// refusal that says that the producer is another one's now tells of that one.
func (t *transactions) as(ctx context.Context, id string, epoch int16, do func(client.TxnProducer) error) error {
	var err error
	if producerID, ok := t.known(id); ok {
		err = do(client.TxnProducer{ID: id, ProducerID: producerID, Epoch: epoch})
		if !errors.Is(err, kerr.InvalidProducerIDMapping) {
			return t.fenced(ctx, id, epoch, err)
		}
		t.forget(id)
	}
	now, lost := t.client.DescribeTxn(ctx, id)
	if lost != nil {
		return unlessBegun(lost, id)
	}
	t.know(now.TxnProducer)
	err = do(client.TxnProducer{ID: id, ProducerID: now.ProducerID, Epoch: epoch})
	return t.fenced(ctx, id, epoch, err)
}

// unlessBegun says of an id that nobody knows what to do.
func unlessBegun(err error, id string) error {
	if !errors.Is(err, kerr.TransactionalIDNotFound) {
		return err
	}
	return api.Refuse(api.KafkaFault(kerr.TransactionalIDNotFound),
		"transactional id %q was never used, or not for long: begin with POST /v1/transactions/%s", id, url.PathEscape(id))
}

// fenced explains a refusal that says that the epoch is not the one in use.
func (t *transactions) fenced(ctx context.Context, id string, epoch int16, err error) error {
	if !isFenced(err) {
		return err
	}
	now, lost := t.client.DescribeTxn(ctx, id)
	if lost != nil {
		return err
	}
	t.know(now.TxnProducer)
	e := *api.FromError(err)
	e.Extra = slices.DeleteFunc(slices.Clone(e.Extra), func(m api.Member) bool { return m.Name == "current_epoch" })
	fault := *e.Fault
	fault.Advice = "Go on with the current epoch if it is yours, from the answer that ended your last transaction; else " +
		"stop, or take the id over with POST /v1/transactions/" + url.PathEscape(id) + "."
	e.Fault = &fault
	e.Detail = fmt.Sprintf("epoch %d of transactional id %q is over, the current one is %d: its transaction has ended, "+
		"ran out of time, or another producer has taken the id over", epoch, id, now.Epoch)
	if epoch > now.Epoch {
		e.Detail = fmt.Sprintf("epoch %d of transactional id %q is not in use, the current one is %d", epoch, id, now.Epoch)
	}
	return e.With("current_epoch", now.Epoch).With("state", stateWord(now.State))
}

func isFenced(err error) bool {
	return errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch)
}

// stateWord is a state of a transaction in this API's word.
func stateWord(kafka string) string {
	for _, w := range txnStates() {
		if w.kafka == kafka {
			return w.ours
		}
	}
	return strings.ToLower(kafka)
}

func txnStates() []groupWord {
	return []groupWord{
		{client.TxnEmpty, "empty"}, {client.TxnOngoing, "open"}, {client.TxnPrepareCommit, "committing"},
		{client.TxnPrepareAbort, "aborting"}, {client.TxnCompleteCommit, "committed"}, {client.TxnCompleteAbort, "aborted"},
	}
}

// commit commits a transaction.
func (t *transactions) commit(w http.ResponseWriter, r *http.Request) error {
	id, err := clientID(r)
	if err != nil {
		return err
	}
	query, err := onlyParameters(r, "epoch")
	if err != nil {
		return err
	}
	epoch, err := epochOf(query.Get("epoch"))
	if err != nil {
		return err
	}
	return t.end(w, r, client.TxnProducer{ID: id, Epoch: epoch}, client.Commit)
}

// abort aborts a transaction: one's own by its epoch, or, without, whatever an id has open, fencing who uses it.
func (t *transactions) abort(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	query, err := onlyParameters(r, "epoch")
	if err != nil {
		return err
	}
	if query.Has("epoch") {
		epoch, err := epochOf(query.Get("epoch"))
		if err != nil {
			return err
		}
		return t.end(w, r, client.TxnProducer{ID: id, Epoch: epoch}, client.Abort)
	}
	now, err := t.client.DescribeTxn(r.Context(), id)
	if err != nil {
		return unlessBegun(err, id)
	}
	if now.State != client.TxnOngoing {
		return answer(w, begun{ID: id, State: stateWord(now.State), Epoch: now.Epoch})
	}
	p, err := t.init(r.Context(), client.TxnInit{
		ID: id, Timeout: max(now.Timeout, leastTxnTimeout), ByRequest: now.ByRequest(),
	})
	if err != nil {
		return err
	}
	t.know(p)
	return answer(w, begun{ID: id, State: "aborted", Epoch: p.Epoch})
}

func epochOf(v string) (int16, error) {
	epoch, err := strconv.ParseInt(v, 10, 16)
	if err != nil || epoch < 0 {
		return 0, api.Refuse(api.InvalidParameter, "epoch=%.40q: want the number that the begin, or the end of the last "+
			"transaction, has given", v)
	}
	return int16(epoch), nil
}

// end ends a transaction and answers with the epoch of the next one.
func (t *transactions) end(w http.ResponseWriter, r *http.Request, p client.TxnProducer, d client.Decision) error {
	var next client.TxnProducer
	err := t.as(r.Context(), p.ID, p.Epoch, func(p client.TxnProducer) (err error) {
		next, err = t.decide(p, d)
		return err
	})
	switch {
	case errors.Is(err, kerr.InvalidTxnState):
		return t.wrongState(r.Context(), p, d)
	case err != nil && api.FromError(err).Fault.Outcome == api.Unknown:
		return t.undecided(p, err)
	case err != nil:
		return err
	}
	t.know(next)
	state := "aborted"
	if d == client.Commit {
		state = "committed"
	}
	return answer(w, begun{ID: p.ID, State: state, Epoch: next.Epoch})
}

// decide ends a transaction. While no answer comes it asks again: a decision that was made answers the same.
func (t *transactions) decide(p client.TxnProducer, d client.Decision) (client.TxnProducer, error) {
	ctx := context.Background() // the client's going away changes nothing any more
	unsure := false
	for try := 1; ; try++ {
		next, err := t.client.EndTxn(ctx, p, d)
		switch {
		case err == nil:
			return next, nil
		case api.FromError(err).Fault.Outcome == api.Unknown:
			unsure = true
		case errors.Is(err, kerr.ConcurrentTransactions):
		case unsure && isFenced(err): // after it may have been done
			return p, &undecided{err}
		default:
			return p, err
		}
		if try == endTries && unsure {
			return p, &undecided{err}
		}
		if try == concurrentTries {
			return p, err
		}
		_ = pauseFor(ctx, concurrentPause)
	}
}

// undecided is the end of a transaction of which nobody knows whether it came about.
type undecided struct{ cause error }

func (e *undecided) Error() string { return "the coordinator gave no answer: " + e.cause.Error() }

func (e *undecided) Unwrap() error { return client.ErrNoAnswer }

// undecided tells how to find out what became of a transaction.
func (t *transactions) undecided(p client.TxnProducer, err error) error {
	fault := *api.NoAnswer
	fault.Advice = "Look with GET /v1/transactions/" + url.PathEscape(p.ID) + ", which tells of this transaction while " +
		"the epoch there is at most one greater. To end it again with the same epoch is safe: the decision is answered."
	return (&api.Error{Fault: &fault, Detail: err.Error(), Cause: err}).
		With("transaction", onceName{ID: p.ID, Epoch: p.Epoch})
}

// wrongState says why a transaction cannot end as was asked.
func (t *transactions) wrongState(ctx context.Context, p client.TxnProducer, d client.Decision) error {
	fault := *api.KafkaFault(kerr.InvalidTxnState)
	e := &api.Error{Fault: &fault, Detail: "transactional id " + strconv.Quote(p.ID) + " has no such transaction"}
	now, err := t.client.DescribeTxn(ctx, p.ID)
	if err != nil {
		return e
	}
	state := stateWord(now.State)
	switch {
	case d == client.Commit && now.Epoch == p.Epoch:
		e.Detail = "nothing was written in epoch " + strconv.Itoa(int(p.Epoch)) + ", so there is nothing to commit"
		fault.Advice = "Nothing needs doing; abort gives the next epoch if a request of this one may still be under way."
	case now.Epoch == p.Epoch+1 || state == "committing" || state == "aborting":
		e.Detail = "the transaction of epoch " + strconv.Itoa(int(p.Epoch)) + " is " + state + " already"
		fault.Advice = "Go on with the current epoch."
		if d == client.Commit {
			fault.Advice = "It ran out of time, or was aborted: write it again, in the current epoch."
		}
	}
	return e.With("current_epoch", now.Epoch).With("state", state)
}

// describedTxn is a transactional id as GET tells it.
type describedTxn struct {
	ID         string          `json:"id"`
	State      string          `json:"state"`
	Epoch      int16           `json:"epoch"`
	ProducerID int64           `json:"producer_id"`
	TimeoutMS  int64           `json:"timeout_ms"`
	Started    *string         `json:"started,omitempty"`
	Partitions []assignedTopic `json:"partitions"`
}

// describe tells what the coordinator knows of a transactional id.
func (t *transactions) describe(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	if _, err := onlyParameters(r); err != nil {
		return err
	}
	now, err := t.client.DescribeTxn(r.Context(), id)
	if err != nil {
		return unlessBegun(err, id)
	}
	out := describedTxn{
		ID: id, State: stateWord(now.State), Epoch: now.Epoch, ProducerID: now.ProducerID,
		TimeoutMS: now.Timeout.Milliseconds(), Partitions: assignedTopics(now.Partitions),
	}
	if !now.Started.IsZero() {
		started := now.Started.UTC().Format("2006-01-02T15:04:05.000Z")
		out.Started = &started
	}
	return answer(w, out)
}

// listedTxn is a transactional id in a list.
type listedTxn struct {
	ID         string `json:"id"`
	State      string `json:"state"`
	ProducerID int64  `json:"producer_id"`
}

// list answers with a page of transactional ids by name. The cursor is the name of the last one before.
func (t *transactions) list(w http.ResponseWriter, r *http.Request) error {
	query, err := onlyParameters(r, "state", "open_for", "limit", "cursor")
	if err != nil {
		return err
	}
	limit, after, filter := defaultLimit, "", client.TxnFilter{}
	if v := query.Get("limit"); query.Has("limit") {
		if limit, err = strconv.Atoi(v); err != nil || limit < 1 || limit > maxLimit {
			return api.Refuse(api.InvalidParameter, "limit is 1 to %d, not %.40q", maxLimit, v)
		}
	}
	if v := query.Get("cursor"); v != "" {
		b, err := base64.RawURLEncoding.DecodeString(v)
		id, own := strings.CutPrefix(string(b), txnCursor)
		if err != nil || !own {
			return api.Refuse(api.InvalidParameter, "cursor is not one that a page gave")
		}
		after = id
	}
	if v := query.Get("state"); query.Has("state") {
		if filter.States, err = groupFilter("state", txnStates(), &v); err != nil {
			return err
		}
	}
	if v := query.Get("open_for"); query.Has("open_for") {
		if filter.OpenSince, err = parseWait(v); err != nil || filter.OpenSince < time.Millisecond {
			return api.Refuse(api.InvalidParameter, "open_for=%.40q: want a time such as 60s", v)
		}
	}
	all, err := t.client.Txns(r.Context(), filter)
	if err != nil {
		return err
	}
	return answer(w, txnPage(all, after, limit))
}

// txnsPage is one page of transactional ids.
type txnsPage struct {
	Items      []listedTxn `json:"items"`
	NextCursor string      `json:"next_cursor,omitempty"`
}

// txnCursor begins what a cursor stands for.
const txnCursor = "t:"

func txnPage(all []client.TxnListing, after string, limit int) txnsPage {
	out := txnsPage{Items: []listedTxn{}}
	for _, one := range all {
		if one.ID <= after {
			continue
		}
		if len(out.Items) == limit {
			out.NextCursor = base64.RawURLEncoding.EncodeToString([]byte(txnCursor + out.Items[limit-1].ID))
			break
		}
		out.Items = append(out.Items, listedTxn{one.ID, stateWord(one.State), one.ProducerID})
	}
	return out
}

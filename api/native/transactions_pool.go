package native

import (
	"context"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"

	"millrace/api"
	"millrace/client"
)

// Bounds of the pool.
const (
	// maxOnce bounds the transactions in one request that a node serves at a time; more wait.
	maxOnce = 64
	// onceWait is how long one waits for its turn.
	onceWait = 5 * time.Second
	// onceRest is how long an id rests after a transaction, in which the markers of that are written.
	onceRest = 50 * time.Millisecond
	// onceKept is how long an id that rests is used again; the cluster forgets ids in the end.
	onceKept = time.Hour
)

// txnPool lends transactional ids to transactions in one request. Each end of a transaction gives the epoch of the next
// one, so an id that was used costs no call to begin. An id whose transaction has an unknown outcome is not used again:
// its state tells what became of that. Names are of this run alone, so that no other node has the same; they begin with
// that of the node, so that its next run knows them.
type txnPool struct {
	client *client.Client
	slots  chan struct{} // one for each id lent
	node   string        // empty: it has no name
	prefix string

	mu     sync.Mutex
	rested []restedTxn // guarded by mu: the one that has rested longest first
	names  int         // guarded by mu: how many were given
}

// restedTxn is a producer that was given back.
type restedTxn struct {
	client.TxnProducer
	since time.Time
}

func newTxnPool(c *client.Client, node string) *txnPool {
	prefix := ownTxnPrefix
	if node != "" {
		prefix += node + "-"
	}
	return &txnPool{
		client: c, slots: make(chan struct{}, maxOnce), node: node, prefix: prefix + uuid.NewString()[:13] + "-",
	}
}

// ofNode is an expression of the ids that all runs of the node give.
func (p *txnPool) ofNode() string {
	return regexp.QuoteMeta(ownTxnPrefix+p.node) + "-[0-9a-f]{8}-[0-9a-f]{4}-[0-9]+"
}

// take lends a producer, which goes back by put or drop.
func (p *txnPool) take(ctx context.Context, init func(context.Context, client.TxnInit) (client.TxnProducer, error)) (
	client.TxnProducer, error,
) {
	timer := time.NewTimer(onceWait)
	defer timer.Stop()
	select {
	case p.slots <- struct{}{}:
	case <-timer.C:
		return client.TxnProducer{}, api.Refuse(api.Overloaded,
			"%d transactions are under way on this node, which is the limit", maxOnce)
	case <-ctx.Done():
		return client.TxnProducer{}, context.Cause(ctx)
	}
	used, name := p.next()
	if used != nil {
		return *used, nil
	}
	fresh, err := init(ctx, client.TxnInit{ID: name, Timeout: onceTimeout})
	if err != nil {
		p.drop()
	}
	return fresh, err
}

// next is a producer that has rested, or the name of a new id.
func (p *txnPool) next() (*client.TxnProducer, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for len(p.rested) > 0 && now.Sub(p.rested[0].since) > onceKept {
		p.rested = p.rested[1:]
	}
	full := len(p.rested)+len(p.slots) > maxOnce // with this one
	if len(p.rested) > 0 && (full || now.Sub(p.rested[0].since) >= onceRest) {
		first := p.rested[0].TxnProducer
		p.rested = p.rested[1:]
		return &first, ""
	}
	p.names++
	return nil, p.prefix + strconv.Itoa(p.names)
}

// put takes a producer back that may be used again.
func (p *txnPool) put(t client.TxnProducer) {
	p.mu.Lock()
	p.rested = append(p.rested, restedTxn{t, time.Now()})
	p.mu.Unlock()
	<-p.slots
}

// drop notes that a producer does not come back.
func (p *txnPool) drop() { <-p.slots }

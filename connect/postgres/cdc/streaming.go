package cdc

import (
	"context"
	"fmt"
	"io"
	"time"

	"millrace/connect/plugin"
)

// reading is where a task is in the stream.
type reading struct {
	block    *block
	m        message
	inside   bool // a transaction
	skip     bool // the transaction is done already
	skipTo   int64
	seq      int64 // changes of the transaction so far
	xid      uint32
	begin    message // of the transaction
	origin   *origin
	boundary int // how many of the records made so far are of transactions that are complete
	hidden   map[tableName]bool
	signals  []signal // of the transaction
}

// startStream begins to stream at the position.
func (t *task) startStream(ctx context.Context) error {
	n := t.session
	if d := t.s.Millis("streaming.delay.ms"); d > 0 {
		if err := wait(ctx, d); err != nil {
			return err
		}
	}
	if _, err := t.dir(); err != nil { // here, as the reader is another goroutine
		return err
	}
	replica := n.replica
	n.replica = nil
	st, err := openStream(ctx, replica, streamOptions{
		slot: t.s.slot, publication: t.s.publication, from: t.at.commit, version: n.server.version,
		more: t.s.String("slot.stream.params"), every: t.s.Millis("status.update.interval.ms"), manual: t.s.manual,
		queueBytes: t.s.queueBytes, queueRows: t.s.queueRows, dir: t.dir, captured: t.s.captured,
	})
	if err != nil {
		return err
	}
	n.stream = st
	t.reading = reading{}
	t.tries.slot = 0
	t.metrics.current = st
	t.logger.Info("streaming begins", "lsn", t.at.commit.String())
	return nil
}

// streamPoll reads until a batch is full, or there is no more for now. Transactions are given whole, as many as fit;
// one that does not fit into a batch is given in parts.
func (t *task) streamPoll(ctx context.Context) ([]*plugin.SourceRecord, error) {
	r, begun := &t.reading, t.now()
	deadline := time.NewTimer(t.s.pollWait)
	defer deadline.Stop()
	for {
		if r.block == nil {
			more, err := t.nextBlock(ctx, deadline)
			if err != nil {
				return nil, err
			}
			if !more {
				return t.idle(), nil
			}
		}
		for r.block != nil {
			at, b, ok := r.block.next()
			if !ok {
				t.session.stream.used(r.block)
				r.block = nil
				break
			}
			if err := t.handle(ctx, at, b); err != nil {
				return nil, err
			}
			if b[0] == msgCommit {
				if out, err := t.amid(ctx, begun); len(out) > 0 || err != nil {
					return out, err
				}
			}
			if len(t.events.out) >= t.s.batchRows || t.events.bytes >= batchBytes {
				return t.cut(), nil
			}
			if !r.inside && len(t.at.state().Todo) > 0 {
				return t.idle(), nil // a signal asks for a blocking snapshot
			}
		}
	}
}

// cut gives what makes a batch.
func (t *task) cut() []*plugin.SourceRecord {
	r := &t.reading
	t.tries.connection = 0
	out := t.events.take()
	if r.inside && r.boundary == 0 {
		t.at.txn, t.at.seq = r.begin.lsn, r.seq
		return t.give(out)
	}
	if r.inside {
		t.events.out = append(t.events.out, out[r.boundary:]...)
		out = out[:r.boundary:r.boundary]
	}
	r.boundary = 0
	return t.give(out)
}

// idle gives what there is, at the end of a transaction, or at times the place alone.
func (t *task) idle() []*plugin.SourceRecord {
	t.reading.boundary = 0
	if len(t.events.out) > 0 || t.at.commit > t.given && t.now().Sub(t.beats.noted) >= noteEvery {
		t.tries.connection = 0
		return t.give(t.events.take())
	}
	return nil
}

// noteEvery is how long what gives no records may move the place on before that is stored.
const noteEvery = 5 * time.Second

// nextBlock waits for what comes next. It does not wait for a next transaction when there is something to give; it does
// wait for the rest of one.
func (t *task) nextBlock(ctx context.Context, deadline *time.Timer) (more bool, err error) {
	r, st := &t.reading, t.session.stream
	short := time.NewTicker(20 * time.Millisecond) // while a chunk waits for its place
	defer short.Stop()
	for {
		var tick <-chan time.Time
		if !r.inside {
			if err := t.between(ctx); err != nil {
				return false, err
			}
			if len(t.events.out) > 0 || len(t.at.state().Todo) > 0 {
				select {
				case b, ok := <-st.blocks:
					return true, t.took(b, ok)
				default:
					return false, nil
				}
			}
			if t.window != nil {
				st.probe()
				tick = short.C
			}
		}
		var end <-chan time.Time
		if !r.inside {
			end = deadline.C
		}
		select {
		case b, ok := <-st.blocks:
			return true, t.took(b, ok)
		case <-tick:
		case <-end:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

func (t *task) took(b *block, ok bool) error {
	if ok {
		t.reading.block = b
		return nil
	}
	if err := t.session.stream.err; err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

// handle takes one message.
func (t *task) handle(ctx context.Context, at lsn, b []byte) error {
	r := &t.reading
	if b[0] == keepalive {
		if !r.inside && at > t.at.commit && t.at.txn == 0 {
			t.at.commit = at
		}
		return nil
	}
	m := &r.m
	if err := m.decode(b); err != nil {
		return err
	}
	switch m.kind {
	case msgBegin:
		t.begin(m)
	case msgCommit:
		return t.commit(ctx, m)
	case msgOrigin:
		if r.origin != nil {
			r.origin.name, r.origin.place = m.prefix, int64(m.lsn)
		}
	case msgRelation:
		k, err := t.session.describe(ctx, m.relation)
		if err != nil {
			return err
		}
		t.session.current[m.relation.OID] = k
	case msgType:
	case msgPassed:
		r.seq += int64(m.passed)
	case msgLogical:
		return t.logical(m)
	default:
		return t.change(ctx, at, m)
	}
	return nil
}

// begin opens a transaction.
func (t *task) begin(m *message) {
	r := &t.reading
	r.begin = message{kind: msgBegin, lsn: m.lsn, time: m.time, xid: m.xid}
	r.inside, r.seq, r.skipTo, r.xid = true, 0, 0, m.xid
	r.signals = nil
	r.skip = m.lsn < t.at.commit
	if !r.skip && t.at.txn != 0 {
		if t.at.txn == m.lsn {
			r.skipTo = t.at.seq
		} else {
			t.logger.Warn("the transaction of which a part is stored does not come again: what is captured has changed",
				"lsn", t.at.txn.String())
		}
		t.at.txn, t.at.seq = 0, 0
	}
	r.origin = newOrigin(int64(m.xid), m.time, lastCommit(t.at.commit), markNone)
	if t.s.transactions {
		r.origin.id = transactionID(m)
		r.origin.counts = map[tableName]int64{}
		r.origin.started = r.skipTo > 0
	}
	t.hide(m)
}

func transactionID(m *message) string { return fmt.Sprintf("%d:%d", m.xid, uint64(m.lsn)) }

// hide finds the tables that were read in a view which sees the transaction: what it did is in the rows already.
func (t *task) hide(m *message) {
	t.reading.hidden = nil
	if t.at.snap == nil {
		return
	}
	for _, x := range t.at.snap.Read {
		v := t.views[x.View]
		if v == nil {
			var err error
			if v, err = parseView(x.View); err != nil {
				continue // it is checked where it is made
			}
			t.views[x.View] = v
		}
		if v.sees(m.xid) {
			if t.reading.hidden == nil {
				t.reading.hidden = map[tableName]bool{}
			}
			t.reading.hidden[x.Table] = true
		}
	}
}

// commit closes a transaction.
func (t *task) commit(ctx context.Context, m *message) error {
	r := &t.reading
	r.inside = false
	if !r.skip {
		if r.origin.started && r.origin.counts != nil {
			t.events.boundary(r.origin, "END")
		}
		t.at.commit, t.at.txn, t.at.seq = max(t.at.commit, m.end), 0, 0
		t.metrics.transactions.Inc()
		t.metrics.lag(t.now(), m.time)
		for _, s := range r.signals {
			if err := t.signal(ctx, s); err != nil {
				return err
			}
		}
	}
	r.signals = nil
	t.recent.add(r.xid)
	r.boundary = len(t.events.out)
	return nil
}

// logical takes a logical message. One that is of no transaction is done with as soon as it is there.
func (t *task) logical(m *message) error {
	r := &t.reading
	switch {
	case !m.transactional && !r.inside:
		if m.lsn <= t.at.commit {
			return nil
		}
		if t.wanted(m.prefix) {
			o := newOrigin(nil, microsOf(t.now()), lastCommit(t.at.commit), markNone)
			t.events.message(o, m)
		}
		if t.at.txn == 0 {
			t.at.commit = m.lsn
		}
		r.boundary = len(t.events.out)
		return nil
	case !r.counts():
		return nil
	}
	if t.wanted(m.prefix) {
		t.started()
		t.events.message(r.origin, m)
	}
	return nil
}

// counts counts a change, and says whether it is to be looked at.
func (r *reading) counts() bool {
	r.seq++
	return !r.skip && r.seq > r.skipTo
}

// started notes that the transaction has an event.
func (t *task) started() {
	if o := t.reading.origin; o.counts != nil && !o.started {
		o.started = true
		t.events.boundary(o, "BEGIN")
	}
}

// wanted says whether logical messages with a prefix are captured. Those of our own heartbeat are not.
func (t *task) wanted(prefix string) bool {
	return prefix != beatPrefix && t.s.filter.prefixes.take(prefix)
}

// betweenEvery is how often a transaction's end in the midst of a block is taken for what is due between two of them.
const betweenEvery = 100 * time.Millisecond

// amid does at the end of a transaction, in the midst of a block, what nextBlock does where one ends. Under load blocks
// hardly ever end where a transaction does.
func (t *task) amid(ctx context.Context, begun time.Time) ([]*plugin.SourceRecord, error) {
	now := t.now()
	if now.Sub(t.beats.between) >= betweenEvery {
		if err := t.between(ctx); err != nil {
			return nil, err
		}
	}
	if now.Sub(begun) < t.s.pollWait {
		return nil, nil
	}
	return t.idle(), nil
}

// between does what is due between two transactions.
func (t *task) between(ctx context.Context) error {
	t.beats.between = t.now()
	t.forget()
	if err := t.admit(ctx); err != nil {
		return err
	}
	if err := t.placeChunk(ctx); err != nil {
		return err
	}
	return t.beat(ctx)
}

// forget drops views that the stream has passed.
func (t *task) forget() {
	if t.at.snap == nil || len(t.at.snap.Read) == 0 {
		return
	}
	var keep []readTable
	for _, x := range t.at.snap.Read {
		if until, err := parseLSN(x.Until); err != nil || t.at.commit < until {
			keep = append(keep, x)
		}
	}
	t.at.snap.Read = keep
	if len(keep) == 0 {
		clear(t.views)
	}
}

// recent are the transactions that were read last. Others may not see them yet.
type recent struct {
	xids []uint32
	next int
}

func newRecent() *recent { return &recent{} }

const maxRecent = 1 << 16

func (r *recent) add(xid uint32) {
	if len(r.xids) < maxRecent {
		r.xids = append(r.xids, xid)
		return
	}
	r.xids[r.next] = xid
	r.next = (r.next + 1) % maxRecent
}

// visible says whether a view sees them all.
func (r *recent) visible(v *view) bool {
	for _, x := range r.xids {
		if !v.sees(x) {
			return false
		}
	}
	r.xids, r.next = r.xids[:0], 0 // what one view sees, all later ones do
	return true
}

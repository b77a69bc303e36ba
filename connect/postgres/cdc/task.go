package cdc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"millrace/connect/plugin"
	"millrace/connect/postgres"
)

// task captures one database. All that it knows beyond its settings follows from what is stored: a connection that is
// lost has it begin again from there, as a new task would.
type task struct {
	s       *settings
	c       plugin.SourceContext
	logger  *slog.Logger
	now     func() time.Time
	events  *events
	metrics *metrics
	dir     func() (string, error)
	recent  *recent
	views   map[string]*view // those of Read in the position, parsed

	stored map[string]any // what is stored, or about to be; nil: nothing
	at     *position      // where reading is; nil until a session has been prepared
	given  lsn            // what the server may forget once the last poll is stored

	session *session
	reading reading
	window  *window   // the chunk that is being placed
	fresh   bool      // the session has given nothing yet
	next    time.Time // of the next try to connect
	tries   tries
	beats   beats
	warned  map[tableName]bool // tables that are not captured and should be
	done    bool               // there is nothing left to read, ever

	// busy is the lock of all of that: held by a call that is going on. Stop ends that call, and then has it.
	busy chan struct{}
	life context.Context
	end  context.CancelFunc
}

func newTask() *task {
	t := &task{busy: make(chan struct{}, 1), views: map[string]*view{}}
	t.life, t.end = context.WithCancel(context.Background())
	return t
}

// enter begins a call, which Stop ends by the context that it gets.
func (t *task) enter(ctx context.Context) (context.Context, func()) {
	t.busy <- struct{}{}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(t.life, cancel)
	return ctx, func() {
		stop()
		cancel()
		<-t.busy
	}
}

// tries count what failed in a row.
type tries struct {
	connection int       // since the stream last gave something, or a session lasted
	since      time.Time // of the session; zero: there is none
	slot       int
	stale      int // how often what was known of a table was out of date, since a table or a chunk was last read
	logged     time.Time
}

// lasted is how long a session must go on for those before it to be forgotten.
const lasted = time.Minute

// maxStale is how often the catalog is looked at anew, as a column or a table that it had was not there any more.
const maxStale = 3

// batchBytes bounds the texts behind one poll.
const batchBytes = 8 << 20

func (t *task) Start(ctx context.Context, props map[string]string, c plugin.SourceContext) error {
	ctx, leave := t.enter(ctx)
	defer leave()
	s, problems := parseSettings(props)
	if len(problems) > 0 {
		return fmt.Errorf("%s: %s", problems[0].Key, problems[0].Message)
	}
	t.s, t.c, t.now = s, c, c.Now
	t.logger = c.Logger.With("database", s.database, "slot", s.slot)
	t.events = newEvents(s, c.Connector, c.Task, c.Now)
	t.metrics = newMetrics(c.Metrics)
	t.dir = sync.OnceValues(c.Dir)
	t.recent = newRecent()
	stored, err := c.Offset(ctx, s.partition())
	if err != nil {
		return err
	}
	t.stored = stored
	if stored != nil {
		_, err = parsePosition(stored)
	}
	return err
}

// Poll gives what there is. What the connection does to it is seen only here: a fault that may pass throws the session
// away, and the next poll after a while begins another.
func (t *task) Poll(ctx context.Context) ([]*plugin.SourceRecord, error) {
	ctx, leave := t.enter(ctx)
	defer leave()
	if t.done {
		t.c.Trouble(nil)
		return nil, wait(ctx, t.s.pollWait)
	}
	if left := t.next.Sub(t.now()); t.session == nil && left > 0 {
		return nil, wait(ctx, min(left, t.s.pollWait))
	}
	out, err := t.poll(ctx)
	if err == nil {
		if t.session != nil && t.now().Sub(t.tries.since) >= settled {
			t.c.Trouble(nil)
		}
		return out, nil
	}
	t.drop()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, t.recover(err)
}

// settled is how long a connection must last before it is told that all is well: it may be lost at its first use.
const settled = 2 * time.Second

func (t *task) poll(ctx context.Context) ([]*plugin.SourceRecord, error) {
	if t.session == nil {
		if err := t.open(ctx); err != nil {
			return nil, err
		}
	}
	if t.fresh {
		// Before anything else, it is noted whose log this is and where reading begins.
		t.fresh = false
		if !sameOffset(t.stored, t.at.offset()) {
			return t.give(nil), nil
		}
	}
	if t.at.snap != nil && len(t.at.snap.Todo) > 0 {
		if err := t.snapshotPoll(ctx); err != nil {
			return nil, err
		}
		return t.give(t.events.take()), nil
	}
	if !t.s.snapshot.streaming {
		t.logger.Info("all is read that snapshot.mode asks for")
		t.drop()
		t.done = true
		return nil, nil
	}
	if t.session.stream == nil {
		if err := t.startStream(ctx); err != nil {
			return nil, err
		}
	}
	return t.streamPoll(ctx)
}

// sameOffset says whether two offsets are stored as the same.
func sameOffset(a, b map[string]any) bool {
	x, err := json.Marshal(a)
	y, e := json.Marshal(b)
	return err == nil && e == nil && bytes.Equal(x, y)
}

// open connects, and finds out where to go on.
func (t *task) open(ctx context.Context) error {
	n, err := connect(ctx, t.s, t.logger)
	if err != nil {
		return err
	}
	t.session = n
	var at *position
	if t.stored != nil {
		if at, err = parsePosition(t.stored); err != nil {
			return err
		}
	}
	if at == nil && t.s.Int64("snapshot.delay.ms") > 0 {
		if err := wait(ctx, t.s.Millis("snapshot.delay.ms")); err != nil {
			return err
		}
	}
	if t.at, err = n.prepare(ctx, at); err != nil {
		return err
	}
	if err := t.notice(ctx); err != nil {
		return err
	}
	t.fresh = true
	t.tries.since = t.now()
	t.metrics.connected.Set(1)
	return nil
}

// give makes a poll's answer: records carry the place where reading is. Without a record, the place alone is given.
func (t *task) give(out []*plugin.SourceRecord) []*plugin.SourceRecord {
	offset := t.at.offset()
	t.metrics.events.Add(float64(len(out)))
	if len(out) == 0 {
		out = []*plugin.SourceRecord{{Source: plugin.Offset{Partition: t.events.partition}}}
	}
	for _, r := range out {
		r.Source.Offset = offset
	}
	t.stored, t.given = offset, t.at.commit
	t.beats.noted = t.now()
	return out
}

// take gives what was made so far. What comes next is in other memory: through pieces that two polls share, one would
// keep the other alive, and so all that ever was.
func (e *events) take() []*plugin.SourceRecord {
	out := e.out
	e.out, e.bytes = nil, 0
	e.records, e.structs, e.values = nil, nil, nil
	return out
}

func (t *task) Stored(ctx context.Context) error {
	_, leave := t.enter(ctx)
	defer leave()
	if t.session != nil && t.session.stream != nil && !t.s.manual {
		t.session.stream.confirm(t.given)
	}
	t.metrics.storedAt(t.given)
	return nil
}

func (t *task) Stop(ctx context.Context) error {
	t.end()
	select {
	case t.busy <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-t.busy }()
	t.drop()
	if t.s == nil || !t.s.Bool("slot.drop.on.stop") {
		return nil
	}
	c, err := openSQL(ctx, t.s)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	for { // a server that is busy takes a while to see that nobody uses it any more
		_, err = c.Exec(ctx, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1`,
			t.s.slot)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "55006" || wait(ctx, 50*time.Millisecond) != nil {
			break
		}
	}
	return postgres.Explain(err, "drop replication slot "+t.s.slot)
}

// drop throws the session away, and what was not given away with it.
func (t *task) drop() {
	if t.session != nil {
		t.session.close()
		t.session = nil
	}
	if t.events != nil {
		t.events.take()
	}
	t.at, t.window, t.reading = nil, nil, reading{}
	if t.metrics != nil {
		t.metrics.connected.Set(0)
	}
}

// recover decides what a fault means: nil is to try again after a while. The connector fails only where trying again
// would not help.
func (t *task) recover(err error) error {
	var pg *pgconn.PgError
	isPG := errors.As(err, &pg)
	switch {
	case isPG && pg.Code == "55006" && strings.Contains(pg.Message, "active"):
		return t.retrySlot(err)
	case isPG && (pg.Code == "42703" || pg.Code == "42P01") && t.tries.stale < maxStale:
		t.tries.stale++
		return t.retryConnection(err)
	case postgres.FaultOf(err).Transient(), errors.Is(err, errViewEnded),
		isPG && pg.Code == "42710": // another node was faster with slot or publication
		return t.retryConnection(err)
	case isPG && pg.Code == "42704" && strings.Contains(pg.Message, "publication"):
		return fmt.Errorf("%w. The log of the slot is older than the publication, which cannot be decoded: drop the slot, "+
			"SELECT pg_drop_replication_slot('%s'), and %s", postgres.Explain(err, "stream"), t.s.slot, anew)
	}
	return postgres.Explain(err, "capture database "+t.s.database)
}

// retrySlot waits for a slot that somebody else uses: often a session of ours that the server has not given up yet.
func (t *task) retrySlot(err error) error {
	t.tries.slot++
	delay := t.s.Millis("slot.retry.delay.ms")
	const quick = 8 // from 50 ms on, before those that are counted
	if n := t.tries.slot; n <= quick {
		delay = min(delay, 50*time.Millisecond<<n)
	}
	if t.tries.slot > quick+t.s.Int("slot.max.retries") {
		return fmt.Errorf("%w. Another connector, or another reader, uses slot %s: give each a slot.name of its own, or end "+
			"the other: SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '%s'",
			postgres.Explain(err, "stream"), t.s.slot, t.s.slot)
	}
	t.next = t.now().Add(delay)
	if t.tries.slot > quick {
		t.logger.Warn("the replication slot is in use; trying again", "err", postgres.Explain(err, ""), "in", delay)
	}
	t.c.Trouble(postgres.Explain(err, "capture database "+t.s.database))
	return nil
}

// retryConnection waits, longer from one time to the next.
func (t *task) retryConnection(err error) error {
	if since := t.tries.since; !since.IsZero() && t.now().Sub(since) >= lasted {
		t.tries.connection = 0
	}
	t.tries.since = time.Time{}
	t.tries.connection++
	t.metrics.reconnects.Inc()
	err = postgres.Explain(err, "capture database "+t.s.database)
	if limit := t.s.Int("errors.max.retries"); limit >= 0 && t.tries.connection > limit {
		return err
	}
	longest := min(t.s.Millis("retriable.restart.connector.wait.ms"), time.Minute)
	delay := min(longest, 100*time.Millisecond<<min(t.tries.connection-1, 12))
	t.next = t.now().Add(delay)
	if t.tries.connection == 1 || t.now().Sub(t.tries.logged) > time.Minute {
		t.tries.logged = t.now()
		t.logger.Warn("the connection is lost; trying again", "err", err, "tries", t.tries.connection)
	}
	t.c.Trouble(err)
	return nil
}

// unfit passes over a row that cannot be made an event, if event.processing.failure.handling.mode says so. Else it is
// given away with what is wrong, in its place, for the runner to decide.
func (t *task) unfit(err error, k *table, op any, old, now *tuple) error {
	var f *rowFault
	if !errors.As(err, &f) {
		return err
	}
	if t.s.onFailure == "fail" {
		t.events.unfit(k, op, old, now, err)
		return nil
	}
	t.metrics.skipped.Inc()
	if t.s.onFailure == "warn" {
		t.logger.Warn("a change cannot be made an event and is left out", "err", err)
	}
	return nil
}

func sortTables(list []tableName) {
	slices.SortFunc(list, func(a, b tableName) int { return strings.Compare(a.String(), b.String()) })
}

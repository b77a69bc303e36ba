package polling

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/connect/plugin"
	"millrace/connect/postgres"
)

const (
	maxWait    = 250 * time.Millisecond // of a poll that finds nothing
	guardPause = 100 * time.Millisecond // before the guard looks again
	firstPause = 100 * time.Millisecond // before a failure is tried again; each further pause is twice as long
)

// task reads the tables that it was given, one after the other.
type task struct {
	c       *config
	ctx     plugin.SourceContext
	m       *metrics
	conn    *pgx.Conn // nil: none
	system  string    // the server's identity
	readers []*reader
	next    int // the reader to look at first
	fails   int // passing failures in a row
	retry   time.Time

	busy   chan struct{}   // holds one token: whoever has it may use what is above
	life   context.Context // ends with Stop
	cancel context.CancelFunc
}

func newTask() *task {
	t := &task{busy: make(chan struct{}, 1)}
	t.life, t.cancel = context.WithCancel(context.Background())
	t.busy <- struct{}{}
	return t
}

// Start reads the settings and where to go on from. The database is reached for by Poll.
func (t *task) Start(ctx context.Context, props map[string]string, c plugin.SourceContext) (err error) {
	t.ctx = c
	if t.c, err = parse(props); err != nil {
		return err
	}
	t.m = newMetrics(c.Metrics)
	if t.c.query != "" {
		r := &reader{c: t.c, label: "query", topic: t.c.String(keyPrefix), partition: map[string]any{"query": "query"},
			log: c.Logger, m: t.m}
		t.readers = append(t.readers, r)
		return t.resume(ctx, r)
	}
	tables, err := assigned(props)
	if err != nil {
		return err
	}
	for _, name := range tables {
		full := name.Schema + "." + name.Table
		r := &reader{c: t.c, name: name, label: full, topic: t.c.topic(name),
			partition: map[string]any{"protocol": "1", "table": full}, log: c.Logger, m: t.m}
		t.readers = append(t.readers, r)
		if err := t.resume(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// resume finds the stored offset, also under the partitions that Confluent's connector has used.
func (t *task) resume(ctx context.Context, r *reader) error {
	if t.c.mode == modeBulk {
		return nil
	}
	partitions := []map[string]any{r.partition}
	if t.c.query == "" {
		if config, err := t.c.connection(); err == nil {
			partitions = append(partitions, map[string]any{"protocol": "1",
				"table": config.Database + "." + r.name.Schema + "." + r.name.Table})
		}
		partitions = append(partitions, map[string]any{"table": r.name.Table})
	}
	for _, p := range partitions {
		o, err := t.ctx.Offset(ctx, p)
		if err != nil {
			return err
		}
		if o == nil {
			continue
		}
		if r.pos, err = positionOf(o); err != nil {
			return fmt.Errorf("%s: %w", r.what(), err)
		}
		return nil
	}
	return nil
}

// Poll gives the next page of rows, of whichever table has some.
func (t *task) Poll(ctx context.Context) ([]*plugin.SourceRecord, error) {
	<-t.busy
	defer func() { t.busy <- struct{}{} }()
	if t.life.Err() != nil {
		return nil, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.life, cancel)()
	end := time.Now().Add(maxWait)
	for {
		out, r, err := t.round(ctx)
		if err != nil {
			err = t.judge(ctx, r, err)
		}
		if len(out) > 0 || err != nil || ctx.Err() != nil || !time.Now().Before(end) {
			return out, err
		}
		pause := time.NewTimer(max(0, min(time.Until(t.soonest()), time.Until(end))))
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}

// soonest is when there may be something to do.
func (t *task) soonest() time.Time {
	at := time.Now().Add(maxWait)
	for _, r := range t.readers {
		if r.due.Before(at) {
			at = r.due
		}
	}
	if t.retry.After(at) {
		return t.retry
	}
	return at
}

// round goes on with the window that is open, or opens that of the next table whose time has come. The reader is the
// one that an error is of, nil if it is of the connection.
func (t *task) round(ctx context.Context) (out []*plugin.SourceRecord, r *reader, err error) {
	if len(t.readers) == 0 || time.Now().Before(t.retry) {
		return nil, nil, nil
	}
	if err := t.connect(ctx); err != nil {
		return nil, nil, err
	}
	for range t.readers {
		r = t.readers[t.next]
		if r.win != nil || !time.Now().Before(r.due) {
			if out, err = t.read(ctx, r); len(out) > 0 || err != nil {
				return out, r, err
			}
		}
		t.next = (t.next + 1) % len(t.readers)
	}
	return nil, nil, nil
}

// read gives a page of one table. It moves on to the next one when the window is done.
func (t *task) read(ctx context.Context, r *reader) ([]*plugin.SourceRecord, error) {
	if r.win == nil {
		ok, err := r.open(ctx, t.conn)
		if err != nil {
			return nil, err
		}
		if !ok {
			t.works(r)
			r.due = time.Now().Add(r.pause())
		}
		if r.begun { // otherwise a start before the first row would begin at another time
			r.begun = false
			return []*plugin.SourceRecord{{Source: plugin.Offset{Partition: r.partition, Offset: r.pos.offset()}}}, nil
		}
		if !ok {
			return nil, nil
		}
	}
	out, done, err := r.fetch(ctx, t.conn)
	if err != nil {
		return nil, err
	}
	t.works(r)
	t.m.rows.WithLabelValues(r.label).Add(float64(len(out)))
	if done {
		t.next = (t.next + 1) % len(t.readers)
		r.due = time.Now().Add(r.pause())
		if err := r.close(ctx, t.conn); err != nil {
			t.disconnect(ctx)
		}
	}
	return out, nil
}

// works notes that the database gave what it was asked for.
func (t *task) works(r *reader) {
	t.fails, r.fails = 0, 0
	t.ctx.Trouble(nil)
}

// pause is how long to leave a table alone: shorter while the guard waits for transactions to end.
func (r *reader) pause() time.Duration {
	if r.guard.pending != nil {
		return min(guardPause, r.c.interval)
	}
	return r.c.interval
}

// connect makes the connection where there is none, and checks that the server is the one that was read from before.
func (t *task) connect(ctx context.Context) error {
	if t.conn != nil {
		return nil
	}
	conn, err := dial(ctx, t.c)
	if err != nil {
		return err
	}
	t.conn = conn
	if t.system, err = systemOf(ctx, conn); err != nil {
		return err
	}
	// A window stays open for as long as its pages take to be written. A lock of somebody else's is waited for a minute at
	// a time, so that people hear of it; what the role or the URL says comes before that.
	for _, sql := range []string{"SET idle_in_transaction_session_timeout = 0",
		fmt.Sprintf("SELECT pg_advisory_lock_shared(%d)", int64(marker)),
		"SELECT set_config('lock_timeout', '60000', false) WHERE current_setting('lock_timeout') = '0'"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	for _, r := range t.readers {
		if was := r.pos.system; was != "" && t.system != "" && was != t.system {
			return fmt.Errorf("%s: the server is another one (%s) than was read from before (%s), so its transactions say "+
				"nothing: "+
				"forget the connector's offsets to read all again", r.what(), t.system, was)
		}
		r.pos.system = t.system
	}
	return nil
}

// dial opens a connection that needs no prepared statements.
func dial(ctx context.Context, c *config) (*pgx.Conn, error) {
	config, err := c.connection()
	if err != nil {
		return nil, err
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, postgres.Explain(err, fmt.Sprintf("connect to the database %q at %s:%d as %q", config.Database,
			config.Host,
			config.Port, config.User))
	}
	return conn, nil
}

// systemOf is the server's identity, "" where the role may not know it.
func systemOf(ctx context.Context, conn *pgx.Conn) (id string, err error) {
	err = conn.QueryRow(ctx, "SELECT system_identifier::text FROM pg_control_system()").Scan(&id)
	if postgres.FaultOf(err) == postgres.Denied {
		return "", nil
	}
	return id, err
}

// judge says what is to come of an error: nil where it is tried again.
func (t *task) judge(ctx context.Context, r *reader, err error) error {
	t.disconnect(ctx)
	if ctx.Err() != nil {
		return nil
	}
	what := ""
	if r != nil {
		what = "read " + r.what()
	}
	fault := postgres.FaultOf(err)
	switch {
	case errors.Is(err, errGone):
		t.ctx.Logger.Warn("table is not there", "table", r.label)
		r.due = time.Now().Add(r.c.Millis(keyTableInterval))
		return nil
	case fault.Transient():
		limit := t.c.Int(keyRetries)
		if t.fails++; limit >= 0 && t.fails > limit {
			return postgres.Explain(err, what)
		}
		pause := firstPause << min(t.fails-1, 10)
		t.retry = time.Now().Add(min(pause, max(firstPause, t.c.Millis(keyBackoff))))
		t.m.retries.Inc()
		t.ctx.Logger.Warn("database is tried again", "err", postgres.Explain(err, what), "try", t.fails)
		t.ctx.Trouble(postgres.Explain(err, what))
		return nil
	case fault == postgres.Schema && r != nil && r.fails == 0:
		// The table may have changed since it was looked at: it is, once more.
		r.fails++
		r.plan = nil
		return nil
	}
	return postgres.Explain(err, what)
}

// disconnect gives the connection up, and with it the windows.
func (t *task) disconnect(ctx context.Context) {
	if t.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = t.conn.Close(ctx) // it is of no more use either way
	t.conn = nil
	for _, r := range t.readers {
		r.win = nil
	}
}

// Stored needs nothing: the database keeps no place for us.
func (t *task) Stored(context.Context) error { return nil }

// Stop ends what Poll is at, and the connection.
func (t *task) Stop(ctx context.Context) error {
	t.cancel()
	select {
	case <-t.busy:
		t.disconnect(ctx)
		t.busy <- struct{}{}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

package sink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"millrace/client"
	"millrace/connect/data"
	"millrace/connect/plugin"
	"millrace/connect/postgres"
	"millrace/migrations"
)

// task writes the records of its partitions.
type task struct {
	plugin.SinkContext
	class   string
	cfg     *config
	metrics *metrics
	ledger  *ledger // nil: offsets are the group's
	conn    *session
	parts   map[client.TopicPartition]*partition

	prepared bool // the ledger's tables are there

	targets   map[string]*target
	envelopes *cache[*data.Schema, *envelope]
	layouts   *cache[forms, *layout]
	changed   bool          // the transaction under way changed tables
	changes   []tableChange // in it

	beyondSince time.Time // since when the ledger is beyond the end of a log; zero: it is not

	failures int                    // in a row
	reported map[plugin.Origin]bool // records of the batch under way that were reported
	texts    []byte                 // an arena to use again
}

var _ plugin.SinkTask = (*task)(nil)

func newTask(class string) *task {
	return &task{class: class, parts: map[client.TopicPartition]*partition{}, targets: map[string]*target{},
		envelopes: newCache[*data.Schema, *envelope](1000), layouts: newCache[forms, *layout](1000),
		reported: map[plugin.Origin]bool{}}
}

// Start connects, and brings the ledger's tables about. Where the server cannot be reached just now, that is left to
// Open and Put, which wait for it.
func (t *task) Start(ctx context.Context, props map[string]string, c plugin.SinkContext) error {
	cfg, problems := readConfig(named(t.class, props))
	if len(problems) > 0 {
		return fmt.Errorf("setting %s: %s", problems[0].Key, problems[0].Message)
	}
	t.SinkContext, t.cfg = c, cfg
	if cfg.connector == "" {
		cfg.connector = c.Connector
	}
	if cfg.ledgerName == "" {
		cfg.ledgerName = cfg.connector
	}
	t.metrics = newMetrics(c.Metrics)
	if cfg.ledger {
		t.ledger = cfg.newLedger(c.Group)
		t.ledger.owner = fmt.Sprintf("task %d of connector %s, group %s", c.Task, cfg.connector, c.Group)
		c.Mark(t.ledger.mark())
	}
	err := t.connect(ctx)
	if postgres.FaultOf(err).Transient() && ctx.Err() == nil {
		t.Logger.Warn("the database cannot be used yet; the sink waits for it", "err", err)
		return nil
	}
	return err
}

func (c *config) newLedger(group string) *ledger {
	l := &ledger{table: postgres.QuoteTable(c.ledgerSchema, "sink_offset"), name: c.ledgerName, group: group,
		skip: c.skipMissing, start: "earliest"}
	if c.latest {
		l.start = "latest"
	}
	return l
}

// migrate brings the ledger's tables about.
func migrate(ctx context.Context, c *config) error {
	db := stdlib.OpenDB(*c.conn)
	defer db.Close()
	db.SetMaxOpenConns(4)
	err := migrations.Apply(ctx, db, c.ledgerSchema, migrations.Ledger)
	what := "prepare the offset ledger in schema " + c.ledgerSchema
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == deniedCode {
		what += " (the role needs CREATE on the database, or the schema and its tables must be there: " + keyLedger +
			"=off does without)"
	}
	return postgres.Explain(err, what)
}

// deniedCode says that a privilege is missing.
const deniedCode = "42501"

// connect opens a session, and looks where the ledger is, whose tables it brings about before.
func (t *task) connect(ctx context.Context) error {
	if t.conn != nil && !t.conn.IsClosed() {
		return nil
	}
	if t.ledger != nil && !t.prepared {
		if err := migrate(ctx, t.cfg); err != nil {
			return err
		}
		t.prepared = true
	}
	conn, err := t.cfg.connect(ctx)
	if err != nil {
		return err
	}
	if t.ledger != nil {
		if err := t.ledger.look(ctx, conn, t.parts); err != nil {
			conn.drop()
			return err
		}
	}
	t.conn = conn
	t.forget()
	return nil
}

// forget drops what is known of tables.
func (t *task) forget() {
	for _, tg := range t.targets {
		tg.table = nil
	}
}

// Open takes partitions over from whoever had them, and has them read on from where the ledger is.
func (t *task) Open(ctx context.Context, partitions []plugin.OpenPartition) error {
	if len(partitions) == 0 {
		return nil
	}
	if t.ledger == nil {
		for i := range partitions {
			t.parts[partitions[i].TopicPartition] = &partition{pending: -1}
		}
		return nil
	}
	got, err := t.claim(ctx, partitions)
	if err != nil {
		return err
	}
	t.beyondSince = time.Time{}
	for at, p := range got {
		t.parts[at] = p
		t.Seek(at, p.position)
		if p.adopted {
			t.Logger.Warn("the offset ledger knows nothing of a partition that the consumer group has read: what was read "+
				"is taken as written; if it is not, because the database was made again or restored, stop the connector and "+
				"reset its offsets", "partition", at.String(), "offset", p.position)
		}
	}
	return nil
}

// claimTime bounds how long partitions are asked for: it is more than idleLimit, after which the server ends what a
// hanging owner has under way.
const claimTime = 3 * idleLimit

// claimTries is how often the server is asked for partitions in a row while it cannot be reached: the runner asks
// again, later and later.
const claimTries = 3

func (t *task) claim(ctx context.Context, partitions []plugin.OpenPartition) (
	map[client.TopicPartition]*partition, error) {
	deadline, cancel := context.WithTimeout(ctx, claimTime)
	defer cancel()
	for try := 1; ; try++ {
		err := t.connect(ctx)
		if err == nil {
			var got map[client.TopicPartition]*partition
			if got, err = t.ledger.claim(ctx, t.conn, partitions); err == nil {
				t.failures = 0
				return got, nil
			}
			err = postgres.Explain(err, "take over partitions in the offset ledger")
		}
		var beyond *beyondError
		switch {
		case errors.As(err, &beyond):
			return nil, t.beyond(err)
		case postgres.FaultOf(err) == postgres.Connection && try >= claimTries && ctx.Err() == nil:
			return nil, t.again(err)
		case !postgres.FaultOf(err).Transient():
			return nil, err
		}
		select {
		case <-deadline.Done():
			return nil, plugin.Retriable(errors.Join(err, ctx.Err()))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// beyond has the runner ask again for a while, about a log that ends before the ledger.
func (t *task) beyond(err error) error {
	const patience = 30 * time.Second
	if t.beyondSince.IsZero() {
		t.beyondSince = t.Now()
	}
	if t.Now().Sub(t.beyondSince) < patience {
		return plugin.Retriable(err)
	}
	return err
}

// Put writes a batch in one transaction, with the ledger's step.
func (t *task) Put(ctx context.Context, b *plugin.SinkBatch) error {
	err := t.put(ctx, b)
	if isReportError(err) {
		return err // the runner's own
	}
	if postgres.FaultOf(err) == postgres.Connection && ctx.Err() == nil {
		err = t.put(ctx, b) // an idle connection that was lost costs no pause
	}
	if err == nil {
		t.failures = 0
		clear(t.reported)
		return nil
	}
	if ctx.Err() != nil || !postgres.FaultOf(err).Transient() && !errors.Is(err, errBehind) && !isOrphan(err) {
		return err
	}
	return t.again(err)
}

// again has the runner try again, as often in a row as it may.
func (t *task) again(err error) error {
	t.failures++
	t.metrics.retries.Inc()
	if t.cfg.retries >= 0 && t.failures > t.cfg.retries {
		return fmt.Errorf("given up after %d tries: %w", t.failures, err)
	}
	return plugin.Retriable(err)
}

func (t *task) put(ctx context.Context, b *plugin.SinkBatch) error {
	if err := t.connect(ctx); err != nil {
		return err
	}
	records, next, err := t.due(b)
	if err != nil || len(records) == 0 && len(next) == 0 {
		return err
	}
	w := &write{task: t, records: records, next: next, arena: arena{t.texts}}
	defer func() { t.texts = w.arena.b[:0] }()
	stale := false
	for {
		err := w.transaction(ctx)
		t.settle(next, err)
		switch {
		case err == nil:
			t.metrics.wrote(w)
			return nil
		case t.conn.IsClosed():
			return err
		case errors.Is(err, errBehind):
			return cmp.Or(t.ledger.look(ctx, t.conn, t.parts), err)
		case isOrphan(err):
			return err
		case perRecord(err) && w.care < immediate:
			if w.care++; w.atCommit {
				w.care = immediate
			}
			t.forget() // a column that has another type by now is no fault of a record
		case !stale && !isReportError(err) && (postgres.FaultOf(err) == postgres.Schema || isSchemaError(err)):
			stale = true // what is known of the tables may be of yesterday
			t.forget()
		default:
			return err
		}
	}
}

func isSchemaError(err error) bool {
	var e *schemaError
	return errors.As(err, &e)
}

// perRecord says whether an error may be a single record's fault.
func perRecord(err error) bool {
	if err == nil || isSchemaError(err) || isReportError(err) {
		return false
	}
	if errors.Is(err, errDoubt) {
		return true
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (pg.Code == "21000" || pg.Code == "54000") {
		return true
	}
	return postgres.FaultOf(err) == postgres.Data
}

// due is what of a batch is not in the database yet. A batch that is tried again may be there, in whole or, where
// partitions changed hands, in part.
func (t *task) due(b *plugin.SinkBatch) (records []*plugin.SinkRecord, next map[client.TopicPartition]int64,
	err error) {
	if t.ledger == nil {
		return b.Records, nil, nil
	}
	next = maps.Clone(b.Next)
	records = make([]*plugin.SinkRecord, 0, len(b.Records))
	for _, r := range b.Records {
		p := t.parts[r.Origin.TopicPartition]
		if p == nil {
			return nil, nil, fmt.Errorf("%s is of a partition that was not opened", where(r))
		}
		if r.Origin.Offset >= p.position {
			records = append(records, r)
			if n, ok := next[r.Origin.TopicPartition]; !ok || n <= r.Origin.Offset {
				if next == nil {
					next = map[client.TopicPartition]int64{}
				}
				next[r.Origin.TopicPartition] = r.Origin.Offset + 1
			}
		}
	}
	maps.DeleteFunc(next, func(at client.TopicPartition, n int64) bool {
		p := t.parts[at]
		return p == nil || n <= p.position
	})
	return records, next, nil
}

// settle notes how a transaction ended.
func (t *task) settle(next map[client.TopicPartition]int64, err error) {
	t.conn.ended(err == nil)
	if err != nil && t.changed {
		t.forget()
	}
	for _, c := range t.changes {
		if err == nil {
			t.Logger.Info("table changed", "table", c.table, "created", c.created, "columns", c.columns)
			t.metrics.ddl.Inc()
		}
	}
	t.changed, t.changes = false, nil
	if t.ledger == nil {
		return
	}
	for at, n := range next {
		p := t.parts[at]
		switch {
		case err == nil:
			p.position, p.pending = n, -1
		case t.conn.IsClosed(): // it may have happened: the next look at the ledger says
			p.pending = n
		}
	}
}

// PreCommit says where the ledger is, so that the group's offsets show it.
func (t *task) PreCommit(_ context.Context, current map[client.TopicPartition]int64) (
	map[client.TopicPartition]int64, error) {
	if t.ledger == nil {
		return current, nil
	}
	out := make(map[client.TopicPartition]int64, len(current))
	for at := range current {
		if p := t.parts[at]; p != nil {
			out[at] = p.position
		}
	}
	return out, nil
}

// Close gives partitions up. There is nothing to write: whatever Put has returned from is in the database.
func (t *task) Close(_ context.Context, partitions []client.TopicPartition, _ bool) error {
	for _, at := range partitions {
		delete(t.parts, at)
	}
	return nil
}

// Stop closes the connection.
func (t *task) Stop(context.Context) error {
	if t.conn != nil {
		t.conn.drop()
	}
	return nil
}

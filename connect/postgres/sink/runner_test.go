package sink_test

import (
	"context"
	"flag"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"millrace/client"
	"millrace/connect/data"
	"millrace/connect/plugin"
	"millrace/connect/postgres/pgtest"
	"millrace/connect/postgres/sink"
)

// rounds multiplies how much the tests by chance do.
var rounds = flag.Int("sink.rounds", 1, "how often tests by chance go round")

func TestMain(m *testing.M) { pgtest.Main(m) }

func class(name string) *plugin.Class {
	for _, c := range sink.Classes() {
		if c.Class == name {
			return &c
		}
	}
	panic(name)
}

const (
	native    = "PostgresSink"
	confluent = "io.confluent.connect.jdbc.JdbcSinkConnector"
	debezium  = "io.debezium.connector.jdbc.JdbcSinkConnector"
)

// topics plays the log: records by partition, numbered.
type topics struct {
	mu  sync.Mutex
	log map[client.TopicPartition][]*plugin.SinkRecord
	id  [16]byte
}

func newTopics() *topics {
	return &topics{log: map[client.TopicPartition][]*plugin.SinkRecord{}, id: [16]byte{1, 2, 3}}
}

// add appends a record.
func (ts *topics) add(topic string, partition int32, r data.Record) *plugin.SinkRecord {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	at := client.TopicPartition{Topic: topic, Partition: partition}
	r.Topic, r.Partition, r.Offset = topic, partition, int64(len(ts.log[at]))
	rec := &plugin.SinkRecord{Record: r, Origin: plugin.Origin{TopicPartition: at, Offset: r.Offset}}
	ts.log[at] = append(ts.log[at], rec)
	return rec
}

func (ts *topics) end(at client.TopicPartition) int64 {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return int64(len(ts.log[at]))
}

func (ts *topics) read(at client.TopicPartition, from int64, most int) []*plugin.SinkRecord {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	log := ts.log[at][from:]
	return log[:min(len(log), most)]
}

// runner plays the runner of one task.
type runner struct {
	t         testing.TB
	ts        *topics
	task      plugin.SinkTask
	props     map[string]string
	group     string
	mark      string                          // of commits
	at        map[client.TopicPartition]int64 // where reading has come to
	most      int                             // records of a partition in a batch
	noReport  bool
	reporting func() // called for each report
	now       time.Time
	refuse    error // what Report says

	mu       sync.Mutex
	reported []*plugin.SinkRecord
	reasons  []error
}

// settings are those of a connector of a class for a database.
func settings(className, url string, more ...string) map[string]string {
	props := map[string]string{"name": "s", "connector.class": className, "connection.url": url}
	for i := 0; i+1 < len(more); i += 2 {
		props[more[i]] = more[i+1]
	}
	return props
}

func newRunner(t testing.TB, ts *topics, props map[string]string) *runner {
	return &runner{t: t, ts: ts, props: props, group: "connect-s", at: map[client.TopicPartition]int64{}, most: 1000}
}

// start makes a task and gives it partitions.
func (r *runner) start(ctx context.Context, partitions ...client.TopicPartition) error {
	r.task = class(r.props["connector.class"]).New().NewSink()
	c := plugin.SinkContext{
		TaskContext: plugin.TaskContext{Connector: r.props["name"], Logger: slog.New(slog.DiscardHandler),
			Now: func() time.Time {
				if r.now.IsZero() {
					return time.Now()
				}
				return r.now
			}, Metrics: prometheus.NewRegistry()},
		Group: r.group,
		Seek:  func(at client.TopicPartition, offset int64) { r.at[at] = offset },
		Mark:  func(text string) { r.mark = text },
		RequestCommit: func() {
		},
		Report: func(_ context.Context, rec *plugin.SinkRecord, why error) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.reported = append(r.reported, rec)
			r.reasons = append(r.reasons, why)
			if r.reporting != nil {
				r.reporting()
			}
			return r.refuse
		},
	}
	if r.noReport {
		c.Report = nil
	}
	if err := r.task.Start(ctx, r.props, c); err != nil {
		return err
	}
	return r.open(ctx, partitions...)
}

func (r *runner) open(ctx context.Context, partitions ...client.TopicPartition) error {
	var open []plugin.OpenPartition
	for _, at := range partitions {
		r.at[at] = 0
		open = append(open, plugin.OpenPartition{TopicPartition: at, TopicID: r.ts.id, Committed: -1, End: r.ts.end(at)})
	}
	return r.task.Open(ctx, open)
}

// batch is what there is to write.
func (r *runner) batch() *plugin.SinkBatch {
	b := &plugin.SinkBatch{Next: map[client.TopicPartition]int64{}}
	for at, from := range r.at {
		if recs := r.ts.read(at, from, r.most); len(recs) > 0 {
			b.Records = append(b.Records, recs...)
			b.Next[at] = from + int64(len(recs))
		}
	}
	return b
}

// put hands over one batch, again and again while the task says so. Done: there was nothing to write.
func (r *runner) put(ctx context.Context) (done bool, err error) {
	b := r.batch()
	if len(b.Next) == 0 {
		return true, nil
	}
	for {
		err := r.task.Put(ctx, b)
		if plugin.IsRetriable(err) && ctx.Err() == nil {
			wait(ctx, 5*time.Millisecond)
			continue
		}
		if err == nil {
			for at, n := range b.Next {
				if _, ok := r.at[at]; ok {
					r.at[at] = n
				}
			}
		}
		return false, err
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// drain writes all there is.
func (r *runner) drain(ctx context.Context) error {
	for {
		if done, err := r.put(ctx); done || err != nil {
			return err
		}
	}
}

func (r *runner) stop() {
	if r.task != nil {
		require.NoError(r.t, r.task.Stop(context.Background()))
	}
}

// run starts a task for all partitions, writes all and ends it.
func run(t testing.TB, ts *topics, props map[string]string) *runner {
	r := newRunner(t, ts, props)
	require.NoError(t, runAll(t, r))
	return r
}

func runAll(t testing.TB, r *runner) error {
	defer r.stop()
	var all []client.TopicPartition
	for at := range r.ts.log {
		all = append(all, at)
	}
	if err := r.start(t.Context(), all...); err != nil {
		return err
	}
	return r.drain(t.Context())
}

// db is a database with a connection for the test.
type db struct {
	t    testing.TB
	url  string
	srv  *pgtest.Server
	conn *pgx.Conn
}

func newDB(t testing.TB, statements ...string) *db {
	srv := pgtest.Start(t)
	d := &db{t: t, srv: srv, url: srv.Database(t)}
	d.conn = srv.Connect(t, d.url)
	d.exec(statements...)
	return d
}

func (d *db) exec(statements ...string) {
	d.t.Helper()
	for _, s := range statements {
		_, err := d.conn.Exec(context.Background(), s)
		require.NoError(d.t, err, s)
	}
}

// text is what a query gives: columns with | between them, rows with line ends.
func (d *db) text(sql string) string {
	d.t.Helper()
	rows, err := d.conn.Query(context.Background(), sql, pgx.QueryExecModeSimpleProtocol)
	require.NoError(d.t, err, sql)
	defer rows.Close()
	out := ""
	for rows.Next() {
		for i, v := range rows.RawValues() {
			if i > 0 {
				out += "|"
			}
			if v == nil {
				out += "<null>"
			}
			out += string(v)
		}
		out += "\n"
	}
	require.NoError(d.t, rows.Err(), sql)
	return out
}

func (d *db) ledger() string {
	return d.text("SELECT topic, kpartition, next_offset FROM connect.sink_offset ORDER BY 1, 2")
}

// Schemas and values.

func schema(t data.Type) *data.Schema   { return &data.Schema{Type: t} }
func optional(t data.Type) *data.Schema { return &data.Schema{Type: t, Optional: true} }
func named(t data.Type, name string, params ...string) *data.Schema {
	s := &data.Schema{Type: t, Name: name, Optional: true}
	for i := 0; i+1 < len(params); i += 2 {
		if s.Parameters == nil {
			s.Parameters = map[string]string{}
		}
		s.Parameters[params[i]] = params[i+1]
	}
	return s
}

var (
	idSchema  = data.NewStruct("k", data.Field{Name: "id", Schema: schema(data.Int64)})
	rowSchema = data.NewStruct("v", data.Field{Name: "id", Schema: schema(data.Int64)},
		data.Field{Name: "name", Schema: optional(data.String)}, data.Field{Name: "n", Schema: optional(data.Int32)})
)

func idKey(id int64) *data.StructValue { return data.New(idSchema).Set("id", id) }

// record is a record of a row {id, name, n} with the key {id}.
func record(id int64, name any, n any) data.Record {
	v := data.New(rowSchema)
	v.Values = []any{id, name, n}
	return data.Record{KeySchema: idSchema, Key: idKey(id), ValueSchema: rowSchema, Value: v, Timestamp: 1}
}

func tombstone(id int64) data.Record {
	return data.Record{KeySchema: idSchema, Key: idKey(id)}
}

func tp(topic string, partition int32) client.TopicPartition {
	return client.TopicPartition{Topic: topic, Partition: partition}
}

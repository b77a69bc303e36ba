package cdc_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"millrace/connect/data"
	"millrace/connect/plugin"
	"millrace/connect/postgres/cdc"
	"millrace/connect/postgres/pgtest"
)

// patience bounds the wait for what is bound to come.
const patience = 90 * time.Second

// rounds multiplies how much the tests by chance do.
var rounds = flag.Int("cdc.rounds", 1, "how often tests by chance go round")

func TestMain(m *testing.M) { pgtest.Main(m) }

// lab is a database, a connector for it, and what has been stored: records and offset, both or none.
type lab struct {
	t      testing.TB
	server *pgtest.Server
	url    string
	db     *pgx.Conn
	props  map[string]string

	offset  map[string]any
	records []*event
	letters []*plugin.SourceRecord // what could be no event
	task    plugin.SourceTask
	polls   int
	log     slog.Level
	metrics *prometheus.Registry
	dir     string
	trouble error // that the task told of last
}

// event is a record that was stored.
type event struct {
	topic, key, op string
	before, after  map[string]any
	source         map[string]any
	block          map[string]any
	headers        map[string]any
	tombstone      bool
	record         plugin.SourceRecord
	poll           int
}

func newLab(t testing.TB, statements ...string) *lab {
	t.Helper()
	return labOn(t, pgtest.Start(t), statements...)
}

func labOn(t testing.TB, s *pgtest.Server, statements ...string) *lab {
	t.Helper()
	l := &lab{t: t, server: s, url: s.Database(t), log: slog.LevelWarn, metrics: prometheus.NewRegistry()}
	u, err := url.Parse(l.url)
	require.NoError(t, err)
	password, _ := u.User.Password()
	name := path.Base(u.Path)
	l.props = map[string]string{
		"database.hostname": u.Hostname(), "database.port": u.Port(), "database.user": u.User.Username(),
		"database.password": password, "database.dbname": name, "database.sslmode": "disable",
		"topic.prefix": "p", "slot.name": "slot_" + name, "publication.name": "pub_" + name,
		"poll.interval.ms": "50", "status.update.interval.ms": "200", "slot.retry.delay.ms": "200",
		"retriable.restart.connector.wait.ms": "200",
		// The server may take long to see that the last reader of a slot is gone.
		"slot.max.retries": "300",
	}
	l.db = s.Connect(t, l.url)
	l.exec(statements...)
	t.Cleanup(l.stop)
	return l
}

func (l *lab) exec(statements ...string) {
	l.t.Helper()
	for _, sql := range statements {
		_, err := l.db.Exec(context.Background(), sql)
		require.NoError(l.t, err, sql)
	}
}

func (l *lab) set(pairs ...string) *lab {
	for i := 0; i < len(pairs); i += 2 {
		l.props[pairs[i]] = pairs[i+1]
	}
	return l
}

// start starts a task, as a runner would after a crash or a stop.
func (l *lab) start() {
	l.t.Helper()
	require.NoError(l.t, l.tryStart())
}

func (l *lab) tryStart() error {
	l.task = cdc.Class().New().NewSource()
	if l.dir != "" {
		os.RemoveAll(l.dir)
	}
	return l.task.Start(context.Background(), maps.Clone(l.props), plugin.SourceContext{
		TaskContext: plugin.TaskContext{
			Connector: "c", Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: l.log})),
			Now: time.Now, Metrics: l.registry(), Dir: l.makeDir, Trouble: func(why error) { l.trouble = why },
		},
		Offset: func(context.Context, map[string]any) (map[string]any, error) { return l.offset, nil },
	})
}

func (l *lab) registry() prometheus.Registerer {
	l.metrics = prometheus.NewRegistry()
	return l.metrics
}

func (l *lab) makeDir() (string, error) {
	l.dir = l.t.TempDir()
	return l.dir, nil
}

func (l *lab) stop() {
	if l.task != nil {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = l.task.Stop(ctx)
		l.task = nil
	}
}

// poll polls once, and stores what comes. False: nothing came.
func (l *lab) poll() bool {
	l.t.Helper()
	more, err := l.tryPoll()
	require.NoError(l.t, err)
	return more
}

func (l *lab) tryPoll() (bool, error) {
	out, err := l.receive()
	if err != nil {
		return false, err
	}
	for _, r := range out {
		if r.Fault != nil && l.props["errors.tolerance"] != "all" {
			return false, r.Fault // the runner fails the task
		}
	}
	l.store(out)
	return len(out) > 0, l.task.Stored(context.Background())
}

func (l *lab) receive() ([]*plugin.SourceRecord, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return l.task.Poll(ctx)
}

// store stores records and offset.
func (l *lab) store(out []*plugin.SourceRecord) {
	l.t.Helper()
	l.polls++
	for _, r := range out {
		if r.Source.Offset != nil {
			l.offset = roundTrip(l.t, r.Source.Offset)
		}
		if r.Fault != nil {
			l.letters = append(l.letters, r)
			continue
		}
		if r.Topic == "" {
			continue
		}
		l.records = append(l.records, l.eventOf(r))
	}
}

func roundTrip(t testing.TB, m map[string]any) map[string]any {
	b, err := json.Marshal(m)
	require.NoError(t, err)
	var out map[string]any
	require.NoError(t, json.Unmarshal(b, &out))
	return out
}

func (l *lab) eventOf(r *plugin.SourceRecord) *event {
	e := &event{topic: r.Topic, record: *r, headers: map[string]any{}, poll: l.polls}
	if r.Key != nil {
		check(l.t, r.KeySchema, r.Key, r.Topic+" key")
		e.key = fmt.Sprint(plain(r.Key))
	}
	for _, h := range r.Headers {
		e.headers[h.Name] = plain(h.Value)
	}
	v, ok := r.Value.(*data.StructValue)
	if !ok {
		e.tombstone = true
		return e
	}
	check(l.t, r.ValueSchema, v, r.Topic)
	m := plain(v).(map[string]any)
	e.op, _ = m["op"].(string)
	e.before, _ = m["before"].(map[string]any)
	e.after, _ = m["after"].(map[string]any)
	e.source, _ = m["source"].(map[string]any)
	e.block, _ = m["transaction"].(map[string]any)
	return e
}

// check fails where a value does not fit its schema.
func check(t testing.TB, s *data.Schema, v any, where string) {
	if v == nil {
		require.True(t, s.Optional, "%s is null and must not be", where)
		return
	}
	ok := true
	switch s.Type {
	case data.Int8:
		_, ok = v.(int8)
	case data.Int16:
		_, ok = v.(int16)
	case data.Int32:
		_, ok = v.(int32)
	case data.Int64:
		_, ok = v.(int64)
	case data.Float32:
		_, ok = v.(float32)
	case data.Float64:
		_, ok = v.(float64)
	case data.Boolean:
		_, ok = v.(bool)
	case data.String:
		_, ok = v.(string)
	case data.Bytes:
		_, ok = v.([]byte)
	case data.Array:
		list, isList := v.([]any)
		ok = isList
		for _, e := range list {
			check(t, s.Elem, e, where+"[]")
		}
	case data.Struct:
		x, isStruct := v.(*data.StructValue)
		require.True(t, isStruct, where)
		require.Len(t, x.Values, len(s.Fields), where)
		for i, f := range s.Fields {
			check(t, f.Schema, x.Values[i], where+"."+f.Name)
		}
	}
	require.True(t, ok, "%s is a %T and should be %s", where, v, s.Type)
}

func plain(v any) any {
	switch v := v.(type) {
	case *data.StructValue:
		m := map[string]any{}
		for i, f := range v.Schema.Fields {
			m[f.Name] = plain(v.Values[i])
		}
		return m
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = plain(v[i])
		}
		return out
	case []byte:
		return string(v)
	}
	return v
}

// until polls until a condition holds.
func (l *lab) until(what string, ok func() bool) {
	l.t.Helper()
	end := time.Now().Add(patience)
	for !ok() {
		require.True(l.t, time.Now().Before(end), "it never happened: %s", what)
		l.poll()
	}
}

// table is what is in a table by the records so far: its rows by their keys.
func (l *lab) table(topic string) map[string]string {
	rows := map[string]map[string]any{}
	for _, e := range l.records {
		if e.topic != topic {
			continue
		}
		switch {
		case e.tombstone, e.op == "d":
			delete(rows, e.key)
		case e.op == "t":
			clear(rows)
		default:
			row := maps.Clone(e.after)
			missing, _ := e.headers["__unavailable"].([]any)
			for _, c := range missing {
				row[c.(string)] = rows[e.key][c.(string)]
			}
			rows[e.key] = row
		}
	}
	out := map[string]string{}
	for k, row := range rows {
		out[k] = fmt.Sprint(row)
	}
	return out
}

// source is what is in a table, in the same form; columns are id first.
func (l *lab) source(table string) map[string]string {
	l.t.Helper()
	rows, err := l.db.Query(context.Background(), "SELECT * FROM "+table)
	require.NoError(l.t, err)
	list, err := pgx.CollectRows(rows, pgx.RowToMap)
	require.NoError(l.t, err)
	out := map[string]string{}
	for _, row := range list {
		out[fmt.Sprint(map[string]any{"id": row["id"]})] = fmt.Sprint(row)
	}
	return out
}

// caughtUp polls until the records say what the table has.
func (l *lab) caughtUp(table string) {
	l.t.Helper()
	end := time.Now().Add(patience)
	diff := func(a, b map[string]string) int {
		n := 0
		for k, v := range a {
			if b[k] != v {
				n++
			}
		}
		return n
	}
	for {
		for l.poll() {
		}
		got, want := l.table("p.public."+table), l.source(table)
		if maps.Equal(got, want) {
			return
		}
		if time.Now().After(end) {
			require.Less(l.t, len(want)+len(got), 40, "%d rows are not in the records or differ, %d not in the table",
				diff(want, got), diff(got, want))
			require.Equal(l.t, want, got)
		}
	}
}

func (l *lab) ops(topic string) (out []string) {
	for _, e := range l.records {
		if e.topic == topic {
			op := e.op
			if e.tombstone {
				op = "-"
			}
			out = append(out, op)
		}
	}
	return out
}

// count counts the events of an operation by their keys.
func (l *lab) count(topic, op string) map[string]int {
	out := map[string]int{}
	for _, e := range l.records {
		if e.topic == topic && e.op == op {
			out[e.key]++
		}
	}
	return out
}

func (l *lab) on(topic string) (out []*event) {
	for _, e := range l.records {
		if e.topic == topic {
			out = append(out, e)
		}
	}
	return out
}

func (l *lab) slot(column string) string {
	l.t.Helper()
	var v *string
	err := l.db.QueryRow(context.Background(), "SELECT "+column+"::text FROM pg_replication_slots WHERE slot_name = $1",
		l.props["slot.name"]).Scan(&v)
	if err == pgx.ErrNoRows || v == nil {
		return ""
	}
	require.NoError(l.t, err)
	return *v
}

func letters(n int) string { return strings.Repeat("x", n) }

package polling_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"millrace/connect/data"
	"millrace/connect/plugin"
	"millrace/connect/postgres/pgtest"
	"millrace/connect/postgres/polling"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience bounds the wait for what is bound to come.
const patience = 90 * time.Second

// bench is a database, a connector's settings, and what it has given so far.
type bench struct {
	t       *testing.T
	srv     *pgtest.Server
	url     string
	conn    *pgx.Conn
	props   map[string]string
	stored  map[string]map[string]any // offsets by their partitions, as JSON
	records []*plugin.SourceRecord
	task    plugin.SourceTask
	metrics *prometheus.Registry // of the task

	trouble  error // that the task told of last
	troubles int
}

func newBench(t *testing.T, props map[string]string, sql ...string) *bench {
	srv := pgtest.Start(t)
	b := &bench{t: t, srv: srv, url: srv.Database(t), stored: map[string]map[string]any{}}
	b.props = map[string]string{"connection.url": b.url, "topic.prefix": "p-", "poll.interval.ms": "10"}
	maps.Copy(b.props, props)
	b.conn = srv.Connect(t, b.url)
	b.exec(sql...)
	return b
}

func (b *bench) exec(sql ...string) {
	b.t.Helper()
	for _, s := range sql {
		_, err := b.conn.Exec(b.t.Context(), s)
		require.NoError(b.t, err, s)
	}
}

// session is another connection to the database, for the test's own goroutine.
func (b *bench) session() func(sql string) {
	run := b.beside()
	return func(sql string) {
		b.t.Helper()
		require.NoError(b.t, run(sql), sql)
	}
}

// beside is another connection to the database, for any goroutine.
func (b *bench) beside() func(sql string) error {
	c := b.srv.Connect(b.t, b.url)
	return func(sql string) error {
		_, err := c.Exec(b.t.Context(), sql)
		return err
	}
}

// together runs functions beside the test, which may end only after them. What is given is closed once they have ended,
// and holds what failed.
func (b *bench) together(runs ...func() error) <-chan error {
	failed, ended := make(chan error, len(runs)), make(chan struct{})
	var wg sync.WaitGroup
	for _, run := range runs {
		wg.Go(func() {
			if err := run(); err != nil {
				failed <- err
			}
		})
	}
	go func() {
		wg.Wait()
		close(failed)
		close(ended)
	}()
	b.t.Cleanup(func() { <-ended })
	return failed
}

// during polls, by a function, until what runs beside the test has ended. It fails with what failed there.
func (b *bench) during(failed <-chan error, poll func()) {
	b.t.Helper()
	for {
		select {
		case err, some := <-failed:
			require.NoError(b.t, err)
			if !some {
				return
			}
		default:
		}
		poll()
	}
}

func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func (b *bench) context(reg prometheus.Registerer) plugin.SourceContext {
	return plugin.SourceContext{
		TaskContext: plugin.TaskContext{
			Connector: "c", Logger: slog.New(slog.DiscardHandler), Now: time.Now, Metrics: reg,
			Trouble: func(why error) {
				if b.trouble = why; why != nil {
					b.troubles++
				}
			},
		},
		Offset: func(_ context.Context, partition map[string]any) (map[string]any, error) {
			o := b.stored[asJSON(partition)]
			if o == nil {
				return nil, nil
			}
			var back map[string]any // numbers become floats on the way through a topic, unless they are kept with care
			require.NoError(b.t, json.Unmarshal([]byte(asJSON(o)), &back))
			for k, v := range back {
				if _, ok := v.(float64); ok {
					back[k] = o[k]
				}
			}
			return back, nil
		},
	}
}

// start starts a task of all tables, with what is stored.
func (b *bench) start() {
	b.t.Helper()
	cn := polling.Class().New()
	require.Empty(b.t, cn.Validate(b.t.Context(), b.props))
	require.NoError(b.t, cn.Start(b.t.Context(), b.props, plugin.ConnectorContext{Logger: slog.New(slog.DiscardHandler)}))
	configs, err := cn.TaskConfigs(b.t.Context(), 1)
	require.NoError(b.t, err)
	require.Len(b.t, configs, 1)
	require.NoError(b.t, cn.Stop(b.t.Context()))
	props := maps.Clone(b.props)
	maps.Copy(props, configs[0])
	b.task = cn.NewSource()
	b.metrics = prometheus.NewRegistry()
	require.NoError(b.t, b.task.Start(b.t.Context(), props, b.context(b.metrics)))
}

func (b *bench) stop() {
	b.t.Helper()
	require.NoError(b.t, b.task.Stop(b.t.Context()))
}

// poll polls once; what comes is stored with its offsets, as a transaction would, unless that is lost.
func (b *bench) poll(lose bool) int {
	b.t.Helper()
	out, err := b.task.Poll(b.t.Context())
	require.NoError(b.t, err)
	if lose {
		return len(out)
	}
	b.store(out)
	require.NoError(b.t, b.task.Stored(b.t.Context()))
	return len(out)
}

func (b *bench) store(out []*plugin.SourceRecord) {
	for _, r := range out {
		if r.Topic != "" { // else there is the offset alone
			b.records = append(b.records, r)
		}
		if r.Source.Offset != nil {
			b.stored[asJSON(r.Source.Partition)] = r.Source.Offset
		}
	}
}

// until polls until there are so many records, and fails if more come.
func (b *bench) until(n int) {
	b.t.Helper()
	end := time.Now().Add(patience)
	for len(b.records) < n && time.Now().Before(end) {
		b.poll(false)
	}
	require.Len(b.t, b.records, n, "%v", b.values())
}

// eventually polls until something is so.
func (b *bench) eventually(so func() bool) {
	b.t.Helper()
	for end := time.Now().Add(patience); !so(); b.poll(false) {
		require.True(b.t, time.Now().Before(end), "%v", b.values())
	}
}

// quiet polls for a while in which nothing may come: each of the polls asks the database many times.
func (b *bench) quiet() {
	b.t.Helper()
	n := len(b.records)
	b.poll(false)
	require.Len(b.t, b.records, n, "%v", b.values())
}

// values are the records' rows, as text.
func (b *bench) values() (out []string) {
	for _, r := range b.records {
		out = append(out, textOf(r.Value))
	}
	return out
}

func textOf(v any) string {
	s, ok := v.(*data.StructValue)
	if !ok {
		return fmt.Sprint(v)
	}
	out := ""
	for i, x := range s.Values {
		if i > 0 {
			out += " "
		}
		out += textOf(x)
	}
	return out
}

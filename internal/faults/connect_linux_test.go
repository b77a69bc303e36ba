package faults_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"millrace/connect/postgres/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// flows is a cluster with connectors between two databases of one server.
type flows struct {
	*cluster
	rand           *rand.Rand
	server         *pgtest.Server
	from, to       string // URLs of the databases
	toSource, sink *pipe  // what the nodes reach them by
	done           map[string]int
	failed         map[string]bool // what tasks failed of
}

func startFlows(t *testing.T, settings map[string]string, ddl ...string) *flows {
	server := pgtest.New(t, pgtest.Options{Settings: settings})
	f := &flows{rand: rand.New(rand.NewPCG(*seed, 6)), server: server, done: map[string]int{},
		failed: map[string]bool{}}
	f.from, f.to = server.Database(t), server.Database(t)
	server.Exec(t, f.from, ddl...)
	f.toSource, f.sink = newPipe(t, "127.0.0.1:"+server.Port()), newPipe(t, "127.0.0.1:"+server.Port())
	f.cluster = startCluster(t)
	return f
}

// config is a connector's configuration.
type config map[string]string

// with is the configuration with more settings, or others.
func (c config) with(pairs ...string) config {
	out := maps.Clone(c)
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}

func databaseOf(t testing.TB, dsn string) string {
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	return path.Base(u.Path)
}

// capture is a configuration for Debezium's connector that captures all of public.
func capture(t testing.TB, dsn, port, prefix string) config {
	return config{
		"connector.class":   "io.debezium.connector.postgresql.PostgresConnector",
		"database.hostname": "127.0.0.1", "database.port": port, "database.user": "postgres",
		"database.password": pgtest.Password, "database.dbname": databaseOf(t, dsn), "database.sslmode": "disable",
		"topic.prefix": prefix, "slot.name": prefix, "publication.name": prefix,
		"publication.autocreate.mode": "filtered", "schema.include.list": "public", "poll.interval.ms": "50",
		"status.update.interval.ms": "500", "slot.retry.delay.ms": "200", "retriable.restart.connector.wait.ms": "500",
		"topic.creation.default.partitions": "1", "topic.creation.default.replication.factor": "3",
	}
}

// deliver is a configuration for a JDBC sink of Debezium's.
func deliver(t testing.TB, dsn, port, topics string) config {
	return config{
		"connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector", "topics.regex": topics,
		"connection.url":      fmt.Sprintf("jdbc:postgresql://127.0.0.1:%s/%s?sslmode=disable", port, databaseOf(t, dsn)),
		"connection.username": "postgres", "connection.password": pgtest.Password, "insert.mode": "upsert",
		"primary.key.mode": "record_key", "delete.enabled": "true", "truncate.enabled": "true",
		"schema.evolution": "basic", "collection.name.format": "${source.table}", "quote.identifiers": "true",
	}
}

// rest asks a node.
func (f *flows) rest(id int, method, path string, body any) (code int, answer []byte, err error) {
	text := ""
	if body != nil {
		b, err := json.Marshal(body)
		require.NoError(f.t, err)
		text = string(b)
	}
	ctx, cancel := context.WithTimeout(context.Background(), attention)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, f.nodes[id].url()+path, strings.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return do(f.http, req)
}

// insist asks one node after the other until one does it. Nodes that are down, or busy, must say so by 409 or 503.
func (f *flows) insist(method, path string, body any) []byte {
	f.t.Helper()
	start := time.Now()
	for id := 1 + f.rand.IntN(nodes); ; id = id%nodes + 1 {
		code, answer, err := f.rest(id, method, path, body)
		if err == nil && code < 300 {
			return answer
		}
		if err == nil && code != http.StatusConflict && code != http.StatusServiceUnavailable {
			f.t.Fatalf("node %d: %s %s: %d %s", id, method, path, code, answer)
		}
		require.Less(f.t, time.Since(start), patience, "%s %s: %d %s %v", method, path, code, answer, err)
		pause(f.t.Context(), 50*time.Millisecond)
	}
}

func (f *flows) put(name string, c config) {
	f.t.Helper()
	f.insist(http.MethodPut, "/connectors/"+name+"/config", c)
}

// state is what a connector and its tasks do, and where.
type state struct {
	Connector unit
	Tasks     []unit
}

type unit struct {
	State  string
	Worker string `json:"worker_id"`
	Trace  string
}

// status asks any node that answers.
func (f *flows) status(name string) (s state, err error) {
	for id := 1; id <= nodes; id++ {
		if s, err = f.statusAt(id, name); err == nil {
			return s, nil
		}
	}
	return s, err
}

func (f *flows) statusAt(id int, name string) (s state, err error) {
	code, answer, err := f.rest(id, http.MethodGet, "/connectors/"+name+"/status", nil)
	switch {
	case err != nil:
		return s, err
	case code != http.StatusOK:
		return s, fmt.Errorf("status of %s: %d %s", name, code, answer)
	}
	return s, json.Unmarshal(answer, &s)
}

// runs says whether a connector and all its tasks run.
func (s state) runs() bool {
	return s.Connector.State == "RUNNING" && len(s.Tasks) > 0 &&
		!slices.ContainsFunc(s.Tasks, func(u unit) bool { return u.State != "RUNNING" })
}

// awaitRunning waits until connectors run with all their tasks.
func (f *flows) awaitRunning(names ...string) {
	f.t.Helper()
	for _, name := range names {
		start := time.Now()
		for {
			s, err := f.status(name)
			if err == nil && s.runs() {
				break
			}
			f.note(name, s)
			require.Less(f.t, time.Since(start), patience, "%s does not run: %+v %v", name, s, err)
			pause(f.t.Context(), 50*time.Millisecond)
		}
	}
}

// note notes what tasks failed of.
func (f *flows) note(name string, s state) {
	for _, u := range append(s.Tasks, s.Connector) {
		if u.State == "FAILED" && !f.failed[u.Trace] {
			f.failed[u.Trace] = true
			f.t.Logf("%s failed: %s", name, u.Trace)
		}
	}
}

// owner is the node that runs a connector's first task; 0: nobody knows.
func (f *flows) owner(name string) int {
	s, err := f.status(name)
	if err != nil || len(s.Tasks) == 0 {
		return 0
	}
	for id := 1; id <= nodes; id++ {
		if f.nodes[id].address == s.Tasks[0].Worker {
			return id
		}
	}
	return 0
}

// query reads rows as text, fields with a bar between them.
func query(ctx context.Context, dsn, sql string) (out []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	defer c.Close(context.Background())
	results, err := c.PgConn().Exec(ctx, sql).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%.200s: %w", sql, err)
	}
	for _, row := range results[len(results)-1].Rows {
		fields := make([]string, len(row))
		for i, v := range row {
			if fields[i] = string(v); v == nil {
				fields[i] = "∅"
			}
		}
		out = append(out, strings.Join(fields, "|"))
	}
	return out, nil
}

// must is query, where nothing is wrong with the server.
func (f *flows) must(dsn, sql string) []string {
	f.t.Helper()
	out, err := query(f.t.Context(), dsn, sql)
	require.NoError(f.t, err)
	return out
}

// explain logs how far all is.
func (f *flows) explain() {
	for _, name := range []string{sourceName, sinkName} {
		s, err := f.status(name)
		f.t.Logf("%s: %+v %v", name, s, err)
		_, answer, err := f.rest(1, http.MethodGet, "/connectors/"+name+"/offsets", nil)
		f.t.Logf("offsets of %s: %s %v", name, answer, err)
	}
	_, answer, err := f.rest(1, http.MethodGet, "/v1/groups/connect-"+sinkName, nil)
	f.t.Logf("group: %s %v", answer, err)
	rows, err := query(f.t.Context(), f.to, "SELECT topic, kpartition, next_offset, epoch FROM connect.sink_offset")
	f.t.Logf("ledger: %s %v", strings.Join(rows, "; "), err)
}

package polling

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/connect/plugin"
	"millrace/connect/postgres"
)

// Class is the class of connectors that poll.
func Class() plugin.Class {
	return plugin.Class{
		Info: plugin.Info{Class: "io.confluent.connect.jdbc.JdbcSourceConnector", Aliases: []string{"PostgresSource"},
			Kind: plugin.SourceKind, Version: "1", Defs: defs()},
		New: func() plugin.Connector { return &connector{} },
	}
}

// connector finds the tables, and looks now and then whether there are others.
type connector struct {
	c       *config
	context plugin.ConnectorContext
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu    sync.Mutex
	known []tableName // guarded by mu: what the tasks were last given
}

// Start begins to watch the tables.
func (cn *connector) Start(_ context.Context, props map[string]string, c plugin.ConnectorContext) (err error) {
	if cn.c, err = parse(props); err != nil {
		return err
	}
	cn.context = c
	life, cancel := context.WithCancel(context.Background())
	cn.cancel = cancel
	if cn.c.query == "" {
		cn.wg.Go(func() { cn.watch(life) })
	}
	return nil
}

// watch asks for new task configs when tables come or go. What the database refuses meanwhile, the tasks report.
func (cn *connector) watch(ctx context.Context) {
	tick := time.NewTicker(max(time.Millisecond, cn.c.Millis(keyTableInterval)))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		tables, err := cn.list(ctx)
		if err != nil {
			if ctx.Err() == nil {
				cn.context.Logger.Warn("tables cannot be listed", "err", err)
			}
			continue
		}
		cn.mu.Lock()
		changed := cn.known != nil && !slices.Equal(tables, cn.known)
		cn.mu.Unlock()
		if changed {
			cn.context.Logger.Info("tables changed", "tables", len(tables))
			cn.context.Reconfigure()
		}
	}
}

func (cn *connector) list(ctx context.Context) ([]tableName, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	conn, err := dial(ctx, cn.c)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	tables, err := cn.c.tables(ctx, conn)
	if err != nil {
		return nil, err
	}
	if err := cn.c.collision(tables); err != nil {
		return nil, err
	}
	out := []tableName{}
	for _, t := range tables {
		out = append(out, tableName{t.Schema, t.Name})
	}
	return out, nil
}

// TaskConfigs gives each task its tables.
func (cn *connector) TaskConfigs(ctx context.Context, maxTasks int) ([]map[string]string, error) {
	if cn.c.query != "" {
		return split(nil, 1)
	}
	tables, err := cn.list(ctx)
	if err != nil {
		return nil, err
	}
	cn.mu.Lock()
	cn.known = tables
	cn.mu.Unlock()
	return split(tables, maxTasks)
}

// Stop ends the watch.
func (cn *connector) Stop(context.Context) error {
	if cn.cancel != nil {
		cn.cancel()
	}
	cn.wg.Wait()
	return nil
}

// AlterOffsets takes offsets that the tasks can go on from.
func (cn *connector) AlterOffsets(_ context.Context, _ map[string]string, offsets []plugin.Offset) (bool, error) {
	for _, o := range offsets {
		table, hasTable := o.Partition["table"].(string)
		query, hasQuery := o.Partition["query"].(string)
		if (!hasTable || table == "") && (!hasQuery || query != "query") {
			return false, errors.New(`a partition must be {"protocol":"1","table":"<schema>.<table>"} or {"query":"query"}`)
		}
		if _, err := positionOf(o.Offset); err != nil {
			return false, err
		}
	}
	return true, nil
}

// NewSource makes a task.
func (cn *connector) NewSource() plugin.SourceTask { return newTask() }

// NewSink makes nothing.
func (cn *connector) NewSink() plugin.SinkTask { return nil }

// Validate connects, and looks at each table as a task would.
func (cn *connector) Validate(ctx context.Context, props map[string]string) (out []plugin.Problem) {
	if faults := defs().Check(props); len(faults) > 0 {
		return nil // they are reported already, and the rest may not make sense without them
	}
	c, err := parse(props)
	if err != nil {
		return []plugin.Problem{{Key: keyMode, Message: err.Error()}}
	}
	if out = c.problems(); len(out) > 0 {
		return out
	}
	if _, err := c.connection(); err != nil {
		return []plugin.Problem{{Key: keyURL, Message: err.Error()}}
	}
	conn, err := dial(ctx, c)
	if err != nil {
		key := keyURL
		if postgres.FaultOf(err) == postgres.Denied {
			key = keyUser
		}
		return []plugin.Problem{{Key: key, Message: err.Error()}}
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return c.validate(ctx, conn)
}

// oldest is the first version with what is asked of a server.
const oldest = 130000

func (c *config) validate(ctx context.Context, conn *pgx.Conn) []plugin.Problem {
	var version int
	if err := conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int").Scan(&version); err != nil {
		return []plugin.Problem{{Key: keyURL, Message: postgres.Explain(err, "ask for the version").Error()}}
	}
	if version < oldest {
		return []plugin.Problem{{Key: keyURL, Message: fmt.Sprintf("the server's version is %d; 13 is the oldest that "+
			"is read from",
			version/10000)}}
	}
	if c.query != "" {
		if err := c.tryQuery(ctx, conn); err != nil {
			return []plugin.Problem{{Key: c.keyOf(err), Message: err.Error()}}
		}
		return nil
	}
	return c.validateTables(ctx, conn)
}

// keyOf is the setting that an error is best shown at.
func (c *config) keyOf(err error) string {
	var ce *columnError
	switch {
	case errors.As(err, &ce):
		return ce.key
	case c.query != "" && c.String(keyQueryMasked) != "":
		return keyQueryMasked
	case c.query != "":
		return keyQuery
	case c.String(keyWhitelist) != "":
		return keyWhitelist
	case c.String(keyInclude) != "":
		return keyInclude
	}
	return keyURL
}

// tryQuery plans the query, and has the server plan a window of it.
func (c *config) tryQuery(ctx context.Context, conn *pgx.Conn) error {
	p, err := planQuery(ctx, conn, c)
	if err != nil {
		return postgres.Explain(err, "look at the query")
	}
	r := &reader{c: c, plan: p}
	_, err = conn.Exec(ctx, "EXPLAIN "+r.sql("true"))
	return postgres.Explain(err, "look at the query")
}

func (c *config) validateTables(ctx context.Context, conn *pgx.Conn) (out []plugin.Problem) {
	say := func(key, text string) { out = append(out, plugin.Problem{Key: key, Message: text}) }
	tables, err := c.tables(ctx, conn)
	if err != nil {
		say(keyURL, err.Error())
		return out
	}
	for _, n := range c.allowed {
		if !slices.ContainsFunc(tables, func(t *postgres.Table) bool {
			return t.Name == n.Table && (n.Schema == "" || n.Schema == t.Schema)
		}) {
			say(keyWhitelist, fmt.Sprintf("there is no table %s of a kind that %s names, or the role may not see its "+
				"schema. Names "+
				"are case-sensitive", strings.TrimPrefix(n.Schema+"."+n.Table, "."), keyTypes))
		}
	}
	if err := c.collision(tables); err != nil {
		say(keyFormat, err.Error())
	}
	for _, t := range tables {
		if len(out) == 20 {
			say(keyMode, "there are more problems of this kind")
			break
		}
		name := tableName{t.Schema, t.Name}
		p, err := planTable(ctx, conn, c, name)
		if err == nil {
			r := &reader{c: c, name: name, plan: p}
			_, err = conn.Exec(ctx, "EXPLAIN "+r.sql("true"))
		}
		if err != nil {
			say(c.keyOf(err), postgres.Explain(err, "table "+t.String()).Error())
		}
	}
	return out
}

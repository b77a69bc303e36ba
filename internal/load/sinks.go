package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Sizes of the rows of sinks and polling. Each row of the table is inserted and then changed.
const (
	sinkRows  = 100_000
	sinkBatch = 5000 // of a batch that is merged; a sink takes as many records at a time
	pollRows  = 200_000
)

// upsert measures how fast a sink writes a topic, which a source has filled before.
func (b *bench) upsert(props map[string]string) measurement {
	return func(ctx context.Context) (result, error) {
		return b.onNode(ctx, func(s *server, t *table) (r result, err error) {
			if err := t.insert(ctx, sinkRows, 1000); err != nil {
				return r, err
			}
			for from := 0; from < sinkRows; from += 1000 {
				sql := fmt.Sprintf("UPDATE %s SET customer = -id WHERE id > %d AND id <= %d", t.name, from, from+1000)
				if err := t.exec(ctx, sql); err != nil {
					return r, err
				}
			}
			if err := s.connector(ctx, t.name, t.capturing(props)); err != nil {
				return r, err
			}
			if _, err := follow(ctx, 2*sinkRows, s.written); err != nil {
				return r, err
			}
			if _, err := s.call("DELETE", "/connectors/"+t.name, "", ""); err != nil {
				return r, err
			}
			return t.sink(ctx, s, props)
		})
	}
}

// sink runs a sink of what is in the topic, into a table that the sink makes.
func (t *table) sink(ctx context.Context, s *server, props map[string]string) (r result, err error) {
	into := t.name + "_sink"
	if err := t.exec(ctx, "CREATE TABLE "+into+" ("+rowColumns+")"); err != nil {
		return r, err
	}
	w := watch(s.cmd.Process.Pid)
	err = s.connector(ctx, into, props, map[string]string{
		"connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector", "topics": t.topic(),
		"connection.url":      "jdbc:postgresql://127.0.0.1:" + t.port + "/postgres?sslmode=disable",
		"connection.username": "postgres", "connection.password": "none", "insert.mode": "upsert",
		"primary.key.mode": "record_key", "primary.key.fields": "id", "collection.name.format": into,
		"schema.evolution": "none", "offset.ledger.name": into,
	})
	if err != nil {
		return r, err
	}
	// The ledger counts markers of transactions too, of which there are few; the last row tells the end.
	p, err := follow(ctx, 2*sinkRows, func() (n int, err error) {
		err = t.conn.QueryRow(ctx, `SELECT coalesce(sum(next_offset), 0)::int FROM connect.sink_offset WHERE connector = $1`,
			into).Scan(&n)
		if err != nil || n < 2*sinkRows {
			return min(n, 2*sinkRows-1), err
		}
		var done bool
		err = t.conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+into+" WHERE id = $1 AND customer < 0)",
			sinkRows).Scan(&done)
		if !done {
			n = 2*sinkRows - 1
		}
		return n, err
	})
	if err != nil {
		return r, err
	}
	w.tell(&r, 2*sinkRows)
	r.RecPerS = p.rate()
	var count, changed int
	err = t.conn.QueryRow(ctx, "SELECT count(*), count(*) FILTER (WHERE customer = -id) FROM "+into).Scan(&count, &changed)
	if err == nil && (count != sinkRows || changed != sinkRows) {
		err = fmt.Errorf("the sink wrote %d rows, %d of them as they are last", count, changed)
	}
	return r, err
}

// copyAndMerge is the fastest way there is by hand: rows in batches by COPY into a temporary table, and a merge.
func (b *bench) copyAndMerge(ctx context.Context) (result, error) {
	return b.onTable(ctx, func(t *table) (r result, err error) {
		if err := t.exec(ctx, "CREATE TEMP TABLE IF NOT EXISTS merged (LIKE "+t.name+") ON COMMIT DELETE ROWS"); err != nil {
			return r, err
		}
		defer func() { _ = t.exec(ctx, "DROP TABLE merged") }() // it goes with the connection too
		note := strings.Repeat("twenty bytes of text", 8)[:150]
		created := time.Unix(1_700_000_000, 123_456_000)
		w := watch(os.Getpid())
		began := time.Now()
		for round := range 2 {
			for from := 0; from < sinkRows; from += sinkBatch {
				rows := pgx.CopyFromSlice(sinkBatch, func(i int) ([]any, error) {
					id := int64(from + i + 1)
					customer := int32(id % 10000)
					if round == 1 {
						customer = int32(-id)
					}
					return []any{id, customer, strconv.FormatInt(id%100000, 10) + ".25", created, id%2 == 0, note}, nil
				})
				if err := t.merge(ctx, rows); err != nil {
					return r, err
				}
			}
		}
		r.RecPerS = 2 * sinkRows / time.Since(began).Seconds()
		w.tell(&r, 2*sinkRows)
		return r, nil
	})
}

func (t *table) merge(ctx context.Context, rows pgx.CopyFromSource) error {
	columns := []string{"id", "customer", "price", "created", "active", "note"}
	return pgx.BeginFunc(ctx, t.conn, func(tx pgx.Tx) error {
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{"merged"}, columns, rows); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "INSERT INTO "+t.name+` SELECT * FROM merged ON CONFLICT (id) DO UPDATE SET
			customer = EXCLUDED.customer, price = EXCLUDED.price, created = EXCLUDED.created, active = EXCLUDED.active,
			note = EXCLUDED.note`)
		return err
	})
}

// pollRows measures a source that asks for rows by their numbers.
func (b *bench) pollRows(ctx context.Context, props map[string]string) (result, error) {
	return b.onNode(ctx, func(s *server, t *table) (r result, err error) {
		if err := t.insert(ctx, pollRows, 10_000); err != nil {
			return r, err
		}
		if err := s.connector(ctx, t.name, t.polling(), props); err != nil {
			return r, err
		}
		w := watch(s.cmd.Process.Pid)
		p, err := follow(ctx, pollRows, s.written)
		w.tell(&r, pollRows)
		r.RecPerS = p.rate()
		return r, err
	})
}

func (t *table) polling() map[string]string {
	return map[string]string{
		"connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector", "mode": "incrementing",
		"connection.url":  "jdbc:postgresql://127.0.0.1:" + t.port + "/postgres?sslmode=disable",
		"connection.user": "postgres", "connection.password": "none", "incrementing.column.name": "id",
		"table.whitelist": "public." + t.name, "topic.prefix": "polled-",
	}
}

// endAll ends a node, or all of a cluster, and removes their data.
func endAll(s *server) {
	if s == nil {
		return
	}
	for _, o := range append(s.others, s) {
		o.stop(syscall.SIGKILL)
		os.RemoveAll(o.dir)
	}
}

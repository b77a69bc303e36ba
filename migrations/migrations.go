// Package migrations holds the SQL of what the connectors keep in people's PostgreSQL databases, and applies it.
//
// It owns the files below it, each set with a version of its own, and promises that any number of workers may apply a
// set at the same time, that a role which may create nothing can still find what is there already, and that a database
// of a newer version is refused. The sink applies Ledger; Helpers is applied by whoever wants its tables and functions.
package migrations

import (
	"bytes"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"regexp"

	"github.com/pressly/goose/v3"
)

//go:embed ledger/*.sql helpers/*.sql
var files embed.FS

// Set is a set of migrations. Its value is the folder.
type Set string

// The sets.
const (
	Ledger  Set = "ledger"  // the offset ledger of sinks
	Helpers Set = "helpers" // for sources, all optional: tables for signals and heartbeats, a column for polling by xid
)

// CheckSchema says whether a schema may be named so.
func CheckSchema(name string) error {
	if !regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`).MatchString(name) {
		return errors.New("it must be of lower-case letters, digits and _, and at most 63 of them")
	}
	return nil
}

// Apply brings a set to its newest version in a schema, which is created if it is not there. The handle must allow two
// connections at a time.
func Apply(ctx context.Context, db *sql.DB, schema string, set Set) error {
	if err := CheckSchema(schema); err != nil {
		return fmt.Errorf("schema %q: %w", schema, err)
	}
	table := schema + ".millrace_" + string(set) + "_version"
	p, err := provider(db, schema, set, table)
	if err != nil {
		return err
	}
	newest := p.ListSources()[len(p.ListSources())-1].Version
	if done, err := current(ctx, db, table, newest); done || err != nil {
		return err
	}
	return locked(ctx, db, table, func(ctx context.Context) error {
		if done, err := current(ctx, db, table, newest); done || err != nil {
			return err
		}
		if err := createSchema(ctx, db, schema); err != nil {
			return err
		}
		if _, err := p.Up(ctx); err != nil {
			return fmt.Errorf("migrate schema %s: %w", schema, err)
		}
		return nil
	})
}

func provider(db *sql.DB, schema string, set Set, table string) (*goose.Provider, error) {
	folder, err := fs.Sub(files, string(set))
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectPostgres, db, inSchema{folder, schema}, goose.WithTableName(table),
		goose.WithDisableGlobalRegistry(true))
}

// current says whether the set is there in its newest version. A newer one is an error.
func current(ctx context.Context, db *sql.DB, table string, newest int64) (bool, error) {
	var there bool
	if err := db.QueryRowContext(ctx, "SELECT to_regclass($1) IS NOT NULL", table).Scan(&there); err != nil || !there {
		return false, err
	}
	var version int64
	err := db.QueryRowContext(ctx, "SELECT coalesce(max(version_id), 0) FROM "+table+" WHERE is_applied").Scan(&version)
	if err != nil {
		return false, fmt.Errorf("read %s: %w", table, err)
	}
	if version > newest {
		return false, fmt.Errorf("%s is at version %d and this program knows versions up to %d: run a newer one",
			table, version, newest)
	}
	return version == newest, nil
}

// locked runs f while it holds an advisory lock. It is a transaction's lock, which works behind any pooler.
func locked(ctx context.Context, db *sql.DB, name string, f func(context.Context) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	h := fnv.New64a()
	_, _ = io.WriteString(h, name)
	if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", int64(h.Sum64())); err != nil {
		return fmt.Errorf("lock %s: %w", name, err)
	}
	return f(ctx)
}

// createSchema creates a schema that is missing: to ask for one that exists takes the privilege all the same.
func createSchema(ctx context.Context, db *sql.DB, schema string) error {
	var there bool
	err := db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1)", schema).Scan(&there)
	if err != nil || there {
		return err
	}
	if _, err := db.ExecContext(ctx, "CREATE SCHEMA IF NOT EXISTS "+schema); err != nil {
		return fmt.Errorf("create schema %s: %w", schema, err)
	}
	return nil
}

// inSchema puts the name of the schema into the files.
type inSchema struct {
	fs.FS
	schema string
}

func (s inSchema) Open(name string) (fs.File, error) {
	f, err := s.FS.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil || info.IsDir() {
		return f, err
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	text = bytes.ReplaceAll(text, []byte("${schema}"), []byte(s.schema))
	return &file{bytes.NewReader(text), info}, nil
}

// file is a file's text in memory.
type file struct {
	*bytes.Reader
	info fs.FileInfo
}

func (f *file) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *file) Close() error               { return nil }

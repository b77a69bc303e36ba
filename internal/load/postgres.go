package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// database is a PostgreSQL server of this command's own, with one database for all rows.
type database struct {
	cmd  *exec.Cmd
	dir  string
	bin  string
	port string
	conn *pgx.Conn
	next int // names what rows make
}

// postgres is the server that all rows of a run share, started for the first that asks. It syncs what is committed; a
// connection that says nothing for five seconds is ended.
func (b *bench) postgres(ctx context.Context) (*database, error) {
	if b.db != nil {
		return b.db, nil
	}
	bin, err := postgresPrograms()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(b.dir, "millrace-load-postgres-")
	if err != nil {
		return nil, err
	}
	d := &database{dir: dir, bin: bin}
	if err := d.start(ctx); err != nil {
		return nil, errors.Join(err, d.close())
	}
	b.db = d
	return d, nil
}

// postgresPrograms finds the newest server installed.
func postgresPrograms() (string, error) {
	newest, version := "", 0
	dirs, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", err
	}
	for _, dir := range dirs {
		if v, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir))); v > version {
			newest, version = dir, v
		}
	}
	if newest != "" {
		return newest, nil
	}
	path, err := exec.LookPath("initdb")
	if err != nil {
		return "", fmt.Errorf("rows K need PostgreSQL's server, initdb and pg_recvlogical: %w", err)
	}
	path, err = filepath.EvalSymlinks(path)
	return filepath.Dir(path), err
}

// as is whom the server runs as: not root.
func (d *database) as() (*syscall.SysProcAttr, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return nil, err
		}
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	if err := os.Chown(d.dir, int(uid), int(gid)); err != nil {
		return nil, err
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
}

func (d *database) start(ctx context.Context) error {
	as, err := d.as()
	if err != nil {
		return err
	}
	data := filepath.Join(d.dir, "data")
	initdb := exec.CommandContext(ctx, filepath.Join(d.bin, "initdb"), "-D", data, "-U", "postgres", "--auth=trust",
		"--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")
	initdb.Dir, initdb.SysProcAttr = d.dir, as
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	addr, err := freeAddr()
	if err != nil {
		return err
	}
	d.port = addr[strings.LastIndexByte(addr, ':')+1:]
	args := []string{"-D", data}
	for _, s := range []string{
		"listen_addresses=127.0.0.1", "port=" + d.port, "unix_socket_directories=", "wal_level=logical",
		"max_wal_size=8GB", "checkpoint_timeout=30min", "wal_sender_timeout=5s", "shared_buffers=256MB", "autovacuum=off",
	} {
		args = append(args, "-c", s)
	}
	d.cmd = exec.Command(filepath.Join(d.bin, "postgres"), args...)
	log, err := os.Create(filepath.Join(d.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	d.cmd.Dir, d.cmd.SysProcAttr, d.cmd.Stdout, d.cmd.Stderr = d.dir, as, log, log
	if err := d.cmd.Start(); err != nil {
		return err
	}
	for end := time.Now().Add(30 * time.Second); ; wait(ctx, 20*time.Millisecond) {
		if d.conn, err = d.connect(ctx); err == nil || time.Now().After(end) || ctx.Err() != nil {
			return err
		}
	}
}

func (d *database) url() string {
	return "postgres://postgres@127.0.0.1:" + d.port + "/postgres?sslmode=disable"
}

func (d *database) connect(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, d.url()) }

// close ends the server and removes its files.
func (d *database) close() error {
	if d.cmd != nil && d.cmd.Process != nil {
		_ = d.cmd.Process.Signal(syscall.SIGQUIT)
		_ = d.cmd.Wait() // it ends as it was told to, which is not 0
	}
	return os.RemoveAll(d.dir)
}

func (d *database) exec(ctx context.Context, statements ...string) error {
	for _, sql := range statements {
		if _, err := d.conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// table is a table of rows of about 200 bytes, published, with a slot that stands before its first row.
type table struct {
	*database
	name string // also of the publication, the slot and the topics' prefix
	rows int
}

// rowColumns and rowValues are a row of 200 bytes of text by its number.
const (
	rowColumns = `id bigint PRIMARY KEY, customer int NOT NULL, price numeric(10,2), created timestamptz, active boolean,
	note text`
	rowValues = `g, g % 10000, (g % 100000) / 100.0, '2026-01-02 03:04:05.678901+00'::timestamptz, g % 2 = 0,
	substr(repeat(md5(g::text), 5), 1, 150)`
)

func (b *bench) table(ctx context.Context) (*table, error) {
	d, err := b.postgres(ctx)
	if err != nil {
		return nil, err
	}
	d.next++
	t := &table{database: d, name: "t" + strconv.Itoa(d.next)}
	return t, d.exec(ctx, "CREATE TABLE "+t.name+" ("+rowColumns+")", "CREATE PUBLICATION "+t.name+" FOR TABLE "+t.name,
		"SELECT pg_create_logical_replication_slot('"+t.name+"', 'pgoutput')")
}

// insert adds rows in transactions of so many.
func (t *table) insert(ctx context.Context, rows, each int) error {
	for end := t.rows + rows; t.rows < end; t.rows += each {
		_, err := t.conn.Exec(ctx, "INSERT INTO "+t.name+" SELECT "+rowValues+" FROM generate_series($1::int, $2::int) g",
			t.rows+1, min(t.rows+each, end))
		if err != nil {
			return err
		}
	}
	return nil
}

// drop takes the table away, and what holds back the log for it.
func (t *table) drop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	var err error
	for range 200 { // its reader may be a moment in leaving
		if err = t.exec(ctx, "SELECT pg_drop_replication_slot('"+t.name+"')"); err == nil {
			break
		}
		wait(ctx, 50*time.Millisecond)
	}
	return errors.Join(err, t.exec(ctx, "DROP PUBLICATION "+t.name, "DROP TABLE "+t.name, "CHECKPOINT"))
}

// end is where the server's log ends.
func (t *table) end(ctx context.Context) (at string, err error) {
	err = t.conn.QueryRow(ctx, "SELECT pg_current_wal_insert_lsn()::text").Scan(&at)
	return at, err
}

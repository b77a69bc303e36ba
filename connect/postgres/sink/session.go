package sink

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"millrace/connect/postgres"
)

// maxStatements bounds the statements that a session keeps prepared.
const maxStatements = 256

// session is a connection with what it keeps at the server.
type session struct {
	*pgx.Conn
	pooler   bool
	temps    bool // temporary tables may be made
	prepared map[string]string
	copies   map[string]*temporary // by their columns
	numbered int
	made     []string // temporary tables of the transaction under way
	used     []*temporary
	scratch  []byte
	params   [][]byte
}

// temporary is a table that rows are copied to, and that is empty again after each transaction.
type temporary struct {
	name string
	used bool // in the transaction under way
}

// connect opens a session.
func (c *config) connect(ctx context.Context) (*session, error) {
	conn, err := pgx.ConnectConfig(ctx, c.conn)
	if err != nil {
		return nil, postgres.Explain(err, "connect")
	}
	s := &session{Conn: conn, pooler: c.pooler, prepared: map[string]string{}, copies: map[string]*temporary{}}
	err = conn.QueryRow(ctx, "SELECT has_database_privilege(current_database(), 'TEMP')").Scan(&s.temps)
	if err == nil && !c.pooler {
		_, err = conn.Exec(ctx, "SELECT set_config('lock_timeout', $1, false) WHERE current_setting('lock_timeout') = '0'",
			strconv.FormatInt(lockLimit.Milliseconds(), 10))
	}
	if err != nil {
		s.drop()
		return nil, postgres.Explain(err, "connect")
	}
	return s, nil
}

// lockLimit is how long a statement waits for a lock before the batch is tried again, so that people hear of it. What
// the role or the URL says comes before it.
const lockLimit = time.Minute

// drop closes a session whose server may not answer any more.
func (s *session) drop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.Close(ctx)
}

// run executes a statement that is used again and again.
func (s *session) run(ctx context.Context, sql string, params [][]byte, binary bool) (pgconn.CommandTag, error) {
	format := []int16{pgx.TextFormatCode}
	if binary {
		format[0] = pgx.BinaryFormatCode
	}
	if s.pooler {
		r := s.PgConn().ExecParams(ctx, sql, params, nil, format, nil)
		return r.Close()
	}
	name, ok := s.prepared[sql]
	if !ok {
		if len(s.prepared) >= maxStatements {
			clear(s.prepared)
			if err := s.PgConn().Exec(ctx, "DEALLOCATE ALL").Close(); err != nil {
				return pgconn.CommandTag{}, err
			}
		}
		name = "millrace_" + strconv.Itoa(len(s.prepared))
		if _, err := s.PgConn().Prepare(ctx, name, sql, nil); err != nil {
			return pgconn.CommandTag{}, err
		}
		s.prepared[sql] = name
	}
	r := s.PgConn().ExecPrepared(ctx, name, params, format, nil)
	return r.Close()
}

// simple executes statements without parameters.
func (s *session) simple(ctx context.Context, sql string) error {
	return s.PgConn().Exec(ctx, sql).Close()
}

// arrays executes a statement with the rows' columns as arrays.
func (s *session) arrays(ctx context.Context, sql string, a *arena, rows []*row, columns []int) error {
	s.scratch, s.params = s.scratch[:0], s.params[:0]
	ends := make([]int, len(columns))
	for i, c := range columns {
		s.scratch = appendArray(s.scratch, a, rows, c)
		ends[i] = len(s.scratch)
	}
	from := 0
	for _, end := range ends {
		s.params = append(s.params, s.scratch[from:end:end])
		from = end
	}
	_, err := s.run(ctx, sql, s.params, true)
	return err
}

// copyTo copies rows to a table.
func (s *session) copyTo(ctx context.Context, sql string, a *arena, rows []*row, columns []int) error {
	s.scratch = s.scratch[:0]
	for _, r := range rows {
		s.scratch = appendCopy(s.scratch, a, r, columns)
	}
	_, err := s.PgConn().CopyFrom(ctx, bytes.NewReader(s.scratch), sql)
	return err
}

// temporary is the temporary table for rows of a set, nil if there can be none now.
func (s *session) temporary(ctx context.Context, set *columnSet) (*temporary, error) {
	if !s.temps || s.pooler || s.numbered >= maxStatements {
		return nil, nil
	}
	columns := make([]string, len(set.columns))
	for i, c := range set.columns {
		columns[i] = "c" + strconv.Itoa(i) + " " + set.t.types[c].wire()
	}
	def := strings.Join(columns, ", ")
	t := s.copies[def]
	if t == nil {
		name := "millrace_" + strconv.Itoa(s.numbered)
		s.numbered++
		sql := "CREATE TEMPORARY TABLE " + name + " (" + def + ") ON COMMIT DELETE ROWS"
		if err := s.simple(ctx, sql); err != nil {
			return nil, err
		}
		t = &temporary{name: "pg_temp." + name}
		s.copies[def] = t
		s.made = append(s.made, def)
	}
	if t.used {
		return nil, nil
	}
	t.used = true
	s.used = append(s.used, t)
	return t, nil
}

// ended notes the end of a transaction, which takes back what was made in it if it did not commit.
func (s *session) ended(committed bool) {
	if !committed {
		for _, def := range s.made {
			delete(s.copies, def)
		}
	}
	for _, t := range s.used {
		t.used = false
	}
	s.made, s.used = s.made[:0], s.used[:0]
}

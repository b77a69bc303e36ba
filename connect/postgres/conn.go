package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Querier is what asks the catalog: *pgx.Conn, pgx.Tx or a pool.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// ParseURL makes the configuration of a connection from jdbc:postgresql://, postgresql:// or postgres://. User, password
// and the parameters in more, by their names in a URL, come before what the URL says; empty ones say nothing. Every
// session has the settings that the decoders of this package rely on. The error never holds the URL.
func ParseURL(raw, user, password string, more map[string]string) (*pgx.ConnConfig, error) {
	return parseURL(raw, user, password, more)
}

// Session sets what the decoders rely on and no startup parameter says; ParseURL has it run on each connection.
func Session(ctx context.Context, c *pgconn.PgConn) error {
	_, err := c.Exec(ctx, "SET IntervalStyle=postgres; SET bytea_output=hex; SET xmloption=content").ReadAll()
	return err
}

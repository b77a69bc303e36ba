package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

var errPending = errors.New("not there yet")

func parseURL(raw, user, password string, more map[string]string) (*pgx.ConnConfig, error) {
	return pgx.ParseConfig(raw)
}

// FaultOf says what an error concerns.
func FaultOf(err error) Fault { return Other }

// Explain says what failed, and what to do about it.
func Explain(err error, what string) error { return err }

func loadTable(ctx context.Context, q Querier, schema, name string) (*Table, error) {
	return nil, errPending
}
func loadTables(ctx context.Context, q Querier, kinds string) ([]*Table, error) {
	return nil, errPending
}
func loadTablesByOID(ctx context.Context, q Querier, oids []uint32) ([]*Table, error) {
	return nil, errPending
}

func newTypes() *Types                                                    { return &Types{byOID: map[uint32]*Type{}} }
func (t *Types) load(ctx context.Context, q Querier, oids []uint32) error { return errPending }
func (t *Types) resolve(oid uint32, typmod int32) (*Type, int32)          { return nil, 0 }
func (t *Types) title(oid uint32) string                                  { return "" }
func newMapper(m Mapping, types *Types) *Mapper                           { return &Mapper{m: m, types: types} }
func (m *Mapper) column(c Column) (*Coder, error)                         { return nil, errPending }

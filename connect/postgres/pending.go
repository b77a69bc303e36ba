package postgres

import "errors"

var errPending = errors.New("not there yet")

func newMapper(m Mapping, types *Types) *Mapper   { return &Mapper{m: m, types: types} }
func (m *Mapper) column(c Column) (*Coder, error) { return nil, errPending }

package postgres

import (
	"fmt"
	"strconv"
	"time"

	"millrace/connect/data"
)

// Convention says whose schemas columns get.
type Convention int

// The conventions.
const (
	JDBC     Convention = iota // Confluent's JDBC source
	Debezium                   // Debezium's connector
)

// TypeKey is the parameter of a schema that says which PostgreSQL type the column has, where the rest of the schema
// does not tell: inet, jsonb, int4range, text[].
const TypeKey = "pg.type"

// DefaultPlaceholder stands for a large value that did not change and so was not sent.
const DefaultPlaceholder = "__debezium_unavailable_value"

// Mapping says how columns become fields. What is empty is the default, which stands first.
type Mapping struct {
	Convention Convention

	Numeric     string         // JDBC: none, precision_only, best_fit, best_fit_eager_double
	Granularity string         // JDBC: connect_logical, {micros,nanos}_{long,string,iso_datetime_string}
	Zone        *time.Location // JDBC: of timestamps without a zone; nil is UTC

	Time        string // Debezium: adaptive{,_time_microseconds}, connect, isostring, {micro,nano}seconds, structured
	Decimal     string // Debezium: precise, double, string
	Interval    string // Debezium: numeric, string
	Hstore      string // Debezium: json, map
	Binary      string // Debezium: bytes, base64, base64-url-safe, hex
	MoneyDigits *int   // Debezium: digits behind money's point; nil is 2
	Unknown     bool   // Debezium: types without a mapping are the bytes of their text, else a STRING with TypeKey
	Placeholder string // Debezium: DefaultPlaceholder
}

// Coder translates the values of one column. It never changes, and may be used by many at the same time.
type Coder struct {
	// Schema is optional unless the column is NOT NULL.
	Schema *data.Schema
	// Decode makes a value of a column's text; it keeps no reference to the text. Nil is NULL, and gives nil.
	Decode func(text []byte) (any, error)
	// Placeholder stands for an unchanged value that was not sent, in the column's type; nil where there is none.
	Placeholder any
	// Type is the column's type below its domains.
	Type *Type
}

// Mapper makes coders. It is not safe for concurrent use.
type Mapper struct {
	m     Mapping
	types *Types
}

// NewMapper maps columns of types that are in types by then.
func NewMapper(m Mapping, types *Types) *Mapper {
	if m.Placeholder == "" {
		m.Placeholder = DefaultPlaceholder
	}
	return &Mapper{m: m, types: types}
}

// codec is how a type's values are made. The schema is filled in by whoever makes the codec.
type codec struct {
	decode decoder
	absent any // stands for a value that was not sent; nil: what the type has for that, or null
}

// Column makes the coder of a column. Of the column it looks at Name, Type, Typmod, NotNull and Dimensions: defaults
// are left out of schemas, since readers would put them where a row has null. An error is a type that is not in the
// Types.
func (m *Mapper) Column(c Column) (*Coder, error) {
	t, typmod := m.types.Resolve(c.Type, c.Typmod)
	if t == nil {
		return nil, fmt.Errorf("column %q: its type, with OID %d, is not in the catalog", c.Name, c.Type)
	}
	s := &data.Schema{Optional: !c.NotNull}
	var made codec
	switch {
	case t.Kind == Array && c.Dimensions > 1:
		made = m.text(s, t)
	case m.m.Convention == JDBC:
		made = m.jdbc(s, t, typmod)
	default:
		made = m.debezium(s, t, typmod)
	}
	s.Index()
	if made.absent == nil && c.NotNull {
		made.absent = zeroOf(s)
	}
	return &Coder{Schema: s, Decode: m.naming(c, made.decode), Placeholder: made.absent, Type: t}, nil
}

// naming has errors say which column they are of, and takes care of null.
func (m *Mapper) naming(c Column, decode decoder) decoder {
	title := m.types.Title(c.Type)
	return func(text []byte) (any, error) {
		if text == nil {
			return nil, nil
		}
		v, err := decode(text)
		if err != nil {
			return nil, fmt.Errorf("column %q of type %s: %w", c.Name, title, err)
		}
		return v, nil
	}
}

// logical fills a schema in as one of a logical type.
func logical(s *data.Schema, t data.Type, name string, fields ...data.Field) {
	s.Type, s.Name, s.Fields = t, name, fields
	if name != "" {
		s.Version = 1
	}
	s.Index()
}

func plain(s *data.Schema, t data.Type) { s.Type = t }

func setParameter(s *data.Schema, name, value string) {
	if s.Parameters == nil {
		s.Parameters = map[string]string{}
	}
	s.Parameters[name] = value
}

// text has values be the server's text, and the schema say of what type.
func (m *Mapper) text(s *data.Schema, t *Type) codec {
	plain(s, data.String)
	setParameter(s, TypeKey, m.types.Title(t.OID))
	return codec{decodeString, m.m.Placeholder}
}

// PrecisionKey is the parameter of a Decimal that says how many digits it has in all.
const PrecisionKey = "connect.decimal.precision"

func fillDecimal(s *data.Schema, precision, scale int) codec {
	logical(s, data.Bytes, data.Decimal)
	setParameter(s, data.ScaleKey, strconv.Itoa(scale))
	if precision > 0 {
		setParameter(s, PrecisionKey, strconv.Itoa(precision))
	}
	return codec{decodeDecimal(scale), nil}
}

// zeroOf is a value that fits a schema which takes no null, nil if there is none.
func zeroOf(s *data.Schema) any {
	switch s.Type {
	case data.Int8:
		return int8(0)
	case data.Int16:
		return int16(0)
	case data.Int32:
		return int32(0)
	case data.Int64:
		return int64(0)
	case data.Float32:
		return float32(0)
	case data.Float64:
		return float64(0)
	case data.Boolean:
		return false
	case data.String:
		return ""
	case data.Bytes:
		return []byte{0}
	case data.Array:
		return []any{}
	case data.Map:
		if s.Key.Type == data.String {
			return map[string]any{}
		}
		return []data.Entry{}
	case data.Struct:
		v := data.New(s)
		for i, f := range s.Fields {
			if !f.Schema.Optional {
				v.Values[i] = zeroOf(f.Schema)
			}
		}
		return v
	}
	return nil
}

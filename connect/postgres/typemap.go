package postgres

import (
	"time"

	"millrace/connect/data"
)

// World says whose schemas columns get.
type World int

// The worlds.
const (
	JDBC     World = iota // Confluent's JDBC source
	Debezium              // Debezium's connector
)

// TypeKey is the parameter of a schema that says which PostgreSQL type the column has, where the rest of the schema
// does not tell: inet, jsonb, int4range, text[].
const TypeKey = "pg.type"

// DefaultPlaceholder stands for a large value that did not change and so was not sent.
const DefaultPlaceholder = "__debezium_unavailable_value"

// Mapping says how columns become fields. What is empty is the default, which stands first.
type Mapping struct {
	World World

	Numeric     string         // JDBC: none, precision_only, best_fit, best_fit_eager_double
	Granularity string         // JDBC: connect_logical, {micros,nanos}_{long,string,iso_datetime_string}
	Zone        *time.Location // JDBC: of timestamps without a zone; nil is UTC

	Time        string // Debezium: adaptive, adaptive_time_microseconds, connect, isostring, microseconds, nanoseconds, structured
	Decimal     string // Debezium: precise, double, string
	Interval    string // Debezium: numeric, string
	Hstore      string // Debezium: json, map
	Binary      string // Debezium: bytes, base64, base64-url-safe, hex
	MoneyDigits *int   // Debezium: digits behind money's point; nil is 2
	Unknown     bool   // Debezium: types without a mapping are the bytes of their text, else a STRING with TypeKey
	Placeholder string // Debezium: DefaultPlaceholder

	Defaults bool // literal defaults of columns become defaults of schemas
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
func NewMapper(m Mapping, types *Types) *Mapper { return newMapper(m, types) }

// Column makes the coder of a column. Of the column it looks at Name, Type, Typmod, NotNull and Default. An error is a
// type that is not in the Types.
func (m *Mapper) Column(c Column) (*Coder, error) { return m.column(c) }

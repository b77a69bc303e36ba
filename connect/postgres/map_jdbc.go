package postgres

import (
	"strconv"
	"time"

	"millrace/connect/data"
)

// unboundScale is that of Decimals of columns that say neither precision nor scale.
const unboundScale = 127

// jdbc maps a type as Confluent's JDBC source does; what that leaves out is text.
func (m *Mapper) jdbc(s *data.Schema, t *Type, typmod int32) codec {
	if t.Kind == Enum {
		plain(s, data.String)
		return codec{decodeString, m.m.Placeholder}
	}
	if t.Schema != "pg_catalog" || t.Kind != Base {
		return m.text(s, t)
	}
	if c, ok := m.simple(s, t.Name); ok {
		return c
	}
	switch t.Name {
	case "numeric":
		return m.jdbcNumeric(s, typmod)
	case "money":
		plain(s, data.Float64)
		return codec{decodeMoney(m.moneyDigits(), decodeFloat64), nil}
	case "bytea":
		plain(s, data.Bytes)
		return codec{decodeBytes, []byte(m.m.Placeholder)}
	case "date":
		logical(s, data.Int32, data.Date)
		return codec{decodeDate, nil}
	case "time", "timetz":
		logical(s, data.Int32, data.Time)
		return codec{decodeTime(dayMillis, true), nil}
	case "timestamp":
		return m.jdbcStamp(s, m.m.Zone)
	case "timestamptz":
		return m.jdbcStamp(s, nil)
	case "bit", "varbit":
		return m.jdbcBits(s, t, typmod)
	case "uuid", "json", "jsonb", "xml":
		plain(s, data.String)
		if t.Name != "uuid" {
			setParameter(s, TypeKey, t.Name)
		}
		return codec{decodeString, m.m.Placeholder}
	}
	return m.text(s, t)
}

// simple maps the types that are the same in both conventions and need no setting.
func (m *Mapper) simple(s *data.Schema, name string) (c codec, ok bool) {
	switch name {
	case "bool":
		plain(s, data.Boolean)
		return codec{decodeBool, nil}, true
	case "int2":
		plain(s, data.Int16)
		return codec{decodeInt16, nil}, true
	case "int4":
		plain(s, data.Int32)
		return codec{decodeInt32, nil}, true
	case "int8", "oid":
		plain(s, data.Int64)
		return codec{decodeInt64, nil}, true
	case "float4":
		plain(s, data.Float32)
		return codec{decodeFloat32, nil}, true
	case "float8":
		plain(s, data.Float64)
		return codec{decodeFloat64, nil}, true
	case "text", "varchar", "bpchar", "name", "char":
		plain(s, data.String)
		return codec{decodeString, m.m.Placeholder}, true
	}
	return codec{}, false
}

func (m *Mapper) jdbcNumeric(s *data.Schema, typmod int32) codec {
	precision, scale := numericModifier(typmod)
	if precision == 0 {
		scale = unboundScale
	}
	switch mode := m.m.Numeric; {
	case mode == "" || mode == "none":
	case scale == 0 && precision < 19:
		return wholeNumber(s, precision)
	case mode == "precision_only":
	case scale > 0 && (mode == "best_fit_eager_double" || precision > 0 && precision <= 18):
		plain(s, data.Float64)
		return codec{decodeFloat64, nil}
	}
	return fillDecimal(s, precision, scale)
}

// wholeNumber is the smallest type that takes so many digits.
func wholeNumber(s *data.Schema, precision int) codec {
	switch {
	case precision < 3:
		plain(s, data.Int8)
		return codec{decodeInt8, nil}
	case precision < 5:
		plain(s, data.Int16)
		return codec{decodeInt16, nil}
	case precision < 10:
		plain(s, data.Int32)
		return codec{decodeInt32, nil}
	}
	plain(s, data.Int64)
	return codec{decodeInt64, nil}
}

func (m *Mapper) jdbcStamp(s *data.Schema, zone *time.Location) codec {
	number := func(perDay, infinity, negInfinity int64) codec {
		plain(s, data.Int64)
		return codec{inZone(zone, stampUnits(perDay, infinity, negInfinity)), nil}
	}
	text := func(make func(moment) (string, error)) codec {
		plain(s, data.String)
		return codec{inZone(zone, func(v moment) (any, error) { return make(v) }), nil}
	}
	switch m.m.Granularity {
	case "micros_long":
		return number(dayMicros, InfinityMicros, NegInfinityMicros)
	case "nanos_long":
		return number(dayNanos, InfinityNanos, NegInfinityNanos)
	case "micros_string":
		return text(stampDigits(dayMicros))
	case "nanos_string":
		return text(stampDigits(dayNanos))
	case "micros_iso_datetime_string":
		return text(func(v moment) (string, error) { return v.text(6, ""), nil })
	case "nanos_iso_datetime_string":
		return text(func(v moment) (string, error) { return v.text(9, ""), nil })
	}
	c := number(dayMillis, InfinityMicros, NegInfinityMicros)
	logical(s, data.Int64, data.Timestamp)
	return c
}

func stampUnits(perDay, infinity, negInfinity int64) func(moment) (any, error) {
	return func(v moment) (any, error) {
		switch {
		case v.infinity > 0:
			return infinity, nil
		case v.infinity < 0:
			return negInfinity, nil
		}
		return v.units(perDay)
	}
}

// stampDigits is the number as a text.
func stampDigits(perDay int64) func(moment) (string, error) {
	return func(v moment) (string, error) {
		if v.infinity != 0 {
			return v.text(0, ""), nil
		}
		n, err := v.units(perDay)
		return strconv.FormatInt(n, 10), err
	}
}

func (m *Mapper) jdbcBits(s *data.Schema, t *Type, typmod int32) codec {
	switch {
	case t.Name == "bit" && typmod == 1:
		plain(s, data.Boolean)
		return codec{decodeBit, nil}
	case t.Name == "bit" && typmod <= 8:
		plain(s, data.Int8)
		setParameter(s, TypeKey, "bit("+strconv.Itoa(int(typmod))+")")
		return codec{decodeBitInt, nil}
	}
	plain(s, data.Bytes)
	title := t.Name
	if typmod > 0 {
		title += "(" + strconv.Itoa(int(typmod)) + ")"
	}
	setParameter(s, TypeKey, title)
	return codec{decodeBits(t.Name == "varbit"), nil}
}

func (m *Mapper) moneyDigits() int {
	if m.m.MoneyDigits != nil {
		return *m.m.MoneyDigits
	}
	return 2
}

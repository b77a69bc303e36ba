package transform

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"millrace/connect/data"
	"millrace/connect/plugin"
)

// The forms of a time, by the names that the settings have for them.
const (
	formText      = "string"
	formUnix      = "unix"
	formDate      = "Date"
	formTime      = "Time"
	formTimestamp = "Timestamp"
)

func timestampConverterClass() class {
	target := required("target.type", plugin.String, "What the time becomes: string, unix, Date, Time or Timestamp.")
	target.Values = []string{formText, formUnix, formDate, formTime, formTimestamp}
	format := def("format", plugin.String, "", "How a text is written: a pattern of Java's SimpleDateFormat.")
	format.Check = isJavaPattern
	precision := def("unix.precision", plugin.String, "milliseconds", "What a number counts.")
	precision.Values = []string{"seconds", "milliseconds", "microseconds", "nanoseconds"}
	return class{
		name: kafka + "TimestampConverter", both: true,
		defs: plugin.Defs{
			def("field", plugin.String, "", "The field that is a time; the whole key or value if empty."),
			target, format, precision, replaceNull(),
		},
		make: func(p part, s plugin.Settings) (plugin.Transform, error) {
			t := &timestampConverter{part: p, field: s.String("field"), orDefault: s.Bool(replaceNullKey)}
			for _, form := range target.Values {
				if strings.EqualFold(form, s.String("target.type")) {
					t.target = form
				}
			}
			t.unit = map[string]time.Duration{
				"seconds": time.Second, "milliseconds": time.Millisecond,
				"microseconds": time.Microsecond, "nanoseconds": time.Nanosecond,
			}[s.Lower("unix.precision")]
			var err error
			if t.pattern, err = parseJavaPattern(s.String("format")); err == nil && t.target == formText && len(t.pattern) == 0 {
				err = errors.New("format: target.type string needs one")
			}
			return t, err
		},
	}
}

// timestampConverter changes the form of a time.
type timestampConverter struct {
	part      part
	field     string
	target    string
	pattern   javaPattern
	unit      time.Duration
	orDefault bool
	made      cache[*data.Schema]
}

// Apply implements plugin.Transform.
func (t *timestampConverter) Apply(r *data.Record) (*data.Record, error) {
	s, v := t.part.get(r)
	switch x := v.(type) {
	case *data.StructValue:
		if t.field != "" {
			return t.ofStruct(r, x)
		}
	case map[string]any:
		if t.field == "" {
			break
		}
		out := without(x, nil)
		to, err := t.convert(nil, x[t.field])
		if out[t.field] = to; err != nil {
			return nil, fmt.Errorf("TimestampConverter: field %q: %w", t.field, err)
		}
		return t.part.set(r, s, out), nil
	case nil:
		return r, nil
	}
	if t.field != "" {
		return nil, fmt.Errorf("TimestampConverter: the %s is %s, and has no field %q", t.part, kindOf(v), t.field)
	}
	out, err := t.convert(s, v)
	if err != nil {
		return nil, fmt.Errorf("TimestampConverter: the %s: %w", t.part, err)
	}
	if s != nil {
		s = t.schema(s)
	}
	return t.part.set(r, s, out), nil
}

func (t *timestampConverter) ofStruct(r *data.Record, x *data.StructValue) (*data.Record, error) {
	at := x.Schema.Field(t.field)
	if at < 0 {
		return nil, fmt.Errorf("TimestampConverter: the %s has no field %q", t.part, t.field)
	}
	to, err := t.made.get(x.Schema, func() (*data.Schema, error) {
		fields := slices.Clone(x.Schema.Fields)
		fields[at].Schema = t.schema(fields[at].Schema)
		return like(x.Schema, fields), nil
	})
	if err != nil {
		return nil, err
	}
	out := &data.StructValue{Schema: to, Values: slices.Clone(x.Values)}
	f := &x.Schema.Fields[at]
	if out.Values[at], err = t.convert(f.Schema, read(f, x.Values[at], t.orDefault)); err != nil {
		return nil, fmt.Errorf("TimestampConverter: field %q: %w", t.field, err)
	}
	return t.part.set(r, to, out), nil
}

// schema is the one of the new form.
func (t *timestampConverter) schema(s *data.Schema) *data.Schema {
	o := &data.Schema{Optional: s.Optional, Version: 1}
	switch t.target {
	case formText:
		o.Type, o.Version = data.String, 0
	case formUnix:
		o.Type, o.Version = data.Int64, 0
	case formDate:
		o.Type, o.Name = data.Int32, data.Date
	case formTime:
		o.Type, o.Name = data.Int32, data.Time
	case formTimestamp:
		o.Type, o.Name = data.Int64, data.Timestamp
	}
	return o
}

func (t *timestampConverter) convert(s *data.Schema, v any) (any, error) {
	if v == nil {
		return nil, nil
	}
	at, err := t.time(s, v)
	if err != nil {
		return nil, err
	}
	switch t.target {
	case formText:
		return t.pattern.format(at), nil
	case formUnix:
		if t.unit == time.Second {
			return at.Unix(), nil
		}
		if t.unit == time.Nanosecond {
			return at.UnixNano(), nil
		}
		return at.UnixMicro() / int64(t.unit/time.Microsecond), nil
	case formDate:
		return int32(floorDiv(at.Unix(), 86400)), nil
	case formTime:
		return int32(at.UnixMilli() - 86_400_000*floorDiv(at.Unix(), 86400)), nil
	default:
		return at.UnixMilli(), nil
	}
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// time reads a time by its schema or, where there is none, by what it is.
func (t *timestampConverter) time(s *data.Schema, v any) (time.Time, error) {
	if text, ok := v.(string); ok {
		if len(t.pattern) == 0 {
			return time.Time{}, errors.New("a text needs the setting format to be read as a time")
		}
		return t.pattern.parse(text)
	}
	n, ok := intOf(v)
	if _, truth := v.(bool); !ok || truth {
		return time.Time{}, fmt.Errorf("a value that is %s is no time", kindOf(v))
	}
	switch {
	case s.Is(data.Date):
		return time.Unix(n*86400, 0).UTC(), nil
	case s.Is(data.Time), s.Is(data.Timestamp):
		return time.UnixMilli(n).UTC(), nil
	case t.unit == time.Second:
		return time.Unix(n, 0).UTC(), nil
	case t.unit == time.Millisecond:
		return time.UnixMilli(n).UTC(), nil
	case t.unit == time.Microsecond:
		return time.UnixMicro(n).UTC(), nil
	default:
		return time.Unix(floorDiv(n, 1e9), n-1e9*floorDiv(n, 1e9)).UTC(), nil
	}
}

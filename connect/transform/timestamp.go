package transform

import (
	"errors"
	"fmt"
	"maps"
	"math"
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
	made      structs
}

// Apply implements plugin.Transform.
func (t *timestampConverter) Apply(r *data.Record) (*data.Record, error) {
	if t.field == "" {
		s, v := t.part.get(r)
		out, err := t.convert(s, v)
		if err != nil {
			return nil, fmt.Errorf("TimestampConverter: the %s: %w", t.part, err)
		}
		if s != nil {
			s, _ = t.made.get(s, func() (*data.Schema, error) { return t.schema(s), nil }) // it does not fail
		}
		return t.part.set(r, s, out), nil
	}
	x, m, err := t.part.object(r, "TimestampConverter")
	switch {
	case x != nil:
		return t.ofStruct(r, x)
	case m == nil:
		return r, err
	}
	out := maps.Clone(m)
	if out[t.field], err = t.convert(nil, m[t.field]); err != nil {
		return nil, fmt.Errorf("TimestampConverter: field %q: %w", t.field, err)
	}
	return t.part.set(r, nil, out), nil
}

// ofStruct changes a field of a struct, if it has it.
func (t *timestampConverter) ofStruct(r *data.Record, x *data.StructValue) (*data.Record, error) {
	at := x.Schema.Field(t.field)
	if at < 0 {
		return r, nil
	}
	to, err := t.made.get(x.Schema, func() (*data.Schema, error) {
		fields := slices.Clone(x.Schema.Fields)
		fields[at].Schema = t.schema(fields[at].Schema)
		return like(x.Schema, fields)
	})
	if err != nil {
		return nil, fmt.Errorf("TimestampConverter: %w", err)
	}
	out := &data.StructValue{Schema: to, Values: valuesOf(x, t.orDefault)}
	if out.Values[at], err = t.convert(x.Schema.Fields[at].Schema, out.Values[at]); err != nil {
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
		return t.unix(at)
	case formDate:
		return int32(floorDiv(at.Unix(), daySeconds)), nil
	case formTime:
		return int32(at.UnixMilli() - 1000*daySeconds*floorDiv(at.Unix(), daySeconds)), nil
	default:
		return at.UnixMilli(), nil
	}
}

const daySeconds = 24 * 60 * 60

// unix is a time in the unit that the settings name.
func (t *timestampConverter) unix(at time.Time) (int64, error) {
	perSecond := int64(time.Second / t.unit)
	n := at.Unix()*perSecond + int64(at.Nanosecond())/int64(t.unit)
	if floorDiv(n, perSecond) != at.Unix() {
		return 0, errFar
	}
	return n, nil
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// errFar says that a time is beyond what its form can hold, or the days that a Date can have.
var errFar = errors.New("the time is too far away")

// time reads a time by its schema or, where there is none, by what it is.
func (t *timestampConverter) time(s *data.Schema, v any) (at time.Time, err error) {
	if text, ok := v.(string); ok {
		if len(t.pattern) == 0 {
			return at, errors.New("a text needs the setting format to be read as a time")
		}
		at, err = t.pattern.parse(text)
	} else {
		at, err = t.number(s, v)
	}
	if day := floorDiv(at.Unix(), daySeconds); err == nil && (day > math.MaxInt32 || day < math.MinInt32) {
		err = errFar
	}
	return at, err
}

// number reads a time that is a number.
func (t *timestampConverter) number(s *data.Schema, v any) (at time.Time, err error) {
	n, ok := intOf(v)
	if _, truth := v.(bool); !ok || truth {
		return at, fmt.Errorf("a value that is %s is no time", kindOf(v))
	}
	unit := t.unit
	switch {
	case s.Is(data.Date):
		n, unit = n*daySeconds, time.Second
	case s.Is(data.Time), s.Is(data.Timestamp):
		unit = time.Millisecond
	}
	perSecond := int64(time.Second / unit)
	seconds := floorDiv(n, perSecond)
	return time.Unix(seconds, (n-seconds*perSecond)*int64(unit)).UTC(), nil
}

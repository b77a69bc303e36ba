package transform

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/connect/data"
	"millrace/connect/plugin"
)

// castTypes are the types that values are cast to.
func castTypes() []data.Type {
	return []data.Type{
		data.Int8, data.Int16, data.Int32, data.Int64, data.Float32, data.Float64, data.Boolean, data.String,
	}
}

func castClass() class {
	spec := required("spec", plugin.List, "Pairs field:type, or one type for the whole key or value. "+
		"Types: int8, int16, int32, int64, float32, float64, boolean, string.")
	spec.Check = func(v string) error { _, _, err := castSpec(v); return err }
	return class{
		name: kafka + "Cast", both: true, defs: plugin.Defs{spec, replaceNull()},
		make: func(p part, s plugin.Settings) (plugin.Transform, error) {
			all, fields, err := castSpec(s.String("spec"))
			return &cast{part: p, all: all, fields: fields, orDefault: s.Bool(replaceNullKey)}, err
		},
	}
}

// castSpec reads what is to be cast to what: fields, or all.
func castSpec(spec string) (all data.Type, fields map[string]data.Type, err error) {
	fields = map[string]data.Type{}
	count := 0
	for e := range strings.SplitSeq(spec, ",") {
		if e = strings.TrimSpace(e); e == "" {
			continue
		}
		count++
		name, kind, pair := strings.Cut(e, ":")
		if !pair {
			kind = name
		}
		i := slices.IndexFunc(castTypes(), func(t data.Type) bool {
			return strings.EqualFold(t.String(), strings.TrimSpace(kind))
		})
		switch {
		case i < 0:
			return 0, nil, fmt.Errorf("%q is no type that a value can be cast to", kind)
		case !pair:
			all = castTypes()[i]
		default:
			fields[strings.TrimSpace(name)] = castTypes()[i]
		}
	}
	switch {
	case count == 0:
		return 0, nil, errors.New("it says nothing")
	case all != 0 && count > 1:
		return 0, nil, errors.New("a type without a field stands alone")
	}
	return all, fields, nil
}

// cast changes the types of values.
type cast struct {
	part      part
	all       data.Type // 0: fields
	fields    map[string]data.Type
	orDefault bool
	made      structs
}

// Apply implements plugin.Transform.
func (t *cast) Apply(r *data.Record) (*data.Record, error) {
	if t.all != 0 {
		return t.whole(r)
	}
	x, m, err := t.part.object(r, "cast")
	switch {
	case x != nil:
		return t.ofStruct(r, x)
	case m == nil:
		return r, err
	}
	out := maps.Clone(m)
	for name, to := range t.fields {
		if out[name], err = castTo(to, nil, m[name]); err != nil {
			return nil, fmt.Errorf("cast: field %q: %w", name, err)
		}
	}
	return t.part.set(r, nil, out), nil
}

func (t *cast) whole(r *data.Record) (*data.Record, error) {
	s, v := t.part.get(r)
	if v == nil {
		return r, nil
	}
	out, err := castTo(t.all, s, v)
	if err != nil {
		return nil, fmt.Errorf("cast: the %s: %w", t.part, err)
	}
	if s != nil {
		if s, err = t.made.get(s, func() (*data.Schema, error) { return castSchema(t.all, s) }); err != nil {
			return nil, fmt.Errorf("cast: the default of the %s: %w", t.part, err)
		}
	}
	return t.part.set(r, s, out), nil
}

func (t *cast) ofStruct(r *data.Record, x *data.StructValue) (*data.Record, error) {
	to, err := t.made.get(x.Schema, func() (*data.Schema, error) {
		fields := slices.Clone(x.Schema.Fields)
		for i := range fields {
			kind, wanted := t.fields[fields[i].Name]
			if !wanted {
				continue
			}
			s, err := castSchema(kind, fields[i].Schema)
			if err != nil {
				return nil, fmt.Errorf("the default of field %q: %w", fields[i].Name, err)
			}
			fields[i].Schema = s
		}
		return like(x.Schema, fields)
	})
	if err != nil {
		return nil, fmt.Errorf("cast: %w", err)
	}
	out := &data.StructValue{Schema: to, Values: valuesOf(x, t.orDefault)}
	for i := range to.Fields {
		f := &x.Schema.Fields[i]
		if kind, wanted := t.fields[f.Name]; wanted {
			if out.Values[i], err = castTo(kind, f.Schema, out.Values[i]); err != nil {
				return nil, fmt.Errorf("cast: field %q: %w", f.Name, err)
			}
		}
	}
	return t.part.set(r, to, out), nil
}

func castSchema(t data.Type, s *data.Schema) (*data.Schema, error) {
	preset, err := castTo(t, s, s.Default)
	return &data.Schema{Type: t, Optional: s.Optional, Default: preset}, err
}

// typeOf is the type of a value, 0 of a null.
func typeOf(v any) data.Type {
	switch v.(type) {
	case int8:
		return data.Int8
	case int16:
		return data.Int16
	case int32:
		return data.Int32
	case int64:
		return data.Int64
	case float32:
		return data.Float32
	case float64:
		return data.Float64
	case bool:
		return data.Boolean
	case string:
		return data.String
	case []byte:
		return data.Bytes
	}
	return 0
}

// castTo casts a value, whose schema may be nil.
func castTo(t data.Type, s *data.Schema, v any) (any, error) {
	if v == nil {
		return nil, nil
	}
	switch t {
	case data.Int8:
		n, err := toInt(s, v, 8)
		return int8(n), err
	case data.Int16:
		n, err := toInt(s, v, 16)
		return int16(n), err
	case data.Int32:
		n, err := toInt(s, v, 32)
		return int32(n), err
	case data.Int64:
		return toInt(s, v, 64)
	case data.Float32:
		f, err := toFloat(s, v, 32)
		return float32(f), err
	case data.Float64:
		return toFloat(s, v, 64)
	case data.Boolean:
		return toBool(s, v)
	default:
		return toText(s, v)
	}
}

// intOf is a whole number of any size.
func intOf(v any) (int64, bool) {
	switch n := v.(type) {
	case int8:
		return int64(n), true
	case int16:
		return int64(n), true
	case int32:
		return int64(n), true
	case int64:
		return n, true
	case bool:
		if n {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

func toInt(s *data.Schema, v any, bits int) (n int64, err error) {
	n, ok := intOf(v)
	if !ok {
		switch x := v.(type) {
		case float32, float64:
			f, _ := toFloat(s, x, 64)
			// The bounds of int64 are not floats; beyond them the conversion means nothing.
			if n = int64(f); math.IsNaN(f) || f < math.MinInt64 || f >= math.MaxInt64 {
				return 0, fmt.Errorf("%v is no whole number of %d bits", f, bits)
			}
		case string:
			if n, err = strconv.ParseInt(strings.TrimSpace(x), 10, bits); err != nil {
				return 0, fmt.Errorf("a text is no whole number of %d bits", bits)
			}
		case []byte:
			scaled, err := decimal(s, x)
			if err != nil {
				return 0, err
			}
			whole := new(big.Int).Quo(scaled.Num(), scaled.Denom())
			if n = whole.Int64(); !whole.IsInt64() {
				return 0, fmt.Errorf("a decimal is no whole number of %d bits", bits)
			}
		default:
			return 0, fmt.Errorf("a value that is %s cannot be cast to a number", kindOf(v))
		}
	}
	if shift := 64 - bits; n<<shift>>shift != n {
		return 0, fmt.Errorf("%d does not fit into %d bits", n, bits)
	}
	return n, nil
}

// scaleOf is the scale of a Decimal.
func scaleOf(s *data.Schema) (int, error) {
	scale, err := strconv.Atoi(s.Parameters[data.ScaleKey])
	if err != nil || scale > 100_000 || scale < -100_000 {
		return 0, errors.New("a decimal's schema has no scale that can be used")
	}
	return scale, nil
}

// decimal is the number of a Decimal.
func decimal(s *data.Schema, b []byte) (*big.Rat, error) {
	if !s.Is(data.Decimal) {
		return nil, errors.New("bytes cannot be cast to a number")
	}
	scale, err := scaleOf(s)
	if err != nil {
		return nil, err
	}
	r := new(big.Rat).SetInt(data.DecimalInt(b))
	return r.Quo(r, power(scale)), nil
}

// power is a power of ten.
func power(n int) *big.Rat {
	r := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(n, -n))), nil))
	if n < 0 {
		r.Inv(r)
	}
	return r
}

// toDecimal is the number in a text as a value of a Decimal.
func toDecimal(s *data.Schema, text string) ([]byte, error) {
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil, errors.New("a text is no number")
	}
	scale, err := scaleOf(s)
	if err != nil {
		return nil, err
	}
	if r.Mul(r, power(scale)); !r.IsInt() {
		return nil, fmt.Errorf("a number has more than the %d digits behind the point that a decimal has", scale)
	}
	return data.DecimalBytes(r.Num()), nil
}

func toFloat(s *data.Schema, v any, bits int) (float64, error) {
	if n, ok := intOf(v); ok {
		return float64(n), nil
	}
	switch x := v.(type) {
	case float32:
		return float64(x), nil
	case float64:
		return x, nil
	case string:
		f, err := strconv.ParseFloat(strings.TrimSpace(x), bits)
		if err != nil {
			return 0, errors.New("a text is no number")
		}
		return f, nil
	case []byte:
		r, err := decimal(s, x)
		if err != nil {
			return 0, err
		}
		f, _ := r.Float64()
		return f, nil
	}
	return 0, fmt.Errorf("a value that is %s cannot be cast to a number", kindOf(v))
}

func toBool(s *data.Schema, v any) (bool, error) {
	if x, ok := v.(string); ok {
		return strings.EqualFold(x, "true"), nil
	}
	f, err := toFloat(s, v, 64)
	return math.Abs(f) >= 1, err // of a number only what stands before the point counts
}

func toText(s *data.Schema, v any) (string, error) {
	if text, ok := logicalText(s, v); ok {
		return text, nil
	}
	switch x := v.(type) {
	case string:
		return x, nil
	case bool:
		return strconv.FormatBool(x), nil
	case float32:
		return javaFloat(float64(x), 32), nil
	case float64:
		return javaFloat(x, 64), nil
	case []byte:
		if !s.Is(data.Decimal) {
			return base64.StdEncoding.EncodeToString(x), nil
		}
		r, err := decimal(s, x)
		if err != nil {
			return "", err
		}
		scale, _ := scaleOf(s) // decimal has read it
		return r.FloatString(max(scale, 0)), nil
	}
	if n, ok := intOf(v); ok {
		return strconv.FormatInt(n, 10), nil
	}
	return "", fmt.Errorf("a value that is %s cannot be cast to a text", kindOf(v))
}

// logicalText is how dates and times are written.
func logicalText(s *data.Schema, v any) (string, bool) {
	if s == nil {
		return "", false
	}
	n, ok := intOf(v)
	switch {
	case !ok:
	case s.Name == data.Date:
		return time.Unix(n*86400, 0).UTC().Format(time.DateOnly), true
	case s.Name == data.Time:
		return time.UnixMilli(n).UTC().Format("15:04:05.000Z"), true
	case s.Name == data.Timestamp:
		return time.UnixMilli(n).UTC().Format("2006-01-02T15:04:05.000Z"), true
	}
	return "", false
}

// javaFloat writes a float as Java does.
func javaFloat(f float64, bits int) string {
	abs := math.Abs(f)
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 0):
		return strings.TrimPrefix(strconv.FormatFloat(f, 'f', -1, bits), "+") + "inity"
	case abs != 0 && (abs < 1e-3 || abs >= 1e7):
		mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'E', -1, bits), "E")
		if !strings.Contains(mantissa, ".") {
			mantissa += ".0"
		}
		n, _ := strconv.Atoi(exponent) // it was written just now
		return mantissa + "E" + strconv.Itoa(n)
	}
	text := strconv.FormatFloat(f, 'f', -1, bits)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

package sink

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"millrace/connect/data"
	"millrace/connect/postgres"
)

// array is the encoder for a column of arrays.
func (c *codec) array(s *data.Schema, t *columnType) encoder {
	if s.Type == data.String { // an array in PostgreSQL's own words
		return c.text
	}
	if s.Type != data.Array || s.Elem == nil || t.elem == nil {
		return nil
	}
	if s.Elem.Type == data.Array && t.elem.Kind != postgres.Array { // an array of arrays is of one type
		inner := c.array(s.Elem, t)
		if inner == nil {
			return nil
		}
		return arrayOf(inner, t)
	}
	e := c.typed(s.Elem, t.elem)
	if e == nil {
		return nil
	}
	return arrayOf(e, t)
}

// arrayOf writes elements in braces. Elements that are arrays, which a loose value may have, nest.
func arrayOf(elem encoder, t *columnType) encoder {
	delimiter := byte(',')
	if t.elem != nil && t.elem.Delimiter != 0 {
		delimiter = t.elem.Delimiter
	}
	var write encoder
	write = func(dst []byte, v any) (out []byte, err error) {
		a, ok := v.([]any)
		if !ok {
			return dst, errUnfit
		}
		dst = append(dst, '{')
		for i, v := range a {
			if i > 0 {
				dst = append(dst, delimiter)
			}
			_, nested := v.([]any)
			switch {
			case v == nil:
				dst = append(dst, "NULL"...)
			case nested && t.elem.Kind != postgres.Array && !pgvector(t.elem):
				if dst, err = write(dst, v); err != nil {
					return dst, err
				}
			default:
				from := len(dst)
				if dst, err = elem(dst, v); err != nil {
					return dst, err
				}
				dst = quoteElement(dst, from)
			}
		}
		return append(dst, '}'), nil
	}
	return write
}

// quoteElement puts what was appended from a place on into quotes, unless it is plain.
func quoteElement(dst []byte, from int) []byte {
	text := string(dst[from:])
	plain := text != "" && text != "NULL" && text != "null"
	for i := 0; plain && i < len(text); i++ {
		b := text[i]
		plain = b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b == '.' || b == '-' || b == '_'
	}
	if plain && len(text) == 4 {
		plain = text[0]|0x20 != 'n' // NULL in any case
	}
	if plain {
		return dst
	}
	dst = append(dst[:from], '"')
	for i := range len(text) {
		if text[i] == '"' || text[i] == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, text[i])
	}
	return append(dst, '"')
}

// special is the encoder for types that take values in forms of their own; false if it has nothing to say.
func (c *codec) special(s *data.Schema, t *columnType) (encoder, bool) {
	switch {
	case t.OID == oidPoint || t.OID == oidLine || t.OID == oidCircle || t.OID >= oidLseg && t.OID <= oidPolygon:
		if s.Type == data.Struct {
			return geometric(t.OID), true
		}
	case t.Name == "geometry" || t.Name == "geography":
		if s.Type == data.Struct {
			return encodeWKB, true
		}
	case pgvector(t):
		switch {
		case s.Type == data.Array && s.Elem != nil:
			if e := numberEncoder(s.Elem, false); e != nil {
				return vectorOf(e), true
			}
		case s.Type == data.Struct:
			return encodeSparseVector, true
		}
	case t.Name == "hstore":
		switch s.Type {
		case data.String:
			return c.hstoreText, true
		case data.Map:
			return c.hstoreMap, true
		}
	case t.Kind == postgres.Composite && s.Type == data.Struct:
		return c.composite, true
	}
	return nil, false
}

func pgvector(t *columnType) bool {
	return t.Name == "vector" || t.Name == "halfvec" || t.Name == "sparsevec"
}

func vectorOf(e encoder) encoder {
	return func(dst []byte, v any) (out []byte, err error) {
		a, ok := v.([]any)
		if !ok {
			return dst, errUnfit
		}
		dst = append(dst, '[')
		for i, x := range a {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = e(dst, x); err != nil {
				return dst, err
			}
		}
		return append(dst, ']'), nil
	}
}

func encodeSparseVector(dst []byte, v any) ([]byte, error) {
	s, ok := v.(*data.StructValue)
	if !ok {
		return dst, errUnfit
	}
	dimensions, _ := s.Get("dimensions")
	vector, _ := s.Get("vector")
	n, ok := wholeNumber(dimensions)
	entries, isMap := vector.([]data.Entry)
	if !ok || !isMap {
		return dst, errUnfit
	}
	dst = append(dst, '{')
	for i, e := range entries {
		k, ok := wholeNumber(e.Key)
		if !ok {
			return dst, errUnfit
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(strconv.AppendInt(dst, k, 10), ':')
		var err error
		if dst, err = encodeFloat(dst, e.Value); err != nil {
			return dst, err
		}
	}
	return strconv.AppendInt(append(dst, "}/"...), n, 10), nil
}

// hstoreText is hstore's own text, or a JSON object of texts.
func (c *codec) hstoreText(dst []byte, v any) ([]byte, error) {
	s, ok := v.(string)
	if !ok {
		return dst, errUnfit
	}
	var m map[string]*string
	if s == "" || s[0] != '{' {
		return c.appendText(dst, s)
	}
	if err := json.Unmarshal([]byte(s), &m); err != nil {
		return dst, fmt.Errorf("the text is no JSON object of texts: %w", errUnfit)
	}
	values := make(map[string]any, len(m))
	for k, p := range m {
		if values[k] = nil; p != nil {
			values[k] = *p
		}
	}
	return c.hstoreMap(dst, values)
}

func (c *codec) hstoreMap(dst []byte, v any) (out []byte, err error) {
	m, ok := v.(map[string]any)
	if !ok {
		return dst, errUnfit
	}
	for i, k := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		from := len(dst)
		if dst, err = c.appendText(dst, k); err != nil {
			return dst, err
		}
		dst = append(quoteElement(dst, from), "=>"...)
		if m[k] == nil {
			dst = append(dst, "NULL"...)
			continue
		}
		from = len(dst)
		if dst, err = c.text(dst, m[k]); err != nil {
			return dst, err
		}
		dst = quoteElement(dst, from)
	}
	return dst, nil
}

// composite writes a struct's values in the order of its fields, as the text of a row.
func (c *codec) composite(dst []byte, v any) (out []byte, err error) {
	s, ok := v.(*data.StructValue)
	if !ok {
		return dst, errUnfit
	}
	dst = append(dst, '(')
	for i, x := range s.Values {
		if i > 0 {
			dst = append(dst, ',')
		}
		if x == nil {
			continue
		}
		e := c.plain(s.Schema.Fields[i].Schema)
		if e == nil {
			return dst, errUnfit
		}
		from := len(dst)
		if dst, err = e(dst, x); err != nil {
			return dst, err
		}
		dst = quoteElement(dst, from)
	}
	return append(dst, ')'), nil
}

// plain is the encoder for values of a schema whatever the column's type.
func (c *codec) plain(s *data.Schema) encoder {
	t := typeOf(s)
	if t == 0 {
		return nil
	}
	return c.typed(s, &columnType{Type: &postgres.Type{OID: t, Kind: postgres.Base}})
}

// typeOf is the built-in type that holds values of a schema, 0 if only its name can say.
func typeOf(s *data.Schema) uint32 {
	switch s.Name {
	case data.Decimal, variableScaleDecimal:
		return oidNumeric
	case data.Date, tDate:
		return oidDate
	case data.Time, tTime, tMicroTime, tNanoTime:
		return oidTime
	case data.Timestamp, tTimestamp, tMicroTimestamp, tNanoTimestamp:
		return oidTimestamp
	case tMicroDuration, tNanoDuration:
		return oidInterval
	case bitsName:
		return oidVarbit
	}
	return map[data.Type]uint32{data.Int8: oidInt2, data.Int16: oidInt2, data.Int32: oidInt4, data.Int64: oidInt8,
		data.Float32: oidFloat4, data.Float64: oidFloat8, data.Boolean: oidBool, data.String: oidText,
		data.Bytes: oidBytea}[s.Type]
}

// geometric writes points and what is made of them from structs with numbers, or with Well-Known Binary.
func geometric(oid uint32) encoder {
	return func(dst []byte, v any) ([]byte, error) {
		s, ok := v.(*data.StructValue)
		if !ok {
			return dst, errUnfit
		}
		switch oid {
		case oidPoint:
			return appendNumbers(dst, s, "(", ")", "x", "y")
		case oidLine:
			return appendNumbers(dst, s, "{", "}", "a", "b", "c")
		case oidCircle:
			return encodeCircle(dst, s)
		}
		b, _ := s.Get("wkb")
		wkb, ok := b.([]byte)
		if !ok {
			return dst, errUnfit
		}
		points, closed, err := readWKB(wkb)
		if err != nil {
			return dst, err
		}
		extensions, _ := s.Get("extensions")
		if m, _ := extensions.(map[string]any); m["closed"] == "true" {
			return appendPoints(dst, points, "()"), nil
		}
		if oid == oidPolygon || oid == oidPath && closed {
			if n := len(points); n > 1 && points[0] == points[n-1] {
				points = points[:n-1]
			}
		}
		if oid == oidBox && len(points) > 2 {
			points = corners(points)
		}
		brackets := "()"
		if oid == oidLseg || oid == oidPath && !closed {
			brackets = "[]"
		}
		return appendPoints(dst, points, brackets), nil
	}
}

// appendNumbers writes the named fields in brackets, with commas between them.
func appendNumbers(dst []byte, s *data.StructValue, open, end string, names ...string) (out []byte, err error) {
	dst = append(dst, open...)
	for i, name := range names {
		if i > 0 {
			dst = append(dst, ',')
		}
		v, _ := s.Get(name)
		if dst, err = encodeFloat(dst, v); err != nil {
			return dst, err
		}
	}
	return append(dst, end...), nil
}

func encodeCircle(dst []byte, s *data.StructValue) ([]byte, error) {
	center, _ := s.Get("center")
	p, ok := center.(*data.StructValue)
	if !ok {
		return dst, errUnfit
	}
	dst, err := appendNumbers(append(dst, '<'), p, "(", ")", "x", "y")
	if err != nil {
		return dst, err
	}
	return appendNumbers(append(dst, ','), s, "", ">", "radius")
}

type point [2]float64

func corners(points []point) []point {
	low, high := points[0], points[0]
	for _, p := range points {
		for i := range p {
			low[i], high[i] = math.Min(low[i], p[i]), math.Max(high[i], p[i])
		}
	}
	return []point{high, low}
}

func appendPoints(dst []byte, points []point, brackets string) []byte {
	dst = append(dst, brackets[0])
	for i, p := range points {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendFloat(append(dst, '('), p[0], 'g', -1, 64)
		dst = strconv.AppendFloat(append(dst, ','), p[1], 'g', -1, 64)
		dst = append(dst, ')')
	}
	return append(dst, brackets[1])
}

var errWKB = fmt.Errorf("no Well-Known Binary of a line or polygon: %w", errUnfit)

// readWKB reads the points of a line or of a polygon's outline. Closed: it is a polygon.
func readWKB(b []byte) (points []point, closed bool, err error) {
	const polygon, srid = 3, 0x20000000
	if len(b) < 9 || b[0] > 1 {
		return nil, false, errWKB
	}
	order := binary.ByteOrder(binary.BigEndian)
	if b[0] == 1 {
		order = binary.LittleEndian
	}
	kind := order.Uint32(b[1:])
	if b = b[5:]; kind&srid != 0 && len(b) >= 8 {
		b = b[4:]
	}
	if kind &^= srid; kind == polygon {
		if order.Uint32(b) != 1 || len(b) < 8 {
			return nil, false, errWKB
		}
		b = b[4:]
	} else if kind != 2 {
		return nil, false, errWKB
	}
	n := int(order.Uint32(b))
	if b = b[4:]; len(b) != n*16 {
		return nil, false, errWKB
	}
	for range n {
		points = append(points, point{math.Float64frombits(order.Uint64(b)), math.Float64frombits(order.Uint64(b[8:]))})
		b = b[16:]
	}
	return points, kind == polygon, nil
}

// encodeWKB writes what PostGIS reads: the system of coordinates, if there is one, and Well-Known Binary in hex.
func encodeWKB(dst []byte, v any) ([]byte, error) {
	s, ok := v.(*data.StructValue)
	if !ok {
		return dst, errUnfit
	}
	b, _ := s.Get("wkb")
	wkb, ok := b.([]byte)
	if !ok {
		return dst, errUnfit
	}
	srid, _ := s.Get("srid")
	if n, ok := wholeNumber(srid); ok && n != 0 {
		dst = append(dst, "SRID="...)
		dst = append(strconv.AppendInt(dst, n, 10), ';')
	}
	return hex.AppendEncode(dst, wkb), nil
}

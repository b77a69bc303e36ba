package sink

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"millrace/connect/data"
	"millrace/connect/postgres"
)

// encoder appends the text of a value, never a null, as the input function of the column's type reads it.
type encoder func(dst []byte, v any) ([]byte, error)

// columnType is a column's type below its domains.
type columnType struct {
	*postgres.Type
	typmod int32       // -1: none
	elem   *columnType // of an array
}

// codec holds what encoders depend on beside types.
type codec struct {
	zone     *time.Location // of Connect's own timestamps in columns without a zone
	stripNUL bool           // else text with a NUL is refused
}

// The OIDs of built-in types.
const (
	oidBool, oidBytea, oidChar, oidName    = 16, 17, 18, 19
	oidInt8, oidInt2, oidInt4              = 20, 21, 23
	oidText, oidOID, oidXID                = 25, 26, 28
	oidJSON, oidXML                        = 114, 142
	oidPoint, oidLseg, oidPath, oidBox     = 600, 601, 602, 603
	oidPolygon, oidLine, oidCircle         = 604, 628, 718
	oidFloat4, oidFloat8, oidMoney         = 700, 701, 790
	oidBpchar, oidVarchar                  = 1042, 1043
	oidDate, oidTime, oidTimestamp         = 1082, 1083, 1114
	oidTimestamptz, oidInterval, oidTimetz = 1184, 1186, 1266
	oidBit, oidVarbit, oidNumeric, oidUUID = 1560, 1562, 1700, 2950
	oidJSONB, oidXID8                      = 3802, 5069
)

// errUnfit is of a value that does not fit its column, where the schema does not tell beforehand.
var errUnfit = errors.New("the value does not fit the type of the column")

// encoder makes the encoder of values of a schema for a column. A nil schema means that each value has to be looked at.
// An error says that no value of the schema fits.
func (c *codec) encoder(s *data.Schema, t *columnType) (encoder, error) {
	if s == nil {
		return c.loose(t), nil
	}
	e := c.typed(s, t)
	if e == nil {
		return nil, fmt.Errorf("values of type %s do not fit type %s", describe(s), t.Name)
	}
	return e, nil
}

// describe names a schema's type.
func describe(s *data.Schema) string {
	if s.Name != "" && s.Type != data.Struct {
		return s.Type.String() + " (" + s.Name + ")"
	}
	return s.Type.String()
}

// typed is the encoder for values of a schema, nil if they cannot be in the column.
func (c *codec) typed(s *data.Schema, t *columnType) encoder {
	if t.Kind == postgres.Array {
		return c.array(s, t)
	}
	if e, ok := c.special(s, t); ok {
		return e
	}
	if s.Type == data.String && s.Parameters[postgres.TypeKey] != "" && t.OID != oidBytea && !timeType(t.OID) {
		return c.text // the server's own words
	}
	switch t.OID {
	case oidBool:
		return only(s, data.Boolean, encodeBool)
	case oidInt2, oidInt4, oidInt8, oidOID, oidXID, oidXID8:
		return integerEncoder(s)
	case oidFloat4, oidFloat8:
		return numberEncoder(s, false)
	case oidNumeric, oidMoney:
		return numberEncoder(s, true)
	case oidBytea:
		return only(s, data.Bytes, encodeBytes)
	case oidJSON, oidJSONB:
		return c.json(s)
	case oidDate, oidTime, oidTimetz, oidTimestamp, oidTimestamptz, oidInterval:
		return c.temporal(s, t.OID)
	case oidBit, oidVarbit:
		return bitEncoder(s, t)
	}
	if s.Type == data.String { // all else is read by the server: uuid, inet, enums, ranges, xml...
		return c.text
	}
	if s.Type == data.Bytes && s.Name == "" && s.Parameters[postgres.TypeKey] != "" && !textual(t.OID) {
		return encodeOpaque
	}
	return nil
}

func timeType(oid uint32) bool {
	return oid == oidTimestamp || oid == oidTimestamptz || oid == oidDate || oid == oidTime
}

func textual(oid uint32) bool {
	return oid == oidText || oid == oidVarchar || oid == oidBpchar || oid == oidName
}

// encodeOpaque hands bytes to the server that are the text of a type which has no form of its own in schemas.
func encodeOpaque(dst []byte, v any) ([]byte, error) {
	b, ok := v.([]byte)
	if !ok || bytes.IndexByte(b, 0) >= 0 {
		return dst, errUnfit
	}
	return append(dst, b...), nil
}

func only(s *data.Schema, t data.Type, e encoder) encoder {
	if s.Type != t || s.Name == data.Decimal {
		return nil
	}
	return e
}

// loose encodes values that have no schema, by what each is.
func (c *codec) loose(t *columnType) encoder {
	byType := map[data.Type]encoder{}
	return func(dst []byte, v any) ([]byte, error) {
		k, ok := looseType(v)
		if !ok {
			return dst, errUnfit
		}
		e, known := byType[k]
		if !known {
			e = c.looseOf(k, t)
			byType[k] = e
		}
		if e == nil {
			return dst, errUnfit
		}
		return e(dst, v)
	}
}

func looseType(v any) (data.Type, bool) {
	switch v.(type) {
	case bool:
		return data.Boolean, true
	case int64:
		return data.Int64, true
	case float64:
		return data.Float64, true
	case string:
		return data.String, true
	case []byte:
		return data.Bytes, true
	case []any:
		return data.Array, true
	case map[string]any:
		return data.Map, true
	}
	return 0, false
}

// looseOf encodes values of one of JSON's types. Text is read by the server whatever the column's type, as there is no
// other way to say most of them in JSON; numbers are no text, and no points in time.
func (c *codec) looseOf(k data.Type, t *columnType) encoder {
	switch {
	case t.Kind == postgres.Array && k == data.Array:
		return arrayOf(c.loose(t.elem), t)
	case t.OID == oidJSON || t.OID == oidJSONB:
		if k == data.String {
			return c.text
		}
		return jsonOf(nil)
	case k == data.String && t.OID == oidBytea:
		return encodeBase64
	case k == data.String:
		return c.text
	case k == data.Float64 && integerType(t.OID):
		return encodeWholeFloat
	case k == data.Int64 && t.OID == oidDate:
		return encodeDays
	case k == data.Array && t.Kind != postgres.Array:
		return nil
	}
	return c.typed(&data.Schema{Type: k, Elem: nil}, t)
}

func integerType(oid uint32) bool {
	return oid == oidInt2 || oid == oidInt4 || oid == oidInt8 || oid == oidOID || oid == oidXID8
}

var errNUL = errors.New("text with a NUL character, which PostgreSQL cannot hold (SQLSTATE 22021; " +
	"text.nul=strip removes them)")

var errUTF8 = errors.New("text that is no UTF-8 (SQLSTATE 22021)")

// text hands text to the server as it is.
func (c *codec) text(dst []byte, v any) ([]byte, error) {
	s, ok := v.(string)
	if !ok {
		return dst, errUnfit
	}
	return c.appendText(dst, s)
}

func (c *codec) appendText(dst []byte, s string) ([]byte, error) {
	if !utf8.ValidString(s) {
		return dst, errUTF8
	}
	if strings.IndexByte(s, 0) < 0 {
		return append(dst, s...), nil
	}
	if !c.stripNUL {
		return dst, errNUL
	}
	return append(dst, strings.ReplaceAll(s, "\x00", "")...), nil
}

func encodeBool(dst []byte, v any) ([]byte, error) {
	switch v {
	case true:
		return append(dst, 't'), nil
	case false:
		return append(dst, 'f'), nil
	}
	return dst, errUnfit
}

func encodeBytes(dst []byte, v any) ([]byte, error) {
	b, ok := v.([]byte)
	if !ok {
		return dst, errUnfit
	}
	return hex.AppendEncode(append(dst, '\\', 'x'), b), nil
}

func encodeBase64(dst []byte, v any) ([]byte, error) {
	s, _ := v.(string)
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return dst, errors.New("the text is no base64, which a value of type bytes is without a schema")
	}
	return encodeBytes(dst, b)
}

// wholeNumber is an integer's value.
func wholeNumber(v any) (int64, bool) {
	switch n := v.(type) {
	case int8:
		return int64(n), true
	case int16:
		return int64(n), true
	case int32:
		return int64(n), true
	case int64:
		return n, true
	}
	return 0, false
}

func isInteger(t data.Type) bool { return t >= data.Int8 && t <= data.Int64 }

func encodeInteger(dst []byte, v any) ([]byte, error) {
	n, ok := wholeNumber(v)
	if !ok {
		return dst, errUnfit
	}
	return strconv.AppendInt(dst, n, 10), nil
}

func encodeWholeFloat(dst []byte, v any) ([]byte, error) {
	f, _ := v.(float64)
	if f != math.Trunc(f) || math.Abs(f) >= 1<<63 {
		return dst, errors.New("the number is not whole")
	}
	return strconv.AppendInt(dst, int64(f), 10), nil
}

func integerEncoder(s *data.Schema) encoder {
	if isInteger(s.Type) {
		return encodeInteger
	}
	if s.Name != data.Decimal {
		return nil
	}
	scale := scaleOf(s)
	return func(dst []byte, v any) ([]byte, error) {
		b, ok := v.([]byte)
		if !ok {
			return dst, errUnfit
		}
		n := data.DecimalInt(b)
		p := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(abs(scale))), nil)
		if scale < 0 {
			return n.Mul(n, p).Append(dst, 10), nil
		}
		q, r := new(big.Int).QuoRem(n, p, new(big.Int))
		if r.Sign() != 0 {
			return dst, errors.New("the number is not whole")
		}
		return q.Append(dst, 10), nil
	}
}

func abs(n int) int {
	if n < 0 {
		return -n
	}
	return n
}

func scaleOf(s *data.Schema) int {
	n, _ := strconv.Atoi(s.Parameters[data.ScaleKey])
	return n
}

// jdbcScale is that of numbers whose column has none, as JDBC sources have it. The zeros are not the number's.
const jdbcScale = 127

const variableScaleDecimal = "io.debezium.data.VariableScaleDecimal"

// numberEncoder is for columns that hold any number. Texts are numbers where the column is exact: that is how sources
// carry what no other type can.
func numberEncoder(s *data.Schema, exact bool) encoder {
	switch {
	case s.Name == data.Decimal:
		scale := scaleOf(s)
		return func(dst []byte, v any) ([]byte, error) {
			b, ok := v.([]byte)
			if !ok {
				return dst, errUnfit
			}
			if dst = appendDecimal(dst, data.DecimalInt(b), scale); scale == jdbcScale {
				dst = bytes.TrimRight(bytes.TrimRight(dst, "0"), ".")
			}
			return dst, nil
		}
	case s.Type == data.Struct && s.Name == variableScaleDecimal:
		return encodeVariableDecimal
	case isInteger(s.Type):
		return encodeInteger
	case s.Type == data.Float32 || s.Type == data.Float64:
		return encodeFloat
	case s.Type == data.String && exact:
		return encodeNumberText
	}
	return nil
}

func encodeVariableDecimal(dst []byte, v any) ([]byte, error) {
	s, ok := v.(*data.StructValue)
	if !ok {
		return dst, errUnfit
	}
	scale, _ := s.Get("scale")
	unscaled, _ := s.Get("value")
	n, ok := wholeNumber(scale)
	b, isBytes := unscaled.([]byte)
	if !ok || !isBytes {
		return dst, errUnfit
	}
	return appendDecimal(dst, data.DecimalInt(b), int(n)), nil
}

// appendDecimal writes an unscaled number with its point. The digits behind it are kept, so that 1.50 stays 1.50.
func appendDecimal(dst []byte, n *big.Int, scale int) []byte {
	if scale <= 0 {
		dst = n.Append(dst, 10)
		if n.Sign() != 0 && scale < 0 {
			dst = append(dst, 'e')
			dst = strconv.AppendInt(dst, int64(-scale), 10)
		}
		return dst
	}
	if n.Sign() < 0 {
		dst = append(dst, '-')
	}
	digits := new(big.Int).Abs(n).Append(nil, 10)
	if len(digits) <= scale {
		dst = append(dst, '0')
	} else {
		dst = append(dst, digits[:len(digits)-scale]...)
		digits = digits[len(digits)-scale:]
	}
	dst = append(dst, '.')
	for range scale - len(digits) {
		dst = append(dst, '0')
	}
	return append(dst, digits...)
}

func encodeFloat(dst []byte, v any) ([]byte, error) {
	f, bits := 0.0, 64
	switch x := v.(type) {
	case float64:
		f = x
	case float32:
		f, bits = float64(x), 32
	default:
		return dst, errUnfit
	}
	switch {
	case math.IsNaN(f):
		return append(dst, "NaN"...), nil
	case math.IsInf(f, 1):
		return append(dst, "Infinity"...), nil
	case math.IsInf(f, -1):
		return append(dst, "-Infinity"...), nil
	}
	return strconv.AppendFloat(dst, f, 'g', -1, bits), nil
}

func encodeNumberText(dst []byte, v any) ([]byte, error) {
	s, ok := v.(string)
	if !ok || strings.IndexByte(s, 0) >= 0 {
		return dst, errUnfit
	}
	return append(dst, s...), nil
}

const bitsName = "io.debezium.data.Bits"

// bitEncoder is for bit and bit varying. Bits come in bytes, the lowest first, or in the bits of an INT8.
func bitEncoder(s *data.Schema, t *columnType) encoder {
	switch {
	case s.Type == data.Boolean:
		return func(dst []byte, v any) ([]byte, error) {
			if v == true {
				return append(dst, '1'), nil
			}
			return append(dst, '0'), nil
		}
	case s.Type == data.String:
		return encodeNumberText
	case s.Type != data.Int8 && s.Type != data.Bytes || s.Name != bitsName && s.Name != "":
		return nil
	}
	length := bitLength(s, t)
	return func(dst []byte, v any) ([]byte, error) {
		b, ok := v.([]byte)
		if n, isNumber := v.(int8); isNumber {
			b, ok = []byte{byte(n)}, true
		}
		if !ok {
			return dst, errUnfit
		}
		text, err := postgres.BitString(b, length)
		return append(dst, text...), err
	}
}

// bitLength is how many bits values have; -1: as many as they have bytes, which is how those of varying length come.
func bitLength(s *data.Schema, t *columnType) int {
	kind := s.Parameters[postgres.TypeKey]
	if strings.HasPrefix(kind, "varbit") || strings.HasPrefix(kind, "bit varying") {
		return -1
	}
	if n, err := strconv.Atoi(s.Parameters["length"]); err == nil && n > 0 && n < math.MaxInt32 {
		return n
	}
	if t.OID == oidBit && t.typmod > 0 {
		return int(t.typmod)
	}
	return -1
}

package postgres

import (
	"bytes"
	"errors"
	"math/big"
	"strconv"

	"millrace/connect/data"
)

// The decoders read the text that the server writes. Their errors say what a text should have been and never what it
// was: it is a row's content.
var (
	errInteger  = errors.New("the text is no whole number in the type's range")
	errFloat    = errors.New("the text is no floating-point number")
	errNumeric  = errors.New("the text is no decimal number")
	errScale    = errors.New("the number has more digits behind the point than its schema's scale")
	errMoney    = errors.New("the text is no amount of money that can be read: cast the column to numeric")
	errBool     = errors.New("the text is no truth value")
	errNumberIs = errors.New("the number is NaN or infinite, which a Decimal cannot carry: set " +
		"decimal.handling.mode=string or, where rows are polled, cast the column in a query")
)

// parseInt reads a whole number of at most so many bits.
func parseInt(b []byte, bits uint) (int64, error) {
	neg := len(b) > 0 && b[0] == '-'
	if neg {
		b = b[1:]
	}
	if len(b) == 0 || len(b) > 19 {
		return 0, errInteger
	}
	var n uint64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, errInteger
		}
		n = n*10 + uint64(c-'0')
	}
	limit := uint64(1) << (bits - 1)
	switch {
	case neg && n <= limit:
		return -int64(n), nil
	case !neg && n < limit:
		return int64(n), nil
	}
	return 0, errInteger
}

func decodeInt8(b []byte) (any, error) {
	n, err := parseInt(b, 8)
	return int8(n), err
}

func decodeInt16(b []byte) (any, error) {
	n, err := parseInt(b, 16)
	return int16(n), err
}

func decodeInt32(b []byte) (any, error) {
	n, err := parseInt(b, 32)
	return int32(n), err
}

func decodeInt64(b []byte) (any, error) {
	n, err := parseInt(b, 64)
	return n, err
}

func decodeBool(b []byte) (any, error) {
	if len(b) == 1 && (b[0] == 't' || b[0] == 'f') {
		return b[0] == 't', nil
	}
	return nil, errBool
}

func parseFloat(b []byte, bits int) (float64, error) {
	f, err := strconv.ParseFloat(string(b), bits)
	if err != nil || bytes.ContainsAny(b, "_xX") {
		return 0, errFloat
	}
	return f, nil
}

func decodeFloat32(b []byte) (any, error) {
	f, err := parseFloat(b, 32)
	return float32(f), err
}

func decodeFloat64(b []byte) (any, error) {
	f, err := parseFloat(b, 64)
	return f, err
}

// isSpecial says whether a numeric is none of the numbers: NaN, Infinity, -Infinity.
func isSpecial(b []byte) bool {
	return len(b) > 0 && (b[len(b)-1] == 'N' || b[len(b)-1] == 'y')
}

// maxNumeric is more than the server writes for any numeric: 131072 digits before the point and 16383 behind it.
const maxNumeric = 150_000

// checkNumeric finds the digits behind the point, and refuses what is no number.
func checkNumeric(b []byte) (fraction int, err error) {
	if isSpecial(b) {
		return 0, errNumberIs
	}
	if len(b) > 0 && b[0] == '-' {
		b = b[1:]
	}
	digits, point := 0, -1
	for i, c := range b {
		switch {
		case c >= '0' && c <= '9':
			digits++
		case c == '.' && point < 0:
			point = i
		default:
			return 0, errNumeric
		}
	}
	if digits == 0 || len(b) > maxNumeric {
		return 0, errNumeric
	}
	if point < 0 {
		return 0, nil
	}
	return len(b) - point - 1, nil
}

// decimalBytes is the unscaled number of a text at a scale, as a Decimal has it.
func decimalBytes(b []byte, scale int) ([]byte, error) {
	fraction, err := checkNumeric(b)
	if err != nil {
		return nil, err
	}
	if n, ok := smallDecimal(b, scale-fraction); ok {
		return intBytes(n), nil
	}
	digits := make([]byte, 0, len(b))
	for _, c := range b {
		if c != '.' {
			digits = append(digits, c)
		}
	}
	n, ok := new(big.Int).SetString(string(digits), 10)
	if !ok {
		return nil, errNumeric
	}
	switch shift := scale - fraction; {
	case shift > 0:
		n.Mul(n, pow10(shift))
	case shift < 0:
		rest := new(big.Int)
		if n.QuoRem(n, pow10(-shift), rest); rest.Sign() != 0 {
			return nil, errScale
		}
	}
	return data.DecimalBytes(n), nil
}

func pow10(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// smallDecimal is the unscaled number where it has at most 18 digits and needs no division.
func smallDecimal(b []byte, shift int) (n int64, ok bool) {
	if len(b)+shift > 18 || shift < 0 {
		return 0, false
	}
	for _, c := range b {
		if c >= '0' {
			n = n*10 + int64(c-'0')
		}
	}
	for range shift {
		n *= 10
	}
	if b[0] == '-' {
		n = -n
	}
	return n, true
}

// intBytes is a number in as few bytes as it takes, big-endian two's complement.
func intBytes(n int64) []byte {
	size := 1
	for size < 8 && n>>(8*size-1) != n>>63 {
		size++
	}
	out := make([]byte, size)
	for i := range out {
		out[size-1-i] = byte(n >> (8 * i))
	}
	return out
}

func decodeDecimal(scale int) decoder {
	return func(b []byte) (any, error) {
		out, err := decimalBytes(b, scale)
		if err != nil {
			return nil, err
		}
		return out, nil
	}
}

// decodeVariable keeps the scale that each number has.
func decodeVariable(s *data.Schema) decoder {
	return func(b []byte) (any, error) {
		fraction, err := checkNumeric(b)
		if err != nil {
			return nil, err
		}
		out, err := decimalBytes(b, fraction)
		if err != nil {
			return nil, err
		}
		return &data.StructValue{Schema: s, Values: []any{int32(fraction), out}}, nil
	}
}

// decodeNumericText checks that a text is a number, and keeps it.
func decodeNumericText(b []byte) (any, error) {
	if _, err := checkNumeric(b); err != nil && err != errNumberIs {
		return nil, err
	}
	return string(b), nil
}

// numericModifier takes a numeric's modifier apart; precision 0 is none.
func numericModifier(typmod int32) (precision, scale int) {
	if typmod < 4 {
		return 0, 0
	}
	typmod -= 4
	return int(typmod>>16) & 0xffff, int(typmod&0x7ff^0x400) - 0x400
}

// plainMoney is an amount as a plain number, which its text is not: "$1,234.56", "-1.234,56 €", "($5)". What follows
// the last separator is a fraction if it has as many digits as a fraction is said to have.
func plainMoney(b []byte, digits int) ([]byte, error) {
	out := make([]byte, 0, len(b)+1)
	if bytes.ContainsAny(b, "-(") {
		out = append(out, '-')
	}
	last := bytes.LastIndexFunc(b, func(r rune) bool { return r >= '0' && r <= '9' })
	point := -1
	if i := last - digits; digits > 0 && i > 0 && (b[i] == '.' || b[i] == ',') {
		point = i
	}
	found := 0
	for i, c := range b {
		switch {
		case c >= '0' && c <= '9':
			out = append(out, c)
			found++
		case i == point:
			out = append(out, '.')
		}
	}
	if found == 0 || found > 20 {
		return nil, errMoney
	}
	return out, nil
}

func decodeMoney(digits int, next decoder) decoder {
	return func(b []byte) (any, error) {
		plain, err := plainMoney(b, digits)
		if err != nil {
			return nil, err
		}
		return next(plain)
	}
}

// decodeBitInt is a short bit string as a whole number.
func decodeBitInt(b []byte) (any, error) {
	if len(b) > 8 {
		return nil, errBits
	}
	var n uint8
	for _, c := range b {
		if c != '0' && c != '1' {
			return nil, errBits
		}
		n = n<<1 | (c - '0')
	}
	return int8(n), nil
}

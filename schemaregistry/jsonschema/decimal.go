package jsonschema

import (
	"math"
	"math/big"
	"strings"
)

// decimal is a number of any size, exactly: digits * 10^exp. Digits neither begin nor end with a zero, so equal numbers
// are equal structs; zero has none, and exp 0. Nothing here costs more than the text is long, whatever the exponent.
type decimal struct {
	neg    bool
	digits string
	exp    int64
}

// farExponent stands for every exponent beyond it.
const farExponent = 1 << 40

// readDecimal reads a number of a JSON text.
func readDecimal(s string) decimal {
	d := decimal{neg: strings.HasPrefix(s, "-")}
	s = strings.TrimPrefix(s, "-")
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		d.exp = readExponent(s[i+1:])
		s = s[:i]
	}
	if whole, fraction, ok := strings.Cut(s, "."); ok {
		fraction = strings.TrimRight(fraction, "0")
		d.exp -= int64(len(fraction))
		s = whole + fraction
	}
	s = strings.TrimLeft(s, "0")
	d.digits = strings.TrimRight(s, "0")
	d.exp += int64(len(s) - len(d.digits))
	if d.digits == "" {
		return decimal{}
	}
	return d
}

func readExponent(s string) int64 {
	neg := strings.HasPrefix(s, "-")
	s = strings.TrimLeft(s, "+-0")
	var n int64
	for i := range len(s) {
		n = min(n*10+int64(s[i]-'0'), farExponent)
	}
	if neg {
		return -n
	}
	return n
}

func (d decimal) sign() int {
	switch {
	case d.digits == "":
		return 0
	case d.neg:
		return -1
	}
	return 1
}

func (d decimal) compare(o decimal) int {
	s := d.sign()
	if s != o.sign() {
		if s > o.sign() {
			return 1
		}
		return -1
	}
	size, other := int64(len(d.digits))+d.exp, int64(len(o.digits))+o.exp
	switch {
	case s == 0:
		return 0
	case size != other:
		if size > other {
			return s
		}
		return -s
	}
	return s * strings.Compare(d.digits, o.digits) // neither ends with a zero, so a longer one is larger
}

func (d decimal) isInteger() bool { return d.exp >= 0 }

// int is the number as an int, cut to what one holds; ok is false when it has a fraction.
func (d decimal) int() (n int, ok bool) {
	if !d.isInteger() {
		return 0, false
	}
	if int64(len(d.digits))+d.exp > 18 {
		if d.neg {
			return math.MinInt, true
		}
		return math.MaxInt, true
	}
	for i := range len(d.digits) {
		n = n*10 + int(d.digits[i]-'0')
	}
	for range d.exp {
		n *= 10
	}
	if d.neg {
		n = -n
	}
	return n, true
}

// isMultipleOf says whether d is m times a whole number. Nothing but zero is a multiple of zero.
func (d decimal) isMultipleOf(m decimal) bool {
	switch {
	case d.digits == "":
		return true
	case m.digits == "" || d.exp < m.exp: // d has no factor 10 left, and m is a whole number at its own scale
		return false
	}
	div, ok := new(big.Int).SetString(m.digits, 10)
	if !ok {
		return false
	}
	rest := remainder(d.digits, div)
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(d.exp-m.exp), div)
	return rest.Mul(rest, scale).Mod(rest, div).Sign() == 0
}

// remainder divides a long number in pieces of 18 digits, so that its size counts once.
func remainder(digits string, div *big.Int) *big.Int {
	const piece = 18
	rest, scale, next := new(big.Int), new(big.Int), new(big.Int)
	for digits != "" {
		n := min(piece, len(digits))
		var v, s int64 = 0, 1
		for i := range n {
			v, s = v*10+int64(digits[i]-'0'), s*10
		}
		rest.Mul(rest, scale.SetInt64(s)).Add(rest, next.SetInt64(v))
		rest.Mod(rest, div)
		digits = digits[n:]
	}
	return rest
}

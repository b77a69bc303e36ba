package convert

import (
	"math/big"
	"strconv"
	"strings"

	"millrace/connect/data"
)

// maxScale bounds how many zeros a number in text may stand for.
const maxScale = 1 << 14

// scaleOf is the scale of a Decimal's schema.
func scaleOf(s *data.Schema) (int, *fault) {
	text := s.Parameters[data.ScaleKey]
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n > maxScale || n < -maxScale {
		return 0, fail("the scale %q of the decimal is no number from -%d to %d", clip(text), maxScale, maxScale)
	}
	return int(n), nil
}

// appendDecimal appends an unscaled number as an exact number in text.
func appendDecimal(dst, unscaled []byte, scale int) []byte {
	n := data.DecimalInt(unscaled)
	if scale <= 0 {
		dst = n.Append(dst, 10)
		if scale < 0 && n.Sign() != 0 {
			dst = strconv.AppendInt(append(dst, 'e'), int64(-scale), 10)
		}
		return dst
	}
	if n.Sign() < 0 {
		dst = append(dst, '-')
		n.Neg(n)
	}
	digits := n.String()
	if len(digits) <= scale {
		dst = append(dst, '0', '.')
		dst = append(dst, strings.Repeat("0", scale-len(digits))...)
		return append(dst, digits...)
	}
	point := len(digits) - scale
	return append(append(append(dst, digits[:point]...), '.'), digits[point:]...)
}

// parseDecimal reads a number in text as an unscaled number and its scale. ok is false where it is none, or out of all
// bounds.
func parseDecimal(text string) (unscaled *big.Int, scale int, ok bool) {
	mantissa, exponent := text, ""
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		mantissa, exponent = text[:i], text[i+1:]
		e, err := strconv.ParseInt(exponent, 10, 32)
		if err != nil || e > maxScale || e < -maxScale {
			return nil, 0, false
		}
		scale = -int(e)
	}
	if i := strings.IndexByte(mantissa, '.'); i >= 0 {
		scale += len(mantissa) - i - 1
		mantissa = mantissa[:i] + mantissa[i+1:]
	}
	if len(mantissa) > 2*maxScale || strings.IndexByte(mantissa, '_') >= 0 {
		return nil, 0, false
	}
	unscaled, ok = new(big.Int).SetString(mantissa, 10)
	return unscaled, scale, ok
}

// rescale is a number at another scale; ok is false where digits would be lost.
func rescale(n *big.Int, from, to int) (*big.Int, bool) {
	if n.Sign() == 0 || from == to {
		return n, true
	}
	if d := to - from; d > 0 {
		if d > 4*maxScale {
			return nil, false
		}
		return new(big.Int).Mul(n, pow10(d)), true
	}
	if from-to > 4*maxScale {
		return nil, false
	}
	q, r := new(big.Int).QuoRem(n, pow10(from-to), new(big.Int))
	return q, r.Sign() == 0
}

func pow10(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// decimalFromText is the value of a Decimal that a number in text stands for.
func decimalFromText(text string, scale int) ([]byte, *fault) {
	n, has, ok := parseDecimal(text)
	if !ok {
		return nil, fail("a number of at most %d digits is wanted for a decimal", 2*maxScale)
	}
	n, ok = rescale(n, has, scale)
	if !ok {
		return nil, fail("the number has more than the %d digits behind the point that the decimal's scale allows", scale)
	}
	return data.DecimalBytes(n), nil
}

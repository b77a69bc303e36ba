// Package rawjson finds where JSON values begin and end without decoding them.
//
// A record's value is kept as the text that the client sent, so what the hot paths need of a body is not
// its values but their boundaries, and the certainty that the text is valid. Scan gives both in one pass
// of word-wide steps; Cursor walks objects and arrays with it. What is accepted is RFC 8259 exactly, in
// valid UTF-8: encoding/json accepts the same but for bytes that are not UTF-8, which it replaces.
//
// The package is pure. It never panics on any input, allocates nothing but for nesting beyond 64 levels
// and for names with escapes, and bounds nesting by what the caller passes. All HTTP APIs use it.
package rawjson

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"strconv"
	"unicode/utf8"
)

// Bounds on nesting.
const (
	MaxDepth  = 10_000 // of a record's value, which is kept as text
	BodyDepth = 64     // of a request's own structure
)

// Flags tell what lies between the tokens of a value.
type Flags uint8

const (
	Blank   Flags = 1 << iota // white space
	Newline                   // a line break among the white space
)

// SyntaxError says where a text stops being JSON.
type SyntaxError struct {
	Offset int    // of the offending byte, from the start of the data
	Reason string // what was found or wanted
}

func (e *SyntaxError) Error() string {
	return "not valid JSON at byte " + strconv.Itoa(e.Offset+1) + ": " + e.Reason
}

// TypeError says that a value is JSON but not of the kind that is wanted in its place.
type TypeError struct {
	Field     string // the name that the value stands behind, empty if none
	Want, Got string // with their articles
}

func (e *TypeError) Error() string {
	text := e.Want + " is wanted, not " + e.Got
	if e.Field != "" {
		return "field " + strconv.Quote(e.Field) + ": " + text
	}
	return text
}

// InField says of a TypeError which field it is about, unless it says so itself. Other errors it returns as they are.
func InField(err error, name string) error {
	var e *TypeError
	if errors.As(err, &e) && e.Field == "" {
		return &TypeError{Field: name, Want: e.Want, Got: e.Got}
	}
	return err
}

// kindOf is the kind of the value that begins with b.
func kindOf(b byte) string {
	switch b {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	default:
		return "a number"
	}
}

func syntax(offset int, reason string) error { return &SyntaxError{offset, reason} }

const (
	unexpectedEnd = "the text ends too early"
	tooDeep       = "values are nested too deeply"
	badUTF8       = "the text is not valid UTF-8"
)

// Document checks that data holds one JSON value and nothing else but white space, and returns the value.
func Document(data []byte, maxDepth int) (value []byte, f Flags, err error) {
	start := skip(data, 0)
	end, f, err := Scan(data, start, maxDepth)
	if err != nil {
		return nil, 0, err
	}
	if rest := skip(data, end); rest < len(data) {
		return nil, 0, syntax(rest, "there is text after the value")
	}
	return data[start:end], f, nil
}

// nesting is the stack of open objects and arrays, one bit each: set for an object. Levels beyond the
// newest 64 are spilled.
type nesting struct {
	top     uint64
	depth   int
	spilled []uint64
}

func (n *nesting) push(object uint64) {
	if n.depth > 0 && n.depth%64 == 0 {
		n.spilled = append(n.spilled, n.top)
	}
	n.top = n.top<<1 | object
	n.depth++
}

func (n *nesting) pop() {
	n.depth--
	n.top >>= 1
	if last := len(n.spilled) - 1; last >= 0 && n.depth%64 == 0 {
		n.top, n.spilled = n.spilled[last], n.spilled[:last]
	}
}

func (n *nesting) inObject() bool { return n.top&1 == 1 }

// Scan checks the value that begins at data[pos] and returns where it ends.
func Scan(data []byte, pos, maxDepth int) (end int, f Flags, err error) {
	var n nesting
	i := pos
	for {
		// A value begins at i.
		if i >= len(data) {
			return 0, 0, syntax(i, unexpectedEnd)
		}
		opened := false
		switch c := data[i]; {
		case c == '"':
			i, err = scanString(data, i+1)
		case c == '{' || c == '[':
			if n.depth >= maxDepth {
				return 0, 0, syntax(i, tooDeep)
			}
			n.push(uint64(c>>5) & 1) // '{' is 0x7b, '[' 0x5b
			i, opened = i+1, true
		case c == '-' || c-'0' <= 9:
			i, err = scanNumber(data, i)
		default:
			i, err = scanLiteral(data, i)
		}
		if err != nil {
			return 0, 0, err
		}
		if i, f, err = nextValue(data, i, f, &n, opened); err != nil {
			return 0, 0, err
		}
		if n.depth == 0 {
			return i, f, nil
		}
	}
}

// nextValue goes on behind a value, or behind the bracket that opened one, to where the next value
// begins. It closes what ends on the way; with depth 0 the outermost value has ended at i.
func nextValue(data []byte, i int, f Flags, n *nesting, opened bool) (int, Flags, error) {
	for n.depth > 0 {
		if i < len(data) && data[i] <= ' ' {
			i, f = skipFlagged(data, i, f)
		}
		if i >= len(data) {
			return 0, 0, syntax(i, unexpectedEnd)
		}
		object := n.inObject()
		switch c := data[i]; {
		case c == '}' && object || c == ']' && !object:
			n.pop()
			i, opened = i+1, false
			continue
		case opened:
		case c == ',':
			if i++; i < len(data) && data[i] <= ' ' {
				i, f = skipFlagged(data, i, f)
			}
		case object:
			return 0, 0, syntax(i, "a ',' or '}' is wanted after a member")
		default:
			return 0, 0, syntax(i, "a ',' or ']' is wanted after an element")
		}
		if !object {
			return i, f, nil
		}
		return scanName(data, i, f)
	}
	return i, f, nil
}

// scanName checks a member's name and the colon behind it, and returns where its value begins.
func scanName(data []byte, i int, f Flags) (int, Flags, error) {
	if i >= len(data) {
		return 0, 0, syntax(i, unexpectedEnd)
	}
	if data[i] != '"' {
		return 0, 0, syntax(i, "a member's name in double quotes is wanted")
	}
	i, err := scanString(data, i+1)
	if err != nil {
		return 0, 0, err
	}
	if i < len(data) && data[i] <= ' ' {
		i, f = skipFlagged(data, i, f)
	}
	if i >= len(data) {
		return 0, 0, syntax(i, unexpectedEnd)
	}
	if data[i] != ':' {
		return 0, 0, syntax(i, "a ':' is wanted after a member's name")
	}
	if i++; i < len(data) && data[i] <= ' ' {
		i, f = skipFlagged(data, i, f)
	}
	return i, f, nil
}

// skip passes over white space.
func skip(data []byte, i int) int {
	for i < len(data) && isSpace(data[i]) {
		i++
	}
	return i
}

// skipFlagged passes over white space and notes it.
func skipFlagged(data []byte, i int, f Flags) (int, Flags) {
	for i < len(data) && isSpace(data[i]) {
		f |= Blank
		if data[i] == '\n' || data[i] == '\r' {
			f |= Newline
		}
		i++
	}
	return i, f
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// Words of eight equal bytes.
const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special marks, by its high bit, the first byte of w that a string may not simply hold: a quote, a
// backslash, a control character, or a byte of a longer UTF-8 sequence. Bytes above it may be marked
// wrongly. A control character or a quote is a byte that, with bit 1 flipped, is at most 0x20.
func special(w uint64) uint64 {
	return (w | ((w ^ 0x02*ones) - 0x21*ones) | ((w ^ '\\'*ones) - ones)) & highs
}

// scanString checks a string whose first byte is data[i] and returns where the text goes on behind its
// closing quote.
func scanString(data []byte, i int) (int, error) {
	for {
		for i+16 <= len(data) {
			a := special(binary.LittleEndian.Uint64(data[i:]))
			b := special(binary.LittleEndian.Uint64(data[i+8:]))
			if a|b == 0 {
				i += 16
				continue
			}
			if a == 0 {
				i += 8
				a = b
			}
			i += bits.TrailingZeros64(a) / 8
			break
		}
		for i < len(data) && plain(data[i]) {
			i++
		}
		if i >= len(data) {
			return 0, syntax(i, "a string is not closed")
		}
		switch c := data[i]; {
		case c == '"':
			return i + 1, nil
		case c == '\\':
			n := escapeLen(data, i)
			if n == 0 {
				return 0, syntax(i, "a backslash does not begin an escape")
			}
			i += n
		case c < 0x20:
			return 0, syntax(i, "a control character in a string must be escaped")
		default:
			for i < len(data) && data[i] >= utf8.RuneSelf {
				n := runeLen(data, i)
				if n == 0 {
					return 0, syntax(i, badUTF8)
				}
				i += n
			}
		}
	}
}

func plain(c byte) bool { return c >= 0x20 && c < utf8.RuneSelf && c != '"' && c != '\\' }

// escapeLen is the length of the escape at data[i], 0 if there is none.
func escapeLen(data []byte, i int) int {
	if i+1 >= len(data) {
		return 0
	}
	switch data[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if i+6 <= len(data) && hexValue(data[i+2])|hexValue(data[i+3])|hexValue(data[i+4])|hexValue(data[i+5]) < 16 {
			return 6
		}
	}
	return 0
}

// hexValue is the value of a hexadecimal digit, 16 for another byte.
func hexValue(c byte) int {
	switch {
	case c-'0' <= 9:
		return int(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	default:
		return 16
	}
}

// runeLen is the length of the UTF-8 sequence of more than one byte at s[i], 0 if it is not valid.
func runeLen[T string | []byte](s T, i int) int {
	c := s[i]
	switch {
	case c >= 0xc2 && c <= 0xdf:
		if i+1 < len(s) && s[i+1]&0xc0 == 0x80 {
			return 2
		}
	case c&0xf0 == 0xe0:
		if i+2 >= len(s) || s[i+1]&0xc0 != 0x80 || s[i+2]&0xc0 != 0x80 {
			return 0
		}
		if c == 0xe0 && s[i+1] < 0xa0 || c == 0xed && s[i+1] > 0x9f { // too long a form; a surrogate
			return 0
		}
		return 3
	case c >= 0xf0 && c <= 0xf4:
		if i+3 >= len(s) || s[i+1]&0xc0 != 0x80 || s[i+2]&0xc0 != 0x80 || s[i+3]&0xc0 != 0x80 {
			return 0
		}
		if c == 0xf0 && s[i+1] < 0x90 || c == 0xf4 && s[i+1] > 0x8f { // too long a form; beyond U+10FFFF
			return 0
		}
		return 4
	}
	return 0
}

// scanNumber checks the number at data[i] and returns where it ends.
func scanNumber(data []byte, i int) (int, error) {
	if data[i] == '-' {
		i++
	}
	start := i
	i = digits(data, i)
	if i == start {
		return 0, syntax(i, "a digit is wanted")
	}
	if data[start] == '0' && i > start+1 {
		return 0, syntax(start+1, "a number may not begin with 0")
	}
	if i < len(data) && data[i] == '.' {
		start = i + 1
		if i = digits(data, start); i == start {
			return 0, syntax(i, "a digit is wanted after the point")
		}
	}
	if i < len(data) && data[i]|0x20 == 'e' {
		i++
		if i < len(data) && (data[i] == '+' || data[i] == '-') {
			i++
		}
		start = i
		if i = digits(data, start); i == start {
			return 0, syntax(i, "a digit is wanted in the exponent")
		}
	}
	return i, nil
}

func digits(data []byte, i int) int {
	for i < len(data) && data[i]-'0' <= 9 {
		i++
	}
	return i
}

// scanLiteral checks true, false or null at data[i] and returns where it ends.
func scanLiteral(data []byte, i int) (int, error) {
	for _, l := range [...]string{"true", "false", "null"} {
		if data[i] == l[0] && len(data)-i >= len(l) && string(data[i:i+len(l)]) == l {
			return i + len(l), nil
		}
	}
	if data[i] >= utf8.RuneSelf && runeLen(data, i) == 0 {
		return 0, syntax(i, badUTF8)
	}
	return 0, syntax(i, "a value is wanted")
}

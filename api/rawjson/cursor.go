package rawjson

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"millrace/internal/invariant"
)

// Cursor walks a JSON text. The caller knows the structure it wants and asks for it:
//
//	c := rawjson.Cursor{Data: body}
//	err := c.Begin('{')
//	for first := true; err == nil; first = false {
//		var more bool
//		if more, err = c.More('}', first); !more {
//			break
//		}
//		name, err = c.Name()
//		value, _, err = c.Value(rawjson.MaxDepth)
//	}
type Cursor struct {
	Data []byte
	Pos  int
}

// Peek skips white space and returns the next byte without taking it, 0 at the end of the data.
func (c *Cursor) Peek() byte {
	c.Pos = skip(c.Data, c.Pos)
	if c.Pos >= len(c.Data) {
		return 0
	}
	return c.Data[c.Pos]
}

// Begin takes the '{' or '[' that the next value must begin with. Another value is a TypeError.
func (c *Cursor) Begin(bracket byte) error {
	if b := c.Peek(); b != bracket {
		if _, _, err := Scan(c.Data, c.Pos, MaxDepth); err != nil {
			return err
		}
		return &TypeError{Want: kindOf(bracket), Got: kindOf(b)}
	}
	c.Pos++
	return nil
}

// More says whether another member or element follows, and takes the comma before it or the closing
// bracket. first is true for the first call after Begin.
func (c *Cursor) More(bracket byte, first bool) (bool, error) {
	switch b := c.Peek(); {
	case b == bracket:
		c.Pos++
		return false, nil
	case c.Pos >= len(c.Data):
		return false, syntax(c.Pos, unexpectedEnd)
	case first:
		return true, nil
	case b != ',':
		return false, syntax(c.Pos, "a ',' or '"+string(rune(bracket))+"' is wanted")
	}
	c.Pos++
	return true, nil
}

// Member takes the name of an object's next member and the colon, or the closing bracket: then more is false.
func (c *Cursor) Member(first bool) (name []byte, more bool, err error) {
	if more, err = c.More('}', first); more && err == nil {
		name, err = c.Name()
	}
	return name, more, err
}

// Name takes a member's name and the colon. The result is unescaped; it is a part of Data when the name
// has no escapes.
func (c *Cursor) Name() ([]byte, error) {
	c.Peek()
	start := c.Pos
	i, _, err := scanName(c.Data, c.Pos, 0)
	if err != nil {
		return nil, err
	}
	end, err := scanString(c.Data, start+1)
	if err != nil {
		return nil, err
	}
	c.Pos = i
	raw := c.Data[start:end]
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1], nil
	}
	name, ok := Unquote(nil, raw)
	if !ok {
		return nil, syntax(start, "a name holds half of a surrogate pair")
	}
	return name, nil
}

// Value takes the next value and returns its text.
func (c *Cursor) Value(maxDepth int) ([]byte, Flags, error) {
	start := skip(c.Data, c.Pos)
	end, f, err := Scan(c.Data, start, maxDepth)
	if err != nil {
		return nil, 0, err
	}
	c.Pos = end
	return c.Data[start:end], f, nil
}

// End checks that nothing but white space is left.
func (c *Cursor) End() error {
	if c.Peek(); c.Pos < len(c.Data) {
		return syntax(c.Pos, "there is text after the value")
	}
	return nil
}

// Errorf makes a syntax error at the cursor, for structure that the caller did not want.
func (c *Cursor) Errorf(reason string) error { return syntax(c.Pos, reason) }

// IsNull says whether a value's text is null.
func IsNull(value []byte) bool { return string(value) == "null" }

// Unquote appends what the checked string with its quotes stands for. ok is false when an escape is half
// of a surrogate pair, which no text can hold.
func Unquote(dst, value []byte) (text []byte, ok bool) {
	for i := 1; i < len(value)-1; {
		j := bytes.IndexByte(value[i:len(value)-1], '\\')
		if j < 0 {
			return append(dst, value[i:len(value)-1]...), true
		}
		dst = append(dst, value[i:i+j]...)
		i += j
		if value[i+1] != 'u' {
			dst = append(dst, unescape(value[i+1]))
			i += 2
			continue
		}
		r := hexRune(value, i)
		i += 6
		if utf16.IsSurrogate(r) {
			if i+6 > len(value)-1 || value[i] != '\\' || value[i+1] != 'u' {
				return dst, false
			}
			if r = utf16.DecodeRune(r, hexRune(value, i)); r == utf8.RuneError {
				return dst, false
			}
			i += 6
		}
		dst = utf8.AppendRune(dst, r)
	}
	return dst, true
}

func unescape(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	default:
		return c
	}
}

// hexRune is the code unit of the \u escape at value[i].
func hexRune(value []byte, i int) rune {
	return rune(hexValue(value[i+2])<<12 | hexValue(value[i+3])<<8 | hexValue(value[i+4])<<4 | hexValue(value[i+5]))
}

// Text is what a string value stands for; ok is false when the value is not a string or holds half of a
// surrogate pair. The result is a part of value when there are no escapes.
func Text(value []byte) (text []byte, ok bool) {
	if len(value) < 2 || value[0] != '"' {
		return nil, false
	}
	if bytes.IndexByte(value, '\\') < 0 {
		return value[1 : len(value)-1], true
	}
	return Unquote(nil, value)
}

// Int64 reads a value that is a whole number without fraction or exponent; ok is false for another value
// or one that does not fit.
func Int64(value []byte) (n int64, ok bool) {
	n, err := strconv.ParseInt(string(value), 10, 64)
	return n, err == nil && len(value) > 0 && value[0] != '+'
}

// Compact appends a checked value without the white space between its tokens.
func Compact(dst, value []byte) []byte {
	start := 0
	for i := 0; i < len(value); {
		switch c := value[i]; {
		case c == '"':
			i = stringEnd(value, i)
		case c <= ' ':
			dst = append(dst, value[start:i]...)
			i = skip(value, i)
			start = i
		default:
			i++
		}
	}
	return append(dst, value[start:]...)
}

// stringEnd is where the checked string that begins at value[i] ends. Each byte is looked at once, however
// many escapes there are.
func stringEnd(value []byte, i int) int {
	end, err := scanString(value, i+1)
	invariant.Check(err == nil, "a value that was not checked")
	return end
}

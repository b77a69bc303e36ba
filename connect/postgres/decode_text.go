package postgres

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
	"unicode/utf8"

	"millrace/connect/data"
)

// decoder makes a value of a text that is not null.
type decoder func(text []byte) (any, error)

var (
	errBytes      = errors.New("the text is no bytea in the hex or escape format")
	errBits       = errors.New("the text is no bit string")
	errHstore     = errors.New("the text is no hstore")
	errArray      = errors.New("the text is no array")
	errDimensions = errors.New("the array has several dimensions, and its column was declared with one: declare it " +
		"with as many as there are (ALTER TABLE ... ALTER COLUMN ... TYPE element[][], which rewrites nothing)")
)

func decodeString(b []byte) (any, error) { return string(b), nil }

func parseBytes(b []byte) ([]byte, error) {
	if len(b) >= 2 && b[0] == '\\' && b[1] == 'x' {
		out := make([]byte, (len(b)-2)/2)
		if _, err := hex.Decode(out, b[2:]); err != nil {
			return nil, errBytes
		}
		return out, nil
	}
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		switch {
		case b[i] != '\\':
			out = append(out, b[i])
		case i+1 < len(b) && b[i+1] == '\\':
			out = append(out, '\\')
			i++
		default:
			n, ok := octal(b[i+1:])
			if !ok {
				return nil, errBytes
			}
			out = append(out, n)
			i += 3
		}
	}
	return out, nil
}

func octal(b []byte) (n byte, ok bool) {
	if len(b) < 3 || b[0] > '3' {
		return 0, false
	}
	for _, c := range b[:3] {
		if c < '0' || c > '7' {
			return 0, false
		}
		n = n<<3 | (c - '0')
	}
	return n, true
}

func decodeBytes(b []byte) (any, error) {
	out, err := parseBytes(b)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// decodeBinary writes bytes as a text.
func decodeBinary(mode string) decoder {
	encode := binaryText(mode)
	return func(b []byte) (any, error) {
		raw, err := parseBytes(b)
		if err != nil {
			return nil, err
		}
		return encode(raw), nil
	}
}

func binaryText(mode string) func([]byte) string {
	switch mode {
	case "base64":
		return base64.StdEncoding.EncodeToString
	case "base64-url-safe":
		return base64.URLEncoding.EncodeToString
	}
	return hex.EncodeToString
}

// decodeBits packs bits, the last one lowest, the lowest byte first. Of a fixed length there are as many bytes as it
// takes. A varying one has as many bytes as it has bits, those in front of which hold them: so nothing is lost of its
// length, and as a number it is what it is in as few bytes as it takes.
func decodeBits(varying bool) decoder {
	return func(b []byte) (any, error) {
		size := (len(b) + 7) / 8
		if varying {
			size = len(b)
		}
		out := make([]byte, size)
		for i, c := range b {
			if c != '0' && c != '1' {
				return nil, errBits
			}
			at := len(b) - 1 - i
			out[at/8] |= (c - '0') << (at % 8)
		}
		return out, nil
	}
}

// BitString is the text of what decodeBits packed: of a fixed length, or of the one that a varying one has where length
// is below 0.
func BitString(packed []byte, length int) (string, error) {
	if length < 0 {
		length = len(packed)
	}
	out := make([]byte, length)
	for i := range out {
		at := length - 1 - i
		out[i] = '0'
		if at/8 < len(packed) {
			out[i] += packed[at/8] >> (at % 8) & 1
		}
	}
	for at := length; at < len(packed)*8; at++ {
		if packed[at/8]>>(at%8)&1 != 0 {
			return "", errBits
		}
	}
	return string(out), nil
}

func decodeBit(b []byte) (any, error) {
	if len(b) == 1 && (b[0] == '0' || b[0] == '1') {
		return b[0] == '1', nil
	}
	return nil, errBits
}

// quoted reads a text in double quotes, with backslashes before what is special.
func quoted(b []byte) (text, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != '"' {
		return nil, b, false
	}
	clean := true
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			clean = false
			i++
		case '"':
			if text = b[1:i]; !clean {
				text = unescape(text)
			}
			return text, b[i+1:], true
		}
	}
	return nil, b, false
}

func unescape(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		if b[i] == '\\' && i+1 < len(b) {
			i++
		}
		out = append(out, b[i])
	}
	return out
}

// eachPair calls fn with the keys and values of an hstore; null values are nil.
func eachPair(b []byte, fn func(key, value []byte)) error {
	for len(b) > 0 {
		key, rest, ok := quoted(b)
		if !ok || len(rest) < 2 || rest[0] != '=' || rest[1] != '>' {
			return errHstore
		}
		rest = rest[2:]
		var value []byte
		if len(rest) >= 4 && string(rest[:4]) == "NULL" {
			rest = rest[4:]
		} else if value, rest, ok = quoted(rest); !ok {
			return errHstore
		} else if value == nil {
			value = []byte{}
		}
		fn(key, value)
		if len(rest) > 0 {
			if len(rest) < 3 || rest[0] != ',' || rest[1] != ' ' {
				return errHstore
			}
			rest = rest[2:]
		}
		b = rest
	}
	return nil
}

func decodeHstoreMap(b []byte) (any, error) {
	out := map[string]any{}
	err := eachPair(b, func(key, value []byte) {
		out[string(key)] = nil
		if value != nil {
			out[string(key)] = string(value)
		}
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func decodeHstoreJSON(b []byte) (any, error) {
	out := append(make([]byte, 0, len(b)+8), '{')
	err := eachPair(b, func(key, value []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(appendJSON(out, key), ':')
		if value == nil {
			out = append(out, "null"...)
			return
		}
		out = appendJSON(out, value)
	})
	if err != nil {
		return nil, err
	}
	return string(append(out, '}')), nil
}

// appendJSON appends a text as a JSON string.
func appendJSON(out, text []byte) []byte {
	const digits = "0123456789abcdef"
	out = append(out, '"')
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == '"' || c == '\\':
			out = append(out, '\\', c)
		case c < 0x20:
			out = append(out, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		case c < utf8.RuneSelf:
			out = append(out, c)
		default:
			r, size := utf8.DecodeRune(text[i:])
			out = utf8.AppendRune(out, r)
			i += size - 1
		}
		i++
	}
	return append(out, '"')
}

// decodeArray reads an array of one dimension, whose elements a decoder makes. Bounds in front are passed over.
func decodeArray(delimiter byte, element decoder) decoder {
	return func(b []byte) (any, error) {
		if len(b) > 0 && b[0] == '[' {
			i := strings.IndexByte(string(b[:min(len(b), 200)]), '=')
			if i < 0 {
				return nil, errArray
			}
			b = b[i+1:]
		}
		if len(b) < 2 || b[0] != '{' || b[len(b)-1] != '}' {
			return nil, errArray
		}
		b = b[1 : len(b)-1]
		out := make([]any, 0, countElements(b, delimiter))
		for first := true; len(b) > 0 || !first; first = false {
			v, rest, err := arrayElement(b, delimiter, element)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
			if len(rest) == 0 {
				break
			}
			if rest[0] != delimiter {
				return nil, errArray
			}
			b = rest[1:]
		}
		return out, nil
	}
}

func countElements(b []byte, delimiter byte) int {
	if len(b) == 0 {
		return 0
	}
	n := 1
	for _, c := range b {
		if c == delimiter {
			n++
		}
	}
	return min(n, 1024)
}

func arrayElement(b []byte, delimiter byte, element decoder) (v any, rest []byte, err error) {
	if len(b) == 0 {
		return nil, nil, errArray
	}
	if b[0] == '{' {
		return nil, nil, errDimensions
	}
	var text []byte
	if b[0] == '"' {
		var ok bool
		if text, rest, ok = quoted(b); !ok {
			return nil, nil, errArray
		}
	} else {
		end := 0
		for end < len(b) && b[end] != delimiter {
			if c := b[end]; c == '"' || c == '{' || c == '}' || c == '\\' {
				return nil, nil, errArray
			}
			end++
		}
		text, rest = b[:end], b[end:]
		if len(text) == 0 {
			return nil, nil, errArray
		}
		if string(text) == "NULL" {
			return nil, rest, nil
		}
	}
	v, err = element(text)
	return v, rest, err
}

var errVector = errors.New("the text is no vector")

// decodeVector reads [1,2,3].
func decodeVector(element decoder) decoder {
	return func(b []byte) (any, error) {
		if len(b) < 2 || b[0] != '[' || b[len(b)-1] != ']' {
			return nil, errVector
		}
		out := make([]any, 0, countElements(b[1:len(b)-1], ','))
		for part := range strings.SplitSeq(string(b[1:len(b)-1]), ",") {
			v, err := element([]byte(part))
			if err != nil {
				return nil, errVector
			}
			out = append(out, v)
		}
		return out, nil
	}
}

// decodeSparse reads {1:0.5,3:2}/5.
func decodeSparse(s *data.Schema) decoder {
	return func(b []byte) (any, error) {
		body, size, ok := strings.Cut(string(b), "}/")
		n, err := parseInt([]byte(size), 16)
		if !ok || err != nil || body == "" || body[0] != '{' {
			return nil, errVector
		}
		var entries []data.Entry
		for part := range strings.SplitSeq(body[1:], ",") {
			if part == "" && len(body) == 1 {
				break
			}
			at, value, _ := strings.Cut(part, ":")
			i, err1 := parseInt([]byte(at), 16)
			f, err2 := parseFloat([]byte(value), 64)
			if err1 != nil || err2 != nil {
				return nil, errVector
			}
			entries = append(entries, data.Entry{Key: int16(i), Value: f})
		}
		return &data.StructValue{Schema: s, Values: []any{int16(n), entries}}, nil
	}
}

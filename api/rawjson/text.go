package rawjson

import (
	"bytes"
	"encoding/base64"
	"errors"
)

// IsEmpty says whether a body holds nothing but white space, or the JSON null.
func IsEmpty(data []byte) bool {
	c := Cursor{Data: data}
	switch c.Peek() {
	case 0:
		return c.Pos == len(data)
	case 'n':
		value, _, err := Document(data, 1)
		return err == nil && IsNull(value)
	}
	return false
}

// Excerpt is the beginning of a value, for an error's text.
func Excerpt(value []byte) string {
	const most = 64
	if len(value) <= most {
		return string(value)
	}
	return string(value[:most]) + "..."
}

var errUnquote = errors.New("half of a surrogate pair")

// Base64 decodes a valid JSON string of base64 in its own memory: what it stands for is never longer than its text.
func Base64(value []byte) ([]byte, error) {
	text := value[1 : len(value)-1]
	if bytes.IndexByte(text, '\\') >= 0 { // some encoders escape the slash
		var ok bool
		if text, ok = Unquote(value[:0], value); !ok {
			return nil, errUnquote
		}
	}
	n, err := base64.StdEncoding.Decode(text, text)
	return text[:n], err
}

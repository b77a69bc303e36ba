package rawjson

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
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
	if err != nil {
		return nil, ExplainBase64(text, err)
	}
	return text[:n], nil
}

// ExplainBase64 says what is wrong with text, which StdEncoding or its strict form refused with err. What lies before
// the fault may be overwritten with what it stood for.
func ExplainBase64(text []byte, err error) error {
	var at base64.CorruptInputError
	if !errors.As(err, &at) || int(at) >= len(text) {
		return err
	}
	data := len(bytes.TrimRight(text, "="))
	switch c := text[at]; {
	case c == '-' || c == '_':
		return fmt.Errorf("character %d is %q, of base64 for URLs: '+' and '/' are wanted", at+1, c)
	case c == '=' && int(at) < data:
		return fmt.Errorf("there is padding at character %d, where none may be", at+1)
	case c != '=' && !isBase64(c):
		return fmt.Errorf("character %d is not one of base64", at+1)
	case data%4 == 1:
		return errors.New("a character is missing at the end, or one too many")
	case len(text)%4 != 0:
		return fmt.Errorf("the padding is missing: %q must follow", "===="[data%4:])
	default:
		return errors.New("its last character stands for more bits than are left")
	}
}

func isBase64(c byte) bool {
	return c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '+' || c == '/'
}

package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"millrace/api/rawjson"
)

// managementBytes bounds the bodies of requests that manage things, which are small.
const managementBytes = 1 << 20

// Decode reads a JSON document into v and refuses what encoding/json would let pass: names that v lacks or
// that come twice, names in another case, half of a surrogate pair, nesting beyond rawjson.BodyDepth, text
// behind the document. An unknown name is UNPROCESSABLE_BODY, all else MALFORMED_BODY.
func Decode(data []byte, v any) error {
	return decode(&checker{Cursor: rawjson.Cursor{Data: data}}, v)
}

// DecodeKnown is Decode, but ignores names that v lacks. It blots them out in data: encoding/json would take some of
// them for names of v in another case.
func DecodeKnown(data []byte, v any) error {
	return decode(&checker{Cursor: rawjson.Cursor{Data: data}, ignore: true}, v)
}

func decode(c *checker, v any) error {
	data := c.Data
	if _, _, err := rawjson.Document(data, rawjson.BodyDepth); err != nil {
		return FromError(err)
	}
	if err := c.value(reflect.TypeOf(v), ""); err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return Refuse(MalformedBody, "%s may not be a JSON %s: %s is wanted",
				fieldName(wrong.Field), wrong.Value, kindName(wrong.Type))
		}
		return FromError(err)
	}
	return nil
}

func fieldName(path string) string {
	if path == "" {
		return "the body"
	}
	return "field " + path
}

// kindName says in JSON's words what a Go type is read from.
func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return kindName(t.Elem())
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.Int32:
		return "a 32-bit whole number"
	case reflect.Int64, reflect.Int:
		return "a 64-bit whole number"
	default:
		return "a " + t.Kind().String()
	}
}

// checker compares the names in a document with those of a type.
type checker struct {
	rawjson.Cursor
	ignore bool // unknown names are blotted out, not refused
}

// value compares the names in the next value with those of type t.
func (c *checker) value(t reflect.Type, path string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	b := c.Peek()
	switch {
	case b == '{' && (t.Kind() == reflect.Struct || t.Kind() == reflect.Map) && !ownDecoder(t, path):
		return c.object(t, path)
	case b == '[' && t.Kind() == reflect.Slice && !ownDecoder(t, path):
		return c.array(t, path)
	}
	value, _, err := c.Value(rawjson.BodyDepth)
	if err != nil {
		return FromError(err)
	}
	if b == '"' {
		if _, ok := rawjson.Text(value); !ok {
			return Refuse(MalformedBody, "%s holds half of a surrogate pair", fieldName(path))
		}
	}
	return nil
}

// ownDecoder says whether values of type t are read by t itself. The outermost type is the caller's own.
func ownDecoder(t reflect.Type, path string) bool {
	return path != "" && reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

func (c *checker) object(t reflect.Type, path string) error {
	if err := c.Begin('{'); err != nil {
		return FromError(err)
	}
	seen := map[string]bool{}
	for first := true; ; first = false {
		more, err := c.More('}', first)
		if err != nil || !more {
			return orNil(err)
		}
		c.Peek()
		start := c.Pos
		raw, err := c.Name()
		if err != nil {
			return FromError(err)
		}
		name := string(raw)
		member := memberType(t, name)
		if member == nil && c.ignore {
			if err := c.skip(start); err != nil {
				return err
			}
			continue
		}
		inner := name
		if path != "" {
			inner = path + "." + name
		}
		if seen[name] {
			return Refuse(MalformedBody, "field %s is there twice", inner)
		}
		seen[name] = true
		if member == nil {
			return Refuse(UnprocessableBody, "unrecognized field: %s", inner)
		}
		if err := c.value(member, inner); err != nil {
			return err
		}
	}
}

func (c *checker) array(t reflect.Type, path string) error {
	if err := c.Begin('['); err != nil {
		return FromError(err)
	}
	for i := 0; ; i++ {
		more, err := c.More(']', i == 0)
		if err != nil || !more {
			return orNil(err)
		}
		if err := c.value(t.Elem(), path+"["+strconv.Itoa(i)+"]"); err != nil {
			return err
		}
	}
}

// skip takes the value of a member that is ignored, whose name begins at start, and blots the name out.
func (c *checker) skip(start int) error {
	for i := start + 1; c.Data[i] != '"'; i++ {
		if c.Data[i] == '\\' {
			c.Data[i] = '_'
			i++
		}
		c.Data[i] = '_'
	}
	_, _, err := c.Value(rawjson.BodyDepth)
	return orNil(err)
}

// orNil keeps a nil error from becoming a typed nil.
func orNil(err error) error {
	if err == nil {
		return nil
	}
	return FromError(err)
}

// memberType is the type of a struct's field by its exact JSON name, or of a map's values; nil if none.
func memberType(t reflect.Type, name string) reflect.Type {
	if t.Kind() == reflect.Map {
		return t.Elem()
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous && f.Type.Kind() == reflect.Struct && f.Tag.Get("json") == "" { // its fields are as those of t
			if inner := memberType(f.Type, name); inner != nil {
				return inner
			}
			continue
		}
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && (tag == name || tag == "" && f.Name == name) && tag != "-" {
			return f.Type
		}
	}
	return nil
}

// JSONBodies is a middleware for routes whose bodies are small JSON documents that encoding/json reads: it
// reads the body within the limits, refuses other media types, and hands on the checked bytes. What curl -d
// sends without a Content-Type of the user's choice is taken as JSON. fail writes the refusals.
func (e *Edge) JSONBodies(fail func(http.ResponseWriter, *http.Request, error)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet || r.Method == http.MethodDelete {
				next.ServeHTTP(w, r)
				return
			}
			switch t := MediaType(r.Header.Get("Content-Type")); t {
			case "application/json", "application/x-www-form-urlencoded", "":
			default:
				fail(w, r, Refuse(UnsupportedMediaType, "the body is %s, but application/json is wanted", t))
				return
			}
			body, err := e.ReadBody(w, r, managementBytes)
			defer body.Free()
			if err == nil && len(body.Bytes) == 0 {
				err = Refuse(MalformedBody, "the body is empty, but a JSON document is wanted")
			}
			if err == nil {
				_, _, err = rawjson.Document(body.Bytes, rawjson.BodyDepth)
			}
			if err != nil {
				fail(w, r, err)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body.Bytes))
			next.ServeHTTP(w, r)
		})
	}
}

// Required refuses a body in which a field that must be there is missing.
func Required(name string) *Error {
	return Refuse(MalformedBody, "field %s is missing", name)
}

// ParseBool reads a boolean parameter.
func ParseBool(name, value string) (bool, error) {
	switch value {
	case "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, Refuse(InvalidParameter, "%s is true or false, not %s", name, quoted(value))
	}
}

// BadEscape refuses a query of which a part is not well encoded.
func BadEscape(part string) *Error {
	return Refuse(InvalidParameter, "the query cannot be read: a %% in %s begins no escape such as %%20", quoted(part))
}

// BadParameter refuses a parameter whose value is not of its type. want says what would be.
func BadParameter(name, value, want string) *Error {
	return Refuse(InvalidParameter, "parameter %s=%s: want %s", name, quoted(value), want)
}

// quoted shows a client's own text in a message, cut when it is long.
func quoted(s string) string {
	const most = 64
	if len(s) > most {
		return fmt.Sprintf("%q...", s[:most])
	}
	return fmt.Sprintf("%q", s)
}

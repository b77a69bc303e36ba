package convert

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"millrace/connect/data"
)

// fault is why a value cannot be translated, and where it stands: the steps to it from the inside out.
type fault struct {
	steps []string
	err   error
}

func fail(format string, args ...any) *fault { return &fault{err: fmt.Errorf(format, args...)} }

func (f *fault) in(step string) *fault {
	if f != nil {
		f.steps = append(f.steps, step)
	}
	return f
}

func (f *fault) at(i int) *fault {
	if f != nil {
		f.steps = append(f.steps, strconv.Itoa(i))
	}
	return f
}

// asError is the fault with its place, nil if there is none.
func (f *fault) asError() error {
	if f == nil {
		return nil
	}
	if len(f.steps) == 0 {
		return f.err
	}
	slices.Reverse(f.steps)
	return fmt.Errorf("field %s: %w", clip(strings.Join(f.steps, ".")), f.err)
}

// clip is the beginning of a text that may be very long.
func clip(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// mismatch says that a value is not of the type of its schema, without showing it.
func mismatch(s *data.Schema, v any) *fault {
	return fail("%s is wanted by the schema, not %s", describe(s), typeOf(v))
}

// describe is a schema in short.
func describe(s *data.Schema) string {
	if s.Name == "" {
		return "a value of type " + s.Type.String()
	}
	return "a value of type " + s.Type.String() + " (" + clip(s.Name) + ")"
}

// typeOf is the type of a value in the words of the data model.
func typeOf(v any) string {
	if v == nil {
		return "null"
	}
	if t := guess(v); t != 0 {
		return t.String()
	}
	return fmt.Sprintf("a Go %T", v)
}

// guess is the type of a value that has no schema, 0 if it is none of the data model.
func guess(v any) data.Type {
	switch v.(type) {
	case bool:
		return data.Boolean
	case int8:
		return data.Int8
	case int16:
		return data.Int16
	case int32:
		return data.Int32
	case int64:
		return data.Int64
	case float32:
		return data.Float32
	case float64:
		return data.Float64
	case string:
		return data.String
	case []byte:
		return data.Bytes
	case []any:
		return data.Array
	case map[string]any, []data.Entry:
		return data.Map
	case *data.StructValue:
		return data.Struct
	}
	return 0
}

// maxDepth is how deeply schemas and values may be nested.
const maxDepth = 200

func tooDeep() *fault {
	return fail("it is nested more than %d levels deep, or refers to itself", maxDepth)
}

// shape is the schema that structs must have, or one with the same fields; it remembers the last one that did.
type shape struct {
	schema *data.Schema
	last   *data.Schema
}

// of checks that a value is a struct of the fields that are wanted.
func (s *shape) of(v any) (*data.StructValue, *fault) {
	sv, ok := v.(*data.StructValue)
	if !ok || sv == nil {
		return nil, mismatch(s.schema, v)
	}
	if sv.Schema == s.schema || sv.Schema == s.last {
		return sv, nil
	}
	if sv.Schema == nil || len(sv.Schema.Fields) != len(s.schema.Fields) || len(sv.Values) != len(sv.Schema.Fields) {
		return nil, fail("the struct is of another schema than its field's")
	}
	for i := range s.schema.Fields {
		if want, got := s.schema.Fields[i].Name, sv.Schema.Fields[i].Name; want != got {
			return nil, fail("the struct is of another schema than its field's: it has the field %q in place of %q",
				clip(got), clip(want))
		}
	}
	s.last = sv.Schema
	return sv, nil
}

// each calls f with the entries of a map, in the order of its keys where those are strings.
func each(s *data.Schema, v any, f func(key, value any) *fault) *fault {
	switch m := v.(type) {
	case map[string]any:
		for _, k := range sortedKeys(m) {
			if f := f(k, m[k]); f != nil {
				return f.in(k)
			}
		}
		return nil
	case []data.Entry:
		for i := range m {
			if f := f(m[i].Key, m[i].Value); f != nil {
				return f.at(i)
			}
		}
		return nil
	default:
		return mismatch(s, v)
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// checkSchema says why a schema cannot be used at all.
func checkSchema(s *data.Schema, depth int) *fault {
	switch {
	case s == nil:
		return fail("a part of the schema has no type")
	case depth > maxDepth:
		return tooDeep()
	case s.Type < data.Int8 || s.Type > data.Struct:
		return fail("the schema has no valid type: %v", s.Type)
	case s.Type == data.Array, s.Type == data.Map:
		if s.Type == data.Map {
			if f := checkSchema(s.Key, depth+1); f != nil {
				return f.in("key")
			}
		}
		return checkSchema(s.Elem, depth+1).in("value")
	}
	for i := range s.Fields {
		if f := checkSchema(s.Fields[i].Schema, depth+1); f != nil {
			return f.in(s.Fields[i].Name)
		}
	}
	return nil
}

var errNoSchema = errors.New("the value has no schema, and this converter needs one")

// cache is a map that forgets all when it is full.
type cache[K comparable, V any] struct {
	most    int
	entries map[K]V
}

func (c *cache[K, V]) get(k K) (V, bool) {
	v, ok := c.entries[k]
	return v, ok
}

func (c *cache[K, V]) put(k K, v V) {
	switch {
	case c.entries == nil:
		c.entries = map[K]V{}
	case len(c.entries) >= max(c.most, 1):
		clear(c.entries)
	}
	c.entries[k] = v
}

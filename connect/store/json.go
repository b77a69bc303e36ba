package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"millrace/api/rawjson"
)

// maxDepth bounds how deep lists and maps of offsets may lie in each other.
const maxDepth = 16

var errTooDeep = errors.New("lists or maps lie too deep in each other")

// appendJSON encodes a value of the types that JSON has, in the one way in which two equal values have equal bytes.
func appendJSON(dst []byte, v any, depth int) (_ []byte, err error) {
	if depth > maxDepth {
		return nil, errTooDeep
	}
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...), nil
	case bool:
		return strconv.AppendBool(dst, v), nil
	case string:
		return rawjson.AppendString(dst, v), nil
	case int:
		return strconv.AppendInt(dst, int64(v), 10), nil
	case int32:
		return strconv.AppendInt(dst, int64(v), 10), nil
	case int64:
		return strconv.AppendInt(dst, v, 10), nil
	case float64:
		return appendFloat(dst, v)
	case []any:
		dst = append(dst, '[')
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = appendJSON(dst, e, depth+1); err != nil {
				return nil, err
			}
		}
		return append(dst, ']'), nil
	case map[string]any:
		return appendObject(dst, v, depth)
	}
	return nil, fmt.Errorf("a value of type %T is none of JSON", v)
}

func appendObject(dst []byte, v map[string]any, depth int) (_ []byte, err error) {
	if v == nil {
		return append(dst, "null"...), nil
	}
	dst = append(dst, '{')
	for i, key := range slices.Sorted(maps.Keys(v)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(rawjson.AppendString(dst, key), ':')
		if dst, err = appendJSON(dst, v[key], depth+1); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

// appendFloat encodes a number so that it is read as a float64 again.
func appendFloat(dst []byte, v float64) ([]byte, error) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil, fmt.Errorf("%v is no number of JSON", v)
	}
	text := strconv.FormatFloat(v, 'g', -1, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return append(dst, text...), nil
}

// readJSON decodes one value. Numbers are int64, or float64 where they are written as such or do not fit.
func readJSON(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("there is something behind the value")
	}
	return numbers(v, 0)
}

// numbers replaces numbers by what they are.
func numbers(v any, depth int) (_ any, err error) {
	if depth > maxDepth {
		return nil, errTooDeep
	}
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n, nil
		}
		return v.Float64()
	case []any:
		for i := range v {
			if v[i], err = numbers(v[i], depth+1); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for key := range v {
			if v[key], err = numbers(v[key], depth+1); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

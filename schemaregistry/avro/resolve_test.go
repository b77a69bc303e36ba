package avro_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// resolve reads a value that was written with one schema as another one says, and returns what follows it. It is
// written from the specification, to judge what comparisons call compatible.
func resolve(r, w *shape, b []byte) ([]byte, error) {
	if w.kind == "union" {
		i, b, err := number(b)
		if err != nil || i < 0 || int(i) >= len(w.parts) {
			return nil, errors.Join(err, errors.New("no such type in the union"))
		}
		return resolve(r, w.parts[i], b)
	}
	if r.kind == "union" {
		for _, exact := range []bool{true, false} { // the same type first, then one that it can become
			for _, p := range r.parts {
				if exact && p.kind != w.kind {
					continue
				}
				if rest, err := resolve(p, w, b); err == nil {
					return rest, nil
				}
			}
		}
		return nil, fmt.Errorf("no type of the union reads %s", w.kind)
	}
	if !reads(r, w) {
		return nil, fmt.Errorf("%s %s does not read %s %s", r.kind, r.name, w.kind, w.name)
	}
	switch w.kind {
	case "record":
		return resolveRecord(r, w, b)
	case "enum":
		i, rest, err := number(b)
		if err == nil && !slices.Contains(r.symbols, w.symbols[i]) && r.preset == "" {
			err = errors.New("no such symbol")
		}
		return rest, err
	case "fixed":
		return b[w.size:], nil
	case "array", "map":
		for {
			n, rest, err := number(b)
			if err != nil || n == 0 {
				return rest, err
			}
			b = rest
			for range n {
				if w.kind == "map" {
					if b, err = skip(&shape{kind: "string"}, b); err != nil {
						return nil, err
					}
				}
				if b, err = resolve(r.parts[0], w.parts[0], b); err != nil {
					return nil, err
				}
			}
		}
	default:
		return skip(w, b)
	}
}

// reads says whether the kinds and names of two types go together.
func reads(r, w *shape) bool {
	if r.kind != w.kind {
		wider := map[string][]string{
			"int": {"long", "float", "double"}, "long": {"float", "double"}, "float": {"double"},
			"string": {"bytes"}, "bytes": {"string"},
		}
		return slices.Contains(wider[w.kind], r.kind)
	}
	return (r.name == w.name || slices.Contains(r.aliases, w.name)) && r.size == w.size
}

func resolveRecord(r, w *shape, b []byte) ([]byte, error) {
	filled := map[int]bool{}
	var err error
	for _, f := range w.fields {
		at := slices.IndexFunc(r.fields, func(g shapeField) bool {
			return g.name == f.name || slices.Contains(g.aliases, f.name)
		})
		if at < 0 {
			b, err = skip(f.shape, b)
		} else {
			filled[at] = true
			b, err = resolve(r.fields[at].shape, f.shape, b)
		}
		if err != nil {
			return nil, err
		}
	}
	for i, f := range r.fields {
		if !filled[i] && !f.set {
			return nil, fmt.Errorf("the field %s has no value", f.name)
		}
	}
	return b, nil
}

// skip passes over a value.
func skip(w *shape, b []byte) ([]byte, error) {
	switch w.kind {
	case "null":
		return b, nil
	case "boolean":
		return b[1:], nil
	case "float":
		return b[4:], nil
	case "double":
		return b[8:], nil
	case "bytes", "string":
		n, rest, err := number(b)
		if err != nil {
			return nil, err
		}
		return rest[n:], nil
	case "int", "long":
		_, rest, err := number(b)
		return rest, err
	default:
		return resolve(w, w, b)
	}
}

func number(b []byte) (int64, []byte, error) {
	n, size := binary.Varint(b)
	if size <= 0 {
		return 0, nil, errors.New("no number")
	}
	return n, b[size:], nil
}

package postgres

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"

	"millrace/connect/data"
)

var errGeometry = errors.New("the text is no value of its geometric type")

// parsePlane reads all the numbers of a geometric value; what is between them is of no matter once the type is known.
func parsePlane(b []byte) (out []float64, err error) {
	for i := 0; i < len(b); {
		if isPunctuation(b[i]) {
			i++
			continue
		}
		end := i
		for end < len(b) && !isPunctuation(b[end]) {
			end++
		}
		f, err := parseFloat(b[i:end], 64)
		if err != nil {
			return nil, errGeometry
		}
		out = append(out, f)
		i = end
	}
	return out, nil
}

func isPunctuation(c byte) bool {
	switch c {
	case '(', ')', '[', ']', '{', '}', '<', '>', ',':
		return true
	}
	return false
}

// Kinds of well-known binary.
const (
	wkbPoint   = 1
	wkbLine    = 2
	wkbPolygon = 3
)

// wkb is well-known binary, the lowest byte first: a kind, counts, numbers.
func wkb(kind uint32, counts []uint32, numbers []float64) []byte {
	out := make([]byte, 0, 5+4*len(counts)+8*len(numbers))
	out = binary.LittleEndian.AppendUint32(append(out, 1), kind)
	for _, n := range counts {
		out = binary.LittleEndian.AppendUint32(out, n)
	}
	for _, f := range numbers {
		out = binary.LittleEndian.AppendUint64(out, math.Float64bits(f))
	}
	return out
}

func pointValue(s *data.Schema, x, y float64) *data.StructValue {
	return &data.StructValue{Schema: s, Values: []any{x, y, wkb(wkbPoint, nil, []float64{x, y}), nil}}
}

// plane makes a decoder of one that takes exactly so many numbers.
func plane(count int, make func(n []float64) any) decoder {
	return func(b []byte) (any, error) {
		n, err := parsePlane(b)
		if err != nil || len(n) != count {
			return nil, errGeometry
		}
		return make(n), nil
	}
}

func decodePoint(s *data.Schema) decoder {
	return plane(2, func(n []float64) any { return pointValue(s, n[0], n[1]) })
}

func decodeLine(s *data.Schema) decoder {
	return plane(3, func(n []float64) any { return &data.StructValue{Schema: s, Values: []any{n[0], n[1], n[2]}} })
}

func decodeCircle(s *data.Schema) decoder {
	center := s.Fields[0].Schema
	return plane(3, func(n []float64) any {
		return &data.StructValue{Schema: s, Values: []any{pointValue(center, n[0], n[1]), n[2]}}
	})
}

// shape is a geometry with what well-known binary cannot say: which type it was, and whether a path is closed.
func shape(s *data.Schema, body []byte, extensions map[string]any) *data.StructValue {
	return &data.StructValue{Schema: s, Values: []any{body, nil, extensions}}
}

func decodeSegment(s *data.Schema) decoder {
	return plane(4, func(n []float64) any {
		return shape(s, wkb(wkbLine, []uint32{2}, n), map[string]any{"type": "lseg"})
	})
}

func decodeBox(s *data.Schema) decoder {
	return plane(4, func(n []float64) any {
		x1, y1, x2, y2 := n[0], n[1], n[2], n[3]
		ring := []float64{x1, y1, x1, y2, x2, y2, x2, y1, x1, y1}
		return shape(s, wkb(wkbPolygon, []uint32{1, 5}, ring), map[string]any{"type": "box"})
	})
}

func decodePath(s *data.Schema) decoder {
	return func(b []byte) (any, error) {
		n, err := parsePlane(b)
		if err != nil || len(n) == 0 || len(n)%2 != 0 {
			return nil, errGeometry
		}
		closed := "true"
		if b[0] == '[' {
			closed = "false"
		}
		return shape(s, wkb(wkbLine, []uint32{uint32(len(n) / 2)}, n), map[string]any{"type": "path", "closed": closed}), nil
	}
}

// decodePolygon closes the ring, as well-known binary has it.
func decodePolygon(s *data.Schema) decoder {
	return func(b []byte) (any, error) {
		n, err := parsePlane(b)
		if err != nil || len(n) == 0 || len(n)%2 != 0 {
			return nil, errGeometry
		}
		if n[0] != n[len(n)-2] || n[1] != n[len(n)-1] || len(n) == 2 {
			n = append(n, n[0], n[1])
		}
		body := wkb(wkbPolygon, []uint32{1, uint32(len(n) / 2)}, n)
		return shape(s, body, map[string]any{"type": "polygon"}), nil
	}
}

const ewkbHasSRID = 0x20000000

// decodeEWKB reads the hexadecimal text of PostGIS. The bytes stay as they are, with the reference system in them.
func decodeEWKB(s *data.Schema) decoder {
	return func(b []byte) (any, error) {
		raw := make([]byte, len(b)/2)
		if _, err := hex.Decode(raw, b); err != nil || len(raw) < 5 || raw[0] > 1 {
			return nil, errGeometry
		}
		var order binary.ByteOrder = binary.BigEndian
		if raw[0] == 1 {
			order = binary.LittleEndian
		}
		v := data.New(s)
		v.Values[0] = raw
		if order.Uint32(raw[1:])&ewkbHasSRID != 0 {
			if len(raw) < 9 {
				return nil, errGeometry
			}
			v.Values[1] = int32(order.Uint32(raw[5:]))
		}
		return v, nil
	}
}

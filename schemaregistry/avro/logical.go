package avro

import (
	"math"
	"strconv"
)

// logicalType is a logical type that is valid for the type that carries it.
type logicalType struct {
	name             string
	precision, scale int // of a decimal
}

// logicalOf reads the logical type of a node, nil if it has none that fits.
func logicalOf(n *node) *logicalType {
	v := prop(n.props, "logicalType")
	if v == nil || v.kind != jsonString {
		return nil
	}
	valid := false
	switch v.text {
	case "decimal":
		return decimalOf(n)
	case "big-decimal":
		valid = n.kind == kindBytes
	case "duration":
		valid = n.kind == kindFixed && n.size == 12
	case "uuid":
		valid = n.kind == kindString || n.kind == kindFixed && n.size == 16
	case "date", "time-millis":
		valid = n.kind == kindInt
	case "time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos",
		"local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos":
		valid = n.kind == kindLong
	}
	if !valid {
		return nil
	}
	return &logicalType{name: v.text}
}

func decimalOf(n *node) *logicalType {
	most := math.MaxInt32
	switch n.kind {
	case kindBytes:
	case kindFixed:
		most = int(math.Floor(math.Log10(2) * float64(8*n.size-1)))
	default:
		return nil
	}
	precision, ok := intProp(n.props, "precision")
	if !ok || precision <= 0 || precision > most {
		return nil
	}
	scale, ok := intProp(n.props, "scale")
	if !ok && prop(n.props, "scale") != nil || scale < 0 || scale > precision {
		return nil
	}
	return &logicalType{"decimal", precision, scale}
}

func intProp(props []member, name string) (int, bool) {
	v := prop(props, name)
	if v == nil || v.kind != jsonInteger {
		return 0, false
	}
	n, err := strconv.ParseInt(v.text, 10, 32)
	return int(n), err == nil
}

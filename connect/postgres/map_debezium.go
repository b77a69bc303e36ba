package postgres

import (
	"crypto/md5"
	"encoding/hex"
	"strconv"
	"strings"

	"millrace/connect/data"
)

// Units of a day.
const (
	dayMillis = 86_400_000
	dayNanos  = 86_400_000_000_000
)

// The names of Debezium's logical types.
const (
	TimePrefix = "io.debezium.time."
	DataPrefix = "io.debezium.data."

	JSONName            = DataPrefix + "Json"
	UUIDName            = DataPrefix + "Uuid"
	XMLName             = DataPrefix + "Xml"
	EnumName            = DataPrefix + "Enum"
	BitsName            = DataPrefix + "Bits"
	LtreeName           = DataPrefix + "Ltree"
	TsvectorName        = DataPrefix + "Tsvector"
	VariableDecimalName = DataPrefix + "VariableScaleDecimal"
	DoubleVectorName    = DataPrefix + "DoubleVector"
	FloatVectorName     = DataPrefix + "FloatVector"
	SparseVectorName    = DataPrefix + "SparseDoubleVector"
	PointName           = DataPrefix + "geometry.Point"
	LineName            = DataPrefix + "geometry.Line"
	CircleName          = DataPrefix + "geometry.Circle"
	GeometryName        = DataPrefix + "geometry.Geometry"
	GeographyName       = DataPrefix + "geometry.Geography"
)

// LengthKey is the parameter of Bits that says how many there are.
const LengthKey = "length"

// LabelsKey is the parameter of an Enum with its labels, separated by commas.
const LabelsKey = "allowed"

// debezium maps a type as Debezium does; what that leaves out is text, or bytes where that is wanted.
func (m *Mapper) debezium(s *data.Schema, t *Type, typmod int32) codec {
	switch {
	case t.Kind == Enum:
		logical(s, data.String, EnumName)
		setParameter(s, LabelsKey, strings.Join(t.Labels, ","))
		setParameter(s, TypeKey, m.types.Title(t.OID))
		return codec{decodeString, m.m.Placeholder}
	case t.Kind == Array:
		return m.array(s, t, typmod)
	case t.Kind == Range:
		return m.text(s, t)
	case t.Kind != Base:
		return m.unknown(s, t)
	case t.Schema != "pg_catalog":
		return m.extension(s, t)
	}
	if c, ok := m.simple(s, t.Name); ok {
		return c
	}
	if c, ok := m.temporal(s, t.Name, typmod); ok {
		return c
	}
	if c, ok := m.planar(s, t.Name); ok {
		return c
	}
	switch t.Name {
	case "numeric":
		return m.numeric(s, typmod)
	case "money":
		return m.money(s)
	case "bytea":
		return m.binary(s)
	case "bit", "varbit":
		return m.bits(s, t, typmod)
	case "json", "jsonb", "uuid", "xml", "tsvector":
		return m.namedText(s, t)
	case "inet", "cidr", "macaddr", "macaddr8":
		return m.text(s, t)
	}
	return m.unknown(s, t)
}

// namedText is a text that a logical type tells from others.
func (m *Mapper) namedText(s *data.Schema, t *Type) codec {
	names := map[string]string{"json": JSONName, "jsonb": JSONName, "uuid": UUIDName, "xml": XMLName,
		"tsvector": TsvectorName, "ltree": LtreeName}
	logical(s, data.String, names[t.Name])
	if t.Name == "jsonb" {
		setParameter(s, TypeKey, t.Name)
	}
	return codec{decodeString, m.m.Placeholder}
}

// unknown is a type that Debezium leaves out, or gives as bytes.
func (m *Mapper) unknown(s *data.Schema, t *Type) codec {
	if !m.m.Unknown {
		return m.text(s, t)
	}
	setParameter(s, TypeKey, m.types.Title(t.OID))
	if mode := m.m.Binary; mode != "" && mode != "bytes" {
		plain(s, data.String)
		encode := binaryText(mode)
		return codec{func(b []byte) (any, error) { return encode(b), nil }, encode([]byte(m.m.Placeholder))}
	}
	plain(s, data.Bytes)
	return codec{func(b []byte) (any, error) { return append([]byte{}, b...), nil }, []byte(m.m.Placeholder)}
}

func (m *Mapper) numeric(s *data.Schema, typmod int32) codec {
	precision, scale := numericModifier(typmod)
	switch m.m.Decimal {
	case "double":
		plain(s, data.Float64)
		return codec{decodeFloat64, nil}
	case "string":
		plain(s, data.String)
		setParameter(s, TypeKey, "numeric")
		return codec{decodeNumericText, nil}
	}
	if precision > 0 {
		return fillDecimal(s, precision, scale)
	}
	logical(s, data.Struct, VariableDecimalName, data.Field{Name: "scale", Schema: &data.Schema{Type: data.Int32}},
		data.Field{Name: "value", Schema: &data.Schema{Type: data.Bytes}})
	return codec{decodeVariable(s), nil}
}

func (m *Mapper) money(s *data.Schema) codec {
	digits := m.moneyDigits()
	switch m.m.Decimal {
	case "double":
		plain(s, data.Float64)
		return codec{decodeMoney(digits, decodeFloat64), nil}
	case "string":
		plain(s, data.String)
		setParameter(s, TypeKey, "money")
		return codec{decodeMoney(digits, decodeString), nil}
	}
	c := fillDecimal(s, 0, digits)
	c.decode = decodeMoney(digits, c.decode)
	return c
}

func (m *Mapper) binary(s *data.Schema) codec {
	if mode := m.m.Binary; mode != "" && mode != "bytes" {
		plain(s, data.String)
		setParameter(s, TypeKey, "bytea")
		return codec{decodeBinary(mode), binaryText(mode)([]byte(m.m.Placeholder))}
	}
	plain(s, data.Bytes)
	return codec{decodeBytes, []byte(m.m.Placeholder)}
}

func (m *Mapper) bits(s *data.Schema, t *Type, typmod int32) codec {
	if t.Name == "bit" && typmod == 1 {
		plain(s, data.Boolean)
		return codec{decodeBit, nil}
	}
	logical(s, data.Bytes, BitsName)
	length := int64(typmod)
	if length < 0 {
		length = 1<<31 - 1
	}
	setParameter(s, LengthKey, strconv.FormatInt(length, 10))
	if t.Name == "varbit" {
		setParameter(s, TypeKey, "varbit")
	}
	return codec{decodeBits(t.Name == "varbit"), nil}
}

// extension maps what extensions bring, by name, wherever they were put.
func (m *Mapper) extension(s *data.Schema, t *Type) codec {
	switch t.Name {
	case "citext", "isbn", "isbn13":
		return m.text(s, t)
	case "ltree":
		return m.namedText(s, t)
	case "hstore":
		return m.hstore(s, t)
	case "geometry":
		fillGeometry(s, GeometryName)
		return codec{decodeEWKB(s), nil}
	case "geography":
		fillGeometry(s, GeographyName)
		return codec{decodeEWKB(s), nil}
	case "vector":
		logical(s, data.Array, DoubleVectorName)
		s.Elem = &data.Schema{Type: data.Float64}
		return codec{decodeVector(decodeFloat64), nil}
	case "halfvec":
		logical(s, data.Array, FloatVectorName)
		s.Elem = &data.Schema{Type: data.Float32}
		return codec{decodeVector(decodeFloat32), nil}
	case "sparsevec":
		small := &data.Schema{Type: data.Int16}
		logical(s, data.Struct, SparseVectorName, data.Field{Name: "dimensions", Schema: small}, data.Field{Name: "vector",
			Schema: &data.Schema{Type: data.Map, Key: small, Elem: &data.Schema{Type: data.Float64}}})
		return codec{decodeSparse(s), nil}
	}
	return m.unknown(s, t)
}

func (m *Mapper) hstore(s *data.Schema, t *Type) codec {
	if m.m.Hstore == "map" {
		plain(s, data.Map)
		s.Key, s.Elem = &data.Schema{Type: data.String}, &data.Schema{Type: data.String, Optional: true}
		return codec{decodeHstoreMap, map[string]any{m.m.Placeholder: m.m.Placeholder}}
	}
	logical(s, data.String, JSONName)
	setParameter(s, TypeKey, m.types.Title(t.OID))
	return codec{decodeHstoreJSON, m.m.Placeholder}
}

// planar maps the geometric types of the server itself.
func (m *Mapper) planar(s *data.Schema, name string) (c codec, ok bool) {
	real := &data.Schema{Type: data.Float64}
	switch name {
	case "point":
		fillPoint(s)
		return codec{decodePoint(s), nil}, true
	case "line":
		logical(s, data.Struct, LineName, data.Field{Name: "a", Schema: real}, data.Field{Name: "b", Schema: real},
			data.Field{Name: "c", Schema: real})
		return codec{decodeLine(s), nil}, true
	case "circle":
		center := &data.Schema{}
		fillPoint(center)
		logical(s, data.Struct, CircleName, data.Field{Name: "center", Schema: center}, data.Field{Name: "radius",
			Schema: real})
		return codec{decodeCircle(s), nil}, true
	}
	shapes := map[string]func(*data.Schema) decoder{"lseg": decodeSegment, "box": decodeBox, "path": decodePath,
		"polygon": decodePolygon}
	make, ok := shapes[name]
	if !ok {
		return codec{}, false
	}
	fillGeometry(s, GeometryName)
	text := &data.Schema{Type: data.String}
	s.Fields = append(s.Fields, data.Field{Name: "extensions",
		Schema: &data.Schema{Type: data.Map, Optional: true, Key: text, Elem: text}})
	s.Version = 2
	s.Index()
	setParameter(s, TypeKey, name)
	return codec{make(s), nil}, true
}

func fillPoint(s *data.Schema) {
	real := &data.Schema{Type: data.Float64}
	logical(s, data.Struct, PointName, data.Field{Name: "x", Schema: real}, data.Field{Name: "y", Schema: real},
		data.Field{Name: "wkb", Schema: &data.Schema{Type: data.Bytes, Optional: true}},
		data.Field{Name: "srid", Schema: &data.Schema{Type: data.Int32, Optional: true}})
}

func fillGeometry(s *data.Schema, name string) {
	logical(s, data.Struct, name, data.Field{Name: "wkb", Schema: &data.Schema{Type: data.Bytes}},
		data.Field{Name: "srid", Schema: &data.Schema{Type: data.Int32, Optional: true}})
}

// array has elements that may be null. What stands for an unchanged one depends on them.
func (m *Mapper) array(s *data.Schema, t *Type, typmod int32) codec {
	t2, typmod2 := m.types.Resolve(t.Elem, typmod)
	if t2 == nil {
		return m.unknown(s, t)
	}
	delimiter := m.types.Find(t.Elem).Delimiter
	elem := &data.Schema{Optional: true}
	c := m.debezium(elem, t2, typmod2)
	elem.Index()
	plain(s, data.Array)
	s.Elem = elem
	return codec{decodeArray(delimiter, c.decode), m.absentArray(elem, c)}
}

// absentArray stands for an array that was not sent: the placeholder as the one element, or its bytes as numbers.
func (m *Mapper) absentArray(elem *data.Schema, c codec) any {
	switch {
	case elem.Name == UUIDName:
		return []any{nameUUID(m.m.Placeholder)}
	case c.absent != nil:
		return []any{c.absent}
	case elem.Name != "":
		return nil
	}
	var out []any
	for _, b := range []byte(m.m.Placeholder) {
		switch elem.Type {
		case data.Int16:
			out = append(out, int16(b))
		case data.Int32:
			out = append(out, int32(b))
		case data.Int64:
			out = append(out, int64(b))
		}
	}
	if out == nil {
		return nil
	}
	return out
}

// nameUUID is the UUID of a name, version 3 without a name space.
func nameUUID(name string) string {
	h := md5.Sum([]byte(name))
	h[6] = h[6]&0x0f | 0x30
	h[8] = h[8]&0x3f | 0x80
	x := hex.EncodeToString(h[:])
	return x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:]
}

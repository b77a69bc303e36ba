package avro

import (
	"strconv"

	hamba "github.com/hamba/avro/v2"

	"millrace/api/rawjson"
)

// decoder prints a value that a walker has checked.
type decoder struct {
	wire    *hamba.Reader
	dst     []byte
	most    int // bytes of dst
	scratch []byte
}

// maxScratch is how much memory is kept for the next value.
const maxScratch = 64 << 10

func (d *decoder) node(n *node) *fault {
	if len(d.dst) > d.most {
		return &fault{reason: "as JSON the value has more than " + strconv.Itoa(d.most) + " bytes"}
	}
	switch n.kind {
	case kindNull:
		d.dst = append(d.dst, "null"...)
	case kindBoolean:
		d.dst = strconv.AppendBool(d.dst, d.wire.ReadBool())
	case kindInt:
		d.dst = strconv.AppendInt(d.dst, int64(d.wire.ReadInt()), 10)
	case kindLong:
		d.dst = strconv.AppendInt(d.dst, d.wire.ReadLong(), 10)
	case kindFloat:
		d.dst = appendDouble(d.dst, float64(d.wire.ReadFloat()), 32)
	case kindDouble:
		d.dst = appendDouble(d.dst, d.wire.ReadDouble(), 64)
	case kindBytes:
		d.dst = appendBytes(d.dst, d.read(int(d.wire.ReadLong())))
	case kindString:
		d.dst = rawjson.AppendString(d.dst, d.read(int(d.wire.ReadLong())))
	case kindFixed:
		d.dst = appendBytes(d.dst, d.read(n.size))
	case kindEnum:
		d.dst = rawjson.AppendString(d.dst, n.symbols[d.wire.ReadInt()])
	case kindRecord:
		return d.record(n)
	case kindUnion:
		return d.union(n)
	default:
		return d.blocks(n)
	}
	return nil
}

// read takes bytes. They last until the next read.
func (d *decoder) read(size int) []byte {
	b := d.scratch
	if size > cap(b) {
		b = make([]byte, size)
		if size <= maxScratch {
			d.scratch = b
		}
	}
	b = b[:size]
	d.wire.Read(b)
	return b
}

func (d *decoder) record(n *node) *fault {
	d.dst = append(d.dst, '{')
	for i := range n.fields {
		if i > 0 {
			d.dst = append(d.dst, ',')
		}
		d.dst = append(d.dst, n.fields[i].key...)
		if f := d.node(n.fields[i].node); f != nil {
			return f
		}
	}
	d.dst = append(d.dst, '}')
	return nil
}

func (d *decoder) union(n *node) *fault {
	b := n.branches[d.wire.ReadLong()]
	if b.kind == kindNull {
		return d.node(b)
	}
	d.dst = append(rawjson.AppendString(append(d.dst, '{'), b.tag), ':')
	if f := d.node(b); f != nil {
		return f
	}
	d.dst = append(d.dst, '}')
	return nil
}

func (d *decoder) blocks(n *node) *fault {
	brackets := "[]"
	if n.kind == kindMap {
		brackets = "{}"
	}
	d.dst = append(d.dst, brackets[0])
	for first := true; ; {
		count, _ := d.wire.ReadBlockHeader()
		if count == 0 || d.wire.Error != nil {
			break
		}
		for range count {
			if !first {
				d.dst = append(d.dst, ',')
			}
			first = false
			if n.kind == kindMap {
				d.dst = append(rawjson.AppendString(d.dst, d.read(int(d.wire.ReadLong()))), ':')
			}
			if f := d.node(n.item); f != nil {
				return f
			}
		}
	}
	d.dst = append(d.dst, brackets[1])
	return nil
}

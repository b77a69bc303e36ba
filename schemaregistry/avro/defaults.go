package avro

import (
	"strconv"

	"millrace/api/rawjson"
	"millrace/schemaregistry/schema"
)

// defaults says which JSON values are defaults of which types.
type defaults struct {
	verdicts map[pairing]bool // false also while a pairing is being looked at: a default that needs itself is none
	left     int
}

type pairing struct {
	node  *node
	value *value
}

func newDefaults(steps int) *defaults { return &defaults{map[pairing]bool{}, steps} }

// fits says whether a value is a default of a type: for a union, of any of its branches.
func (d *defaults) fits(n *node, v *value) bool {
	if v == nil {
		return false
	}
	if d.left--; d.left < 0 {
		return false
	}
	switch n.kind {
	case kindNull:
		return v.kind == jsonNull
	case kindBoolean:
		return v.kind == jsonBool
	case kindInt:
		return fitsInteger(v, 32)
	case kindLong:
		return fitsInteger(v, 64)
	case kindFloat, kindDouble:
		return v.kind == jsonInteger || v.kind == jsonDouble
	case kindBytes, kindString, kindEnum, kindFixed:
		return v.kind == jsonString
	}
	pair := pairing{n, v}
	if verdict, known := d.verdicts[pair]; known {
		return verdict
	}
	d.verdicts[pair] = false
	verdict := d.composite(n, v)
	d.verdicts[pair] = verdict
	return verdict
}

func fitsInteger(v *value, bits int) bool {
	_, err := strconv.ParseInt(v.text, 10, bits)
	return v.kind == jsonInteger && err == nil
}

func (d *defaults) composite(n *node, v *value) bool {
	switch n.kind {
	case kindUnion:
		for _, b := range n.branches {
			if d.fits(b, v) {
				return true
			}
		}
		return false
	case kindArray:
		for i := range v.items {
			if !d.fits(n.item, &v.items[i]) {
				return false
			}
		}
		return v.kind == jsonArray
	case kindMap:
		for i := range v.members {
			if !d.fits(n.item, &v.members[i].value) {
				return false
			}
		}
		return v.kind == jsonObject
	default:
		return v.kind == jsonObject && d.record(n, v)
	}
}

// record says whether an object has a value for each field that has no default that fits.
func (d *defaults) record(n *node, v *value) bool {
	values := make([]*value, len(n.fields))
	for i := range v.members {
		if at, known := n.fieldIndex[v.members[i].name]; known {
			values[at] = &v.members[i].value
		}
	}
	for i := range n.fields {
		if values[i] == nil {
			values[i] = n.fields[i].def
		}
		if !d.fits(n.fields[i].node, values[i]) {
			return false
		}
	}
	return true
}

// checkDefaults checks the defaults of all records that a text defines.
func (p *parser) checkDefaults(nodes []*node) error {
	d := newDefaults(p.limits.CompareSteps)
	for _, n := range nodes {
		for i := range n.fields {
			f := &n.fields[i]
			if f.def == nil || d.fits(f.node, f.def) {
				continue
			}
			if d.left < 0 {
				return schema.Invalid("checking the defaults takes more than %d steps", p.limits.CompareSteps)
			}
			return schema.Invalid("the default %s of the field %q of the record %q is no value of its type, %s",
				rawjson.Excerpt(appendValue(nil, f.def, false)), f.name, n.name.full(), f.node.describe())
		}
	}
	return nil
}

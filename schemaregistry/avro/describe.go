package avro

import (
	"slices"
	"strconv"
	"strings"

	"millrace/schemaregistry/schema"
)

// maxInfo is how much of a long list a difference shows.
const maxInfo = 4 << 10

// difference fills in what all differences have. The sentence goes on behind the place, which it names.
func (c *comparer) difference(kind string, r, w *node, at *step, info, sentence string) *schema.Difference {
	if len(info) > maxInfo {
		info = strings.ToValidUTF8(info[:maxInfo], "") + "..."
	}
	path := at.String()
	return &schema.Difference{
		Kind: kind, Path: path, Info: info, Reader: r.describe(), Writer: w.describe(),
		Description: "At path '" + path + "' " + sentence,
	}
}

// sides are what both schemas have in one place.
func (c *comparer) sides(r, w string) string {
	return "the " + c.o.ReaderName + " schema has " + r + " and the " + c.o.WriterName + " schema " + w
}

func upper(n *node) string { return strings.ToUpper(n.kind.String()) }

func (c *comparer) types(r, w *node, at *step) *schema.Difference {
	rule := "data of a type is read only as that type"
	switch r.kind {
	case kindLong, kindFloat, kindDouble:
		rule = "numbers are read only as types that are at least as wide, from int over long and float to double"
	case kindBytes, kindString:
		rule = "only bytes and string are read as each other"
	}
	return c.difference(typeMismatch, r, w, at,
		"reader type: "+upper(r)+" not compatible with writer type: "+upper(w),
		c.sides("the type "+r.describe(), "the type "+w.describe())+": "+rule)
}

func (c *comparer) otherName(r, w *node, at *step) *schema.Difference {
	full := clip(w.name.full())
	return c.difference(nameMismatch, r, w, at, "expected: "+full,
		c.sides("the "+r.describe(), "the "+w.describe())+": the names without namespace must be equal, or "+full+
			" be an alias in the "+c.o.ReaderName+" schema")
}

func (c *comparer) sizes(r, w *node, at *step) *schema.Difference {
	rs, ws := strconv.Itoa(r.size), strconv.Itoa(w.size)
	return c.difference(fixedSizeMismatch, r, w, at, "expected: "+ws+", found: "+rs,
		c.sides("the fixed "+clip(r.name.full())+" with "+rs+" bytes", "with "+ws)+": the size of a fixed cannot change")
}

func (c *comparer) lostSymbols(r, w *node, at *step) *schema.Difference {
	var missing []string
	for _, s := range w.symbols {
		if _, known := r.symbolIndex[s]; !known {
			missing = append(missing, s)
		}
	}
	slices.Sort(missing)
	return c.difference(missingSymbols, r, w, at, "["+strings.Join(missing, ", ")+"]",
		"the enum "+clip(r.name.full())+" of the "+c.o.ReaderName+" schema lacks symbols that the "+c.o.WriterName+
			" schema has ("+clip(strings.Join(missing, ", "))+"): a reader knows all symbols or has a default for the others")
}

func (c *comparer) noDefault(r, w *node, f *field, at *step) *schema.Difference {
	d := c.difference(missingDefault, r, w, at, clip(f.name),
		"the record "+clip(r.name.full())+" of the "+c.o.ReaderName+" schema has the field "+clip(f.name)+" of type "+
			f.node.describe()+", which the "+c.o.WriterName+" schema lacks: a field that was not written needs a default")
	d.Reader, d.Writer = "field "+clip(f.name)+" of type "+f.node.describe(), ""
	return d
}

func (c *comparer) ambiguous(r, w *node, f *field, found []*field, at *step) *schema.Difference {
	names := make([]string, 0, len(found))
	for _, g := range found[:min(len(found), 20)] {
		names = append(names, clip(g.name))
	}
	list := strings.Join(names, ", ")
	return c.difference(nameMismatch, r, w, &step{at, "name"}, "expected one of: "+list,
		"the field "+clip(f.name)+" of the "+c.o.ReaderName+" schema stands, by its name and aliases, for several fields of "+
			"the "+c.o.WriterName+" schema ("+list+"): it must be clear which one it reads")
}

func (c *comparer) lacking(r, w *node, at *step) *schema.Difference {
	return c.difference(missingBranch, r, w, at, "reader union lacking writer type: "+upper(w),
		"no type of the union "+r.describe()+" of the "+c.o.ReaderName+" schema reads the type "+w.describe()+" of the "+
			c.o.WriterName+" schema: a union must be able to read every type that was written in its place")
}

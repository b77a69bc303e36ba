package avro

import (
	"strconv"

	"millrace/api/rawjson"
)

// maxWarnings is how many a comparison lists.
const maxWarnings = 100

// warner looks for what Avro's rules let pass and readers may stumble over.
type warner struct {
	c        *comparer
	seen     map[pair]bool
	defaults *defaults
	left     int
	list     []string
}

func (c *comparer) warnings(r, w *node) []string {
	wr := &warner{
		c: c, seen: map[pair]bool{}, left: c.limits.CompareSteps,
		defaults: newDefaults(c.limits.CompareSteps),
	}
	wr.pair(r, w, nil)
	return wr.list
}

func (w *warner) warn(at *step, text string) {
	w.list = append(w.list, "At path '"+at.String()+"' "+text)
}

// pair looks at two types of which one reads the other.
func (w *warner) pair(r, wr *node, at *step) {
	w.left -= pairSteps
	if w.left < 0 || len(w.list) >= maxWarnings {
		return
	}
	if !r.kind.primitive() || !wr.kind.primitive() {
		if w.seen[pair{r, wr}] {
			return
		}
		w.seen[pair{r, wr}] = true
	}
	switch {
	case wr.kind == kindUnion:
		for i, branch := range wr.branches {
			w.pair(r, branch, &step{at, strconv.Itoa(i)})
		}
	case r.kind == kindUnion:
		for _, branch := range r.branches {
			w.left--
			if branch.kind == wr.kind && (!branch.kind.named() || branch.name.name == wr.name.name) {
				w.pair(branch, wr, at)
				return
			}
		}
	case r.kind == wr.kind:
		w.sameKind(r, wr, at)
	case (r.kind == kindFloat || r.kind == kindDouble && wr.kind == kindLong) && promotes(r.kind, wr.kind):
		w.warn(at, wr.kind.String()+" is read as "+r.kind.String()+", which does not hold every whole number exactly")
	case r.kind == kindString && wr.kind == kindBytes:
		w.warn(at, "bytes are read as string: those that are not UTF-8 are no text")
	}
	w.logical(r, wr, at)
}

func (w *warner) sameKind(r, wr *node, at *step) {
	if r.kind.named() && r.name.name == wr.name.name && r.name.space != wr.name.space {
		w.warn(at, "the "+r.kind.String()+" "+clip(wr.name.full())+" of the "+w.c.o.WriterName+" schema is "+
			clip(r.name.full())+" in the "+w.c.o.ReaderName+" schema: not every reader matches names without their namespace")
	}
	switch r.kind {
	case kindArray:
		w.pair(r.item, wr.item, &step{at, "items"})
	case kindMap:
		w.pair(r.item, wr.item, &step{at, "values"})
	case kindRecord:
		w.fields(r, wr, &step{at, "fields"})
	}
}

func (w *warner) fields(r, wr *node, at *step) {
	for i := range r.fields {
		f := &r.fields[i]
		if w.left -= 1 + len(f.aliases); w.left < 0 || len(w.list) >= maxWarnings {
			return
		}
		here := &step{at, strconv.Itoa(i)}
		if found := writerFields(wr, f); len(found) > 0 {
			w.pair(f.node, found[0].node, &step{here, "type"})
			continue
		}
		if f.def != nil && !w.defaults.fits(f.node, f.def) {
			w.warn(here, "the default "+rawjson.Excerpt(appendValue(nil, f.def, false))+" of the field "+clip(f.name)+
				" in the "+w.c.o.ReaderName+" schema is no value of its type, "+f.node.describe()+
				": readers that need it will fail")
		}
	}
}

// logical compares the logical types, which Avro's resolution ignores.
func (w *warner) logical(r, wr *node, at *step) {
	if r.kind == kindUnion || wr.kind == kindUnion || r.logical == nil && wr.logical == nil {
		return
	}
	if r.logical != nil && wr.logical != nil && *r.logical == *wr.logical {
		return
	}
	meaning := "the same values then mean something else"
	if r.logical != nil && wr.logical != nil && r.logical.name == "decimal" && wr.logical.name == "decimal" {
		meaning = "the same bytes then stand for other numbers"
		if r.logical.scale == wr.logical.scale {
			meaning = "numbers may have other digits than the reader has room for"
		}
	}
	w.warn(at, "the logical type changes from "+wr.logical.describe()+" in the "+w.c.o.WriterName+" schema to "+
		r.logical.describe()+" in the "+w.c.o.ReaderName+" schema: "+meaning+", and Avro does not check it")
}

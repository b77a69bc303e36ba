package protobuf

import (
	"maps"
	"slices"
	"strings"

	"millrace/schemaregistry/schema"
)

// Compare lists how data written with writer fares when read with reader. Fields are compared by number, messages by
// name, whatever else is in the files.
func (f *Format) Compare(reader, writer schema.Schema, o schema.CompareOptions) (schema.Comparison, error) {
	r, ok1 := reader.(*parsed)
	w, ok2 := writer.(*parsed)
	if !ok1 || !ok2 {
		return schema.Comparison{}, schema.Invalid("both schemas must be Protobuf schemas")
	}
	c := &comparison{options: o, limits: f.limits, reader: r.view(), writer: w.view(), done: map[pair]int{}}
	c.readerName, c.writerName = o.ReaderName, o.WriterName
	if c.readerName == "" {
		c.readerName = "reader"
	}
	if c.writerName == "" {
		c.writerName = "writer"
	}
	if o.ValidateFields {
		c.reservedFields(r.main.written)
	}
	if a, b := w.main.proto.GetPackage(), r.main.proto.GetPackage(); a != b {
		c.add(packageChanged, a, b)
	}
	c.types(c.writer.shape.messages, c.reader.shape.messages)
	c.enums(c.writer.shape.enums, c.reader.shape.enums)
	if c.steps > f.limits.Steps {
		return schema.Comparison{}, schema.Invalid("comparing takes more than %d steps", f.limits.Steps)
	}
	return schema.Comparison{Differences: c.out, Warnings: c.warnings}, nil
}

// pair is two messages that are compared.
type pair struct{ writer, reader *shapeMessage }

// comparison is one run of Compare.
type comparison struct {
	options                schema.CompareOptions
	limits                 Limits
	reader, writer         *side
	readerName, writerName string

	path     []string
	steps    int
	done     map[pair]int // incompatible differences within; what was compared, or is being, is not compared again
	out      []schema.Difference
	breaks   int // incompatible ones in out
	warnings []string
}

// step counts, and reports whether to go on.
func (c *comparison) step() bool {
	c.steps++
	return c.steps <= c.limits.Steps
}

// at runs fn with the path longer by some parts.
func (c *comparison) at(fn func(), parts ...string) {
	n := len(c.path)
	c.path = append(c.path, parts...)
	fn()
	c.path = c.path[:n]
}

// types compares the messages of one scope by name: first what is gone, then what is new, then what both have.
func (c *comparison) types(writer, reader []*shapeMessage) {
	was, is := byName(writer), byName(reader)
	for _, m := range writer {
		if _, ok := is[m.name]; !ok && c.step() {
			c.at(func() { c.add(messageRemoved, m.name, "") }, m.name)
		}
	}
	for _, m := range reader {
		if _, ok := was[m.name]; !ok && c.step() {
			c.at(func() { c.add(messageAdded, "", m.name) }, m.name)
		}
	}
	for i, m := range reader {
		j, ok := was[m.name]
		if !ok || !c.step() {
			continue
		}
		c.at(func() {
			c.message(writer[j], m)
			if i != j {
				c.add(messageMoved, itoa(j), itoa(i))
				c.warn("message '%s' is number %d in the %s schema and %d in the %s one: payloads name messages by number",
					j, c.writerName, i, c.readerName)
			}
		}, m.name)
	}
}

func byName(messages []*shapeMessage) map[string]int {
	out := make(map[string]int, len(messages))
	for i, m := range messages {
		out[m.name] = i
	}
	return out
}

// message compares two messages of one name, and what is nested in them.
func (c *comparison) message(writer, reader *shapeMessage) {
	p := pair{writer, reader}
	if _, ok := c.done[p]; ok {
		return
	}
	c.done[p] = 0
	before := c.breaks
	c.intoOneofs(writer, reader)
	c.oneofs(writer, reader)
	c.fields(writer, reader)
	c.types(writer.messages, reader.messages)
	c.enums(writer.enums, reader.enums)
	c.done[p] = c.breaks - before
}

// intoOneofs finds fields that exclude each other now but did not before.
func (c *comparison) intoOneofs(writer, reader *shapeMessage) {
	for _, o := range reader.oneofs {
		origins := map[string]bool{}
		plain := 0
		for _, n := range o.numbers {
			f := writer.fields[n]
			switch {
			case f == nil:
			case f.oneof != "":
				origins["oneof "+f.oneof] = true
			default:
				origins["field "+itoa(int(n))] = true
				plain++
			}
		}
		if len(origins) < 2 {
			continue
		}
		kind := fieldMovedToExistingOneof
		if plain > 1 {
			kind = multipleFieldsMovedToOneof
		}
		c.at(func() { c.add(kind, "", o.name) }, o.name)
	}
}

// oneofs compares which oneofs there are, in the order of their names.
func (c *comparison) oneofs(writer, reader *shapeMessage) {
	was, is := oneofNames(writer), oneofNames(reader)
	all := maps.Clone(was)
	maps.Copy(all, is)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		c.at(func() {
			switch {
			case !is[name]:
				c.add(oneofRemoved, name, "")
			case !was[name]:
				c.add(oneofAdded, "", name)
			}
		}, name)
	}
}

func oneofNames(m *shapeMessage) map[string]bool {
	out := map[string]bool{}
	for _, o := range m.oneofs {
		out[o.name] = true
	}
	return out
}

// vanished are the oneofs of writer that reader has neither by name nor by any of their fields.
func vanished(writer, reader *shapeMessage) map[string]bool {
	is := oneofNames(reader)
	out := map[string]bool{}
	for _, o := range writer.oneofs {
		out[o.name] = !is[o.name] && !slices.ContainsFunc(o.numbers,
			func(n int32) bool { return reader.fields[n] != nil })
	}
	return out
}

// fields compares fields by number, wherever they stand.
func (c *comparison) fields(writer, reader *shapeMessage) {
	gone := vanished(writer, reader)
	all := map[int32]bool{}
	for n := range writer.fields {
		all[n] = true
	}
	for n := range reader.fields {
		all[n] = true
	}
	for _, n := range slices.Sorted(maps.Keys(all)) {
		if !c.step() {
			return
		}
		was, is := writer.fields[n], reader.fields[n]
		switch {
		case is == nil && was.oneof == "":
			kind := fieldRemoved
			if was.label == "required" {
				kind = requiredFieldRemoved
			}
			c.at(func() { c.add(kind, was.short(), "") }, was.place()...)
		case is == nil:
			if !gone[was.oneof] {
				c.at(func() { c.add(oneofFieldRemoved, was.short(), "") }, was.place()...)
			}
		case was == nil:
			kind := fieldAdded
			if is.oneof != "" {
				kind = oneofFieldAdded
			} else if is.label == "required" {
				kind = requiredFieldAdded
			}
			c.at(func() { c.add(kind, "", is.short()) }, is.place()...)
		default:
			c.at(func() {
				if was.oneof != "" && is.oneof == "" {
					c.add(oneofFieldMovedToTopLevel, was.short(), is.short())
				}
				c.field(was, is)
			}, is.place()...)
		}
	}
}

// place is where a field is in the path: its number, after the name of its oneof.
func (f *shapeField) place() []string {
	if f.oneof == "" {
		return []string{itoa(int(f.number))}
	}
	return []string{f.oneof, itoa(int(f.number))}
}

// short shows a field in a word or two.
func (f *shapeField) short() string {
	typ := f.named
	if typ == "" {
		typ = scalarName(f.scalar)
	}
	return strings.TrimSpace(f.label + " " + typ + " " + f.name)
}

func (c *comparison) enums(writer, reader []*shapeEnum) {
	was, is := map[string]*shapeEnum{}, map[string]*shapeEnum{}
	for _, e := range writer {
		was[e.name] = e
	}
	for _, e := range reader {
		is[e.name] = e
	}
	for _, e := range writer {
		if is[e.name] == nil && c.step() {
			c.at(func() { c.add(enumRemoved, e.name, "") }, e.name)
		}
	}
	for _, e := range reader {
		if !c.step() {
			return
		}
		c.at(func() {
			if old := was[e.name]; old != nil {
				c.enum(old, e)
			} else {
				c.add(enumAdded, "", e.name)
			}
		}, e.name)
	}
}

// enum compares values by number. Of several names for one, the last counts.
func (c *comparison) enum(writer, reader *shapeEnum) {
	was, is := map[int32]string{}, map[int32]string{}
	for _, v := range writer.values {
		was[v.number] = v.name
	}
	for _, v := range reader.values {
		is[v.number] = v.name
	}
	all := maps.Clone(was)
	maps.Copy(all, is)
	for _, n := range slices.Sorted(maps.Keys(all)) {
		if !c.step() {
			return
		}
		a, inA := was[n]
		b, inB := is[n]
		c.at(func() {
			switch {
			case !inB:
				c.add(enumConstRemoved, a, "")
				if reader.closed {
					c.warn("enum value '%s' is unknown to the %s schema: a field set to it reads as not set",
						c.readerName)
				}
			case !inA:
				c.add(enumConstAdded, "", b)
			case a != b:
				c.add(enumConstChanged, a, b)
			}
		}, itoa(int(n)))
	}
}

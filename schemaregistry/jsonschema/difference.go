package jsonschema

import (
	"slices"
	"strings"

	"millrace/schemaregistry/schema"
)

// class says when a kind of difference is compatible.
type class uint8

const (
	never class = iota
	strict
	lenient
)

// kindInfo says of a kind of difference when it is compatible and what it means. In the text @ is the path in its
// quotes, {new} and {old} are the schemas.
type kindInfo struct {
	class class
	text  string
}

const (
	wider    = "At @ the {new} schema admits more than the {old} schema"
	narrower = "At @ the {new} schema admits less than the {old} schema"
	other    = "At @ the {new} schema differs from the {old} schema in words that do not count"
	fewer    = "At @ the {new} schema has fewer alternatives or parts than the {old} schema"
	more     = "At @ the {new} schema has more alternatives or parts than the {old} schema"
)

// kinds are those whose name does not say enough.
var kinds = map[string]kindInfo{
	"ID_CHANGED":          {strict, other},
	"TITLE_CHANGED":       {strict, other},
	"DESCRIPTION_CHANGED": {strict, other},
	"DEFAULT_CHANGED":     {strict, other},

	"SCHEMA_REMOVED": {strict, "At @ the {new} schema no longer has the schema of the {old} schema"},
	"SCHEMA_ADDED":   {never, "At @ the {new} schema has a schema where the {old} schema has none"},
	"TYPE_EXTENDED":  {strict, "At @ the {new} schema takes any number, the {old} schema whole ones"},
	"TYPE_NARROWED":  {never, "At @ the {new} schema takes whole numbers, the {old} schema any"},
	"TYPE_CHANGED":   {never, "At @ the {new} schema is of another type than the {old} schema"},

	"PATTERN_CHANGED":     {never, "At @ the {new} schema has another pattern than the {old} schema"},
	"MULTIPLE_OF_REDUCED": {strict, wider},
	"MULTIPLE_OF_CHANGED": {never, "At @ the {new} schema has a number that the {old} schema's is no multiple of"},

	"ENUM_ARRAY_EXTENDED": {strict, wider},
	"ENUM_ARRAY_NARROWED": {never, narrower},
	"ENUM_ARRAY_CHANGED":  {never, "At @ the {new} schema lacks values that the {old} schema lists"},

	"REQUIRED_ATTRIBUTE_REMOVED": {strict, "The {new} schema, unlike the {old} schema, does not want the property of @"},
	"REQUIRED_ATTRIBUTE_ADDED":   {never, "The {new} schema, unlike the {old} schema, wants the property of @"},
	"REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED": {
		strict, "The {new} schema, unlike the {old} schema, wants the property of @, and has a default for it",
	},

	"DEPENDENCY_ARRAY_NARROWED": {strict, wider},
	"DEPENDENCY_ARRAY_CHANGED":  {never, "At @ the {new} schema wants other properties than the {old} schema"},

	"ADDITIONAL_PROPERTIES_ADDED":   {strict, wider},
	"ADDITIONAL_PROPERTIES_REMOVED": {lenient, narrower},
	"UNEVALUATED_PROPERTIES_ADDED":  {strict, wider},
	"UNEVALUATED_PROPERTIES_REMOVED": {
		lenient, narrower,
	},
	"ADDITIONAL_ITEMS_ADDED":          {strict, wider},
	"ADDITIONAL_ITEMS_REMOVED":        {never, narrower},
	"UNEVALUATED_ITEMS_ADDED":         {strict, wider},
	"UNEVALUATED_ITEMS_REMOVED":       {never, narrower},
	"ADDITIONAL_PROPERTIES_NARROWED":  {lenient, narrower},
	"UNEVALUATED_PROPERTIES_NARROWED": {lenient, narrower},

	"PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL": {
		strict, addedWithoutLimit,
	},
	"REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL": {lenient, addedToOpen},
	"REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL":              {never, addedToOpen},
	"OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL":              {lenient, addedToOpen},
	"PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL":  {strict, addedCovered},
	"PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": {lenient, addedNotCovered},
	"REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": {
		never, "The {new} schema wants a property at @ which the {old} schema does not admit or need not have",
	},
	"REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL": {
		strict, "The {new} schema wants a property at @ and has a default for it; the {old} schema does not declare it",
	},
	"OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": {
		strict, "The {new} schema may have a property at @ which the {old} schema does not declare",
	},
	"PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL":                     {strict, removedFromOpen},
	"PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL":  {strict, removedCovered},
	"PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": {lenient, removedUncovered},
	"PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL":        {strict, removedFalse},
	"PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL":                   {lenient, removedFromClosed},

	"ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL": {
		strict, addedWithoutLimit,
	},
	"ITEM_ADDED_TO_OPEN_CONTENT_MODEL":                         {never, addedToOpen},
	"ITEM_ADDED_TO_CLOSED_CONTENT_MODEL":                       {strict, addedToClosed},
	"ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL":    {strict, addedCovered},
	"ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL":   {never, addedNotCovered},
	"ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL":                     {strict, removedFromOpen},
	"ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL":  {strict, removedCovered},
	"ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": {never, removedUncovered},
	"ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL":        {strict, removedFalse},
	"ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL":                   {never, removedFromClosed},

	"COMBINED_TYPE_EXTENDED": {strict, "At @ the {new} schema combines its parts more widely than the {old} schema"},
	"COMBINED_TYPE_CHANGED":  {never, "At @ the {new} schema combines its parts by another keyword than the {old} schema"},
	"PRODUCT_TYPE_EXTENDED":  {never, more},
	"PRODUCT_TYPE_NARROWED":  {strict, fewer},
	"SUM_TYPE_EXTENDED":      {strict, more},
	"SUM_TYPE_NARROWED":      {never, fewer},
	"COMBINED_TYPE_SUBSCHEMAS_CHANGED": {
		never, "At @ the alternatives or parts of the {old} schema have too few in the {new} schema that take them",
	},
	"NOT_TYPE_NARROWED": {strict, "At @ the {new} schema excludes no more than the {old} schema"},
	"NOT_TYPE_EXTENDED": {never, "At @ the {new} schema excludes more than the {old} schema"},

	reservedRemoved:  {never, "The {new} schema's metadata no longer reserve @, which those of the {old} schema reserve"},
	reservedConflict: {never, "The {new} schema has a property at @, which metadata reserve; the {old} schema had none"},
}

const (
	addedWithoutLimit = "The {new} schema sets no limit to what is at @; the {old} schema is open and lets it be anything"
	addedToOpen       = "The {new} schema limits what is at @; the {old} schema is open and lets it be anything"
	addedToClosed     = "The {new} schema may have an item at @, the {old} schema not"
	addedCovered      = "The {new} schema declares what is at @, and takes what the {old} schema has for the undeclared"
	addedNotCovered   = "The {new} schema declares what is at @, but does not take what the {old} schema has for others"
	removedFromOpen   = "The {new} schema does not declare what is at @ in the {old} schema, but is open"
	removedCovered    = "The {new} schema takes what is at @ in the {old} schema by what it has for the undeclared"
	removedUncovered  = "The {new} schema does not take what is at @ in the {old} schema by what it has for the undeclared"
	removedFalse      = "The {new} schema does not declare what is at @ in the {old} schema and may not be there in either"
	removedFromClosed = "The {new} schema is closed and does not declare what is at @ in the {old} schema"

	reservedRemoved  = "RESERVED_PROPERTY_REMOVED"
	reservedConflict = "RESERVED_PROPERTY_CONFLICTS_WITH_PROPERTY"
)

// infoOf finds what a kind means. Kinds of limits say it by their name.
func infoOf(kind string) kindInfo {
	if i, ok := kinds[kind]; ok {
		return i
	}
	upper := strings.HasPrefix(kind, "MAX") || strings.HasPrefix(kind, "EXCLUSIVE_MAX")
	switch {
	case strings.HasSuffix(kind, "_REMOVED"), strings.HasSuffix(kind, "_INCREASED") && upper,
		strings.HasSuffix(kind, "_DECREASED") && !upper, strings.HasSuffix(kind, "ITEMS_EXTENDED"),
		strings.HasSuffix(kind, "PROPERTIES_EXTENDED"):
		return kindInfo{strict, wider}
	}
	return kindInfo{never, narrower}
}

func compatible(kind string, underLenient bool) bool {
	c := infoOf(kind).class
	return c == strict || c == lenient && underLenient
}

const (
	maxDifferences = 1000
	maxWarnings    = 100
	maxShown       = 80 // bytes of a value
)

// report lists what a result holds, as much as anybody reads. One that is incompatible is always among it.
type report struct {
	o           schema.CompareOptions
	differences []schema.Difference
	warnings    []string
	badOnly     bool // list incompatible differences alone
	cost        int  // of visits, and of the paths' lengths
}

func (c *comparer) report(root *result, o schema.CompareOptions) schema.Comparison {
	p := report{o: o}
	p.list(root, "")
	if root.bad && !slices.ContainsFunc(p.differences, func(d schema.Difference) bool { return !d.Compatible }) {
		p = report{o: o, warnings: p.warnings, badOnly: true}
		p.list(root, "")
	}
	return schema.Comparison{Differences: p.differences, Warnings: p.warnings}
}

// list goes through the graph of results, each as often as there are ways to it, but not for ever.
func (p *report) list(r *result, prefix string) {
	const most = 20_000
	for i := range r.items {
		it := &r.items[i]
		p.cost += 1 + (len(prefix)+len(it.path))/256
		if spent := p.cost > most; len(p.differences) >= maxDifferences || spent && (!p.badOnly || len(p.differences) > 0) {
			return
		}
		path := prefix
		if it.path != "" {
			path += "/" + it.path
		}
		switch {
		case it.sub != nil && (it.sub.bad || !p.badOnly):
			p.list(it.sub, path)
		case it.kind != "":
			if d := p.difference(it, path); !p.badOnly || !d.Compatible {
				p.differences = append(p.differences, d)
			}
		case it.warn != "" && !p.badOnly && len(p.warnings) < maxWarnings:
			if w := showPath(path) + ": " + it.warn; !slices.Contains(p.warnings, w) {
				p.warnings = append(p.warnings, w)
			}
		}
	}
}

// showPath is a path as the registry's clients know it.
func showPath(path string) string { return "#/" + strings.TrimPrefix(path, "/") }

func (p *report) difference(it *item, path string) schema.Difference {
	d := schema.Difference{
		Kind: it.kind, Path: showPath(path), Compatible: compatible(it.kind, p.o.Lenient),
		Reader: show(it.n), Writer: show(it.o),
	}
	d.Description = describe(it.kind, d.Path, p.o)
	return d
}

func describe(kind, path string, o schema.CompareOptions) string {
	reader, writer := o.ReaderName, o.WriterName
	if reader == "" {
		reader = "new"
	}
	if writer == "" {
		writer = "old"
	}
	return strings.NewReplacer("@", "'"+path+"'", "{new}", reader, "{old}", writer).Replace(infoOf(kind).text)
}

// show is the beginning of a value's text.
func show(v *value) string {
	if v == nil {
		return ""
	}
	b := v.appendShort(nil)
	if len(b) > maxShown {
		return strings.ToValidUTF8(string(b[:maxShown]), "") + "..."
	}
	return string(b)
}

// appendShort prints until there is enough.
func (v *value) appendShort(dst []byte) []byte {
	if v.kind != array && v.kind != object {
		if len(v.text) > maxShown {
			return appendString(dst, strings.ToValidUTF8(v.text[:maxShown+1], ""))
		}
		return v.append(dst, false)
	}
	open, closing := byte('['), byte(']')
	if v.kind == object {
		open, closing = '{', '}'
	}
	dst = append(dst, open)
	for i := range v.items() {
		if len(dst) > maxShown {
			return dst
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		if v.kind == object {
			dst = append(appendString(dst, v.sub.names[i]), ':')
		}
		dst = v.sub.items[i].appendShort(dst)
	}
	return append(dst, closing)
}

// reserved lists the property paths that are no longer reserved, and those that are there although they are reserved.
func reserved(reader, writer *Schema, o schema.CompareOptions) []schema.Difference {
	now, before, s := o.ReaderReserved, o.WriterReserved, reader
	if o.ReaderName == "old" { // the new schema is the writer
		now, before, s = before, now, writer
		o.ReaderName, o.WriterName = o.WriterName, o.ReaderName
	}
	var list []schema.Difference
	add := func(kind, path string) {
		path = "#/properties/" + strings.ReplaceAll(path, ".", "/properties/")
		list = append(list, schema.Difference{Kind: kind, Path: path, Description: describe(kind, path, o)})
	}
	for _, path := range before {
		if !slices.Contains(now, path) {
			add(reservedRemoved, path)
		}
	}
	for _, path := range now {
		if s.hasProperty(path) {
			add(reservedConflict, path)
		}
	}
	return list[:min(len(list), maxDifferences)]
}

// hasProperty says whether there is a property on a path of names from the root.
func (s *Schema) hasProperty(path string) bool {
	n := s.root
	for path != "" {
		if n.obj == nil {
			return false
		}
		if n.obj.prop(path) != nil {
			return true
		}
		name, rest, _ := strings.Cut(path, ".")
		if n = n.obj.prop(name); n == nil {
			return false
		}
		for range maxFollowed {
			if n.ref == nil {
				break
			}
			n = n.ref
		}
		path = rest
	}
	return true
}

// maxFollowed is how many references to references are followed where no more matters.
const maxFollowed = 16

package avro

// Type is a type of a schema, for callers that translate values by themselves. The zero Type is none.
type Type struct{ n *node }

// Field is a field of a record.
type Field struct{ f *field }

// Root is the type that the schema describes.
func (s *Schema) Root() Type { return Type{s.root} }

// Kind is the type's name as schemas spell it: null, boolean, int, long, float, double, bytes, string, record, enum,
// fixed, array, map or union.
func (t Type) Kind() string { return t.n.kind.String() }

// Name is the full name of a record, enum or fixed, "" of another type.
func (t Type) Name() string {
	if t.n.kind.named() {
		return t.n.name.full()
	}
	return ""
}

// Doc is what the type says of itself.
func (t Type) Doc() string {
	if t.n.doc == nil {
		return ""
	}
	return *t.n.doc
}

// Size is how many bytes a fixed has.
func (t Type) Size() int { return t.n.size }

// Symbols are those of an enum.
func (t Type) Symbols() []string { return t.n.symbols }

// DefaultSymbol is the one that an enum has for readers; "" if none.
func (t Type) DefaultSymbol() string {
	if t.n.defaultSymbol == nil {
		return ""
	}
	return *t.n.defaultSymbol
}

// Item is the type of the items of an array, or of the values of a map.
func (t Type) Item() Type { return Type{t.n.item} }

// Branches are the types of a union.
func (t Type) Branches() []Type {
	out := make([]Type, len(t.n.branches))
	for i, b := range t.n.branches {
		out[i] = Type{b}
	}
	return out
}

// Fields are those of a record.
func (t Type) Fields() []Field {
	out := make([]Field, len(t.n.fields))
	for i := range t.n.fields {
		out[i] = Field{&t.n.fields[i]}
	}
	return out
}

// Prop is a property of the type as JSON, nil if it has none of that name.
func (t Type) Prop(name string) []byte { return propText(t.n.props, name) }

// Props are the names of the type's properties.
func (t Type) Props() []string {
	out := make([]string, len(t.n.props))
	for i := range t.n.props {
		out[i] = t.n.props[i].name
	}
	return out
}

// Same says whether two types are one.
func (t Type) Same(o Type) bool { return t.n == o.n }

// Name is the field's name.
func (f Field) Name() string { return f.f.name }

// Type is the field's type.
func (f Field) Type() Type { return Type{f.f.node} }

// Doc is what the field says of itself.
func (f Field) Doc() string {
	if f.f.doc == nil {
		return ""
	}
	return *f.f.doc
}

// Default is the field's default as JSON, nil if it has none.
func (f Field) Default() []byte {
	if f.f.def == nil {
		return nil
	}
	return appendValue(nil, f.f.def, false)
}

// Prop is a property of the field as JSON, nil if it has none of that name.
func (f Field) Prop(name string) []byte { return propText(f.f.props, name) }

func propText(props []member, name string) []byte {
	if v := prop(props, name); v != nil {
		return appendValue(nil, v, false)
	}
	return nil
}

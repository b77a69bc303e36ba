package postgres

import "context"

// TypeKind says what a type is made of.
type TypeKind byte

// The kinds, by their letters in the catalog; Array is ours.
const (
	Base       TypeKind = 'b'
	Composite  TypeKind = 'c'
	Domain     TypeKind = 'd'
	Enum       TypeKind = 'e'
	Multirange TypeKind = 'm'
	Pseudo     TypeKind = 'p'
	Range      TypeKind = 'r'
	Array      TypeKind = 'A'
)

// Type is a type as the catalog has it.
type Type struct {
	OID          uint32
	Schema, Name string // as pg_type has them: int4, _text
	Kind         TypeKind
	Base         uint32   // of a domain: what it is of, which may be a domain again
	Typmod       int32    // of a domain: its base's, -1 if it has none
	Elem         uint32   // of an array, range or multirange
	Delimiter    byte     // between elements of an array of this type
	Labels       []string // of an enum, in order
}

// Types are types by their OIDs. It only grows, and is not safe for concurrent use while it is loaded.
type Types struct{ byOID map[uint32]*Type }

// NewTypes knows no types yet beside the built-in ones.
func NewTypes() *Types { return newTypes() }

// LoadTypes knows the types with these OIDs and all that they are made of.
func LoadTypes(ctx context.Context, q Querier, oids []uint32) (*Types, error) {
	t := NewTypes()
	return t, t.Load(ctx, q, oids)
}

// Load adds the types with these OIDs, and all that they are made of, where they are not known yet.
func (t *Types) Load(ctx context.Context, q Querier, oids []uint32) error {
	return t.load(ctx, q, oids)
}

// Forget forgets a type, to have it loaded anew: an enum has got a label.
func (t *Types) Forget(oid uint32) { delete(t.byOID, oid) }

// Find is the type with an OID, nil if it is not known.
func (t *Types) Find(oid uint32) *Type { return t.byOID[oid] }

// Resolve is what a type is below its domains, with the modifier that holds there.
func (t *Types) Resolve(oid uint32, typmod int32) (*Type, int32) { return t.resolve(oid, typmod) }

// Title is the name of a type for people and for casts: text[], numeric, app.mood.
func (t *Types) Title(oid uint32) string { return t.title(oid) }

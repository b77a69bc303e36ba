package postgres

import (
	"context"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"
)

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

// Types are types by their OIDs. It is not safe for concurrent use while it is loaded.
type Types struct{ byOID map[uint32]*Type }

// NewTypes knows no types yet.
func NewTypes() *Types { return &Types{byOID: map[uint32]*Type{}} }

// LoadTypes knows the types with these OIDs and all that they are made of.
func LoadTypes(ctx context.Context, q Querier, oids []uint32) (*Types, error) {
	t := NewTypes()
	return t, t.Load(ctx, q, oids)
}

// Load adds the types with these OIDs, and all that they are made of, where they are not known yet. OIDs of types that
// are gone stay unknown.
func (ts *Types) Load(ctx context.Context, q Querier, oids []uint32) error {
	for {
		var missing []uint32
		for _, oid := range oids {
			if oid != 0 && ts.byOID[oid] == nil && !slices.Contains(missing, oid) {
				missing = append(missing, oid)
			}
		}
		if len(missing) == 0 {
			return nil
		}
		found, err := loadTypes(ctx, q, missing)
		if err != nil {
			return err
		}
		oids = nil
		for _, t := range found {
			ts.byOID[t.OID] = t
			oids = append(oids, t.Base, t.Elem)
		}
	}
}

func loadTypes(ctx context.Context, q Querier, oids []uint32) (out []*Type, err error) {
	rows, err := q.Query(ctx, `SELECT t.oid, n.nspname::text, t.typname::text, t.typtype::text, t.typbasetype, t.typtypmod,
		CASE WHEN e.oid IS NOT NULL THEN e.oid ELSE coalesce(r.rngsubtype, 0) END, t.typdelim::text, e.oid IS NOT NULL,
		ARRAY(SELECT l.enumlabel::text FROM pg_catalog.pg_enum l WHERE l.enumtypid = t.oid ORDER BY l.enumsortorder)
		FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
		LEFT JOIN pg_catalog.pg_type e ON e.typarray = t.oid
		LEFT JOIN pg_catalog.pg_range r ON r.rngtypid = t.oid WHERE t.oid = ANY($1::oid[])`, oids)
	if err != nil {
		return nil, err
	}
	t := Type{}
	var kind, delimiter string
	var isArray bool
	_, err = pgx.ForEachRow(rows, []any{&t.OID, &t.Schema, &t.Name, &kind, &t.Base, &t.Typmod, &t.Elem, &delimiter,
		&isArray, &t.Labels}, func() error {
		found := t
		found.Kind, found.Delimiter, found.Labels = TypeKind(kind[0]), delimiter[0], slices.Clone(t.Labels)
		if isArray {
			found.Kind = Array
		}
		out = append(out, &found)
		return nil
	})
	return out, err
}

// Forget forgets a type, to have it loaded anew: an enum has got a label.
func (ts *Types) Forget(oid uint32) { delete(ts.byOID, oid) }

// Find is the type with an OID, nil if it is not known.
func (ts *Types) Find(oid uint32) *Type { return ts.byOID[oid] }

// Resolve is what a type is below its domains, with the modifier that holds there; nil if it is not known.
func (ts *Types) Resolve(oid uint32, typmod int32) (*Type, int32) {
	t := ts.byOID[oid]
	for t != nil && t.Kind == Domain {
		if t.Typmod != -1 {
			typmod = t.Typmod
		}
		t = ts.byOID[t.Base]
	}
	return t, typmod
}

// Title is the name of a type for people and for casts, as in text[] or app.mood. Types of the system and of the schema
// public have no schema in it.
func (ts *Types) Title(oid uint32) string {
	t := ts.byOID[oid]
	switch {
	case t == nil:
		return "type " + strconv.FormatUint(uint64(oid), 10)
	case t.Kind == Array && ts.byOID[t.Elem] != nil:
		return ts.Title(t.Elem) + "[]"
	case t.Schema == "pg_catalog" || t.Schema == "public":
		return quoteOdd(t.Name)
	}
	return quoteOdd(t.Schema) + "." + quoteOdd(t.Name)
}

// quoteOdd quotes a name that would mean another without quotes. The system's type "char" is one, and bit, which is
// bit(1) then.
func quoteOdd(name string) string {
	plain := name != "char" && name != "bit"
	for i := range len(name) {
		c := name[i]
		plain = plain && (c == '_' || c >= 'a' && c <= 'z' || i > 0 && c >= '0' && c <= '9')
	}
	if plain {
		return name
	}
	return Quote(name)
}

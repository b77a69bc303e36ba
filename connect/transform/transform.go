package transform

import (
	"fmt"

	"millrace/connect/data"
	"millrace/connect/plugin"
)

// kafka is the package of Kafka Connect's own transforms.
const kafka = "org.apache.kafka.connect.transforms."

// class is a class of transforms. Where both is set it has the forms $Key and $Value, which change that part of a
// record.
type class struct {
	name string
	both bool
	defs plugin.Defs
	make func(p part, s plugin.Settings) (plugin.Transform, error)
}

// classes lists all classes of transforms.
func classes() []class {
	return []class{
		castClass(), dropHeadersClass(), extractFieldClass(), filterClass(), flattenClass(), headerFromClass(),
		hoistFieldClass(), insertFieldClass(), insertHeaderClass(), maskFieldClass(), regexRouterClass(),
		replaceFieldClass(), setSchemaMetadataClass(), timestampConverterClass(), timestampRouterClass(),
		valueToKeyClass(), newRecordStateClass(), eventRouterClass(),
	}
}

// part is a part of a record.
type part bool

const (
	valuePart part = false
	keyPart   part = true
)

func (p part) get(r *data.Record) (*data.Schema, any) {
	if p == keyPart {
		return r.KeySchema, r.Key
	}
	return r.ValueSchema, r.Value
}

func (p part) set(r *data.Record, s *data.Schema, v any) *data.Record {
	if p == keyPart {
		r.KeySchema, r.Key = s, v
	} else {
		r.ValueSchema, r.Value = s, v
	}
	return r
}

func (p part) String() string {
	if p == keyPart {
		return "key"
	}
	return "value"
}

// object is a part of a record that has fields: a struct, or a map without a schema. Both are nil of a null.
func (p part) object(r *data.Record, transform string) (x *data.StructValue, m map[string]any, err error) {
	s, v := p.get(r)
	switch v := v.(type) {
	case nil:
		return nil, nil, nil
	case *data.StructValue:
		return v, nil, nil
	case map[string]any:
		if s == nil {
			return nil, v, nil
		}
	}
	return nil, nil, fmt.Errorf("%s: the %s is %s, and has no fields", transform, p, kindOf(v))
}

// form is one of the names of a class, and the part that it is for.
type form struct {
	plugin.Info
	part part
}

func (c *class) forms() []form {
	of := func(name string, p part) form {
		return form{plugin.Info{Class: name, Kind: plugin.TransformKind, Defs: c.defs}, p}
	}
	if c.both {
		return []form{of(c.name+"$Key", keyPart), of(c.name+"$Value", valuePart)}
	}
	return []form{of(c.name, valuePart)}
}

func (p *predicate) info() plugin.Info {
	return plugin.Info{Class: p.name, Kind: plugin.PredicateKind, Defs: p.defs}
}

// Classes lists the transforms and predicates.
func Classes() (out []plugin.Info) {
	for _, c := range classes() {
		for _, f := range c.forms() {
			out = append(out, f.Info)
		}
	}
	for _, p := range predicates() {
		out = append(out, p.info())
	}
	return out
}

// New makes a transform of a class from its settings.
func New(name string, props map[string]string) (plugin.Transform, error) {
	for _, c := range classes() {
		for _, f := range c.forms() {
			if f.Match(name) == 0 {
				continue
			}
			if err := refuse(c.defs.Check(props)); err != nil {
				return nil, err
			}
			return c.make(f.part, c.defs.Settings(props))
		}
	}
	return nil, fmt.Errorf("there is no transform of class %q: see GET /connector-plugins?connectorsOnly=false", name)
}

// NewPredicate makes a predicate of a class from its settings.
func NewPredicate(name string, props map[string]string) (plugin.Predicate, error) {
	for _, p := range predicates() {
		if info := p.info(); info.Match(name) == 0 {
			continue
		}
		if err := refuse(p.defs.Check(props)); err != nil {
			return nil, err
		}
		return p.make(p.defs.Settings(props))
	}
	return nil, fmt.Errorf("there is no predicate of class %q: see GET /connector-plugins?connectorsOnly=false", name)
}

// refuse makes the first problem of some an error.
func refuse(problems []plugin.Problem) error {
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %s", problems[0].Key, problems[0].Message)
}

// func1 is a transform without a state of its own.
type func1 func(r *data.Record) (*data.Record, error)

// Apply implements plugin.Transform.
func (f func1) Apply(r *data.Record) (*data.Record, error) { return f(r) }

// maxCached bounds what a transform remembers of schemas that it has met.
const maxCached = 64

// cache remembers what was made, by what it was made of: a schema, mostly.
type cache[K comparable, T any] struct{ made map[K]T }

// get is what was made of k, or is made now.
func (c *cache[K, T]) get(k K, build func() (T, error)) (T, error) {
	if v, ok := c.made[k]; ok {
		return v, nil
	}
	v, err := build()
	if err != nil {
		return v, err
	}
	if c.made == nil || len(c.made) >= maxCached {
		c.made = map[K]T{}
	}
	c.made[k] = v
	return v, nil
}

// structs are schemas of structs, by what they were made of.
type structs = cache[*data.Schema, *data.Schema]

// like is the schema of a struct with other fields.
func like(s *data.Schema, fields []data.Field) (*data.Schema, error) {
	o := *s
	o.Fields = fields
	o.Default = nil // it would have other fields
	o.Index()
	for i := range fields {
		if o.Field(fields[i].Name) != i {
			return nil, fmt.Errorf("there would be two fields %q", fields[i].Name)
		}
	}
	return &o, nil
}

// kindOf tells a value's type in an error.
func kindOf(v any) string {
	switch x := v.(type) {
	case nil:
		return "null"
	case *data.StructValue:
		return "a struct"
	case map[string]any, []data.Entry:
		return "a map"
	case []any:
		return "an array"
	case []byte:
		return "bytes"
	default:
		return fmt.Sprintf("of type %T", x)
	}
}

// def shortens the definitions of the package.
func def(name string, t plugin.Type, preset, doc string) plugin.Def {
	return plugin.Def{Name: name, Type: t, Default: preset, Importance: plugin.Medium, Doc: doc}
}

func required(name string, t plugin.Type, doc string) plugin.Def {
	return plugin.Def{Name: name, Type: t, Required: true, Importance: plugin.High, Doc: doc}
}

func optional(name string, t plugin.Type, doc string) plugin.Def {
	return plugin.Def{Name: name, Type: t, Null: true, Importance: plugin.Medium, Doc: doc}
}

// replaceNull is the setting of those that read fields.
func replaceNull() plugin.Def {
	return def(replaceNullKey, plugin.Boolean, "true",
		"Whether a null of a field that has a default is read as the default.")
}

const replaceNullKey = "replace.null.with.default"

// read is the value of a field, or its default for a null where that is wanted.
func read(f *data.Field, v any, orDefault bool) any {
	if v == nil && orDefault {
		return f.Schema.Default
	}
	return v
}

// valuesOf are the values of a struct, which are read.
func valuesOf(x *data.StructValue, orDefault bool) []any {
	out := make([]any, len(x.Values))
	for i := range x.Values {
		out[i] = read(&x.Schema.Fields[i], x.Values[i], orDefault)
	}
	return out
}

package transform

import (
	"fmt"
	"slices"
	"strings"

	"millrace/connect/data"
	"millrace/connect/plugin"
)

// The ways in which deletes and tombstones are handled.
const (
	deleteDrop      = "drop"                   // both go
	deleteTombstone = "tombstone"              // the delete goes, the tombstone behind it stays
	deleteRewrite   = "rewrite"                // the delete says what was there, the tombstone goes
	deleteRewriteTo = "rewrite-with-tombstone" // and the tombstone stays
	deleteTo        = "delete-to-tombstone"    // the delete is made a tombstone, that behind it goes
)

func newRecordStateClass() class {
	mode := def("delete.tombstone.handling.mode", plugin.String, deleteTombstone,
		"What becomes of a delete and the tombstone behind it.")
	mode.Values = []string{deleteDrop, deleteTombstone, deleteRewrite, deleteRewriteTo, deleteTo}
	return class{
		name: "io.debezium.transforms.ExtractNewRecordState",
		defs: plugin.Defs{
			mode, optional("drop.tombstones", plugin.Boolean, "An old setting: false keeps tombstones."),
			optional("delete.handling.mode", plugin.String, "An old setting: drop, rewrite or none."),
			def("add.fields", plugin.List, "", "Fields of the envelope to add, such as op, source.ts_ms or table:name."),
			def("add.fields.prefix", plugin.String, "__", "What their names begin with."),
			def("add.headers", plugin.List, "", "Fields of the envelope to add as headers."),
			def("add.headers.prefix", plugin.String, "__", "What their names begin with."),
			optional("route.by.field", plugin.String, "A field of the row whose value is the topic."),
			optional("drop.fields.header.name", plugin.String, "A header that lists fields to leave out."),
			def("drop.fields.from.key", plugin.Boolean, "false", "Whether they are left out of the key too."),
			def("drop.fields.keep.schema.compatible", plugin.Boolean, "true", "Whether only optional fields may be left out."),
		},
		make: makeNewRecordState,
	}
}

func makeNewRecordState(_ part, s plugin.Settings) (plugin.Transform, error) {
	t := &newRecordState{
		mode: s.Lower("delete.tombstone.handling.mode"), route: s.String("route.by.field"),
		dropHeader: s.String("drop.fields.header.name"), dropFromKey: s.Bool("drop.fields.from.key"),
		dropOptional: s.Bool("drop.fields.keep.schema.compatible"),
		fields:       envelopeFields(s.List("add.fields"), s.String("add.fields.prefix")),
		headers:      envelopeFields(s.List("add.headers"), s.String("add.headers.prefix")),
	}
	if _, given := s.Given("delete.tombstone.handling.mode"); !given {
		t.mode = oldDeleteMode(s, t.mode)
	}
	return t, nil
}

// oldDeleteMode is what two settings of old versions come to.
func oldDeleteMode(s plugin.Settings, preset string) string {
	drop, dropGiven := s.Given("drop.tombstones")
	handling, given := s.Given("delete.handling.mode")
	if !dropGiven && !given {
		return preset
	}
	keep := dropGiven && strings.EqualFold(drop, "false")
	switch strings.ToLower(handling) {
	case "rewrite":
		if keep {
			return deleteRewriteTo
		}
		return deleteRewrite
	case "none":
		return deleteTo
	}
	if keep {
		return deleteTombstone
	}
	return deleteDrop
}

// envelopeField is a field of the envelope that is added to a row, or to the headers.
type envelopeField struct {
	path []string
	name string
}

func envelopeFields(list []string, prefix string) (out []envelopeField) {
	for _, e := range list {
		from, to, renamed := strings.Cut(e, ":")
		path := strings.Split(from, ".")
		if !renamed {
			to = strings.Join(path, "_")
		}
		out = append(out, envelopeField{path, prefix + to})
	}
	return out
}

// find is the field of an envelope. What the envelope does not have is looked for in its source.
func (f *envelopeField) find(envelope any) (*data.Schema, any) {
	s, v, ok := descend(envelope, f.path)
	if !ok && len(f.path) == 1 {
		s, v, _ = descend(envelope, []string{"source", f.path[0]})
	}
	if _, bare := envelope.(map[string]any); s == nil && !bare { // the envelope has no such field
		return &data.Schema{Type: data.String, Optional: true}, nil
	}
	return s, v
}

// descend follows a path through structs and maps.
func descend(v any, path []string) (s *data.Schema, out any, ok bool) {
	for _, step := range path {
		switch x := v.(type) {
		case *data.StructValue:
			i := x.Schema.Field(step)
			if i < 0 {
				return nil, nil, false
			}
			s, v = x.Schema.Fields[i].Schema, x.Values[i]
		case map[string]any:
			if v, ok = x[step]; !ok {
				return nil, nil, false
			}
			s = nil
		default:
			return nil, nil, false
		}
	}
	return s, v, true
}

// newRecordState makes a change of a row the row.
type newRecordState struct {
	mode            string
	fields, headers []envelopeField
	route           string
	dropHeader      string
	dropFromKey     bool
	dropOptional    bool
	rows            structs                            // with what is added to them
	dropped         cache[droppedFields, *data.Schema] // without what a header lists
}

// droppedFields are the fields, by their names and commas, that a schema is to lose.
type droppedFields struct {
	schema *data.Schema
	names  string
}

// isEnvelope says whether a value is a change of a row.
func isEnvelope(v any) bool {
	switch x := v.(type) {
	case *data.StructValue:
		return (strings.HasSuffix(x.Schema.Name, ".Envelope") || x.Schema.Field("source") >= 0) &&
			x.Schema.Field("op") >= 0 && x.Schema.Field("after") >= 0
	case map[string]any:
		_, op := x["op"].(string)
		_, source := x["source"].(map[string]any)
		return op && source
	}
	return false
}

// Apply implements plugin.Transform.
func (t *newRecordState) Apply(r *data.Record) (*data.Record, error) {
	if r.Value == nil {
		switch t.mode {
		case deleteTombstone, deleteRewriteTo:
			return r, nil
		}
		return nil, nil
	}
	if !isEnvelope(r.Value) {
		return r, nil
	}
	envelope := r.Value
	_, op, _ := descend(envelope, []string{"op"})
	_, row, _ := descend(envelope, []string{"after"})
	deleted := row == nil
	if op == "t" || op == "m" { // of no row
		return nil, nil
	}
	if deleted {
		switch t.mode {
		case deleteDrop, deleteTombstone:
			return nil, nil
		case deleteRewrite, deleteRewriteTo:
			_, row, _ = descend(envelope, []string{"before"})
		}
	}
	if err := t.routeBy(r, envelope); err != nil {
		return nil, err
	}
	for i := range t.headers {
		s, v := t.headers[i].find(envelope)
		r.Headers = append(slices.Clip(r.Headers), data.Header{Name: t.headers[i].name, Schema: s, Value: v})
	}
	if row == nil {
		r.ValueSchema, r.Value = nil, nil
		return r, nil
	}
	if err := t.setRow(r, envelope, row, deleted); err != nil {
		return nil, fmt.Errorf("ExtractNewRecordState: %w", err)
	}
	if err := t.dropFields(r); err != nil {
		return nil, fmt.Errorf("ExtractNewRecordState: %w", err)
	}
	return r, nil
}

func (t *newRecordState) routeBy(r *data.Record, envelope any) error {
	if t.route == "" {
		return nil
	}
	for _, state := range []string{"after", "before"} {
		if _, v, _ := descend(envelope, []string{state, t.route}); v != nil {
			topic, ok := v.(string)
			if !ok {
				return fmt.Errorf("ExtractNewRecordState: field %q is %s and names no topic", t.route, kindOf(v))
			}
			r.Topic = topic
			return nil
		}
	}
	return nil
}

// rewrites says whether rows tell whether they were deleted.
func (t *newRecordState) rewrites() bool { return t.mode == deleteRewrite || t.mode == deleteRewriteTo }

// deletedField tells whether a row was deleted.
const deletedField = "__deleted"

// setRow makes a row the value, with what is added to it.
func (t *newRecordState) setRow(r *data.Record, envelope, row any, deleted bool) error {
	gone := fmt.Sprint(deleted)
	if m, ok := row.(map[string]any); ok {
		out := without(m, nil)
		for i := range t.fields {
			_, out[t.fields[i].name] = t.fields[i].find(envelope)
		}
		if t.rewrites() {
			out[deletedField] = gone
		}
		r.ValueSchema, r.Value = nil, out
		return nil
	}
	x, ok := row.(*data.StructValue)
	if !ok {
		return fmt.Errorf("the row is %s, and has no fields", kindOf(row))
	}
	if len(t.fields) == 0 && !t.rewrites() {
		r.ValueSchema, r.Value = x.Schema, x
		return nil
	}
	to, err := t.rows.get(x.Schema, func() (*data.Schema, error) {
		fields := slices.Clone(x.Schema.Fields)
		for i := range t.fields {
			s, _ := t.fields[i].find(envelope)
			fields = append(fields, data.Field{Name: t.fields[i].name, Schema: s.AsOptional()})
		}
		if t.rewrites() {
			fields = append(fields, data.Field{Name: deletedField, Schema: &data.Schema{Type: data.String, Optional: true}})
		}
		return like(x.Schema, fields)
	})
	if err != nil {
		return err
	}
	out := data.New(to)
	n := copy(out.Values, x.Values)
	for i := range t.fields {
		_, out.Values[n] = t.fields[i].find(envelope)
		n++
	}
	if t.rewrites() {
		out.Values[n] = gone
	}
	r.ValueSchema, r.Value = to, out
	return nil
}

// dropFields leaves out the fields that a header lists.
func (t *newRecordState) dropFields(r *data.Record) error {
	i := slices.IndexFunc(r.Headers, func(h data.Header) bool { return t.dropHeader != "" && h.Name == t.dropHeader })
	if i < 0 {
		return nil
	}
	list, ok := r.Headers[i].Value.([]any)
	if !ok {
		return fmt.Errorf("header %q is %s, and no list of fields", t.dropHeader, kindOf(r.Headers[i].Value))
	}
	var names []string
	for _, e := range list {
		names = append(names, fmt.Sprint(e))
	}
	if err := t.leaveOut(r, valuePart, names); err != nil || !t.dropFromKey {
		return err
	}
	return t.leaveOut(r, keyPart, names)
}

func (t *newRecordState) leaveOut(r *data.Record, p part, names []string) error {
	x, m, _ := p.object(r, "") // a key may be of another type, and has no fields then
	switch {
	case m != nil:
		p.set(r, nil, without(m, names))
	case x != nil:
		key := droppedFields{x.Schema, strings.Join(names, ",")}
		to, err := t.dropped.get(key, func() (*data.Schema, error) {
			return like(x.Schema, slices.DeleteFunc(slices.Clone(x.Schema.Fields), func(f data.Field) bool {
				return slices.Contains(names, f.Name) && (f.Schema.Optional || !t.dropOptional)
			}))
		})
		if err != nil {
			return err
		}
		p.set(r, to, pickFields(to, x, false))
	}
	return nil
}

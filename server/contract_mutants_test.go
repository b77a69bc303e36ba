package server_test

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// mutant is a JSON value that breaks its schema in one place.
type mutant struct {
	what  string // where and how
	value any
}

// absent stands for a member that is left out.
type absent struct{}

// mutants breaks v, which is good by its schema, in every place that the schema constrains, one at a time. Around the
// broken place the value holds no more than it must, so that it is refused for the one reason.
func mutants(s *openapi3.Schema, v any, at string) []mutant {
	out := wrong(s, at)
	switch {
	case s.Type.Is("object"):
		out = append(out, wrongMembers(s, v, at)...)
	case s.Type.Is("array"):
		for _, m := range mutants(s.Items.Value, first(s, v), at+"[]") {
			out = append(out, mutant{m.what, []any{m.value}})
		}
	}
	return out
}

// first is the first item of an array, or one made up.
func first(s *openapi3.Schema, v any) any {
	if items, ok := v.([]any); ok && len(items) > 0 {
		return items[0]
	}
	return specimen(s.Items.Value)
}

// wrongMembers breaks an object's members.
func wrongMembers(s *openapi3.Schema, v any, at string) []mutant {
	least := map[string]any{}
	have, _ := v.(map[string]any)
	for _, name := range s.Required {
		least[name] = s.Properties[name].Value
		if x, ok := have[name]; ok {
			least[name] = x
		} else {
			least[name] = specimen(s.Properties[name].Value)
		}
	}
	var out []mutant
	breakMember := func(name, what string, value any) {
		broken := maps.Clone(least)
		if broken[name] = value; value == (absent{}) {
			delete(broken, name)
		}
		out = append(out, mutant{what, broken})
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		ps, place := s.Properties[name].Value, at+"."+name
		old, ok := have[name]
		if !ok || old == nil {
			old = specimen(ps)
		}
		for _, m := range mutants(ps, old, place) {
			breakMember(name, m.what, m.value)
		}
		switch required := slices.Contains(s.Required, name); {
		case required:
			breakMember(name, place+" is missing", absent{})
			if !ps.Nullable {
				breakMember(name, place+" is null", nil)
			}
		case !ps.Nullable:
			breakMember(name, place+", which may be absent, is null", nil)
		}
	}
	switch more := s.AdditionalProperties; {
	case more.Schema != nil:
		name := "0"
		for n := range have {
			name = n
		}
		for _, m := range mutants(more.Schema.Value, specimen(more.Schema.Value), at+".*") {
			breakMember(name, m.what, m.value)
		}
	case more.Has != nil && !*more.Has:
		breakMember("no_such_field", at+" has an unknown field", 1)
	}
	return out
}

// wrong lists values that a schema does not let pass.
func wrong(s *openapi3.Schema, at string) []mutant {
	var out []mutant
	add := func(what string, values ...any) {
		for _, v := range values {
			text, _ := json.Marshal(v)
			out = append(out, mutant{at + " " + what + " " + string(text[:min(len(text), 40)]), v})
		}
	}
	switch {
	case s.Type.Is("string"):
		add("is no string:", 7, true, map[string]any{}, []any{})
		wrongText(s, add)
	case s.Type.Is("integer"):
		add("is no integer:", "x", true, 1.5, map[string]any{}, []any{})
		if s.Format == "int32" {
			add("is out of bounds:", json.Number("2147483648"))
		}
		add("is out of bounds:", json.Number("9223372036854775808"))
		if s.Min != nil {
			add("is too small:", int64(*s.Min)-1)
		}
		if s.Max != nil {
			add("is too great:", int64(*s.Max)+1)
		}
	case s.Type.Is("boolean"):
		add("is no boolean:", "true", 1, map[string]any{})
	case s.Type.Is("array"):
		add("is no array:", "x", 7, map[string]any{})
		if s.MinItems > 0 {
			add("is too short:", []any{})
		}
		if s.MaxItems != nil && *s.MaxItems < 1000 {
			add("is too long:", slices.Repeat([]any{specimen(s.Items.Value)}, int(*s.MaxItems)+1))
		}
	case s.Type.Is("object"):
		add("is no object:", "x", 7, []any{})
	}
	return out
}

// wrongText lists strings that a schema does not let pass.
func wrongText(s *openapi3.Schema, add func(string, ...any)) {
	if len(s.Enum) > 0 {
		add("is none of its values:", "no-such-value")
	}
	if s.Pattern != "" {
		add("misses its pattern:", "!", "", "a/b", strings.Repeat("a", 300))
	}
	if s.MinLength > 0 {
		add("is too short:", "")
	}
	if s.MaxLength != nil {
		add("is too long:", strings.Repeat("a", int(*s.MaxLength)+1))
	}
	switch s.Format {
	case "byte":
		add("is no base64:", "%%%", "a", "YQ", "YQ=", "Y Q==")
	case "date-time":
		add("is no time:", "yesterday", "2026-13-01T00:00:00Z", "2026-01-01")
	case "uuid":
		add("is no UUID:", "x")
	}
}

// specimen makes up a good value for a schema.
func specimen(s *openapi3.Schema) any {
	switch {
	case s.Example != nil:
		return s.Example
	case len(s.Enum) > 0:
		return s.Enum[0]
	case s.Type.Is("integer"):
		if s.Min != nil {
			return int64(math.Max(*s.Min, 0))
		}
		return 0
	case s.Type.Is("boolean"):
		return true
	case s.Type.Is("array"):
		return []any{specimen(s.Items.Value)}
	case s.Type.Is("object"):
		out := map[string]any{}
		for _, name := range s.Required {
			out[name] = specimen(s.Properties[name].Value)
		}
		return out
	case s.Format == "byte":
		return "YQ=="
	case s.Format == "date-time":
		return "2026-01-02T03:04:05.678Z"
	default:
		return "a"
	}
}

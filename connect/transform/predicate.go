package transform

import (
	"regexp"
	"slices"

	"millrace/connect/data"
	"millrace/connect/plugin"
)

type predicate struct {
	name string
	defs plugin.Defs
	make func(s plugin.Settings) (plugin.Predicate, error)
}

type test func(r *data.Record) bool

// Test implements plugin.Predicate.
func (t test) Test(r *data.Record) bool { return t(r) }

// whole compiles an expression that is to match a whole text.
func whole(expr string) (*regexp.Regexp, error) { return regexp.Compile(`^(?:` + expr + `)$`) }

// isPattern checks a setting that is a regular expression.
func isPattern(expr string) error {
	_, err := whole(expr)
	return err
}

// predicates lists all classes of predicates.
func predicates() []predicate {
	pattern := required("pattern", plugin.String, "A regular expression that matches whole names of topics.")
	pattern.Check = isPattern
	return []predicate{
		{
			kafka + "predicates.TopicNameMatches", plugin.Defs{pattern},
			func(s plugin.Settings) (plugin.Predicate, error) {
				p, err := whole(s.String("pattern"))
				return test(func(r *data.Record) bool { return p.MatchString(r.Topic) }), err
			},
		},
		{
			kafka + "predicates.HasHeaderKey", plugin.Defs{required("name", plugin.String, "The name of the header.")},
			func(s plugin.Settings) (plugin.Predicate, error) {
				name := s.String("name")
				return test(func(r *data.Record) bool {
					return slices.ContainsFunc(r.Headers, func(h data.Header) bool { return h.Name == name })
				}), nil
			},
		},
		{
			kafka + "predicates.RecordIsTombstone", nil,
			func(plugin.Settings) (plugin.Predicate, error) {
				return test(func(r *data.Record) bool { return r.Value == nil }), nil
			},
		},
	}
}

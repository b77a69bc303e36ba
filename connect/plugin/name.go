package plugin

import (
	"slices"
	"strings"
)

// Match says how well a name fits a plugin: 3 as its class, 2 as an alias, 1 as the simple name of either, whole or
// short, 0 not at all.
func (i *Info) Match(name string) int {
	switch {
	case name == "":
		return 0
	case name == i.Class:
		return 3
	case slices.Contains(i.Aliases, name):
		return 2
	}
	for _, class := range append([]string{i.Class}, i.Aliases...) {
		simple := class[strings.LastIndexByte(class, '.')+1:]
		if name == simple || name == strings.TrimSuffix(simple, i.Kind.suffix()) {
			return 1
		}
	}
	return 0
}

// suffix is what a short name leaves out at the end of a simple one.
func (k Kind) suffix() string {
	switch k {
	case ConverterKind, HeaderConverterKind:
		return "Converter"
	case TransformKind:
		return "Transformation"
	case PredicateKind:
		return "Predicate"
	default:
		return "Connector"
	}
}

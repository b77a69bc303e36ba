package transform

import (
	"fmt"

	"millrace/connect/plugin"
)

// Classes lists the transforms and predicates.
func Classes() []plugin.Info { return nil }

// New makes a transform of a class from its settings.
func New(class string, _ map[string]string) (plugin.Transform, error) {
	return nil, fmt.Errorf("there is no transform of class %q", class)
}

// NewPredicate makes a predicate of a class from its settings.
func NewPredicate(class string, _ map[string]string) (plugin.Predicate, error) {
	return nil, fmt.Errorf("there is no predicate of class %q", class)
}

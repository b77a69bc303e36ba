package convert

import (
	"fmt"
	"log/slog"

	"millrace/connect/plugin"
	"millrace/schemaregistry"
	"millrace/schemaregistry/serde"
)

// Deps is what converters use of the node.
type Deps struct {
	Schemas *schemaregistry.Registry // nil: converters that need it cannot be made
	Serde   *serde.Serde
	Logger  *slog.Logger // nil: nothing is logged
}

// Classes lists the converters and header converters.
func Classes() []plugin.Info { return nil }

// New makes a converter of a class from its settings, which have no prefix, for keys or for values.
func New(class string, key bool, props map[string]string, d Deps) (plugin.Converter, error) {
	return nil, fmt.Errorf("there is no converter of class %q", class)
}

// NewHeader makes a header converter of a class from its settings.
func NewHeader(class string, props map[string]string, d Deps) (plugin.HeaderConverter, error) {
	return nil, fmt.Errorf("there is no header converter of class %q", class)
}

// Check says what is wrong with the settings of a converter.
func Check(class string, key bool, props map[string]string) []plugin.Problem { return nil }

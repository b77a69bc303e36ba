package convert

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	"millrace/connect/plugin"
	"millrace/schemaregistry"
	"millrace/schemaregistry/serde"
)

// Deps is what converters use of the node.
type Deps struct {
	Schemas *schemaregistry.Registry // nil: converters that need it cannot be made
	Serde   *serde.Serde             // nil: made of Schemas
	Logger  *slog.Logger             // nil: nothing is logged
}

// class is a class of converters.
type class struct {
	name    string
	aliases []string
	defs    func() plugin.Defs
	make    func(key bool, props map[string]string, d Deps) (plugin.Converter, error)
}

const (
	kafka     = "org.apache.kafka.connect."
	confluent = "io.confluent.connect."
)

func classes() []class {
	return []class{
		{name: kafka + "json.JsonConverter", defs: jsonDefs, make: newJSON},
		{name: kafka + "storage.StringConverter", defs: stringDefs, make: newString},
		{name: kafka + "converters.ByteArrayConverter", make: newBytes,
			aliases: []string{"io.debezium.converters.BinaryDataConverter", "io.debezium.converters.ByteBufferConverter"}},
		{name: kafka + "converters.BooleanConverter", make: newBoolean},
		{name: kafka + "converters.ShortConverter", make: newShort},
		{name: kafka + "converters.IntegerConverter", make: newInteger},
		{name: kafka + "converters.LongConverter", make: newLong},
		{name: kafka + "converters.FloatConverter", make: newFloat},
		{name: kafka + "converters.DoubleConverter", make: newDouble},
		{name: confluent + "avro.AvroConverter", defs: avroDefs, make: newAvro},
		{name: confluent + "json.JsonSchemaConverter", defs: jsonSchemaDefs, make: newJSONSchema},
		{name: confluent + "protobuf.ProtobufConverter", defs: protobufDefs, make: newProtobuf},
	}
}

func (c *class) info() plugin.Info {
	return plugin.Info{Class: c.name, Aliases: c.aliases, Kind: plugin.ConverterKind, Defs: c.settings()}
}

func find(name string) *class {
	all := classes()
	for i := range all {
		if info := all[i].info(); info.Match(name) > 0 {
			return &all[i]
		}
	}
	return nil
}

func (c *class) settings() plugin.Defs {
	if c.defs == nil {
		return nil
	}
	return c.defs()
}

// Classes lists the converters and header converters. A converter may convert headers, too.
func Classes() []plugin.Info {
	var out []plugin.Info
	for _, c := range classes() {
		info := c.info()
		out = append(out, info)
		info.Kind = plugin.HeaderConverterKind
		out = append(out, info)
	}
	return append(out, simpleHeaderInfo())
}

func simpleHeaderInfo() plugin.Info {
	return plugin.Info{Class: kafka + "storage.SimpleHeaderConverter", Kind: plugin.HeaderConverterKind}
}

// New makes a converter of a class from its settings, which have no prefix, for keys or for values.
func New(class string, key bool, props map[string]string, d Deps) (plugin.Converter, error) {
	c := find(class)
	if c == nil {
		return nil, fmt.Errorf("there is no converter of class %q", class)
	}
	if problems := c.settings().Check(props); len(problems) > 0 {
		return nil, errors.New(problems[0].Message)
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.Serde == nil && d.Schemas != nil {
		d.Serde = serde.New(d.Schemas)
	}
	return c.make(key, props, d)
}

// NewHeader makes a header converter of a class from its settings.
func NewHeader(class string, props map[string]string, d Deps) (plugin.HeaderConverter, error) {
	if simple := simpleHeaderInfo(); simple.Match(class) > 0 {
		return simpleHeaders{}, nil
	}
	c, err := New(class, false, props, d)
	if err != nil {
		return nil, err
	}
	return headers{c}, nil
}

// Check says what is wrong with the settings of a converter or header converter, which have no prefix. The class is one
// that Classes lists, by any of its names; another one has no settings to check.
func Check(class string, props map[string]string) []plugin.Problem {
	if c := find(class); c != nil {
		return c.settings().Check(props)
	}
	return nil
}

func notNegative(value string) error {
	if n, err := strconv.Atoi(value); err != nil || n < 0 {
		return errors.New("it must be 0 or more")
	}
	return nil
}

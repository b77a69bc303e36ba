package convert

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"

	"millrace/connect/data"
	"millrace/connect/plugin"
	"millrace/record"
	"millrace/schemaregistry"
	"millrace/schemaregistry/schema"
	"millrace/schemaregistry/serde"
)

// The settings that the converters over the registry share.
const (
	autoRegister    = "auto.register.schemas"
	useLatest       = "use.latest.version"
	latestStrict    = "latest.compatibility.strict"
	useSchemaID     = "use.schema.id"
	normalize       = "normalize.schemas"
	keyStrategy     = "key.subject.name.strategy"
	valueStrategy   = "value.subject.name.strategy"
	ignoreDefaults  = "ignore.default.for.nullables"
	generalSumTypes = "generalized.sum.type.support"
	flattenSingle   = "flatten.singleton.unions"
	scrubNames      = "scrub.invalid.names"
)

func flag(name string, def bool, doc string) plugin.Def {
	d := plugin.Def{Name: name, Type: plugin.Boolean, Default: "false", Importance: plugin.Medium, Doc: doc}
	if def {
		d.Default = "true"
	}
	return d
}

func unused(name string, t plugin.Type, why string) plugin.Def {
	return plugin.Def{Name: name, Type: t, Null: true, Importance: plugin.Low, Unused: why,
		Doc: "Of Confluent's converters."}
}

// registryDefs are the settings that the converters over the registry share.
func registryDefs() plugin.Defs {
	const (
		own   = "schemas are kept by the registry of this cluster, which is asked without a network"
		rules = "rules of schemas are not run here"
	)
	strategy := func(name, of string) plugin.Def {
		return plugin.Def{Name: name, Type: plugin.ClassOf, Importance: plugin.Medium, Check: checkStrategy,
			Default: "io.confluent.kafka.serializers.subject.TopicNameStrategy", Doc: "How the subject of " + of + " is named."}
	}
	return plugin.Defs{
		unused("schema.registry.url", plugin.List, own),
		unused("basic.auth.credentials.source", plugin.String, own),
		unused("basic.auth.user.info", plugin.Password, own),
		unused("schema.registry.basic.auth.user.info", plugin.Password, own),
		unused("bearer.auth.credentials.source", plugin.String, own),
		unused("bearer.auth.token", plugin.Password, own),
		unused("proxy.host", plugin.String, own),
		unused("proxy.port", plugin.Int, own),
		unused("max.schemas.per.subject", plugin.Int, own),
		unused("latest.cache.size", plugin.Int, own),
		unused("latest.cache.ttl.sec", plugin.Int, own),
		unused("rule.executors", plugin.List, rules),
		unused("rule.actions", plugin.List, rules),
		flag(autoRegister, true, "Whether schemas that a subject lacks are registered."),
		flag(useLatest, false, "Whether values are written with the latest schema of their subject, where schemas are not "+
			"registered by themselves."),
		flag(latestStrict, true, "Whether a field that the latest schema lacks is an error; otherwise it is left out."),
		{Name: useSchemaID, Type: plugin.Int, Default: "-1", Importance: plugin.Low,
			Doc: "The id of the schema that all values are written with; -1 is none."},
		flag(normalize, false, "Whether schemas are normalized before they are registered or looked up."),
		strategy(keyStrategy, "keys"),
		strategy(valueStrategy, "values"),
		cacheSizeDef(),
		{Name: "schemas.cache.config", Type: plugin.Int, Default: "1000", Importance: plugin.Low,
			Doc: "Another name of schemas.cache.size."},
		flag(ignoreDefaults, false, "Whether a null is written as null although its schema has a default."),
	}
}

func checkStrategy(value string) error {
	if _, ok := parseStrategy(value); !ok {
		return errors.New("it must be TopicNameStrategy, RecordNameStrategy or TopicRecordNameStrategy of Confluent")
	}
	return nil
}

func parseStrategy(value string) (serde.Strategy, bool) {
	if s, ok := serde.ParseStrategy(value); ok {
		return s, true
	}
	return serde.ParseStrategy("io.confluent.kafka.serializers.subject." + value)
}

// language is what one format of schemas adds to a converter over the registry.
type language interface {
	// describe is the schema by which values of a Connect schema are written; s may be nil.
	describe(s *data.Schema) (description, *fault)
	// writer writes values of s as ones of a parsed schema, which is the described one or that of the settings.
	writer(s *data.Schema, parsed schema.Schema, of description) (writer, *fault)
	// reader reads values of a schema. Version is what its schema is to have, 0 if nothing.
	reader(ctx context.Context, o *serde.Opened, version int) (*data.Schema, readFunc, *fault)
}

// description is a schema in the words of a format.
type description struct {
	text string
	name string // of its type
	// pinned says that values are written with another schema, which the settings name.
	pinned bool
}

// writer appends values, behind a prefix that each of them has.
type writer struct {
	prefix []byte
	write  func(dst []byte, v any) ([]byte, *fault)
}

type readFunc func(b []byte) (any, *fault)

// registered is a converter over the registry.
type registered struct {
	language
	format   schema.Type
	checks   bool // a value is checked before it is read
	schemas  *schemaregistry.Registry
	serde    *serde.Serde
	log      *slog.Logger
	part     serde.Part
	strategy serde.Strategy
	auto     bool
	latest   bool
	normal   bool
	id       int

	plans    cache[planKey, *plan]
	last     *plan
	versions cache[versionKey, schemaregistry.Version]
	readers  cache[string, *serde.Reader]
	decoders cache[decoderKey, *decoder]
}

type planKey struct {
	schema *data.Schema
	topic  string
}

// plan is how values of a schema are written to a topic.
type plan struct {
	planKey
	frame []byte
	write func(dst []byte, v any) ([]byte, *fault)
}

type versionKey struct{ subject, text string }

type decoderKey struct {
	guid    [16]byte
	message string
	version int
}

type decoder struct {
	schema *data.Schema
	read   readFunc
	err    error
}

// maxTopics is of how many topics a converter remembers what it read.
const maxTopics = 256

func newRegistered(key bool, s plugin.Settings, d Deps, l language, format schema.Type) (*registered, error) {
	if d.Schemas == nil {
		return nil, errors.New("this converter needs the schema registry, and there is none here")
	}
	c := &registered{
		language: l, format: format, schemas: d.Schemas, serde: d.Serde, log: d.Logger, part: serde.Value,
		auto: s.Bool(autoRegister), latest: s.Bool(useLatest), normal: s.Bool(normalize), id: s.Int(useSchemaID),
		checks: format != schema.JSON,
	}
	name := s.String(valueStrategy)
	if key {
		c.part, name = serde.Key, s.String(keyStrategy)
	}
	c.strategy, _ = parseStrategy(name)
	c.plans.most = s.Int(schemasCacheSize)
	if _, given := s.Given("schemas.cache.config"); given {
		c.plans.most = s.Int("schemas.cache.config")
	}
	c.versions.most, c.decoders.most, c.readers.most = c.plans.most, c.plans.most, maxTopics
	return c, nil
}

// Encode implements plugin.Converter.
func (c *registered) Encode(ctx context.Context, dst []byte, topic string, s *data.Schema, v any) (
	[]byte, bool, error,
) {
	if v == nil {
		if s != nil && !s.Optional {
			return dst, false, errors.New("it is null, and the schema does not allow that")
		}
		return dst, false, nil
	}
	p := c.last
	if p == nil || p.schema != s || p.topic != topic {
		var err error
		if p, err = c.plan(ctx, planKey{s, topic}); err != nil {
			return dst, false, err
		}
		c.last = p
	}
	at := len(dst)
	out, f := p.write(append(dst, p.frame...), v)
	if f != nil {
		return dst[:at], false, f.asError()
	}
	return out, true, nil
}

func (c *registered) plan(ctx context.Context, k planKey) (*plan, error) {
	if p, ok := c.plans.get(k); ok {
		return p, nil
	}
	of, f := c.describe(k.schema)
	if f != nil {
		return nil, fmt.Errorf("the schema cannot be said in %s: %w", c.format, f.asError())
	}
	v, err := c.version(ctx, k.topic, of)
	if err != nil {
		return nil, err
	}
	if v.Content.Type != c.format {
		return nil, fmt.Errorf("schema id %d of subject %s is of type %s, and this converter writes %s",
			v.ID, v.Subject, v.Content.Type, c.format)
	}
	parsed, err := c.schemas.Parsed(ctx, v)
	if err != nil {
		return nil, c.explain(err, "schema id %d", v.ID)
	}
	of.pinned = !c.auto || c.id > 0
	w, f := c.writer(k.schema, parsed, of)
	if f != nil {
		return nil, fmt.Errorf("values do not fit schema id %d of subject %s: %w", v.ID, v.Subject, f.asError())
	}
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(v.ID))
	p := &plan{k, append(frame, w.prefix...), w.write}
	c.plans.put(k, p)
	return p, nil
}

// version finds or registers what a topic's values of a schema are written with.
func (c *registered) version(ctx context.Context, topic string, of description) (schemaregistry.Version, error) {
	if c.id > 0 {
		within := topic + "-" + c.part.String()
		v, err := c.schemas.ByID(ctx, c.id, &within)
		return v, c.explain(err, "schema id %d", c.id)
	}
	subject, err := c.strategy.Subject(topic, c.part, of.name)
	if err != nil {
		return schemaregistry.Version{}, err
	}
	key := versionKey{subject, of.text}
	if v, ok := c.versions.get(key); ok {
		return v, nil
	}
	q := schemaregistry.RegisterRequest{
		Content: schema.Content{Type: c.format, Text: of.text}, Normalize: c.normal,
	}
	var v schemaregistry.Version
	switch {
	case c.auto:
		v, err = c.schemas.Register(ctx, subject, q)
	case c.latest:
		v, err = c.schemas.Version(ctx, subject, "latest", false)
	default:
		v, err = c.schemas.Lookup(ctx, subject, q, false)
	}
	if err != nil {
		return v, c.explain(err, "subject %s", subject)
	}
	c.versions.put(key, v)
	return v, nil
}

// explain says what an error of the registry is about, and whether the same may be tried again.
func (c *registered) explain(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	var e *schemaregistry.Error
	wrapped := fmt.Errorf("schema registry, "+format+": %w", append(args, err)...)
	if errors.As(err, &e) && e.Code < 50000 {
		return wrapped
	}
	return plugin.Retriable(wrapped)
}

// Decode implements plugin.Converter.
func (c *registered) Decode(ctx context.Context, topic string, b []byte, headers []record.Header) (
	*data.Schema, any, error,
) {
	if b == nil {
		return nil, nil, nil
	}
	r, ok := c.readers.get(topic)
	if !ok {
		r = c.serde.NewReader(topic, c.part)
		c.readers.put(topic, r)
	}
	o, err := r.Open(ctx, b, headers)
	if err != nil {
		return nil, nil, c.refused(err)
	}
	if o.Content.Type != c.format {
		return nil, nil, fmt.Errorf("schema id %d is of type %s, and this converter reads %s", o.ID, o.Content.Type, c.format)
	}
	if c.checks {
		if err := o.Check(); err != nil {
			return nil, nil, fmt.Errorf("the value is none of schema id %d: %w", o.ID, err)
		}
	}
	d, err := c.decoder(ctx, topic, &o)
	if err != nil {
		return nil, nil, err
	}
	if d.err != nil {
		return nil, nil, fmt.Errorf("schema id %d cannot be said in Connect's types: %w", o.ID, d.err)
	}
	v, f := d.read(o.Value)
	if f != nil {
		return nil, nil, f.asError()
	}
	return d.schema, v, nil
}

// refused says which errors of reading may pass.
func (c *registered) refused(err error) error {
	var unknown *serde.UnknownSchemaError
	if errors.Is(err, serde.ErrUnframed) || errors.Is(err, schema.ErrMismatch) || errors.As(err, &unknown) ||
		errors.Is(err, schema.ErrInvalid) {
		return err
	}
	return c.explain(err, "reading")
}

func (c *registered) decoder(ctx context.Context, topic string, o *serde.Opened) (*decoder, error) {
	name := o.Message
	if name == "" {
		name = o.Schema.Name()
	}
	version := 0
	if subject, err := c.strategy.Subject(topic, c.part, name); err == nil && o.Subject == subject {
		version = o.Version.Version
	}
	key := decoderKey{o.GUID, o.Message, version}
	if d, ok := c.decoders.get(key); ok {
		return d, nil
	}
	s, read, f := c.reader(ctx, o, version)
	d := &decoder{s, read, f.asError()}
	c.decoders.put(key, d)
	return d, nil
}

// clone is bytes that outlive what they were read from.
func clone(b []byte) []byte { return bytes.Clone(b) }

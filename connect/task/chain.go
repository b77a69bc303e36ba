package task

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"millrace/connect/convert"
	"millrace/connect/data"
	"millrace/connect/plugin"
	"millrace/connect/transform"
	"millrace/record"
)

// chain is what records pass between a task and its topics. It is not safe for concurrent use.
type chain struct {
	links      []link
	key, value plugin.Converter
	header     plugin.HeaderConverter
	// The classes of the converters.
	keyClass, valueClass, headerClass string
	retry                             *retrier
}

// link is one transform.
type link struct {
	class  string
	change plugin.Transform
	when   plugin.Predicate // nil: always
	negate bool
}

// chainBuilder makes the transforms of a chain.
type chainBuilder struct {
	reader
	predicates map[string]plugin.Predicate
	links      []link
}

func (b *chainBuilder) build() {
	b.predicates = make(map[string]plugin.Predicate)
	for _, alias := range b.aliases("predicates") {
		prefix := "predicates." + alias + "."
		class := b.text(prefix+"type", "")
		if class == "" {
			b.bad(prefix+"type", "the predicate has no type")
			continue
		}
		p, err := transform.NewPredicate(class, within(b.props, prefix, "type"))
		if err != nil {
			b.bad(prefix+"type", "%v", err)
			continue
		}
		b.predicates[alias] = p
	}
	for _, alias := range b.aliases("transforms") {
		b.link(alias)
	}
}

// aliases are the names in a list that has no doubles.
func (b *chainBuilder) aliases(key string) (out []string) {
	for _, alias := range b.list(key) {
		if slices.Contains(out, alias) {
			b.bad(key, "%s is there twice", alias)
			continue
		}
		out = append(out, alias)
	}
	return out
}

func (b *chainBuilder) link(alias string) {
	prefix := "transforms." + alias + "."
	class := b.text(prefix+"type", "")
	if class == "" {
		b.bad(prefix+"type", "the transform has no type")
		return
	}
	l := link{class: class, negate: b.bool(prefix+"negate", false)}
	switch name := b.text(prefix+"predicate", ""); {
	case name != "":
		if l.when = b.predicates[name]; l.when == nil && !slices.Contains(b.list("predicates"), name) {
			b.bad(prefix+"predicate", "there is no predicate %s", name)
		}
	case l.negate:
		b.bad(prefix+"negate", "there is no predicate to negate")
	}
	change, err := transform.New(class, within(b.props, prefix, "type", "predicate", "negate"))
	if err != nil {
		b.bad(prefix+"type", "%v", err)
		return
	}
	l.change = change
	b.links = append(b.links, l)
}

// within are the settings below a prefix, without it.
func within(props map[string]string, prefix string, but ...string) map[string]string {
	out := make(map[string]string)
	for k, v := range props {
		if of, ok := strings.CutPrefix(k, prefix); ok && !slices.Contains(but, of) {
			out[of] = v
		}
	}
	return out
}

// converterOf is the converter that settings ask for, which is "key", "value" or "header", and its settings: those of
// the worker's own unless the connector names another class.
func converterOf(which string, props map[string]string, d Converters) (class string, settings map[string]string) {
	prefix := which + ".converter"
	defaults := map[string]string(nil)
	switch which {
	case "key":
		class, defaults = d.Key, d.KeyProps
	case "value":
		class, defaults = d.Value, d.ValueProps
	default:
		class, defaults = d.Header, d.HeaderProps
	}
	settings = make(map[string]string)
	if own := strings.TrimSpace(props[prefix]); own != "" {
		class = own
	} else {
		maps.Copy(settings, defaults)
	}
	maps.Copy(settings, within(props, prefix+"."))
	return class, settings
}

// newChain makes the chain of a task from its settings.
func newChain(props map[string]string, d Converters, deps convert.Deps) (*chain, error) {
	b := &chainBuilder{reader: reader{props: props}}
	b.build()
	c := &chain{links: b.links}
	var err error
	var settings map[string]string
	c.keyClass, settings = converterOf("key", props, d)
	if c.key, err = convert.New(c.keyClass, true, settings, deps); err != nil {
		b.bad("key.converter", "%v", err)
	}
	c.valueClass, settings = converterOf("value", props, d)
	if c.value, err = convert.New(c.valueClass, false, settings, deps); err != nil {
		b.bad("value.converter", "%v", err)
	}
	c.headerClass, settings = converterOf("header", props, d)
	if c.header, err = convert.NewHeader(c.headerClass, settings, deps); err != nil {
		b.bad("header.converter", "%v", err)
	}
	return c, settingsError(b.problems)
}

// apply changes a record by all transforms, in place of the record given; nil: it is dropped.
func (c *chain) apply(ctx context.Context, r *data.Record) (*data.Record, *fault) {
	for i := range c.links {
		l := &c.links[i]
		if l.when != nil && l.when.Test(r) == l.negate {
			continue
		}
		before := *r
		out, err := l.change.Apply(r)
		if err != nil && plugin.IsRetriable(err) {
			err = c.retry.again(ctx, err, func() (err error) {
				again := before // a transform that fails may have changed what it got
				out, err = l.change.Apply(&again)
				return err
			})
		}
		if err != nil {
			return nil, &fault{stageChange, l.class, err}
		}
		if r = out; r == nil {
			return nil, nil
		}
	}
	return r, nil
}

// encoder turns records into those of topics. What it gives is valid until the next call.
type encoder struct {
	*chain
	keyBytes, valueBytes []byte
	headers              []record.Header
}

// encode makes the record for the topic.
func (e *encoder) encode(ctx context.Context, r *data.Record, out *record.Record) *fault {
	var ok bool
	var err error
	if e.keyBytes, ok, err = e.part(ctx, e.key, e.keyBytes, r.Topic, r.KeySchema, r.Key); err != nil {
		return &fault{stageKey, e.keyClass, err}
	}
	if out.Key = nil; ok {
		out.Key = present(e.keyBytes)
	}
	if e.valueBytes, ok, err = e.part(ctx, e.value, e.valueBytes, r.Topic, r.ValueSchema, r.Value); err != nil {
		return &fault{stageValue, e.valueClass, err}
	}
	if out.Value = nil; ok {
		out.Value = present(e.valueBytes)
	}
	e.headers = e.headers[:0]
	for i := range r.Headers {
		h := &r.Headers[i]
		b, err := e.header.EncodeHeader(ctx, r.Topic, h.Name, h.Schema, h.Value)
		if err != nil && plugin.IsRetriable(err) {
			err = e.retry.again(ctx, err, func() (err error) {
				b, err = e.header.EncodeHeader(ctx, r.Topic, h.Name, h.Schema, h.Value)
				return err
			})
		}
		if err != nil {
			return &fault{stageHeader, e.headerClass, fmt.Errorf("header %q: %w", h.Name, err)}
		}
		e.headers = append(e.headers, record.Header{Key: h.Name, Value: b})
	}
	out.Headers, out.Timestamp = e.headers, r.Timestamp
	return nil
}

// part encodes a key or a value into the memory of buf, and gives what that has become.
func (e *encoder) part(ctx context.Context, c plugin.Converter, buf []byte, topic string, s *data.Schema, v any) (
	out []byte, ok bool, err error,
) {
	out, ok, err = c.Encode(ctx, buf[:0], topic, s, v)
	if err != nil && plugin.IsRetriable(err) {
		err = e.retry.again(ctx, err, func() (err error) {
			out, ok, err = c.Encode(ctx, buf[:0], topic, s, v)
			return err
		})
	}
	if err != nil || out == nil {
		out = buf
	}
	return out, ok, err
}

// present is bytes that are no null.
func present(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// decode turns what a topic has into a record.
func (c *chain) decode(ctx context.Context, raw *plugin.RawRecord, r *data.Record) *fault {
	topic, err := r.Topic, error(nil)
	if r.KeySchema, r.Key, err = c.key.Decode(ctx, topic, raw.Key, raw.Headers); err != nil {
		err = c.retryRead(ctx, err, func() (err error) {
			r.KeySchema, r.Key, err = c.key.Decode(ctx, topic, raw.Key, raw.Headers)
			return err
		})
		if err != nil {
			return &fault{stageKey, c.keyClass, err}
		}
	}
	if r.ValueSchema, r.Value, err = c.value.Decode(ctx, topic, raw.Value, raw.Headers); err != nil {
		err = c.retryRead(ctx, err, func() (err error) {
			r.ValueSchema, r.Value, err = c.value.Decode(ctx, topic, raw.Value, raw.Headers)
			return err
		})
		if err != nil {
			return &fault{stageValue, c.valueClass, err}
		}
	}
	if len(raw.Headers) == 0 {
		return nil
	}
	r.Headers = make([]data.Header, len(raw.Headers))
	for i := range raw.Headers {
		h := &raw.Headers[i]
		read := func() (err error) {
			s, v, err := c.header.DecodeHeader(ctx, topic, h.Key, h.Value)
			r.Headers[i] = data.Header{Name: h.Key, Schema: s, Value: v}
			return err
		}
		if err := read(); err != nil {
			if err = c.retryRead(ctx, err, read); err != nil {
				return &fault{stageHeader, c.headerClass, fmt.Errorf("header %q: %w", h.Key, err)}
			}
		}
	}
	return nil
}

func (c *chain) retryRead(ctx context.Context, err error, do func() error) error {
	if !plugin.IsRetriable(err) {
		return err
	}
	return c.retry.again(ctx, err, do)
}

package schemaregistry

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/schemaregistry/schema"
)

// slowFormat is a language whose schemas are read and compared as slowly as the test likes.
type slowFormat struct {
	parse   func(text string)
	compare func()
}

func (f *slowFormat) Parse(text string, _ []schema.Dependency, _ schema.ParseOptions) (schema.Schema, error) {
	if text == "bad" {
		return nil, schema.Invalid("it is bad")
	}
	f.parse(text)
	return plain(text), nil
}

func (f *slowFormat) Compare(reader, writer schema.Schema, _ schema.CompareOptions) (schema.Comparison, error) {
	f.compare()
	return schema.Comparison{Warnings: []string{"of " + reader.Text() + " and " + writer.Text()}}, nil
}

// plain is a schema that is its text.
type plain string

func (p plain) Text() string                                  { return string(p) }
func (p plain) Format(string) string                          { return string(p) }
func (p plain) Name() string                                  { return "" }
func (p plain) Codec() (schema.Codec, error)                  { return nil, schema.Invalid("none") }
func (p plain) Entities() []schema.Tagged                     { return nil }
func (p plain) WithTags(_, _ []schema.Tagged) (string, error) { return string(p), nil }

func slowDesk(t *testing.T, f *slowFormat) *desk {
	log := newFakeLog()
	return &desk{t, log, run(t, log, func(c *Config) {
		c.Formats = map[schema.Type]schema.Format{schema.Avro: f}
	})}
}

// While one schema is being read, and compared, others are registered.
func TestSlowSchemasHoldUpNobody(t *testing.T) {
	stuck, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	f := &slowFormat{compare: func() {}, parse: func(text string) {
		if text == "slow" {
			once.Do(func() { close(stuck) })
			<-release
		}
	}}
	d := slowDesk(t, f)
	var slow sync.WaitGroup
	slow.Go(func() {
		_, err := d.Register(t.Context(), "slow", RegisterRequest{Content: schema.Content{Text: "slow"}})
		require.NoError(t, err)
	})
	<-stuck
	for i := range 5 {
		d.put("quick", fmt.Sprint("q", i), i+1, i+1)
	}
	close(release)
	slow.Wait()
	v, err := d.Version(t.Context(), "slow", "1", false)
	require.NoError(t, err)
	require.Equal(t, 6, v.ID)
}

// Where a decision is made again, what was read and compared is remembered.
func TestWorkIsRemembered(t *testing.T) {
	var parsed, compared int
	f := &slowFormat{parse: func(string) { parsed++ }, compare: func() { compared++ }}
	d := slowDesk(t, f)
	d.level("", FullTransitive)
	for i := range 10 {
		d.put("s", fmt.Sprint("q", i), i+1, i+1)
	}
	parsed, compared = 0, 0
	d.put("s", "new", 11, 11)
	require.Equal(t, 20, compared, "with ten versions, each way, once")
	require.LessOrEqual(t, parsed, 10+2, "the versions before are kept in parsed form, the new one is read twice at most")

	got := d.check("s", "", "other")
	require.Len(t, got.Warnings, 22)
}

// Looking up what is not there again and again does not read the versions that are there each time.
func TestVainLookupsAreCheap(t *testing.T) {
	parsed := 0
	d := slowDesk(t, &slowFormat{parse: func(string) { parsed++ }, compare: func() {}})
	for i := range 10 {
		d.put("s", fmt.Sprint("q", i), i+1, i+1)
	}
	for i := range 3 {
		parsed = 0
		_, err := d.Lookup(t.Context(), "s", RegisterRequest{Content: schema.Content{Text: "new"}}, false)
		d.refuses(CodeSchemaNotFound, err)
		if i > 0 {
			require.LessOrEqual(t, parsed, 2, "the one that is looked for, as it is and in normal form")
		}
	}
}

// The time of a request ends also in the midst of many versions.
func TestManyVersionsHaveABound(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	compared := 0
	f := &slowFormat{parse: func(string) {}, compare: func() {
		if compared++; compared > 100 {
			cancel()
		}
	}}
	d := slowDesk(t, f)
	d.level("", None)
	for i := range 30 {
		d.put("s", fmt.Sprint("q", i), i+1, i+1)
	}
	compared = 95
	d.level("s", BackwardTransitive)
	_, err := d.Compatibility(ctx, "s", "", RegisterRequest{Content: schema.Content{Text: "new"}})
	require.ErrorContains(t, err, "more versions than can be compared")
	require.Equal(t, 101, compared)
	_, err = d.Compatibility(t.Context(), "s", "", RegisterRequest{Content: schema.Content{Text: "bad"}})
	d.refuses(CodeInvalidSchema, err)
}

// What is kept in parsed form is bounded, and what was used last stays.
func TestParseCache(t *testing.T) {
	c := newParseCache(3 * (parsedOverhead + 10))
	k := func(i int) parseKey { return parseKey{deps: [16]byte{byte(i)}} }
	for i := range 3 {
		c.put(k(i), plain("x"), 10)
	}
	require.NotNil(t, c.get(k(0)))
	c.put(k(3), plain("x"), 10)
	require.Nil(t, c.get(k(1)), "the one that was not used for longest has gone")
	require.NotNil(t, c.get(k(0)))
	require.Equal(t, 3*(parsedOverhead+10), c.bytes())
	c.put(k(4), plain("x"), 10_000)
	require.Nil(t, c.get(k(4)), "one that is too large is not kept")
	c.put(k(0), plain("y"), 10)
	require.Equal(t, plain("x"), c.get(k(0)))
}

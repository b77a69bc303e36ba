package convert_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/client"
	"millrace/connect/convert"
	"millrace/connect/data"
	"millrace/connect/plugin"
	"millrace/schemaregistry"
	"millrace/server/servertest"
)

// startRegistry is the registry of a real node.
func startRegistry(t testing.TB) *schemaregistry.Registry {
	t.Helper()
	c := client.New(servertest.Start(t, servertest.Options{}).Requestor(), client.Options{})
	// An old answer for want of a prompt one would be a fault that is none.
	limits := schemaregistry.Limits{FreshWait: 20 * time.Second, WriteWait: time.Minute}
	r, err := schemaregistry.New(schemaregistry.Config{Client: c, Limits: limits})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return r
}

func newConverter(t testing.TB, class string, r *schemaregistry.Registry, settings ...string) plugin.Converter {
	t.Helper()
	c, err := convert.New(class, false, pairs(settings), convert.Deps{Schemas: r})
	require.NoError(t, err)
	return c
}

func pairs(settings []string) map[string]string {
	props := map[string]string{}
	for i := 0; i+1 < len(settings); i += 2 {
		props[settings[i]] = settings[i+1]
	}
	return props
}

func encode(t testing.TB, c plugin.Converter, s *data.Schema, v any) []byte {
	t.Helper()
	b, ok, err := c.Encode(t.Context(), []byte{}, "topic", s, v)
	require.NoError(t, err)
	if !ok {
		return nil
	}
	return b
}

func decode(t testing.TB, c plugin.Converter, b []byte) (*data.Schema, any) {
	t.Helper()
	s, v, err := c.Decode(t.Context(), "topic", b, nil)
	require.NoError(t, err)
	return s, v
}

func is(t data.Type) *data.Schema       { return &data.Schema{Type: t} }
func optional(t data.Type) *data.Schema { return &data.Schema{Type: t, Optional: true} }

func decimal(scale string) *data.Schema {
	return &data.Schema{Type: data.Bytes, Name: data.Decimal, Version: 1,
		Parameters: map[string]string{data.ScaleKey: scale}}
}

func date() *data.Schema      { return &data.Schema{Type: data.Int32, Name: data.Date, Version: 1} }
func timeOfDay() *data.Schema { return &data.Schema{Type: data.Int32, Name: data.Time, Version: 1} }
func timestamp() *data.Schema {
	return &data.Schema{Type: data.Int64, Name: data.Timestamp, Version: 1}
}

func list(elem *data.Schema) *data.Schema { return &data.Schema{Type: data.Array, Elem: elem} }

func mapOf(key, elem *data.Schema) *data.Schema {
	return &data.Schema{Type: data.Map, Key: key, Elem: elem}
}

func field(name string, s *data.Schema) data.Field { return data.Field{Name: name, Schema: s} }

func structOf(s *data.Schema, values ...any) *data.StructValue {
	return &data.StructValue{Schema: s, Values: values}
}

func withDefault(s *data.Schema, v any) *data.Schema {
	o := *s
	o.Default = v
	return &o
}

// row is a schema with one field of each kind.
func row() (*data.Schema, *data.StructValue) {
	inner := data.NewStruct("shop.Inner", field("x", is(data.Int32)))
	s := data.NewStruct("shop.Row",
		field("i8", is(data.Int8)), field("i16", is(data.Int16)), field("i32", is(data.Int32)), field("i64", is(data.Int64)),
		field("f32", is(data.Float32)), field("f64", is(data.Float64)), field("yes", is(data.Boolean)),
		field("text", is(data.String)), field("raw", is(data.Bytes)),
		field("price", decimal("2")), field("day", date()), field("hour", timeOfDay()), field("at", timestamp()),
		field("list", list(is(data.Int64))), field("map", mapOf(is(data.String), is(data.Int32))),
		field("pairs", mapOf(is(data.Int32), is(data.String))),
		field("inner", inner), field("maybe", inner.AsOptional()), field("none", optional(data.String)))
	return s, structOf(s, int8(-3), int16(300), int32(-70000), int64(1)<<60, float32(1.5), 2.0, true, "a\"\u00e9\n",
		[]byte{0, 0xff}, data.DecimalBytes(bigInt(-12345)), int32(19000), int32(3_600_001), int64(1_700_000_000_123),
		[]any{int64(1), int64(-2)}, map[string]any{"a": int32(1), "b": int32(2)},
		[]data.Entry{{Key: int32(7), Value: "seven"}}, structOf(inner, int32(9)), structOf(inner, int32(10)), nil)
}

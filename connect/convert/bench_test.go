package convert_test

import (
	"strings"
	"testing"

	"millrace/connect/data"
	"millrace/connect/plugin"
)

// envelope is a change of a row of 200 bytes, as a source by logical replication gives it.
func envelope() (*data.Schema, *data.StructValue) {
	value := data.NewStruct("server.public.orders.Value",
		field("id", is(data.Int64)), field("customer", is(data.Int32)),
		field("price", &data.Schema{Type: data.Bytes, Optional: true, Name: data.Decimal, Version: 1,
			Parameters: map[string]string{data.ScaleKey: "2", "connect.decimal.precision": "10"}}),
		field("created", &data.Schema{Type: data.Int64, Optional: true, Name: "io.debezium.time.MicroTimestamp", Version: 1}),
		field("active", optional(data.Boolean)), field("note", optional(data.String)))
	source := data.NewStruct("io.debezium.connector.postgresql.Source",
		field("version", is(data.String)), field("connector", is(data.String)), field("name", is(data.String)),
		field("ts_ms", is(data.Int64)), field("snapshot", optional(data.String)), field("db", is(data.String)),
		field("sequence", optional(data.String)), field("schema", is(data.String)), field("table", is(data.String)),
		field("txId", optional(data.Int64)), field("lsn", optional(data.Int64)), field("xmin", optional(data.Int64)))
	s := data.NewStruct("server.public.orders.Envelope",
		field("before", value.AsOptional()), field("after", value.AsOptional()), field("source", source),
		field("op", is(data.String)), field("ts_ms", optional(data.Int64)))
	after := structOf(value, int64(123456), int32(42), data.DecimalBytes(bigInt(1999)), int64(1_700_000_000_123_456),
		true, strings.Repeat("twenty bytes of text", 8))
	return s, structOf(s, nil, after,
		structOf(source, "3.0", "postgresql", "server", int64(1_700_000_000_123), "false", "shop", `["1","2"]`, "public",
			"orders", int64(700), int64(1<<40), nil), "c", int64(1_700_000_000_200))
}

func benchmark(b *testing.B, c plugin.Converter) {
	s, v := envelope()
	text := encode(b, c, s, v)
	b.Run("encode", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		b.ReportAllocs()
		dst := make([]byte, 0, 2*len(text))
		for b.Loop() {
			if _, _, err := c.Encode(b.Context(), dst, "topic", s, v); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := c.Decode(b.Context(), "topic", text, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkJSONWithSchemas(b *testing.B) { benchmark(b, newConverter(b, "JsonConverter", nil)) }

func BenchmarkJSON(b *testing.B) {
	benchmark(b, newConverter(b, "JsonConverter", nil, "schemas.enable", "false"))
}

func BenchmarkAvro(b *testing.B) { benchmark(b, newConverter(b, "AvroConverter", startRegistry(b))) }

func BenchmarkJSONSchema(b *testing.B) {
	benchmark(b, newConverter(b, "JsonSchemaConverter", startRegistry(b)))
}

func BenchmarkProtobuf(b *testing.B) {
	benchmark(b, newConverter(b, "ProtobufConverter", startRegistry(b), "optional.for.nullables", "true"))
}

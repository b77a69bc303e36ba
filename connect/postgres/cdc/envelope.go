package cdc

import (
	"millrace/connect/data"
)

// version is what events say of the connector that wrote them.
const version = "1.0.0"

func optionalOf(t data.Type) *data.Schema { return &data.Schema{Type: t, Optional: true} }

func requiredOf(t data.Type) *data.Schema { return &data.Schema{Type: t} }

// The places of fields in an envelope.
const (
	envBefore = iota
	envAfter
	envSource
	envTransaction
	envOp
	envMillis
	envMicros
	envNanos
)

// The places of fields in the source of an event.
const (
	srcVersion = iota
	srcConnector
	srcName
	srcMillis
	srcSnapshot
	srcDatabase
	srcSequence
	srcMicros
	srcNanos
	srcSchema
	srcTable
	srcXID
	srcLSN
	srcXmin
	srcOrigin
	srcOriginLSN
)

// sourceSchema describes where an event is from.
var sourceSchema = data.NewStruct("io.debezium.connector.postgresql.Source",
	data.Field{Name: "version", Schema: requiredOf(data.String)},
	data.Field{Name: "connector", Schema: requiredOf(data.String)},
	data.Field{Name: "name", Schema: requiredOf(data.String)},
	data.Field{Name: "ts_ms", Schema: requiredOf(data.Int64)},
	data.Field{Name: "snapshot", Schema: &data.Schema{Type: data.String, Optional: true, Default: "false",
		Name: "io.debezium.data.Enum", Version: 1, Parameters: map[string]string{
			"allowed": "first,first_in_data_collection,true,last_in_data_collection,last,false,incremental"}}},
	data.Field{Name: "db", Schema: requiredOf(data.String)},
	data.Field{Name: "sequence", Schema: optionalOf(data.String)},
	data.Field{Name: "ts_us", Schema: optionalOf(data.Int64)},
	data.Field{Name: "ts_ns", Schema: optionalOf(data.Int64)},
	data.Field{Name: "schema", Schema: requiredOf(data.String)},
	data.Field{Name: "table", Schema: requiredOf(data.String)},
	data.Field{Name: "txId", Schema: optionalOf(data.Int64)},
	data.Field{Name: "lsn", Schema: optionalOf(data.Int64)},
	data.Field{Name: "xmin", Schema: optionalOf(data.Int64)},
	data.Field{Name: "origin", Schema: optionalOf(data.String)},
	data.Field{Name: "origin_lsn", Schema: optionalOf(data.Int64)},
)

// blockSchema describes the place of an event in its transaction.
var blockSchema = func() *data.Schema {
	s := data.NewStruct("event.block",
		data.Field{Name: "id", Schema: requiredOf(data.String)},
		data.Field{Name: "total_order", Schema: requiredOf(data.Int64)},
		data.Field{Name: "data_collection_order", Schema: requiredOf(data.Int64)})
	s.Version, s.Optional = 1, true
	return s
}()

func envelopeSchema(name string, row *data.Schema) *data.Schema {
	row = row.AsOptional()
	s := data.NewStruct(name,
		data.Field{Name: "before", Schema: row},
		data.Field{Name: "after", Schema: row},
		data.Field{Name: "source", Schema: sourceSchema},
		data.Field{Name: "transaction", Schema: blockSchema},
		data.Field{Name: "op", Schema: requiredOf(data.String)},
		data.Field{Name: "ts_ms", Schema: optionalOf(data.Int64)},
		data.Field{Name: "ts_us", Schema: optionalOf(data.Int64)},
		data.Field{Name: "ts_ns", Schema: optionalOf(data.Int64)})
	s.Version = 2
	return s
}

// Of logical messages.
var (
	messageKeySchema = data.NewStruct("io.debezium.connector.postgresql.MessageKey",
		data.Field{Name: "prefix", Schema: optionalOf(data.String)})
	messageBlockSchema = data.NewStruct("io.debezium.connector.postgresql.Message",
		data.Field{Name: "prefix", Schema: optionalOf(data.String)},
		data.Field{Name: "content", Schema: optionalOf(data.Bytes)})
	messageValueSchema = data.NewStruct("io.debezium.connector.postgresql.MessageValue",
		data.Field{Name: "op", Schema: requiredOf(data.String)},
		data.Field{Name: "ts_ms", Schema: optionalOf(data.Int64)},
		data.Field{Name: "ts_us", Schema: optionalOf(data.Int64)},
		data.Field{Name: "ts_ns", Schema: optionalOf(data.Int64)},
		data.Field{Name: "transaction", Schema: blockSchema},
		data.Field{Name: "source", Schema: sourceSchema},
		data.Field{Name: "message", Schema: messageBlockSchema})
)

// Of the metadata of transactions.
var (
	transactionKeySchema = data.NewStruct("io.debezium.connector.common.TransactionMetadataKey",
		data.Field{Name: "id", Schema: requiredOf(data.String)})
	collectionSchema = data.NewStruct("event.collection",
		data.Field{Name: "data_collection", Schema: requiredOf(data.String)},
		data.Field{Name: "event_count", Schema: requiredOf(data.Int64)})
	transactionValueSchema = data.NewStruct("io.debezium.connector.common.TransactionMetadataValue",
		data.Field{Name: "status", Schema: requiredOf(data.String)},
		data.Field{Name: "id", Schema: requiredOf(data.String)},
		data.Field{Name: "event_count", Schema: optionalOf(data.Int64)},
		data.Field{Name: "data_collections",
			Schema: &data.Schema{Type: data.Array, Optional: true, Elem: collectionSchema}},
		data.Field{Name: "ts_ms", Schema: requiredOf(data.Int64)})
)

// Of heartbeats.
var (
	heartbeatKeySchema = data.NewStruct("io.debezium.connector.common.ServerNameKey",
		data.Field{Name: "serverName", Schema: requiredOf(data.String)})
	heartbeatValueSchema = data.NewStruct("io.debezium.connector.common.Heartbeat",
		data.Field{Name: "ts_ms", Schema: requiredOf(data.Int64)})
)

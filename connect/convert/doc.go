// Package convert has the converters that stand between the records of connectors and the bytes in topics: JSON, text,
// bytes, numbers, and Avro, JSON Schema and Protobuf with the schemas of the registry.
//
// It owns the bytes that each of them writes and the schemas it makes of what it reads, by the class names and settings
// of Apache Kafka's and Confluent's. It promises that what it cannot translate exactly is an error that names the
// field, and that reading costs a small multiple of what is read. The runner of tasks makes one converter for each part
// of a task's records.
package convert

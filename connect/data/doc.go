// Package data is the data model that connectors, converters and transforms share: schemas, structs, records.
//
// It owns the types of Kafka Connect's API (schema types, logical types, headers) in Go's own values, and nothing else.
// It promises that a Schema never changes once it is built, so that it may be shared and compared by its address first,
// and that a value always fits one of the Go types that Type names. It does no I/O.
package data

// Package transform has the single message transforms and predicates that records pass between a connector and its
// topics.
//
// It owns what each of them does to a record, by the class names and settings of Kafka Connect's and Debezium's. It
// promises that a transform changes no schema, struct, map or header in place, and that what it cannot do to a record
// is an error that names the field and the type.
package transform

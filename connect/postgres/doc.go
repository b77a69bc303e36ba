// Package postgres is what the PostgreSQL connectors share: connections, errors, names, the catalog and the map of
// types.
//
// It owns the translation between PostgreSQL's texts and the data model of connectors, as Confluent's JDBC source and
// Debezium's connector have it, and the words in which a database's refusals are reported. It promises that no error
// holds a password or what a row contains, that no type is dropped, and that a value which its schema cannot carry is
// an error and never a wrong value. The connectors are in the packages below it; they alone call it.
package postgres

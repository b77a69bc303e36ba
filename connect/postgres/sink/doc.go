// Package sink writes records into tables of PostgreSQL: each once, or in Debezium's and Confluent's ways at least
// once.
//
// It owns the translation of records into statements (which columns, which types, which order), and the offset
// ledger: a table in the target database that says, for each partition, which record comes next and whose turn it is.
// It promises that a record's effect and the ledger's step are one transaction, that whoever has lost a partition
// writes nothing more, that a single bad record keeps no others out, and that a fault which concerns all records is
// never taken for a bad record. Errors and logs hold no values of rows. The runner calls it through Classes. All
// tests run on a real server.
package sink

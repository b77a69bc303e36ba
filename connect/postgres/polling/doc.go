// Package polling is a source that asks a PostgreSQL database again and again for rows that are new.
//
// It owns the modes of Confluent's JDBC source (bulk, incrementing, timestamp, both, a query) with its settings, and
// one of its own, xid, that reads by the numbers of transactions and loses no row by construction. Where rows are told
// by a column, it keeps behind the transactions that may yet add older ones, which Confluent's does not. It promises
// that a row is given with the offset behind it, that in mode xid a restart at any point gives each row once, and that
// what it cannot read is an error that says why. Package server hands its class to the workers.
package polling

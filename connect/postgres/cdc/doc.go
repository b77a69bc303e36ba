// Package cdc captures the changes of a PostgreSQL database from its write-ahead log, in the terms of Debezium's
// connector.
//
// It owns the replication connection, the decoding of pgoutput, the initial and the incremental snapshots, and the
// place in the log that is stored with what was read. It promises that each committed change comes once and in the
// order of commits, that a snapshot and the stream after it leave no gap, that memory stays bounded however large a
// transaction is, and that the server is told to let go of its log only once what is in it is stored. The runner
// (package connect/task) calls it through Class.
package cdc

const unavailableHeader = "__unavailable"

// Package store keeps what connectors share between nodes, in three compacted topics in Kafka Connect's formats:
// configs, offsets of sources, and status.
//
// It owns the reading of these topics into memory, the making of them, and every write to the config and status
// topics; offsets are also written by tasks, in transactions of their own. It promises that a Kafka Connect worker
// can read what it writes and the other way around, that a change of configs is decided against all that was
// acknowledged before it and is in the log once or not at all, and that a read after Fresh shows every write that was
// acknowledged before. Package connect and the tasks are its callers.
package store

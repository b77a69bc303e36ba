// Package schemaregistry is the schema registry: subjects and their versions, the ids of schemas, compatibility,
// configs and modes.
//
// It owns the topic _schemas, a compacted log of one partition in the form that Confluent's registry writes. A Registry
// folds that log into memory and answers from there. It changes only by appending: a write decides against the state at
// the log's end and appends its records in one batch on the condition that the end has not moved, so that two writers,
// on whichever nodes, cannot both decide against the same state. Nothing is said to be written before the Registry
// itself has read it back, and what may or may not have been written is said to be unknown.
//
// Reads see every write that was acknowledged before, on whichever node: they ask for the log's end first. Only what
// never changes, a schema by its id, is answered from memory at once.
//
// The HTTP API and package serde are its callers. It knows the cluster only as a client.Client.
package schemaregistry

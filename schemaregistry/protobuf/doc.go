// Package protobuf is the Protocol Buffers format of the schema registry: it reads, prints and compares .proto files,
// and translates messages to and from JSON.
//
// Texts are compiled by protocompile with what the registry gives as dependencies and with the files that every
// registry knows; nothing is read from disk or network. Every text is weighed before the compiler sees it, and every
// comparison and message has its bound. Package schemaregistry is the caller.
package protobuf

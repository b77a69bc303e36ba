// Package record reads, writes and checks Kafka record batches of format 2, the one form in which
// records travel through the server and rest on disk.
//
// A Batch is the bytes themselves: header fields are read and patched in place, so a batch that a
// client encoded is stored and served again without being rebuilt. Builder encodes records,
// Reader decodes them, Prepare is the check a leader makes before it stores what a client sent,
// Next and Verify are what the log and its recovery use on bytes from a disk or a peer.
//
// The package is pure: no I/O, no clock, no goroutine, no package state. What is worth keeping
// between calls (compressors, memory) lives in a Codecs or a Pool that the caller owns.
//
// All bytes are taken to be hostile: nothing here panics on them, and nothing is allocated because
// a length field says so, only because bytes are there. Expanded sizes are bounded by the caller.
package record

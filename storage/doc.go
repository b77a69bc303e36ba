// Package storage keeps partition logs on local disk, in Kafka's own files.
//
// A Dir is one data directory: it owns the lock on it, the checkpoints that span partitions, the
// clean-shutdown marker, the background work and the committer that makes appended batches durable.
// A Log is one partition: segments with their indexes, leader epochs and producer snapshots.
//
// What it promises:
//
//   - Bytes below SyncedOffset survive any crash; nothing counts as synced before the file's data,
//     the file's directory entry and the entries above it are on disk.
//   - After a crash the log is a dense prefix of what was appended, ending at a batch boundary, at
//     or above SyncedOffset. Recovery reads only what lies past the recovery point, and recovering
//     twice gives what recovering once gave.
//   - What an unclean stop left past the recovery point is written again, with its own bytes, before it
//     counts as synced: a sync may have failed, and then what can be read is on its way to no disk. Where the policy is
//     not SyncAck the log is in use meanwhile.
//   - Damage below the recovery point is never cut away or served: it is a CorruptionError. The base offset and leader
//     epoch of a batch, which no checksum covers, are held to those of its neighbours.
//   - A log whose write or sync failed goes offline, alone, and is not tried again. Only a full disk
//     is forgiven, when the partial write could be undone.
//   - No lock is held across file I/O but the log's own, which is a channel; reads take no lock.
//   - An idle log costs no file, no goroutine, no timer; after a clean stop opening one reads nothing.
//
// Only the partition and quorum packages call it. It knows nothing of requests, replicas or Kafka's
// error codes, and reads neither clock nor random numbers but those it is given.
package storage

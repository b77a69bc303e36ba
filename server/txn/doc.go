// Package txn is the transaction coordinator: it knows of every transactional id which producer may use it, in which
// epoch, and what has become of its transaction.
//
// An id lives in one partition of the internal topic __transaction_state, chosen by its name, and is served by the
// node that leads that partition. What the coordinator knows of the ids of one partition is a shard: a fold over
// the partition's log in Kafka's record format, run by server/coordinator. Everything that lasts is a record.
//
// It works by Kafka's transaction version 2 (KIP-890) and no other: every end of a transaction bumps the epoch of
// its producer, so that what comes late, a batch or a request to end, is told from the next transaction. The states
// of an id are
//
//	Empty -> Ongoing -> PrepareCommit -> CompleteCommit
//	              \---> PrepareAbort --> CompleteAbort
//
// from Complete... on as from Empty, and a request to abort where there is nothing to abort passes through
// PrepareAbort, for the sake of the new epoch.
//
// It promises:
//
//   - Who was told that a transaction is committed or aborted finds it so: the decision is in the log, committed,
//     before it is answered and before the first marker is written, and markers are written until each partition has
//     one.
//   - A producer that another one of the same id has replaced, or that has let a transaction run out of time, ends
//     nothing any more, and writes nothing once the end of that transaction has reached the partition.
//   - A change that waits for something, a producer id or the end of a transaction, lets no other request about the id
//     in between: those are told CONCURRENT_TRANSACTIONS, after a moment in which it may be over.
//   - Everything has a bound: what waits for an id, requests with markers under way, tombstones in a batch.
//
// Its caller is the node, as a kmsg.Requestor: the router sends requests to the node of the id. Markers go out
// through Config.Cluster to the leaders of the partitions.
package txn

// Package consumer runs members of consumer groups for clients that have no Kafka client.
//
// A Member is one member of a group of the consumer protocol (KIP-848). It joins under an id, says by heartbeats
// that it is alive, takes and gives up partitions, fetches their records when it is asked to, and commits where the
// reading has come to. A client asks for records by calls that may be far apart: each renews a lease, and a member
// whose lease ends leaves its group. The HTTP APIs are the callers.
//
// It promises that records are handed out at least once: an offset is committed only after the records below it
// were handed out and the client came back, or said so itself. Of a partition that is to be given up nothing more
// is handed out, and it is given up only when what was handed out of it is dealt with, or after a while. While the
// assignment is stable nothing is skipped and nothing comes twice.
//
// Members live on the node of their group's coordinator. What a member is, it keeps with the coordinator
// (ktag.SetMemberState), so that another node takes it over when the coordinator has moved there.
package consumer

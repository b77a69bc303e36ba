// Package group is the group coordinator: it keeps the members and the committed offsets of consumer groups.
//
// A group lives in one partition of the internal topic __consumer_offsets, chosen by its name, and is served
// by the node that leads that partition. What the coordinator knows of the groups of one partition is a shard:
// a fold over the partition's log in Kafka's record formats, run by server/coordinator. Everything that lasts
// is a record; what is not in the log (parked requests, session timers) is gone when the leadership moves.
//
// It promises what the runtime promises: nobody is told of what could still be lost, a commit that was
// answered is seen by every later fetch, but for one of a node that was cut off and has not heard yet that
// another one coordinates the group, and a node that no longer leads writes nothing. Both group protocols
// are served, the classic one (join, sync, heartbeat) and Kafka's newer one of a single heartbeat (KIP-848);
// a group is of one kind until it is empty and deleted. Groups that only keep offsets are of neither kind.
//
// Its caller is the node, as a kmsg.Requestor: the router sends requests to the node of the group.
package group

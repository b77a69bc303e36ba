// Package faults is a test of real processes: three built nodes that are killed, frozen, stopped, cut off from each
// other and out of disk, while clients produce with acks=all and read.
//
// What the clients were told goes into a history, and so does what is read back in the end from every node and from
// every node's files; server/servertest/history holds the one to the other. Nothing that was acknowledged may be gone,
// moved or doubled, whatever was done to one node at a time, or to two.
//
// Two more runs are of groups: workers that copy a topic in transactions, of which the copy must have each record once
// and no reader may see a part; and members that come and go, whose partitions others must read at once.
//
// Four more are of connectors between two databases of a real PostgreSQL: tables of every type are equal in the end,
// whatever became of their rows and columns; rows are counted, so that none is missing or there twice; hand-overs are
// measured; and whatever can be wrong with what connectors are given is said in words that help. Their faults are of
// nodes, of sessions and the server of the database, of the network to it, and of people who pause, stop and restart.
//
// As root on Linux the first test starts itself again in namespaces of its own: a network of a bridge and three hosts,
// to cut, and small disks in memory, to fill. They end with it. Elsewhere it leaves out what needs them and says so.
//
// `go test ./internal/faults` does a bit of everything on one cluster; with -faults.time each kind of fault gets that
// time and a cluster of its own, which is what `make faults` runs, with a million records to copy.
package faults

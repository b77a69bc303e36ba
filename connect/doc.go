// Package connect runs connectors: it shares them and their tasks among the workers of a cluster, and is what the REST
// API of connectors asks.
//
// A Worker runs in every node. It owns the membership in the group of workers, the assignment of connectors and tasks,
// their starting, stopping and restarting, and the operations behind the REST API. What is to run is a fold over the
// topic of configs (package connect/store), which any worker may append to; who runs it is the assignment that the
// leader of the group made. It promises that a connector or task runs on one worker of the group at a time as far as
// the group knows, and that what a worker of the past still does cannot be stored (package connect/task fences it). A
// connector or task that hangs holds up nothing but itself. The server makes the Worker, and gives it the classes.
package connect

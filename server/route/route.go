// Package route decides who answers a request: it is the kmsg.Requestor that the users of a cluster
// see, on any node.
//
// One table lists every key that the cluster serves and how it is routed: to the leaders of the partitions it names, to
// the coordinators of its groups and transactions, to the controller, to a broker it names, or to whoever was asked. A
// request about partitions of several leaders is split, sent to all at once, and the answers are put together in the
// order of the request; one about partitions of a single leader, as nearly all are, is passed on as it is.
//
// Leaders and controllers move. Where nothing was done, because the node asked was not the one, could not be reached,
// or there is no leader at the moment, the router asks again by a newer image, as long as the request may take: Produce
// its TimeoutMillis, all else 15 s, and never beyond the caller's context. What may have been done is asked again only
// where that does no harm: reads, and batches with a producer id, of which the leader knows what it has. A node that
// does not answer is waited for until the image replaces it.
//
// Requests about groups and transactions are all asked again, for a coordinator knows what it has done. The internal
// topics are made when they are first needed.
//
// What is left when the time is over: LEADER_NOT_AVAILABLE, or the node's own code, where nothing was done;
// NETWORK_EXCEPTION where the outcome is unknown. It costs only its own partitions.
//
// The package holds no state of the cluster: each try reads one metadata image.
package route

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
)

// Config says where requests can go. Peer and ControllerID may be nil in a cluster of one.
type Config struct {
	NodeID int32
	// Image is the node's metadata.
	Image func() *metadata.Image
	// Broker and Controller are this node's own.
	Broker     kmsg.Requestor
	Controller kmsg.Requestor
	// Groups and Txns are this node's coordinators; nil where it has none.
	Groups kmsg.Requestor
	Txns   kmsg.Requestor
	// Nodes is how many nodes the cluster shall have, those too that have not registered yet. Nil: those that have.
	Nodes func() int
	// ControllerID is the node that leads the quorum, or -1.
	ControllerID func() int32
	// Peer reaches another node; nil when it cannot be reached. An error with a method NotSent that returns true says
	// that the node did nothing.
	Peer func(id int32) kmsg.Requestor
	// Changed is closed when there is a newer image than at the time of the call. Nil: the router looks now and then.
	Changed func() <-chan struct{}
	// AwaitApplied waits until this node shows everything up to that index of the metadata log. Nil: until the image
	// has it.
	AwaitApplied func(ctx context.Context, index uint64) error
}

// Router is a kmsg.Requestor over all nodes. It is safe for concurrent use.
type Router struct {
	cfg    Config
	table  map[kmsg.Key]routing
	making chan struct{} // a lock of one slot: an internal topic is being made
}

// routing is how the requests of one key find their way.
type routing struct {
	serves Server
	way    way
}

// way takes a request to whoever answers it and brings the answer back.
type way func(context.Context, *Router, kmsg.Request) (kmsg.Response, error)

// Server says who serves a key.
type Server int8

// The servers of keys.
const (
	Leaders          Server = iota // the leaders of the partitions in the request
	Controller                     // the node that leads the metadata quorum
	NamedBrokers                   // the brokers that the request names, else the node asked
	AnyBroker                      // the node asked
	GroupCoordinator               // the coordinators of the groups in the request
	TxnCoordinator                 // the coordinators of the transactional ids in the request; the node asked without one
	AllBrokers                     // all nodes that coordinate
)

// nobody is the controller while none is known.
const nobody int32 = -1

// String names the server as documents do.
func (s Server) String() string {
	return [...]string{
		"partition leaders", "controller", "named brokers", "any broker", "group coordinators", "transaction coordinators",
		"all brokers",
	}[s]
}

// New makes a Router.
func New(cfg Config) *Router {
	if cfg.ControllerID == nil {
		cfg.ControllerID = func() int32 { return cfg.NodeID }
	}
	if cfg.Peer == nil {
		cfg.Peer = func(int32) kmsg.Requestor { return nil }
	}
	return &Router{cfg: cfg, table: newTable(), making: make(chan struct{}, 1)}
}

// newTable is the one list of the keys that the cluster serves.
func newTable() map[kmsg.Key]routing {
	return map[kmsg.Key]routing{
		kmsg.Produce:                    {Leaders, produce()},
		kmsg.Fetch:                      {Leaders, fetch},
		kmsg.ListOffsets:                {Leaders, listOffsets()},
		kmsg.Metadata:                   {AnyBroker, local},
		kmsg.CreateTopics:               {Controller, createTopics},
		kmsg.DeleteTopics:               {Controller, toController},
		kmsg.DeleteRecords:              {Leaders, deleteRecords()},
		kmsg.InitProducerID:             {TxnCoordinator, initProducerID()},
		kmsg.OffsetForLeaderEpoch:       {Leaders, offsetForLeaderEpoch()},
		kmsg.DescribeConfigs:            {NamedBrokers, describeConfigs},
		kmsg.DescribeLogDirs:            {NamedBrokers, describeLogDirs},
		kmsg.CreatePartitions:           {Controller, toController},
		kmsg.IncrementalAlterConfigs:    {Controller, toController},
		kmsg.DescribeCluster:            {AnyBroker, local},
		kmsg.DescribeProducers:          {Leaders, describeProducers()},
		kmsg.DescribeQuorum:             {Leaders, describeQuorum()},
		kmsg.BrokerRegistration:         {Controller, toController},
		kmsg.BrokerHeartbeat:            {Controller, toController},
		kmsg.AlterPartition:             {Controller, toController},
		kmsg.ElectLeaders:               {Controller, toController},
		kmsg.AlterPartitionAssignments:  {Controller, toController},
		kmsg.ListPartitionReassignments: {Controller, toController},
		kmsg.UnregisterBroker:           {Controller, toController},
		kmsg.AllocateProducerIDs:        {Controller, toController},

		kmsg.FindCoordinator:        {AnyBroker, findCoordinator},
		kmsg.JoinGroup:              {GroupCoordinator, joinGroup()},
		kmsg.SyncGroup:              {GroupCoordinator, syncGroup()},
		kmsg.Heartbeat:              {GroupCoordinator, heartbeat()},
		kmsg.LeaveGroup:             {GroupCoordinator, leaveGroup()},
		kmsg.ConsumerGroupHeartbeat: {GroupCoordinator, consumerGroupHeartbeat()},
		kmsg.OffsetCommit:           {GroupCoordinator, offsetCommit()},
		kmsg.OffsetFetch:            {GroupCoordinator, offsetFetch()},
		kmsg.OffsetDelete:           {GroupCoordinator, offsetDelete()},
		kmsg.TxnOffsetCommit:        {GroupCoordinator, txnOffsetCommit()},
		kmsg.DescribeGroups:         {GroupCoordinator, describeGroups()},
		kmsg.ConsumerGroupDescribe:  {GroupCoordinator, consumerGroupDescribe()},
		kmsg.DeleteGroups:           {GroupCoordinator, deleteGroups()},
		kmsg.ListGroups:             {AllBrokers, listGroups()},
		kmsg.AddPartitionsToTxn:     {TxnCoordinator, addPartitionsToTxn()},
		kmsg.AddOffsetsToTxn:        {TxnCoordinator, addOffsetsToTxn()},
		kmsg.EndTxn:                 {TxnCoordinator, endTxn()},
		kmsg.DescribeTransactions:   {TxnCoordinator, describeTransactions()},
		kmsg.ListTransactions:       {AllBrokers, listTransactions()},
		kmsg.WriteTxnMarkers:        {Leaders, writeTxnMarkers()},
	}
}

// Keys lists the keys that the cluster serves, and by whom.
func Keys() map[kmsg.Key]Server {
	keys := make(map[kmsg.Key]Server)
	for key, r := range newTable() {
		keys[key] = r.serves
	}
	return keys
}

// Request sends a request to whoever serves it and returns the answer.
func (r *Router) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	to, ok := r.table[kmsg.Key(req.Key())]
	if !ok {
		return nil, fmt.Errorf("nobody serves %s (key %d)", kmsg.NameForKey(req.Key()), req.Key())
	}
	return to.way(ctx, r, req)
}

// local answers on the node that was asked.
func local(ctx context.Context, r *Router, req kmsg.Request) (kmsg.Response, error) {
	return r.cfg.Broker.Request(ctx, req)
}

// changed is closed when there is a newer image; nil when nobody tells.
func (r *Router) changed() <-chan struct{} {
	if r.cfg.Changed == nil {
		return nil
	}
	return r.cfg.Changed()
}

// node is the way to a broker; nil when there is none.
func (r *Router) node(id int32) kmsg.Requestor {
	if id == r.cfg.NodeID {
		return r.cfg.Broker
	}
	if id == metadata.NoLeader {
		return nil
	}
	return r.cfg.Peer(id)
}

package server

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/controller"
	"millrace/server/group"
	"millrace/server/metadata"
	"millrace/server/partition"
	"millrace/server/txn"
)

// coordinators are the parts that answer for the groups and transactions whose partitions this node leads.
type coordinators struct {
	groups *group.Coordinator
	txns   *txn.Coordinator
	// forGroups, forTxns and forController are the keys that the coordinators and the controller answer; the broker
	// answers all others, and InitProducerID without a transactional id.
	forGroups     map[kmsg.Key]bool
	forTxns       map[kmsg.Key]bool
	forController map[kmsg.Key]bool
}

// openCoordinators makes the coordinators. They lead nothing before the broker says so.
func (n *Node) openCoordinators() {
	failed := func(p partition.Name, err error) { n.broker.Failed(p, err) }
	n.coordinators = coordinators{
		groups: group.Open(group.Config{
			Image: n.machine.Image, Cluster: whole{n}, Now: n.cfg.Now, Rand: n.fork(), Logger: n.log, Registerer: n.registry,
			Failed: failed, Flaws: n.cfg.Flaws,
		}),
		txns: txn.Open(txn.Config{
			Image: n.machine.Image, Cluster: whole{n}, Now: n.cfg.Now, Rand: n.fork(), Logger: n.log, Registerer: n.registry,
			NewProducerID: func(ctx context.Context) (int64, error) { return n.broker.AllocateProducerID(ctx) },
			Failed:        failed,
			Flaws:         n.cfg.Flaws,
		}),
		forGroups: keySet(group.Keys()), forTxns: keySet(txn.Keys()), forController: keySet(controller.Keys()),
	}
}

func keySet(keys []kmsg.Key) map[kmsg.Key]bool {
	set := make(map[kmsg.Key]bool)
	for _, k := range keys {
		set[k] = true
	}
	return set
}

// close ends the coordinators: who waits for one is told to ask again elsewhere. They write to the logs, so the broker
// closes later.
func (c *coordinators) close() error { return errors.Join(c.txns.Close(), c.groups.Close()) }

// onInternal hears which partitions of internal topics this node leads.
func (n *Node) onInternal(topic string, number int32, leader *partition.Leader, epoch int32) {
	var to interface {
		Lead(number int32, l *partition.Leader, epoch int32)
		Resign(number int32)
	}
	switch topic {
	case metadata.GroupTopic:
		to = n.groups
	case metadata.TxnTopic:
		to = n.txns
	default:
		return
	}
	if leader == nil {
		to.Resign(number)
		return
	}
	to.Lead(number, leader, epoch)
}

// onTopics has what groups have committed for a deleted topic removed.
func (n *Node) onTopics(old, image *metadata.Image) {
	if old == nil {
		return
	}
	for _, c := range metadata.Diff(old, image) {
		if c.New == nil {
			n.groups.TopicDeleted(c.Old.Name)
		}
	}
}

// nodeCount is how many nodes the cluster has, those too that have not registered a broker yet.
func (n *Node) nodeCount() int { return len(n.memberAddresses()) }

// local answers on this node and nowhere else: a request that came from another node goes no further.
type local struct{ node *Node }

// Request implements kmsg.Requestor.
func (l local) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	n, key := l.node, kmsg.Key(r.Key())
	switch {
	case n.forController[key]:
		return n.controller.Request(ctx, r)
	case n.forGroups[key]:
		return n.groups.Request(ctx, r)
	case n.forTxns[key] && !isIdempotent(r):
		return n.txns.Request(ctx, r)
	}
	return n.broker.Request(ctx, r)
}

// isIdempotent says of InitProducerID that it is for a producer without transactions.
func isIdempotent(r kmsg.Request) bool {
	req, ok := r.(*kmsg.InitProducerIDRequest)
	return ok && req.TransactionalID == nil
}

// coordinates says whether the members of a group that run for clients belong on this node: it coordinates the group,
// or nobody is known to.
func (n *Node) coordinates(group string) bool {
	t := n.machine.Image().Topic(metadata.GroupTopic)
	if t == nil {
		return true
	}
	leader := t.Partitions[metadata.CoordinatorPartition(group, int32(len(t.Partitions)))].Leader
	return leader == n.cfg.NodeID || leader == metadata.NoLeader
}

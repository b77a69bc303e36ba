package metadata

import (
	"math"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
)

func (c *RegisterBroker) apply(e *editor) Result {
	clusterID := e.next.ClusterID
	founded := c.ClusterID
	if founded == "" {
		founded = c.NewClusterID
	}
	switch {
	case c.ID < 0:
		return oneItem(refuse(kerr.InvalidRequest, "broker id %d is negative", c.ID))
	case c.Incarnation == UUID{}:
		return oneItem(refuse(kerr.InvalidRequest, "broker %d gives no incarnation id", c.ID))
	case clusterID == "" && founded == "":
		return oneItem(refuse(kerr.InvalidRequest, "the cluster has no id, and broker %d brings none", c.ID))
	case clusterID != "" && c.ClusterID != "" && c.ClusterID != clusterID:
		return oneItem(refuse(kerr.InconsistentClusterID,
			"broker %d has data of cluster %s, but this is cluster %s", c.ID, c.ClusterID, clusterID))
	}
	old := e.next.brokers[c.ID]
	if old != nil && old.Incarnation == c.Incarnation {
		return Result{Items: make([]Item, 1), Epoch: old.Epoch}
	}
	if clusterID == "" {
		e.next.ClusterID = founded
	}
	b := &Broker{
		ID: c.ID, Epoch: int64(e.next.Index), Incarnation: c.Incarnation,
		Endpoints: slices.Clone(c.Endpoints), Rack: c.Rack, Fenced: c.Fenced,
	}
	if c.Fenced {
		b.ServedEpoch = old.servedEpoch()
	}
	if old != nil {
		b.VoteDue = old.VoteDue
	}
	e.setBroker(b)
	e.adopt(c.Defaults)
	switch {
	case old == nil:
	case !c.Fenced:
		e.resume(c, old)
	case c.lossless(old):
		e.settleAll([]int32{c.ID}, election{})
	default:
		how := election{lost: []int32{c.ID}}
		if c.DataEpoch != 0 && c.DataEpoch < old.servedEpoch() {
			how.gone = how.lost
		}
		e.settleAll([]int32{c.ID}, how)
	}
	return Result{Items: make([]Item, 1), Epoch: b.Epoch}
}

// servedEpoch is the epoch of the broker's last run in service, -1 when there was none.
func (b *Broker) servedEpoch() int64 {
	switch {
	case b == nil:
		return -1
	case b.ServedEpoch != 0:
		return b.ServedEpoch
	default:
		return b.Epoch
	}
}

// lossless reports whether the broker still has every record that it acknowledged.
func (c *RegisterBroker) lossless(old *Broker) bool {
	served := old.servedEpoch()
	return c.PreviousEpoch >= served || c.Intact && (c.DataEpoch == 0 || c.DataEpoch >= served)
}

// resume takes a broker that does not register as fenced into service again.
func (e *editor) resume(c *RegisterBroker, old *Broker) {
	if c.PreviousEpoch != old.Epoch {
		e.renewLeadership(c.ID)
	}
	if old.State() != BrokerActive {
		e.settleAll([]int32{c.ID}, election{})
	}
}

// renewLeadership starts a new leader epoch of every partition that the broker leads.
func (e *editor) renewLeadership(broker int32) {
	for t := range e.allTopics() {
		for i, p := range t.Partitions {
			if p.Leader == broker {
				p.LeaderEpoch++
				p.PartitionEpoch++
				e.putPartition(t, i, p)
			}
		}
	}
}

func (c *ChangeBrokers) apply(e *editor) Result {
	r := Result{Items: make([]Item, len(c.Changes))}
	var changed []int32
	for i := range c.Changes {
		change := &c.Changes[i]
		if r.Items[i] = e.checkBrokerChange(change); r.Items[i].Code == 0 && e.changeBroker(change) {
			changed = append(changed, change.ID)
		}
	}
	if len(changed) > 0 {
		e.adopt(c.Defaults)
		e.settleAll(changed, election{})
	}
	return r
}

func (e *editor) checkBrokerChange(c *BrokerChange) Item {
	if item := e.checkBrokerEpoch(c.ID, c.Epoch); item.Code != 0 {
		return item
	}
	switch c.State {
	case BrokerActive:
		if e.next.brokers[c.ID].Stopping {
			return refuse(kerr.InvalidRequest, "broker %d has asked to stop: start it anew", c.ID)
		}
		return Item{}
	case BrokerFenced, BrokerShuttingDown:
		return Item{}
	}
	return refuse(kerr.InvalidRequest, "broker %d cannot be %s: a broker is %s, %s or %s", c.ID,
		quoteShort(string(c.State)), BrokerFenced, BrokerActive, BrokerShuttingDown)
}

// checkBrokerEpoch refuses a broker that is not registered or registered again since.
func (e *editor) checkBrokerEpoch(id int32, epoch int64) Item {
	switch b := e.next.brokers[id]; {
	case b == nil:
		return refuse(kerr.BrokerIDNotRegistered, "broker %d is not registered", id)
	case b.Epoch != epoch:
		return refuse(kerr.StaleBrokerEpoch,
			"broker %d has epoch %d, not %d: it registered again", id, b.Epoch, epoch)
	}
	return Item{}
}

// changeBroker puts a broker into a state and reports whether it was in another. A fenced broker that
// shuts down has nothing to hand over and stays fenced.
func (e *editor) changeBroker(c *BrokerChange) bool {
	b := *e.next.brokers[c.ID]
	was := b
	switch c.State {
	case BrokerFenced:
		b.Fenced, b.ShuttingDown, b.Stopping = true, false, b.Stopping || c.Stopping
	case BrokerActive:
		b.Fenced, b.ShuttingDown, b.ServedEpoch = false, false, 0
	case BrokerShuttingDown:
		b.ShuttingDown = !b.Fenced
	}
	if b.State() != was.State() || b.Stopping != was.Stopping {
		e.setBroker(&b)
	}
	return b.State() != was.State()
}

func (c *SetVoteDue) apply(e *editor) Result {
	b := e.next.brokers[c.ID]
	if b == nil {
		return oneItem(refuse(kerr.BrokerIDNotRegistered, "broker %d is not registered", c.ID))
	}
	if b.VoteDue != c.Due {
		with := *b
		with.VoteDue = c.Due
		e.setBroker(&with)
	}
	return oneItem(Item{})
}

func (c *UnregisterBroker) apply(e *editor) Result {
	b := e.next.brokers[c.ID]
	switch {
	case b == nil:
		return oneItem(refuse(kerr.BrokerIDNotRegistered, "broker %d is not registered", c.ID))
	case !b.Fenced:
		return oneItem(refuse(kerr.InvalidRequest, "broker %d is in service: stop it first", c.ID))
	}
	if topics := e.topicsOn(c.ID); len(topics) > 0 {
		return oneItem(refuse(kerr.InvalidRequest, "broker %d has replicas of %s: move them to other brokers first",
			c.ID, listShort(topics)))
	}
	e.removeBroker(c.ID)
	return oneItem(Item{})
}

// topicsOn lists the topics that have a replica on a broker.
func (e *editor) topicsOn(broker int32) []string {
	var names []string
	for t := range e.allTopics() {
		if slices.ContainsFunc(t.Partitions, func(p Partition) bool { return slices.Contains(p.Replicas, broker) }) {
			names = append(names, t.Name)
		}
	}
	return names
}

// listShort lists some names for a message.
func listShort(names []string) string {
	const most = 5
	if more := len(names) - most; more > 0 {
		return strings.Join(names[:most], ", ") + " and " + Count(more, "more topic")
	}
	return strings.Join(names, ", ")
}

func (c *AllocateProducerIDs) apply(e *editor) Result {
	if item := e.checkBrokerEpoch(c.BrokerID, c.BrokerEpoch); item.Code != 0 {
		return oneItem(item)
	}
	switch {
	case c.Count <= 0:
		return oneItem(refuse(kerr.InvalidRequest, "a block of %d producer ids was asked for", c.Count))
	case e.next.NextProducerID > maxProducerID-int64(c.Count):
		return oneItem(refuse(kerr.UnknownServerError, "all producer ids are used up"))
	}
	first := e.next.NextProducerID
	e.next.NextProducerID += int64(c.Count)
	e.changed = true
	return Result{Items: make([]Item, 1), FirstProducerID: first}
}

// maxProducerID bounds the ids that are handed out; those above belong to named producers.
const maxProducerID = math.MaxInt64 >> 1

func oneItem(item Item) Result { return Result{Items: []Item{item}} }

package metadata

import (
	"math"
	"slices"

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
	epoch := int64(e.next.Index)
	e.setBroker(&Broker{
		ID: c.ID, Epoch: epoch, Incarnation: c.Incarnation,
		Endpoints: slices.Clone(c.Endpoints), Rack: c.Rack,
	})
	if old != nil && c.PreviousEpoch != old.Epoch {
		e.renewLeadership(c.ID)
	}
	return Result{Items: make([]Item, 1), Epoch: epoch}
}

// renewLeadership starts a new leader epoch of every partition that the broker leads.
func (e *editor) renewLeadership(broker int32) {
	leads := func(p Partition) bool { return p.Leader == broker }
	for _, t := range e.topics.sorted {
		if !slices.ContainsFunc(t.Partitions, leads) {
			continue
		}
		e.replaceTopic(t, func(t *Topic) {
			t.Partitions = slices.Clone(t.Partitions)
			for i := range t.Partitions {
				if p := &t.Partitions[i]; leads(*p) {
					p.LeaderEpoch++
					p.PartitionEpoch++
				}
			}
		})
	}
}

func (c *AllocateProducerIDs) apply(e *editor) Result {
	b := e.next.brokers[c.BrokerID]
	switch {
	case b == nil:
		return oneItem(refuse(kerr.BrokerIDNotRegistered, "broker %d is not registered", c.BrokerID))
	case b.Epoch != c.BrokerEpoch:
		return oneItem(refuse(kerr.StaleBrokerEpoch,
			"broker %d has epoch %d, not %d: it registered again", c.BrokerID, b.Epoch, c.BrokerEpoch))
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

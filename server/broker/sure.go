package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/server/metadata"
	"millrace/server/partition"
)

// A leader that was cut off goes on as one until it hears otherwise, and its log ends where it was cut off. To a client
// that comes from the new leader it would say that the client is wrong: its position outside the log, its sequence out
// of order. Such an answer stands, and the client starts anew, or sends to another partition what is stored already.
//
// That the broker is in service by its last heartbeat says little: a reassignment or an election moves a leadership
// away from a broker that lives. So a leader says these things only when a heartbeat that was sent after the request
// came was answered, and the metadata here, which has come as far as the controller's had then, names it the leader
// still, in the same epoch. Else it says that it does not lead, which is asked again. All who wait at one time share a
// heartbeat.

// doubtLimit is how long a request waits for the controller.
const doubtLimit = time.Second

// proof is what a heartbeat that was answered proves.
type proof struct {
	number uint64    // of the heartbeat
	sent   time.Time // when it was
	index  int64     // of the metadata that the controller answered by
	serves bool      // the broker was in service
}

func newProof(number uint64, sent time.Time, resp *kmsg.BrokerHeartbeatResponse) *proof {
	index, _ := ktag.AppliedIndex(&resp.UnknownTags)
	return &proof{number: number, sent: sent, index: index, serves: !resp.IsFenced}
}

// evidence is what one request has found out of whether this broker still serves. The zero value is: nothing yet.
type evidence struct {
	sought bool
	found  bool
}

// errUnsure says that this node may have been replaced as the leader.
var errUnsure = fmt.Errorf("%w for certain: the controller has not confirmed it", partition.ErrNotLeader)

// judgement is an error of a leader about a request.
type judgement struct {
	topic    *metadata.Topic // by which the leader was found
	leader   *partition.Leader
	evidence *evidence
}

// certain tells whether a partition that a request has found here by a view is led here, in that epoch and of as many,
// at a moment after the request came.
func (b *Broker) certain(ctx context.Context, j judgement) bool {
	number := j.leader.Name().Partition
	if b.alone(j.topic, j.leader) {
		return true
	}
	if !j.evidence.sought {
		j.evidence.sought, j.evidence.found = true, b.seekEvidence(ctx)
	}
	now := b.view.Load().image.TopicByID(j.topic.ID)
	return j.evidence.found && now != nil && len(now.Partitions) == len(j.topic.Partitions) &&
		now.Partitions[number].Leader == b.cfg.NodeID &&
		now.Partitions[number].LeaderEpoch == j.topic.Partitions[number].LeaderEpoch
}

// alone tells whether no other replica may lead, so that nothing need be known. A replica that gives up its place has
// asked to be replaced, and so has a broker that stops.
func (b *Broker) alone(topic *metadata.Topic, leader *partition.Leader) bool {
	if len(topic.Partitions[leader.Name().Partition].Replicas) == 1 {
		return true
	}
	return leader.Alone() && !b.life.leaving.Load() && !b.isr.resigning(leader.Name())
}

// seekEvidence has the controller confirm that this broker serves, and waits until the metadata here is as new as that.
func (b *Broker) seekEvidence(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, doubtLimit)
	defer cancel()
	p := b.life.seek(ctx)
	return p != nil && p.serves && b.awaitApplied(ctx, p.index)
}

// awaitApplied waits until the metadata is applied here up to an index.
func (b *Broker) awaitApplied(ctx context.Context, index int64) bool {
	for {
		var changed <-chan struct{}
		if b.cfg.Changed != nil {
			changed = b.cfg.Changed()
		}
		if int64(b.cfg.Applied()) >= index {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// doubted replaces an error of a leader that may mislead the client, unless it is certain to lead.
func (b *Broker) doubted(ctx context.Context, j judgement, err error) error {
	if !partition.Misleads(err) || b.certain(ctx, j) {
		return err
	}
	return errUnsure
}

// likely tells whether a partition is led here by what the last heartbeat proves, which no deliberate move is held
// against: for answers from which a client may not conclude that something is missing.
func (b *Broker) likely(topic *metadata.Topic, leader *partition.Leader) bool {
	p, image := b.life.proof.Load(), b.view.Load().image
	now, number := image.TopicByID(topic.ID), leader.Name().Partition
	if now == nil || now.Partitions[number].Leader != b.cfg.NodeID {
		return false
	}
	heard := p != nil && p.serves && int64(b.cfg.Applied()) >= p.index &&
		time.Since(p.sent) < image.Settings().SessionTimeout
	return b.alone(topic, leader) || heard && !b.life.leaving.Load() && !b.isr.resigning(leader.Name())
}

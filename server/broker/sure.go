package broker

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/server/metadata"
	"millrace/server/partition"
)

// A leader that was cut off goes on as one until it hears otherwise, and its log ends where it was cut off. To a client
// that comes from the new leader it would say that the client is wrong: its position outside the log, its sequence out
// of order. Such an answer stands, and the client starts anew, or sends to another partition what is stored already. So
// a leader says these things only while it is sure that it leads; else it says that it does not, which is asked again.

// proof is what the last heartbeat that was answered proves.
type proof struct {
	sent   time.Time // when the heartbeat was
	index  int64     // of the metadata that the controller answered by
	serves bool      // the broker was in service
}

func newProof(sent time.Time, resp *kmsg.BrokerHeartbeatResponse) *proof {
	index, _ := ktag.AppliedIndex(&resp.UnknownTags)
	return &proof{sent: sent, index: index, serves: !resp.IsFenced}
}

// errUnsure says that this node may have been replaced as the leader.
var errUnsure = fmt.Errorf("%w for certain: the controller has not been heard of for too long", partition.ErrNotLeader)

// sure tells whether a partition is led here also by what the controller knows: it said that this broker serves, the
// metadata here has come as far as the controller's had then, and it has not had the time to fence the broker since. A
// replica that gives up its place has asked to be replaced, and with a full disk it may hear late of that. Where no
// other replica may lead nothing need be known.
func (b *Broker) sure(topic *metadata.Topic, number int32) bool {
	if len(topic.Partitions[number].Replicas) == 1 {
		return true
	}
	p, applied := b.life.proof.Load(), int64(b.cfg.Applied())
	image := b.view.Load().image
	t := image.TopicByID(topic.ID)
	if t == nil || t.Partitions[number].Leader != b.cfg.NodeID ||
		b.isr.resigning(partition.Name{Topic: t.Name, TopicID: t.ID, Partition: number}) {
		return false
	}
	if b.life.leaving.Load() { // it has asked to be replaced, and may never hear that it was
		return false
	}
	alone := len(t.Partitions[number].ISR) == 1 && len(t.Partitions[number].ELR) == 0
	heard := p != nil && p.serves && applied >= p.index && time.Since(p.sent) < image.Settings().SessionTimeout
	return alone || heard
}

// doubted replaces an error of a leader that may mislead the client, unless it is sure to lead.
func (b *Broker) doubted(v *view, topic string, id [16]byte, number int32, err error) error {
	if !partition.Misleads(err) {
		return err
	}
	if t, unknown := v.topic(topic, id); unknown == nil && !b.sure(t, number) {
		return errUnsure
	}
	return err
}

package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/client"
	"millrace/client/statetopic"
)

const (
	maxRecordBytes = 1 << 20 // of key and value of a record that counts
	// compressFrom is the size from which a change is compressed: the settings of many tasks say nearly the same.
	compressFrom = 256 << 10
)

// fold is what the records of a topic add up to. The topic's tail alone calls it.
type fold interface {
	// take takes records in, in the order in which they became valid.
	take(records []statetopic.Record)
	// settle is called once, when all that there was at the start is taken in.
	settle()
}

// feed keeps the fold of a topic, a new one whenever the topic is read from its start.
type feed struct {
	renew   func() fold
	publish func(f fold, at *statetopic.Place) // f is all that there is up to a place
	fold    fold
	settled bool
}

// Renew implements statetopic.Fold.
func (f *feed) Renew() { f.fold, f.settled = f.renew(), false }

// Take implements statetopic.Fold.
func (f *feed) Take(records []statetopic.Record) { f.fold.take(records) }

// Show implements statetopic.Fold.
func (f *feed) Show(at *statetopic.Place) {
	if !f.settled {
		f.settled = true
		f.fold.settle()
	}
	f.publish(f.fold, at)
}

func (s *Store) newTail(topic string, f *feed) *statetopic.Tail {
	return statetopic.New(statetopic.Options{
		Client: s.client, Topic: topic, What: "a topic of connectors", Fold: f, Skip: s.skipper(topic), Logger: s.log,
		Rand: s.opts.Rand, FreshWait: freshWait, RecordBytes: maxRecordBytes, CompressFrom: compressFrom,
	})
}

// checkTopic refuses a topic that would forget what is written.
func (s *Store) checkTopic(ctx context.Context, t *statetopic.Tail) error {
	if t == s.configs {
		topic, err := s.client.Topic(ctx, t.Topic(), client.Refuse)
		if err != nil {
			return nil //nolint:nilerr // the write itself tells
		}
		if n := len(topic.Partitions); n != 1 {
			return &Error{Message: fmt.Sprintf("topic %s has %d partitions, and may have one only: delete it, and it is made "+
				"as it must be, or name another one", t.Topic(), n)}
		}
	}
	if t.Forgets(ctx) {
		text := "topic " + t.Topic() + " would forget what is written: set its cleanup.policy to compact alone"
		return &Error{Message: text}
	}
	return nil
}

// makeTopic makes a topic, and waits for the brokers that it needs. One that is there already is as good.
func (s *Store) makeTopic(ctx context.Context, t *statetopic.Tail) error {
	partitions := int32(1)
	switch t {
	case s.offsets:
		partitions = s.opts.OffsetPartitions
	case s.status:
		partitions = s.opts.StatusPartitions
	}
	if err := t.Make(ctx, partitions, s.opts.Replication); err != nil {
		return &Error{Message: "topic " + t.Topic() + " cannot be made", Cause: err}
	}
	return nil
}

// topicOf is a topic to write to, which is made if it does not exist.
func (s *Store) topicOf(ctx context.Context, t *statetopic.Tail) (*client.Topic, error) {
	for {
		topic, err := s.client.Topic(ctx, t.Topic(), client.Refuse)
		if err == nil {
			return topic, s.checkTopic(ctx, t)
		}
		if !errors.Is(err, kerr.UnknownTopicOrPartition) {
			return nil, &Error{Message: "topic " + t.Topic() + " cannot be found", Cause: err}
		}
		if err := s.makeTopic(ctx, t); err != nil {
			return nil, err
		}
		if err := pause(ctx, retryWait); err != nil { // this node may not know it yet
			return nil, &Error{Message: "topic " + t.Topic() + " cannot be found", Cause: err}
		}
	}
}

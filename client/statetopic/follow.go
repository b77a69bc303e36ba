package statetopic

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/client"
)

const (
	fetchBytes   = 4 << 20
	fetchWait    = 2 * time.Second
	fetchTimeout = 30 * time.Second
)

// follower reads one topic as it is now.
type follower struct {
	tail  *Tail
	topic *client.Topic
	at    Place // as far as it is read
	// until is where the topic ended when it was begun anew; nil once that is read and shown.
	until *Place
	own   []writeID // read before anything was shown
}

// begin finds where to read on.
func (f *follower) begin(ctx context.Context) error {
	t := f.tail
	starts, err := t.lookUp(ctx, f.topic, client.Earliest)
	if err != nil {
		return err
	}
	ends, err := t.lookUp(ctx, f.topic, client.Latest)
	if err != nil {
		return err
	}
	was := t.At()
	f.at = Place{Topic: f.topic.ID, Starts: starts, Offsets: starts}
	end := &Place{Topic: f.topic.ID, Offsets: ends}
	if t.whole && was.Topic == f.topic.ID && slices.Equal(was.Starts, starts) && end.covers(was) {
		f.at.Offsets = was.Offsets
		return nil
	}
	if was.Exists() {
		t.opts.Logger.Warn(t.opts.What+" is another one, or was cut: it is read again from its start", "topic", t.opts.Topic,
			"offsets", was.Offsets, "starts", starts, "ends", ends)
	}
	t.renew(len(starts))
	f.until = end
	f.progress()
	return nil
}

// read is how many partitions are read.
func (t *Tail) read(topic *client.Topic) int {
	if t.opts.FirstOnly {
		return min(1, len(topic.Partitions))
	}
	return len(topic.Partitions)
}

// lookUp asks where the partitions start or end.
func (t *Tail) lookUp(ctx context.Context, topic *client.Topic, which int64) ([]int64, error) {
	asked := make([]client.OffsetLookup, t.read(topic))
	for i := range asked {
		at := client.TopicPartition{Topic: topic.Name, Partition: int32(i)}
		asked[i] = client.OffsetLookup{TopicPartition: at, Timestamp: which}
	}
	found, err := t.opts.Client.LookUpOffsets(ctx, asked, client.ReadUncommitted)
	if err != nil {
		return nil, err
	}
	out := make([]int64, len(found))
	for i := range found {
		if found[i].Err != nil {
			return nil, found[i].Err
		}
		out[i] = found[i].Offset
	}
	return out, nil
}

// step fetches once.
func (f *follower) step(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	c := f.tail.opts.Client
	if now, err := c.Topic(ctx, f.topic.Name, client.Refuse); err != nil {
		return err
	} else if now.ID != f.topic.ID || f.tail.read(now) != len(f.at.Offsets) {
		return errors.New("the topic is another one, or has other partitions")
	}
	asked := make([]client.FetchPartition, len(f.at.Offsets))
	for i, offset := range f.at.Offsets {
		asked[i] = client.FetchPartition{Partition: int32(i), Offset: offset}
	}
	results, err := c.Fetch(ctx, client.FetchRequest{
		Topic: f.topic, Partitions: asked, MaxWait: fetchWait, MinBytes: 1, MaxBytes: fetchBytes,
	})
	if err != nil {
		return err
	}
	next := slices.Clone(f.at.Offsets)
	var records []Record
	var faults []error
	lag := int64(0)
	for i := range results {
		if records, err = f.take(records, i, &results[i], &next[i]); err != nil {
			faults = append(faults, err)
			continue
		}
		lag += max(results[i].HighWatermark-next[i], 0)
	}
	if faults == nil {
		f.tail.hear(lag)
	}
	f.advance(records, next)
	return errors.Join(faults...)
}

// take takes what came of one partition.
func (f *follower) take(out []Record, i int, got *client.FetchResult, next *int64) ([]Record, error) {
	var fault *client.KafkaError
	switch {
	case errors.As(got.Err, &fault) && errors.Is(got.Err, kerr.CorruptMessage) && fault.ResumeOffset > *next:
		f.tail.opts.Skip("a damaged batch", int32(i), *next, got.Err)
		*next = fault.ResumeOffset
		return out, nil
	case got.Err != nil:
		return out, got.Err
	case got.LogStartOffset > f.at.Starts[i]:
		return out, errors.New("the topic was cut")
	case got.HighWatermark < 0: // nothing is said of it
		return out, nil
	}
	return f.tail.sifts[i].take(f.tail, out, int32(i), got, next)
}

// advance folds records and moves on.
func (f *follower) advance(records []Record, next []int64) {
	if len(records) == 0 && slices.Equal(next, f.at.Offsets) {
		return
	}
	f.tail.opts.Fold.Take(records)
	f.at.Offsets = next
	for i := range records {
		if records[i].Own {
			f.own = append(f.own, records[i].write)
		}
	}
	f.progress()
}

// progress shows what is read, once that is all that there was.
func (f *follower) progress() {
	at := f.at
	if f.until != nil {
		if !at.covers(f.until) {
			return
		}
		f.until = nil
	}
	f.tail.show(&at, f.own)
	f.own = nil
}

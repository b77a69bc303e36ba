package native

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/api"
	"millrace/client"
)

// start turns where a read is to begin into a place in each partition it covers: of the one partition, or of all of
// the topic's. In a position, partitions that came after it was written are read from their start.
func start(ctx context.Context, c *client.Client, t *client.Topic, partition int32, q *readQuery) ([]place, error) {
	places := placesOf(t, partition)
	switch o := &q.origin; o.kind {
	case originOffset:
		if len(places) > 1 {
			return nil, badQuery("topic %s has %d partitions: an offset belongs to one of them. Read "+
				"/v1/topics/%s/partitions/{partition}/records, or give the offset of each in from, by commas",
				t.Name, len(places), t.Name)
		}
		places[0].next = o.offset
		return places, nil
	case originPosition:
		missing, err := setPosition(places, t, partition, o.position)
		if err == nil && len(missing) > 0 {
			err = lookUp(ctx, c, t, missing, client.Earliest, q.isolation)
		}
		return places, err
	case originTimestamp:
		return places, lookUpTime(ctx, c, t, places, o.timestamp, q.isolation)
	case originLatest:
		return places, lookUp(ctx, c, t, places, client.Latest, q.isolation)
	default:
		return places, lookUp(ctx, c, t, places, client.Earliest, q.isolation)
	}
}

func placesOf(t *client.Topic, partition int32) []place {
	if partition != allPartitions {
		return []place{{partition: partition, highWatermark: -1, limit: -1}}
	}
	places := make([]place, len(t.Partitions))
	for i := range places {
		places[i] = place{partition: int32(i), highWatermark: -1, limit: -1}
	}
	return places
}

// setPosition puts a position that a client sent into places and returns those that it does not cover.
func setPosition(places []place, t *client.Topic, partition int32, p position) (missing []place, err error) {
	if tag := topicTag(t.ID); p.tag != "" && tag != "" && p.tag != tag {
		return nil, api.Refuse(api.KafkaFault(kerr.UnknownTopicID), "the position %.60s is of a topic %s that is no "+
			"longer there: it was deleted, and this one was created later; drop from and start with offset=earliest",
			p, t.Name).With("topic", t.Name)
	}
	if p.partition != allPartitions {
		if len(places) != 1 || places[0].partition != p.partition {
			return nil, badQuery("the position %.60s is one of partition %d alone", p, p.partition)
		}
	} else if partition != allPartitions && (len(t.Partitions) != 1 || len(p.offsets) != 1) {
		return nil, badQuery("the position %.60s is one of the whole topic; of one partition it is "+
			"written PARTITION:OFFSET", p)
	}
	if len(p.offsets) > len(places) {
		return nil, badQuery("the position %.60s is of %d partitions, topic %s has %d", p, len(p.offsets), t.Name,
			len(places))
	}
	for i, o := range p.offsets {
		places[i].next = o
	}
	return places[len(p.offsets):], nil
}

// lookUp sets each place to the offset that a special timestamp stands for.
func lookUp(ctx context.Context, c *client.Client, t *client.Topic, places []place, special int64,
	level client.Isolation) error {
	results, err := listOffsets(ctx, c, t, places, special, level)
	if err != nil {
		return err
	}
	for i := range results {
		if results[i].Err != nil {
			return results[i].Err
		}
		places[i].next = results[i].Offset
	}
	return nil
}

// lookUpTime sets each place to its first record at or after a time, or to the end if there is none.
func lookUpTime(ctx context.Context, c *client.Client, t *client.Topic, places []place, ms int64,
	level client.Isolation) error {
	results, err := listOffsets(ctx, c, t, places, ms, level)
	if err != nil {
		return err
	}
	var late []int
	for i := range results {
		if isDamage(results[i].Err) {
			return api.Refuse(api.DamagedBatch, "the search for a time met a damaged batch of %s-%d; read by offset there",
				t.Name, places[i].partition).With("topic", t.Name).With("partition", places[i].partition)
		}
		if results[i].Err != nil {
			return results[i].Err
		}
		places[i].next = results[i].Offset
		if results[i].Offset < 0 {
			late = append(late, i)
		}
	}
	if late == nil {
		return nil
	}
	ends := make([]place, len(late))
	for i, j := range late {
		ends[i] = places[j]
	}
	if err := lookUp(ctx, c, t, ends, client.Latest, level); err != nil {
		return err
	}
	for i, j := range late {
		places[j].next = ends[i].next
	}
	return nil
}

func listOffsets(ctx context.Context, c *client.Client, t *client.Topic, places []place, ms int64,
	level client.Isolation) ([]client.OffsetResult, error) {
	queries := make([]client.OffsetQuery, len(places))
	for i := range places {
		queries[i] = client.OffsetQuery{Partition: places[i].partition, Timestamp: ms}
	}
	return c.ListOffsets(ctx, t, queries, level)
}

// boundsOf are those of the log that a fetch was refused by. A foreign broker does not tell them, and is asked.
func boundsOf(ctx context.Context, c *client.Client, t *client.Topic, f *client.FetchResult) (
	start, end int64, err error,
) {
	if f.LogStartOffset < 0 || f.HighWatermark < 0 {
		return c.Bounds(ctx, t, f.Partition)
	}
	return f.LogStartOffset, f.HighWatermark, nil
}

// fetchedOutOfRange adds both bounds of the log to the answer to a fetch that a place is outside of it.
func fetchedOutOfRange(ctx context.Context, c *client.Client, t *client.Topic, at place, f *client.FetchResult) error {
	start, end, err := boundsOf(ctx, c, t, f)
	if err != nil {
		return f.Err
	}
	return outside(t, at, start, end, f.Err)
}

// outOfRange adds both bounds of the log to the answer that a place is outside of it.
func outOfRange(ctx context.Context, c *client.Client, t *client.Topic, at place, cause error) error {
	start, end, err := c.Bounds(ctx, t, at.partition)
	if err != nil {
		return cause
	}
	return outside(t, at, start, end, cause)
}

// outside is the answer that a place is outside the log. Bounds that were asked for later may have moved on to hold it:
// then it is to be read again.
func outside(t *client.Topic, at place, start, end int64, cause error) error {
	if start <= at.next && at.next <= end {
		return api.Refuse(api.KafkaFault(kerr.OffsetNotAvailable), "offset %d of %s-%d was outside the log, and is within "+
			"it now", at.next, t.Name, at.partition).With("offset", at.next)
	}
	e := api.FromError(cause)
	e.Detail = fmt.Sprintf("offset %d of %s-%d is outside the log, which holds offsets from %d up to, but not "+
		"including, %d", at.next, t.Name, at.partition, start, end)
	return e.With("offset", at.next).With("log_start_offset", start).With("high_watermark", end)
}

// unreadable says that a stored batch cannot be read, and where to read on. next gives the reader's position once its
// place in the partition is set to an offset.
func unreadable(t *client.Topic, at place, cause error, next func(offset int64) position) error {
	why, resume := "its checksum or its length does not fit its bytes", int64(-1)
	var (
		kafka *client.KafkaError
		batch *scanError
	)
	switch {
	case errors.As(cause, &kafka):
		resume = kafka.ResumeOffset
	case errors.As(cause, &batch):
		why, resume = batch.err.Error(), batch.next
	default:
		why = cause.Error()
	}
	e := api.Refuse(api.DamagedBatch, "the batch of %s-%d at offset %d is damaged: %s", t.Name, at.partition, at.next, why)
	e.Cause = cause
	e.With("topic", t.Name).With("partition", at.partition).With("offset", at.next)
	if resume <= at.next {
		e.Detail += "; where it ends is not known"
		return e
	}
	e.Detail += fmt.Sprintf("; the log goes on at offset %d", resume)
	return e.With("resume_offset", resume).With("next", next(resume).String())
}

// isDamage says whether the cluster met a damaged batch.
func isDamage(err error) bool { return errors.Is(err, kerr.CorruptMessage) }

package restv2

import (
	"context"
	"errors"
	"math"
	"net/url"
	"regexp"
	"strconv"
	"time"

	"millrace/api"
	"millrace/api/rawjson"
	"millrace/client"
	"millrace/consumer"
)

// partitionName names a partition in a body.
type partitionName struct {
	Topic     *string `json:"topic"`
	Partition *int32  `json:"partition"`
}

func parsePartition(topic *string, partition *int32) (client.TopicPartition, error) {
	switch {
	case topic == nil || *topic == "":
		return client.TopicPartition{}, unprocessable("topic may not be empty.")
	case partition == nil || *partition < 0:
		return client.TopicPartition{}, unprocessable("partition must be 0 or more.")
	}
	return client.TopicPartition{Topic: *topic, Partition: *partition}, nil
}

// partitionsRequest is a body that lists partitions.
type partitionsRequest struct {
	Partitions []partitionName `json:"partitions"`
}

// partitions reads a body that lists partitions.
func (c *call) partitions() ([]client.TopicPartition, error) {
	var q partitionsRequest
	if err := c.decode(&q); err != nil {
		return nil, err
	}
	if q.Partitions == nil {
		return nil, unprocessable("partitions may not be null.")
	}
	out := make([]client.TopicPartition, len(q.Partitions))
	for i := range q.Partitions {
		var err error
		if out[i], err = parsePartition(q.Partitions[i].Topic, q.Partitions[i].Partition); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// decode reads the body, which must be there.
func (c *call) decode(v any) error {
	if c.body == nil {
		return unprocessable("Request body is empty. Data is required.")
	}
	return api.Decode(c.body, v)
}

// subscribe gives the instance a subscription.
func (c *call) subscribe() error {
	var q struct {
		Topics  []string `json:"topics"`
		Pattern *string  `json:"topic_pattern"`
	}
	if err := c.decode(&q); err != nil {
		return err
	}
	ctx := c.r.Context()
	var err error
	switch {
	case len(q.Topics) > 0:
		err = c.member.Subscribe(ctx, q.Topics, "")
	case q.Topics != nil:
		err = c.member.Unsubscribe(ctx)
	case q.Pattern == nil || *q.Pattern == "":
		return unprocessable("Give topics or a topic_pattern to subscribe to.")
	default:
		if _, err := wholeName(*q.Pattern); err != nil {
			return unprocessable("Invalid topic_pattern: %v.", err)
		}
		err = c.member.Subscribe(ctx, nil, *q.Pattern)
	}
	if err != nil {
		return err
	}
	return c.done()
}

// wholeName is an expression that matches the names that a pattern matches as a whole.
func wholeName(pattern string) (*regexp.Regexp, error) {
	return regexp.Compile(`\A(?:` + pattern + `)\z`)
}

// subscription tells the topics that the instance is subscribed to.
func (c *call) subscription() error {
	topics, pattern := c.member.Subscription()
	if pattern != "" {
		match, err := wholeName(pattern)
		if err != nil {
			return err
		}
		all, err := c.client.Topics(c.r.Context())
		if err != nil {
			return err
		}
		for _, t := range all {
			if !t.Internal && match.MatchString(t.Name) {
				topics = append(topics, t.Name)
			}
		}
	}
	b := []byte(`{"topics":[`)
	for i, t := range topics {
		if i > 0 {
			b = append(b, ',')
		}
		b = rawjson.AppendString(b, t)
	}
	c.answer(append(b, `]}`...))
	return nil
}

// unsubscribe ends the subscription, or gives up the assigned partitions.
func (c *call) unsubscribe() error {
	if err := c.member.Unsubscribe(c.r.Context()); err != nil {
		return err
	}
	return c.done()
}

// assign gives the instance partitions.
func (c *call) assign() error {
	list, err := c.partitions()
	if err == nil {
		err = c.member.Assign(c.r.Context(), list)
	}
	if err != nil {
		return err
	}
	return c.done()
}

// assigned are the partitions of the instance. The first ones of a subscription are waited for.
func (c *call) assigned() ([]client.TopicPartition, error) {
	ctx, cancel := context.WithTimeout(c.r.Context(), joinWait)
	defer cancel()
	list, err := c.member.Assignment(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, nil
	}
	return list, err
}

// assignments tells the partitions of the instance.
func (c *call) assignments() error {
	list, err := c.assigned()
	if err != nil {
		return err
	}
	b := []byte(`{"partitions":[`)
	for i := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendPartition(b, &list[i]), '}')
	}
	c.answer(append(b, `]}`...))
	return nil
}

// appendPartition appends an object with a partition's members, not yet closed.
func appendPartition(b []byte, tp *client.TopicPartition) []byte {
	b = rawjson.AppendString(append(b, `{"topic":`...), tp.Topic)
	return strconv.AppendInt(append(b, `,"partition":`...), int64(tp.Partition), 10)
}

// offsetsRequest is a body of offsets, by which an instance seeks or commits.
type offsetsRequest struct {
	Offsets    []offsetOf `json:"offsets"`
	Timestamps []timeOf   `json:"timestamps"`
}

type offsetOf struct {
	Topic     *string `json:"topic"`
	Partition *int32  `json:"partition"`
	Offset    *int64  `json:"offset"`
	Metadata  *string `json:"metadata"`
}

type timeOf struct {
	Topic     *string `json:"topic"`
	Partition *int32  `json:"partition"`
	Timestamp *string `json:"timestamp"`
}

// parseOffsets reads offsets, the last of each partition; add is added to each.
func parseOffsets(list []offsetOf, add int64) ([]consumer.Offset, error) {
	var out []consumer.Offset
	at := make(map[client.TopicPartition]int)
	for i := range list {
		tp, err := parsePartition(list[i].Topic, list[i].Partition)
		switch {
		case err != nil:
			return nil, err
		case list[i].Offset == nil || *list[i].Offset < 0 || *list[i].Offset > math.MaxInt64-add:
			return nil, unprocessable("offset must be a 64-bit number, 0 or more.")
		}
		o := consumer.Offset{TopicPartition: tp, Offset: *list[i].Offset + add}
		if list[i].Metadata != nil {
			o.Metadata = *list[i].Metadata
		}
		if j, twice := at[tp]; twice {
			out[j] = o
			continue
		}
		at[tp] = len(out)
		out = append(out, o)
	}
	return out, nil
}

// seek moves positions to offsets and times.
func (c *call) seek() error {
	var q offsetsRequest
	if err := c.decode(&q); err != nil {
		return err
	}
	if q.Offsets == nil && q.Timestamps == nil {
		return unprocessable("Give offsets, or timestamps, to seek to.")
	}
	offsets, err := parseOffsets(q.Offsets, 0)
	if err != nil {
		return err
	}
	times := make(map[int64][]client.TopicPartition)
	for i := range q.Timestamps {
		tp, ms, err := q.Timestamps[i].parse()
		if err != nil {
			return err
		}
		times[ms] = append(times[ms], tp)
	}
	if err := c.has(offsets, times); err != nil {
		return err
	}
	if len(offsets) > 0 {
		if err := c.member.Seek(c.r.Context(), offsets...); err != nil {
			return err
		}
	}
	for ms, list := range times {
		if err := c.member.SeekTo(c.r.Context(), ms, list...); err != nil {
			return err
		}
	}
	return c.done()
}

// has refuses a seek of which a partition is not assigned, before any part of it is done.
func (c *call) has(offsets []consumer.Offset, times map[int64][]client.TopicPartition) error {
	list, err := c.assigned()
	if err != nil {
		return err
	}
	own := make(map[client.TopicPartition]bool)
	for _, tp := range list {
		own[tp] = true
	}
	for i := range offsets {
		if !own[offsets[i].TopicPartition] {
			return consumer.ErrNotAssigned
		}
	}
	for _, list := range times {
		for _, tp := range list {
			if !own[tp] {
				return consumer.ErrNotAssigned
			}
		}
	}
	return nil
}

// parse reads a time in ISO 8601, to milliseconds.
func (t *timeOf) parse() (client.TopicPartition, int64, error) {
	tp, err := parsePartition(t.Topic, t.Partition)
	if err != nil {
		return tp, 0, err
	}
	if t.Timestamp == nil {
		return tp, 0, unprocessable("timestamp may not be null.")
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04Z07:00"} {
		if at, err := time.Parse(layout, *t.Timestamp); err == nil {
			// The first record at or after a fraction of a millisecond is at the next one.
			return tp, max(at.Add(time.Millisecond-time.Nanosecond).UnixMilli(), 0), nil
		}
	}
	return tp, 0, badRequest("timestamp=%s is not a time such as 2026-01-02T03:04:05Z.",
		rawjson.Excerpt([]byte(*t.Timestamp)))
}

func (c *call) seekToBeginning() error { return c.seekTo(client.Earliest) }

func (c *call) seekToEnd() error { return c.seekTo(client.Latest) }

// seekTo moves positions to one end of the log: of the partitions in the body, or of all if that lists none.
func (c *call) seekTo(end int64) error {
	list, err := c.partitions()
	if err != nil {
		return err
	}
	all, err := c.assigned() // also waits for the partitions that are to be moved
	if err != nil {
		return err
	}
	if len(list) == 0 {
		list = all
	}
	if len(list) > 0 {
		if err := c.member.SeekTo(c.r.Context(), end, list...); err != nil {
			return err
		}
	}
	return c.done()
}

// commit commits the offsets behind the records in the body, or behind all that the client was given.
func (c *call) commit() error {
	var offsets []consumer.Offset
	if c.body != nil {
		var q struct {
			Offsets []offsetOf `json:"offsets"`
		}
		if err := c.decode(&q); err != nil {
			return err
		}
		if q.Offsets == nil {
			return unprocessable("offsets may not be null.")
		}
		var err error
		if offsets, err = parseOffsets(q.Offsets, 1); err != nil {
			return err
		}
	}
	if c.body == nil || len(offsets) > 0 {
		var errs []error
		var err error
		if c.body == nil {
			offsets, errs, err = c.member.CommitDelivered(c.r.Context(), nil)
		} else {
			errs, err = c.member.Commit(c.r.Context(), offsets)
		}
		for i := 0; err == nil && i < len(errs); i++ {
			switch tp := offsets[i].TopicPartition; {
			case errors.Is(errs[i], consumer.ErrNotAssigned):
				return api.RefuseCompat(codeFinal, "Kafka error: %v is not assigned to this instance, or not any more. Its "+
					"offset was not committed; those of assigned partitions were.", tp)
			case errs[i] != nil:
				return errs[i]
			}
		}
		if err != nil {
			return err
		}
	}
	c.answer([]byte(`[]`))
	return nil
}

// committed tells what the group has committed: for the partitions in the body, in the query, or else of the instance.
func (c *call) committed() error {
	var list []client.TopicPartition
	var err error
	switch {
	case c.body != nil:
		list, err = c.partitions()
	case c.r.URL.RawQuery != "":
		list, err = queryPartitions(c.r.URL.RawQuery)
	default:
		list, err = c.assigned()
	}
	if err != nil {
		return err
	}
	found, err := c.member.Committed(c.r.Context(), list)
	if err != nil {
		return err
	}
	b := []byte(`{"offsets":[`)
	first := len(b)
	for i := range found {
		o := &found[i]
		if o.Offset < 0 {
			continue
		}
		if len(b) > first {
			b = append(b, ',')
		}
		b = appendPartition(b, &o.TopicPartition)
		b = strconv.AppendInt(append(b, `,"offset":`...), o.Offset, 10)
		b = rawjson.AppendString(append(b, `,"metadata":`...), o.Metadata)
		b = append(b, '}')
	}
	c.answer(append(b, `]}`...))
	return nil
}

// queryPartitions reads pairs of topic and partition.
func queryPartitions(query string) ([]client.TopicPartition, error) {
	q, err := url.ParseQuery(query)
	if err != nil {
		return nil, badRequest("The query cannot be read: %v.", err)
	}
	topics, partitions := q["topic"], q["partition"]
	if len(topics) != len(partitions) || len(topics) == 0 {
		return nil, badRequest("The query names partitions by pairs: topic=orders&partition=0.")
	}
	out := make([]client.TopicPartition, len(topics))
	for i := range topics {
		n, err := strconv.ParseInt(partitions[i], 10, 32)
		if err != nil {
			return nil, badRequest("partition=%s is not a number.", rawjson.Excerpt([]byte(partitions[i])))
		}
		partition := int32(n)
		if out[i], err = parsePartition(&topics[i], &partition); err != nil {
			return nil, err
		}
	}
	return out, nil
}

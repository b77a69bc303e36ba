package task

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"millrace/client"
	"millrace/connect/convert"
	"millrace/connect/data"
	"millrace/connect/plugin"
	"millrace/record"
)

// headerPrefix is that of the headers that say why a record is in the dead-letter topic.
const headerPrefix = "__connect.errors."

// jsonClass is the converter by which records of a source are shown there.
const jsonClass = "org.apache.kafka.connect.json.JsonConverter"

// deadLetters writes records that cannot go on into a topic of their own. It is not safe for concurrent use.
type deadLetters struct {
	run     *run
	topic   string // "": nowhere
	json    plugin.Converter
	pending []record.Record // that a sink's task has still to write
	bytes   int             // of pending, about
}

func newDeadLetters(t *run) *deadLetters { return &deadLetters{run: t, topic: t.set.deadLetters} }

// on says whether there is a topic for them.
func (d *deadLetters) on() bool { return d.topic != "" }

// spec is the topic as it is made.
func (d *deadLetters) spec() client.NewTopic {
	return client.NewTopic{Name: d.topic, Partitions: 1, ReplicationFactor: d.run.set.deadFactor}
}

// group is the rule by which the topic is made among those of a source.
func (d *deadLetters) group() topicGroup {
	return topicGroup{
		name: "dead letters", include: patterns(&reader{props: map[string]string{"": d.topic}}, ""),
		partitions: 1, replication: d.run.set.deadFactor,
	}
}

// headers are those of a record that cannot go on, behind its own.
func (d *deadLetters) headers(own []record.Header, topic string, at []record.Header, f *fault) []record.Header {
	out := slices.Clone(own)
	if !d.run.set.deadContext {
		return out
	}
	add := func(name, value string) {
		out = append(out, record.Header{Key: headerPrefix + name, Value: []byte(value)})
	}
	add("topic", topic)
	out = append(out, at...)
	add("connector.name", d.run.spec.Connector)
	add("task.id", strconv.Itoa(d.run.spec.ID))
	add("stage", string(f.stage))
	add("class.name", f.class)
	add("exception.class.name", f.exception())
	add("exception.message", f.err.Error())
	add("exception.stacktrace", f.exception()+": "+f.err.Error())
	return out
}

// ofSink is the dead letter of a record that was read: its own bytes.
func (d *deadLetters) ofSink(r *plugin.SinkRecord, f *fault) record.Record {
	at := []record.Header{
		{Key: headerPrefix + "partition", Value: strconv.AppendInt(nil, int64(r.Origin.Partition), 10)},
		{Key: headerPrefix + "offset", Value: strconv.AppendInt(nil, r.Origin.Offset, 10)},
	}
	return record.Record{
		Key: bytes.Clone(r.Raw.Key), Value: bytes.Clone(r.Raw.Value), Timestamp: r.Raw.Timestamp,
		Headers: d.headers(r.Raw.Headers, r.Origin.Topic, at, f),
	}
}

// ofSource is the dead letter of a record of a source: what it holds as JSON, as far as there is JSON for it, and where
// in the source it is from.
func (d *deadLetters) ofSource(ctx context.Context, r *plugin.SourceRecord, f *fault) record.Record {
	var at []record.Header
	add := func(name string, of map[string]any) {
		if text, err := json.Marshal(of); err == nil && of != nil {
			at = append(at, record.Header{Key: headerPrefix + name, Value: text})
		}
	}
	add("source.partition", r.Source.Partition)
	add("source.offset", r.Source.Offset)
	timestamp := r.Timestamp
	if timestamp == data.NoTimestamp {
		timestamp = d.run.opts.Now().UnixMilli()
	}
	return record.Record{
		Key: d.show(ctx, r.Topic, r.KeySchema, r.Key), Value: d.show(ctx, r.Topic, r.ValueSchema, r.Value),
		Timestamp: timestamp, Headers: d.headers(nil, r.Topic, at, f),
	}
}

// show is a value as JSON, nil where that is not possible.
func (d *deadLetters) show(ctx context.Context, topic string, s *data.Schema, v any) []byte {
	if d.json == nil {
		c, err := convert.New(jsonClass, false, map[string]string{"schemas.enable": "false"}, convert.Deps{})
		if err != nil {
			return nil
		}
		d.json = c
	}
	b, ok, err := d.json.Encode(ctx, nil, topic, s, v)
	if err != nil || !ok {
		return nil
	}
	return b
}

// add has a letter be written by the next flush.
func (d *deadLetters) add(r record.Record) {
	d.pending = append(d.pending, r)
	d.bytes += record.RecordSize(&r)
}

// full says that what is to be written is so much that it should be.
func (d *deadLetters) full() bool { return d.bytes >= partBytes }

// flush writes what was added, and returns when all replicas have it. What was not answered is written again.
func (d *deadLetters) flush(ctx context.Context) error {
	pause := backoff{first: firstPause, longest: longestPause}
	for len(d.pending) > 0 {
		err := d.send(ctx)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return err
		case !transient(err):
			d.run.metrics.failures.unlettered.Add(float64(len(d.pending)))
			return fmt.Errorf("dead-letter topic %s: %w", d.topic, err)
		default:
			d.run.log.Debug("dead letters are sent again", "topic", d.topic, "err", err)
			if err := sleep(ctx, pause.delay()); err != nil {
				return err
			}
		}
	}
	d.bytes = 0
	return nil
}

// send sends what is pending once, and keeps what is to be sent again.
func (d *deadLetters) send(ctx context.Context) error {
	c := d.run.opts.Client
	topic, err := c.Topic(ctx, d.topic, client.Refuse)
	if isMissing(err) {
		topic, err = createTopic(ctx, c, d.spec(), d.run.log)
	}
	if err != nil {
		return err
	}
	s := c.NewSender(topic, nil, d.bytes, client.SendOptions{Acks: client.AcksAll, Timeout: produceTimeout})
	defer s.Release()
	for i := range d.pending {
		if err := s.Add(d.pending[i], client.AnyPartition); err != nil {
			return err
		}
	}
	d.run.metrics.failures.letters.Add(float64(len(d.pending)))
	if err := s.Send(ctx); err != nil {
		return err
	}
	var left []record.Record
	var why error
	for i := range d.pending {
		err := s.Record(i).Err
		if err == nil {
			continue
		}
		if left = append(left, d.pending[i]); why == nil || !transient(err) {
			why = err
		}
	}
	d.pending = left
	return why
}

// errUnwritable says of a dead letter that it cannot be written either.
var errUnwritable = errors.New("the record cannot be written to the dead-letter topic either")

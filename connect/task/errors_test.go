package task_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/client"
	"millrace/connect/plugin"
	"millrace/connect/task"
	"millrace/record"
)

const (
	prefix      = "__connect.errors."
	filterClass = "org.apache.kafka.connect.transforms.Filter"
	castClass   = "org.apache.kafka.connect.transforms.Cast$Value"
	tombstone   = "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone"
	jsonPlain   = "value.converter.schemas.enable"
)

// TestDeadLettersOfConverters has records that are no JSON.
func TestDeadLettersOfConverters(t *testing.T) {
	l := newLab(t)
	l.topic("in", 1)
	bad := record.Record{
		Key: []byte("k\x00"), Value: []byte("{no json\xff"), Timestamp: 123_456,
		Headers: []record.Header{{Key: "h", Value: []byte{1, 2}}, {Key: "nothing"}},
	}
	l.send("in", 0, record.Record{Value: []byte(`"a"`)}, bad, record.Record{Value: []byte(`"b"`)})
	o := newOutside()
	j := l.start(l.runner(), sinkSpec(func() plugin.SinkTask { return &ledger{o: o} }, "topics", "in",
		"value.converter", jsonClass, jsonPlain, "false", "errors.tolerance", "all",
		"header.converter", bytesClass, "errors.deadletterqueue.topic.name", "dead"))
	until(t, "the good ones are written", func() bool { return o.count() == 2 })
	until(t, "all is committed", func() bool { return l.committed("connect-c", "in", 0) == 3 })
	require.NoError(t, j.stop())
	require.Equal(t, []string{"a", "b"}, o.all())
	dead := l.read("dead")
	require.Len(t, dead, 1)
	require.Equal(t, bad.Key, dead[0].Key)
	require.Equal(t, bad.Value, dead[0].Value)
	require.Equal(t, bad.Timestamp, dead[0].Timestamp)
	require.Equal(t, bad.Headers, dead[0].Headers[:2])
	var names []string
	for _, h := range dead[0].Headers[2:] {
		names = append(names, strings.TrimPrefix(h.Key, prefix))
	}
	require.Equal(t, []string{"topic", "partition", "offset", "connector.name", "task.id", "stage", "class.name",
		"exception.class.name", "exception.message", "exception.stacktrace"}, names)
	h := headersOf(&dead[0])
	require.Equal(t, "in", h[prefix+"topic"])
	require.Equal(t, "0", h[prefix+"partition"])
	require.Equal(t, "1", h[prefix+"offset"])
	require.Equal(t, "c", h[prefix+"connector.name"])
	require.Equal(t, "0", h[prefix+"task.id"])
	require.Equal(t, "VALUE_CONVERTER", h[prefix+"stage"])
	require.Equal(t, jsonClass, h[prefix+"class.name"])
	require.Equal(t, "org.apache.kafka.connect.errors.DataException", h[prefix+"exception.class.name"])
	require.NotEmpty(t, h[prefix+"exception.message"])
	topic, err := l.client.Topic(t.Context(), "dead", client.Refuse)
	require.NoError(t, err)
	require.Len(t, topic.Partitions, 1)
}

func TestNoToleranceFailsTask(t *testing.T) {
	l := newLab(t)
	l.topic("in", 1)
	l.produce("in", 0, `"a"`, "no json", `"b"`)
	o := newOutside()
	make := func() plugin.SinkTask { return &ledger{o: o} }
	props := []string{"topics", "in", "value.converter", jsonClass, jsonPlain, "false"}
	err := l.start(l.runner(), sinkSpec(make, props...)).wait()
	require.ErrorContains(t, err, "in-0 at offset 1: VALUE_CONVERTER, "+jsonClass)
	require.Empty(t, l.read("dead"))

	props = append(props, "errors.deadletterqueue.topic.name", "dead", "errors.deadletterqueue.context.headers.enable",
		"false")
	err = l.start(l.runner(), sinkSpec(make, props...)).wait()
	require.ErrorContains(t, err, "in-0 at offset 1: VALUE_CONVERTER")
	dead := l.read("dead")
	require.Equal(t, []string{"no json"}, values(dead), "it is told before the task fails")
	require.Empty(t, dead[0].Headers)
	require.LessOrEqual(t, l.committed("connect-c", "in", 0), int64(1))
}

func TestSinkReports(t *testing.T) {
	l := newLab(t)
	l.topic("in", 1)
	l.produce("in", 0, "a", "poison", "b")
	poison := func(r *plugin.SinkRecord) error {
		if r.Value == "poison" {
			return errors.New("value too long (SQLSTATE 22001)")
		}
		return nil
	}
	o := newOutside()
	make := func() plugin.SinkTask { return &ledger{o: o, reject: poison} }
	err := l.start(l.runner(), sinkSpec(make, "topics", "in")).wait()
	require.ErrorContains(t, err, "22001", "there is nobody to report to")

	dead := []string{"topics", "in", "errors.deadletterqueue.topic.name", "dead"}
	err = l.start(l.runner(), sinkSpec(make, dead...)).wait()
	require.ErrorContains(t, err, "in-0 at offset 1: TASK_PUT")
	require.Equal(t, []string{"poison"}, values(l.read("dead")))

	j := l.start(l.runner(), sinkSpec(make, append(dead, "errors.tolerance", "all")...))
	until(t, "the others are written", func() bool { return o.count() == 2 })
	require.NoError(t, j.stop())
	letters := l.read("dead")
	require.Equal(t, []string{"poison", "poison"}, values(letters))
	require.Equal(t, "TASK_PUT", headersOf(&letters[1])[prefix+"stage"])
	require.Equal(t, "value too long (SQLSTATE 22001)", headersOf(&letters[1])[prefix+"exception.message"])
	require.Equal(t, int64(3), l.committed("connect-c", "in", 0))

	l.topic("logged", 1)
	l.produce("logged", 0, "poison", "c")
	o = newOutside()
	j = l.start(l.runner(), sinkSpec(make, "topics", "logged", "errors.log.enable", "true", "errors.tolerance", "all"))
	until(t, "the other one is written", func() bool { return o.count() == 1 })
	require.NoError(t, j.stop())
}

func TestTransformsOfSinks(t *testing.T) {
	l := newLab(t)
	l.topic("in", 1)
	l.send("in", 0, record.Record{Value: []byte("1")}, record.Record{Key: []byte("x")}, record.Record{Value: []byte("2")},
		record.Record{Value: []byte("x")}, record.Record{Key: []byte("y")})
	o := newOutside()
	j := l.start(l.runner(), sinkSpec(func() plugin.SinkTask { return &ledger{o: o} }, "topics", "in",
		"transforms", "drop, number", "transforms.drop.type", filterClass, "transforms.drop.predicate", "gone",
		"transforms.number.type", castClass, "transforms.number.spec", "int32",
		"predicates", "gone", "predicates.gone.type", tombstone, "errors.tolerance", "all"))
	until(t, "all is committed, also what was dropped last", func() bool {
		return l.committed("connect-c", "in", 0) == 5
	})
	require.NoError(t, j.stop())
	require.Equal(t, []string{"1", "2"}, o.all())

	o = newOutside()
	j = l.start(l.runner(), sinkSpec(func() plugin.SinkTask { return &ledger{o: o} }, "topics", "in",
		"consumer.override.group.id", "other", "transforms", "drop", "transforms.drop.type", filterClass,
		"transforms.drop.predicate", "gone", "transforms.drop.negate", "true",
		"predicates", "gone", "predicates.gone.type", tombstone))
	until(t, "the others are written", func() bool { return o.count() == 2 })
	require.NoError(t, j.stop())
	require.Equal(t, []string{"<nil>", "<nil>"}, o.all())
}

// TestDroppedRecordsMoveOffsets has a source whose records all go, or all but the first.
func TestDroppedRecordsMoveOffsets(t *testing.T) {
	l := newLab(t)
	c := func() plugin.SourceTask {
		return &counter{limit: 100, most: 7, change: func(r *plugin.SourceRecord) {
			if r.Value != "0" {
				r.Value = nil
			}
		}}
	}
	j := l.start(l.runner(), sourceSpec(c, "transforms", "drop", "transforms.drop.type", filterClass,
		"transforms.drop.predicate", "gone", "predicates", "gone", "predicates.gone.type", tombstone))
	until(t, "all offsets are stored", func() bool { return l.next() == 100 })
	require.NoError(t, j.stop())
	require.Equal(t, []string{"0"}, values(l.read("numbers")))
}

// TestRecordsOfSourcesThatCannotGoOn has one that is too large, one for a partition that there is not, and one for a
// topic that cannot be.
func TestRecordsOfSourcesThatCannotGoOn(t *testing.T) {
	l := newLab(t)
	l.topic("numbers", 1, "max.message.bytes", "2000")
	spoil := func(r *plugin.SourceRecord) {
		switch r.Value {
		case "5":
			r.Value = strings.Repeat("x", 3000)
		case "7":
			r.Partition = 4
		case "9":
			r.Topic = "not a topic"
		}
	}
	c := func() plugin.SourceTask { return &counter{limit: 12, most: 12, change: spoil} }
	props := []string{"value.converter", stringClass, "errors.tolerance", "none"}
	err := l.start(l.runner(), sourceSpec(c, props...)).wait()
	require.ErrorContains(t, err, "KAFKA_PRODUCE, test.Connector: topic numbers: record: batch is too large: "+
		"the record takes a batch of 3")
	require.ErrorContains(t, err, "max.message.bytes is 2000")
	require.ErrorContains(t, err, "millrace topic alter numbers --config max.message.bytes=BYTES")
	require.Empty(t, l.read("numbers"), "all of a poll, or nothing")
	require.Zero(t, l.next())

	props = append(props[:3], "all", "errors.deadletterqueue.topic.name", "dead")
	j := l.start(l.runner(), sourceSpec(c, props...))
	until(t, "all are stored", func() bool { return l.next() == 12 })
	require.NoError(t, j.stop())
	require.Equal(t, []string{"0", "1", "2", "3", "4", "6", "8", "10", "11"}, values(l.read("numbers")))
	dead := l.read("dead")
	require.Len(t, dead, 3)
	for i, want := range []string{"max.message.bytes is 2000", "partition 0 only", "only letters, digits"} {
		h := headersOf(&dead[i])
		require.Contains(t, h[prefix+"exception.message"], want)
		require.Equal(t, "KAFKA_PRODUCE", h[prefix+"stage"])
		require.Equal(t, `{"source":"numbers"}`, h[prefix+"source.partition"])
	}
	require.Equal(t, `{"next":6}`, headersOf(&dead[0])[prefix+"source.offset"])
	require.Equal(t, `"7"`, string(dead[1].Value), "the value as JSON")
}

// TestDeadLettersOfSourceThatFails are written although the transaction is not.
func TestDeadLettersOfSourceThatFails(t *testing.T) {
	l := newLab(t)
	c := func() plugin.SourceTask {
		return &counter{limit: 5, most: 5, change: func(r *plugin.SourceRecord) {
			if r.Value == "3" {
				r.Partition = 9
			}
		}}
	}
	l.topic("numbers", 1)
	err := l.start(l.runner(), sourceSpec(c, "errors.deadletterqueue.topic.name", "dead")).wait()
	require.ErrorContains(t, err, "KAFKA_PRODUCE")
	require.Equal(t, []string{`"3"`}, values(l.read("dead")))
	require.Empty(t, l.read("numbers"))
}

// TestLimitsThatChange has the topic take less while a source writes.
func TestLimitsThatChange(t *testing.T) {
	l := newLab(t)
	l.topic("numbers", 1)
	pad := strings.Repeat("x", 1000)
	c := func() plugin.SourceTask {
		return &counter{limit: 4000, most: 200, change: func(r *plugin.SourceRecord) { r.Value = r.Value.(string) + pad }}
	}
	j := l.start(l.runner(), sourceSpec(c))
	until(t, "it writes", func() bool { return l.next() > 400 })
	value := "5000"
	errs, err := l.client.AlterConfigs(t.Context(), []client.ResourceChanges{{
		Resource: client.Resource{Type: client.TopicResource, Name: "numbers"},
		Changes:  []client.ConfigChange{{Name: "max.message.bytes", Op: client.SetConfig, Value: &value}},
	}}, client.Apply)
	require.NoError(t, err)
	for _, err := range errs {
		require.NoError(t, err)
	}
	until(t, "all are stored", func() bool { return l.next() == 4000 })
	require.NoError(t, j.stop())
	require.Len(t, l.read("numbers"), 4000)
}

// TestSourceSaysWhatCanBeNoRecord has a source give what it could not make a record of.
func TestSourceSaysWhatCanBeNoRecord(t *testing.T) {
	l := newLab(t)
	l.topic("numbers", 1)
	c := func() plugin.SourceTask {
		return &counter{limit: 5, most: 5, change: func(r *plugin.SourceRecord) {
			if r.Value == "2" {
				r.Fault, r.Value = errors.New("table t, column n: it is none"), map[string]any{"n": "NaN"}
			}
		}}
	}
	err := l.start(l.runner(), sourceSpec(c)).wait()
	require.ErrorContains(t, err, "table t, column n")
	require.Empty(t, l.read("numbers"))
	j := l.start(l.runner(), sourceSpec(c, "errors.tolerance", "all", "errors.deadletterqueue.topic.name", "dead",
		"errors.deadletterqueue.context.headers.enable", "true"))
	until(t, "all are stored", func() bool { return l.next() == 5 })
	require.NoError(t, j.stop())
	require.Len(t, l.read("numbers"), 4)
	dead := l.read("dead")
	require.Len(t, dead, 1)
	require.JSONEq(t, `{"n":"NaN"}`, string(dead[0].Value))
	h := headersOf(&dead[0])
	require.Equal(t, "table t, column n: it is none", h[prefix+"exception.message"])
	require.Equal(t, "numbers", h[prefix+"topic"])
}

// TestSourceNamesTheTopicOfARecord has records fail at all stages: the task names their topic, by which people find the
// table, as the source gave it.
func TestSourceNamesTheTopicOfARecord(t *testing.T) {
	l := newLab(t)
	c := func() plugin.SourceTask {
		return &counter{limit: 5, most: 5, topic: "shop.public.orders", change: func(r *plugin.SourceRecord) {
			if r.Value == "2" {
				r.Value = "two"
			}
		}}
	}
	cast := "org.apache.kafka.connect.transforms.Cast$Value"
	for want, props := range map[string][]string{
		"TRANSFORMATION, " + cast + ": ": {
			"transforms", "r,c", "transforms.r.type", "org.apache.kafka.connect.transforms.RegexRouter",
			"transforms.r.regex", ".*", "transforms.r.replacement", "all", "transforms.c.type", cast,
			"transforms.c.spec", "int32",
		},
		"VALUE_CONVERTER, " + bytesClass + ": ": {"value.converter", bytesClass},
		"KAFKA_PRODUCE, test.Connector: ":       {"topic.creation.default.max.message.bytes", "60"},
	} {
		err := l.start(l.runner(), sourceSpec(c, append(props, "topic.creation.default.partitions", "1",
			"topic.creation.default.replication.factor", "1", "producer.override.compression.type", "none")...)).wait()
		require.ErrorContains(t, err, "record for topic shop.public.orders: "+want)
	}
}

func TestRecordsForTopicsOfWorkers(t *testing.T) {
	l := newLab(t)
	for _, topic := range []string{"connect-offsets", "__consumer_offsets"} {
		c := func() plugin.SourceTask { return &counter{limit: 5, most: 5, topic: topic} }
		err := l.start(l.runner(), sourceSpec(c, "errors.tolerance", "all")).wait()
		require.ErrorContains(t, err, "topic "+topic)
	}
}

func TestTopicCreation(t *testing.T) {
	l := newLab(t)
	c := func() plugin.SourceTask {
		return &counter{limit: 3, most: 3, change: func(r *plugin.SourceRecord) { r.Topic = "t-" + r.Value.(string) }}
	}
	j := l.start(l.runner(), sourceSpec(c, "topic.creation.groups", "one, two",
		"topic.creation.default.partitions", "2", "topic.creation.default.replication.factor", "-1",
		"topic.creation.one.include", "t-.*", "topic.creation.one.exclude", "t-[12]",
		"topic.creation.one.partitions", "3", "topic.creation.one.cleanup.policy", "delete",
		"topic.creation.two.include", "t-1", "topic.creation.two.retention.ms", "12345"))
	until(t, "all are stored", func() bool { return l.next() == 3 })
	require.NoError(t, j.stop())
	for topic, partitions := range map[string]int{"t-0": 3, "t-1": 2, "t-2": 2} {
		got, err := l.client.Renew(t.Context(), topic)
		require.NoError(t, err)
		require.Len(t, got.Partitions, partitions, topic)
	}
	got, err := l.client.DescribeConfigs(t.Context(), []client.Resource{{Type: client.TopicResource, Name: "t-1"}},
		"retention.ms")
	require.NoError(t, err)
	require.Equal(t, "12345", *got[0].Configs[0].Value)
}

func TestSettingsAtFault(t *testing.T) {
	for _, c := range []struct {
		kind  plugin.Kind
		props []string
		want  string
	}{
		{plugin.SinkKind, nil, "topics: either topics or topics.regex must be given"},
		{plugin.SinkKind, []string{"topics", "a", "topics.regex", "b"}, "only one of topics and topics.regex"},
		{plugin.SinkKind, []string{"topics", "a", "errors.deadletterqueue.topic.name", "a"}, "among those"},
		{plugin.SinkKind, []string{"topics.regex", "a.*", "errors.deadletterqueue.topic.name", "ab"}, "matches the topic ab"},
		{plugin.SinkKind, []string{"topics.regex", "("}, "topics.regex: "},
		{plugin.SinkKind, []string{"topics", "a b"}, "topics: topic name"},
		{plugin.SourceKind, []string{"errors.tolerance", "some"}, "must be one of none, all"},
		{plugin.SourceKind, []string{"errors.retry.timeout", "x"}, "errors.retry.timeout: it must be a number"},
		{plugin.SourceKind, []string{"topic.creation.groups", "a"}, "topic.creation.default.partitions: it must be given"},
		{plugin.SourceKind, []string{"topic.creation.default.partitions", "0"}, "at least 1"},
	} {
		var all []string
		for _, p := range task.CheckSettings(c.kind, "c", with(nil, c.props...)) {
			all = append(all, p.Key+": "+p.Message)
		}
		require.Contains(t, strings.Join(all, "\n"), c.want)
	}
	for want, props := range map[string][]string{
		"transforms.a.type: the transform has no type": {"transforms", "a"},
		"there is no predicate p": {
			"transforms", "a", "transforms.a.type", filterClass, "transforms.a.predicate", "p",
		},
		"transforms: a is there twice":                 {"transforms", "a,a", "transforms.a.type", filterClass},
		"transforms.a.type: ":                          {"transforms", "a", "transforms.a.type", "no.such"},
		"predicates.p.type: the predicate has no type": {"predicates", "p"},
		"transforms.a.negate: there is no predicate to ": {
			"transforms", "a", "transforms.a.type", filterClass, "transforms.a.negate", "true",
		},
	} {
		var all []string
		for _, p := range task.CheckChain(with(nil, props...)) {
			all = append(all, p.Key+": "+p.Message)
		}
		require.Contains(t, strings.Join(all, "\n"), want)
	}
}

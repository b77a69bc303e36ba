package cdc

import (
	"fmt"
	"regexp"
	"strings"

	"millrace/connect/plugin"
	"millrace/connect/postgres"
)

func eventDefs() []plugin.Def {
	return group(groupEvent,
		required(checked(optional("topic.prefix", plugin.String,
			"Name of the database among all others: topics begin with it, and the offset is stored under it."), topicPart)),
		checked(def("topic.delimiter", plugin.String, ".", "What separates the parts of a topic's name."), topicPart),
		def("topic.heartbeat.prefix", plugin.String, "__debezium-heartbeat",
			"Heartbeats go to the topic PREFIX.topic.prefix."),
		def("topic.transaction", plugin.String, "transaction", "Transaction metadata go to the topic topic.prefix.NAME."),
		unused("topic.naming.strategy", plugin.String, "io.debezium.schema.SchemaTopicNamingStrategy",
			"topics are named prefix.schema.table; a transform renames them"),
		unused("topic.cache.size", plugin.Int, "10000", "names are kept with their tables"),
		def("tombstones.on.delete", plugin.Boolean, "true", "A deletion is followed by a null of the same key."),
		def("provide.transaction.metadata", plugin.Boolean, "false",
			"Write where transactions begin and end, and number the events in them."),
		oneOf("schema.name.adjustment.mode", "none", "What to do with characters in names of schemas that Avro refuses.",
			"none", "avro", "avro_unicode"),
		oneOf("field.name.adjustment.mode", "none", "What to do with characters in names of fields that Avro refuses.",
			"none", "avro", "avro_unicode"),
		def("extended.headers.enabled", plugin.Boolean, "true", "Put headers __debezium.context.* on each record."),
		oneOf("schema.refresh.mode", "columns_diff", "Understood for compatibility: schemas come from the stream alone.",
			"columns_diff", "columns_diff_exclude_unchanged_toast"),
		unused("custom.metric.tags", plugin.String, "", "metrics have the labels connector and task"),
		unused("skip.messages.without.change.exclude", plugin.String, "", "no release has it for this database"),
		unused("include.schema.changes", plugin.Boolean, "true", "the stream has no statements"),
		unused("schema.history.internal", plugin.String, "", "schemas come with the changes"),
		unused("sanitize.field.names", plugin.Boolean, "false", "field.name.adjustment.mode takes its place"),
		unused("converters", plugin.List, "", "it names Java classes; a transform may change values"),
		unused("post.processors", plugin.List, "", "an unchanged large value is marked, and the sink leaves its column "+
			"alone"),
	)
}

func typeDefs() []plugin.Def {
	return group(groupType,
		oneOf("decimal.handling.mode", "precise", "How numeric and money come: bytes with a scale, or lossy doubles, or "+
			"text.",
			"precise", "double", "string"),
		oneOf("time.precision.mode", "adaptive", "How times come.", "adaptive", "adaptive_time_microseconds", "connect",
			"isostring", "microseconds", "nanoseconds", "structured"),
		oneOf("interval.handling.mode", "numeric", "How intervals come: as microseconds, or ISO 8601.", "numeric", "string"),
		oneOf("hstore.handling.mode", "json", "How hstore comes.", "json", "map"),
		oneOf("binary.handling.mode", "bytes", "How bytea comes.", "bytes", "base64", "base64-url-safe", "hex"),
		checked(def("money.fraction.digits", plugin.Int, "2", "Digits behind the point of money."), above(-1)),
		def("include.unknown.datatypes", plugin.Boolean, "false",
			"Types without a mapping come as the bytes of their text; otherwise they come as text."),
		def("unavailable.value.placeholder", plugin.String, postgres.DefaultPlaceholder,
			"Stands for a large value that a change left alone, which the server then does not send. Such columns are also "+
				"listed in the header "+unavailableHeader+"."),
		optional("column.propagate.source.type", plugin.List,
			"Columns, as schema.table.column, whose fields tell the column's type."),
		optional("datatype.propagate.source.type", plugin.List, "Types, as schema.type, whose fields tell the column's "+
			"type."),
	)
}

func runDefs() []plugin.Def {
	return group(groupRun,
		checked(def("max.batch.size", plugin.Int, "8192", "How many events go into one transaction of the topics; whole "+
			"transactions of the database, as many as fit, or a part of one that is larger."), above(0)),
		checked(def("max.queue.size", plugin.Int, "32768",
			"How many changes are held in memory before the server has to wait."), above(0)),
		checked(def("max.queue.size.in.bytes", plugin.Long, "0",
			"How many bytes of changes are held in memory before the server has to wait. 0: 16 MiB."), above(-1)),
		checked(def("poll.interval.ms", plugin.Long, "500", "How long to wait for changes at a time."), above(0)),
		checked(def("heartbeat.interval.ms", plugin.Int, "0", "How often a record goes to the heartbeat topic. 0: never."),
			above(-1)),
		optional("heartbeat.action.query", plugin.String, "SQL that is run with each heartbeat."),
		checked(def("millrace.heartbeat.message.ms", plugin.Int, "10000", "How often a logical message is written into the "+
			"database while the server holds back log that nothing else would let go; one is also written where a chunk of a "+
			"snapshot waits for the log to be flushed. 0, or read.only: never."), above(-1)),
		oneOf("event.processing.failure.handling.mode", "fail",
			"What to do with a change that cannot be made an event: fail, or leave it out with a warning, or silently.",
			"fail", "warn", "skip", "ignore"),
		checked(def("errors.max.retries", plugin.Int, "-1",
			"How often a lost connection is tried again. -1: as often as it takes."), above(-2)),
		checked(def("retriable.restart.connector.wait.ms", plugin.Long, "10000", "The longest wait between such tries."),
			above(0)),
		unused("max.queue.size.notify", plugin.Int, "0", "the queue wakes its reader by itself"),
		unused("executor.shutdown.timeout.ms", plugin.Long, "4000", "the runner's own time limit holds"),
		unused("query.fetch.size", plugin.Int, "0", "rows come as a stream"),
	)
}

// dynamic says whether a key is one of those that are made up as they are needed, and checks its value.
func dynamic(key, value string) (known bool, err error) {
	switch {
	case strings.HasPrefix(key, "snapshot.select.statement.overrides."):
		if !strings.HasPrefix(strings.ToUpper(strings.TrimSpace(value)), "SELECT") {
			return true, fmt.Errorf("it must be a SELECT")
		}
		return true, nil
	case strings.HasPrefix(key, "column.truncate.to."), strings.HasPrefix(key, "column.mask."):
		_, err := parseMask(key, value)
		return true, err
	}
	return false, nil
}

func topicPart(v string) error {
	for _, c := range v {
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
		if !ok {
			return fmt.Errorf("%q cannot stand in a topic's name", c)
		}
	}
	if v == "" {
		return fmt.Errorf("it must not be empty")
	}
	return nil
}

// keyRule says which columns are the key of tables.
type keyRule struct {
	table   *regexp.Regexp
	columns []string
}

func keyColumns(v string) error {
	_, err := parseKeys(v)
	return err
}

func parseKeys(v string) (out []keyRule, err error) {
	for part := range strings.SplitSeq(v, ";") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		i := strings.LastIndexByte(part, ':')
		if i < 0 {
			return nil, fmt.Errorf("%q is not of the form schema.table:column,column", part)
		}
		tables, err := compile([]string{part[:i]})
		if err != nil {
			return nil, err
		}
		columns := splitList(part[i+1:])
		if len(columns) == 0 {
			return nil, fmt.Errorf("%q names no column", part)
		}
		out = append(out, keyRule{tables[0], columns})
	}
	return out, nil
}

package connect

import (
	"slices"
	"strings"

	"millrace/connect/plugin"
)

// overridePrefix is the prefix by which a key is one for the clients inside the server, "" if it is none, and the
// client's own setting.
func overridePrefix(key string) (prefix, setting string) {
	for _, prefix := range []string{"producer.override.", "consumer.override.", "admin.override."} {
		if rest, ok := strings.CutPrefix(key, prefix); ok {
			return prefix, rest
		}
	}
	return "", ""
}

// overrideDefs are those settings of clients that a config gives and that do something here.
func overrideDefs(kind plugin.Kind, props map[string]string) (out plugin.Defs) {
	for _, d := range honoured(kind) {
		if _, given := props[d.Name]; given {
			out = append(out, d)
		}
	}
	return out
}

// honoured are the settings of clients that do something.
func honoured(kind plugin.Kind) plugin.Defs {
	if kind == plugin.SourceKind {
		return plugin.Defs{
			{
				Name: "producer.override.transaction.timeout.ms", Type: plugin.Int, Null: true, Importance: plugin.Low,
				Width: "SHORT", Display: "transaction.timeout.ms",
				Doc: "How long a transaction may be open before the broker aborts it, in milliseconds.",
			}, {
				Name: "producer.override.compression.type", Type: plugin.String, Default: "none", Importance: plugin.Low,
				Width: "SHORT", Display: "compression.type", Values: []string{"none", "gzip", "snappy", "lz4", "zstd"},
				Doc: "How batches of records are compressed.",
			},
		}
	}
	return plugin.Defs{
		{
			Name: "consumer.override.group.id", Type: plugin.String, Null: true, Importance: plugin.Medium, Width: "MEDIUM",
			Display: "group.id", Doc: "The consumer group that the tasks are members of; connect-NAME without it.",
		}, {
			Name: "consumer.override.auto.offset.reset", Type: plugin.String, Default: "earliest", Importance: plugin.Medium,
			Width: "SHORT", Display: "auto.offset.reset", Values: []string{"earliest", "latest", "none"},
			Doc: "Where a partition is read from of which the group has committed nothing.",
		}, {
			Name: "consumer.override.isolation.level", Type: plugin.String, Default: "read_committed", Importance: plugin.Medium,
			Width: "SHORT", Display: "isolation.level", Values: []string{"read_committed", "read_uncommitted"},
			Doc: "Whether records of transactions that are open or were aborted are read too.",
		}, {
			Name: "consumer.override.max.poll.records", Type: plugin.Int, Null: true, Importance: plugin.Low, Width: "SHORT",
			Display: "max.poll.records", Doc: "The most records that a sink gets at once.",
		},
	}
}

// checkGroup checks that the tasks of a sink are members of another group than the workers.
func (c *checked) checkGroup(workers string) {
	if c.class.Kind != plugin.SinkKind || sinkGroup(c.props[nameKey], c.props) != workers {
		return
	}
	key := groupKey
	if strings.TrimSpace(c.props[key]) == "" {
		key = nameKey
	}
	c.bad(key, "Invalid value %s for configuration %s: the tasks would be members of the group %s, which is that of the "+
		"workers", c.props[key], key, workers)
}

// checkOverrides checks that the workers let a config set what it sets of the clients inside the server.
func (c *checked) checkOverrides(policy string) {
	for key := range c.given {
		prefix, setting := overridePrefix(key)
		if prefix == "" {
			continue
		}
		switch {
		case strings.EqualFold(policy, "None"):
			c.another(plugin.Problem{Key: key, Message: "the workers' override policy None lets no connector set " + key})
		case strings.EqualFold(policy, "Principal") &&
			!slices.Contains([]string{"sasl.jaas.config", "sasl.mechanism", "security.protocol"}, setting):
			c.another(plugin.Problem{Key: key, Message: "the workers' override policy Principal lets connectors set only who " +
				"they log in as, not " + key})
		}
	}
}

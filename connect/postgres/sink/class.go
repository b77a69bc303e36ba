package sink

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	"github.com/jackc/pgx/v5"

	"millrace/client"
	"millrace/connect/plugin"
	"millrace/connect/postgres"
)

// Classes are the sink under the three names that it has, each with settings of its own: Confluent's, Debezium's, and
// ours.
func Classes() []plugin.Class {
	return []plugin.Class{
		class(nativeClass),
		class(confluentClass, "JdbcSink"),
		class(debeziumClass),
	}
}

func class(name string, aliases ...string) plugin.Class {
	return plugin.Class{
		Info: plugin.Info{Class: name, Aliases: aliases, Kind: plugin.SinkKind, Version: "1", Defs: defsOf(name)},
		New:  func() plugin.Connector { return &connector{class: name} },
	}
}

// connector is one sink. All it does is to check and to divide: tasks share the partitions among themselves.
type connector struct {
	class string
	props map[string]string
}

func (c *connector) Start(_ context.Context, props map[string]string, _ plugin.ConnectorContext) error {
	c.props = named(c.class, props)
	_, problems := readConfig(c.props)
	if len(problems) > 0 {
		return fmt.Errorf("setting %s: %s", problems[0].Key, problems[0].Message)
	}
	return nil
}

// named is props with the full name of the class, which may have been given by another one.
func named(class string, props map[string]string) map[string]string {
	out := maps.Clone(props)
	out["connector.class"] = class
	return out
}

func (c *connector) TaskConfigs(_ context.Context, maxTasks int) ([]map[string]string, error) {
	out := make([]map[string]string, max(maxTasks, 1))
	for i := range out {
		out[i] = c.props
	}
	return out, nil
}

func (c *connector) Stop(context.Context) error { return nil }

func (c *connector) NewSource() plugin.SourceTask { return nil }

func (c *connector) NewSink() plugin.SinkTask { return newTask(c.class) }

// AlterOffsets sets offsets in the ledger, from which the tasks go on.
func (c *connector) AlterOffsets(ctx context.Context, props map[string]string, offsets []plugin.Offset) (bool, error) {
	cfg, problems := readConfig(named(c.class, props))
	if len(problems) > 0 {
		return false, fmt.Errorf("setting %s: %s", problems[0].Key, problems[0].Message)
	}
	if !cfg.ledger {
		return true, nil
	}
	next := map[client.TopicPartition]int64{}
	for _, o := range offsets {
		at, n, err := parseOffset(o)
		if err != nil {
			return false, err
		}
		next[at] = n
	}
	if err := alterLedger(ctx, cfg, next); postgres.FaultOf(err).Transient() {
		return false, plugin.Retriable(err)
	} else if err != nil {
		return false, err
	}
	return true, nil
}

func alterLedger(ctx context.Context, cfg *config, next map[client.TopicPartition]int64) error {
	if err := migrate(ctx, cfg); err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, cfg.conn)
	if err != nil {
		return postgres.Explain(err, "connect")
	}
	defer conn.Close(ctx)
	return cfg.newLedger("").alter(ctx, conn, next)
}

// parseOffset reads a sink's offset; -1: it is to be forgotten.
func parseOffset(o plugin.Offset) (at client.TopicPartition, next int64, err error) {
	topic, ok := o.Partition["kafka_topic"].(string)
	number, isNumber := integer(o.Partition["kafka_partition"])
	if !ok || !isNumber || number < 0 || number > 1<<31-1 {
		return at, 0, fmt.Errorf("a partition of a sink is kafka_topic and kafka_partition, and not %v", o.Partition)
	}
	at = client.TopicPartition{Topic: topic, Partition: int32(number)}
	if o.Offset == nil {
		return at, -1, nil
	}
	next, ok = integer(o.Offset["kafka_offset"])
	if !ok || next < 0 {
		return at, 0, fmt.Errorf("an offset of a sink is kafka_offset, a number from 0 on, and not %v", o.Offset)
	}
	return at, next, nil
}

func integer(v any) (int64, bool) {
	switch n := v.(type) {
	case int64:
		return n, true
	case int:
		return int64(n), true
	case int32:
		return int64(n), true
	case float64:
		return int64(n), n == float64(int64(n))
	case string:
		i, err := strconv.ParseInt(n, 10, 64)
		return i, err == nil
	}
	return 0, false
}

package cdc

import (
	"context"
	"fmt"
	"maps"

	"millrace/connect/plugin"
)

// Class is the class of connectors that capture changes.
func Class() plugin.Class {
	return plugin.Class{
		Info: plugin.Info{
			Class: "io.debezium.connector.postgresql.PostgresConnector", Aliases: []string{"Postgres", "PostgresCDC"},
			Kind: plugin.SourceKind, Version: version, Defs: Defs(),
			Dynamic: func(key string) bool {
				known, _ := dynamic(key, "") // its value is checked by Validate
				return known
			},
		},
		New: func() plugin.Connector { return new(connector) },
	}
}

// connector is one connector. All its work is done by its one task.
type connector struct{ props map[string]string }

func (c *connector) Start(_ context.Context, props map[string]string, _ plugin.ConnectorContext) error {
	c.props = props
	return nil
}

// TaskConfigs gives one task, however many there may be: a slot has one reader.
func (c *connector) TaskConfigs(context.Context, int) ([]map[string]string, error) {
	return []map[string]string{maps.Clone(c.props)}, nil
}

func (c *connector) Stop(context.Context) error { return nil }

// AlterOffsets refuses what the task could not go on from.
func (c *connector) AlterOffsets(_ context.Context, props map[string]string, offsets []plugin.Offset) (bool, error) {
	s, _ := parseSettings(props)
	for _, o := range offsets {
		if len(o.Partition) != 1 || o.Partition["server"] != s.prefix {
			return false, fmt.Errorf("the connector has one source partition: {\"server\":%q}", s.prefix)
		}
		if o.Offset == nil {
			continue
		}
		if _, err := parsePosition(o.Offset); err != nil {
			return false, err
		}
	}
	return true, nil
}

func (c *connector) NewSource() plugin.SourceTask { return newTask() }

func (c *connector) NewSink() plugin.SinkTask { return nil }

package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"millrace/record"
	"millrace/schemaregistry/serde"
	"millrace/server/metadata"
	"millrace/server/partition"
)

// enforceWait bounds how long a batch waits for the schema registry to say what it is.
const enforceWait = 5 * time.Second

// checkSchemas implements broker.Config.CheckSchemas with the node's schema registry.
func (n *Node) checkSchemas(ctx context.Context, topic string, rules metadata.SchemaRules, batch record.Batch) error {
	s := n.schemas.serde.Load()
	if s == nil {
		return fmt.Errorf("%w: the node is starting", partition.ErrUnjudged)
	}
	ctx, cancel := context.WithTimeout(ctx, enforceWait)
	defer cancel()
	err := s.CheckBatch(ctx, serde.Rules{Topic: topic, Key: strategyOf(rules.Key), Value: strategyOf(rules.Value)}, batch,
		record.DefaultExpandedBytes)
	var refused *record.Fault
	if err == nil || errors.As(err, &refused) {
		return err
	}
	return fmt.Errorf("%w: %w", partition.ErrUnjudged, err)
}

// strategyOf is the strategy of a topic setting, nil where nothing is enforced.
func strategyOf(name string) *serde.Strategy {
	if name == "" {
		return nil
	}
	s, _ := serde.ParseStrategy(name) // the setting allows no other names
	return &s
}

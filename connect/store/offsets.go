package store

import (
	"context"

	"millrace/client"
	"millrace/connect/plugin"
)

// FreshOffsets waits until all offsets that were acknowledged before it was called are read.
func (s *Store) FreshOffsets(ctx context.Context) error { return errUnfinished }

// Offset is what is stored for a source partition of a connector, nil if nothing is. Numbers are int64, or float64 where
// they are not whole.
func (s *Store) Offset(connector string, partition map[string]any) map[string]any { return nil }

// Offsets are all offsets that are stored for a connector, in the order of their partitions as JSON.
func (s *Store) Offsets(connector string) []plugin.Offset { return nil }

// OffsetTopic is the topic of offsets, which is made if it does not exist.
func (s *Store) OffsetTopic(ctx context.Context) (*client.Topic, error) { return nil, errUnfinished }

// OffsetRecord is the record that stores an offset, for a task to put into its own transaction, and the partition of
// topic that it goes to. A nil offset forgets what is stored: then value is nil.
func (s *Store) OffsetRecord(topic *client.Topic, connector string, o plugin.Offset) (
	partition int32, key, value []byte, err error,
) {
	return 0, nil, nil, errUnfinished
}

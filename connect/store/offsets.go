package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"millrace/api/rawjson"
	"millrace/client"
	"millrace/client/statetopic"
	"millrace/connect/plugin"
	"millrace/record"
)

// The records of the offsets topic:
//
//	["<connector>",{partition}]  {offset}, null where there is none
//
// Both are JSON without a schema. Writers put the members of a partition in an order of their own, and who reads keys
// by their bytes sees two partitions where another writer's order differs. Here they are one, and a key that is there
// is written again as it is.

// offsetFold is what the records of the offsets topic add up to.
type offsetFold struct {
	skip skip

	mu    sync.RWMutex
	names map[string]map[string]*stored // by connector and partition, as appendJSON has it; guarded by mu
}

// stored is the offset of a source partition.
type stored struct {
	key               string // as it is in the topic
	value             []byte
	partition         int32 // of the topic
	offset, timestamp int64
}

// newer says whether a record with another key, or of an earlier time, is to be replaced by this one. Within a
// partition the place decides; between spellings of one key, which may be in two, the time does.
func (st *stored) newer(than *stored) bool {
	switch {
	case than == nil:
		return true
	case st.key == than.key && st.partition == than.partition:
		return st.offset >= than.offset
	case st.timestamp != than.timestamp:
		return st.timestamp > than.timestamp
	}
	return st.key > than.key
}

func newOffsetFold(skip skip) *offsetFold {
	return &offsetFold{skip: skip, names: map[string]map[string]*stored{}}
}

func (f *offsetFold) settle() {}

// take implements fold.
func (f *offsetFold) take(records []statetopic.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range records {
		r := &records[i]
		if err := f.applyLocked(r); err != nil {
			f.skip("an offset record", r.Partition, r.Offset, err)
		}
	}
}

func (f *offsetFold) applyLocked(r *statetopic.Record) error {
	connector, partition, err := readOffsetKey(r.Key)
	if err != nil {
		return err
	}
	if r.Value != nil {
		if _, err := readOffset(r.Value); err != nil {
			return err
		}
	}
	all := f.names[connector]
	st := &stored{
		key: string(r.Key), value: bytes.Clone(r.Value), partition: r.Partition, offset: r.Offset, timestamp: r.Timestamp,
	}
	was := all[partition]
	switch {
	case r.Value == nil || string(r.Value) == "null":
		if was != nil && was.key == st.key && st.newer(was) {
			delete(all, partition)
		}
		if len(all) == 0 {
			delete(f.names, connector)
		}
	case st.newer(was):
		if all == nil {
			all = map[string]*stored{}
			f.names[connector] = all
		}
		all[partition] = st
	}
	return nil
}

// readOffsetKey reads a key, and gives the partition as appendJSON has it.
func readOffsetKey(key []byte) (connector, partition string, err error) {
	v, err := readJSON(key)
	if err != nil {
		return "", "", fmt.Errorf("key: %w", err)
	}
	list, _ := v.([]any)
	if len(list) != 2 {
		return "", "", errors.New("the key is no list of a connector and a partition")
	}
	connector, named := list[0].(string)
	of, isMap := list[1].(map[string]any)
	if !named || !isMap {
		return "", "", errors.New("the key is no list of a connector and a partition")
	}
	out, err := appendJSON(nil, of, 0)
	return connector, string(out), err
}

// readOffset reads a value; nil for null.
func readOffset(value []byte) (map[string]any, error) {
	v, err := readJSON(value)
	if err != nil {
		return nil, fmt.Errorf("value: %w", err)
	}
	offset, ok := v.(map[string]any)
	if !ok && v != nil {
		return nil, errors.New("the value is no map")
	}
	return offset, nil
}

// find is what is stored, nil if nothing is.
func (f *offsetFold) find(connector, partition string) *stored {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.names[connector][partition]
}

// Offset is what is stored for a source partition of a connector, nil if nothing is. Numbers are int64, or float64
// where they are not whole.
func (s *Store) Offset(connector string, partition map[string]any) map[string]any {
	key, err := appendJSON(nil, partition, 0)
	if err != nil {
		return nil // nobody can have stored anything for it
	}
	st := s.offsetsNow.Load().find(connector, string(key))
	if st == nil {
		return nil
	}
	offset, _ := readOffset(st.value) // it was read before
	return offset
}

// Offsets are all offsets that are stored for a connector, in the order of their partitions as JSON.
func (s *Store) Offsets(connector string) (out []plugin.Offset) {
	f := s.offsetsNow.Load()
	f.mu.RLock()
	all := maps.Clone(f.names[connector])
	f.mu.RUnlock()
	for _, key := range slices.Sorted(maps.Keys(all)) {
		partition, _ := readJSON([]byte(key))
		offset, _ := readOffset(all[key].value) // both were read before
		out = append(out, plugin.Offset{Partition: partition.(map[string]any), Offset: offset})
	}
	return out
}

// OffsetTopic is the topic of offsets, which is made if it does not exist.
func (s *Store) OffsetTopic(ctx context.Context) (*client.Topic, error) {
	return s.topicOf(ctx, s.offsets)
}

// OffsetRecord is the record that stores an offset, for a task to put into its own transaction, and the partition of
// topic that it goes to. A nil offset forgets what is stored: then value is nil.
func (s *Store) OffsetRecord(topic *client.Topic, connector string, o plugin.Offset) (
	partition int32, key, value []byte, err error,
) {
	if o.Partition == nil {
		return 0, nil, nil, errors.New("an offset without a source partition cannot be stored")
	}
	of, err := appendJSON(nil, o.Partition, 0)
	if err != nil {
		return 0, nil, nil, fmt.Errorf("source partition: %w", err)
	}
	if o.Offset != nil {
		if value, err = appendJSON(nil, o.Offset, 0); err != nil {
			return 0, nil, nil, fmt.Errorf("source offset: %w", err)
		}
	}
	if st := s.offsetsNow.Load().find(connector, string(of)); st != nil {
		key = []byte(st.key)
	} else {
		key = append(rawjson.AppendString([]byte{'['}, connector), ',')
		key = append(append(key, of...), ']')
	}
	if n := len(key) + len(value); n > maxRecordBytes {
		return 0, nil, nil, fmt.Errorf("a source offset of %d bytes cannot be stored; %d are allowed", n, maxRecordBytes)
	}
	return record.KeyPartition(key, int32(len(topic.Partitions))), key, value, nil
}

// PutOffsets stores offsets, or forgets those that are nil, outside of any transaction: no task of the connector may be
// running. It returns when they can be read.
func (s *Store) PutOffsets(ctx context.Context, connector string, offsets []plugin.Offset) error {
	topic, err := s.OffsetTopic(ctx)
	if err != nil {
		return err
	}
	records := make([]keyed, len(offsets))
	for i, o := range offsets {
		r := &records[i]
		if r.partition, r.key, r.value, err = s.OffsetRecord(topic, connector, o); err != nil {
			return &Error{Message: "the offsets cannot be stored", Refused: true, Cause: err}
		}
	}
	if err := s.writeAll(ctx, s.offsets, records); err != nil {
		return err
	}
	return s.FreshOffsets(ctx)
}

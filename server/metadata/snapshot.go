package metadata

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"millrace/internal/invariant"
)

// A snapshot is lines of JSON: a header, then the brokers by id, the dynamic configurations of brokers
// by resource name and the topics by name, as many of each as the header says. Equal images have
// equal snapshots.
const (
	snapshotFormat  = "millrace.metadata"
	snapshotVersion = 1
)

type snapshotHeader struct {
	Format         string   `json:"format"`
	Version        int      `json:"version"`
	Index          uint64   `json:"index"`
	ClusterID      string   `json:"cluster_id"`
	NextProducerID int64    `json:"next_producer_id"`
	Defaults       Defaults `json:"defaults,omitzero"`
	Brokers        int      `json:"brokers"`
	Configs        int      `json:"configs"`
	Topics         int      `json:"topics"`
}

type snapshotConfig struct {
	Broker string            `json:"broker"`
	Values map[string]string `json:"values"`
}

type snapshotTopic struct {
	Name       string              `json:"name"`
	ID         UUID                `json:"id"`
	Partitions []snapshotPartition `json:"partitions"`
	Configs    map[string]string   `json:"configs,omitempty"`
}

type snapshotPartition struct {
	Replicas       []int32 `json:"replicas"`
	ISR            []int32 `json:"isr,omitzero"` // left out when equal to the replicas
	Leader         int32   `json:"leader"`
	LeaderEpoch    int32   `json:"leader_epoch"`
	PartitionEpoch int32   `json:"partition_epoch"`
	Adding         []int32 `json:"adding,omitempty"`
	Removing       []int32 `json:"removing,omitempty"`
	ELR            []int32 `json:"elr,omitempty"`
	LastKnownELR   []int32 `json:"last_known_elr,omitempty"`
	Recovering     bool    `json:"recovering,omitempty"`
}

// WriteSnapshot writes the agreed part of the image.
func (m *Image) WriteSnapshot(w io.Writer) error {
	b := bufio.NewWriterSize(w, 64<<10)
	enc := json.NewEncoder(b)
	put := func(v any) {
		// The encoder fails for values that JSON cannot say, of which these types have none; a
		// failed write is kept by the bufio.Writer and returned by Flush.
		_ = enc.Encode(v)
	}
	put(snapshotHeader{
		Format: snapshotFormat, Version: snapshotVersion,
		Index: m.Index, ClusterID: m.ClusterID, NextProducerID: m.NextProducerID, Defaults: m.defaults,
		Brokers: len(m.brokers), Configs: len(m.configs), Topics: len(m.topics.sorted),
	})
	for _, broker := range m.Brokers() {
		put(broker)
	}
	for _, name := range sortedKeys(m.configs) {
		put(snapshotConfig{name, m.configs[name]})
	}
	for _, t := range m.topics.sorted {
		put(newSnapshotTopic(t))
	}
	return b.Flush()
}

func newSnapshotTopic(t *Topic) snapshotTopic {
	s := snapshotTopic{Name: t.Name, ID: t.ID, Configs: t.Configs}
	s.Partitions = make([]snapshotPartition, len(t.Partitions))
	for i, p := range t.Partitions {
		s.Partitions[i] = snapshotPartition(p)
		switch {
		case slices.Equal(p.ISR, p.Replicas):
			s.Partitions[i].ISR = nil
		case len(p.ISR) == 0:
			s.Partitions[i].ISR = []int32{}
		}
	}
	return s
}

// Hash identifies the agreed part of the image.
func (m *Image) Hash() [sha256.Size]byte {
	h := sha256.New()
	err := m.WriteSnapshot(h)
	invariant.Check(err == nil, "hash metadata: %v", err)
	return [sha256.Size]byte(h.Sum(nil))
}

func readSnapshot(r io.Reader, node *nodeView) (*Image, error) {
	d := json.NewDecoder(bufio.NewReaderSize(r, 64<<10))
	d.DisallowUnknownFields()
	var h snapshotHeader
	if err := d.Decode(&h); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if h.Format != snapshotFormat || h.Version != snapshotVersion {
		return nil, fmt.Errorf("format %q version %d is not known to this version of the server", h.Format, h.Version)
	}
	m := emptyImage(node)
	m.Index, m.ClusterID, m.NextProducerID, m.defaults = h.Index, h.ClusterID, h.NextProducerID, h.Defaults
	for i := range h.Brokers {
		b := new(Broker)
		if err := d.Decode(b); err != nil {
			return nil, fmt.Errorf("broker %d of %d: %w", i+1, h.Brokers, err)
		}
		m.brokers[b.ID] = b
	}
	for i := range h.Configs {
		var c snapshotConfig
		if err := d.Decode(&c); err != nil {
			return nil, fmt.Errorf("configuration %d of %d: %w", i+1, h.Configs, err)
		}
		m.configs[c.Broker] = c.Values
	}
	m.node = node.with(m.configs, m.defaults)
	if err := m.readTopics(d, h.Topics); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("more data after %d topics", h.Topics)
	}
	return m, nil
}

func (m *Image) readTopics(d *json.Decoder, count int) error {
	x := editIndex(m.topics)
	for i := range count {
		var s snapshotTopic
		if err := d.Decode(&s); err != nil {
			return fmt.Errorf("topic %d of %d: %w", i+1, count, err)
		}
		if err := ValidateTopicName(s.Name); err != nil {
			return fmt.Errorf("topic %d of %d: %w", i+1, count, err)
		}
		if x.clash(s.Name) != nil || x.getID(s.ID) != nil || len(s.Partitions) == 0 {
			return fmt.Errorf("topic %s is there twice or has no partitions", s.Name)
		}
		t := &Topic{Name: s.Name, ID: s.ID, Configs: s.Configs, Partitions: make([]Partition, len(s.Partitions))}
		for j, p := range s.Partitions {
			if p.ISR == nil {
				p.ISR = p.Replicas
			}
			t.Partitions[j] = Partition(p)
		}
		t.Settings = m.node.topicSettings(t.Configs)
		x.put(t)
		m.partitions += len(t.Partitions)
	}
	m.topics = x.done()
	return nil
}

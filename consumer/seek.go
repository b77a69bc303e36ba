package consumer

import (
	"context"
	"maps"

	"millrace/client"
)

// Seek makes offsets the positions of partitions that the member has.
func (m *Member) Seek(ctx context.Context, to ...Offset) error {
	for _, o := range to {
		if o.Offset < 0 {
			return bad("an offset is 0 or more, not %d", o.Offset)
		}
	}
	return m.update(ctx, func() (func(), error) {
		for _, o := range to {
			if m.parts[o.TopicPartition] == nil {
				return nil, ErrNotAssigned
			}
		}
		m.cameLocked()
		old := maps.Clone(m.seeks)
		for _, o := range to {
			p := m.parts[o.TopicPartition]
			p.position, p.lost = o.Offset, false
			m.seeks[o.TopicPartition] = o.Offset
		}
		if m.stop != nil {
			m.stop()
		}
		return func() { m.seeks = old }, nil
	})
}

// SeekTo makes the first offset at or after a time, in milliseconds, or client.Earliest or client.Latest, the
// position of partitions that the member has.
func (m *Member) SeekTo(ctx context.Context, timestamp int64, of ...client.TopicPartition) error {
	m.mu.Lock()
	if err := m.goneLocked(); err != nil {
		m.mu.Unlock()
		return err
	}
	level := m.cfg.Isolation
	for _, tp := range of {
		if m.parts[tp] == nil {
			m.mu.Unlock()
			return ErrNotAssigned
		}
	}
	m.mu.Unlock()
	found, err := m.lookUp(ctx, of, timestamp, level)
	if err != nil {
		return err
	}
	to := make([]Offset, 0, len(of))
	for _, tp := range of {
		to = append(to, Offset{TopicPartition: tp, Offset: found[tp]})
	}
	return m.Seek(ctx, to...)
}

// Position is the offset of the next record that the member hands out of a partition.
func (m *Member) Position(ctx context.Context, tp client.TopicPartition) (int64, error) {
	if err := m.enter(); err != nil {
		return 0, err
	}
	defer m.exit()
	m.mu.Lock()
	p := m.parts[tp]
	m.mu.Unlock()
	if p == nil {
		return 0, ErrNotAssigned
	}
	if err := m.locate(ctx, []*part{p}); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return p.position, nil
}

// lookUp finds offsets by time in partitions. Where no record is that late it is the end.
func (m *Member) lookUp(ctx context.Context, of []client.TopicPartition, timestamp int64, level client.Isolation) (
	map[client.TopicPartition]int64, error,
) {
	c := m.parent.o.Client
	byTopic := make(map[string][]int32)
	for _, tp := range of {
		byTopic[tp.Topic] = append(byTopic[tp.Topic], tp.Partition)
	}
	out := make(map[client.TopicPartition]int64)
	for name, partitions := range byTopic {
		t, err := c.Topic(ctx, name, client.Refuse)
		if err != nil {
			return nil, err
		}
		queries := make([]client.OffsetQuery, len(partitions))
		for i, n := range partitions {
			queries[i] = client.OffsetQuery{Partition: n, Timestamp: timestamp}
		}
		results, err := c.ListOffsets(ctx, t, queries, level)
		if err != nil {
			return nil, err
		}
		late := []client.TopicPartition{}
		for _, r := range results {
			tp := client.TopicPartition{Topic: name, Partition: r.Partition}
			switch {
			case r.Err != nil:
				return nil, r.Err
			case r.Offset < 0:
				late = append(late, tp)
			default:
				out[tp] = r.Offset
			}
		}
		if len(late) > 0 && timestamp != client.Latest {
			ends, err := m.lookUp(ctx, late, client.Latest, level)
			if err != nil {
				return nil, err
			}
			maps.Copy(out, ends)
		}
	}
	return out, nil
}

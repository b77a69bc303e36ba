package client

import (
	"math/rand/v2"

	"millrace/record"
)

// placement chooses partitions for keyless records of one topic, across requests and across renewals of
// the topic's metadata.
type placement struct {
	sticky *record.Sticky
}

func newPlacement(r *rand.Rand) *placement { return &placement{sticky: record.NewSticky(r)} }

// next is the partition for bytes more bytes of keyless records. A partition without a leader is passed
// over while another one has a leader.
func (p *placement) next(t *Topic, bytes int) int32 {
	n := int32(len(t.Partitions))
	first := p.sticky.Partition(n, bytes)
	for i := range n {
		if c := (first + i) % n; t.Partitions[c].Leader >= 0 {
			return c
		}
	}
	return first
}

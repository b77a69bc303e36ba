package task

import (
	"slices"
	"strings"

	"millrace/client"
	"millrace/record"
)

// Bounds of what is built before it is sent.
const (
	partBytes = 2 << 20 // of a part of a transaction: one is sent while the next is built
	keptBytes = 4 << 20 // of memory of one builder that is kept
)

// slot is a batch under way.
type slot struct {
	target    *target
	partition int32
	builder   record.Builder
	from      []int32 // places of its records in the poll, -1: of none
	sequence  int32   // of its first record
	batch     record.Batch
	sent      bool
	size      int // of its memory, at least
}

// part is what is sent in one request: at most one batch a partition.
type part struct {
	slots []*slot
	bytes int // of all batches, about
}

// builder builds the parts of a transaction. It is not safe for concurrent use.
type builder struct {
	codec  record.Codec
	codecs *record.Codecs // nil: there is nothing to compress
	part   *part
	free   []*slot // memory of parts that are sent
	kept   int     // bytes in free
}

// fits says whether a record of a size can go into the part under way.
func (b *builder) fits(k *target, partition int32, size int) bool {
	if b.part == nil || len(b.part.slots) == 0 {
		return true
	}
	if b.part.bytes+size > partBytes {
		return false
	}
	s := k.slots[partition]
	return s == nil || s.builder.Size()+size <= k.batch
}

// add puts a record into the part under way. Where it does not fit, the part must have been taken before.
func (b *builder) add(k *target, partition int32, r *record.Record, from int) {
	if b.part == nil {
		b.part = &part{}
	}
	s := k.slots[partition]
	if s == nil {
		s = b.slot()
		s.target, s.partition = k, partition
		k.slots[partition] = s
		b.part.slots = append(b.part.slots, s)
		b.part.bytes += record.HeaderSize
	}
	before := s.builder.Size()
	s.builder.Append(r)
	b.part.bytes += s.builder.Size() - before
	s.from = append(s.from, int32(from))
}

func (b *builder) slot() *slot {
	if n := len(b.free); n > 0 {
		s := b.free[n-1]
		b.free = b.free[:n-1]
		b.kept -= s.size
		s.builder.SetCodec(b.codec)
		return s
	}
	s := &slot{}
	s.builder.Codecs = b.codecs
	s.builder.Reset([]byte{})
	s.builder.SetCodec(b.codec)
	return s
}

// take ends the part under way; nil: there is none.
func (b *builder) take() *part {
	p := b.part
	b.part = nil
	if p == nil || len(p.slots) == 0 {
		return nil
	}
	for _, s := range p.slots {
		s.target.slots[s.partition] = nil
	}
	slices.SortFunc(p.slots, func(a, b *slot) int {
		if c := strings.Compare(a.target.topic.Name, b.target.topic.Name); c != 0 {
			return c
		}
		return int(a.partition) - int(b.partition)
	})
	return p
}

// release takes the memory of a part back.
func (b *builder) release(p *part) {
	if p == nil {
		return
	}
	for _, s := range p.slots {
		size := max(s.size, s.builder.Size())
		if b.kept+size > keptBytes {
			continue
		}
		b.kept += size
		s.target, s.from, s.batch, s.sent, s.size = nil, s.from[:0], nil, false, size
		s.builder.Reset(nil)
		b.free = append(b.free, s)
	}
}

// seal makes the batches of a part, as the next ones of a producer.
func (p *part) seal(producer client.TxnProducer, sequences map[client.TopicPartition]int32) {
	for _, s := range p.slots {
		at := client.TopicPartition{Topic: s.target.topic.Name, Partition: s.partition}
		s.sequence = sequences[at]
		s.builder.SetProducer(producer.ProducerID, producer.Epoch, s.sequence)
		s.builder.SetTransactional()
		sequences[at] = record.AddSequence(s.sequence, int32(s.builder.Count()))
		s.batch, s.sent = s.builder.Build(), false
		s.target.written = true
	}
}

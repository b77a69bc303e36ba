package native

import (
	"encoding/binary"
	"math/rand/v2"
	"sync/atomic"

	"millrace/client"
	"millrace/record"
)

// plainBatches remembers batches in which every value was found to be JSON that can be spliced in as it stands, so
// that the next reader of the same records is spared the look at each byte. A batch is known by its topic's id,
// partition, offset, leader epoch and checksum: the same ones never stand for other bytes. What is remembered are
// hashes of these, in a table in which a new one takes the place of an older one; a seed of its own keeps anybody from
// choosing records whose hash is another's. Safe for concurrent use.
type plainBatches struct {
	seed  uint64
	table []atomic.Uint64
}

// plainTable is how many batches are remembered: of 64 KiB each, 4 GiB.
const plainTable = 1 << 16

func newPlainBatches() *plainBatches {
	return &plainBatches{seed: rand.Uint64(), table: make([]atomic.Uint64, plainTable)}
}

// hash is never 0, which marks an empty place.
func (p *plainBatches) hash(t *client.Topic, partition int32, b record.Batch) uint64 {
	h := mix(p.seed, binary.BigEndian.Uint64(t.ID[:8]))
	h = mix(h, binary.BigEndian.Uint64(t.ID[8:]))
	h = mix(h, uint64(partition)<<32|uint64(b.CRC()))
	h = mix(h, uint64(b.BaseOffset()))
	h = mix(h, uint64(b.LeaderEpoch())<<32|uint64(len(b)))
	return mix(h, p.seed) | 1
}

func (p *plainBatches) has(hash uint64) bool { return p.table[hash>>48].Load() == hash }

func (p *plainBatches) add(hash uint64) { p.table[hash>>48].Store(hash) }

// plainWatch carries what is known of a batch to the encoder of its records, and back what that finds.
type plainWatch struct {
	known     *plainBatches
	topic     *client.Topic
	partition int32
	encoder   *jsonEncoder
	hash      uint64 // of the batch in hand
}

// begin is called before the records of a batch.
func (w *plainWatch) begin(b record.Batch) {
	e := w.encoder
	e.plain, e.plainSoFar = false, false
	if w.topic.ID == [16]byte{} || e.value != formJSON && e.value != formAuto {
		return
	}
	w.hash = w.known.hash(w.topic, w.partition, b)
	e.plain = w.known.has(w.hash)
	e.plainSoFar = !e.plain
}

// end is called behind the records of a batch of which none was left out.
func (w *plainWatch) end() {
	if w.encoder.plainSoFar {
		w.known.add(w.hash)
	}
}

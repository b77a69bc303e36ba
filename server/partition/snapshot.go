package partition

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
)

// A producer snapshot is Kafka's file of the same name, all integers big-endian:
//
//	+---------+-------+-------+----------------------- - - -
//	| i16 = 1 | u32   | i32   | count entries
//	| version | crc   | count | in the order of producer ids
//	+---------+-------+-------+----------------------- - - -
//	           \       \______ CRC-32C covers from here to the end
//
//	entry, 46 bytes:
//	+------------+-------+--------------+------------+-------------+-----------+------------------+----------------+
//	| i64        | i16   | i32          | i64        | i32         | i64       | i32              | i64            |
//	| producerId | epoch | lastSequence | lastOffset | offsetDelta | timestamp | coordinatorEpoch | txnFirstOffset |
//	+------------+-------+--------------+------------+-------------+-----------+------------------+----------------+
//
// lastSequence and lastOffset are -1 for a producer without a remembered batch, txnFirstOffset is -1
// without an open transaction. Only the newest batch of a producer is kept.
const (
	snapshotVersion    = 1
	snapshotHeaderSize = 10
	snapshotEntrySize  = 46
)

// errSnapshot says that a snapshot cannot be used; an older one, or the log itself, can.
var errSnapshot = errors.New("producer snapshot is damaged")

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// encode writes p as a snapshot. Equal states have equal bytes.
func (p *producers) encode() []byte {
	b := make([]byte, snapshotHeaderSize, snapshotHeaderSize+snapshotEntrySize*len(p.entries))
	for _, id := range p.ids() {
		b = p.entries[id].appendEntry(b, id)
	}
	binary.BigEndian.PutUint16(b, snapshotVersion)
	binary.BigEndian.PutUint32(b[6:], uint32(len(p.entries)))
	binary.BigEndian.PutUint32(b[2:], crc32.Checksum(b[6:], castagnoli()))
	return b
}

func (e *producer) appendEntry(b []byte, id int64) []byte {
	w := written{lastSequence: none, lastOffset: none, timestamp: e.lastTimestamp}
	if e.count > 0 {
		w = *e.newest()
	}
	b = binary.BigEndian.AppendUint64(b, uint64(id))
	b = binary.BigEndian.AppendUint16(b, uint16(e.epoch))
	b = binary.BigEndian.AppendUint32(b, uint32(w.lastSequence))
	b = binary.BigEndian.AppendUint64(b, uint64(w.lastOffset))
	b = binary.BigEndian.AppendUint32(b, uint32(w.offsetDelta))
	b = binary.BigEndian.AppendUint64(b, uint64(e.lastTimestamp))
	b = binary.BigEndian.AppendUint32(b, uint32(e.coordinatorEpoch))
	return binary.BigEndian.AppendUint64(b, uint64(e.txnFirstOffset))
}

// decodeProducers reads a snapshot. now, the leader's clock in milliseconds, counts as the time when
// every producer in it was last seen.
func decodeProducers(b []byte, now int64) (*producers, error) {
	if len(b) < snapshotHeaderSize || binary.BigEndian.Uint16(b) != snapshotVersion ||
		binary.BigEndian.Uint32(b[2:]) != crc32.Checksum(b[6:], castagnoli()) {
		return nil, errSnapshot
	}
	count := int(binary.BigEndian.Uint32(b[6:]))
	b = b[snapshotHeaderSize:]
	if count != len(b)/snapshotEntrySize || len(b)%snapshotEntrySize != 0 {
		return nil, errSnapshot
	}
	p := newProducers(false)
	p.entries = make(map[int64]*producer, count)
	for ; len(b) > 0; b = b[snapshotEntrySize:] {
		id, e := decodeEntry(b)
		e.seen = now
		p.entries[id] = e
	}
	if len(p.entries) != count {
		return nil, errSnapshot
	}
	p.restoreTransactions()
	return p, nil
}

// restoreTransactions begins the transactions that are open by the entries.
func (p *producers) restoreTransactions() {
	var open []int64
	for _, e := range p.entries {
		if e.txnFirstOffset != none {
			open = append(open, e.txnFirstOffset)
		}
	}
	slices.Sort(open)
	for _, first := range open {
		p.txns.begin(first)
	}
}

func decodeEntry(b []byte) (id int64, e *producer) {
	e = &producer{
		epoch:            int16(binary.BigEndian.Uint16(b[8:])),
		lastTimestamp:    int64(binary.BigEndian.Uint64(b[26:])),
		coordinatorEpoch: int32(binary.BigEndian.Uint32(b[34:])),
		txnFirstOffset:   int64(binary.BigEndian.Uint64(b[38:])),
		marked:           none,
		cut:              true,
	}
	w := written{
		lastSequence: int32(binary.BigEndian.Uint32(b[10:])),
		lastOffset:   int64(binary.BigEndian.Uint64(b[14:])),
		offsetDelta:  int32(binary.BigEndian.Uint32(b[22:])),
		timestamp:    e.lastTimestamp,
	}
	if w.lastOffset >= 0 {
		e.push(w)
	}
	return int64(binary.BigEndian.Uint64(b)), e
}

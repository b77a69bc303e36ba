package quorum

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/hashicorp/raft"
)

// A segment is a file of the log, metadata/log/<index of its first entry, 20 digits>.log. It begins with
//
//	 0               8       12      16              24
//	+---------------+-------+-------+---------------+--------
//	| "MRAFTLOG"    | u32=1 | u32   | u64           | entries
//	| magic         |version| crc   | base index    | ...
//	+---------------+-------+-------+---------------+--------
//
// and ends in zeros, which are there before the entries are: so that a sync need not write the file's size too. An
// entry is
//
//	 0       4       8               16              24              32      36      40  41    44
//	+-------+-------+---------------+---------------+---------------+-------+-------+---+-----+--------------
//	| u32   | u32   | u64           | u64           | i64           | u32   | u32   |u8 | 0   | extensions,
//	| length| crc   | index         | term          | appended, ns  | batch | ext.  |typ|     | data, padding
//	+-------+-------+---------------+---------------+---------------+-------+-------+---+-----+--------------
//
// length is that of extensions and data, ext. that of the extensions. Zeros pad an entry to a multiple of 8 bytes.
// batch is the index minus that of the first entry of the same write: an entry whose write began behind a damaged
// one proves that the damaged one was whole and synced once. Each crc is CRC-32C of all that precedes and follows it
// in the header or, without the padding, in the entry.
const (
	segmentMagic   = "MRAFTLOG"
	segmentVersion = 1
	segmentHeader  = 24
	entryHeader    = 44
	entryAlign     = 8
	// maxEntryBytes bounds what an entry's length may say.
	maxEntryBytes = 64 << 20
)

// errDamaged means bytes that nobody wrote so.
var errDamaged = errors.New("damaged")

// checksum is CRC-32C of b but for the four bytes at skip, where it is kept.
func checksum(b []byte, skip int) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum(b[:skip], table), table, b[skip+4:])
}

func appendSegmentHeader(b []byte, base uint64) []byte {
	at := len(b)
	b = append(b, segmentMagic...)
	b = binary.BigEndian.AppendUint32(b, segmentVersion)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint64(b, base)
	binary.BigEndian.PutUint32(b[at+12:], checksum(b[at:], 12))
	return b
}

// checkSegmentHeader tells a damaged header from one of a version to come.
func checkSegmentHeader(b []byte, base uint64) error {
	if len(b) < segmentHeader || string(b[:8]) != segmentMagic {
		return fmt.Errorf("header is %w", errDamaged)
	}
	b = b[:segmentHeader]
	if binary.BigEndian.Uint32(b[12:]) != checksum(b, 12) || binary.BigEndian.Uint64(b[16:]) != base {
		return fmt.Errorf("header is %w", errDamaged)
	}
	if v := binary.BigEndian.Uint32(b[8:]); v != segmentVersion {
		return fmt.Errorf("version %d is unknown here, it is newer than this program", v)
	}
	return nil
}

// entrySize is the size on disk of an entry whose extensions and data have that length.
func entrySize(length int) int {
	return (entryHeader + length + entryAlign - 1) / entryAlign * entryAlign
}

func appendEntry(b []byte, l *raft.Log, batch uint32) []byte {
	at, length := len(b), len(l.Extensions)+len(l.Data)
	var appended int64
	if !l.AppendedAt.IsZero() {
		appended = l.AppendedAt.UnixNano()
	}
	b = binary.BigEndian.AppendUint32(b, uint32(length))
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint64(b, l.Index)
	b = binary.BigEndian.AppendUint64(b, l.Term)
	b = binary.BigEndian.AppendUint64(b, uint64(appended))
	b = binary.BigEndian.AppendUint32(b, batch)
	b = binary.BigEndian.AppendUint32(b, uint32(len(l.Extensions)))
	b = append(b, byte(l.Type), 0, 0, 0)
	b = append(b, l.Extensions...)
	b = append(b, l.Data...)
	binary.BigEndian.PutUint32(b[at+4:], checksum(b[at:], 4))
	return append(b, make([]byte, entrySize(length)-entryHeader-length)...)
}

// readEntry reads the entry at the start of b into l, whose slices are then parts of b, and gives the index of the
// first entry of its write and its size on disk.
func readEntry(b []byte, l *raft.Log) (batch uint64, size int, err error) {
	if len(b) < entryHeader {
		return 0, 0, errDamaged
	}
	length := int(binary.BigEndian.Uint32(b))
	ext := int(binary.BigEndian.Uint32(b[36:]))
	if length > maxEntryBytes || len(b) < entrySize(length) || ext > length {
		return 0, 0, errDamaged
	}
	if binary.BigEndian.Uint32(b[4:]) != checksum(b[:entryHeader+length], 4) {
		return 0, 0, errDamaged
	}
	payload := b[entryHeader : entryHeader+length : entryHeader+length]
	*l = raft.Log{
		Index: binary.BigEndian.Uint64(b[8:]),
		Term:  binary.BigEndian.Uint64(b[16:]),
		Type:  raft.LogType(b[40]),
		Data:  payload[ext:],
	}
	if ext > 0 {
		l.Extensions = payload[:ext:ext]
	}
	if ns := int64(binary.BigEndian.Uint64(b[24:])); ns != 0 {
		l.AppendedAt = time.Unix(0, ns)
	}
	batch = l.Index - uint64(binary.BigEndian.Uint32(b[32:]))
	return batch, entrySize(length), nil
}

// scanned is what a segment file holds.
type scanned struct {
	starts []int64 // the place of each entry, beginning with that of the base index
	end    int64   // behind the last whole one
	torn   bool    // what follows is neither an entry nor zeros
}

// scanSegment reads the bytes of a segment file. It fails where they show that what was synced is gone; that the last
// write is torn is no failure.
func scanSegment(b []byte, base uint64) (scanned, error) {
	if err := checkSegmentHeader(b, base); err != nil {
		if !errors.Is(err, errDamaged) || writtenAfter(b, base) {
			return scanned{}, err
		}
		return scanned{torn: true}, nil
	}
	s := scanned{end: segmentHeader}
	for {
		var l raft.Log
		next := base + uint64(len(s.starts))
		_, size, err := readEntry(b[s.end:], &l)
		if err != nil || l.Index != next {
			s.torn = !zero(b[s.end:])
			if s.torn && writtenAfter(b[s.end:], next) {
				return s, fmt.Errorf("entry %d at %d is %w", next, s.end, errDamaged)
			}
			return s, nil
		}
		s.starts = append(s.starts, s.end)
		s.end += int64(size)
	}
}

// writtenAfter reports whether b holds an entry whose write began behind that of index.
func writtenAfter(b []byte, index uint64) bool {
	var l raft.Log
	for at := 0; at < len(b); at += entryAlign {
		if batch, _, err := readEntry(b[at:], &l); err == nil && batch > index && batch <= l.Index {
			return true
		}
	}
	return false
}

// zero reports whether all of b is zeros.
func zero(b []byte) bool { return len(b) == 0 || b[0] == 0 && bytes.Equal(b[1:], b[:len(b)-1]) }

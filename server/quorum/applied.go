package quorum

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
)

// appliedFile is the name of the file that an appliedMark keeps.
const appliedFile = "applied"

// appliedSize is that of the file: the index as a big-endian number, then its CRC-32C.
//
//	 0               8       12
//	+---------------+-------+
//	| index         | crc   |
//	+---------------+-------+
const appliedSize = 12

// appliedMark remembers the index of the last command that this node applied. It is never synced, so it may lag after
// a power cut, but as entries are synced before they are applied it is never ahead of a log that is whole.
type appliedMark struct {
	index  uint64 // as found when it was opened; 0 if nothing was
	file   *os.File
	logger hclog.Logger
	failed atomic.Bool
}

func openAppliedMark(name string, logger hclog.Logger) (*appliedMark, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	m := &appliedMark{file: f, logger: logger}
	var b [appliedSize]byte
	switch _, err := f.ReadAt(b[:], 0); {
	case errors.Is(err, io.EOF): // new, or torn
	case err != nil:
		return nil, errors.Join(err, f.Close())
	case binary.BigEndian.Uint32(b[8:]) == crc32.Checksum(b[:8], crc32.MakeTable(crc32.Castagnoli)):
		m.index = binary.BigEndian.Uint64(b[:8])
	default:
		logger.Warn("the mark of the last applied entry is damaged and ignored", "file", name)
	}
	return m, nil
}

// set notes that a command was applied. Without the mark a damaged log is noticed later, so failing is no failure.
func (m *appliedMark) set(index uint64) {
	var b [appliedSize]byte
	binary.BigEndian.PutUint64(b[:8], index)
	binary.BigEndian.PutUint32(b[8:], crc32.Checksum(b[:8], crc32.MakeTable(crc32.Castagnoli)))
	if _, err := m.file.WriteAt(b[:], 0); err != nil && !m.failed.Swap(true) {
		m.logger.Error("the mark of the last applied entry cannot be written", "err", err)
	}
}

// Close implements io.Closer.
func (m *appliedMark) Close() error { return m.file.Close() }

package quorum

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"millrace/storage"
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
	file   storage.File
	logger hclog.Logger
	failed atomic.Bool
}

func openAppliedMark(fsys storage.FS, name string, logger hclog.Logger) (*appliedMark, error) {
	f, err := fsys.Open(name, storage.OpenWrite|storage.OpenCreate)
	if err != nil {
		return nil, err
	}
	m := &appliedMark{file: f, logger: logger}
	var b [appliedSize]byte
	n, err := f.ReadAt(b[:], 0)
	switch {
	case n == appliedSize && binary.BigEndian.Uint32(b[8:]) == checksum(b[:], 8):
		m.index = binary.BigEndian.Uint64(b[:8])
	case n == appliedSize:
		logger.Warn("the mark of the last applied entry is damaged and ignored", "file", name)
	default: // new, or torn, or not to be read
		logger.Debug("no mark of the last applied entry", "file", name, "error", fmt.Sprint(err))
	}
	return m, nil
}

// set notes that a command was applied. Without the mark a damaged log is noticed later, so failing is no failure.
func (m *appliedMark) set(index uint64) {
	var b [appliedSize]byte
	binary.BigEndian.PutUint64(b[:8], index)
	binary.BigEndian.PutUint32(b[8:], crc32.Checksum(b[:8], crc32.MakeTable(crc32.Castagnoli)))
	if _, err := m.file.WriteAt(b[:], 0); err != nil && !m.failed.Swap(true) {
		m.logger.Error("the mark of the last applied entry cannot be written", "error", err)
	}
}

// Close implements io.Closer.
func (m *appliedMark) Close() error { return m.file.Close() }

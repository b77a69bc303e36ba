package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// Files that span the partitions of a directory.
const (
	lockFile          = ".lock"
	cleanFile         = ".kafka_cleanshutdown"
	metaFile          = "meta.properties"
	recoveryPointFile = "recovery-point-offset-checkpoint"
	logStartFile      = "log-start-offset-checkpoint"
	watermarkFile     = "replication-offset-checkpoint"
	topicIDFile       = "topic-id-checkpoint"
	cleanerFile       = "cleaner-offset-checkpoint"
)

const tmpSuffix = ".tmp"

// A checkpoint is a text file:
//
//	0                      version
//	2                      number of entries
//	orders 0 1234          one entry a line, fields parted by single spaces
//	orders 1 99
const checkpointVersion = 0

// encodeCheckpoint renders n entries, each written by line without its line end.
func encodeCheckpoint(n int, line func(dst []byte, i int) []byte) []byte {
	dst := make([]byte, 0, 16+32*n)
	dst = append(dst, '0'+checkpointVersion, '\n')
	dst = strconv.AppendInt(dst, int64(n), 10)
	dst = append(dst, '\n')
	for i := range n {
		dst = append(line(dst, i), '\n')
	}
	return dst
}

// decodeCheckpoint calls entry with the fields of each entry. Whatever is not exactly as
// encodeCheckpoint writes it is an error: a checkpoint is never half believed.
func decodeCheckpoint(data []byte, fields int, entry func(f []string) error) error {
	text, ended := strings.CutSuffix(string(data), "\n")
	if !ended {
		return errors.New("the last line is not ended")
	}
	lines := strings.Split(text, "\n")
	if lines[0] != strconv.Itoa(checkpointVersion) {
		return fmt.Errorf("version is %q, not %d", lines[0], checkpointVersion)
	}
	if len(lines) < 2 || lines[1] != strconv.Itoa(len(lines)-2) {
		return errors.New("number of entries does not match")
	}
	for _, l := range lines[2:] {
		f := strings.Split(l, " ")
		if len(f) != fields {
			return fmt.Errorf("entry %q has %d fields, not %d", l, len(f), fields)
		}
		if err := entry(f); err != nil {
			return fmt.Errorf("entry %q: %w", l, err)
		}
	}
	return nil
}

// logKey finds a log within its directory.
type logKey struct {
	topic     string
	partition int32
}

func (n PartitionName) key() logKey { return logKey{n.Topic, n.Partition} }

// encodeOffsets renders an offset checkpoint: topic, partition, offset.
func encodeOffsets(keys []logKey, offset func(i int) int64) []byte {
	return encodeCheckpoint(len(keys), func(dst []byte, i int) []byte {
		dst = append(append(dst, keys[i].topic...), ' ')
		dst = append(strconv.AppendInt(dst, int64(keys[i].partition), 10), ' ')
		return strconv.AppendInt(dst, offset(i), 10)
	})
}

// decodeOffsets reads an offset checkpoint.
func decodeOffsets(data []byte) (map[logKey]int64, error) {
	offsets := map[logKey]int64{}
	err := decodeCheckpoint(data, 3, func(f []string) error {
		p, err := parsePartition(f[1])
		if err != nil {
			return err
		}
		o, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil || o < 0 {
			return fmt.Errorf("offset %q", f[2])
		}
		offsets[logKey{f[0], p}] = o
		return nil
	})
	return offsets, err
}

func parsePartition(s string) (int32, error) {
	p, err := strconv.ParseInt(s, 10, 32)
	if err != nil || p < 0 || strconv.FormatInt(p, 10) != s {
		return 0, fmt.Errorf("partition %q", s)
	}
	return int32(p), nil
}

// readOffsets reads an offset checkpoint that may be missing.
func readOffsets(fsys FS, name string) (map[logKey]int64, error) {
	data, err := readFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return map[logKey]int64{}, nil
	}
	if err != nil {
		return nil, err
	}
	offsets, err := decodeOffsets(data)
	if err != nil {
		return nil, &CorruptionError{File: name, Position: -1, Err: err}
	}
	return offsets, nil
}

// readFile reads a whole file.
func readFile(fsys FS, name string) ([]byte, error) {
	f, err := fsys.Open(name, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	data := make([]byte, size)
	if n, err := f.ReadAt(data, 0); n < len(data) {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return data, nil
}

// writeFile replaces a file in one step: after a crash the old or the new one is there, whole.
func writeFile(fsys FS, name string, data []byte) error {
	if err := writeTmp(fsys, name, data, syncNow); err != nil {
		return err
	}
	if err := fsys.Rename(name+tmpSuffix, name); err != nil {
		return err
	}
	return fsys.SyncDir(path.Dir(name))
}

// syncWhen says whether a write syncs its file or leaves that to a later commit.
type syncWhen uint8

const (
	syncNow syncWhen = iota
	syncLater
)

// writeTmp writes the file that is to be renamed to name. It is a new file each time, so that
// nothing of a failed attempt is left in it.
func writeTmp(fsys FS, name string, data []byte, when syncWhen) error {
	tmp := name + tmpSuffix
	if err := fsys.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := fsys.Open(tmp, OpenWrite|OpenCreate|OpenExclusive)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err == nil && when == syncNow {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", tmp, err)
	}
	return nil
}

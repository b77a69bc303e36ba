package storage

import (
	"errors"
	"io/fs"
	"math"
	"strings"

	"millrace/record"
)

// Compaction writes new segments as .cleaned files, renames them to .swap when all of a group are
// whole, removes the segments they replace, and drops the suffix. finishSwap completes or undoes
// what a crash interrupted.
func finishSwap(fsys FS, path string, names []string) error {
	unfinished := int64(math.MaxInt64) // the group with this base was not whole
	for _, n := range names {
		if base, _, ok := parseOffsetFile(n); ok && strings.HasSuffix(n, cleanedSuffix) {
			unfinished = min(unfinished, base)
		}
	}
	var keep []string
	for _, n := range names {
		base, _, ok := parseOffsetFile(n)
		if ok && strings.HasSuffix(n, swapSuffix) && base < unfinished {
			keep = append(keep, n)
			continue
		}
		if err := fsys.Remove(path + "/" + n); err != nil {
			return err
		}
	}
	if len(keep) > 0 {
		if err := swapIn(fsys, path, keep); err != nil {
			return err
		}
	}
	return fsys.SyncDir(path)
}

// swapIn puts whole .swap segments in the place of those they replace.
func swapIn(fsys FS, path string, names []string) error {
	first, last := int64(math.MaxInt64), int64(-1)
	for _, n := range names {
		if base, suffix, _ := parseOffsetFile(n); suffix == logSuffix+swapSuffix {
			first, last = min(first, base), max(last, base)
		}
	}
	end := int64(-1)
	if last >= 0 {
		var err error
		if end, err = endOfFile(fsys, offsetFileName(path, last, logSuffix+swapSuffix)); err != nil {
			return err
		}
	}
	entries, err := fsys.List(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		base, suffix, ok := parseOffsetFile(e.Name)
		if !ok || base < first || base >= max(end, last+1) {
			continue
		}
		switch suffix {
		case logSuffix, indexSuffix, timeSuffix, txnSuffix:
			if err := fsys.Remove(path + "/" + e.Name); err != nil {
				return err
			}
		}
	}
	for _, pass := range []string{indexSuffix, timeSuffix, txnSuffix, logSuffix} { // the log file last
		for _, n := range names {
			if !strings.HasSuffix(n, pass+swapSuffix) {
				continue
			}
			name := path + "/" + n
			if err := fsys.Rename(name, strings.TrimSuffix(name, swapSuffix)); err != nil {
				return err
			}
		}
	}
	return nil
}

// endOfFile is the offset after the last batch in a log file.
func endOfFile(fsys FS, name string) (end int64, err error) {
	f, err := fsys.Open(name, 0)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return 0, err
	}
	header := make([]byte, record.HeaderSize)
	for pos := int64(0); pos+record.HeaderSize <= size; {
		if _, err := f.ReadAt(header, pos); err != nil {
			return 0, err
		}
		b := record.Batch(header)
		if b.Length() < record.HeaderSize || b.Magic() != batchMagic {
			return 0, &CorruptionError{File: name, Position: pos, Err: record.ErrCorrupt}
		}
		end = b.NextOffset()
		pos += int64(b.Length())
	}
	return end, nil
}

// isMissing says whether an error means that a file is not there.
func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

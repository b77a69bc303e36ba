package storage

import (
	"errors"
	"io/fs"
	"math"
	"slices"
	"strings"

	"millrace/record"
)

// Compaction writes new segments as .cleaned files, renames them to .swap when all of a group are
// whole, removes the segments they replace, and drops the suffix. finishSwap completes or undoes
// what a crash interrupted.
func finishSwap(fsys FS, path string, names []string) error {
	unfinished := int64(math.MaxInt64) // the group with this base was not whole
	whole := map[int64]bool{}          // bases with a log file, which is the last to get its name and the first to go
	for _, n := range names {
		base, suffix, ok := parseOffsetFile(n)
		if ok && strings.HasSuffix(n, cleanedSuffix) {
			unfinished = min(unfinished, base)
		}
		if ok && suffix == logSuffix+swapSuffix {
			whole[base] = true
		}
	}
	var keep []string
	for _, n := range names {
		base, _, ok := parseOffsetFile(n)
		if ok && strings.HasSuffix(n, swapSuffix) && base < unfinished && whole[base] {
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
	if err := removeSwapped(fsys, path, names); err != nil {
		return err
	}
	for _, k := range swapOrder() {
		for _, n := range names {
			if !strings.HasSuffix(n, k.suffix()+swapSuffix) {
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

// removeSwapped removes the segments that others replace. Of those with the base of one in their place the log file is
// the last to go: where it is gone, what else has that base is new.
func removeSwapped(fsys FS, path string, names []string) error {
	replaced := map[int64]bool{} // bases of the new ones: whether there is an old one
	first, last := int64(math.MaxInt64), int64(-1)
	for _, n := range names {
		if base, suffix, _ := parseOffsetFile(n); suffix == logSuffix+swapSuffix {
			first, last = min(first, base), max(last, base)
			replaced[base] = false
		}
	}
	end, err := endOfFile(fsys, offsetFileName(path, last, logSuffix+swapSuffix))
	if err != nil {
		return err
	}
	entries, err := fsys.List(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		base, suffix, ok := parseOffsetFile(e.Name)
		if _, twice := replaced[base]; ok && twice && suffix == logSuffix {
			replaced[base] = true
		}
	}
	var logs []string
	for _, e := range entries {
		base, suffix, ok := parseOffsetFile(e.Name)
		old, twice := replaced[base]
		if !ok || base < first || base >= max(end, last+1) || twice && !old {
			continue
		}
		switch suffix {
		case logSuffix:
			logs = append(logs, e.Name)
		case indexSuffix, timeSuffix, txnSuffix:
			if err := fsys.Remove(path + "/" + e.Name); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Backward(logs) { // that with the base of the new one last
		if err := fsys.Remove(path + "/" + name); err != nil {
			return err
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

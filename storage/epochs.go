package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"sort"
	"strconv"
	"sync"
)

const epochFile = "leader-epoch-checkpoint"

// epochStart says that epoch wrote from offset start on, until the next epoch's start.
type epochStart struct {
	epoch int32
	start int64
}

// epochCache knows which leader epoch wrote which offsets. Epochs and starts both strictly increase
// along it. It is kept on disk up to the recovery point; what lies past that is found again in the
// batches.
type epochCache struct {
	mu      sync.Mutex
	entries []epochStart // guarded by mu
	saved   []epochStart // guarded by mu; what the file holds
}

// load puts what the file holds in front of what was assigned before the file was read.
func (c *epochCache) load(stored []epochStart) {
	c.mu.Lock()
	defer c.mu.Unlock()
	early := c.entries
	c.entries = slices.Clone(stored)
	for _, e := range early {
		c.assignLocked(e)
	}
}

// epochsBelow gives the epochs that have written something in a log that ends at end.
func epochsBelow(entries []epochStart, end int64) []epochStart {
	return entries[:sort.Search(len(entries), func(i int) bool { return entries[i].start >= end })]
}

// assign adds an epoch unless it is known or older than the latest.
func (c *epochCache) assign(epoch int32, start int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.assignLocked(epochStart{epoch, start})
}

func (c *epochCache) assignLocked(e epochStart) {
	if e.epoch < 0 || len(c.entries) > 0 && e.epoch <= c.entries[len(c.entries)-1].epoch {
		return
	}
	// An epoch that wrote nothing leaves no trace: its start is the next one's too.
	for len(c.entries) > 0 && c.entries[len(c.entries)-1].start >= e.start {
		c.entries = c.entries[:len(c.entries)-1]
	}
	c.entries = append(c.entries, e)
}

// truncateEnd forgets the epochs that start at or above offset.
func (c *epochCache) truncateEnd(offset int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries = epochsBelow(c.entries, offset)
}

// truncateStart forgets the epochs that end at or below offset; the one that covers it starts there.
func (c *epochCache) truncateStart(offset int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := sort.Search(len(c.entries), func(i int) bool { return c.entries[i].start > offset }) - 1
	if i < 0 || c.entries[i].start == offset && i == 0 {
		return
	}
	c.entries = slices.Clone(c.entries[i:])
	c.entries[0].start = offset
}

// clear forgets all epochs.
func (c *epochCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries = nil
}

// latest is the greatest epoch, -1 if there is none.
func (c *epochCache) latest() int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.entries) == 0 {
		return -1
	}
	return c.entries[len(c.entries)-1].epoch
}

// at is the epoch that wrote an offset, -1 if unknown.
func (c *epochCache) at(offset int64) int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := sort.Search(len(c.entries), func(i int) bool { return c.entries[i].start > offset })
	if i == 0 {
		return -1
	}
	return c.entries[i-1].epoch
}

// span is the epoch that wrote an offset, -1 if unknown, and the offset up to which that is so.
func (c *epochCache) span(offset int64) (epoch int32, until int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := sort.Search(len(c.entries), func(i int) bool { return c.entries[i].start > offset })
	epoch, until = -1, math.MaxInt64
	if i > 0 {
		epoch = c.entries[i-1].epoch
	}
	if i < len(c.entries) {
		until = c.entries[i].start
	}
	return epoch, until
}

// endOf gives the greatest epoch at or below the asked one with the offset at which it ended, in a
// log that ends at logEnd. An epoch above the latest is unknown. One below all known gives itself,
// ending where the first known starts.
func (c *epochCache) endOf(epoch int32, logEnd int64) (found int32, end int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.entries)
	if epoch < 0 || n == 0 || epoch > c.entries[n-1].epoch {
		return -1, -1, false
	}
	if epoch == c.entries[n-1].epoch {
		return epoch, logEnd, true
	}
	higher := sort.Search(n, func(i int) bool { return c.entries[i].epoch > epoch })
	if higher == 0 {
		return epoch, c.entries[0].start, true
	}
	return c.entries[higher-1].epoch, c.entries[higher].start, true
}

// unsaved gives what the epoch file should hold, if that differs from what it does. Epochs that have
// written nothing yet, so start at the log's end, are left out: they may be forgotten.
func (c *epochCache) unsaved(logEnd int64) (entries []epochStart, differs bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	written := epochsBelow(c.entries, logEnd)
	if slices.Equal(written, c.saved) {
		return nil, false
	}
	return slices.Clone(written), true
}

// stored notes what the epoch file holds.
func (c *epochCache) stored(entries []epochStart) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saved = entries
}

// encodeEpochs renders leader-epoch-checkpoint: epoch, start offset.
func encodeEpochs(entries []epochStart) []byte {
	return encodeCheckpoint(len(entries), func(dst []byte, i int) []byte {
		dst = append(strconv.AppendInt(dst, int64(entries[i].epoch), 10), ' ')
		return strconv.AppendInt(dst, entries[i].start, 10)
	})
}

// decodeEpochs reads leader-epoch-checkpoint.
func decodeEpochs(data []byte) ([]epochStart, error) {
	var entries []epochStart
	err := decodeCheckpoint(data, 2, func(f []string) error {
		epoch, err := strconv.ParseInt(f[0], 10, 32)
		if err != nil || epoch < 0 {
			return fmt.Errorf("epoch %q", f[0])
		}
		start, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil || start < 0 {
			return fmt.Errorf("start offset %q", f[1])
		}
		e := epochStart{int32(epoch), start}
		if n := len(entries); n > 0 && (e.epoch <= entries[n-1].epoch || e.start <= entries[n-1].start) {
			return errors.New("epochs and offsets must increase")
		}
		entries = append(entries, e)
		return nil
	})
	return entries, err
}

// readEpochs reads a partition's epoch file, which may be missing.
func readEpochs(fsys FS, folder string) ([]epochStart, error) {
	name := folder + "/" + epochFile
	data, err := readFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entries, err := decodeEpochs(data)
	if err != nil {
		return nil, &CorruptionError{File: name, Position: -1, Err: err}
	}
	return entries, nil
}

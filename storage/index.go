package storage

import (
	"encoding/binary"
	"errors"
	"math"
	"sync/atomic"
)

// Both indexes of a segment are lists of fixed-size entries, big-endian, whose two columns strictly
// increase:
//
//	.index      +----------------+----------------+
//	            | rel. offset 4  | position 4     |  a batch's last offset minus the base, its start
//	            +----------------+----------------+
//	.timeindex  +--------------------------------+----------------+
//	            | timestamp 8                    | rel. offset 4  |  the greatest timestamp so far,
//	            +--------------------------------+----------------+  its batch's last offset
//
// An entry of both is made for a batch when more than index.interval.bytes lie since the last one;
// the time index leaves it out when the timestamp has not grown, and ends with one for the whole
// segment when that is full or closed.
const (
	offsetEntrySize = 8
	timeEntrySize   = 12
)

// entry is one entry of either index, column by column.
type entry struct {
	key   int64 // relative offset, or timestamp
	value int64 // position, or relative offset
}

func (k fileKind) entrySize() int {
	if k == timeKind {
		return timeEntrySize
	}
	return offsetEntrySize
}

func (k fileKind) appendEntry(dst []byte, e entry) []byte {
	if k == timeKind {
		dst = binary.BigEndian.AppendUint64(dst, uint64(e.key))
	} else {
		dst = binary.BigEndian.AppendUint32(dst, uint32(e.key))
	}
	return binary.BigEndian.AppendUint32(dst, uint32(e.value))
}

func (k fileKind) entryAt(p []byte, i int) entry {
	p = p[i*k.entrySize():]
	if k == timeKind {
		return entry{int64(binary.BigEndian.Uint64(p)), int64(int32(binary.BigEndian.Uint32(p[8:])))}
	}
	return entry{int64(int32(binary.BigEndian.Uint32(p))), int64(int32(binary.BigEndian.Uint32(p[4:])))}
}

// column names what of an entry a search compares.
type column uint8

const (
	byKey column = iota
	byValue
)

func (c column) of(e entry) int64 {
	if c == byValue {
		return e.value
	}
	return e.key
}

// index is one index of a segment: its first entries in a file, the rest in memory. Entries are
// added by the log's writer only; readers take no lock.
type index struct {
	kind  fileKind
	state atomic.Pointer[indexState] // nil until the file has been looked at
}

// indexState is replaced, not changed, but for n: entries are written past n and then counted.
type indexState struct {
	saved int          // entries in the file
	tail  []byte       // the entries after them, full length, of which n bytes are in use
	n     atomic.Int64 // only grows
}

// Sizes of the tail: it starts small, as most logs are idle, doubles, and is written to the file
// when it reaches its greatest size.
const (
	firstTailEntries = 16
	maxTailEntries   = 4096
)

func newIndexState(saved int) *indexState { return &indexState{saved: saved} }

// count is the number of entries.
func (x *index) count() int {
	st := x.state.Load()
	return st.saved + int(st.n.Load())/x.kind.entrySize()
}

// unsaved is the number of entries that are in memory only.
func (x *index) unsaved() int {
	st := x.state.Load()
	if st == nil {
		return 0
	}
	return int(st.n.Load()) / x.kind.entrySize()
}

// addLocked appends an entry.
func (x *index) addLocked(e entry) {
	st := x.state.Load()
	size := int64(x.kind.entrySize())
	n := st.n.Load()
	if n+size > int64(len(st.tail)) {
		grown := newIndexState(st.saved)
		grown.tail = make([]byte, max(2*len(st.tail), firstTailEntries*int(size)))
		copy(grown.tail, st.tail[:n])
		grown.n.Store(n)
		x.state.Store(grown)
		st = grown
	}
	x.kind.appendEntry(st.tail[:n], e)
	st.n.Store(n + size)
}

// tailFullLocked says that the entries in memory should go to the file.
func (x *index) tailFullLocked() bool {
	return x.state.Load().n.Load() >= int64(maxTailEntries*x.kind.entrySize())
}

// floor gives the last entry whose column is at or below target, and its place; i is -1 if there is
// none.
func (s *segment) floor(x *index, c column, target int64) (i int, e entry, err error) {
	st := x.state.Load()
	n := int(st.n.Load()) / x.kind.entrySize()
	if n > 0 && c.of(x.kind.entryAt(st.tail, 0)) <= target {
		i, e = floorIn(x.kind, st.tail, n, c, target)
		return st.saved + i, e, nil
	}
	if st.saved == 0 {
		return -1, entry{}, nil
	}
	buf := s.log.dir.scratch.get()
	defer s.log.dir.scratch.put(buf)
	return s.floorInFile(x.kind, st.saved, c, target, buf)
}

// floorIn searches n entries in memory.
func floorIn(k fileKind, p []byte, n int, c column, target int64) (int, entry) {
	lo, hi := 0, n // entries before lo are <= target, those from hi on are greater
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if c.of(k.entryAt(p, mid)) <= target {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return -1, entry{}
	}
	return lo - 1, k.entryAt(p, lo-1)
}

// floorInFile searches the first n entries of the index file: by halves until what is left fits
// into buf, then there.
func (s *segment) floorInFile(k fileKind, n int, c column, target int64, buf []byte) (int, entry, error) {
	size := k.entrySize()
	lo, hi := 0, n // as in floorIn
	for hi-lo >= len(buf)/size {
		mid := int(uint(lo+hi) / 2)
		if err := s.readAt(k, buf[:size], int64(mid)*int64(size)); err != nil {
			return 0, entry{}, err
		}
		if c.of(k.entryAt(buf, 0)) <= target {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	from := max(lo-1, 0) // the entry before lo may be the one
	block := buf[:(hi-from)*size]
	if err := s.readAt(k, block, int64(from)*int64(size)); err != nil {
		return 0, entry{}, err
	}
	i, e := floorIn(k, block, hi-from, c, target)
	if i < 0 {
		return -1, entry{}, nil
	}
	return from + i, e, nil
}

// last gives the last entry; ok is false if there is none.
func (s *segment) last(x *index) (e entry, ok bool, err error) {
	i, e, err := s.floor(x, byKey, math.MaxInt64)
	return e, i >= 0 && err == nil, err
}

// errDamagedIndex says that an index file is missing or cannot be right; it is then made anew from
// the batches.
var errDamagedIndex = errors.New("index is damaged")

// loadIndex looks at an index file for the first time, and whether it can be right.
func (s *segment) loadIndex(x *index) (*indexState, error) {
	if st := x.state.Load(); st != nil {
		return st, nil
	}
	n, whole, err := s.countEntries(x.kind)
	if err != nil {
		return nil, err
	}
	if !whole {
		return nil, errDamagedIndex
	}
	if err := s.checkIndex(x.kind, n); err != nil {
		return nil, err
	}
	st := newIndexState(n)
	if !x.state.CompareAndSwap(nil, st) {
		st = x.state.Load()
	}
	return st, nil
}

// countEntries counts the entries in an index file; whole says that no part of another follows them.
// A file that was not cut to its used size ends in zeros.
func (s *segment) countEntries(k fileKind) (n int, whole bool, err error) {
	e, err := s.log.dir.fs.Stat(s.fileName(k))
	if isMissing(err) {
		return 0, false, errDamagedIndex
	}
	if err != nil {
		return 0, false, err
	}
	if e.Size > math.MaxInt32 {
		return 0, false, errDamagedIndex
	}
	size := int64(k.entrySize())
	n, err = s.usedEntries(k, int(e.Size/size))
	return n, e.Size%size == 0, err
}

// usedEntries finds the end of the prefix before zero entries. The first entry may be zero.
func (s *segment) usedEntries(k fileKind, n int) (int, error) {
	lo, hi := min(n, 1), n
	for first := true; lo < hi; first = false {
		mid := int(uint(lo+hi) / 2)
		if first {
			mid = hi - 1 // usually the file is cut
		}
		e, err := s.entryInFile(k, mid)
		if err != nil {
			return 0, err
		}
		if e == (entry{}) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo, nil
}

// checkIndex looks at the first and last of n entries.
func (s *segment) checkIndex(k fileKind, n int) error {
	if n == 0 {
		return nil
	}
	first, err := s.entryInFile(k, 0)
	if err != nil {
		return err
	}
	last, err := s.entryInFile(k, n-1)
	if err != nil {
		return err
	}
	bad := first.value < 0 || last.value < 0 || n > 1 && (last.key <= first.key || last.value <= first.value)
	if k == offsetKind {
		bad = bad || first.key < 0 || last.value >= s.size.Load()
	}
	if bad {
		return errDamagedIndex
	}
	return nil
}

func (s *segment) entryInFile(k fileKind, i int) (entry, error) {
	buf := s.log.dir.scratch.get()
	defer s.log.dir.scratch.put(buf)
	size := k.entrySize()
	if err := s.readAt(k, buf[:size], int64(i)*int64(size)); err != nil {
		return entry{}, err
	}
	return k.entryAt(buf, 0), nil
}

// saveIndexLocked writes the entries in memory to the index file and gives the file, to be synced
// and closed by the caller. A file is made even for no entries.
func (s *segment) saveIndexLocked(x *index) (File, error) {
	st := x.state.Load()
	size := int64(x.kind.entrySize())
	flag := OpenWrite | OpenCreate
	if st.saved == 0 {
		flag |= OpenTruncate
	}
	f, err := s.log.dir.fs.Open(s.fileName(x.kind), flag)
	if err != nil {
		return nil, err
	}
	if n := st.n.Load(); n > 0 {
		if _, err := f.WriteAt(st.tail[:n], int64(st.saved)*size); err != nil {
			f.Close()
			return nil, err
		}
		x.state.Store(newIndexState(st.saved + int(n/size)))
	}
	return f, nil
}

// cutIndexLocked keeps the first n entries, all of them saved, and cuts the file behind them.
func (s *segment) cutIndexLocked(x *index, n int) error {
	f, err := s.log.dir.fs.Open(s.fileName(x.kind), OpenWrite|OpenCreate)
	if err != nil {
		return err
	}
	err = f.Truncate(int64(n) * int64(x.kind.entrySize()))
	x.state.Store(newIndexState(n))
	s.indexChanged = true
	return errors.Join(err, f.Close())
}

package storagetest

import (
	"math/rand/v2"
)

// Mode says what of the unsynced data survives a crash.
type Mode uint8

// The crash modes.
const (
	// KeepAll keeps everything written: the process was killed, the machine runs on. What was not
	// synced still is not, so a later crash may lose it.
	KeepAll Mode = iota
	// LoseAll keeps only synced data under synced names: a power cut at its worst.
	LoseAll
	// Prefix keeps of each file and directory a prefix of what happened to it, the last write cut at
	// a sector, sometimes with the file's size already extended by zeros: an ordered journal.
	Prefix
	// Pages keeps any of the pages that were written, with zeros in the holes: unordered write-back.
	Pages
)

// Modes are all crash modes.
func Modes() []Mode { return []Mode{KeepAll, LoseAll, Prefix, Pages} }

// String names the mode.
func (m Mode) String() string { return [...]string{"KeepAll", "LoseAll", "Prefix", "Pages"}[m] }

const (
	sector   = 512
	pageSize = 4096
)

// Crash ends this life of the disk and gives what survived as a new one, without faults and quota.
// rng decides where the mode leaves a choice.
func (f *FS) Crash(mode Mode, rng *rand.Rand) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead = true
	f.waits.Broadcast()
	c := crash{mode: mode, rng: rng, done: map[*node]*node{}}
	return newFS(c.survivor(f.root))
}

// Copy gives another disk with the same content, as a backup made at one instant. What was not synced is not synced
// there either.
func (f *FS) Copy() *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := crash{mode: KeepAll, done: map[*node]*node{}}
	return newFS(c.survivor(f.root))
}

type crash struct {
	mode Mode
	rng  *rand.Rand
	done map[*node]*node // survivors by what they were
}

// survivor gives what is left of a file or a directory with all below it.
func (c *crash) survivor(n *node) *node {
	if n == nil {
		return nil
	}
	if s := c.done[n]; s != nil {
		return s
	}
	s := &node{modTime: n.modTime}
	c.done[n] = s
	if n.entries == nil {
		c.file(n, s)
	} else {
		c.dir(n, s)
	}
	return s
}

func (c *crash) dir(n, s *node) {
	s.entries, s.kept = map[string]*node{}, map[string]*node{}
	for _, name := range sortedNames(n.kept) {
		s.kept[name] = c.survivor(n.kept[name])
	}
	survive := 0
	switch c.mode {
	case KeepAll:
		survive = len(n.renames)
	case Prefix, Pages:
		survive = c.rng.IntN(len(n.renames) + 1)
	}
	changes := make([]nameChange, survive)
	for i, change := range n.renames[:survive] {
		changes[i] = nameChange{change.unlink, change.link, c.survivor(change.node)}
	}
	if c.mode == KeepAll { // also what a failed sync has lost
		s.renames = changes
		for _, name := range n.names() {
			s.entries[name] = c.survivor(n.entries[name])
		}
		return
	}
	for _, change := range changes {
		change.apply(s.kept)
	}
	for name, kept := range s.kept {
		s.entries[name] = kept
	}
}

func (c *crash) file(n, s *node) {
	s.durable = append([]byte(nil), n.durable...)
	switch c.mode {
	case KeepAll:
		s.data = append([]byte(nil), n.data...)
		s.changes = append([]fileChange(nil), n.changes...)
		return
	case Prefix:
		c.prefix(n, s)
	case Pages:
		c.pages(n, s)
	}
	s.data = append([]byte(nil), s.durable...)
}

// prefix applies some of the changes and a part of the next one.
func (c *crash) prefix(n, s *node) {
	whole := c.rng.IntN(len(n.changes) + 1)
	for _, change := range n.changes[:whole] {
		s.durable = change.apply(s.durable)
	}
	if whole == len(n.changes) || n.changes[whole].cut {
		return
	}
	torn := n.changes[whole]
	end := torn.off + int64(c.rng.IntN(len(torn.data)+1))
	end -= end % sector
	if part := end - torn.off; part > 0 {
		s.durable = fileChange{off: torn.off, data: torn.data[:part]}.apply(s.durable)
	}
	if c.rng.IntN(4) == 0 {
		s.durable = resize(s.durable, max(int64(len(s.durable)), torn.off+int64(len(torn.data))))
	}
}

// pages takes some of the pages that were written, whatever their order.
func (c *crash) pages(n, s *node) {
	dirty := map[int64]bool{}
	cut := false
	for _, change := range n.changes {
		cut = cut || change.cut
		for p := change.off / pageSize; !change.cut && p*pageSize < change.off+int64(len(change.data)); p++ {
			dirty[p] = true
		}
	}
	size := int64(len(s.durable))
	if final := int64(len(n.data)); final > size || cut && c.rng.IntN(2) == 0 {
		size = final
	}
	short := c.rng.IntN(2) == 0 // the size follows the pages, or is there before them
	survived := int64(len(s.durable))
	s.durable = resize(s.durable, size)
	for p := int64(0); p*pageSize < size; p++ {
		if !dirty[p] || c.rng.IntN(2) == 0 || p*pageSize >= int64(len(n.data)) {
			continue
		}
		end := min((p+1)*pageSize, size, int64(len(n.data)))
		copy(s.durable[p*pageSize:end], n.data[p*pageSize:end])
		survived = max(survived, end)
	}
	if short && survived < size {
		s.durable = resize(s.durable, survived)
	}
}

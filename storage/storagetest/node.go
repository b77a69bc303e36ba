package storagetest

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"sort"
	"syscall"
	"time"
)

// node is a file or a directory: what a process sees, what is durable, and the changes between.
type node struct {
	modTime time.Time

	data    []byte // of a file
	durable []byte
	changes []fileChange

	entries map[string]*node // of a directory, nil for a file
	kept    map[string]*node // its durable entries
	renames []nameChange
}

// fileChange is a write, or a truncation to size.
type fileChange struct {
	off  int64
	data []byte
	size int64
	cut  bool
}

// nameChange removes a name, adds one, or both: a rename.
type nameChange struct {
	unlink string
	link   string
	node   *node
}

func newDir() *node { return &node{entries: map[string]*node{}, kept: map[string]*node{}} }

// apply gives what a file holds after a change.
func (c fileChange) apply(p []byte) []byte {
	if c.cut {
		return resize(p, c.size)
	}
	p = resize(p, max(int64(len(p)), c.off+int64(len(c.data))))
	copy(p[c.off:], c.data)
	return p
}

// resize cuts p or extends it with zeros.
func resize(p []byte, size int64) []byte {
	n := int64(len(p))
	if size <= n {
		clear(p[size:]) // so that a later extension finds zeros
		return p[:size]
	}
	if size <= int64(cap(p)) {
		return p[:size]
	}
	grown := make([]byte, size, max(size, 2*n))
	copy(grown, p)
	return grown
}

func (c nameChange) apply(m map[string]*node) {
	if c.unlink != "" {
		delete(m, c.unlink)
	}
	if c.link != "" {
		m[c.link] = c.node
	}
}

// change is one pending change of a file or directory.
func (n *node) change(c any) {
	switch c := c.(type) {
	case fileChange:
		n.data = c.apply(n.data)
		n.changes = append(n.changes, c)
		n.modTime = time.Now()
	case nameChange:
		c.apply(n.entries)
		n.renames = append(n.renames, c)
	}
}

// sync makes the pending changes durable, or loses them.
func (n *node) sync(keep bool) {
	if keep {
		for _, c := range n.changes {
			n.durable = c.apply(n.durable)
		}
		for _, c := range n.renames {
			c.apply(n.kept)
		}
	}
	n.changes, n.renames = nil, nil
}

// syncOr makes the pending changes durable, unless a fault is injected, and gives what the sync answers.
func (n *node) syncOr(injected error) error {
	if errors.Is(injected, ErrLie) {
		return nil
	}
	n.sync(injected == nil)
	return injected
}

// names are a directory's names, sorted.
func (n *node) names() []string { return sortedNames(n.entries) }

func sortedNames(m map[string]*node) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// each calls f with the tree below n, n included, by name.
func (n *node) each(f func(name string, n *node)) { n.eachFrom(".", f) }

func (n *node) eachFrom(name string, f func(name string, n *node)) {
	f(name, n)
	for _, base := range n.names() {
		n.entries[base].eachFrom(path.Join(name, base), f)
	}
}

// file is an open file.
type file struct {
	fs       *FS
	node     *node
	name     string
	writable bool
	closed   bool // guarded by fs.mu
}

// begin is FS.begin for calls on the file.
func (f *file) begin(op Op) (injected, err error) {
	injected, err = f.fs.begin(op, f.name)
	switch {
	case err != nil:
	case f.closed:
		err = fs.ErrClosed
	case !f.writable && (op == OpWrite || op == OpTruncate):
		err = syscall.EBADF
	}
	return injected, err
}

// ReadAt implements storage.File.
func (f *file) ReadAt(p []byte, off int64) (n int, err error) {
	_, err = f.begin(OpRead)
	defer f.fs.end(&err)
	if err != nil {
		return 0, err
	}
	if off < int64(len(f.node.data)) {
		n = copy(p, f.node.data[off:])
	}
	if n < len(p) {
		err = io.EOF
	}
	return n, err
}

// WriteAt implements storage.File.
func (f *file) WriteAt(p []byte, off int64) (n int, err error) {
	_, err = f.begin(OpWrite)
	defer f.fs.end(&err)
	if err != nil {
		return 0, err
	}
	room := int64(len(p))
	if f.fs.quota > 0 {
		growth := max(off+room-int64(len(f.node.data)), 0)
		room -= max(growth-max(f.fs.quota-f.fs.used(), 0), 0)
	}
	if room > 0 {
		f.node.change(fileChange{off: off, data: append([]byte(nil), p[:room]...)})
	}
	if room = max(room, 0); room < int64(len(p)) {
		err = syscall.ENOSPC
	}
	return int(room), err
}

// used is the number of bytes in all files.
func (f *FS) used() (bytes int64) {
	f.root.each(func(_ string, n *node) { bytes += int64(len(n.data)) })
	return bytes
}

// Truncate implements storage.File.
func (f *file) Truncate(size int64) (err error) {
	_, err = f.begin(OpTruncate)
	defer f.fs.end(&err)
	if err != nil {
		return err
	}
	if size != int64(len(f.node.data)) {
		f.node.change(fileChange{size: size, cut: true})
	}
	return nil
}

// Sync implements storage.File.
func (f *file) Sync() (err error) {
	injected, err := f.begin(OpSync)
	defer f.fs.end(&err)
	if err != nil {
		return err
	}
	return f.node.syncOr(injected)
}

// Size implements storage.File.
func (f *file) Size() (size int64, err error) {
	_, err = f.begin(OpSize)
	defer f.fs.end(&err)
	if err != nil {
		return 0, err
	}
	return int64(len(f.node.data)), nil
}

// Close implements storage.File.
func (f *file) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.closed {
		return fs.ErrClosed
	}
	f.closed = true
	return nil
}

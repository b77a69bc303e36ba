// Package storagetest is a disk for tests: a storage.FS in memory that loses power, tears writes,
// runs full, fails, delays and rots on demand, the same way for the same seed.
//
// It models what POSIX promises and no more. What was written is readable at once, but durable only
// after Sync of the file and SyncDir of the directory that names it. A sync that fails loses the
// unsynced data for good, though it stays readable; the next sync succeeds, as on Linux.
//
// Crash ends one life of the disk: every later call on it and on its files fails with ErrCrashed, so
// nothing of the old process can act any more, and what survived is given as a new FS.
package storagetest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"millrace/storage"
)

// ErrCrashed is the answer to every call after a crash.
var ErrCrashed = errors.New("the disk is gone")

// ErrLie, given by a Fault to a sync, makes the sync say that all is well and do nothing: a disk whose cache lies. What
// was not synced may be synced later.
var ErrLie = errors.New("the disk lies")

// Op names a call, for faults.
type Op uint8

// The calls. Those from OpCreate on change the disk and count as operations.
const (
	OpOpen Op = iota
	OpRead
	OpSize
	OpList
	OpStat
	OpLock
	OpCreate // an Open that makes or empties a file
	OpWrite
	OpTruncate
	OpSync
	OpRename
	OpRemove
	OpMkdir
	OpSyncDir
	OpSyncAll
)

// String names the call.
func (o Op) String() string {
	return [...]string{"open", "read", "size", "list", "stat", "lock", "create", "write", "truncate", "sync",
		"rename", "remove", "mkdir", "syncdir", "syncall"}[o]
}

// Fault is asked before each call, with the file's name, and may delay it or make it fail. A delay
// passes in the fake time of testing/synctest, without any lock, and ends early when the disk crashes.
type Fault func(op Op, name string) (delay time.Duration, err error)

// Moment says on which side of an operation the power goes.
type Moment uint8

// The moments.
const (
	Before Moment = iota // the operation does not happen
	After                // it happens, but its caller never hears so
)

// FS is a disk in memory. It is safe for concurrent use.
type FS struct {
	mu    sync.Mutex
	waits *sync.Cond // whoever is delayed
	root  *node
	locks map[string]bool
	dead  bool
	ops   int
	stop  int // the operation that ends this life, counted from 1; 0: none
	when  Moment
	quota int64 // 0: none
	fault Fault
}

// New gives an empty disk.
func New() *FS { return newFS(newDir()) }

func newFS(root *node) *FS {
	f := &FS{root: root, locks: map[string]bool{}}
	f.waits = sync.NewCond(&f.mu)
	return f
}

// SetFault makes calls fail or wait; nil ends that.
func (f *FS) SetFault(fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

// SetQuota bounds the bytes in all files: a write beyond it writes what fits and gives ENOSPC. 0
// takes the bound away.
func (f *FS) SetQuota(bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.quota = bytes
}

// StopAt ends this life at the n-th operation from now on, counted from 1.
func (f *FS) StopAt(n int, when Moment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stop, f.when = f.ops+n, when
}

// Ops is the number of operations so far that changed the disk, or would have.
func (f *FS) Ops() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ops
}

// Stopped says whether this life has ended.
func (f *FS) Stopped() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dead
}

// begin applies faults and takes the lock; the caller gives it back. The fault comes first, without
// the lock, since it may sleep.
func (f *FS) begin(op Op, name string) (injected error, err error) {
	f.mu.Lock()
	fault := f.fault
	f.mu.Unlock()
	if fault != nil {
		var delay time.Duration
		if delay, injected = fault(op, name); delay > 0 {
			f.wait(delay)
		}
	}
	f.mu.Lock()
	if f.dead {
		return nil, ErrCrashed
	}
	if op < OpCreate {
		return injected, injected
	}
	f.ops++
	if f.ops == f.stop && f.when == Before {
		f.dead = true
		return nil, ErrCrashed
	}
	if op == OpSync || op == OpSyncDir || op == OpSyncAll {
		return injected, nil // the caller has something to lose
	}
	return injected, injected
}

// wait lets a delay pass, or the disk crash.
func (f *FS) wait(delay time.Duration) {
	end := time.Now().Add(delay)
	timer := time.AfterFunc(delay, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.waits.Broadcast()
	})
	defer timer.Stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	for !f.dead && time.Now().Before(end) {
		f.waits.Wait()
	}
}

// end gives the lock back, and ends this life if it was the last operation's turn.
func (f *FS) end(err *error) {
	if f.stop > 0 && f.ops == f.stop && !f.dead {
		f.dead = true
		*err = ErrCrashed
	}
	f.mu.Unlock()
}

func pathError(op Op, name string, err error) error {
	return &fs.PathError{Op: op.String(), Path: name, Err: err}
}

// find walks to a name.
func (f *FS) find(name string) (*node, error) {
	n := f.root
	if name == "." {
		return n, nil
	}
	for part := range strings.SplitSeq(name, "/") {
		if n.entries == nil {
			return nil, syscall.ENOTDIR
		}
		if n = n.entries[part]; n == nil {
			return nil, fs.ErrNotExist
		}
	}
	return n, nil
}

// parent walks to the directory of a name and gives the name's last part.
func (f *FS) parent(name string) (*node, string, error) {
	dir, base := path.Split(name)
	n, err := f.find(path.Clean(dir + "."))
	if err == nil && n.entries == nil {
		err = syscall.ENOTDIR
	}
	return n, base, err
}

// Open implements storage.FS.
func (f *FS) Open(name string, flag storage.OpenFlag) (opened storage.File, err error) {
	op := OpOpen
	if flag&(storage.OpenCreate|storage.OpenTruncate) != 0 {
		op = OpCreate
	}
	_, err = f.begin(op, name)
	defer f.end(&err)
	if err != nil {
		return nil, err
	}
	dir, base, err := f.parent(name)
	if err != nil {
		return nil, pathError(op, name, err)
	}
	n := dir.entries[base]
	switch {
	case n == nil && flag&storage.OpenCreate == 0:
		return nil, pathError(op, name, fs.ErrNotExist)
	case n == nil:
		n = &node{modTime: time.Now()}
		dir.change(nameChange{link: base, node: n})
	case flag&storage.OpenExclusive != 0:
		return nil, pathError(op, name, fs.ErrExist)
	case n.entries != nil:
		return nil, pathError(op, name, syscall.EISDIR)
	}
	if flag&storage.OpenTruncate != 0 && len(n.data) > 0 {
		n.change(fileChange{size: 0, cut: true})
	}
	return &file{fs: f, node: n, name: name, writable: flag&storage.OpenWrite != 0}, nil
}

// Rename implements storage.FS.
func (f *FS) Rename(oldName, newName string) (err error) {
	_, err = f.begin(OpRename, oldName)
	defer f.end(&err)
	if err != nil {
		return err
	}
	dir, from, err := f.parent(oldName)
	if err != nil {
		return pathError(OpRename, oldName, err)
	}
	other, to, err := f.parent(newName)
	if err != nil {
		return pathError(OpRename, newName, err)
	}
	n := dir.entries[from]
	switch old := other.entries[to]; {
	case n == nil:
		return pathError(OpRename, oldName, fs.ErrNotExist)
	case dir != other:
		return pathError(OpRename, newName, syscall.EXDEV)
	case old != nil && len(old.entries) > 0:
		return pathError(OpRename, newName, syscall.ENOTEMPTY)
	}
	dir.change(nameChange{unlink: from, link: to, node: n})
	return nil
}

// Remove implements storage.FS.
func (f *FS) Remove(name string) (err error) {
	_, err = f.begin(OpRemove, name)
	defer f.end(&err)
	if err != nil {
		return err
	}
	dir, base, err := f.parent(name)
	if err == nil && dir.entries[base] == nil {
		err = fs.ErrNotExist
	}
	if err == nil && len(dir.entries[base].entries) > 0 {
		err = syscall.ENOTEMPTY
	}
	if err != nil {
		return pathError(OpRemove, name, err)
	}
	dir.change(nameChange{unlink: base})
	return nil
}

// RemoveAll implements storage.FS. It is one operation.
func (f *FS) RemoveAll(name string) (err error) {
	_, err = f.begin(OpRemove, name)
	defer f.end(&err)
	if err != nil {
		return err
	}
	dir, base, err := f.parent(name)
	if err != nil || dir.entries[base] == nil {
		return nil
	}
	dir.change(nameChange{unlink: base})
	return nil
}

// Mkdir implements storage.FS.
func (f *FS) Mkdir(name string) (err error) {
	_, err = f.begin(OpMkdir, name)
	defer f.end(&err)
	if err != nil {
		return err
	}
	dir, base, err := f.parent(name)
	if err == nil && dir.entries[base] != nil {
		err = fs.ErrExist
	}
	if err != nil {
		return pathError(OpMkdir, name, err)
	}
	dir.change(nameChange{link: base, node: newDir()})
	return nil
}

// List implements storage.FS.
func (f *FS) List(name string) (entries []storage.Entry, err error) {
	_, err = f.begin(OpList, name)
	defer f.end(&err)
	if err != nil {
		return nil, err
	}
	n, err := f.find(name)
	if err == nil && n.entries == nil {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, pathError(OpList, name, err)
	}
	for _, base := range n.names() {
		entries = append(entries, storage.Entry{Name: base, Dir: n.entries[base].entries != nil})
	}
	return entries, nil
}

// Stat implements storage.FS.
func (f *FS) Stat(name string) (e storage.Entry, err error) {
	_, err = f.begin(OpStat, name)
	defer f.end(&err)
	if err != nil {
		return e, err
	}
	n, err := f.find(name)
	if err != nil {
		return e, pathError(OpStat, name, err)
	}
	return storage.Entry{
		Name: path.Base(name), Dir: n.entries != nil, Size: int64(len(n.data)), ModTime: n.modTime,
	}, nil
}

// SetModTime says when a file was last written. It is no operation: nothing but retention looks at it.
func (f *FS) SetModTime(name string, t time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.find(name)
	if err != nil {
		return pathError(OpStat, name, err)
	}
	n.modTime = t
	return nil
}

// SyncDir implements storage.FS.
func (f *FS) SyncDir(name string) (err error) {
	injected, err := f.begin(OpSyncDir, name)
	defer f.end(&err)
	if err != nil {
		return err
	}
	n, err := f.find(name)
	if err != nil {
		return pathError(OpSyncDir, name, err)
	}
	return n.syncOr(injected)
}

// SyncAll implements storage.FS.
func (f *FS) SyncAll() (err error) {
	injected, err := f.begin(OpSyncAll, ".")
	defer f.end(&err)
	if err != nil {
		return err
	}
	f.root.each(func(_ string, n *node) { err = n.syncOr(injected) })
	return err
}

// Lock implements storage.FS.
func (f *FS) Lock(name string) (lock io.Closer, err error) {
	_, err = f.begin(OpLock, name)
	defer f.end(&err)
	if err != nil {
		return nil, err
	}
	if f.locks[name] {
		return nil, fmt.Errorf("lock %s: %w", name, storage.ErrLocked)
	}
	f.locks[name] = true
	return unlock{f, name}, nil
}

type unlock struct {
	fs   *FS
	name string
}

func (u unlock) Close() error {
	u.fs.mu.Lock()
	defer u.fs.mu.Unlock()
	delete(u.fs.locks, u.name)
	return nil
}

// ReadFile gives what a process would read from a file.
func (f *FS) ReadFile(name string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.find(name)
	if err != nil {
		return nil, pathError(OpRead, name, err)
	}
	return append([]byte(nil), n.data...), nil
}

// WriteFile puts a file on the disk, durably, with the directories that lead to it.
func (f *FS) WriteFile(name string, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	dir := f.root
	parts := strings.Split(name, "/")
	for _, p := range parts[:len(parts)-1] {
		if dir.entries[p] == nil {
			dir.change(nameChange{link: p, node: newDir()})
			dir.sync(true)
		}
		dir = dir.entries[p]
	}
	n := &node{modTime: time.Now()}
	n.change(fileChange{data: append([]byte(nil), data...)})
	n.sync(true)
	dir.change(nameChange{link: parts[len(parts)-1], node: n})
	dir.sync(true)
}

// FlipBit changes one bit of a file, on disk and in memory.
func (f *FS) FlipBit(name string, off int64, bit uint) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.find(name)
	if err == nil && off >= int64(len(n.data)) {
		err = io.EOF
	}
	if err != nil {
		return pathError(OpWrite, name, err)
	}
	n.data[off] ^= 1 << (bit % 8)
	if off < int64(len(n.durable)) {
		n.durable[off] ^= 1 << (bit % 8)
	}
	return nil
}

// Used is the number of bytes in all files, which a quota counts.
func (f *FS) Used() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.used()
}

// Files lists the paths of all files, sorted.
func (f *FS) Files() (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.root.each(func(name string, n *node) {
		if n.entries == nil {
			names = append(names, name)
		}
	})
	sort.Strings(names)
	return names
}

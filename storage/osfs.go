package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Modes of what a data directory holds: records are nobody else's business.
const (
	dirMode  = 0o700
	fileMode = 0o600
)

// OSFS gives the operating system's files below root, which is made if it is missing. The root stays
// open as long as the FS is in use, so that SyncAll hears of write-back errors since then.
func OSFS(root string) (FS, error) {
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(abs, dirMode); err != nil {
		return nil, err
	}
	dir, err := os.Open(abs)
	if err != nil {
		return nil, err
	}
	return &osFS{root: abs, dir: dir}, nil
}

type osFS struct {
	root string
	dir  *os.File
}

func (o *osFS) path(name string) string { return filepath.Join(o.root, filepath.FromSlash(name)) }

func (o *osFS) Open(name string, flag OpenFlag) (File, error) {
	mode := os.O_RDONLY
	if flag&OpenWrite != 0 {
		mode = os.O_RDWR
	}
	if flag&OpenCreate != 0 {
		mode |= os.O_CREATE
	}
	if flag&OpenExclusive != 0 {
		mode |= os.O_EXCL
	}
	if flag&OpenTruncate != 0 {
		mode |= os.O_TRUNC
	}
	f, err := os.OpenFile(o.path(name), mode, fileMode)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (o *osFS) Rename(oldName, newName string) error {
	return os.Rename(o.path(oldName), o.path(newName))
}

func (o *osFS) Remove(name string) error    { return os.Remove(o.path(name)) }
func (o *osFS) RemoveAll(name string) error { return os.RemoveAll(o.path(name)) }
func (o *osFS) Mkdir(name string) error     { return os.Mkdir(o.path(name), dirMode) }

func (o *osFS) List(dir string) ([]Entry, error) {
	found, err := os.ReadDir(o.path(dir))
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, len(found))
	for i, e := range found {
		entries[i] = Entry{Name: e.Name(), Dir: e.IsDir()}
	}
	return entries, nil
}

func (o *osFS) Stat(name string) (Entry, error) {
	info, err := os.Stat(o.path(name))
	if err != nil {
		return Entry{}, err
	}
	return Entry{Name: info.Name(), Dir: info.IsDir(), Size: info.Size(), ModTime: info.ModTime()}, nil
}

// SetModTime says when a file was last written.
func (o *osFS) SetModTime(name string, t time.Time) error {
	return os.Chtimes(o.path(name), time.Time{}, t)
}

func (o *osFS) SyncDir(dir string) error {
	d, err := os.Open(o.path(dir))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func (o *osFS) SyncAll() error { return atPath("syncfs", o.root, withFD(o.dir, syncAll)) }

// atPath adds to the error of a system call what it was for.
func atPath(call, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: call, Path: name, Err: err}
}

func (o *osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(o.path(name), os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, err
	}
	err = withFD(f, func(fd int) error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrLocked
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", o.path(name), err)
	}
	return f, nil // closing the file gives up the lock
}

// osFile is an *os.File whose Sync leaves out the times of the inode.
type osFile struct{ *os.File }

func (f osFile) Sync() error { return atPath("fdatasync", f.Name(), withFD(f.File, syncData)) }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// withFD runs a system call on a file that cannot be closed meanwhile, again when it was
// interrupted.
func withFD(f *os.File, call func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var callErr error
	err = conn.Control(func(fd uintptr) {
		for {
			if callErr = call(int(fd)); !errors.Is(callErr, unix.EINTR) {
				return
			}
		}
	})
	if err != nil { // the only reason there is, in words of package os's own
		return fs.ErrClosed
	}
	return callErr
}

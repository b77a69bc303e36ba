package storage

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

// syncData writes a file's data, and of its metadata what is needed to read the data back.
func syncData(fd int) error { return unix.Fdatasync(fd) }

// syncAll writes everything that is dirty in the file system of fd. Since Linux 5.8 it reports
// write-back errors that happened after fd was opened.
func syncAll(fd int) error { return unix.Syncfs(fd) }

// rwfDontCache is RWF_DONTCACHE of Linux 6.14: written pages are dropped once they are on disk.
const rwfDontCache = 0x80

// WriteUncachedAt is WriteAt that leaves nothing in the page cache, where the kernel and the file system know how.
func (f osFile) WriteUncachedAt(p []byte, off int64) (n int, err error) {
	for n < len(p) && err == nil {
		var wrote int
		err = withFD(f.File, func(fd int) (err error) {
			wrote, err = unix.Pwritev2(fd, [][]byte{p[n:]}, off+int64(n), rwfDontCache)
			return err
		})
		switch {
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EINVAL):
			wrote, err = f.WriteAt(p[n:], off+int64(n))
		case err != nil:
			wrote, err = 0, atPath("write", f.Name(), err)
		case wrote == 0:
			err = io.ErrUnexpectedEOF
		}
		n += wrote
	}
	return n, err
}

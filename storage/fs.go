package storage

import (
	"io"
	"time"
)

// FS is the dozen file calls that a data directory needs. Names are slash-separated paths relative
// to the directory; "." is the directory itself. A missing name is fs.ErrNotExist, an unwanted one
// fs.ErrExist, no room is syscall.ENOSPC or EDQUOT.
//
// What is written is readable at once but survives a power cut only after Sync of the file and
// SyncDir of the directory that holds its name. After a failed sync nothing is known of the
// unsynced data, so it is never tried again.
type FS interface {
	// Open opens a regular file.
	Open(name string, flag OpenFlag) (File, error)
	// Rename gives a file or directory a new name in the same directory, replacing what is there.
	Rename(oldName, newName string) error
	// Remove removes a file or an empty directory.
	Remove(name string) error
	// RemoveAll removes a directory with all that is in it; a missing one is no error.
	RemoveAll(name string) error
	// Mkdir makes one directory.
	Mkdir(name string) error
	// List gives a directory's entries sorted by name, with Name and Dir only.
	List(dir string) ([]Entry, error)
	// Stat describes one name.
	Stat(name string) (Entry, error)
	// SyncDir makes the entries of a directory durable, but not those in its subdirectories.
	SyncDir(dir string) error
	// SyncAll makes everything written so far durable, files and directories.
	SyncAll() error
	// Lock takes an exclusive lock on a file, making it if need be, or fails with ErrLocked.
	Lock(name string) (io.Closer, error)
}

// File is an open file. ReadAt may run beside every other call, Close included: a read that comes
// after Close fails with fs.ErrClosed.
type File interface {
	io.ReaderAt
	io.WriterAt
	// Truncate cuts the file, or extends it with zeros.
	Truncate(size int64) error
	// Sync makes the file's data and size durable.
	Sync() error
	// Size is the file's size.
	Size() (int64, error)
	// Close gives the file up; it syncs nothing.
	Close() error
}

// OpenFlag says how a file is opened. The zero value opens an existing file for reading.
type OpenFlag uint8

// The ways to open a file; they combine.
const (
	OpenWrite     OpenFlag = 1 << iota // for reading and writing
	OpenCreate                         // make the file if it is missing
	OpenExclusive                      // with OpenCreate: fail if it is there
	OpenTruncate                       // start empty
)

// Entry describes a name in a directory.
type Entry struct {
	Name    string // the last element of the path
	Dir     bool
	Size    int64     // by Stat
	ModTime time.Time // by Stat
}

package storage

import "golang.org/x/sys/unix"

// syncData writes a file's data, and of its metadata what is needed to read the data back.
func syncData(fd int) error { return unix.Fdatasync(fd) }

// syncAll writes everything that is dirty in the file system of fd. Since Linux 5.8 it reports
// write-back errors that happened after fd was opened.
func syncAll(fd int) error { return unix.Syncfs(fd) }

package server

import "golang.org/x/sys/unix"

// space tells the size of the file system that holds a folder, and what an ordinary user may still write to it.
func space(dir string) func() (total, usable int64) {
	return func() (total, usable int64) {
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) != nil {
			return -1, -1
		}
		return int64(st.Blocks) * st.Bsize, int64(st.Bavail) * st.Bsize
	}
}

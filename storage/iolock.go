package storage

// ioLock is a mutex made of a channel, for locks that are held across file I/O: who waits for one
// waits on a channel, which a test's fake time understands. The zero value is not usable.
type ioLock chan struct{}

func newIOLock() ioLock { return make(ioLock, 1) }

// Lock takes the lock.
func (l ioLock) Lock() { l <- struct{}{} }

// Unlock gives it back.
func (l ioLock) Unlock() { <-l }

package simtest

import (
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"time"

	"millrace/storage/storagetest"
)

// The ends of a node's life, by what its disk keeps.
const modeKill = storagetest.KeepAll

// powerModes are what a power cut may leave.
func powerModes() []storagetest.Mode {
	return []storagetest.Mode{storagetest.LoseAll, storagetest.Prefix, storagetest.Prefix, storagetest.Pages}
}

// diskFaults is what is wrong with a machine's disk. It outlives the disk's lives.
type diskFaults struct {
	mu     sync.Mutex // guards all below
	rng    *rand.Rand
	frozen time.Time     // no call returns before
	slow   time.Duration // what a sync takes, at most
	until  time.Time     // of slow
	last   time.Time     // when the last call that was delayed returns
	fails  int           // syncs or writes that fail still
	failOp storagetest.Op
	where  string    // what the names of the files that fail contain
	lies   time.Time // until when syncs of logs do nothing
	told   bool      // one of them did nothing
}

// fault is a storagetest.Fault.
func (d *diskFaults) fault(op storagetest.Op, name string) (delay time.Duration, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if now.Before(d.frozen) {
		delay = d.frozen.Sub(now)
	}
	syncs := op == storagetest.OpSync || op == storagetest.OpSyncDir || op == storagetest.OpSyncAll
	if syncs && now.Before(d.until) {
		delay += time.Duration(d.rng.Int64N(int64(d.slow) + 1))
	}
	if back := now.Add(delay); back.After(d.last) {
		d.last = back
	}
	// A sync of everything is one of the files in question too.
	if d.fails > 0 && (op == d.failOp && strings.Contains(name, d.where) ||
		op == storagetest.OpSyncAll && d.failOp == storagetest.OpSync) {
		d.fails--
		err = syscall.EIO
	}
	if op == storagetest.OpSync && err == nil && now.Before(d.lies) && strings.HasSuffix(name, ".log") &&
		!strings.HasPrefix(name, "metadata") {
		d.told = true
		err = storagetest.ErrLie
	}
	return delay, err
}

// lie has syncs of logs do nothing, for a time.
func (d *diskFaults) lie(length time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lies = time.Now().Add(length)
}

// lied says whether something may not be on the disk that was said to be.
func (d *diskFaults) lied() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.told
}

// freeze holds every call for a time.
func (d *diskFaults) freeze(length time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if end := time.Now().Add(length); end.After(d.frozen) {
		d.frozen = end
	}
}

// slowDown makes syncs take up to a time, for a time.
func (d *diskFaults) slowDown(by, length time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slow, d.until = by, time.Now().Add(length)
}

// fail makes some calls of a kind fail, on files whose names contain a text.
func (d *diskFaults) fail(op storagetest.Op, where string, times int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failOp, d.where, d.fails = op, where, times
}

// heal ends everything, and says how long calls that wait already go on waiting.
func (d *diskFaults) heal() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.frozen, d.until, d.lies, d.fails = time.Time{}, time.Time{}, time.Time{}, 0
	return time.Until(d.last)
}

// ring keeps the last lines that were written to it.
type ring struct {
	mu   sync.Mutex
	kept []string // guarded by mu
	next int      // guarded by mu
}

const ringLines = 1000

// Write implements io.Writer; slog writes a line a call.
func (r *ring) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	line := strings.TrimSuffix(string(p), "\n")
	if strings.Contains(line, "file was not removed") && strings.Contains(line, storagetest.ErrCrashed.Error()) {
		return len(p), nil // a node that has died says so of each, and nothing else would be left
	}
	if len(r.kept) < ringLines {
		r.kept = append(r.kept, line)
	} else {
		r.kept[r.next%ringLines] = line
	}
	r.next++
	return len(p), nil
}

func (r *ring) lines() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := max(0, r.next-len(r.kept)); i < r.next; i++ {
		out = append(out, r.kept[i%ringLines])
	}
	return out
}

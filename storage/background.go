package storage

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// background does, in one goroutine for the whole directory, what no one waits for: checkpoints and
// the removal of files.
type background struct {
	dir             *Dir
	checkpointEvery time.Duration
	checkpointBytes int64
	watermarkEvery  time.Duration
	wake            chan struct{} // of capacity 1

	mu       sync.Mutex
	removals []removal // guarded by mu

	bytes atomic.Int64 // appended since the last checkpoint
}

// removal is a file or folder to be removed at a time.
type removal struct {
	name   string
	folder bool
	at     time.Time
}

func newBackground(d *Dir, o DirOptions) *background {
	return &background{
		dir: d, wake: make(chan struct{}, 1),
		checkpointEvery: orDefault(o.CheckpointInterval, time.Minute),
		checkpointBytes: orDefault(o.CheckpointBytes, 256<<20),
		watermarkEvery:  orDefault(o.WatermarkInterval, 5*time.Second),
	}
}

func (b *background) kick() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// appended counts bytes towards the next checkpoint.
func (d *Dir) appended(batches, bytes int) {
	d.stats.appendedBatches.Add(int64(batches))
	d.stats.appendedBytes.Add(int64(bytes))
	b := d.background
	if sum := b.bytes.Add(int64(bytes)); sum >= b.checkpointBytes && sum-int64(bytes) < b.checkpointBytes {
		b.kick()
	}
}

// remove removes a file later.
func (b *background) remove(name string, delay time.Duration) {
	b.add(removal{name: name, at: time.Now().Add(delay)})
}

// removeFolder removes a folder later.
func (b *background) removeFolder(name string, delay time.Duration) {
	b.add(removal{name: name, folder: true, at: time.Now().Add(delay)})
}

func (b *background) add(r removal) {
	b.mu.Lock()
	b.removals = append(b.removals, r)
	b.mu.Unlock()
	b.kick()
}

// run works until the context ends.
func (b *background) run(ctx context.Context) {
	checkpoints := time.NewTicker(b.checkpointEvery)
	defer checkpoints.Stop()
	watermarks := time.NewTicker(b.watermarkEvery)
	defer watermarks.Stop()
	removals := time.NewTimer(time.Hour)
	defer removals.Stop()
	for {
		if next, ok := b.removeDue(ctx); ok {
			removals.Reset(time.Until(next))
		}
		if b.bytes.Load() >= b.checkpointBytes { // recovery would take long
			b.checkpoint()
		}
		select {
		case <-ctx.Done():
			return
		case <-b.wake:
		case <-removals.C:
		case <-checkpoints.C:
			b.checkpoint()
		case <-watermarks.C:
			b.watermarks()
		}
	}
}

func (b *background) checkpoint() {
	b.bytes.Store(0)
	if err := b.dir.Checkpoint(); err != nil {
		b.dir.logger.Error("checkpoint was not written", "err", err)
	}
}

func (b *background) watermarks() {
	if err := b.dir.writeWatermarks(); err != nil {
		b.dir.logger.Error("high watermarks were not written", "err", err)
	}
}

// removeDue removes what is due, one by one so that it can be stopped, and says when the next is.
func (b *background) removeDue(ctx context.Context) (next time.Time, ok bool) {
	for ctx.Err() == nil {
		now := time.Now()
		b.mu.Lock()
		due := -1
		ok = false
		for i, r := range b.removals {
			if !now.Before(r.at) {
				due = i
				break
			}
			if !ok || r.at.Before(next) {
				next, ok = r.at, true
			}
		}
		if due < 0 {
			b.mu.Unlock()
			return next, ok
		}
		r := b.removals[due]
		b.removals = append(b.removals[:due], b.removals[due+1:]...)
		b.mu.Unlock()
		b.removeNow(r)
	}
	return time.Time{}, false
}

func (b *background) removeNow(r removal) {
	var err error
	if r.folder {
		err = b.dir.fs.RemoveAll(r.name)
	} else {
		err = b.dir.fs.Remove(r.name)
	}
	if err != nil && !isMissing(err) {
		b.dir.logger.Error("file was not removed", "file", r.name, "err", err)
	}
}

// removeAll removes everything that was to be removed later.
func (b *background) removeAll() {
	b.mu.Lock()
	all := b.removals
	b.removals = nil
	b.mu.Unlock()
	for _, r := range all {
		b.removeNow(r)
	}
}

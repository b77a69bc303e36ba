package storage

import (
	"context"
	"errors"
	"sync"
	"time"
)

// committer makes logs durable, all of a directory's from one goroutine. A commit covers every log
// that asked while the one before was running: who comes first does not wait for others, who comes
// later shares. Many logs, or one with new files, are synced by one call for the whole file system.
type committer struct {
	dir   *Dir
	wake  chan struct{} // of capacity 1
	began time.Time

	mu      sync.Mutex
	pending []*Log    // guarded by mu; the logs that asked, each once
	due     []dueSync // guarded by mu; the logs to be asked for later, each once
	next    time.Time // guarded by mu; the earliest of due, zero if there is none

	// The goroutine's own.
	jobs  []syncJob
	spare []*Log
	cost  syncCost
	timer *time.Timer
}

// dueSync is a log with data that must be synced by a time.
type dueSync struct {
	log *Log
	at  time.Time
}

func newCommitter(d *Dir) *committer {
	return &committer{dir: d, wake: make(chan struct{}, 1), began: time.Now()}
}

// request puts a log into the next commit.
func (c *committer) request(l *Log) {
	c.mu.Lock()
	ask := !l.requested
	if ask {
		l.requested = true
		c.pending = append(c.pending, l)
	}
	c.mu.Unlock()
	if ask {
		c.kick()
	}
}

func (c *committer) kick() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// farAway is an interval that no process sees the end of: flush.ms is by default as long as there are
// durations, which no sum with a time holds.
const farAway = 100 * 365 * 24 * time.Hour

// schedule puts a log into a commit at most interval from now. Times are rounded so that logs with
// the same interval meet in the same commit.
func (c *committer) schedule(l *Log, interval time.Duration) {
	if interval >= farAway {
		return
	}
	c.mu.Lock()
	if l.scheduled {
		c.mu.Unlock()
		return
	}
	l.scheduled = true
	at := c.began.Add((time.Since(c.began) + interval).Truncate(interval))
	c.due = append(c.due, dueSync{l, at})
	earlier := c.next.IsZero() || at.Before(c.next)
	if earlier {
		c.next = at
	}
	c.mu.Unlock()
	if earlier {
		c.kick()
	}
}

// run commits until the context ends.
func (c *committer) run(ctx context.Context) {
	c.timer = time.NewTimer(time.Hour)
	defer c.timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		case <-c.timer.C:
		}
		for logs := c.take(); len(logs) > 0; logs = c.take() {
			c.commit(logs)
			clear(logs)
		}
	}
}

// take gives the logs that asked, and sets the timer for those that will.
func (c *committer) take() []*Log {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.takeDueLocked(time.Now())
	logs := c.pending
	c.pending, c.spare = c.spare[:0], logs
	for _, l := range logs {
		l.requested = false
	}
	return logs
}

// takeDueLocked moves the logs whose time has come to the pending ones.
func (c *committer) takeDueLocked(now time.Time) {
	if c.next.IsZero() {
		return
	}
	if !now.Before(c.next) {
		later := c.due[:0]
		c.next = time.Time{}
		for _, d := range c.due {
			if now.Before(d.at) {
				later = append(later, d)
				if c.next.IsZero() || d.at.Before(c.next) {
					c.next = d.at
				}
				continue
			}
			d.log.scheduled = false
			d.log.wantSync()
			if !d.log.requested {
				d.log.requested = true
				c.pending = append(c.pending, d.log)
			}
		}
		clear(c.due[len(later):])
		c.due = later
	}
	if !c.next.IsZero() {
		c.timer.Reset(c.next.Sub(now))
	}
}

// commit syncs the logs and publishes the results, each log's as soon as it is known.
func (c *committer) commit(logs []*Log) {
	began := time.Now()
	n, calls := 0, 0
	for _, l := range logs {
		if n == len(c.jobs) {
			c.jobs = append(c.jobs, syncJob{})
		}
		if j := &c.jobs[n]; j.begin(l) {
			if err := j.settleDoubts(); err != nil {
				j.unsettled(err)
				continue
			}
			calls += j.calls()
			n++
		}
	}
	if n == 0 {
		return
	}
	jobs := c.jobs[:n]
	if !c.syncAll(jobs, calls) {
		c.syncEach(jobs)
	}
	c.dir.stats.commits.Add(1)
	if f := c.dir.observeSync; f != nil {
		f(time.Since(began), n)
	}
}

// syncAll syncs the whole file system if that is the cheaper way, and possible.
func (c *committer) syncAll(jobs []syncJob, calls int) bool {
	if !c.cost.preferAll(calls) {
		return false
	}
	began := time.Now()
	err := c.dir.fs.SyncAll()
	if errors.Is(err, errors.ErrUnsupported) {
		c.cost.noAll = true
		return false
	}
	c.cost.tookAll(time.Since(began))
	c.dir.stats.syncedAll.Add(1)
	for i := range jobs {
		jobs[i].end(err)
	}
	c.dir.failUnsettled(err)
	return true
}

// failUnsettled takes offline, after a failed sync of the whole file system, each log of which something was not
// durable: what failed may have been its.
func (d *Dir) failUnsettled(err error) {
	if err == nil {
		return
	}
	for _, l := range d.openLogs() {
		if l.usable() == nil && l.unsettled() {
			l.fail(err)
		}
	}
}

// syncEach syncs the jobs' files one by one.
func (c *committer) syncEach(jobs []syncJob) {
	for i := range jobs {
		began, calls := time.Now(), jobs[i].calls()
		jobs[i].end(jobs[i].run())
		c.cost.tookEach(time.Since(began), calls)
		c.dir.stats.syncedFiles.Add(int64(calls))
	}
}

// syncCost decides between syncing files one by one and syncing the whole file system. On a quiet
// disk the latter costs about 1.3 times one file, whatever their number, so it pays from two files
// on; but it also waits for what other processes write, so its cost is watched.
type syncCost struct {
	each  time.Duration // running mean of one call for a file
	all   time.Duration // and of a call for the file system
	noAll bool          // there is no such call here
}

func (c *syncCost) preferAll(calls int) bool {
	if c.noAll || calls < 2 {
		return false
	}
	if c.each == 0 || time.Duration(calls)*c.each >= c.all {
		return true
	}
	c.all -= c.all / 16 // so that it is tried again
	return false
}

func (c *syncCost) tookEach(d time.Duration, calls int) {
	if calls > 0 {
		c.each += (d/time.Duration(calls) - c.each) / 8
	}
}

func (c *syncCost) tookAll(d time.Duration) { c.all += (d - c.all) / 8 }

// Package partition is one replicated partition as its leader keeps it: what may be appended, what
// is committed, and who waits for that.
//
// A Store holds the partitions of one node on one data directory; nothing else of the server
// touches the logs. A Leader is one partition led by this node. It promises:
//
//   - A batch is written whole, at the end, or not at all, and the sequence rules of idempotent and
//     named producers hold across restarts.
//   - The high watermark only rises. Below it every replica that counts has the log: synced to disk
//     where log.sync is ack. Consumers see nothing above it, and an acks=all produce is answered
//     when it has passed.
//   - Opening does no work in proportion to the log, and an idle partition owns no goroutine, no
//     timer and no open file: producer state is read at the first append that needs it.
//   - Whoever waits is woken by the append or sync it waits for, never by a clock tick.
//
// Errors are Go errors inside; Explain gives each its Kafka code. The broker calls this package
// with one call for each partition of a request.
package partition

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"millrace/record"
	"millrace/storage"
)

// Config is what the partitions of a node share.
type Config struct {
	Dir *storage.Dir
	// CommitSynced makes the high watermark follow what is on disk instead of what is written.
	CommitSynced bool
	// Now is the node's wall clock, for timestamps and expiry.
	Now    func() time.Time
	Logger *slog.Logger
}

// idleCodecs is how many decompressors a node keeps for the check of compressed batches.
const idleCodecs = 4

// Store is the partitions of one node. It is safe for concurrent use, with different partitions.
type Store struct {
	dir          *storage.Dir
	commitSynced bool
	now          func() time.Time
	logger       *slog.Logger
	codecs       *record.Codecs
}

// NewStore makes a Store over an open data directory, which stays the caller's to close.
func NewStore(c Config) *Store {
	return &Store{
		dir:          c.Dir,
		commitSynced: c.CommitSynced,
		now:          c.Now,
		logger:       c.Logger,
		codecs:       record.NewCodecs(idleCodecs),
	}
}

// Names lists the partitions on disk.
func (s *Store) Names() ([]Name, error) { return s.dir.Partitions() }

// Open takes up the partition's log. A log on disk is opened, which costs no I/O after a clean stop;
// one that belongs to an earlier topic of the name is set aside; where there is none, one is made.
func (s *Store) Open(n Name, settings *Settings, role Role) (*Leader, error) {
	log, err := s.dir.OpenLog(n, settings.log)
	if errors.Is(err, storage.ErrTopicID) {
		if err := s.dir.SetAside(n); err != nil {
			return nil, fmt.Errorf("set aside an older log of %s: %w", n, err)
		}
		err = storage.ErrNotFound
	}
	if errors.Is(err, storage.ErrNotFound) {
		log, err = s.dir.CreateLog(n, settings.log)
	}
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", n, err)
	}
	if s.commitSynced {
		// What a crash left in the page cache was acknowledged and read perhaps: it is made durable before
		// anybody asks for the high watermark, which would else begin below it. Else there is nothing to do.
		if err := log.Sync(context.Background()); err != nil {
			return nil, fmt.Errorf("sync what a crash left of %s: %w", n, err)
		}
	}
	return newLeader(s, log, n, settings, role), nil
}

// SetAside renames the files of a partition that is not open, so that nothing is lost and the name is
// free.
func (s *Store) SetAside(n Name) error { return s.dir.SetAside(n) }

// Delete ends a partition and removes its files, in the background.
func (s *Store) Delete(l *Leader) error {
	if !l.end(ErrDeleted) {
		return nil
	}
	return s.dir.DeleteLog(l.log)
}

// Close ends a partition: who waits for it is told that it is led here no longer.
func (s *Store) Close(l *Leader) error { return l.close() }

// ApplyRetention removes the segments that the topic's settings do not keep, never beyond the high
// watermark. A partition that has ended meanwhile has none to remove.
func (l *Leader) ApplyRetention() error {
	_, err := l.log.ApplyRetention(l.store.now(), l.hw.Load())
	if errors.Is(err, storage.ErrClosed) {
		return nil
	}
	return err
}

// ExpireProducers forgets the producers that were silent for longer than lifetime. Their state is not
// read for that.
func (l *Leader) ExpireProducers(lifetime time.Duration) (removed int) {
	l.slot.hold()
	defer l.slot.release()
	if l.closed || l.producers == nil {
		return 0
	}
	return l.producers.expire(l.store.now().UnixMilli(), lifetime.Milliseconds())
}

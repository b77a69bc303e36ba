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

// Store is the partitions of one node. Its methods may be called by one goroutine at a time, except
// Checkpoint.
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
		codecs:       new(record.Codecs),
	}
}

// Names lists the partitions on disk.
func (s *Store) Names() ([]Name, error) { return s.dir.Partitions() }

// Create makes the log of a partition that is new here.
func (s *Store) Create(n Name, settings *Settings, role Role) (*Leader, error) {
	log, err := s.dir.CreateLog(n, settings.log)
	if err != nil {
		return nil, fmt.Errorf("create log of %s-%d: %w", n.Topic, n.Partition, err)
	}
	return newLeader(s, log, n, settings, role), nil
}

// Open takes up a partition that is on disk. After a clean stop it does no I/O.
func (s *Store) Open(n Name, settings *Settings, role Role) (*Leader, error) {
	log, err := s.dir.OpenLog(n, settings.log)
	if err != nil {
		return nil, fmt.Errorf("open log of %s-%d: %w", n.Topic, n.Partition, err)
	}
	return newLeader(s, log, n, settings, role), nil
}

// Delete ends a partition and removes its files, in the background.
func (s *Store) Delete(l *Leader) error {
	if !l.end(ErrDeleted) {
		return nil
	}
	return s.dir.DeleteLog(l.log)
}

// Close ends a partition: who waits for it is told that it is led here no longer.
func (s *Store) Close(l *Leader) error { return l.close() }

// Checkpoint writes down, for the next start, how far the logs are synced, where they start and what
// is committed.
func (s *Store) Checkpoint() error { return s.dir.Checkpoint() }

// Sweep does what time asks of a partition: it removes segments past their retention and forgets
// producers that were silent for producerLifetime.
func (l *Leader) Sweep(now time.Time, producerLifetime time.Duration) error {
	_, err := l.log.ApplyRetention(now, l.hw.Load())
	l.slot.hold()
	defer l.slot.release()
	if l.producers != nil {
		l.producers.expire(now.UnixMilli(), producerLifetime.Milliseconds())
	}
	return err
}

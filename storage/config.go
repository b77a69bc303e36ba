package storage

import (
	"log/slog"
	"math"
	"math/rand/v2"
	"time"
)

// Config is what one log is told by its topic. The zero value of a field means its default.
type Config struct {
	SegmentBytes    int64         // segment.bytes: roll before a segment grows beyond this
	SegmentAge      time.Duration // segment.ms: roll when the segment's first record is older than this
	SegmentJitter   time.Duration // segment.jitter.ms: at most this much earlier, drawn per segment
	IndexBytes      int           // segment.index.bytes: roll when an index would grow beyond this
	IndexInterval   int           // index.interval.bytes; negative: index each batch, as Kafka's 0
	RetentionTime   time.Duration // retention.ms; negative: for ever
	RetentionBytes  int64         // retention.bytes; negative: no bound
	DeleteRetained  bool          // cleanup.policy contains delete, so retention applies
	FileDeleteDelay time.Duration // file.delete.delay.ms; negative: unlink at once
	FlushMessages   int64         // flush.messages: sync when this many records are not
	FlushInterval   time.Duration // flush.ms: sync when a record has not been for this long
	Preallocate     bool          // preallocate: reserve a segment's space when it is made
}

// Kafka's defaults of the topic settings.
const (
	DefaultSegmentBytes    = 1 << 30
	DefaultSegmentAge      = 7 * 24 * time.Hour
	DefaultIndexBytes      = 10 << 20
	DefaultIndexInterval   = 4096
	DefaultRetentionTime   = 7 * 24 * time.Hour
	DefaultFileDeleteDelay = time.Minute
)

// DefaultConfig is a log with Kafka's default topic settings.
func DefaultConfig() Config {
	return Config{RetentionTime: DefaultRetentionTime, RetentionBytes: -1, DeleteRetained: true}.withDefaults()
}

// withDefaults fills in what is zero and cuts what the file formats cannot hold: positions and
// relative offsets in the index files are 31-bit numbers.
func (c Config) withDefaults() Config {
	if c.SegmentBytes <= 0 {
		c.SegmentBytes = DefaultSegmentBytes
	}
	c.SegmentBytes = min(c.SegmentBytes, math.MaxInt32)
	if c.SegmentAge <= 0 {
		c.SegmentAge = DefaultSegmentAge
	}
	if c.IndexBytes <= 0 {
		c.IndexBytes = DefaultIndexBytes
	}
	if c.IndexInterval == 0 {
		c.IndexInterval = DefaultIndexInterval
	}
	if c.FileDeleteDelay == 0 {
		c.FileDeleteDelay = DefaultFileDeleteDelay
	}
	if c.FlushMessages <= 0 {
		c.FlushMessages = math.MaxInt64
	}
	if c.FlushInterval <= 0 {
		c.FlushInterval = math.MaxInt64
	}
	return c
}

// SyncPolicy says when appended batches are made durable.
type SyncPolicy uint8

// The sync policies.
const (
	SyncAck      SyncPolicy = iota // as soon as RequestSync asks for it, together with all that wait
	SyncInterval                   // every DirOptions.SyncInterval
	SyncNever                      // only when a segment is full and when the log is closed
)

// DirOptions is what a data directory needs from its node. FS is required.
type DirOptions struct {
	FS           FS
	Now          func() time.Time // wall clock, for ages of records and segments; time.Now if nil
	Rand         *rand.Rand       // for the jitter of segment ages; no jitter if nil
	Logger       *slog.Logger     // nothing is logged if nil
	SyncPolicy   SyncPolicy
	SyncInterval time.Duration // with the policy SyncInterval; a second if zero

	// CheckpointInterval is the longest time between two writes of the recovery points; a minute if
	// zero. They are also written whenever CheckpointBytes were appended, 256 MiB if zero, since
	// what lies past them is read again after a crash.
	CheckpointInterval time.Duration
	CheckpointBytes    int64
	// WatermarkInterval is the time between two writes of changed high watermarks; 5 s if zero.
	WatermarkInterval time.Duration

	// OpenFiles bounds the files of sealed segments that are kept open; 512 if zero. The log file
	// of each log in use comes on top of it.
	OpenFiles int

	// ObserveSync, if set, is told of each commit: its duration and the number of logs it covered.
	ObserveSync func(d time.Duration, logs int)
}

// Meta names the cluster, the node and the directory that the files belong to: meta.properties.
type Meta struct {
	ClusterID   string
	NodeID      int32
	DirectoryID string
}

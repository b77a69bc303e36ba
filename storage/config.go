package storage

import (
	"log/slog"
	"math"
	"math/rand/v2"
	"time"
)

// Config is what one log is told by its topic; DefaultConfig is where to start from.
type Config struct {
	SegmentBytes    int64         // segment.bytes: roll before a segment grows beyond this
	SegmentAge      time.Duration // segment.ms: roll when the segment's first record is older than this
	SegmentJitter   time.Duration // segment.jitter.ms: at most this much earlier, drawn per segment
	IndexBytes      int           // segment.index.bytes: roll when an index would grow beyond this
	IndexInterval   int           // index.interval.bytes: index a batch when more lies since the last entry
	RetentionTime   time.Duration // retention.ms; negative: for ever
	RetentionBytes  int64         // retention.bytes; negative: no bound
	DeleteRetained  bool          // cleanup.policy contains delete, so that retention applies
	FileDeleteDelay time.Duration // file.delete.delay.ms: between dropping a segment and its unlinking
	FlushMessages   int64         // flush.messages: sync when this many records are not; 0: never for that
	FlushInterval   time.Duration // flush.ms: sync when a record has not been for this long; 0: never for that
	Preallocate     bool          // preallocate: kept for the topic's description, changes nothing
}

// DefaultConfig has Kafka's defaults of the topic settings.
func DefaultConfig() Config {
	const week = 7 * 24 * time.Hour
	return Config{
		SegmentBytes: 1 << 30, SegmentAge: week, IndexBytes: 10 << 20, IndexInterval: 4096,
		RetentionTime: week, RetentionBytes: -1, DeleteRetained: true, FileDeleteDelay: time.Minute,
	}
}

// normal gives c within what the files can hold: positions and relative offsets in the index files
// are 31-bit numbers, and a segment needs room for one index entry to be of use.
func (c Config) normal() Config {
	d := DefaultConfig()
	if c.SegmentBytes <= 0 {
		c.SegmentBytes = d.SegmentBytes
	}
	if c.SegmentAge <= 0 {
		c.SegmentAge = d.SegmentAge
	}
	if c.IndexBytes <= 0 {
		c.IndexBytes = d.IndexBytes
	}
	c.SegmentBytes = min(c.SegmentBytes, math.MaxInt32)
	c.IndexInterval = max(c.IndexInterval, 0)
	c.SegmentJitter = min(max(c.SegmentJitter, 0), c.SegmentAge)
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
	// BrokerEpoch is that of the last registration with this directory; -1 where none is noted.
	BrokerEpoch int64
	// Incarnation is the random name under which the node registered last, or was about to; empty where none is noted.
	Incarnation string
}

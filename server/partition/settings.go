package partition

import (
	"time"

	"millrace/record"
	"millrace/server/metadata"
	"millrace/storage"
)

// Settings is what a topic's configuration means to its partitions. It never changes; partitions
// with equal settings may share one.
type Settings struct {
	limits    record.Limits // without the moment: Now is set for each append
	log       storage.Config
	minInSync int // min.insync.replicas
	compact   compaction
}

// compaction is what of the settings the cleaner goes by.
type compaction struct {
	on              bool
	minRatio        float64
	minLag, maxLag  time.Duration
	deleteRetention time.Duration
}

// NewSettings translates a topic's settings for the log and for the check of batches.
func NewSettings(t *metadata.TopicSettings) *Settings {
	s := &Settings{
		limits: record.Limits{
			MaxMessageBytes: t.MaxMessageBytes,
			SegmentBytes:    int(t.SegmentBytes),
			Compacted:       t.CleanupCompact,
			Compression:     t.Compression,
			GzipLevel:       max(t.GzipLevel, 0),
			LZ4Level:        t.LZ4Level,
			ZstdLevel:       t.ZstdLevel,
			ZstdAllowed:     true,
			TimestampBefore: t.TimestampBefore,
			TimestampAfter:  t.TimestampAfter,
		},
		log: storage.Config{
			SegmentBytes:    t.SegmentBytes,
			SegmentAge:      t.SegmentTime,
			SegmentJitter:   t.SegmentJitter,
			IndexBytes:      t.SegmentIndexBytes,
			IndexInterval:   orNegative(t.IndexIntervalBytes),
			RetentionTime:   t.RetentionTime,
			RetentionBytes:  t.RetentionBytes,
			DeleteRetained:  t.CleanupDelete,
			FileDeleteDelay: orNegative(t.FileDeleteDelay),
			FlushMessages:   t.FlushMessages,
			FlushInterval:   max(t.FlushTime, 1),
			Preallocate:     t.Preallocate,
		},
		minInSync: t.MinInsyncReplicas,
		compact: compaction{
			on: t.CleanupCompact, minRatio: t.MinCleanableDirtyRatio, minLag: t.MinCompactionLag,
			maxLag: t.MaxCompactionLag, deleteRetention: t.DeleteRetention,
		},
	}
	if t.CleanupCompact {
		s.log.SegmentAge = min(s.log.SegmentAge, t.MaxCompactionLag)
	}
	if t.LogAppendTime {
		s.limits.TimestampType = record.LogAppendTime
	}
	return s
}

// orNegative keeps a zero from being read as "the default" by a storage.Config.
func orNegative[T int | time.Duration](v T) T {
	if v == 0 {
		return -1
	}
	return v
}

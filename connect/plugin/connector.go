package plugin

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"millrace/client"
	"millrace/connect/data"
	"millrace/record"
)

// Kind says what a plugin is, in the words of the REST API.
type Kind string

// The kinds.
const (
	SourceKind          Kind = "source"
	SinkKind            Kind = "sink"
	ConverterKind       Kind = "converter"
	HeaderConverterKind Kind = "header_converter"
	TransformKind       Kind = "transformation"
	PredicateKind       Kind = "predicate"
)

// Info is a plugin as it is listed. Aliases are other names by which it may be asked for, beside those that every class
// has: its simple name, and that without Connector, Converter, Transformation or Predicate at its end.
type Info struct {
	Class   string
	Aliases []string
	Kind    Kind
	Version string // "" if it has none
	Defs    Defs   // of its own settings
	// Dynamic says of a setting without a definition whether it is read, as one whose name holds that of a table is. Nil:
	// none is.
	Dynamic func(key string) bool
}

// Class is a class of connectors. New makes one; it does no I/O.
type Class struct {
	Info
	New func() Connector
}

// Connector is one connector on the worker that owns it. The runner makes another one for each validation and each
// change of offsets, and calls Start on none of those. Props are whole: secrets are resolved in them.
type Connector interface {
	// Validate checks the settings as far as a look at the outside can tell, within the time of ctx. What single
	// settings say by themselves (Defs.Check) has been checked; a setting at fault may still be there.
	Validate(ctx context.Context, props map[string]string) []Problem
	// Start begins to watch the outside, if the connector does so, until Stop.
	Start(ctx context.Context, props map[string]string, c ConnectorContext) error
	// TaskConfigs divides the work between at most maxTasks tasks.
	TaskConfigs(ctx context.Context, maxTasks int) ([]map[string]string, error)
	Stop(ctx context.Context) error
	// AlterOffsets takes note that offsets are about to be set, or forgotten where they are nil, while the connector is
	// stopped; it may refuse by an error, of which a Retriable one says that it cannot be asked now. False: it has nothing
	// to say about them. Of a sink no offsets stand for all, which are to be forgotten.
	AlterOffsets(ctx context.Context, props map[string]string, offsets []Offset) (agreed bool, err error)
	// NewSource or NewSink makes a task, by the kind of the class; the other gives nil.
	NewSource() SourceTask
	NewSink() SinkTask
}

// ConnectorContext is what a started connector may ask of the runner.
type ConnectorContext struct {
	Name        string
	Logger      *slog.Logger
	Reconfigure func()          // the task configs are to be asked for again
	Fail        func(err error) // the connector cannot go on
}

// Offset is a source partition and the offset to go on from, nil if there is none. The values are of the types that
// JSON has: string, bool, int64, float64, nil. Of a sink they are kafka_topic, kafka_partition and kafka_offset.
type Offset struct {
	Partition map[string]any
	Offset    map[string]any
}

// SourceRecord is a record on its way into a topic. Where Offset is nil it does not move the source's place. One
// without a topic is no record at all: it only moves the source's place, past what there was nothing to write of.
type SourceRecord struct {
	data.Record
	Source Offset
	// Fault says why what was read can be no record. The runner deals with it as with one that cannot be converted: it
	// fails the task or, where that is tolerated, writes a dead letter. The record then shows what was read.
	Fault error
}

// TaskContext is what a task may ask of the runner.
type TaskContext struct {
	Connector string
	Task      int
	Logger    *slog.Logger
	Now       func() time.Time
	// Metrics takes metrics; labels for connector and task are added, and all go when the task ends.
	Metrics prometheus.Registerer
	// Trouble takes what keeps the task from its work while it tries again by itself, for those who look at the task's
	// state, and nil when nothing does any more. It must be called again for each try. Errors that are returned need it
	// not.
	Trouble func(why error)
	// Dir makes a directory for the task's own files, and removes it, with all in it, when the task ends.
	Dir func() (string, error)
}

// SourceContext is what a source task may ask of the runner.
type SourceContext struct {
	TaskContext
	// Offset reads what is stored for a source partition, nil if nothing is.
	Offset func(ctx context.Context, partition map[string]any) (map[string]any, error)
}

// SourceTask reads from the outside. One goroutine calls it; only Stop may come at the same time as another call.
type SourceTask interface {
	Start(ctx context.Context, props map[string]string, c SourceContext) error
	// Poll gives records, as soon as there are some; none after a while is no error. They are written, with the offsets
	// that they carry, in one transaction. The slice and the records belong to the task again at the next call.
	Poll(ctx context.Context) ([]*SourceRecord, error)
	// Stored says that all that Poll gave so far is in the topics, and the offsets with it. It is called before the next
	// Poll.
	Stored(ctx context.Context) error
	// Stop ends the task. It is called once, after Start, however that ended.
	Stop(ctx context.Context) error
}

// SinkRecord is a record on its way out of a topic. Transforms may have changed all but where it came from.
type SinkRecord struct {
	data.Record
	Origin Origin
	Raw    RawRecord
}

// Origin is where a record was read, and is unique.
type Origin struct {
	client.TopicPartition
	Offset int64
}

// RawRecord is a record as it is in its topic.
type RawRecord struct {
	Key, Value []byte // nil: null
	Headers    []record.Header
	Timestamp  int64
}

// SinkBatch is what a sink is to write. Next says where reading has come to, for each partition that it moved in:
// behind the records, and behind those that were filtered out or reported on the way. Records may be empty.
type SinkBatch struct {
	Records []*SinkRecord
	Next    map[client.TopicPartition]int64
}

// OpenPartition is a partition that a sink task gets.
type OpenPartition struct {
	client.TopicPartition
	TopicID    [16]byte
	Committed  int64  // of the group, -1 if there is nothing
	Mark       string // that was committed with it, "" if there was none
	Start, End int64  // of what can be read
}

// SinkContext is what a sink task may ask of the runner.
type SinkContext struct {
	TaskContext
	// Group is the consumer group that the tasks are members of.
	Group string
	// Seek sets where a partition is read on from. It may be called in Open and in Put.
	Seek func(at client.TopicPartition, offset int64)
	// Mark has what the group commits carry a short text, by which it can be told from what others commit. It may be
	// called in Start.
	Mark func(text string)
	// RequestCommit has PreCommit be called soon.
	RequestCommit func()
	// Report takes a record that cannot be written, and says nil once it is in the dead-letter topic or, with nothing to
	// put it in, may be passed over. Nil: there is nobody to report to, and such a record fails the task.
	Report func(ctx context.Context, r *SinkRecord, why error) error
}

// SinkTask writes to the outside. One goroutine calls it.
type SinkTask interface {
	Start(ctx context.Context, props map[string]string, c SinkContext) error
	// Open gives the task partitions to write, in addition to those that it has.
	Open(ctx context.Context, partitions []OpenPartition) error
	// Put writes. A Retriable error has the same batch come again after a while; any other one fails the task.
	Put(ctx context.Context, batch *SinkBatch) error
	// PreCommit says what the group may commit, given where reading has come to: all of it, or less.
	PreCommit(ctx context.Context, current map[client.TopicPartition]int64) (map[client.TopicPartition]int64, error)
	// Close takes partitions away. Lost: others may have them already.
	Close(ctx context.Context, partitions []client.TopicPartition, lost bool) error
	// Stop ends the task. It is called once, after Start, however that ended.
	Stop(ctx context.Context) error
}

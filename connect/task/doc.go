// Package task runs one task of a connector: it takes the records of a source into topics, or those of topics to a
// sink.
//
// It owns all between a task and the cluster: converters and transforms, transactions of sources with the offsets that
// belong to their records, membership of sinks in their group, what becomes of records that cannot be translated or
// written, topics that have to be made, the metrics of a task and its files. Package connect decides which tasks run
// where, and calls Run.
//
// It promises of a source that the records of a poll are in the topics once, for readers of what is committed, and the
// offsets with them, or none of it; that of two who run the same task the one that began first can store nothing any
// more once the other has begun to read; and that a transaction of which nobody knows how it ended is asked about
// until it is known. It promises of a sink that what the group commits was written, as far as the sink says so, that a
// partition is given up only when the sink has let go of it, unless the group took it away, and that a record that is
// passed over is in the dead-letter topic before the group commits an offset behind it. Memory is bounded by sizes, not
// by counts of records.
package task

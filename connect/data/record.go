package data

// NoTimestamp is the timestamp of a record that has none yet.
const NoTimestamp int64 = -1

// AnyPartition leaves the choice of a partition to whoever writes the record.
const AnyPartition int32 = -1

// Record is a record between a connector and a topic, on its way through transforms and converters.
type Record struct {
	Topic       string
	Partition   int32 // AnyPartition where a source leaves it open
	KeySchema   *Schema
	Key         any
	ValueSchema *Schema
	Value       any
	Timestamp   int64 // epoch milliseconds, or NoTimestamp
	Headers     []Header
	Offset      int64 // of a record that was read from a topic; -1 on the way there
}

// Header is a header of a record. Several may have one name.
type Header struct {
	Name   string
	Schema *Schema
	Value  any
}

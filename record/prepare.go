package record

// Limits is what a leader demands of a client's batch: the settings of the topic and the moment.
type Limits struct {
	MaxMessageBytes  int // max.message.bytes: bound of a batch, as sent and as stored
	SegmentBytes     int // segment.bytes
	MaxExpandedBytes int // bound of what a compressed batch expands to; 0: DefaultExpandedBytes

	Compacted     bool          // cleanup.policy has compact: every record needs a key
	TimestampType TimestampType // message.timestamp.type

	Compression string // compression.type; "" is "producer"
	GzipLevel   int    // compression.gzip.level; 0 is the codec's default, as in the next two
	LZ4Level    int    // compression.lz4.level
	ZstdLevel   int    // compression.zstd.level
	ZstdAllowed bool   // the client's protocol version knows zstd

	TimestampBefore int64 // message.timestamp.before.max.ms
	TimestampAfter  int64 // message.timestamp.after.max.ms
	Now             int64 // the leader's clock in milliseconds: one instant for the whole append

	Codecs *Codecs // lends compressors; may be nil
	Arena  *Arena  // memory for a batch that must be built anew; may be nil
}

// DefaultExpandedBytes is the bound of expanded records when Limits gives none.
const DefaultExpandedBytes = 64 << 20

// Prepared is a batch ready to be stored: only base offset and leader epoch are missing.
type Prepared struct {
	Batch             Batch
	MaxTimestampDelta int32 // offset delta of the first record that has the maximum timestamp
}

// Prepare checks that buf is exactly one batch that a client may have stored, and returns the batch
// to store: the same memory, changed only where a rule demands it, or a batch built anew. What it
// refuses is a *Fault, and then buf is unchanged.
func Prepare(buf []byte, l Limits) (Prepared, error) {
	b, rest, err := Next(buf)
	if err != nil || len(rest) > 0 {
		return Prepared{}, fault(ErrInvalid, "want exactly one batch")
	}
	return Prepared{Batch: b}, nil
}

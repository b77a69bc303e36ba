package record_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"millrace/record"
)

func TestBuilderCanBeReused(t *testing.T) {
	var b record.Builder
	b.SetTransactional()
	b.SetProducer(1, 2, 3)
	b.SetCodec(record.Gzip)
	b.Append(&record.Record{Timestamp: 5, Value: []byte("first")})
	first := b.Build()
	require.True(t, first.IsTransactional())
	require.Equal(t, record.Gzip, first.Codec())
	require.NoError(t, first.Verify())

	own := make([]byte, 10, 1000)
	b.Reset(own)
	require.Zero(t, b.Count())
	require.Equal(t, record.HeaderSize, b.Size())
	b.SetControl()
	b.Append(&record.Record{Timestamp: 9, Value: []byte("second")})
	second := b.Build()
	require.NoError(t, second.Verify())
	require.True(t, second.IsControl())
	require.False(t, second.IsTransactional(), "Reset forgets settings")
	require.Equal(t, record.None, second.Codec())
	require.EqualValues(t, -1, second.ProducerID())
	require.EqualValues(t, 9, second.BaseTimestamp())
	require.Same(t, &own[:1][0], &second[0], "the memory given is used")
	require.Equal(t, "second", string(readAll(t, second)[0].Value))
}

func TestBuilderNeedsARecord(t *testing.T) {
	require.Panics(t, func() { new(record.Builder).Build() })
}

func TestRecordSizeIsAnUpperBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := drawRecords(t)
		bound := record.HeaderSize
		var b record.Builder
		for i := range records {
			bound += record.RecordSize(&records[i])
			b.Append(&records[i])
		}
		size := b.Size()
		require.LessOrEqual(t, size, bound)
		require.Len(t, b.Build(), size)
	})
}

// What Builder writes is what kmsg reads: the same fields, the same records, to the last byte.
func TestBuilderAgreesWithKmsg(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := drawRecords(t)
		var b record.Builder
		id, epoch, sequence := rapid.Int64().Draw(t, "id"), rapid.Int16().Draw(t, "epoch"), rapid.Int32().Draw(t, "seq")
		b.SetProducer(id, epoch, sequence)
		maxTimestamp := int64(math.MinInt64)
		for i := range records {
			b.Append(&records[i])
			maxTimestamp = max(maxTimestamp, records[i].Timestamp)
		}
		batch := b.Build()
		require.NoError(t, batch.Verify())

		var k kmsg.RecordBatch
		require.NoError(t, k.ReadFrom(batch))
		require.Equal(t, []byte(batch), k.AppendTo(nil))
		require.Equal(t, len(records), int(k.NumRecords))
		require.Equal(t, len(records)-1, int(k.LastOffsetDelta))
		require.Equal(t, records[0].Timestamp, k.FirstTimestamp)
		require.Equal(t, maxTimestamp, k.MaxTimestamp)
		require.Equal(t, []any{id, epoch, sequence}, []any{k.ProducerID, k.ProducerEpoch, k.FirstSequence})

		rest := k.Records
		for i := range records {
			size, n := binary.Varint(rest)
			whole := rest[:n+int(size)]
			rest = rest[n+int(size):]
			var r kmsg.Record
			require.NoError(t, r.ReadFrom(whole))
			require.Equal(t, whole, r.AppendTo(nil))
			require.Equal(t, i, int(r.OffsetDelta))
			require.Equal(t, records[i].Timestamp-k.FirstTimestamp, r.TimestampDelta64)
			require.Equal(t, records[i].Key, r.Key)
			require.Equal(t, records[i].Value, r.Value)
			require.Len(t, r.Headers, len(records[i].Headers))
			for j, h := range r.Headers {
				require.Equal(t, records[i].Headers[j], record.Header{Key: h.Key, Value: h.Value})
			}
		}
		require.Empty(t, rest)
	})
}

// drawRecords draws the records of a batch.
func drawRecords(t *rapid.T) []record.Record {
	blob := rapid.Custom(func(t *rapid.T) []byte {
		if rapid.Bool().Draw(t, "null") {
			return nil
		}
		if n := rapid.IntRange(0, 20).Draw(t, "long"); n == 0 {
			return make([]byte, rapid.IntRange(0, 40000).Draw(t, "size"))
		}
		return append([]byte{}, rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "bytes")...)
	})
	header := rapid.Custom(func(t *rapid.T) record.Header {
		return record.Header{Key: rapid.String().Draw(t, "name"), Value: blob.Draw(t, "value")}
	})
	timestamps := rapid.OneOf(rapid.Int64Range(epochMillis-1000, epochMillis+1000), rapid.Just(int64(-1)), rapid.Int64())
	one := rapid.Custom(func(t *rapid.T) record.Record {
		r := record.Record{Timestamp: timestamps.Draw(t, "timestamp"), Key: blob.Draw(t, "key"), Value: blob.Draw(t, "value")}
		if hs := rapid.SliceOfN(header, 0, 4).Draw(t, "headers"); len(hs) > 0 {
			r.Headers = hs
		}
		return r
	})
	records := rapid.SliceOfN(one, 1, 20).Draw(t, "records")
	for i := range records {
		records[i].Offset = int64(i)
	}
	return records
}

func TestAppendAllocatesOnlyToGrow(t *testing.T) {
	var b record.Builder
	rec := record.Record{Timestamp: epochMillis, Key: []byte("key"), Value: make([]byte, 1000),
		Headers: []record.Header{{Key: "name", Value: []byte("value")}}}
	buf := make([]byte, 0, 200<<10)
	allocs := testing.AllocsPerRun(100, func() {
		b.Reset(buf)
		for range 100 {
			rec.Timestamp++
			b.Append(&rec)
		}
		b.Build()
	})
	require.Zero(t, allocs)
}

package record_test

import (
	"bufio"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/record"
)

const epochMillis = 1700000000000

// golden reads the batches that Kafka's own classes wrote.
func golden(t testing.TB) map[string][]byte {
	t.Helper()
	f, err := os.Open("testdata/batch_v2.txt")
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	batches := make(map[string][]byte)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, text, ok := strings.Cut(lines.Text(), " ")
		if !ok || name == "#" {
			continue
		}
		batches[name], err = hex.DecodeString(text)
		require.NoError(t, err)
	}
	return batches
}

// goldenRecords are the records of the golden data batch.
func goldenRecords() []record.Record {
	return []record.Record{
		{Offset: 42, Timestamp: epochMillis, Key: []byte("k"), Value: []byte("v1"),
			Headers: []record.Header{{Key: "h", Value: []byte("x")}}},
		{Offset: 43, Timestamp: epochMillis + 5, Value: []byte("v2")},
		{Offset: 44, Timestamp: epochMillis + 3, Key: []byte("k")},
	}
}

func TestBuilderWritesGoldenBytes(t *testing.T) {
	var b record.Builder
	b.SetProducer(1000, 3, 7)
	for _, r := range goldenRecords() {
		b.Append(&r)
	}
	require.Equal(t, 3, b.Count())
	size := b.Size()
	batch := b.Build()
	require.Equal(t, size, len(batch))
	require.EqualValues(t, 0, batch.BaseOffset())
	require.EqualValues(t, -1, batch.LeaderEpoch())
	batch.SetBaseOffset(42)
	batch.SetLeaderEpoch(5)
	require.Equal(t, golden(t)["data"], []byte(batch))
}

func TestReaderReadsGoldenBytes(t *testing.T) {
	batch, rest, err := record.Next(golden(t)["data"])
	require.NoError(t, err)
	require.Empty(t, rest)
	require.NoError(t, batch.Verify())
	require.Equal(t, goldenRecords(), readAll(t, batch))
}

func TestAccessorsReadGoldenBytes(t *testing.T) {
	b := record.Batch(golden(t)["data"])
	require.EqualValues(t, 42, b.BaseOffset())
	require.Equal(t, len(b), b.Length())
	require.EqualValues(t, 5, b.LeaderEpoch())
	require.EqualValues(t, 2, b.Magic())
	require.EqualValues(t, 0xf7be6a22, b.CRC())
	require.EqualValues(t, 0, b.Attributes())
	require.Equal(t, record.None, b.Codec())
	require.Equal(t, record.CreateTime, b.TimestampType())
	require.False(t, b.IsTransactional())
	require.False(t, b.IsControl())
	require.False(t, b.HasDeleteHorizon())
	require.EqualValues(t, 2, b.LastOffsetDelta())
	require.EqualValues(t, 44, b.LastOffset())
	require.EqualValues(t, 45, b.NextOffset())
	require.EqualValues(t, 3, b.Count())
	require.EqualValues(t, epochMillis, b.BaseTimestamp())
	require.EqualValues(t, epochMillis+5, b.MaxTimestamp())
	require.EqualValues(t, 1000, b.ProducerID())
	require.EqualValues(t, 3, b.ProducerEpoch())
	require.EqualValues(t, 7, b.BaseSequence())
	require.EqualValues(t, 9, b.LastSequence())
	require.Len(t, b.Payload(), len(b)-record.HeaderSize)
}

func TestMarkersAreGoldenBytes(t *testing.T) {
	for _, c := range []struct {
		name   string
		offset int64
		marker record.EndTxnMarker
	}{
		{"commit", 45, record.EndTxnMarker{Type: record.ControlCommit, ProducerID: 1000, ProducerEpoch: 3,
			CoordinatorEpoch: 9, Timestamp: epochMillis + 10}},
		{"abort", 46, record.EndTxnMarker{Type: record.ControlAbort, ProducerID: 1000, ProducerEpoch: 4,
			CoordinatorEpoch: 9, Timestamp: epochMillis + 11}},
	} {
		t.Run(c.name, func(t *testing.T) {
			const before = "kept"
			out := record.AppendEndTxnMarker([]byte(before), c.marker)
			require.Equal(t, before, string(out[:len(before)]))
			batch := record.Batch(out[len(before):])
			batch.SetBaseOffset(c.offset)
			batch.SetLeaderEpoch(5)
			require.Equal(t, golden(t)[c.name], []byte(batch))
			require.True(t, batch.IsControl())
			require.True(t, batch.IsTransactional())
			require.EqualValues(t, -1, batch.LastSequence())

			records := readAll(t, batch)
			require.Len(t, records, 1)
			require.EqualValues(t, c.offset, records[0].Offset)
			control, err := record.ParseControl(&records[0])
			require.NoError(t, err)
			require.Equal(t, record.Control{Type: c.marker.Type, CoordinatorEpoch: 9}, control)
		})
	}
}

func TestEmptyBatchIsGoldenBytes(t *testing.T) {
	out := record.AppendEmpty(nil, record.Fields{BaseOffset: 42, LeaderEpoch: 5, LastOffsetDelta: 2,
		MaxTimestamp: epochMillis + 5, ProducerID: 1000, ProducerEpoch: 3, BaseSequence: 9})
	require.Equal(t, golden(t)["header-only"], out)
	require.Empty(t, readAll(t, record.Batch(out)))
}

// readAll decodes a batch, which must be sound, and copies what it reads.
func readAll(t testing.TB, b record.Batch) []record.Record {
	t.Helper()
	records, err := decode(record.NewReader(b, 64<<20))
	require.NoError(t, err)
	return records
}

// decode drains a Reader and copies what it reads.
func decode(r *record.Reader) (records []record.Record, err error) {
	defer r.Close()
	var rec record.Record
	for r.Next(&rec) {
		c := record.Record{Offset: rec.Offset, Timestamp: rec.Timestamp, Key: clone(rec.Key), Value: clone(rec.Value)}
		for _, h := range rec.Headers {
			c.Headers = append(c.Headers, record.Header{Key: strings.Clone(h.Key), Value: clone(h.Value)})
		}
		records = append(records, c)
	}
	return records, r.Err()
}

// clone copies p and keeps nil apart from empty.
func clone(p []byte) []byte {
	if p == nil {
		return nil
	}
	return append([]byte{}, p...)
}

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

// rawBatch makes a sealed batch around records that are encoded already, whatever they are.
func rawBatch(count int32, attributes byte, payload []byte) record.Batch {
	b := record.Batch(append(clone(batchOf(1)[:record.HeaderSize]), payload...))
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	b[22] = attributes
	binary.BigEndian.PutUint32(b[23:], uint32(count-1))
	binary.BigEndian.PutUint32(b[57:], uint32(count))
	b.Seal()
	return b
}

// encodeRecord encodes one record with a key "k" and a value "v" by kmsg.
func encodeRecord(offsetDelta int32, timestampDelta int64, change func(*kmsg.Record)) []byte {
	r := kmsg.Record{OffsetDelta: offsetDelta, TimestampDelta64: timestampDelta, Key: []byte("k"), Value: []byte("v")}
	if change != nil {
		change(&r)
	}
	body := r.AppendTo(nil)[1:] // after a length of 0
	if r.Length == 0 {
		r.Length = int32(len(body))
	}
	return append(binary.AppendVarint(nil, int64(r.Length)), body...)
}

// malformed are payloads of one record that no reader may accept, by what is wrong with them.
func malformed() map[string][]byte {
	varints := func(vs ...int64) (p []byte) {
		for _, v := range vs {
			p = binary.AppendVarint(p, v)
		}
		return p
	}
	body := func(p []byte) []byte { return append(varints(int64(len(p))), p...) }
	join := func(ps ...[]byte) (p []byte) {
		for _, q := range ps {
			p = append(p, q...)
		}
		return p
	}
	attributes := []byte{0}
	good := encodeRecord(0, 0, nil)
	return map[string][]byte{
		"nothing":                     {},
		"cut":                         good[:len(good)-1],
		"a byte more":                 append(clone(good), 0),
		"a record more":               append(clone(good), good...),
		"length negative":             varints(-2),
		"length zero":                 varints(0),
		"length null":                 varints(-1),
		"length one short":            append(varints(int64(len(good)-2)), good[1:]...),
		"length one long":             append(varints(int64(len(good))), append(clone(good[1:]), 0)...),
		"length beyond the batch":     append(varints(math.MaxInt32), good[1:]...),
		"length varint too long":      {0x80, 0x80, 0x80, 0x80, 0x80, 0x00},
		"length varint over 32 bits":  {0xff, 0xff, 0xff, 0xff, 0x1f},
		"attributes alone":            body(attributes),
		"timestamp varint over":       body(join(attributes, []byte{255, 255, 255, 255, 255, 255, 255, 255, 255, 3})),
		"timestamp varint cut":        body(join(attributes, []byte{0x80})),
		"offset missing":              body(join(attributes, varints(0))),
		"key length missing":          body(join(attributes, varints(0, 0))),
		"key length below null":       body(join(attributes, varints(0, 0, -2, -1, 0))),
		"key beyond the record":       body(join(attributes, varints(0, 0, 9, -1, 0))),
		"key claims 2 GiB":            body(join(attributes, varints(0, 0, math.MaxInt32, -1, 0))),
		"value length missing":        body(join(attributes, varints(0, 0, -1))),
		"value length below null":     body(join(attributes, varints(0, 0, -1, -2, 0))),
		"value claims 2 GiB":          body(join(attributes, varints(0, 0, -1, math.MaxInt32, 0))),
		"header count missing":        body(join(attributes, varints(0, 0, -1, -1))),
		"header count negative":       body(join(attributes, varints(0, 0, -1, -1, -1))),
		"header count beyond":         body(join(attributes, varints(0, 0, -1, -1, 1))),
		"header count claims 2 GiB":   body(join(attributes, varints(0, 0, -1, -1, math.MaxInt32))),
		"header key null":             body(join(attributes, varints(0, 0, -1, -1, 1, -1, -1))),
		"header key beyond":           body(join(attributes, varints(0, 0, -1, -1, 1, 5, -1))),
		"header value below null":     body(join(attributes, varints(0, 0, -1, -1, 1, 0, -2))),
		"header value beyond":         body(join(attributes, varints(0, 0, -1, -1, 1, 0, 5))),
		"header value missing":        body(join(attributes, varints(0, 0, -1, -1, 1, 0))),
		"bytes after the last header": body(join(attributes, varints(0, 0, -1, -1, 0, 0))),
	}
}

func TestReaderRefusesMalformedRecords(t *testing.T) {
	for name, payload := range malformed() {
		t.Run(name, func(t *testing.T) {
			_, err := decode(record.NewReader(rawBatch(1, 0, payload), 1<<20))
			require.ErrorIs(t, err, record.ErrCorrupt)
		})
	}
	_, err := decode(record.NewReader(rawBatch(2, 0, encodeRecord(0, 0, nil)), 1<<20))
	require.ErrorIs(t, err, record.ErrCorrupt, "fewer records than the header says")
	_, err = decode(record.NewReader(batchOf(1)[:60], 1<<20))
	require.ErrorIs(t, err, record.ErrCorrupt, "no whole header")
	_, err = decode(record.NewReader(rawBatch(1, 7, encodeRecord(0, 0, nil)), 1<<20))
	require.ErrorIs(t, err, record.ErrUnsupportedCodec)
}

func TestReaderKeepsNullAndEmptyApart(t *testing.T) {
	var b record.Builder
	b.Append(&record.Record{Key: []byte{}, Value: nil, Headers: []record.Header{{Key: "", Value: nil}}})
	b.Append(&record.Record{Key: nil, Value: []byte{}, Headers: []record.Header{{Key: "a", Value: []byte{}}}})
	records := readAll(t, b.Build())
	require.Equal(t, []record.Record{
		{Offset: 0, Key: []byte{}, Headers: []record.Header{{}}},
		{Offset: 1, Value: []byte{}, Headers: []record.Header{{Key: "a", Value: []byte{}}}},
	}, records)
}

// With a delete horizon the deltas are to the horizon: the formula stays the same. Compaction
// leaves gaps, so offsets come from the records, not from counting.
func TestReaderReadsCompactedBatches(t *testing.T) {
	payload := append(encodeRecord(3, -500, nil), encodeRecord(9, 20, nil)...)
	b := rawBatch(2, 0x40, payload)
	b.SetBaseOffset(100)
	require.True(t, b.HasDeleteHorizon())
	records := readAll(t, b)
	require.EqualValues(t, 103, records[0].Offset)
	require.EqualValues(t, epochMillis-500, records[0].Timestamp)
	require.EqualValues(t, 109, records[1].Offset)
	require.EqualValues(t, epochMillis+20, records[1].Timestamp)
}

func TestReaderAppliesTimestampType(t *testing.T) {
	b := batchOf(3)
	b.SetTimestamp(record.LogAppendTime, 77)
	for i, r := range readAll(t, b) {
		require.EqualValues(t, i, r.Offset)
		require.EqualValues(t, 77, r.Timestamp)
	}
}

func TestReaderRoundTrip(t *testing.T) {
	codecs := record.NewCodecs(1)
	reader := record.Reader{Codecs: codecs}
	rapid.Check(t, func(t *rapid.T) {
		records := drawRecords(t)
		b := record.Builder{Codecs: codecs}
		b.SetCodec(record.Codec(rapid.IntRange(0, 4).Draw(t, "codec")))
		for i := range records {
			b.Append(&records[i])
		}
		reader.Reset(b.Build(), 64<<20)
		got, err := decode(&reader)
		require.NoError(t, err)
		require.Equal(t, records, got)
	})
}

func TestNextAllocatesNothing(t *testing.T) {
	var b record.Builder
	for range 100 {
		b.Append(&record.Record{Key: []byte("key"), Value: make([]byte, 1000),
			Headers: []record.Header{{Key: "name", Value: []byte("value")}}})
	}
	batch := b.Build()
	var r record.Reader
	var rec record.Record
	allocs := testing.AllocsPerRun(100, func() {
		r.Reset(batch, 0)
		for r.Next(&rec) {
		}
		if r.Err() != nil {
			t.Fatal(r.Err())
		}
	})
	require.Zero(t, allocs)
}

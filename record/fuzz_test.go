package record_test

import (
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/record"
)

// seeds are sound batches of every kind, to be damaged.
func seeds(f *testing.F) {
	for _, b := range golden(f) {
		f.Add(b)
	}
	for codec := range record.Zstd + 1 {
		var b record.Builder
		b.SetCodec(codec)
		for i := range 5 {
			b.Append(&record.Record{Timestamp: epochMillis - int64(i), Key: []byte("key"), Value: make([]byte, 100*i),
				Headers: []record.Header{{Key: "name", Value: []byte("value")}}})
		}
		f.Add([]byte(b.Build()))
	}
	for _, payload := range malformed() {
		f.Add([]byte(rawBatch(1, 0, payload)))
	}
}

// FuzzNext: splitting any bytes into batches loses and invents nothing.
func FuzzNext(f *testing.F) {
	seeds(f)
	f.Add(append(clone(batchOf(2)), batchOf(3)...))
	f.Fuzz(func(t *testing.T, buf []byte) {
		for rest := buf; ; {
			b, next, err := record.Next(rest)
			if err != nil {
				require.True(t, isOneOf(err, record.ErrShort, record.ErrCorrupt))
				require.Nil(t, b)
				require.Len(t, next, len(rest))
				return
			}
			require.GreaterOrEqual(t, len(b), record.HeaderSize)
			require.Equal(t, len(b), b.Length())
			require.Equal(t, len(rest), len(b)+len(next))
			_ = b.Verify()
			_, _, _ = b.LastSequence(), b.NextOffset(), b.Codec()
			rest = next
		}
	})
}

// FuzzPrepare: what a leader accepts, every reader can read; what it refuses, it leaves alone.
func FuzzPrepare(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, buf []byte) {
		if len(buf) < record.HeaderSize {
			return
		}
		// Damage to the header's frame is found by other tests: here it must not hide the rest.
		buf = clone(buf)
		b := record.Batch(buf)
		b.SetBaseOffset(0)
		binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
		b[16] = 2
		b.Seal()
		limits := anything()
		limits.MaxExpandedBytes = 1 << 20
		for _, compression := range []string{"producer", "uncompressed", "snappy"} {
			limits.Compression = compression
			checkPrepare(t, clone(buf), limits)
		}
	})
}

func checkPrepare(t *testing.T, buf []byte, limits record.Limits) {
	before := clone(buf)
	p, err := record.Prepare(buf, limits)
	if err != nil {
		require.True(t, isOneOf(err, record.ErrCorrupt, record.ErrInvalid, record.ErrTooLarge, record.ErrTimestamp,
			record.ErrUnsupportedCodec), "%v", err)
		require.Equal(t, before, buf)
		return
	}
	require.NoError(t, p.Batch.Verify())
	_, rest, err := record.Next(p.Batch)
	require.NoError(t, err)
	require.Empty(t, rest)
	records, err := decode(record.NewReader(p.Batch, 1<<21))
	require.NoError(t, err)
	require.Len(t, records, int(p.Batch.Count()))
	latest := records[p.MaxTimestampDelta].Timestamp
	require.Equal(t, p.Batch.MaxTimestamp(), latest)
	for i := range records {
		require.EqualValues(t, i, records[i].Offset)
		require.LessOrEqual(t, records[i].Timestamp, latest)
	}
	again, err := record.Prepare(clone(p.Batch), limits)
	require.NoError(t, err, "what is stored could have been sent")
	require.Equal(t, clone(p.Batch), clone(again.Batch))
}

// FuzzReader: any records behind any codec are read or refused, within bounded memory.
func FuzzReader(f *testing.F) {
	for codec, payload := range compressed(oneRecord([]byte("a value, a value, a value"))) {
		f.Add(byte(codec), int32(1), payload)
	}
	for _, payload := range malformed() {
		f.Add(byte(0), int32(1), payload)
	}
	f.Add(byte(2), int32(1), javaSnappy([]byte("abc"), []byte("defg")))
	codecs := record.NewCodecs(1)
	f.Fuzz(func(t *testing.T, attributes byte, count int32, payload []byte) {
		const bound = 1 << 20
		var before, after runtime.MemStats
		b := rawBatch(count, attributes, payload)
		runtime.ReadMemStats(&before)
		r := record.Reader{Codecs: codecs}
		r.Reset(b, bound)
		var rec record.Record
		var read int32
		for r.Next(&rec) {
			read++
			_, _ = record.ParseControl(&rec)
		}
		if err := r.Err(); err == nil {
			require.Equal(t, count, read)
		} else {
			require.True(t, isOneOf(err, record.ErrCorrupt, record.ErrTooLarge, record.ErrUnsupportedCodec), "%v", err)
		}
		r.Close()
		runtime.ReadMemStats(&after)
		// 8 MiB is a stream's window, kept from then on; 80 bytes are a Header's for the two it takes.
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(12<<20+20*bound+80*len(payload)))
	})
}

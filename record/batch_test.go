package record_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/record"
)

// batchOf builds a batch of so many records with small keys and values.
func batchOf(n int) record.Batch {
	var b record.Builder
	for i := range n {
		b.Append(&record.Record{Timestamp: epochMillis + int64(i), Key: []byte{byte(i)}, Value: []byte("value")})
	}
	return b.Build()
}

func TestNext(t *testing.T) {
	one, two := batchOf(1), batchOf(2)
	patched := func(at int, v byte) []byte {
		p := clone(one)
		p[at] = v
		return p
	}
	length := func(n int32) []byte {
		p := clone(one)
		binary.BigEndian.PutUint32(p[8:], uint32(n))
		return p
	}
	for _, c := range []struct {
		name string
		buf  []byte
		size int
		err  error
	}{
		{"one batch", one, len(one), nil},
		{"two batches", append(clone(one), two...), len(one), nil},
		{"a batch and half of another", append(clone(one), two[:30]...), len(one), nil},
		{"nothing", nil, 0, record.ErrShort},
		{"cut in the length", one[:11], 0, record.ErrShort},
		{"cut after the length", one[:12], 0, record.ErrShort},
		{"cut in the header", one[:60], 0, record.ErrShort},
		{"cut in the records", one[:len(one)-1], 0, record.ErrShort},
		{"length beyond all bytes", length(math.MaxInt32), 0, record.ErrShort},
		{"length below a header", length(48), 0, record.ErrCorrupt},
		{"length zero", make([]byte, 100), 0, record.ErrCorrupt},
		{"length negative", length(-1), 0, record.ErrCorrupt},
		{"length most negative", length(math.MinInt32), 0, record.ErrCorrupt},
		{"format 1", patched(16, 1), 0, record.ErrCorrupt},
		{"format 3", patched(16, 3), 0, record.ErrCorrupt},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, rest, err := record.Next(c.buf)
			require.ErrorIs(t, err, c.err)
			require.Len(t, b, c.size)
			require.Len(t, rest, len(c.buf)-c.size)
			require.Equal(t, len(b), cap(b), "appending to a batch may not overwrite the next")
		})
	}
}

func TestVerify(t *testing.T) {
	good := batchOf(3)
	require.NoError(t, good.Verify())
	for i := range good {
		bad := record.Batch(clone(good))
		bad[i] ^= 1
		stamped := i < 8 || i >= 12 && i < 16
		if err := bad.Verify(); stamped {
			require.NoError(t, err, "byte %d is outside the checksum", i)
		} else {
			require.ErrorIs(t, err, record.ErrCorrupt, "byte %d", i)
		}
	}
	for n := range len(good) {
		require.ErrorIs(t, good[:n].Verify(), record.ErrCorrupt)
	}
}

func TestSetters(t *testing.T) {
	b := batchOf(3)
	b.SetBaseOffset(1 << 40)
	b.SetLeaderEpoch(7)
	require.NoError(t, b.Verify())
	require.EqualValues(t, 1<<40+2, b.LastOffset())
	require.EqualValues(t, 7, b.LeaderEpoch())

	b.SetProducer(math.MaxInt64, math.MaxInt16, math.MaxInt32)
	require.NoError(t, b.Verify())
	require.EqualValues(t, math.MaxInt64, b.ProducerID())
	require.EqualValues(t, math.MaxInt16, b.ProducerEpoch())
	require.EqualValues(t, 1, b.LastSequence(), "sequences go on at 0")

	b.SetTimestamp(record.LogAppendTime, epochMillis+99)
	require.NoError(t, b.Verify())
	require.Equal(t, record.LogAppendTime, b.TimestampType())
	for _, r := range readAll(t, b) {
		require.EqualValues(t, epochMillis+99, r.Timestamp)
	}

	b.SetTimestamp(record.CreateTime, epochMillis+2)
	require.NoError(t, b.Verify())
	require.Equal(t, record.CreateTime, b.TimestampType())
	require.EqualValues(t, epochMillis+1, readAll(t, b)[1].Timestamp)
}

func TestSequenceArithmeticWraps(t *testing.T) {
	const last = math.MaxInt32
	for _, c := range []struct{ s, n, sum int32 }{
		{0, 0, 0}, {0, 1, 1}, {7, 2, 9},
		{last, 0, last}, {last, 1, 0}, {last, 5, 4}, {last - 3, 3, last}, {last - 3, 4, 0},
		{last, last, last - 1}, {0, last, last},
	} {
		require.Equal(t, c.sum, record.AddSequence(c.s, c.n), "%d + %d", c.s, c.n)
		require.Equal(t, c.s, record.SubSequence(c.sum, c.n), "%d - %d", c.sum, c.n)
	}
}

func TestNames(t *testing.T) {
	for _, c := range []record.Codec{record.None, record.Gzip, record.Snappy, record.LZ4, record.Zstd} {
		parsed, err := record.ParseCodec(c.String())
		require.NoError(t, err)
		require.Equal(t, c, parsed)
	}
	none, err := record.ParseCodec("uncompressed")
	require.NoError(t, err)
	require.Equal(t, record.None, none)
	_, err = record.ParseCodec("brotli")
	require.ErrorIs(t, err, record.ErrUnsupportedCodec)
	require.Equal(t, "codec 7", record.Codec(7).String())
	require.Equal(t, "CreateTime", record.CreateTime.String())
	require.Equal(t, "LogAppendTime", record.LogAppendTime.String())
}

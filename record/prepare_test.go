package record_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"millrace/record"
)

// isOneOf says whether err is one of the sentinels.
func isOneOf(err error, sentinels ...error) bool {
	for _, s := range sentinels {
		if errors.Is(err, s) {
			return true
		}
	}
	return false
}

// changed copies b, changes bytes and seals it again.
func changed(b record.Batch, change func(b record.Batch)) record.Batch {
	b = clone(b)
	change(b)
	b.Seal()
	return b
}

// put32 writes a header field.
func put32(b record.Batch, at int, v int32) { binary.BigEndian.PutUint32(b[at:], uint32(v)) }

// refusal runs Prepare, which must refuse and leave the bytes alone.
func refusal(t *testing.T, buf []byte, l record.Limits) *record.Fault {
	t.Helper()
	before := clone(buf)
	p, err := record.Prepare(buf, l)
	require.Zero(t, p)
	require.Equal(t, before, clone(buf), "refused, yet changed")
	var f *record.Fault
	require.ErrorAs(t, err, &f)
	require.NotEmpty(t, f.Message)
	require.Contains(t, f.Error(), f.Message)
	return f
}

// small is a batch of one record behind a codec.
func small(codec record.Codec) []byte {
	var b record.Builder
	b.SetCodec(codec)
	b.Append(&record.Record{Timestamp: epochMillis})
	return b.Build()
}

func TestPrepareRefuses(t *testing.T) {
	good := batchOf(3)
	limits := anything()
	limit := func(change func(*record.Limits)) record.Limits {
		l := limits
		change(&l)
		return l
	}
	field := func(at int, v int32) []byte {
		return changed(good, func(b record.Batch) { put32(b, at, v) })
	}
	attribute := func(bits byte) []byte {
		return changed(good, func(b record.Batch) { b[22] |= bits })
	}
	for _, c := range []struct {
		name   string
		buf    []byte
		limits record.Limits
		err    error
	}{
		{"no batch", nil, limits, record.ErrInvalid},
		{"cut batch", good[:len(good)-1], limits, record.ErrInvalid},
		{"a few bytes", good[:5], limits, record.ErrInvalid},
		{"two batches", append(clone(good), good...), limits, record.ErrInvalid},
		{"bytes after the batch", append(clone(good), 0), limits, record.ErrInvalid},
		{"format 1", changed(good, func(b record.Batch) { b[16] = 1 }), limits, record.ErrInvalid},
		{"length absurd", field(8, 48), limits, record.ErrCorrupt},
		{"length negative", field(8, -5), limits, record.ErrCorrupt},
		{"1 base offset", field(4, 1), limits, record.ErrInvalid},
		{"2 max.message.bytes", good,
			limit(func(l *record.Limits) { l.MaxMessageBytes = len(good) - 1 }), record.ErrTooLarge},
		{"3 checksum", append(clone(good[:len(good)-1]), 'x'), limits, record.ErrCorrupt},
		{"4 segment.bytes", good,
			limit(func(l *record.Limits) { l.SegmentBytes = len(good) - 1 }), record.ErrSegmentTooSmall},
		{"5 last offset delta negative", field(23, -1), limits, record.ErrInvalid},
		{"5 no records",
			changed(good[:61], func(b record.Batch) { put32(b, 8, 49); put32(b, 57, 0) }),
			limits, record.ErrInvalid},
		{"5 records negative", field(57, -3), limits, record.ErrInvalid},
		{"5 fewer records than offsets", field(57, 2), limits, record.ErrInvalid},
		{"5 more records than offsets", field(57, 4), limits, record.ErrInvalid},
		{"5 wrap of count and delta", changed(good, func(b record.Batch) {
			put32(b, 57, math.MinInt32)
			put32(b, 23, math.MaxInt32)
		}), limits, record.ErrInvalid},
		{"6 control", attribute(0x20), limits, record.ErrInvalid},
		{"6 delete horizon", attribute(0x40), limits, record.ErrInvalid},
		{"7 producer without sequence", changed(good, func(b record.Batch) { b.SetProducer(0, 0, -1) }),
			limits, record.ErrInvalid},
		{"8 zstd not allowed", small(record.Zstd), limit(func(l *record.Limits) { l.ZstdAllowed = false }),
			record.ErrUnsupportedCodec},
		{"8 codec 5", attribute(5), limits, record.ErrUnsupportedCodec},
		{"8 codec 7", attribute(7), limits, record.ErrUnsupportedCodec},
		{"10 not what the codec says", attribute(1), limits, record.ErrInvalid},
		{"10 one record, two claimed", rawBatch(2, 0, encodeRecord(0, 0, nil)), limits, record.ErrInvalid},
		{"13 LogAppendTime from the client", attribute(0x08),
			limit(func(l *record.Limits) { l.TimestampType = record.LogAppendTime }), record.ErrTimestamp},
		{"expands too far", small(record.Gzip),
			limit(func(l *record.Limits) { l.MaxExpandedBytes = 5 }), record.ErrTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := refusal(t, c.buf, c.limits)
			require.ErrorIs(t, f, c.err)
			require.Empty(t, f.Records)
		})
	}
}

// Where a batch breaks two rules, the earlier one is the answer.
func TestPrepareChecksInOrder(t *testing.T) {
	l := anything()
	l.MaxMessageBytes, l.SegmentBytes, l.ZstdAllowed = 10, 10, false
	b := changed(batchOf(3), func(b record.Batch) {
		b.SetBaseOffset(1)
		b[22] = 0x2c // control, LogAppendTime, zstd
		put32(b, 57, 7)
	})
	b[len(b)-1]++
	steps := []struct {
		err error
		fix func()
	}{
		{record.ErrInvalid, func() { b.SetBaseOffset(0) }},
		{record.ErrTooLarge, func() { l.MaxMessageBytes = 1000 }},
		{record.ErrCorrupt, func() { b[len(b)-1]--; b.Seal() }},
		{record.ErrSegmentTooSmall, func() { l.SegmentBytes = 1000 }},
		{record.ErrInvalid, func() { put32(b, 57, 3); b.Seal() }},
		{record.ErrInvalid, func() { b[22] = 0x0c; b.Seal() }},
		{record.ErrUnsupportedCodec, func() { l.ZstdAllowed = true }},
		{record.ErrInvalid, func() { b[22] = 0x08; b.Seal(); l.TimestampType = record.LogAppendTime }},
		{record.ErrTimestamp, func() { b[22] = 0; b.Seal() }},
	}
	for i, s := range steps {
		require.ErrorIs(t, refusal(t, b, l), s.err, "step %d", i)
		s.fix()
	}
	_, err := record.Prepare(b, l)
	require.NoError(t, err)
}

func TestPrepareRefusesMalformedRecords(t *testing.T) {
	for name, payload := range malformed() {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, refusal(t, rawBatch(1, 0, payload), anything()), record.ErrInvalid)
			if len(payload) == 0 {
				return
			}
			// The same bytes behind a codec, where the scan goes through a window.
			frame := []byte{0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82}
			frame = binary.LittleEndian.AppendUint32(frame, uint32(len(payload))|1<<31)
			frame = append(append(frame, payload...), 0, 0, 0, 0)
			require.ErrorIs(t, refusal(t, rawBatch(1, 3, frame), anything()), record.ErrInvalid)
		})
	}
}

// One record is found at fault exactly where a batch of it alone is.
func TestCheckRecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := anything()
		l.Compacted = rapid.Bool().Draw(t, "compacted")
		l.TimestampBefore, l.TimestampAfter = 1000, 50
		l.TimestampType = rapid.SampledFrom([]record.TimestampType{record.CreateTime, record.LogAppendTime}).Draw(t, "type")
		r := record.Record{
			Timestamp: epochMillis + rapid.Int64Range(-1200, 100).Draw(t, "timestamp"),
			Value:     make([]byte, rapid.IntRange(0, 300).Draw(t, "size")),
		}
		if rapid.Bool().Draw(t, "key") {
			r.Key = []byte("k")
		}
		var b record.Builder
		b.Append(&r)
		batch := b.Build()
		l.MaxMessageBytes = len(batch) + rapid.IntRange(-1, 1).Draw(t, "room")
		l.SegmentBytes = len(batch) + rapid.IntRange(-1, 1).Draw(t, "segment")
		want := record.Check(batch, l)
		got := l.CheckRecord(&r)
		if want == nil {
			require.Nil(t, got)
			return
		}
		require.NotNil(t, got)
		require.ErrorIs(t, want, got.Err)
		_, err := record.Prepare(batch, l)
		require.Equal(t, want, err)
	})
}

func TestPrepareListsRecordsAtFault(t *testing.T) {
	l := anything()
	l.Compacted = true
	l.TimestampBefore, l.TimestampAfter = 1000, 50
	build := func(codec record.Codec, records ...record.Record) []byte {
		var b record.Builder
		b.SetCodec(codec)
		for i := range records {
			b.Append(&records[i])
		}
		return b.Build()
	}
	key := []byte("k")
	now := int64(epochMillis)
	for _, codec := range []record.Codec{record.None, record.Gzip, record.Snappy, record.LZ4, record.Zstd} {
		t.Run(codec.String(), func(t *testing.T) {
			_, err := record.Prepare(build(codec,
				record.Record{Key: key, Timestamp: now - 1000}, record.Record{Key: key, Timestamp: now + 50},
				record.Record{Key: []byte{}, Timestamp: -1}), l)
			require.NoError(t, err, "the ends of the range, an empty key and no timestamp are fine")

			f := refusal(t, build(codec, record.Record{Key: key, Timestamp: now},
				record.Record{Timestamp: now}, record.Record{Key: key, Timestamp: now}, record.Record{Timestamp: now}), l)
			require.ErrorIs(t, f, record.ErrInvalid)
			require.Len(t, f.Records, 2)
			require.EqualValues(t, []int32{1, 3}, []int32{f.Records[0].Index, f.Records[1].Index})
			require.Contains(t, f.Records[0].Message, "key")
			require.Equal(t, "2 records were refused", f.Message)

			f = refusal(t, build(codec, record.Record{Timestamp: now},
				record.Record{Key: key, Timestamp: now + 51}, record.Record{Key: key, Timestamp: now - 1001}), l)
			require.ErrorIs(t, f, record.ErrTimestamp, "a bad timestamp outweighs a missing key")
			require.Len(t, f.Records, 3)
			require.Equal(t, "timestamp 2023-11-14T22:13:20.051Z is after 2023-11-14T22:13:20.050Z, "+
				"the latest that the topic takes at present", f.Records[1].Message)
			require.Contains(t, f.Records[2].Message, "22:13:18.999Z is before 2023-11-14T22:13:19.000Z, the earliest")

			f = refusal(t, build(codec, record.Record{Timestamp: math.MaxInt64}), l)
			require.Equal(t, "1 record was refused", f.Message, "for two reasons")
			require.Len(t, f.Records, 1)
			require.Contains(t, f.Records[0].Message, "key; timestamp 9223372036854775807 is after 2023")
		})
	}
	many := make([]record.Record, 5000)
	for i := range many {
		many[i].Timestamp = now
	}
	many[4999].Timestamp = 0
	f := refusal(t, build(record.None, many...), l)
	require.ErrorIs(t, f, record.ErrTimestamp, "also when found after the list is full")
	require.Len(t, f.Records, 1000)

	l.TimestampType = record.LogAppendTime
	_, err := record.Prepare(build(record.None, record.Record{Key: key, Timestamp: 5}), l)
	require.NoError(t, err, "with LogAppendTime the client's timestamps do not matter")
}

// The extremes of settings and timestamps do not overflow into an answer.
func TestPrepareTimestampRangeDoesNotOverflow(t *testing.T) {
	l := anything()
	for _, timestamp := range []int64{math.MinInt64, -2, -1, 0, epochMillis} {
		for _, before := range []int64{0, 1000, math.MaxInt64} {
			var b record.Builder
			b.Append(&record.Record{Timestamp: timestamp})
			l.TimestampBefore, l.TimestampAfter = before, math.MaxInt64
			_, err := record.Prepare(b.Build(), l)
			if ok := timestamp == -1 || timestamp >= epochMillis-before; ok {
				require.NoError(t, err, "%d with before %d", timestamp, before)
			} else {
				require.ErrorIs(t, err, record.ErrTimestamp, "%d with before %d", timestamp, before)
			}
		}
	}
}

func TestPrepareAppliesTimestampRules(t *testing.T) {
	var b record.Builder
	for _, d := range []int64{0, 70, 20, 70} {
		b.Append(&record.Record{Timestamp: epochMillis + d})
	}
	sent := clone(b.Build())
	inPlace := func(t *testing.T, buf []byte, l record.Limits) record.Prepared {
		t.Helper()
		p, err := record.Prepare(buf, l)
		require.NoError(t, err)
		require.Same(t, &buf[0], &p.Batch[0], "the memory is the client's")
		require.NoError(t, p.Batch.Verify())
		return p
	}
	create := anything()
	logTime := anything()
	logTime.TimestampType = record.LogAppendTime

	t.Run("CreateTime, right maximum", func(t *testing.T) {
		p := inPlace(t, clone(sent), create)
		require.Equal(t, sent, []byte(p.Batch))
		require.EqualValues(t, 1, p.MaxTimestampDelta, "the first record that has the maximum")
	})
	t.Run("CreateTime, wrong maximum", func(t *testing.T) {
		p := inPlace(t, changed(sent, func(b record.Batch) { b.SetTimestamp(record.CreateTime, 5) }), create)
		require.Equal(t, sent, []byte(p.Batch))
	})
	t.Run("CreateTime, client says LogAppendTime", func(t *testing.T) {
		p := inPlace(t, changed(sent, func(b record.Batch) { b.SetTimestamp(record.LogAppendTime, 5) }), create)
		require.Equal(t, sent, []byte(p.Batch))
	})
	t.Run("LogAppendTime", func(t *testing.T) {
		p := inPlace(t, clone(sent), logTime)
		require.Equal(t, record.LogAppendTime, p.Batch.TimestampType())
		require.EqualValues(t, epochMillis, p.Batch.MaxTimestamp())
		require.Equal(t, sent[61:], p.Batch.Payload())
		require.EqualValues(t, 0, p.MaxTimestampDelta)
	})
	t.Run("no timestamps", func(t *testing.T) {
		var b record.Builder
		b.Append(&record.Record{Timestamp: -1})
		b.Append(&record.Record{Timestamp: -1})
		p := inPlace(t, b.Build(), create)
		require.EqualValues(t, -1, p.Batch.MaxTimestamp())
	})
}

func TestPrepareNumbersRecords(t *testing.T) {
	const n = 200 // offset deltas of one and of two bytes
	var payload []byte
	var want []record.Record
	for i := range int32(n) {
		payload = append(payload, encodeRecord(n-i, int64(i), func(r *kmsg.Record) {
			r.Headers = []kmsg.Header{{Key: "h", Value: []byte{byte(i)}}, {Key: "null"}}
		})...)
		want = append(want, record.Record{Offset: int64(i), Timestamp: epochMillis + int64(i), Key: []byte("k"),
			Value: []byte("v"), Headers: []record.Header{{Key: "h", Value: []byte{byte(i)}}, {Key: "null"}}})
	}
	pool := record.NewPool(1 << 20)
	for _, compression := range []string{"producer", "uncompressed", "gzip"} {
		for _, codec := range []record.Codec{record.None, record.Gzip, record.LZ4} {
			t.Run(fmt.Sprint(codec, " to ", compression), func(t *testing.T) {
				sent := rawBatch(n, 0x10, payload)
				if codec != record.None {
					compressor := record.Limits{Compression: codec.String()}
					sent = rawBatch(n, 0x10|byte(codec), recompress(t, sent, compressor))
				}
				sent.SetProducer(5, 6, 7)
				l := anything()
				l.Compression = compression
				l.Arena = pool.Arena()
				defer l.Arena.Free()
				before := clone(sent)
				p, err := record.Prepare(sent, l)
				require.NoError(t, err)
				require.Equal(t, before, clone(sent))
				require.NoError(t, p.Batch.Verify())
				require.Equal(t, want, readAll(t, p.Batch))
				require.EqualValues(t, n-1, p.MaxTimestampDelta)
				require.True(t, p.Batch.IsTransactional())
				require.EqualValues(t, 5, p.Batch.ProducerID())
				require.EqualValues(t, 6, p.Batch.ProducerEpoch())
				require.EqualValues(t, 7, p.Batch.BaseSequence())
			})
		}
	}
}

// recompress gives the payload of an uncompressed batch under l.Compression, deltas untouched.
func recompress(t *testing.T, b record.Batch, l record.Limits) []byte {
	codec, err := record.ParseCodec(l.Compression)
	require.NoError(t, err)
	compressor, err := kgoCompressor(codec)
	require.NoError(t, err)
	out, _ := compressor.Compress(new(bytes.Buffer), b.Payload())
	return out
}

func TestPrepareRecompresses(t *testing.T) {
	codecs := record.NewCodecs(1)
	rapid.Check(t, func(t *rapid.T) {
		records := drawRecords(t)
		builder := record.Builder{Codecs: codecs}
		sent := record.Codec(rapid.IntRange(0, 4).Draw(t, "sent"))
		builder.SetCodec(sent)
		builder.SetProducer(9, 8, 7)
		for i := range records {
			builder.Append(&records[i])
		}
		batch := builder.Build()
		plainMax := batch.MaxTimestamp()
		l := anything()
		l.TimestampBefore, l.TimestampAfter, l.Now = math.MaxInt64, math.MaxInt64, 0
		for i := range records {
			if records[i].Timestamp < -math.MaxInt64 {
				t.Skip("before every range")
			}
		}
		l.Codecs = codecs
		settings := []string{"", "producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"}
		l.Compression = rapid.SampledFrom(settings).Draw(t, "setting")
		want := sent
		if l.Compression != "" && l.Compression != "producer" {
			want, _ = record.ParseCodec(l.Compression)
		}
		if rapid.Bool().Draw(t, "log time") {
			l.TimestampType, plainMax = record.LogAppendTime, 12345
			l.Now = plainMax
			for i := range records {
				records[i].Timestamp = plainMax
			}
		}
		p, err := record.Prepare(batch, l)
		require.NoError(t, err)
		require.NoError(t, p.Batch.Verify())
		require.Equal(t, want, p.Batch.Codec())
		require.Equal(t, l.TimestampType, p.Batch.TimestampType())
		require.Equal(t, plainMax, p.Batch.MaxTimestamp())
		require.EqualValues(t, 9, p.Batch.ProducerID())
		got, err := decode(record.NewReader(p.Batch, 64<<20))
		require.NoError(t, err)
		require.Equal(t, records, got)
		require.Equal(t, plainMax, got[p.MaxTimestampDelta].Timestamp)
		if want == sent {
			require.Same(t, &batch[0], &p.Batch[0])
		}
	})
}

func TestPrepareChecksSizeAfterRecompression(t *testing.T) {
	var b record.Builder
	b.SetCodec(record.Zstd)
	b.Append(&record.Record{Timestamp: epochMillis, Value: make([]byte, 10000)})
	sent := b.Build()
	l := anything()
	l.Compression = "uncompressed"
	l.MaxMessageBytes = 9000
	require.ErrorIs(t, refusal(t, sent, l), record.ErrTooLarge)
	l.MaxMessageBytes = 10020
	require.ErrorIs(t, refusal(t, sent, l), record.ErrTooLarge, "the header counts")
	l.MaxMessageBytes, l.SegmentBytes = 20000, 9000
	require.ErrorIs(t, refusal(t, sent, l), record.ErrSegmentTooSmall)
	l.SegmentBytes = 20000
	p, err := record.Prepare(sent, l)
	require.NoError(t, err)
	require.Greater(t, len(p.Batch), 10000)
}

func TestPrepareAllocatesNothing(t *testing.T) {
	batch := batch100x1KiB()
	l := anything()
	allocs := testing.AllocsPerRun(100, func() {
		if _, err := record.Prepare(batch, l); err != nil {
			t.Fatal(err)
		}
	})
	require.Zero(t, allocs)

	l.TimestampType = record.LogAppendTime
	create := batch100x1KiB()
	allocs = testing.AllocsPerRun(100, func() {
		create.SetTimestamp(record.CreateTime, 0)
		if _, err := record.Prepare(create, l); err != nil {
			t.Fatal(err)
		}
	})
	require.Zero(t, allocs)
}

// batch100x1KiB is the batch that the speed of everything is measured with.
func batch100x1KiB() record.Batch {
	var b record.Builder
	value := bytes.Repeat([]byte("0123456789abcdef"), 64)
	for i := range 100 {
		b.Append(&record.Record{Timestamp: epochMillis + int64(i), Key: []byte(fmt.Sprint("key-", i)), Value: value})
	}
	return b.Build()
}

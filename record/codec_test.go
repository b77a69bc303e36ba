package record_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"millrace/record"
)

// compressing are the codecs that compress.
func compressing() []record.Codec {
	return []record.Codec{record.Gzip, record.Snappy, record.LZ4, record.Zstd}
}

// kgoCompressor is how kgo compresses.
func kgoCompressor(codec record.Codec) (kgo.Compressor, error) {
	switch codec {
	case record.Gzip:
		return kgo.DefaultCompressor(kgo.GzipCompression())
	case record.Snappy:
		return kgo.DefaultCompressor(kgo.SnappyCompression())
	case record.LZ4:
		return kgo.DefaultCompressor(kgo.Lz4Compression())
	default:
		return kgo.DefaultCompressor(kgo.ZstdCompression())
	}
}

// payloads are records to compress: small, repetitive, random, and larger than all block sizes.
func payloads() map[string][]byte {
	random := make([]byte, 300<<10)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range random {
		random[i] = byte(rng.Uint32())
	}
	repeated := bytes.Repeat([]byte("the quick brown fox "), 30<<10)
	return map[string][]byte{
		"small":      encodeRecord(0, 0, nil),
		"random":     oneRecord(random),
		"repetitive": oneRecord(repeated),
		"mixed":      oneRecord(append(append(clone(repeated), random...), repeated...)),
		"32 KiB":     oneRecord(make([]byte, 32<<10)),
		"zeros":      oneRecord(make([]byte, 9<<20)),
	}
}

// oneRecord is a payload of one record with that value.
func oneRecord(value []byte) []byte {
	var b record.Builder
	b.Append(&record.Record{Timestamp: epochMillis, Value: value})
	return b.Build().Payload()
}

// checkPayload reads the batch and compares the records with those of plain.
func checkPayload(t *testing.T, want []byte, b record.Batch) {
	t.Helper()
	plain := readAll(t, rawBatch(1, 0, want))
	got := readAll(t, b)
	require.Len(t, got, 1)
	require.True(t, bytes.Equal(plain[0].Value, got[0].Value))
	p, err := record.Prepare(clone(b), anything())
	require.NoError(t, err)
	require.Equal(t, []byte(b), []byte(p.Batch))
}

// anything are limits that let any sound batch through unchanged.
func anything() record.Limits {
	return record.Limits{MaxMessageBytes: 1 << 30, SegmentBytes: 1 << 30, ZstdAllowed: true,
		TimestampBefore: 1<<63 - 1, TimestampAfter: 1<<63 - 1, Now: epochMillis}
}

func TestOursIsReadByOurselvesAndByKgo(t *testing.T) {
	codecs := record.NewCodecs(2)
	decompressor := kgo.DefaultDecompressor()
	levels := map[record.Codec][]int{
		record.Gzip: {-1, 0, 1, 9}, record.Snappy: {0}, record.LZ4: {0, 1, 9, 17},
		record.Zstd: {-131072, 0, 3, 7, 22},
	}
	for name, payload := range payloads() {
		if name == "zeros" {
			continue // too slow at every level
		}
		for codec, all := range levels {
			for _, level := range all {
				t.Run(fmt.Sprintf("%v/%v/%d", name, codec, level), func(t *testing.T) {
					plain := readAll(t, rawBatch(1, 0, payload))
					b := record.Builder{Codecs: codecs}
					b.SetCompression(codec, level)
					b.Append(&plain[0])
					batch := b.Build()
					require.Equal(t, codec, batch.Codec())
					require.NoError(t, batch.Verify())
					checkPayload(t, payload, batch)
					out, err := decompressor.Decompress(batch.Payload(), kgo.CompressionCodecType(codec))
					require.NoError(t, err)
					require.True(t, bytes.Contains(out, plain[0].Value))
				})
			}
		}
	}
}

func TestKgoIsReadByUs(t *testing.T) {
	for name, payload := range payloads() {
		for _, codec := range compressing() {
			t.Run(name+"/"+codec.String(), func(t *testing.T) {
				compressor, err := kgoCompressor(codec)
				require.NoError(t, err)
				out, used := compressor.Compress(new(bytes.Buffer), payload)
				require.EqualValues(t, codec, used)
				checkPayload(t, payload, rawBatch(1, byte(codec), out))
			})
		}
	}
}

func TestGzipMembersFollowEachOther(t *testing.T) {
	payload := oneRecord(bytes.Repeat([]byte("abc"), 1000))
	var out bytes.Buffer
	for _, part := range [][]byte{payload[:10], {}, payload[10:500], payload[500:]} {
		w := gzip.NewWriter(&out)
		_, err := w.Write(part)
		require.NoError(t, err)
		require.NoError(t, w.Close())
	}
	checkPayload(t, payload, rawBatch(1, byte(record.Gzip), out.Bytes()))
}

// javaSnappy frames chunks as snappy-java does.
func javaSnappy(chunks ...[]byte) []byte {
	out := []byte("\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
	for _, c := range chunks {
		block := s2.EncodeSnappy(nil, c)
		out = binary.BigEndian.AppendUint32(out, uint32(len(block)))
		out = append(out, block...)
	}
	return out
}

func TestSnappyFramings(t *testing.T) {
	payload := oneRecord(bytes.Repeat([]byte("0123456789"), 10000))
	for name, out := range map[string][]byte{
		"bare block":           s2.EncodeSnappy(nil, payload),
		"one chunk":            javaSnappy(payload),
		"chunks of any size":   javaSnappy(payload[:1], payload[1:70000], payload[70000:]),
		"frames in succession": append(javaSnappy(payload[:500]), javaSnappy(payload[500:])...),
	} {
		t.Run(name, func(t *testing.T) {
			checkPayload(t, payload, rawBatch(1, byte(record.Snappy), out))
		})
	}
	var b record.Builder
	b.SetCodec(record.Snappy)
	b.Append(&record.Record{Value: make([]byte, 100000)})
	ours := b.Build().Payload()
	require.True(t, bytes.HasPrefix(ours, javaSnappy()), "what we write has snappy-java's framing")
	first, err := s2.DecodedLen(ours[len(javaSnappy())+4:])
	require.NoError(t, err)
	require.Equal(t, 32<<10, first)
}

func TestLZ4Frames(t *testing.T) {
	payload := oneRecord(bytes.Repeat([]byte("0123456789abcdefg"), 100000))
	for name, options := range map[string][]lz4.Option{
		"plain":           {lz4.ChecksumOption(false)},
		"all checksums":   {lz4.ChecksumOption(true), lz4.BlockChecksumOption(true)},
		"content size":    {lz4.SizeOption(uint64(len(payload)))},
		"blocks 64 KiB":   {lz4.BlockSizeOption(lz4.Block64Kb)},
		"blocks 4 MiB":    {lz4.BlockSizeOption(lz4.Block4Mb), lz4.ChecksumOption(true)},
		"slow compressor": {lz4.CompressionLevelOption(lz4.Level5)},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			w := lz4.NewWriter(&out)
			require.NoError(t, w.Apply(options...))
			_, err := w.Write(payload)
			require.NoError(t, err)
			require.NoError(t, w.Close())
			checkPayload(t, payload, rawBatch(1, byte(record.LZ4), out.Bytes()))
		})
	}
}

func TestZstdFrames(t *testing.T) {
	big := make([]byte, 9<<20)
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range big {
		big[i] = byte(rng.Uint32N(4))
	}
	payload := oneRecord(big)
	stream := func(options ...zstd.EOption) []byte {
		var out bytes.Buffer
		w, err := zstd.NewWriter(&out, options...)
		require.NoError(t, err)
		_, err = w.Write(payload)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		return out.Bytes()
	}
	whole, err := zstd.NewWriter(nil, zstd.WithWindowSize(16<<20), zstd.WithSingleSegment(true))
	require.NoError(t, err)
	for name, out := range map[string][]byte{
		"window of a stream":         stream(zstd.WithWindowSize(2 << 20)),
		"window too large to stream": stream(zstd.WithWindowSize(16 << 20)),
		"one segment":                whole.EncodeAll(payload, nil),
	} {
		t.Run(name, func(t *testing.T) {
			checkPayload(t, payload, rawBatch(1, byte(record.Zstd), out))
		})
	}
	small := oneRecord(big[:3<<20])
	two := whole.EncodeAll(small[100:], whole.EncodeAll(small[:100], nil))
	checkPayload(t, small, rawBatch(1, byte(record.Zstd), two))
}

// compressed is a small sound payload of each codec.
func compressed(payload []byte) map[record.Codec][]byte {
	m := make(map[record.Codec][]byte)
	plain, _ := decode(record.NewReader(rawBatch(1, 0, payload), 0))
	for _, codec := range compressing() {
		var b record.Builder
		b.SetCodec(codec)
		b.Append(&plain[0])
		m[codec] = clone(b.Build().Payload())
	}
	return m
}

func TestDamagedStreamsAreRefused(t *testing.T) {
	payload := oneRecord([]byte(strings.Repeat("abcdefgh", 300)))
	for codec, good := range compressed(payload) {
		t.Run(codec.String(), func(t *testing.T) {
			for n := range len(good) {
				_, err := decode(record.NewReader(rawBatch(1, byte(codec), good[:n]), 1<<20))
				require.ErrorIs(t, err, record.ErrCorrupt, "cut at %d", n)
			}
			_, err := decode(record.NewReader(rawBatch(1, byte(codec), append(clone(good), "rest"...)), 1<<20))
			require.ErrorIs(t, err, record.ErrCorrupt, "bytes after the end")
			for i := range good {
				for _, flip := range []byte{1, 0x80, 0xff} {
					bad := clone(good)
					bad[i] ^= flip
					_, err := decode(record.NewReader(rawBatch(1, byte(codec), bad), 1<<20))
					if err != nil {
						require.True(t, isOneOf(err, record.ErrCorrupt, record.ErrTooLarge), "%v", err)
					}
				}
			}
		})
	}
}

// zstdClaim begins a frame.
func zstdClaim(descriptor byte) []byte { return []byte{0x28, 0xb5, 0x2f, 0xfd, descriptor} }

func TestHostileFramesAreRefused(t *testing.T) {
	const snappyClaim = "\xff\xff\xff\xff\x0f\x00a"
	lz4Frame := func(change func([]byte)) []byte {
		p := compressed(oneRecord(make([]byte, 100)))[record.LZ4]
		change(p)
		return p
	}
	for name, c := range map[string]struct {
		codec record.Codec
		bytes []byte
	}{
		"snappy: bare block claims 4 GiB":  {record.Snappy, []byte(snappyClaim)},
		"snappy: chunk claims 4 GiB":       {record.Snappy, append(javaSnappy(), "\x00\x00\x00\x07"+snappyClaim...)},
		"snappy: chunk size negative":      {record.Snappy, append(javaSnappy(), 0xff, 0, 0, 7, 1, 0, 'a')},
		"snappy: chunk size beyond":        {record.Snappy, append(javaSnappy(), 0x7f, 0, 0, 7, 1, 0, 'a')},
		"snappy: chunk of nothing":         {record.Snappy, append(javaSnappy(), 0, 0, 0, 0)},
		"snappy: an element of S2":         {record.Snappy, []byte{8, 0x0c, 'a', 'b', 'c', 'd', 0x01, 0x00}},
		"snappy: copy before the start":    {record.Snappy, []byte{4, 0x01, 0x05}},
		"lz4: header checksum differs":     {record.LZ4, lz4Frame(func(p []byte) { p[6]++ })},
		"lz4: version 2":                   {record.LZ4, lz4Frame(func(p []byte) { p[4] = 0xa0 })},
		"lz4: dictionary":                  {record.LZ4, lz4Frame(func(p []byte) { p[4] |= 1 })},
		"lz4: block size code 3":           {record.LZ4, lz4Frame(func(p []byte) { p[5] = 0x30 })},
		"lz4: linked blocks":               {record.LZ4, lz4Frame(func(p []byte) { p[4] &^= 0x20 })},
		"lz4: block size beyond":           {record.LZ4, lz4Frame(func(p []byte) { p[10] = 0x7f })},
		"lz4: the legacy format":           {record.LZ4, []byte{0x02, 0x21, 0x4c, 0x18, 1, 0, 0, 0, 0}},
		"gzip: not gzip":                   {record.Gzip, []byte("plain text is not gzip")},
		"zstd: not zstd":                   {record.Zstd, []byte("plain text is not zstd")},
		"zstd: window of 2 TiB":            {record.Zstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xf8, 0x01, 0, 0}},
		"zstd: claims 4 EiB, one segment":  {record.Zstd, append(zstdClaim(0xe0), 0, 0, 0, 0, 0, 0, 0, 64, 1, 0, 0)},
		"zstd: claims 16 MiB, one segment": {record.Zstd, append(zstdClaim(0xa0), 0, 0, 0, 1, 1, 0, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			const bound = 512 << 10
			var before, after runtime.MemStats
			b := rawBatch(1, byte(c.codec), c.bytes)
			runtime.ReadMemStats(&before)
			_, err := decode(record.NewReader(b, 64<<20))
			runtime.ReadMemStats(&after)
			require.True(t, isOneOf(err, record.ErrCorrupt, record.ErrTooLarge), "%v", err)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(bound))
			_, err = record.Prepare(b, anything())
			require.True(t, isOneOf(err, record.ErrInvalid, record.ErrTooLarge), "%v", err)
		})
	}
}

// A bomb is refused at the bound, and the memory stays near it; a leader's check, which streams,
// needs far less.
func TestBombs(t *testing.T) {
	for _, codec := range compressing() {
		t.Run(codec.String(), func(t *testing.T) {
			const bound = 16 << 20
			compressor, err := kgoCompressor(codec)
			require.NoError(t, err)
			out, _ := compressor.Compress(new(bytes.Buffer), oneRecord(make([]byte, 64<<20)))
			b := rawBatch(1, byte(codec), out)

			var before, between, after runtime.MemStats
			limits := anything()
			limits.MaxExpandedBytes = bound
			runtime.ReadMemStats(&before)
			_, err = record.Prepare(b, limits)
			require.ErrorIs(t, err, record.ErrTooLarge)
			runtime.ReadMemStats(&between)
			_, err = decode(record.NewReader(b, bound))
			require.ErrorIs(t, err, record.ErrTooLarge)
			runtime.ReadMemStats(&after)
			t.Logf("%d bytes; Prepare took %d KiB, Reader %d KiB", len(b),
				(between.TotalAlloc-before.TotalAlloc)>>10, (after.TotalAlloc-between.TotalAlloc)>>10)
			require.Less(t, between.TotalAlloc-before.TotalAlloc, uint64(22*len(b)+bound))
			require.Less(t, after.TotalAlloc-between.TotalAlloc, uint64(22*len(b)+4*bound))
		})
	}
}

// Every part of a node may use one Codecs at a time.
func TestCodecsAreSafeForConcurrentUse(t *testing.T) {
	codecs := record.NewCodecs(2)
	payload := oneRecord(bytes.Repeat([]byte("concurrent"), 1000))
	want := readAll(t, rawBatch(1, 0, payload))
	done := make(chan error)
	for range 8 {
		go func() { done <- useCodecs(codecs, want) }()
	}
	for range 8 {
		require.NoError(t, <-done)
	}
}

func useCodecs(codecs *record.Codecs, want []record.Record) error {
	b, r := record.Builder{Codecs: codecs}, record.Reader{Codecs: codecs}
	for i := range 40 {
		b.Reset(nil)
		b.SetCodec(record.Codec(i%4 + 1))
		b.Append(&want[0])
		r.Reset(b.Build(), 1<<20)
		got, err := decode(&r)
		if err != nil {
			return err
		}
		if !bytes.Equal(got[0].Value, want[0].Value) {
			return fmt.Errorf("round %d: values differ", i)
		}
	}
	return nil
}

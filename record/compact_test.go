package record_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/record"
)

// keep says what becomes of records by their offsets.
func keep(of map[int64]record.Verdict) record.Judge {
	return func(some []record.KeyedRecord, verdicts []record.Verdict) {
		for i := range some {
			verdicts[i] = of[some[i].Offset]
		}
	}
}

// records gives what a batch holds, in words.
func records(t *testing.T, b record.Batch) (all []string) {
	t.Helper()
	require.NoError(t, b.Verify())
	r := record.NewReader(b, 1<<20)
	for rec := (record.Record{}); r.Next(&rec); {
		all = append(all, fmt.Sprintf("%d@%d %q=%q %v", rec.Offset, rec.Timestamp, rec.Key, rec.Value, rec.Headers))
	}
	require.NoError(t, r.Err())
	return all
}

// The bytes of what compaction leaves of the golden batch, field by field.
func TestFilterWritesGoldenBytes(t *testing.T) {
	b := record.Batch(golden(t)["data"])
	var c record.Compactor
	out, o, err := c.Filter(nil, b, 0, keep(map[int64]record.Verdict{42: record.Keep, 44: record.Keep}))
	require.NoError(t, err)
	require.Equal(t, record.Rewritten, o)
	require.Equal(t, ""+
		"000000000000002a"+"00000047"+"00000005"+"02"+ // base offset, length, leader epoch, magic
		"679bb495"+"0000"+"00000002"+ // checksum, attributes, last offset delta as it was
		"0000018bcfe56800"+"0000018bcfe56803"+ // base timestamp as it was, greatest of the two
		"00000000000003e8"+"0003"+"00000007"+"00000002"+ // producer as it was, two records
		"1a"+"00"+"00"+"00"+"026b"+"047631"+"02"+"0268"+"0278"+ // offset 42, byte for byte
		"0e"+"00"+"06"+"04"+"026b"+"01"+"00", // offset 44, byte for byte
		hex.EncodeToString(out))
	require.Equal(t, []string{
		`42@1700000000000 "k"="v1" [{h [120]}]`, `44@1700000000003 "k"="" []`,
	}, records(t, out))

	// With a tombstone that stays for some time the base timestamp is its horizon, and the deltas change.
	out, o, err = c.Filter(nil, b, epochMillis+1000, keep(map[int64]record.Verdict{44: record.KeepUntilHorizon}))
	require.NoError(t, err)
	require.Equal(t, record.Rewritten, o)
	require.Equal(t, ""+
		"000000000000002a"+"0000003a"+"00000005"+"02"+
		"82bdb27c"+"0040"+"00000002"+
		"0000018bcfe56be8"+"0000018bcfe56803"+
		"00000000000003e8"+"0003"+"00000007"+"00000001"+
		"10"+"00"+"c90f"+"04"+"026b"+"01"+"00", // the delta is 3 - 1000
		hex.EncodeToString(out))
	require.Equal(t, []string{`44@1700000000003 "k"="" []`}, records(t, out))
	require.True(t, record.Batch(out).HasDeleteHorizon())
	_, o, err = c.Filter(nil, out, epochMillis+5000, keep(map[int64]record.Verdict{44: record.KeepUntilHorizon}))
	require.NoError(t, err)
	require.Equal(t, record.Unchanged, o, "a horizon stays as it was set first")

	_, o, err = c.Filter(nil, b, 0, keep(nil))
	require.NoError(t, err)
	require.Equal(t, record.Emptied, o)
	require.Equal(t, ""+
		"000000000000002a"+"00000031"+"00000005"+"02"+"e434a9b2"+"0000"+"00000002"+
		"ffffffffffffffff"+"0000018bcfe56805"+"00000000000003e8"+"0003"+"00000007"+"00000000",
		hex.EncodeToString(record.AppendEmptied(nil, b)))
}

// What is left of a batch has its codec, and reads back as it was, whatever the codec and the kind of timestamps.
func TestFilterKeepsRecordsAsTheyWere(t *testing.T) {
	for codec := record.None; codec <= record.Zstd; codec++ {
		for _, kind := range []record.TimestampType{record.CreateTime, record.LogAppendTime} {
			var b record.Builder
			b.SetCodec(codec)
			verdicts := map[int64]record.Verdict{}
			for i := range int64(600) { // more than are decoded at a time
				r := record.Record{Timestamp: epochMillis - 7*i, Key: fmt.Appendf(nil, "key-%d", i), Value: []byte("value")}
				if i%7 == 0 {
					r.Value = nil
				}
				b.Append(&r)
				verdicts[i+1000] = record.Verdict(i % 2)
				if i%7 == 0 && i%2 == 1 {
					verdicts[i+1000] = record.KeepUntilHorizon
				}
			}
			batch := b.Build()
			if kind == record.LogAppendTime {
				batch.SetTimestamp(kind, epochMillis+50)
			}
			batch.SetBaseOffset(1000)
			want := records(t, batch)
			var c record.Compactor
			out, o, err := c.Filter([]byte("before"), batch, epochMillis*2, keep(verdicts))
			require.NoError(t, err)
			require.Equal(t, record.Rewritten, o)
			left := record.Batch(out[len("before"):])
			var odd []string
			for i := 1; i < 600; i += 2 {
				odd = append(odd, want[i])
			}
			require.Equal(t, odd, records(t, left))
			require.Equal(t, codec, left.Codec())
			require.Equal(t, batch.LastOffset(), left.LastOffset())
			require.EqualValues(t, 300, left.Count())
			require.EqualValues(t, epochMillis*2, left.BaseTimestamp())
		}
	}
}

// What Filter leaves of any batch is what going through it record by record leaves.
func TestFilterAgainstANaiveOne(t *testing.T) {
	var c record.Compactor
	c.Codecs = record.NewCodecs(1)
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 3))
		batch := randomKeyed(rng, record.Codec(seed%5))
		whole := records(t, batch)
		share := []int{0, 1, 30, 99, 100}[rng.IntN(5)] // of 100 records that stay
		verdicts := map[int64]record.Verdict{}
		var want []string
		horizon, offsets := false, []int64{}
		require.NoError(t, c.Each(batch, func(some []record.KeyedRecord) bool {
			for _, k := range some {
				offsets = append(offsets, k.Offset)
				if rng.IntN(100) >= share {
					continue
				}
				want = append(want, whole[len(offsets)-1])
				verdicts[k.Offset] = record.Keep
				if k.Tombstone {
					verdicts[k.Offset], horizon = record.KeepUntilHorizon, true
				}
			}
			return true
		}))
		require.Len(t, offsets, len(whole))
		out, o, err := c.Filter([]byte("before"), batch, epochMillis*2, keep(verdicts))
		require.NoError(t, err)
		require.Equal(t, "before", string(out[:6]))
		left := record.Batch(out[6:])
		switch {
		case len(want) == 0:
			require.Equal(t, record.Emptied, o)
			require.Empty(t, left)
		case len(want) == len(whole) && !horizon:
			require.Equal(t, record.Unchanged, o)
			require.Empty(t, left)
		default:
			require.Equal(t, record.Rewritten, o, "seed %d", seed)
			require.Equal(t, want, records(t, left), "seed %d", seed)
			require.Equal(t, []any{batch.BaseOffset(), batch.LastOffset(), batch.Codec(), batch.ProducerID(),
				batch.BaseSequence(), batch.LeaderEpoch(), horizon, len(want)}, []any{left.BaseOffset(), left.LastOffset(),
				left.Codec(), left.ProducerID(), left.BaseSequence(), left.LeaderEpoch(), left.HasDeleteHorizon(),
				int(left.Count())})
		}
	}
}

// randomKeyed is a batch of anything.
func randomKeyed(rng *rand.Rand, codec record.Codec) record.Batch {
	var b record.Builder
	b.SetCodec(codec)
	if rng.IntN(2) == 0 {
		b.SetProducer(rng.Int64N(1000), 3, int32(rng.IntN(1000)))
	}
	count := []int{1, 2, 100, 255, 256, 257, 1000}[rng.IntN(7)]
	for range count {
		r := record.Record{Timestamp: epochMillis + rng.Int64N(1<<uint(rng.IntN(40))) - rng.Int64N(1000)}
		if rng.IntN(10) > 0 {
			r.Key = bytes.Repeat([]byte{byte(rng.IntN(256))}, rng.IntN(200))
		}
		if rng.IntN(4) > 0 {
			r.Value = bytes.Repeat([]byte{byte(rng.IntN(256)), byte(rng.IntN(256))}, rng.IntN(300))
		}
		if rng.IntN(5) == 0 {
			r.Headers = []record.Header{{Key: "header", Value: []byte("value")}}
		}
		b.Append(&r)
	}
	batch := b.Build()
	batch.SetBaseOffset(rng.Int64N(1 << 40))
	batch.SetLeaderEpoch(int32(rng.IntN(100)))
	return batch
}

// Whatever the records are, they are refused or read.
func TestCompactorRefusesMalformedRecords(t *testing.T) {
	b := record.Batch(golden(t)["data"])
	var c record.Compactor
	for at := record.HeaderSize; at < len(b); at++ {
		for _, x := range []byte{0x01, 0x80, 0xff} {
			bad := append(record.Batch(nil), b...)
			bad[at] ^= x
			n := 0
			err := c.Each(bad, func(some []record.KeyedRecord) bool { n += len(some); return true })
			if err != nil {
				require.ErrorIs(t, err, record.ErrCorrupt)
			} else {
				require.Equal(t, 3, n)
			}
		}
	}
}

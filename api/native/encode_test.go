package native

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"millrace/client"
	"millrace/record"
)

func TestClock(t *testing.T) {
	const layout = "2006-01-02T15:04:05.000Z"
	var c clock
	check := func(ms int64) {
		require.Equal(t, time.UnixMilli(ms).UTC().Format(layout), string(c.append(nil, ms)))
	}
	for _, ms := range []int64{0, -1, 1, 999, 1000, -1000, -1001, minInstant, maxInstant, 951_782_400_000, 951_868_799_999,
		4_107_542_400_000, -2_203_891_200_000} {
		check(ms)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		check(minInstant + rng.Int64N(maxInstant-minInstant+1))
	}
	for day := range int64(800) {
		check(day * 86_400_000)
		check(day*86_400_000 - 1)
	}
	// So often that what others allocate meanwhile does not count.
	require.Zero(t, testing.AllocsPerRun(100_000, func() { c.append(make([]byte, 0, 32), 1_700_000_000_000) }))
}

func TestEncodeInstants(t *testing.T) {
	var e jsonEncoder
	for ms, want := range map[int64]string{
		-1:             `{"partition":2,"offset":1,"value":null}`,
		0:              `{"partition":2,"offset":1,"timestamp":"1970-01-01T00:00:00.000Z","value":null}`,
		-2:             `{"partition":2,"offset":1,"timestamp":"1969-12-31T23:59:59.998Z","value":null}`,
		maxInstant + 1: `{"partition":2,"offset":1,"value":null,"decode_error":"` + badInstant + `253402300800000"}`,
		minInstant - 1: `{"partition":2,"offset":1,"value":null,"decode_error":"` + badInstant + `-62167219200001"}`,
	} {
		require.Equal(t, want, string(e.append(nil, 2, &record.Record{Offset: 1, Timestamp: ms})))
	}
}

// Whatever a record holds, its JSON is valid, on one line where that is asked for, and gives the bytes back.
func FuzzEncode(f *testing.F) {
	f.Add([]byte("k"), []byte(`{"a":1}`), "name", []byte{0xff}, uint8(0))
	f.Add([]byte("null"), []byte(" null\n"), "\xff", []byte("x"), uint8(5))
	f.Add([]byte("[1,\r\n2]"), []byte("\"\u2028\xed\xa0\x80"), "", []byte(nil), uint8(10))
	f.Fuzz(func(t *testing.T, key, value []byte, name string, header []byte, forms uint8) {
		e := jsonEncoder{key: form(forms & 3), value: form(forms >> 2 & 3), lines: true}
		headers := []record.Header{{Key: name, Value: header}}
		r := record.Record{Offset: 7, Key: key, Value: value, Headers: headers}
		out := e.append(nil, 1, &r)
		require.True(t, json.Valid(out), "%s", out)
		require.True(t, utf8.Valid(out))
		require.Negative(t, bytes.IndexAny(out, "\r\n"))
		var got map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(out, &got))
		checkField(t, got, "key", key)
		checkField(t, got, "value", value)
		events := eventEncoder{topic: "t"}
		require.True(t, json.Valid(events.append(nil, 1, &r)))
	})
}

// checkField compares what a field shows with what it was made from.
func checkField(t *testing.T, got map[string]json.RawMessage, name string, want []byte) {
	forms := 0
	for _, suffix := range []string{"", "_text", "_base64"} {
		if _, ok := got[name+suffix]; ok {
			forms++
		}
	}
	if want == nil {
		require.True(t, forms == 0 || string(got[name]) == "null")
		return
	}
	require.Equal(t, 1, forms)
	switch {
	case got[name+"_base64"] != nil:
		var s string
		require.NoError(t, json.Unmarshal(got[name+"_base64"], &s))
		b, err := base64.StdEncoding.DecodeString(s)
		require.NoError(t, err)
		require.Equal(t, string(want), string(b))
	case got[name+"_text"] != nil:
		var s string
		require.NoError(t, json.Unmarshal(got[name+"_text"], &s))
		require.Equal(t, string(want), s)
	default:
		require.NotEqual(t, "null", string(got[name]))
		var a, b bytes.Buffer
		require.NoError(t, json.Compact(&a, want))
		require.NoError(t, json.Compact(&b, got[name]))
		require.Equal(t, a.String(), b.String())
	}
}

func TestEncodeEventAttributesAreBounded(t *testing.T) {
	headers := []record.Header{{Key: "ce_specversion", Value: []byte("1.0")}, {Key: "ce_id", Value: []byte("1")},
		{Key: "ce_source", Value: []byte("s")}, {Key: "ce_type", Value: []byte("t")}}
	for i := range 1000 {
		headers = append(headers, record.Header{Key: "ce_x" + strings.Repeat("y", i), Value: []byte("1")})
	}
	var e eventEncoder
	var got map[string]any
	require.NoError(t, json.Unmarshal(e.append(nil, 0, &record.Record{Headers: headers}), &got))
	require.Len(t, got, maxEventAttributes)
}

// Whatever batches were read before, and however much of them, a read shows what it would show without that.
func TestKnownBatchesReadAlike(t *testing.T) {
	values := [][]byte{
		[]byte(`{"a":1}`), []byte(`"text"`), []byte(`1`), nil, []byte("null"), []byte(" 1"), []byte("[\n1]"),
		[]byte("text"), {},
	}
	rng := rand.New(rand.NewPCG(1, 2))
	known, topic := newPlainBatches(), &client.Topic{Name: "t", ID: [16]byte{1}}
	read := func(topic *client.Topic, batch record.Batch, value form, from int64, count int) string {
		e := jsonEncoder{value: value, lines: true}
		w := plainWatch{known: known, topic: topic, encoder: &e}
		var s scanner
		var out []byte
		_, err := s.scan(segment{batches: batch, from: from, before: forever, watch: &w}, func(r *record.Record) bool {
			out = append(e.append(out, 0, r), '\n')
			count--
			return count > 0
		})
		require.NoError(t, err)
		return string(out)
	}
	for range 2000 {
		var b record.Builder
		for range 1 + rng.IntN(3) {
			b.Append(&record.Record{Timestamp: int64(rng.IntN(5)), Value: values[rng.IntN(1+rng.IntN(len(values)))]})
		}
		batch := b.Build()
		for range 4 {
			from, count, value := rng.Int64N(2), 1+rng.IntN(3), form(rng.IntN(4))
			require.Equal(t, read(&client.Topic{Name: "t"}, batch, value, from, count), read(topic, batch, value, from, count))
		}
	}
}

// benchBatch is one batch of JSON values of about a size, with tokens as in everyday objects.
func benchBatch(size, count int) record.Batch {
	value := []byte(`{"ts":1000000000000000000`)
	for i := 0; len(value) < size-50; i++ {
		value = fmt.Appendf(value, `,"field%d":%s`, i, []string{`"pending eu-west"`, "123.45", `"9f8e7d6c5b4a3210"`}[i%3])
	}
	value = append(value, '}')
	var b record.Builder
	for range count {
		b.Append(&record.Record{Timestamp: 1_700_000_000_000, Key: []byte(`"key-12345"`), Value: value})
	}
	return b.Build()
}

func BenchmarkEncode(b *testing.B) {
	for _, c := range []struct {
		name        string
		size, count int
	}{{"100B", 100, 1000}, {"1KiB", 1024, 1000}} {
		b.Run(c.name, func(b *testing.B) {
			batch := benchBatch(c.size, c.count)
			var s scanner
			var e jsonEncoder
			var dst []byte
			b.SetBytes(int64(len(batch)))
			b.ReportAllocs()
			for b.Loop() {
				dst = dst[:0]
				_, err := s.scan(segment{batches: batch, before: forever}, func(r *record.Record) bool {
					dst = e.append(dst, 0, r)
					return true
				})
				require.NoError(b, err)
			}
		})
	}
}

// A page over batches that were read before costs no look at the values. Batches of a topic without an id are looked
// at each time.
func BenchmarkPage(b *testing.B) {
	for _, c := range []struct {
		name        string
		size, count int
		id          [16]byte
	}{
		{"100B/first", 100, 100, [16]byte{}}, {"100B/again", 100, 100, [16]byte{1}},
		{"1KiB/first", 1024, 100, [16]byte{}}, {"1KiB/again", 1024, 100, [16]byte{1}},
	} {
		b.Run(c.name, func(b *testing.B) {
			topic := &client.Topic{Name: "t", ID: c.id}
			batch := benchBatch(c.size, c.count)
			pool := record.NewPool(64 << 20)
			var s scratch
			plain := newPlainBatches()
			b.SetBytes(int64(len(batch)))
			for b.Loop() {
				p := &page{topic: topic, form: typeJSON, arena: pool.Arena,
					query: &readQuery{maxRecords: 1 << 20, maxBytes: 1 << 30}}
				p.out.arena = pool.Arena()
				p.watch = plainWatch{known: plain, topic: topic, encoder: &s.json}
				p.begin(&s)
				at := &place{}
				require.NoError(b, p.take(&s.scanner, at, &client.FetchResult{Batches: batch}))
				p.out.arena.Free()
			}
		})
	}
}

package record_test

import (
	"testing"

	"millrace/record"
)

func BenchmarkBuild(b *testing.B) {
	batch := batch100x1KiB()
	records := readAll(b, batch)
	var builder record.Builder
	b.SetBytes(int64(len(batch)))
	b.ReportAllocs()
	for b.Loop() {
		builder.Reset(nil)
		for i := range records {
			builder.Append(&records[i])
		}
		builder.Build()
	}
}

func BenchmarkPrepareRaw100x1KiB(b *testing.B) {
	benchmarkPrepare(b, batch100x1KiB(), anything())
}

func BenchmarkPrepareRaw1000x100B(b *testing.B) {
	var builder record.Builder
	for i := range 1000 {
		builder.Append(&record.Record{Timestamp: epochMillis + int64(i), Value: make([]byte, 100)})
	}
	benchmarkPrepare(b, builder.Build(), anything())
}

func BenchmarkPrepareLogAppendTime100x1KiB(b *testing.B) {
	l := anything()
	l.TimestampType = record.LogAppendTime
	batch := batch100x1KiB()
	b.SetBytes(int64(len(batch)))
	for b.Loop() {
		batch[22] &^= 0x08
		batch.Seal()
		if _, err := record.Prepare(batch, l); err != nil {
			b.Fatal(err)
		}
	}
}

func benchmarkPrepare(b *testing.B, batch record.Batch, l record.Limits) {
	b.SetBytes(int64(len(batch)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := record.Prepare(batch, l); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPrepareCompressed counts expanded bytes.
func BenchmarkPrepareCompressed(b *testing.B) {
	records := readAll(b, batch100x1KiB())
	for _, codec := range compressing() {
		b.Run(codec.String(), func(b *testing.B) {
			var builder record.Builder
			builder.SetCodec(codec)
			for i := range records {
				builder.Append(&records[i])
			}
			batch := builder.Build()
			l := anything()
			l.Codecs = record.NewCodecs(1)
			b.SetBytes(int64(builder.Size()))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := record.Prepare(batch, l); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	batch := batch100x1KiB()
	var r record.Reader
	var rec record.Record
	b.SetBytes(int64(len(batch)))
	b.ReportAllocs()
	for b.Loop() {
		r.Reset(batch, 0)
		for r.Next(&rec) {
		}
	}
}

// BenchmarkReadCompressed counts expanded bytes.
func BenchmarkReadCompressed(b *testing.B) {
	records := readAll(b, batch100x1KiB())
	for _, codec := range compressing() {
		b.Run(codec.String(), func(b *testing.B) {
			var builder record.Builder
			builder.SetCodec(codec)
			for i := range records {
				builder.Append(&records[i])
			}
			batch := builder.Build()
			r := record.Reader{Codecs: record.NewCodecs(1)}
			var rec record.Record
			b.SetBytes(int64(builder.Size()))
			b.ReportAllocs()
			for b.Loop() {
				r.Reset(batch, 1<<20)
				for r.Next(&rec) {
				}
			}
		})
	}
}

func BenchmarkVerify(b *testing.B) {
	batch := batch100x1KiB()
	b.SetBytes(int64(len(batch)))
	for b.Loop() {
		if err := batch.Verify(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkKeyPartition(b *testing.B) {
	key := []byte("order:2024-01-01")
	b.SetBytes(int64(len(key)))
	for b.Loop() {
		record.KeyPartition(key, 12)
	}
}

func BenchmarkArena(b *testing.B) {
	pool := record.NewPool(16 << 20)
	b.ReportAllocs()
	for b.Loop() {
		a := pool.Arena()
		a.Alloc(100 << 10)
		a.Free()
	}
}

package storage_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/record"
	"millrace/storage"
)

// benchBytes is how much a round of the benchmarks has to go through, expanded. What is compressed is less.
const benchBytes, compressedBytes = 512 << 20, 128 << 20

// BenchmarkCompaction measures the rounds that it takes to clean a log on the real disk, and compares the rate at which
// they go through it with a plain copy and sync of the same files, before and after. MiB is the growth of the heap at
// its greatest. Of a codec, %decode and %encode are the rates at which one core does nothing but expand all batches
// once, and compress what is left of them once.
func BenchmarkCompaction(b *testing.B) {
	for _, bytes := range []int{1 << 10, 100} {
		for codec := record.None; codec <= record.Zstd; codec++ {
			for _, every := range []int{2, 50, 0} {
				stays := map[int]string{2: "half", 50: "most", 0: "all"}[every]
				b.Run(fmt.Sprintf("%dB/%v/%s", bytes, codec, stays), func(b *testing.B) {
					for b.Loop() {
						keyedBench{bytes, every, codec}.round(b)
					}
				})
			}
		}
	}
}

// keyedBench is a log of which one record in every so many is superfluous, but for the last of a thousand keys.
type keyedBench struct {
	bytes, every int // every 0: none is
	codec        record.Codec
}

// fastest is the least level of each codec.
func fastest(codec record.Codec) int {
	if codec == record.Gzip || codec == record.Zstd {
		return 1
	}
	return 0
}

func (c keyedBench) round(b *testing.B) {
	b.StopTimer()
	root := b.TempDir()
	fsys, err := storage.OSFS(root)
	require.NoError(b, err)
	d := openDir(b, fsys, func(o *storage.DirOptions) { o.SyncPolicy = storage.SyncNever })
	conf := storage.DefaultConfig()
	conf.SegmentBytes, conf.FileDeleteDelay = 64<<20, time.Hour
	l, err := d.CreateLog(orders, conf)
	require.NoError(b, err)
	c.fill(b, l)
	require.NoError(b, l.Sync(context.Background()))
	require.NoError(b, d.Checkpoint())
	dirty, err := l.Dirty(storage.DirtyQuery{Bound: everything})
	require.NoError(b, err)
	folder := filepath.Join(root, orders.String())
	before := copyFiles(b, root, folder)
	var work storage.Compactor
	peak := watchHeap()
	began := time.Now()
	b.StartTimer()
	var read, written int64
	rounds := 0.0
	for l.CleanedOffset() < dirty.To {
		res, err := work.Run(context.Background(), l, &storage.CompactOptions{
			Bound: everything, DeleteRetention: time.Hour, MapBytes: 44 << 20, BufferBytes: 512 << 10,
			Level: fastest,
		})
		require.NoError(b, err)
		read, written, rounds = read+res.BytesRead, written+res.BytesWritten, rounds+1
	}
	b.StopTimer()
	took := time.Since(began)
	rate := float64(dirty.DirtyBytes) / took.Seconds()
	b.ReportMetric(rate/1e6, "MB/s")
	b.ReportMetric(float64(peak())/(1<<20), "MiB")
	copied := 2 / (1/before + 1/copyFiles(b, root, folder))
	b.ReportMetric(100*rate/copied, "%ofcopy")
	if c.codec != record.None {
		decode, encode := c.codecRates(b, l)
		b.ReportMetric(100*decode/copied, "%decode")
		b.ReportMetric(100*encode/copied, "%encode")
	}
	b.ReportMetric(float64(written)/1e6/rounds, "MBwritten/round")
	b.ReportMetric(float64(read)/1e6/rounds, "MBread/round")
	b.ReportMetric(rounds, "rounds")
	b.SetBytes(dirty.DirtyBytes)
	require.NoError(b, d.Close())
	b.StartTimer()
}

// fill writes batches of about 16 KiB.
func (c keyedBench) fill(b *testing.B, l *storage.Log) {
	var builder record.Builder
	value, size := make([]byte, c.bytes), 0
	count := 16<<10/(c.bytes+30) + 1
	rng := rand.New(rand.NewPCG(1, 2))
	var key [16]byte
	most := benchBytes
	if c.codec != record.None {
		most = compressedBytes
	}
	for n := 0; size < most; {
		builder.Reset(nil)
		builder.SetCompression(c.codec, fastest(c.codec))
		for range count {
			id := uint64(n)
			if c.every > 0 && n%c.every == 0 {
				id = uint64(rng.IntN(1000))
			}
			binary.BigEndian.PutUint64(key[:], id*0x9e3779b97f4a7c15)
			binary.BigEndian.PutUint64(key[8:], id)
			for i := 0; i+8 <= len(value); i += 16 { // half of it can be compressed
				binary.LittleEndian.PutUint64(value[i:], rng.Uint64())
			}
			builder.Append(&record.Record{Timestamp: 1_700_000_000_000 + int64(n), Key: key[:], Value: value})
			n++
		}
		batch := builder.Build()
		batch.SetBaseOffset(l.EndOffset())
		batch.SetLeaderEpoch(1)
		size += builder.Size()
		if _, err := l.Append(batch); err != nil {
			b.Fatal(err)
		}
	}
}

// codecRates gives at which rate, in bytes of the log, one goroutine expands the first batches that are left, and at
// which it compresses them.
func (c keyedBench) codecRates(b *testing.B, l *storage.Log) (decode, encode float64) {
	const sample = 32 << 20
	codecs := record.NewCodecs(1)
	reader, builder := record.Reader{Codecs: codecs}, record.Builder{Codecs: codecs}
	read, err := l.Read(0, sample, everything, nil)
	require.NoError(b, err)
	var bytes int
	var decoding, encoding time.Duration
	for rest := read.Batches; len(rest) > 0; {
		var batch record.Batch
		batch, rest, err = record.Next(rest)
		require.NoError(b, err)
		if batch.Count() == 0 {
			continue
		}
		bytes += len(batch)
		began := time.Now()
		reader.Reset(batch, 1<<30)
		decoding += time.Since(began)
		builder.Reset(nil)
		builder.SetCompression(c.codec, fastest(c.codec))
		for r := (record.Record{}); reader.Next(&r); {
			builder.Append(&r)
		}
		require.NoError(b, reader.Err())
		began = time.Now()
		builder.Build()
		encoding += time.Since(began)
	}
	return float64(bytes) / decoding.Seconds(), float64(bytes) / encoding.Seconds()
}

// copyFiles copies the log files of a folder, as few calls as there can be, and gives the bytes a second.
func copyFiles(b *testing.B, root, folder string) (rate float64) {
	entries, err := os.ReadDir(folder)
	require.NoError(b, err)
	var bytes int64
	buf := make([]byte, 1<<20)
	began := time.Now()
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".log") {
			continue
		}
		from, err := os.Open(filepath.Join(folder, e.Name()))
		require.NoError(b, err)
		to, err := os.Create(filepath.Join(root, e.Name()+".copy"))
		require.NoError(b, err)
		n, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, buf)
		require.NoError(b, err)
		require.NoError(b, to.Sync())
		require.NoError(b, to.Close())
		require.NoError(b, from.Close())
		require.NoError(b, os.Remove(to.Name()))
		bytes += n
	}
	return float64(bytes) / time.Since(began).Seconds()
}

// watchHeap looks at the heap until peak is called, which gives by how much it was greater than at the beginning.
func watchHeap() (peak func() uint64) {
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var (
		wg   sync.WaitGroup
		most uint64
		done = make(chan struct{})
	)
	wg.Go(func() {
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for {
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			if now.HeapAlloc > before.HeapAlloc {
				most = max(most, now.HeapAlloc-before.HeapAlloc)
			}
			select {
			case <-done:
				return
			case <-ticker.C:
			}
		}
	})
	return func() uint64 {
		close(done)
		wg.Wait()
		return most
	}
}

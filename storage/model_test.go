package storage_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"millrace/record"
	"millrace/storage"
	"millrace/storage/storagetest"
)

// drawBatch makes a batch whose timestamps go anywhere.
func drawBatch(t *rapid.T, base int64, epoch int32) record.Batch {
	var b record.Builder
	if rapid.Bool().Draw(t, "compressed") {
		b.SetCodec(record.Gzip)
	}
	for range rapid.IntRange(1, 4).Draw(t, "records") {
		b.Append(&record.Record{
			Timestamp: rapid.Int64Range(-1, 40).Draw(t, "timestamp"),
			Value:     make([]byte, rapid.IntRange(0, 100).Draw(t, "bytes")),
		})
	}
	batch := b.Build()
	if rapid.IntRange(0, 5).Draw(t, "kind") == 0 {
		batch.SetTimestamp(record.LogAppendTime, rapid.Int64Range(0, 40).Draw(t, "append time"))
	}
	batch.SetBaseOffset(base)
	batch.SetLeaderEpoch(epoch)
	return batch
}

// Look-ups by timestamp in a log that grows, is cut at both ends and opened again, against a search
// through all records.
func TestTimeLookupsAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		disk := newDisk()
		c := storage.DefaultConfig()
		c.SegmentBytes = int64(rapid.IntRange(100, 2000).Draw(t, "segment bytes"))
		c.IndexInterval = rapid.SampledFrom([]int{0, 100, 500, 4096}).Draw(t, "interval")
		d, err := storage.OpenDir(storage.DirOptions{FS: disk})
		require.NoError(t, err)
		defer func() { d.Close() }()
		l, err := d.CreateLog(orders, c)
		require.NoError(t, err)
		var all []record.Batch
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			default:
				b := drawBatch(t, l.EndOffset(), int32(len(all)/3))
				_, err := l.Append(b)
				require.NoError(t, err)
				all = append(all, bytes.Clone(b))
			case 0:
				require.NoError(t, l.SetStart(rapid.Int64Range(l.StartOffset(), l.EndOffset()).Draw(t, "start")))
			case 1:
				require.NoError(t, l.TruncateTo(rapid.Int64Range(l.StartOffset(), l.EndOffset()).Draw(t, "end")))
				for len(all) > 0 && all[len(all)-1].LastOffset() >= l.EndOffset() {
					all = all[:len(all)-1]
				}
			case 2:
				require.NoError(t, d.Close())
				d, err = storage.OpenDir(storage.DirOptions{FS: disk})
				require.NoError(t, err)
				l, err = d.OpenLog(orders, c)
				require.NoError(t, err)
			case 3:
				require.NoError(t, l.Sync(context.Background()))
				require.NoError(t, d.Checkpoint())
			}
			checkTimes(t, l, all)
		}
	})
}

func checkTimes(t *rapid.T, l *storage.Log, all []record.Batch) {
	greatest := int64(-1)
	for ts := int64(0); ts <= 41; ts++ {
		want, found := searchRecords(all, l.StartOffset(), ts)
		got, ok, err := l.OffsetForTime(ts)
		require.NoError(t, err)
		require.Equal(t, found, ok, "timestamp %d", ts)
		if found {
			require.Equal(t, want, got.Offset, "timestamp %d", ts)
			require.GreaterOrEqual(t, got.Timestamp, ts)
			epoch, err := l.EpochFor(got.Offset)
			require.NoError(t, err)
			require.Equal(t, epoch, got.Epoch)
			greatest = ts
		}
	}
	got, ok, err := l.MaxTimestampOffset()
	require.NoError(t, err)
	require.Equal(t, greatest >= 0, ok)
	if ok {
		want, _ := searchRecords(all, l.StartOffset(), greatest)
		require.Equal(t, want, got.Offset)
		require.Equal(t, greatest, got.Timestamp)
	}
}

// Any bytes as a log's only segment, after a crash: whole batches in front are kept, the rest is cut
// away, the log goes on from there, and recovering again changes nothing.
func FuzzRecovery(f *testing.F) {
	var whole []byte
	for i := range int64(5) {
		whole = append(whole, makeBatch(i*2, int32(i/2), 100-i, 2, 20)...)
	}
	f.Add([]byte(nil), uint8(0), false)
	f.Add(whole, uint8(1), false)
	f.Add(whole[:len(whole)-3], uint8(200), false)
	f.Add(append(bytes.Clone(whole), make([]byte, 100)...), uint8(3), false)
	f.Add(append(bytes.Clone(whole), whole...), uint8(9), false) // offsets that go back
	flipped := bytes.Clone(whole)
	flipped[250] ^= 1
	f.Add(flipped, uint8(0), false)
	huge := bytes.Clone(whole)
	copy(huge[8:], []byte{0x7f, 0xff, 0xff, 0xff})
	f.Add(huge, uint8(0), false)
	f.Add(whole, uint8(0), true)
	f.Fuzz(func(t *testing.T, data []byte, interval uint8, sealed bool) {
		if sealed { // or hardly any change gets past the checksum
			for rest := data; len(rest) > 0; {
				b, next, err := record.Next(rest)
				if err != nil {
					break
				}
				b.Seal()
				rest = next
			}
		}
		disk := newDisk()
		disk.WriteFile("orders-0/partition.metadata", []byte("version: 0\ntopic_id: AQIDAAAAAAAAAAAAAAAAAA\n"))
		disk.WriteFile("orders-0/00000000000000000000.log", data)
		c := storage.DefaultConfig()
		c.IndexInterval = int(interval)
		d, l := reopen(t, disk, c)
		all, err := readBatches(l, 0)
		require.NoError(t, err)
		size := 0
		for _, b := range all {
			require.Equal(t, data[size:size+len(b)], []byte(b))
			size += len(b)
		}
		end := l.EndOffset()
		if next, rest, err := record.Next(data[size:]); err == nil && next.Verify() == nil {
			require.True(t, next.BaseOffset() < end || next.LastOffsetDelta() < 0 || next.LastOffset() > 1<<31-1 ||
				len(all) > 0 && next.LeaderEpoch() < all[len(all)-1].LeaderEpoch() || next.LeaderEpoch() < -1 ||
				doubtful(next, end, rest),
				"a good batch was cut away at %d", size)
		}
		b := makeBatch(end, 1<<30, 5, 1, 5)
		if len(all) == 0 || all[len(all)-1].LeaderEpoch() <= 1<<30 {
			_, err := l.Append(b)
			require.NoError(t, err)
			all = append(all, b)
		}
		require.NoError(t, d.Close())
		_, l = reopen(t, disk.Crash(0, nil), c)
		again, err := readBatches(l, 0)
		require.NoError(t, err)
		require.Equal(t, all, again)
	})
}

// doubtful says whether what follows a batch speaks against its offset or leader epoch.
func doubtful(b record.Batch, end int64, rest []byte) bool {
	var behind []record.Batch
	for len(behind) < 2 {
		next, after, err := record.Next(rest)
		if err != nil || next.Verify() != nil {
			break
		}
		behind, rest = append(behind, next), after
	}
	gap := b.BaseOffset() > end
	return gap && (len(behind) == 0 || behind[0].BaseOffset() < b.NextOffset()) ||
		len(behind) > 1 && behind[0].LeaderEpoch() < b.LeaderEpoch() && behind[1].LeaderEpoch() < b.LeaderEpoch()
}

// Any bytes as index files, of a sealed and of the active segment, after a clean stop or a crash:
// every record is found.
func FuzzIndexes(f *testing.F) {
	c := storage.DefaultConfig()
	c.SegmentBytes, c.IndexInterval = 2000, 150
	var all []record.Batch
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range int64(25) {
		all = append(all, makeBatch(i*2, 0, rng.Int64N(50), 2, 20+rng.IntN(50)))
	}
	lay := func(t testing.TB) *storagetest.FS {
		disk := newDisk()
		d, l := newLog(t, disk, c)
		for _, b := range all {
			_, err := l.Append(b)
			require.NoError(t, err)
		}
		require.NoError(t, d.Close())
		return disk
	}
	names := []string{"orders-0/00000000000000000000", "orders-0/00000000000000000022", "orders-0/00000000000000000046"}
	disk := lay(f)
	for _, name := range names {
		index, err := disk.ReadFile(name + ".index")
		require.NoError(f, err, disk.Files())
		times, err := disk.ReadFile(name + ".timeindex")
		require.NoError(f, err)
		f.Add(index, times, true)
		f.Add(index, times, false)
		f.Add(times, index, true)
		f.Add(index[:8], times[12:], false)
		f.Add([]byte(nil), []byte(nil), true)
		f.Add(append(bytes.Clone(index), index...), append(bytes.Clone(times), make([]byte, 24)...), false)
	}
	f.Fuzz(func(t *testing.T, index, times []byte, clean bool) {
		disk := lay(t)
		for _, name := range names {
			disk.WriteFile(name+".index", index)
			disk.WriteFile(name+".timeindex", times)
		}
		if !clean {
			require.NoError(t, disk.Remove(".kafka_cleanshutdown"))
		}
		_, l := reopen(t, disk, c)
		for _, b := range all {
			r, err := l.Read(b.LastOffset(), 1, 1000, nil)
			require.NoError(t, err)
			require.Equal(t, []byte(b), r.Batches)
		}
		require.Equal(t, all, readAll(t, l))
	})
}

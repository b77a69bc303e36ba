package storage_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/record"
	"millrace/storage"
	"millrace/storage/storagetest"
)

// place is a batch on a disk.
type place struct {
	file  string
	at    int64
	batch record.Batch
}

// placed makes a log of several segments and epochs whose batches have one to three records.
func placed(t *testing.T) (*storagetest.FS, *storage.Dir, *storage.Log, []place) {
	t.Helper()
	disk := newDisk()
	d, l := newLog(t, disk, smallConfig())
	for i := range 20 {
		_, err := l.Append(makeBatch(l.EndOffset(), int32(1+i/3), 1000+10*int64(i), 1+i%3, 30))
		require.NoError(t, err)
	}
	require.NoError(t, l.Sync(t.Context()))
	var all []place
	for _, file := range logFiles(disk) {
		data, err := disk.ReadFile(file)
		require.NoError(t, err)
		for at := int64(0); len(data) > 0; {
			b, rest, err := record.Next(data)
			require.NoError(t, err)
			all = append(all, place{file: file, at: at, batch: b})
			at, data = at+int64(len(b)), rest
		}
	}
	require.Len(t, all, 20)
	return disk, d, l, all
}

// uncovered calls f for each bit of a batch that no checksum covers, but for the length: those of its base offset and
// leader epoch.
func (p *place) uncovered(f func(off int64, bit uint)) {
	for field := range int64(16) {
		if field >= 8 && field < 12 {
			continue
		}
		for bit := range uint(8) {
			if high := field > 0 && field < 6; high && bit != uint(field) {
				continue // one bit of each is as good as all
			}
			f(p.at+field, bit)
		}
	}
}

func isDamage(err error) bool {
	var damage *storage.CorruptionError
	return errors.As(err, &damage)
}

// requireTrue reads a log in many ways, none of which may give what was not written.
func requireTrue(t *testing.T, l *storage.Log, all []place, why string) (damages int) {
	t.Helper()
	want := map[int64]record.Batch{}
	for _, p := range all {
		want[p.batch.BaseOffset()] = p.batch
	}
	end := l.EndOffset()
	for from := range end {
		for _, maxBytes := range []int{1, 250, 1 << 20} {
			limit := end
			if maxBytes == 250 {
				limit = min(from+4, end)
			}
			r, err := l.Read(from, maxBytes, limit, nil)
			if isDamage(err) {
				damages++
				continue
			}
			require.NoError(t, err, why)
			require.NotEmpty(t, r.Batches, "%s: nothing at %d", why, from)
			first := true
			for rest := r.Batches; len(rest) > 0; first = false {
				var b record.Batch
				b, rest, err = record.Next(rest)
				require.NoError(t, err, why)
				require.Equal(t, want[b.BaseOffset()], b, "%s: read from %d", why, from)
				within := b.BaseOffset() <= from && from < b.NextOffset()
				require.True(t, !first || within, "%s: read from %d gives %d", why, from, b.BaseOffset())
			}
		}
	}
	err := l.Scan(0, func(b record.Batch) error {
		require.Equal(t, want[b.BaseOffset()][:8], b[:8], "%s: scan", why)
		require.Equal(t, want[b.BaseOffset()][16:len(b)], b[16:], "%s: scan", why)
		return nil
	})
	require.True(t, err == nil || isDamage(err), "%s: %v", why, err)
	for _, p := range all {
		r, ok, err := l.OffsetForTime(p.batch.MaxTimestamp())
		if err == nil && ok {
			require.Equal(t, p.batch.LastOffset(), r.Offset, "%s: time of %d", why, p.batch.BaseOffset())
		} else {
			require.True(t, isDamage(err), "%s: %v", why, err)
		}
	}
	return damages
}

// Base offsets and leader epochs are covered by no checksum; whatever bit of them flips, nobody gets a batch at
// another offset or of another epoch.
func TestMisplacedBatchesAreNotServed(t *testing.T) {
	disk, _, l, all := placed(t)
	require.Zero(t, requireTrue(t, l, all, "nothing is wrong"))
	for _, p := range all {
		p.uncovered(func(off int64, bit uint) {
			require.NoError(t, disk.FlipBit(p.file, off, bit))
			why := fmt.Sprintf("%s: offset %d, byte %d bit %d", path.Base(p.file), p.batch.BaseOffset(), off-p.at, bit)
			require.NotZero(t, requireTrue(t, l, all, why), why)
			_, damages := scrubAll(t, l, l.EndOffset(), 1<<20)
			require.NotZero(t, damages, "%s is not found by a scrub", why)
			require.NoError(t, disk.FlipBit(p.file, off, bit))
		})
	}
	require.Zero(t, requireTrue(t, l, all, "nothing is wrong any more"))
}

// overtakes says whether a flipped bit makes the epoch of a batch greater than those of the next two, or smaller than
// that of the one before.
func overtakes(all []place, i int, field int64, bit uint) bool {
	b := append(record.Batch(nil), all[i].batch...)
	b[field] ^= 1 << bit
	return i+2 < len(all) && b.LeaderEpoch() > all[i+2].batch.LeaderEpoch() ||
		i > 0 && b.LeaderEpoch() < all[i-1].batch.LeaderEpoch()
}

// Nor does a log that is recovered take such a batch, or lose those before it: what was durable by the recovery point
// is damaged, and past it the log ends there. Nothing tells of an epoch that lies between those of the neighbours.
func TestMisplacedBatchesAreNotRecovered(t *testing.T) {
	for _, checkpoint := range []string{"none", "late"} {
		synced, d, l, all := placed(t)
		if checkpoint == "late" {
			require.NoError(t, d.Checkpoint())
			require.NoError(t, l.Sync(t.Context()))
		}
		for i, p := range all {
			p.uncovered(func(off int64, bit uint) {
				if bit%3 != 0 || off-p.at >= 12 && !overtakes(all, i, off-p.at, bit) {
					return
				}
				disk := synced.Copy().Crash(storagetest.KeepAll, rand.New(rand.NewPCG(1, 1)))
				require.NoError(t, disk.FlipBit(p.file, off, bit))
				why := fmt.Sprintf("%s %s: offset %d, byte %d bit %d",
					checkpoint, path.Base(p.file), p.batch.BaseOffset(), off-p.at, bit)
				d := openDir(t, disk)
				defer d.Close()
				l, err := d.OpenLog(orders, smallConfig())
				if err != nil {
					require.True(t, isDamage(err), "%s: %v", why, err)
					require.Equal(t, "late", checkpoint, why)
					return
				}
				if checkpoint == "none" {
					require.Equal(t, p.batch.BaseOffset(), l.EndOffset(), why)
				}
				if l.EndOffset() <= p.batch.BaseOffset() {
					got, err := readBatches(l, 0)
					require.NoError(t, err, why)
					for i, b := range got {
						require.Equal(t, all[i].batch, b, why)
					}
					return
				}
				for from := range l.EndOffset() {
					r, err := l.Read(from, 1, math.MaxInt64, nil)
					require.True(t, err == nil || isDamage(err), "%s: %v", why, err)
					if err == nil {
						b := record.Batch(r.Batches)
						require.True(t, b.BaseOffset() <= from && from < b.NextOffset(), why)
					}
				}
			})
		}
	}
}

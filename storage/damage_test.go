package storage_test

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/record"
	"millrace/storage"
)

// damagedLog makes a log of batches with one, two and three records in several segments, and gives the batches by
// their base offsets.
func damagedLog(t *testing.T) (l *storage.Log, batches map[int64]record.Batch, damage func(segment string, at int64)) {
	t.Helper()
	disk := newDisk()
	_, l = newLog(t, disk, smallConfig())
	batches = map[int64]record.Batch{}
	for i := range 20 {
		end := l.EndOffset()
		b := makeBatch(end, 1, 1000+end, 1+i%3, 30)
		batches[end] = append(record.Batch(nil), b...)
		_, err := l.Append(b)
		require.NoError(t, err)
	}
	return l, batches, func(segment string, at int64) {
		t.Helper()
		require.NoError(t, disk.FlipBit("orders-0/"+segment+".log", at, 6))
	}
}

// readPast reads a log and goes on behind damage where the error says.
func readPast(t *testing.T, l *storage.Log) (got []record.Batch, damages int) {
	t.Helper()
	for next := l.StartOffset(); next < l.EndOffset(); {
		r, err := l.Read(next, 300, math.MaxInt64, nil)
		var damage *storage.CorruptionError
		if errors.As(err, &damage) {
			require.Greater(t, damage.Next, next, "%v: nobody knows where to go on", err)
			require.LessOrEqual(t, damage.Next, l.EndOffset())
			next = damage.Next
			damages++
			continue
		}
		require.NoError(t, err)
		require.NotEmpty(t, r.Batches, "nothing at offset %d", next)
		require.Greater(t, r.NextOffset, next)
		for rest := r.Batches; len(rest) > 0; {
			var b record.Batch
			b, rest, err = record.Next(rest)
			require.NoError(t, err)
			got = append(got, append(record.Batch(nil), b...))
		}
		next = r.NextOffset
	}
	return got, damages
}

// Whatever bit of a log flips, a reader is told, gets nothing but what was written, and can read on behind the
// damage: at the next batch when the damaged one's header leads there, else at one that the index knows.
func TestReadersGetPastDamage(t *testing.T) {
	const header = record.HeaderSize
	l, want, damage := damagedLog(t)
	segments, err := l.Segments()
	require.NoError(t, err)
	require.Greater(t, segments, 2)
	first := "00000000000000000000"
	bounds := []int64{} // where the first batches of the first segment start
	at := int64(0)
	for offset := int64(0); len(bounds) < 5; offset = want[offset].NextOffset() {
		bounds = append(bounds, at)
		at += int64(len(want[offset]))
	}
	for at := range bounds[4] {
		damage(first, at)
		got, damages := readPast(t, l)
		for i := len(bounds) - 1; i >= 0; i-- {
			if in := at - bounds[i]; in >= 0 {
				epoch, offset := in >= 12 && in < 16, in < 8 // neither is covered by the checksum
				if !epoch {
					require.Equal(t, 1, damages, "byte %d", at)
				}
				if in >= header {
					require.Len(t, got, len(want)-1, "byte %d: more is lost than the damaged batch", at)
				}
				for _, b := range got {
					if !epoch {
						require.Equal(t, want[b.BaseOffset()], b, "byte %d (%d of batch %d, offset %v)", at, in, i, offset)
					}
				}
				break
			}
		}
		damage(first, at) // back
	}
	got, damages := readPast(t, l)
	require.Zero(t, damages)
	require.Len(t, got, len(want))
}

// The first batch of a segment is found without the index, so damage to it may be met before the index was looked at.
func TestDamageAtTheStartOfASegmentNobodyLookedAt(t *testing.T) {
	for _, field := range []int64{8, 10, 16, 70} { // length, magic, payload
		disk := newDisk()
		d, l := newLog(t, disk, smallConfig())
		appendBatches(t, l, 40)
		require.NoError(t, d.Close())
		require.NoError(t, disk.FlipBit(logFiles(disk)[2], field, 6))
		_, l = reopen(t, disk, smallConfig())
		got, damages := readPast(t, l)
		require.NotZero(t, damages, "field at %d", field)
		require.Greater(t, len(got), 20)
	}
}

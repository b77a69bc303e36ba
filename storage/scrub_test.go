package storage_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/storage"
)

// scrubAll scrubs a log below limit in pieces and counts what is damaged.
func scrubAll(t *testing.T, l *storage.Log, limit int64, piece int) (bytes, damages int) {
	for next := l.StartOffset(); next < limit; {
		s, err := l.Scrub(next, limit, piece)
		bytes += s.Bytes
		if err != nil {
			var damage *storage.CorruptionError
			require.ErrorAs(t, err, &damage)
			require.Greater(t, damage.Next, next, "%v", err)
			damages++
			s.Next = damage.Next
		}
		require.Greater(t, s.Next, next)
		next = s.Next
	}
	return bytes, damages
}

// Whatever bit of a log flips, a scrub finds it, and goes on behind it.
func TestScrubFindsEveryBit(t *testing.T) {
	l, want, damage := damagedLog(t)
	whole := 0
	for _, b := range want {
		whole += len(b)
	}
	for _, piece := range []int{1, 300, 1 << 20} {
		bytes, damages := scrubAll(t, l, l.EndOffset(), piece)
		require.Equal(t, whole, bytes)
		require.Zero(t, damages)
	}
	first := "00000000000000000000"
	for at := range int64(len(want[0]) + len(want[want[0].NextOffset()])) {
		damage(first, at)
		for _, piece := range []int{1, 1 << 20} {
			_, damages := scrubAll(t, l, l.EndOffset(), piece)
			require.Positive(t, damages, "byte %d, pieces of %d", at, piece)
		}
		damage(first, at)
	}
	_, damages := scrubAll(t, l, l.EndOffset(), 1<<20)
	require.Zero(t, damages)
}

// A scrub leaves alone what is not below the limit, and takes batches of any size.
func TestScrubStopsAtTheLimit(t *testing.T) {
	disk := newDisk()
	c := storage.DefaultConfig()
	_, l := newLog(t, disk, c)
	var sizes []int
	for _, bytes := range []int{10, 3 << 20, 10, 20} {
		b := makeBatch(l.EndOffset(), 1, 1000, 2, bytes)
		sizes = append(sizes, len(b))
		_, err := l.Append(b)
		require.NoError(t, err)
	}
	end := int64(0)
	for _, n := range sizes {
		end += int64(n)
	}
	require.NoError(t, disk.FlipBit(logFiles(disk)[0], end-1, 1))
	bytes, damages := scrubAll(t, l, 6, 1<<20)
	require.Zero(t, damages)
	require.Equal(t, sizes[0]+sizes[1]+sizes[2], bytes)
	_, damages = scrubAll(t, l, l.EndOffset(), 1<<20)
	require.Equal(t, 1, damages)
	s, err := l.Scrub(100, 200, 1)
	require.NoError(t, err)
	require.Equal(t, storage.Scrubbed{Next: l.EndOffset()}, s)
	require.NoError(t, l.SetStart(7))
	s, err = l.Scrub(0, 7, 1)
	require.NoError(t, err)
	require.Equal(t, storage.Scrubbed{Next: 7}, s)
}

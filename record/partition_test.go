package record_test

import (
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/record"
)

func TestMurmur2Vectors(t *testing.T) {
	text, err := os.ReadFile("testdata/murmur2.json")
	require.NoError(t, err)
	var vectors []struct {
		Key      string `json:"key_hex"`
		Positive uint32 `json:"positive"`
		P3       int32  `json:"p3"`
		P12      int32  `json:"p12"`
		P50      int32  `json:"p50"`
	}
	require.NoError(t, json.Unmarshal(text, &vectors))
	require.Len(t, vectors, 33)
	for _, v := range vectors {
		key, err := hex.DecodeString(v.Key)
		require.NoError(t, err)
		require.Equal(t, v.Positive, record.Murmur2(key)&0x7fffffff, "key %s", v.Key)
		require.Equal(t, v.P3, record.KeyPartition(key, 3), "key %s", v.Key)
		require.Equal(t, v.P12, record.KeyPartition(key, 12), "key %s", v.Key)
		require.Equal(t, v.P50, record.KeyPartition(key, 50), "key %s", v.Key)
		require.Zero(t, record.KeyPartition(key, 1))
	}
}

func newSticky(seed uint64) *record.Sticky { return record.NewSticky(rand.New(rand.NewPCG(seed, 0))) }

func TestStickyStaysForABatchSize(t *testing.T) {
	s := newSticky(1)
	first := s.Partition(100, 16000)
	require.Equal(t, first, s.Partition(100, 383), "16,383 bytes are not enough to move")
	require.Equal(t, first, s.Partition(100, 1), "the batch that reaches the size still goes there")
	moved := false
	for range 10 {
		moved = moved || s.Partition(100, 16384) != first
	}
	require.True(t, moved)
}

// The old sticky partitioner asked twice at a new batch and so skipped partitions: with two
// partitions it left one out. Whatever the sizes, all partitions get their share of bytes.
func TestStickyIsUniform(t *testing.T) {
	for _, partitions := range []int32{1, 2, 3, 7} {
		for _, size := range []int{100, 1000, 16383, 16384, 100000} {
			s := newSticky(uint64(partitions)<<32 | uint64(size))
			sent := make([]int, partitions)
			rounds := 2000 * max(1, 16384/size)
			for range rounds {
				sent[s.Partition(partitions, size)] += size
			}
			fair := float64(rounds*size) / float64(partitions)
			for p := range sent {
				require.InEpsilon(t, fair, sent[p], 0.2, "partition %d of %d, batches of %d", p, partitions, size)
			}
		}
	}
}

func TestStickyFollowsThePartitionCount(t *testing.T) {
	s := newSticky(3)
	for range 100 {
		s.Partition(50, 10)
		require.Less(t, s.Partition(2, 10), int32(2))
	}
}

func TestStickyIsReproducible(t *testing.T) {
	a, b := newSticky(9), newSticky(9)
	for range 1000 {
		require.Equal(t, a.Partition(12, 5000), b.Partition(12, 5000))
	}
}

package client

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A name leads to the same partition or to a new one when partitions are added, so the places of a number of
// partitions hold those of every smaller number; and names spread evenly.
func TestPlacesOfNames(t *testing.T) {
	used := map[int32]int{}
	for i := range 1000 {
		np := &NamedProducer{Name: fmt.Sprint("producer-", i)}
		places := np.places(8)
		require.True(t, slices.IsSorted(places))
		require.EqualValues(t, 0, places[0])
		for n := int32(1); n < 8; n++ {
			fewer := np.places(n)
			require.Equal(t, fewer, places[:len(fewer)])
			require.Less(t, fewer[len(fewer)-1], n)
		}
		used[places[len(places)-1]]++
		require.Less(t, len(np.places(10_000)), 40)
	}
	require.Len(t, used, 8)
	for p, n := range used {
		require.InDelta(t, 125, n, 60, "partition %d", p)
	}
}

func TestHolderOfARequest(t *testing.T) {
	np := &NamedProducer{Name: "p", Epoch: 2, Seq: 5}
	places := []int32{0, 3, 6}
	for name, c := range map[string]struct {
		known map[int32]sequence
		want  int32
	}{
		"nobody":                            {nil, 6},
		"the first":                         {map[int32]sequence{0: {2, 5}}, 0},
		"the one between":                   {map[int32]sequence{0: {2, 4}, 3: {2, 5}}, 3},
		"the last":                          {map[int32]sequence{6: {2, 5}}, 6},
		"a later one":                       {map[int32]sequence{3: {2, 7}}, 3},
		"a later one, but the last knows":   {map[int32]sequence{3: {2, 7}, 6: {2, 4}}, 6},
		"this one before a later":           {map[int32]sequence{0: {2, 5}, 6: {2, 9}}, 0},
		"an earlier one":                    {map[int32]sequence{3: {2, 4}}, 6},
		"another epoch":                     {map[int32]sequence{3: {1, 5}}, 6},
		"partitions where a name led never": {map[int32]sequence{1: {2, 5}, 7: {2, 8}}, 6},
	} {
		require.Equal(t, c.want, np.holder(c.known, places), name)
	}
}

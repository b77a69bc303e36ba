package storage

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// The map of keys tells what a map of Go's tells, also when it gives up a part of its share.
func TestKeyMap(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var m keyMap
		m.reset(int64(1+rng.IntN(3000)), slotSize*(1+rng.IntN(3000)))
		want := map[keyHash]uint32{}
		for number := range uint32(4000) {
			h := m.hash(fmt.Appendf(nil, "key-%d", rng.IntN(2500)))
			if !m.takes(h) {
				continue
			}
			last, known := want[h]
			before, again, ok := m.put(h, number)
			if !ok {
				require.False(t, known)
				require.GreaterOrEqual(t, len(want), m.most)
				m.narrow(0.5)
				for k := range want {
					if !m.takes(k) {
						delete(want, k)
					}
				}
				require.Equal(t, len(want), m.used)
				continue
			}
			require.Equal(t, known, again)
			require.True(t, !known || before == last)
			want[h] = number
		}
		for h, number := range want {
			i, found := m.find(h)
			require.True(t, found)
			require.Equal(t, number+1, m.slots[i].after)
		}
		require.Equal(t, len(want), m.used)
		require.False(t, m.has(m.hash([]byte("another"))))
	}
}

func TestMarks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var m marks
		n := 1 + rng.IntN(20_000)
		require.Zero(t, m.add(n))
		require.Equal(t, n, m.add(3))
		old, noted := rng.IntN(n), rng.IntN(n)
		m.setOld(old)
		m.note(noted)
		for range 100 {
			first := rng.IntN(n)
			count := 1 + rng.IntN(n-first)
			last := first + count - 1
			hit := old >= first && old <= last || noted>>6 >= first>>6 && noted>>6 <= last>>6
			require.Equal(t, !hit, m.none(first, count), "%d %d: %d, %d", first, count, old, noted)
		}
		require.True(t, m.isOld(old))
		m.reset()
		m.add(n)
		require.True(t, m.none(0, n))
	}
}

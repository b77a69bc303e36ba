package record_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"millrace/record"
)

func TestArenaReusesMemory(t *testing.T) {
	pool := record.NewPool(1 << 20)
	a := pool.Arena()
	first := a.Alloc(3000)
	require.Len(t, first, 3000)
	require.Equal(t, 4096, cap(first), "room to append up to the block's size")
	require.Zero(t, pool.Held())
	a.Free()
	require.Equal(t, 4096, pool.Held())

	b := pool.Arena()
	require.Same(t, a, b, "the arena too")
	second := b.Alloc(2049)
	require.Same(t, &first[0], &second[0])
	require.Zero(t, pool.Held())
	require.NotSame(t, &second[0], &b.Alloc(2049)[0])
	b.Free()
	require.Equal(t, 8192, pool.Held())
}

func TestPoolIsBounded(t *testing.T) {
	pool := record.NewPool(10000)
	a := pool.Arena()
	for range 10 {
		a.Alloc(4096)
	}
	a.Alloc(64 << 20) // larger than any block kept
	a.Free()
	require.Equal(t, 8192, pool.Held())
}

func TestNilArenaAllocates(t *testing.T) {
	var a *record.Arena
	require.Len(t, a.Alloc(10), 10)
	a.Free()
	require.Nil(t, record.ArenaFrom(context.Background()))
}

func TestArenaTravelsInContext(t *testing.T) {
	a := record.NewPool(0).Arena()
	require.Same(t, a, record.ArenaFrom(record.WithArena(context.Background(), a)))
}

func TestArenaMisuseIsCaught(t *testing.T) {
	a := record.NewPool(1 << 20).Arena()
	a.Free()
	require.Panics(t, a.Free)
	require.Panics(t, func() { a.Alloc(1) })
}

// No two live allocations share memory, whatever was freed before.
func TestAllocationsDoNotOverlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pool := record.NewPool(rapid.IntRange(0, 1<<16).Draw(t, "bound"))
		type loan struct {
			arena *record.Arena
			given [][]byte
			mark  byte
		}
		var loans []loan
		for i := range rapid.IntRange(1, 30).Draw(t, "steps") {
			if len(loans) > 0 && rapid.Bool().Draw(t, "free") {
				for _, p := range loans[0].given {
					for _, c := range p {
						require.Equal(t, loans[0].mark, c)
					}
				}
				loans[0].arena.Free()
				loans = loans[1:]
				continue
			}
			l := loan{arena: pool.Arena(), mark: byte(i)}
			for range rapid.IntRange(0, 4).Draw(t, "allocations") {
				p := l.arena.Alloc(rapid.IntRange(0, 5000).Draw(t, "size"))
				for j := range p {
					p[j] = l.mark
				}
				l.given = append(l.given, p)
			}
			loans = append(loans, l)
		}
	})
}

func TestArenaIsSafeForConcurrentUse(t *testing.T) {
	pool := record.NewPool(1 << 20)
	done := make(chan bool)
	for g := range byte(4) {
		go func() {
			ok := true
			for range 200 {
				a := pool.Arena()
				p := a.Alloc(100)
				for i := range p {
					p[i] = g
				}
				for _, c := range p {
					ok = ok && c == g
				}
				a.Free()
			}
			done <- ok
		}()
	}
	for range 4 {
		require.True(t, <-done)
	}
}

func TestWarmArenaAllocatesNothing(t *testing.T) {
	pool := record.NewPool(16 << 20)
	allocs := testing.AllocsPerRun(100, func() {
		a := pool.Arena()
		a.Alloc(100)
		a.Alloc(1 << 20)
		a.Free()
	})
	require.Zero(t, allocs)
}

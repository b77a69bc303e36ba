package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCollectorPercent(t *testing.T) {
	c := collector{percent: 300}
	for live, want := range map[uint64]int{
		0: 300, 10 << 20: 300, 40 << 20: 300, 64 << 20: 200, 100 << 20: 128, 128 << 20: 100, 10 << 30: 100,
	} {
		require.Equal(t, want, c.percentFor(live), "%d MiB", live>>20)
	}
	least := collector{percent: 50}
	require.Equal(t, 50, least.percentFor(1<<30), "who asks for less gets it")
}

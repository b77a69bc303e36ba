package connect

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNamesOfConnectors(t *testing.T) {
	for _, name := range []string{"a", "a b", "a/b", "%", "../..", "ü", strings.Repeat("a", nameBytes)} {
		require.NoError(t, checkName(name), name)
	}
	for name, why := range map[string]string{
		"": "empty", " ": "empty", "a\x00": "control", "a\n": "control", "\xff": "UTF-8",
		strings.Repeat("a", nameBytes+1): "at most",
	} {
		require.ErrorContains(t, checkName(name), why, name)
	}
}

func TestNumbersInARange(t *testing.T) {
	check := between(1, mostTasks)
	for _, v := range []string{"1", "1000", " 7 ", "many"} { // what is no number is told elsewhere
		require.NoError(t, check(v), v)
	}
	require.ErrorContains(t, check("0"), "at least 1")
	require.ErrorContains(t, check("1001"), "at most 1000")
}

package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/running.md from the table in the code")

// docs/running.md says what the code does: its table is the code's, its words are in testdata.
func TestRunningDocument(t *testing.T) {
	words, err := os.ReadFile("testdata/running.md")
	require.NoError(t, err)
	var table strings.Builder
	table.WriteString("| name | default | |\n|---|---|---|\n")
	for _, n := range nodeSettings() {
		value := "none"
		if n.value != "" {
			value = "`" + n.value + "`"
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", n.name, value, n.doc)
	}
	want := strings.Replace(string(words), "{{node}}\n", table.String(), 1)
	const name = "../../docs/running.md"
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(want), 0o644))
	}
	got, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, want, string(got), "docs/running.md is stale: run make generate")
}

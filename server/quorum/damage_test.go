package quorum_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/server/quorum"
)

// A log that lost what was applied, by damage or because it is an old copy, is refused: it would look as if its topics
// had never been created, and new ones of their names would begin at offset 0.
func TestLostEntriesAreNoticed(t *testing.T) {
	segment := func(t *testing.T, dir string) string {
		names, err := filepath.Glob(filepath.Join(dir, "wal", "*.wal"))
		require.NoError(t, err)
		require.Len(t, names, 1)
		return names[0]
	}
	known := func(c *quorum.Config) { c.Known = true }
	cases := []struct {
		name   string
		damage func(t *testing.T, dir string)
		err    string // "" when the log is opened all the same
	}{
		{"nothing", func(*testing.T, string) {}, ""},
		{"a bit in an early entry", func(t *testing.T, dir string) {
			change(t, segment(t, dir), func(b []byte) []byte { b[150] ^= 1; return b })
		}, "lost entries"},
		{"cut short", func(t *testing.T, dir string) {
			change(t, segment(t, dir), func(b []byte) []byte { return b[:300] })
		}, "lost entries"},
		{"the folder is gone", func(t *testing.T, dir string) {
			require.NoError(t, os.RemoveAll(dir))
		}, "lost entries"},
		{"the list of segments is empty", func(t *testing.T, dir string) {
			change(t, filepath.Join(dir, "wal", "wal-meta.db"), func([]byte) []byte { return nil })
		}, "damaged"},
		{"the list of segments is rubbish", func(t *testing.T, dir string) {
			change(t, filepath.Join(dir, "wal", "wal-meta.db"), func(b []byte) []byte { return make([]byte, len(b)) })
		}, "invalid database"},
		{"the mark is damaged", func(t *testing.T, dir string) {
			change(t, filepath.Join(dir, "applied"), func(b []byte) []byte { b[7] ^= 0xff; return b })
		}, ""},
		{"the mark is gone", func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "applied")))
		}, ""},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "metadata")
			n := open(t, dir)
			n.register(t)
			n.propose(t, newTopic("orders", 1))
			require.NoError(t, n.Close())
			tc.damage(t, dir)
			m, err := tryOpen(t, dir, known)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.NotNil(t, m.machine.Image().Topic("orders"))
			require.NoError(t, m.Close())
		})
	}
}

// change replaces what a file holds.
func change(t *testing.T, name string, f func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(name, f(b), 0o600))
}

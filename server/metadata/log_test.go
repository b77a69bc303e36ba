package metadata_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/server/metadata"
)

// TestOldLogs replays logs that earlier versions wrote: each makes the snapshot that it made then, which
// also restores to the same state.
func TestOldLogs(t *testing.T) {
	for _, name := range []string{"first", "cluster"} {
		t.Run(name, func(t *testing.T) {
			log, err := os.ReadFile("testdata/log/" + name + ".jsonl")
			require.NoError(t, err)
			want, err := os.ReadFile("testdata/log/" + name + ".snapshot")
			require.NoError(t, err)
			m := newMachine(t, nil)
			for i, entry := range bytes.Split(bytes.TrimSpace(log), []byte("\n")) {
				_, err := m.Apply(uint64(i+1), entry)
				require.NoError(t, err)
			}
			require.Equal(t, string(want), snapshotText(t, m.Image()))
			again := newMachine(t, nil)
			require.NoError(t, again.Restore(bytes.NewReader(want)))
			require.Equal(t, m.Image().Hash(), again.Image().Hash())
			require.Equal(t, draw(m.Image()), draw(again.Image()))
		})
	}
}

func snapshotText(t require.TestingT, m *metadata.Image) string {
	var b bytes.Buffer
	require.NoError(t, m.WriteSnapshot(&b))
	return b.String()
}

// stateText is a snapshot without its index.
func stateText(t require.TestingT, m *metadata.Image) string {
	text := snapshotText(t, m)
	return strings.Replace(text, fmt.Sprintf(`"index":%d,`, m.Index), "", 1)
}

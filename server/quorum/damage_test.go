package quorum_test

import (
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/server/quorum"
	"millrace/storage/storagetest"
)

// A log that lost what was applied, by damage or because it is an old copy, is refused: it would look as if its topics
// had never been created, and new ones of their names would begin at offset 0.
func TestLostEntriesAreNoticed(t *testing.T) {
	const segment, mark, vote = "metadata/log/00000000000000000001.log", "metadata/applied", "metadata/vote"
	flip := func(name string, at int64) func(*testing.T, *storagetest.FS) {
		return func(t *testing.T, d *storagetest.FS) { require.NoError(t, d.FlipBit(name, at, 3)) }
	}
	cut := func(name string, size int) func(*testing.T, *storagetest.FS) {
		return func(t *testing.T, d *storagetest.FS) {
			b, err := d.ReadFile(name)
			require.NoError(t, err)
			d.WriteFile(name, b[:size])
		}
	}
	gone := func(names ...string) func(*testing.T, *storagetest.FS) {
		return func(t *testing.T, d *storagetest.FS) {
			for _, name := range names {
				require.NoError(t, d.RemoveAll(name))
			}
		}
	}
	cases := []struct {
		name   string
		damage func(*testing.T, *storagetest.FS)
		err    string // "" when the log is opened all the same
	}{
		{"nothing", func(*testing.T, *storagetest.FS) {}, ""},
		{"a bit in the header of an early entry", flip(segment, 30), "entry 1 at 24 is damaged"},
		{"a bit in the data of an early entry", flip(segment, 80), "is damaged"},
		{"a bit in the header", flip(segment, 3), "header is damaged"},
		{"a bit in the version", flip(segment, 11), "header is damaged"},
		{"cut short", cut(segment, 300), "lost entries"},
		{"cut short in the header", cut(segment, 20), "lost entries"},
		{"the folder is gone", gone("metadata"), "lost entries"},
		{"the log is gone", gone("metadata/log"), "lost entries"},
		{"log and mark are gone", gone("metadata/log", mark), "lost entries"},
		{"the vote is gone", gone(vote), "lost entries"},
		{"the vote is empty", cut(vote, 0), "lost entries"},
		{"a copy of the vote is damaged", flip(vote, 20), ""},
		{"another copy of the vote is damaged", flip(vote, 4096+20), ""},
		{"the vote before the last is damaged", func(t *testing.T, d *storagetest.FS) {
			flip(vote, 2*4096+20)(t, d)
			flip(vote, 3*4096+20)(t, d)
		}, ""},
		{"the vote is damaged", func(t *testing.T, d *storagetest.FS) {
			for i := range int64(4) {
				flip(vote, i*4096+20)(t, d)
			}
		}, "vote: damaged"},
		{"the mark is damaged", flip(mark, 7), ""},
		{"the mark is gone", gone(mark), ""},
		{"the mark is empty", cut(mark, 0), ""},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			disk := storagetest.New()
			n := open(t, disk)
			n.register(t)
			n.propose(t, newTopic("orders", 1))
			require.NoError(t, n.Close())
			tc.damage(t, disk)
			m, err := tryOpen(t, disk, func(c *quorum.Config) { c.Known = true })
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

// A term that went back means that the vote of a term could be given twice.
func TestAnOldVoteIsNoticed(t *testing.T) {
	disk := storagetest.New()
	n := open(t, disk)
	n.register(t)
	require.NoError(t, n.Close())
	old, err := disk.ReadFile("metadata/vote")
	require.NoError(t, err)
	n = open(t, disk)
	n.propose(t, newTopic("a", 1))
	require.NoError(t, n.Close())
	disk.WriteFile("metadata/vote", old)
	_, err = tryOpen(t, disk)
	require.ErrorIs(t, err, quorum.ErrLost)
}

// A damaged snapshot is set aside, and the one before it serves as long as the log goes on from there.
func TestDamagedSnapshot(t *testing.T) {
	disk := storagetest.New()
	var want [32]byte
	for round := range 2 {
		n := open(t, disk)
		if round == 0 {
			n.register(t)
		}
		for i := range 300 { // worth a snapshot at the end
			n.propose(t, newTopic(strings.Repeat("x", 20)+string(rune('a'+round))+string(rune('a'+i%26)), 1000*round+i))
		}
		want = n.machine.Image().Hash()
		require.NoError(t, n.Close())
	}
	snapshots := func() (names []string) {
		for _, name := range disk.Files() {
			if path.Dir(name) == "metadata/snapshots" {
				names = append(names, path.Base(name))
			}
		}
		return names
	}
	names := snapshots()
	require.Len(t, names, 2)
	require.NoError(t, disk.FlipBit("metadata/snapshots/"+names[1], 500, 0))
	n := open(t, disk)
	require.Equal(t, want, n.machine.Image().Hash())
	require.Contains(t, snapshots(), names[1]+".damaged")
	require.NoError(t, n.Close())
	require.NoError(t, disk.FlipBit("metadata/snapshots/"+names[0], 30, 0))
	n = open(t, disk)
	require.Equal(t, want, n.machine.Image().Hash(), "the log is whole")
}

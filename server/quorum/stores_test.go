package quorum

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/server/metadata"
	"millrace/storage"
	"millrace/storage/storagetest"
)

var errBroken = errors.New("input/output error")

// breakable gives a disk and a switch that makes every write of the log and the vote fail.
func breakable() (*storagetest.FS, *atomic.Bool) {
	disk, broken := storagetest.New(), new(atomic.Bool)
	disk.SetFault(func(op storagetest.Op, _ string) (time.Duration, error) {
		if broken.Load() && op >= storagetest.OpCreate {
			return 0, errBroken
		}
		return 0, nil
	})
	return disk, broken
}

func newConfig(t *testing.T, disk storage.FS) Config {
	t.Helper()
	machine, err := metadata.NewMachine(metadata.Options{NodeID: 1})
	require.NoError(t, err)
	return Config{NodeID: 1, FS: disk, Machine: machine, Logger: slog.New(slog.DiscardHandler)}
}

func TestFailedWriteTakesTheLogOffline(t *testing.T) {
	disk, broken := breakable()
	q, err := Open(t.Context(), newConfig(t, disk))
	require.NoError(t, err)
	entry, err := metadata.Encode(&metadata.RegisterBroker{NewClusterID: "c", ID: 1, Incarnation: [16]byte{1}})
	require.NoError(t, err)
	_, _, err = q.Propose(t.Context(), entry)
	require.NoError(t, err)

	broken.Store(true)
	_, _, err = q.Propose(t.Context(), entry)
	require.ErrorIs(t, err, ErrOffline)
	require.ErrorIs(t, err, errBroken)
	require.False(t, q.IsLeader())
	require.ErrorIs(t, q.Offline(), errBroken)

	broken.Store(false)
	_, _, err = q.Propose(t.Context(), entry)
	require.ErrorIs(t, err, ErrOffline, "a log that failed is not trusted again")
	require.ErrorIs(t, q.Remove(t.Context(), 1), ErrOffline)
	require.NoError(t, q.Close())
}

func TestOpenOnABrokenDisk(t *testing.T) {
	disk, broken := breakable()
	c := newConfig(t, disk)
	s, err := openStores(disk, 0, newLogger(nil))
	require.NoError(t, err)
	q, err := open(t.Context(), c, s)
	require.NoError(t, err)
	require.NoError(t, q.stop())
	broken.Store(true)
	s.log = newGuardedLog(s.log.logStore, newLogger(nil))
	_, err = open(t.Context(), c, s)
	require.ErrorIs(t, err, ErrOffline)
	require.ErrorIs(t, err, errBroken)
	require.NoError(t, s.close())
	_, err = Open(t.Context(), c)
	require.ErrorIs(t, err, errBroken)
}

func TestHalfFoundedFolderIsFoundedAgain(t *testing.T) {
	disk := storagetest.New()
	disk.WriteFile("metadata/vote", ballot{term: 1}.encode(1))
	q, err := Open(t.Context(), newConfig(t, disk))
	require.NoError(t, err)
	require.True(t, q.IsLeader())
	require.NoError(t, q.Close())
}

// Only the node's user may look into the metadata folder.
func TestFilesArePrivate(t *testing.T) {
	root := t.TempDir()
	disk, err := storage.OSFS(root)
	require.NoError(t, err)
	q, err := Open(t.Context(), newConfig(t, disk))
	require.NoError(t, err)
	require.NoError(t, q.raft.Snapshot().Error())
	require.NoError(t, q.Close())
	files := 0
	require.NoError(t, filepath.Walk(filepath.Join(root, folder), func(path string, info os.FileInfo, err error) error {
		require.NoError(t, err)
		want := os.FileMode(0o600)
		if info.IsDir() {
			want = 0o700
		} else {
			files++
		}
		require.Equal(t, want, info.Mode().Perm(), path)
		return nil
	}))
	require.Equal(t, 4, files, "log, vote, mark and snapshot")
}

package quorum

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"millrace/server/metadata"
)

// brokenDisk fails every write once it is broken.
type brokenDisk struct {
	logStore
	broken atomic.Bool
}

var errBroken = errors.New("input/output error")

func (b *brokenDisk) StoreLogs(l []*raft.Log) error {
	if b.broken.Load() {
		return errBroken
	}
	return b.logStore.StoreLogs(l)
}

func (b *brokenDisk) SetUint64(key []byte, v uint64) error {
	if b.broken.Load() {
		return errBroken
	}
	return b.logStore.SetUint64(key, v)
}

// openBreakable opens a quorum whose disk can be broken.
func openBreakable(t *testing.T) (*Raft, *brokenDisk, *stores, Config) {
	t.Helper()
	machine, err := metadata.NewMachine(metadata.Options{NodeID: 1})
	require.NoError(t, err)
	c := Config{NodeID: 1, Machine: machine, Logger: slog.New(slog.DiscardHandler)}
	s, err := openStores(t.TempDir(), newLogger(nil))
	require.NoError(t, err)
	disk := &brokenDisk{logStore: s.log.logStore}
	s.log = newGuardedLog(disk, newLogger(nil))
	q, err := open(t.Context(), c, s)
	require.NoError(t, err)
	return q, disk, s, c
}

func TestFailedWriteTakesTheLogOffline(t *testing.T) {
	q, disk, _, _ := openBreakable(t)
	entry, err := metadata.Encode(&metadata.RegisterBroker{NewClusterID: "c", ID: 1, Incarnation: [16]byte{1}})
	require.NoError(t, err)
	_, _, err = q.Propose(t.Context(), entry)
	require.NoError(t, err)

	disk.broken.Store(true)
	_, _, err = q.Propose(t.Context(), entry)
	require.ErrorIs(t, err, ErrOffline)
	require.ErrorIs(t, err, errBroken)

	disk.broken.Store(false)
	_, _, err = q.Propose(t.Context(), entry)
	require.ErrorIs(t, err, ErrOffline, "a log that failed is not trusted again")
	require.NoError(t, q.Close())
}

func TestOpenOnABrokenDisk(t *testing.T) {
	q, disk, s, c := openBreakable(t)
	require.NoError(t, q.stop())
	disk.broken.Store(true)
	s.log = newGuardedLog(disk, newLogger(nil))
	_, err := open(t.Context(), c, s)
	require.ErrorIs(t, err, ErrOffline)
	require.ErrorIs(t, err, errBroken)
	require.NoError(t, s.close())
}

// Only the node's user may look into the metadata folder, also into one that was open before.
func TestFolderIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "metadata")
	for range 2 {
		s, err := openStores(dir, newLogger(nil))
		require.NoError(t, err)
		require.NoError(t, s.close())
		for _, folder := range []string{dir, filepath.Join(dir, "wal")} {
			st, err := os.Stat(folder)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o700), st.Mode().Perm(), folder)
		}
		require.NoError(t, os.Chmod(dir, 0o755))
	}
}

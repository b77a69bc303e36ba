package storage_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/storage"
	"millrace/storage/storagetest"
)

// After a clean stop logs are opened by what the checkpoints say. One that is gone or has changed is not believed, and
// nothing is lost by it: without the marker the logs themselves say how long they are.
func TestCheckpointsThatChangedAfterACleanStop(t *testing.T) {
	for _, name := range []string{
		"recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint",
		"topic-id-checkpoint",
	} {
		for _, damage := range []string{"gone", "other"} {
			t.Run(name+" "+damage, func(t *testing.T) {
				disk := newDisk()
				d, l := newLog(t, disk, smallConfig())
				appendBatches(t, l, 30)
				require.NoError(t, l.SetStart(7))
				want := readAll(t, l)
				require.NoError(t, d.Close())
				data, err := disk.ReadFile(name)
				require.NoError(t, err)
				require.NoError(t, disk.Remove(name))
				if damage == "other" {
					disk.WriteFile(name, []byte("0\n0\n"))
				}
				for range 2 {
					_, err = storage.OpenDir(storage.DirOptions{FS: disk})
					var corrupt *storage.CorruptionError
					require.ErrorAs(t, err, &corrupt)
					require.Equal(t, name, corrupt.File)
					require.ErrorContains(t, err, ".kafka_cleanshutdown")
				}
				if name != "log-start-offset-checkpoint" { // which nothing else knows
					require.NoError(t, disk.Remove(".kafka_cleanshutdown"))
				}
				if damage == "gone" || name == "log-start-offset-checkpoint" {
					disk.WriteFile(name, data)
				}
				_, l = reopen(t, disk, smallConfig())
				require.Equal(t, want, readAll(t, l))
			})
		}
	}
}

// A log whose folder is gone is not begun anew: its offsets would stand for other records. Another topic of the name
// may have one.
func TestFolderThatIsGoneAfterACleanStop(t *testing.T) {
	disk := newDisk()
	d, l := newLog(t, disk, smallConfig())
	appendBatches(t, l, 3)
	require.NoError(t, d.Close())
	require.NoError(t, disk.RemoveAll("orders-0"))
	for range 2 {
		d = openDir(t, disk)
		_, err := d.OpenLog(orders, smallConfig())
		require.ErrorIs(t, err, storage.ErrNotFound)
		_, err = d.CreateLog(orders, smallConfig())
		var corrupt *storage.CorruptionError
		require.ErrorAs(t, err, &corrupt)
		require.Equal(t, "orders-0", corrupt.File)
		require.NoError(t, d.Close())
	}
	d = openDir(t, disk)
	other := orders
	other.TopicID = [16]byte{9}
	_, err := d.CreateLog(other, smallConfig())
	require.NoError(t, err)
}

// A log that turns out shorter than clients have seen it says so.
func TestRecoveryTellsWhatIsGone(t *testing.T) {
	disk := newDisk()
	d, l := newLog(t, disk, smallConfig())
	appendBatches(t, l, 30)
	require.NoError(t, l.Sync(t.Context()))
	l.SetHighWatermark(30)
	var text bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&text, nil))
	require.NoError(t, d.Checkpoint())
	disk = disk.Crash(storagetest.KeepAll, nil)
	_ = d.Close() // of the process that has crashed
	require.NoError(t, disk.Remove("recovery-point-offset-checkpoint"))
	segments := logFiles(disk)
	require.NoError(t, disk.Remove(segments[len(segments)-1]))
	d = openDir(t, disk, func(o *storage.DirOptions) { o.Logger = logger })
	_, err := d.OpenLog(orders, smallConfig())
	require.NoError(t, err)
	require.Contains(t, text.String(), "the high watermark was 30")
}

func logFiles(disk *storagetest.FS) (names []string) {
	for _, name := range disk.Files() {
		if strings.HasSuffix(name, ".log") {
			names = append(names, name)
		}
	}
	return names
}

// A folder without its topic id is begun anew only if nothing in it can have been on disk for sure.
func TestFolderThatLostItsTopicID(t *testing.T) {
	for _, checkpointed := range []bool{false, true} {
		disk := newDisk()
		d, l := newLog(t, disk, smallConfig())
		appendBatches(t, l, 3)
		require.NoError(t, l.Sync(t.Context()))
		if checkpointed {
			require.NoError(t, d.Checkpoint())
		}
		disk = disk.Crash(storagetest.KeepAll, nil)
		_ = d.Close() // of the process that has crashed
		require.NoError(t, disk.Remove("orders-0/partition.metadata"))
		d = openDir(t, disk)
		l, err := d.OpenLog(orders, smallConfig())
		if checkpointed {
			var corrupt *storage.CorruptionError
			require.ErrorAs(t, err, &corrupt)
			require.Equal(t, "orders-0/partition.metadata", corrupt.File)
			require.Len(t, logFiles(disk), 1)
			continue
		}
		require.NoError(t, err)
		require.Zero(t, l.EndOffset())
	}
}

package storagetest_test

import (
	"io/fs"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/storage"
	"millrace/storage/storagetest"
)

func write(t *testing.T, f *storagetest.FS, name, data string) storage.File {
	t.Helper()
	file, err := f.Open(name, storage.OpenWrite|storage.OpenCreate)
	require.NoError(t, err)
	_, err = file.WriteAt([]byte(data), 0)
	require.NoError(t, err)
	return file
}

func TestOnlySyncedDataAndNamesSurvivePowerLoss(t *testing.T) {
	f := storagetest.New()
	require.NoError(t, f.Mkdir("d"))
	require.NoError(t, f.SyncDir("."))
	named := write(t, f, "d/named", "synced")
	require.NoError(t, named.Sync())
	require.NoError(t, f.SyncDir("d"))
	_, err := named.WriteAt([]byte("lost"), 6)
	require.NoError(t, err)
	require.NoError(t, write(t, f, "d/unnamed", "synced").Sync())

	after := f.Crash(storagetest.LoseAll, rand.New(rand.NewPCG(1, 1)))
	require.Equal(t, []string{"d/named"}, after.Files())
	data, err := after.ReadFile("d/named")
	require.NoError(t, err)
	require.Equal(t, "synced", string(data))

	_, err = named.WriteAt([]byte("x"), 0)
	require.ErrorIs(t, err, storagetest.ErrCrashed)
	_, err = f.Stat("d")
	require.ErrorIs(t, err, storagetest.ErrCrashed)
}

func TestAKilledProcessLosesNothingButMayLater(t *testing.T) {
	f := storagetest.New()
	write(t, f, "a", "cached")
	rng := rand.New(rand.NewPCG(1, 1))
	after := f.Crash(storagetest.KeepAll, rng)
	data, err := after.ReadFile("a")
	require.NoError(t, err)
	require.Equal(t, "cached", string(data))
	require.Empty(t, after.Crash(storagetest.LoseAll, rng).Files())
}

func TestRenameIsDurableWithItsDirectory(t *testing.T) {
	f := storagetest.New()
	require.NoError(t, write(t, f, "a", "old").Sync())
	require.NoError(t, f.SyncDir("."))
	require.NoError(t, write(t, f, "b", "new").Sync())
	require.NoError(t, f.Rename("b", "a"))
	rng := rand.New(rand.NewPCG(1, 1))
	kept := f.Crash(storagetest.KeepAll, rng)
	require.NoError(t, kept.SyncDir("."))
	for fsys, want := range map[*storagetest.FS]string{f: "old", kept: "new"} {
		data, err := fsys.Crash(storagetest.LoseAll, rng).ReadFile("a")
		require.NoError(t, err)
		require.Equal(t, want, string(data))
	}
}

// A sync that fails loses the data, and the next one does not bring it back.
func TestAFailedSyncLosesDataForGood(t *testing.T) {
	f := storagetest.New()
	file := write(t, f, "a", "data")
	require.NoError(t, f.SyncDir("."))
	f.SetFault(func(op storagetest.Op, name string) (time.Duration, error) {
		if op == storagetest.OpSync && name == "a" {
			return 0, syscall.EIO
		}
		return 0, nil
	})
	require.ErrorIs(t, file.Sync(), syscall.EIO)
	f.SetFault(nil)
	require.NoError(t, file.Sync())
	data, err := f.ReadFile("a")
	require.NoError(t, err)
	require.Equal(t, "data", string(data))
	data, err = f.Crash(storagetest.LoseAll, nil).ReadFile("a")
	require.NoError(t, err)
	require.Empty(t, data)
}

func TestCrashReplaysFromItsSeed(t *testing.T) {
	crash := func(mode storagetest.Mode, seed uint64) map[string]string {
		f := storagetest.New()
		rng := rand.New(rand.NewPCG(7, 7))
		require.NoError(t, f.Mkdir("d"))
		for i := range 60 {
			name := "d/" + string(rune('a'+i%7))
			file := write(t, f, name, "")
			data := make([]byte, rng.IntN(9000))
			for i := range data {
				data[i] = byte(1 + rng.IntN(255))
			}
			_, err := file.WriteAt(data, int64(rng.IntN(5000)))
			require.NoError(t, err)
			switch i % 9 {
			case 1:
				require.NoError(t, file.Sync())
			case 2:
				require.NoError(t, f.SyncDir("d"))
			case 3:
				require.NoError(t, f.SyncDir("."))
			case 4:
				require.NoError(t, file.Truncate(int64(rng.IntN(4000))))
			case 5:
				require.NoError(t, f.Rename(name, name+"x"))
			}
		}
		after := f.Crash(mode, rand.New(rand.NewPCG(seed, seed)))
		files := map[string]string{}
		for _, name := range after.Files() {
			data, err := after.ReadFile(name)
			require.NoError(t, err)
			files[name] = string(data)
		}
		return files
	}
	for _, mode := range storagetest.Modes() {
		different := false
		for seed := range uint64(10) {
			first := crash(mode, seed)
			require.Equal(t, first, crash(mode, seed), "%s, seed %d", mode, seed)
			different = different || len(first) != len(crash(mode, seed+100))
		}
		if mode == storagetest.Prefix {
			require.True(t, different, "seeds make no difference")
		}
	}
}

func TestStopAtAnOperation(t *testing.T) {
	for _, when := range []storagetest.Moment{storagetest.Before, storagetest.After} {
		f := storagetest.New()
		file := write(t, f, "a", "1") // two operations
		f.StopAt(2, when)
		require.NoError(t, file.Sync())
		_, err := file.WriteAt([]byte("2"), 1)
		require.ErrorIs(t, err, storagetest.ErrCrashed)
		require.True(t, f.Stopped())
		data, err := f.Crash(storagetest.KeepAll, nil).ReadFile("a")
		require.NoError(t, err)
		want := map[storagetest.Moment]string{storagetest.Before: "1", storagetest.After: "12"}
		require.Equal(t, want[when], string(data))
	}
}

func TestQuotaWritesWhatFits(t *testing.T) {
	f := storagetest.New()
	file := write(t, f, "a", "1234")
	f.SetQuota(6)
	n, err := file.WriteAt([]byte("56789"), 4)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Equal(t, 2, n)
	require.NoError(t, file.Truncate(4))
	_, err = file.WriteAt([]byte("ab"), 4)
	require.NoError(t, err)
}

func TestDelaysPassInFakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := storagetest.New()
		file := write(t, f, "a", "1")
		f.SetFault(func(op storagetest.Op, _ string) (time.Duration, error) {
			if op == storagetest.OpSync {
				return time.Minute, nil
			}
			return 0, nil
		})
		began := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() { // another call is not held up
			if _, err := f.Stat("a"); err != nil || time.Since(began) != 0 {
				t.Errorf("stat waited %v: %v", time.Since(began), err)
			}
		})
		require.NoError(t, file.Sync())
		require.Equal(t, time.Minute, time.Since(began))
		wg.Wait()
	})
}

// A crash ends a delay, so that whoever ends a node need not sit it out.
func TestACrashEndsDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := storagetest.New()
		file := write(t, f, "a", "1")
		f.SetFault(func(storagetest.Op, string) (time.Duration, error) { return time.Hour, nil })
		time.AfterFunc(time.Minute, func() { f.Crash(storagetest.KeepAll, nil) })
		began := time.Now()
		require.ErrorIs(t, file.Sync(), storagetest.ErrCrashed)
		require.Equal(t, time.Minute, time.Since(began))
	})
}

// A lying sync says that all is well; an honest one later does what it should have done.
func TestALyingSync(t *testing.T) {
	f := storagetest.New()
	file := write(t, f, "a", "data")
	require.NoError(t, f.SyncDir("."))
	f.SetFault(func(op storagetest.Op, _ string) (time.Duration, error) {
		if op == storagetest.OpSync || op == storagetest.OpSyncAll {
			return 0, storagetest.ErrLie
		}
		return 0, nil
	})
	require.NoError(t, file.Sync())
	require.NoError(t, f.SyncAll())
	lost, err := f.Copy().Crash(storagetest.LoseAll, nil).ReadFile("a")
	require.NoError(t, err)
	require.Empty(t, lost)
	f.SetFault(nil)
	require.NoError(t, file.Sync())
	kept, err := f.Crash(storagetest.LoseAll, nil).ReadFile("a")
	require.NoError(t, err)
	require.Equal(t, "data", string(kept))
}

func TestACopyIsAnotherDisk(t *testing.T) {
	f := storagetest.New()
	file := write(t, f, "a", "old")
	backup := f.Copy()
	_, err := file.WriteAt([]byte("new"), 0)
	require.NoError(t, err)
	data, err := backup.ReadFile("a")
	require.NoError(t, err)
	require.Equal(t, "old", string(data))
	require.False(t, f.Stopped())
}

func TestLockExcludes(t *testing.T) {
	f := storagetest.New()
	lock, err := f.Lock(".lock")
	require.NoError(t, err)
	_, err = f.Lock(".lock")
	require.ErrorIs(t, err, storage.ErrLocked)
	require.NoError(t, lock.Close())
	_, err = f.Lock(".lock")
	require.NoError(t, err)
}

func TestFlipBit(t *testing.T) {
	f := storagetest.New()
	f.WriteFile("d/a", []byte{0})
	require.NoError(t, f.FlipBit("d/a", 0, 3))
	data, err := f.Crash(storagetest.LoseAll, nil).ReadFile("d/a")
	require.NoError(t, err)
	require.Equal(t, []byte{8}, data)
	require.ErrorIs(t, f.FlipBit("d/b", 0, 0), fs.ErrNotExist)
}

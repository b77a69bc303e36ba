package coordinator_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"millrace/storage"
	"millrace/storage/storagetest"
)

// crashWorkload puts some keys, of which several are under way at a time, and tells which of them were acknowledged.
func crashWorkload(t *testing.T, fs storage.FS) (acked map[string]bool, err error) {
	acked = make(map[string]bool)
	n, err := open(fs, internalSettings(t))
	if err != nil {
		return nil, err
	}
	r := runtime(nil)
	r.Lead(0, n.replica.Lead(alone(0)), 0)
	synctest.Wait()
	for i := range 8 {
		var waiting []*outcome
		for j := range 3 {
			key := fmt.Sprintf("%d/%d", i, j)
			waiting = append(waiting, pending(func() error {
				return put(t.Context(), r, kv(key, "v"), kv(key+" too", "v"))
			}))
		}
		for j, o := range waiting {
			if <-o.err == nil {
				acked[fmt.Sprintf("%d/%d", i, j)] = true
			}
		}
	}
	err = errors.Join(r.Close(), n.replica.Close(), n.dir.Close())
	return acked, err
}

// A power cut at each file operation loses nothing that was acknowledged, and no half of what was appended together.
func TestCrash(t *testing.T) {
	ops, kept := 0, 0
	synctest.Test(t, func(t *testing.T) {
		disk := storagetest.New()
		_, err := crashWorkload(t, disk)
		require.NoError(t, err)
		ops = disk.Ops()
	})
	for k := 1; k <= ops; k++ {
		synctest.Test(t, func(t *testing.T) {
			disk := storagetest.New()
			disk.StopAt(k, storagetest.Moment(k%2))
			acked, _ := crashWorkload(t, disk)
			n := start(t, disk.Crash(storagetest.LoseAll, rand.New(rand.NewPCG(1, uint64(k)))), internalSettings(t))
			r := runtime(nil)
			r.Lead(0, n.replica.Lead(alone(1)), 1)
			synctest.Wait()
			got, err := look(r, valuesOf)
			require.NoError(t, err, "operation %d", k)
			kept += len(acked)
			for key := range acked {
				require.Contains(t, got, key, "operation %d", k)
			}
			for i := range 8 {
				for j := range 3 {
					key := fmt.Sprintf("%d/%d", i, j)
					require.Equal(t, got[key], got[key+" too"], "operation %d", k)
				}
			}
			require.NoError(t, r.Close())
			n.stop()
		})
	}
	require.Positive(t, kept, "what was acknowledged before a power cut")
}

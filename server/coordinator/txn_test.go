package coordinator_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/server/coordinator"
	"millrace/server/partition"
	"millrace/storage/storagetest"
)

// Records of a transaction and its end come in order, and come again when the log is read.
func TestTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, storagetest.New(), internalSettings(t))
		r := runtime(nil)
		r.Lead(0, n.replica.Lead(alone(0)), 0)
		synctest.Wait()
		do := func(fn func(c *counts) error) error {
			got, err := look(r, fn)
			require.NoError(t, err)
			return got
		}
		appended := func(epoch int16, guard *partition.TxnGuard, key string) error {
			return do(func(c *counts) error {
				return c.shard.AppendTxn(coordinator.TxnBatch{ProducerID: 7, ProducerEpoch: epoch, Guard: guard}, kv(key, "v"))
			})
		}
		ended := func(epoch int16, commit bool) error {
			return do(func(c *counts) error {
				return c.shard.AppendMarker(&partition.Marker{
					ProducerID: 7, ProducerEpoch: epoch, CoordinatorEpoch: 1, Commit: commit, Version: 2, Epoch: -1,
				})
			})
		}
		require.ErrorIs(t, appended(3, nil, "unasked"), kerr.InvalidTxnState)
		guard, open, err := r.Guard(0, 7, 3)
		require.NoError(t, err)
		require.False(t, open)
		require.NoError(t, appended(3, &guard, "a"))
		_, open, err = r.Guard(0, 7, 3)
		require.NoError(t, err)
		require.True(t, open)
		require.NoError(t, appended(3, nil, "b"))
		require.NoError(t, ended(4, true))
		require.NoError(t, ended(4, true), "it is told again, and is there")
		require.ErrorIs(t, appended(3, &guard, "late"), kerr.InvalidProducerEpoch)
		guard, _, err = r.Guard(0, 7, 4)
		require.NoError(t, err)
		require.NoError(t, appended(4, &guard, "c"))
		require.NoError(t, ended(5, false))
		_, _, err = r.Guard(1, 7, 4)
		require.ErrorIs(t, err, kerr.NotCoordinator)

		want := []string{"a of 7/3", "b of 7/3", "end of 7/4: true", "c of 7/4", "end of 7/5: false"}
		ends := func(c *counts) []string { return slices.Clone(c.ends) }
		got, err := look(r, ends)
		require.NoError(t, err)
		require.Equal(t, want, got)
		old, _, err := r.Guard(0, 7, 5)
		require.NoError(t, err)
		r.Lead(0, n.replica.Lead(alone(1)), 1)
		synctest.Wait()
		got, err = look(r, ends)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.ErrorIs(t, appended(5, &old, "d"), kerr.NotCoordinator, "of what may have happened since nothing is known")
		guard, _, err = r.Guard(0, 7, 5)
		require.NoError(t, err, "which is no reason to give the partition up")
		require.NoError(t, appended(5, &guard, "d"))
		require.NoError(t, r.Close())
		n.stop()
	})
}

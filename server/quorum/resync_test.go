package quorum

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"millrace/storage/storagetest"
)

// promised is what the stores have answered to be durable.
type promised struct{ last, term, snapshot uint64 }

// liveStores opens the stores, holds them to what was promised and has them promise more until something fails.
func liveStores(t *testing.T, disk *storagetest.FS, p *promised, rounds int) (err error) {
	s, err := openStores(disk, 1000, hclog.NewNullLogger())
	if err != nil {
		return err
	}
	defer func() { _ = s.close() }()
	last, _ := s.entries.LastIndex()
	require.GreaterOrEqual(t, last, p.last)
	for i := uint64(1); i <= last; i++ {
		require.NoError(t, s.entries.GetLog(i, &raft.Log{}))
	}
	term, _ := s.ballot.GetUint64([]byte(termKey))
	require.GreaterOrEqual(t, term, p.term)
	require.GreaterOrEqual(t, s.lastSnapshot(), p.snapshot)
	p.last, p.term, p.snapshot = last, term, s.lastSnapshot() // all of it is acted upon now
	for range rounds {
		if err := s.ballot.SetUint64([]byte(termKey), p.term+1); err != nil {
			return err
		}
		p.term++
		for range 4 {
			if err := s.entries.StoreLog(entryOf(p.last+1, p.term)); err != nil {
				return err
			}
			p.last++
		}
		k, err := s.snapshots.Create(1, p.last, p.term, raft.Configuration{}, 1, nil)
		if err != nil {
			return err
		}
		if err := k.Close(); err != nil {
			return err
		}
		p.snapshot = p.last
	}
	return nil
}

// Whichever sync fails, the next process holds what it can read for good, or not at all.
func TestAFailedSyncLosesNothingAfterARestart(t *testing.T) {
	for k := 1; ; k++ {
		reached := false
		for seed := range uint64(8) {
			t.Run(fmt.Sprintf("sync=%d/%d", k, seed), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, uint64(k)))
				disk, p := storagetest.New(), new(promised)
				if seed%2 == 0 {
					require.NoError(t, liveStores(t, disk, p, 3))
					disk = disk.Crash(storagetest.KeepAll, rng)
				}
				n := k
				disk.SetFault(func(op storagetest.Op, _ string) (time.Duration, error) {
					if op == storagetest.OpSync || op == storagetest.OpSyncDir {
						if n--; n == 0 {
							reached = true
							return 0, syscall.EIO
						}
					}
					return 0, nil
				})
				_ = liveStores(t, disk, p, 3)
				disk = disk.Crash(storagetest.KeepAll, rng)
				require.NoError(t, liveStores(t, disk, p, int(seed/2%2)*3)) // or it only looks
				disk = disk.Crash(storagetest.Modes()[1+rng.IntN(3)], rng)
				require.NoError(t, liveStores(t, disk, p, 3))
			})
		}
		if !reached {
			require.Greater(t, k, 20)
			return
		}
	}
}

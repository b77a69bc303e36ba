package simtest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/server/partition"
	"millrace/server/servertest/simtest"
)

// findWithin is how many schedules a planted fault may take to be found.
const findWithin = 200

// The checks see: each fault that is planted in the nodes is found.
func TestPlantedFaultsAreFound(t *testing.T) {
	for name, flaws := range map[string]partition.Flaws{
		"acknowledge early":      {AckEarly: true},
		"skip syncs":             {SkipSync: true},
		"skip truncations":       {SkipTruncation: true},
		"stale leader":           {StaleLeader: true},
		"advance high watermark": {AdvanceHW: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= findWithin; seed++ {
				r := simtest.Run(t, simtest.Options{Seed: seed, Flaws: flaws, Scratch: t.TempDir()})
				if len(r.Violations) > 0 {
					t.Logf("found by seed %d: %v", seed, r.Violations[0])
					return
				}
			}
			require.Fail(t, "not found", "%d schedules saw nothing", findWithin)
		})
	}
}

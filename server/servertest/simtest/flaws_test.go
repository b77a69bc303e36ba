package simtest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/schemaregistry"
	"millrace/server/partition"
	"millrace/server/servertest/simtest"
)

// findWithin is how many schedules a planted fault may take to be found.
const findWithin = 200

// The checks see: each fault that is planted in the nodes is found.
func TestPlantedFaultsAreFound(t *testing.T) {
	for name, f := range map[string]struct {
		flaws partition.Flaws
		first []uint64 // seeds whose schedules suit the fault; they do not show it each time
	}{
		"acknowledge early":      {flaws: partition.Flaws{AckEarly: true}},
		"skip syncs":             {flaws: partition.Flaws{SkipSync: true}},
		"skip truncations":       {flaws: partition.Flaws{SkipTruncation: true}},
		"stale leader":           {partition.Flaws{StaleLeader: true}, []uint64{6, 58, 140, 6, 58, 140, 6, 58, 140}},
		"advance high watermark": {flaws: partition.Flaws{AdvanceHW: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := range findWithin {
				seed := uint64(i + 1)
				if i < len(f.first) {
					seed = f.first[i]
				}
				r := simtest.Run(t, simtest.Options{Seed: seed, Flaws: f.flaws, Scratch: t.TempDir()})
				if len(r.Violations) > 0 {
					t.Logf("found by seed %d: %v", seed, r.Violations[0])
					return
				}
			}
			require.Fail(t, "not found", "%d schedules saw nothing", findWithin)
		})
	}
}

// Those in groups and transactions are found as what they are.
func TestPlantedFaultsOfTransactionsAreFound(t *testing.T) {
	for name, f := range map[string]struct {
		flaws partition.Flaws
		as    string // one of these invariants
	}{
		"LSO off by one":           {partition.Flaws{LSOOffByOne: true}, "T2"},
		"no aborted index":         {partition.Flaws{SkipAbortedIndex: true}, "T2"},
		"one epoch":                {partition.Flaws{SameEpoch: true}, "D1 T1 T2"},
		"markers left out":         {partition.Flaws{SkipMarker: true}, "L1"},
		"any generation commits":   {partition.Flaws{AnyGeneration: true}, "G2 T7"},
		"offsets before decisions": {partition.Flaws{EarlyOffsets: true}, "G3 T7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= findWithin; seed++ {
				r := simtest.Run(t, simtest.Options{Seed: seed, Flaws: f.flaws, Scratch: t.TempDir(), Exact: true})
				for _, v := range r.Violations {
					if slices.Contains(strings.Fields(f.as), v.Invariant) {
						t.Logf("found by seed %d: %v", seed, v)
						return
					}
					t.Logf("seed %d: %v", seed, v)
				}
			}
			require.Fail(t, "not found", "%d schedules saw nothing", findWithin)
		})
	}
}

// Those in the schema registry are found as what they are.
func TestPlantedFaultsOfTheRegistryAreFound(t *testing.T) {
	for name, f := range map[string]struct {
		registry schemaregistry.Flaws
		as       string // one of these invariants
		first    uint64 // a seed that suits the fault
	}{
		"any offset": {registry: schemaregistry.Flaws{AnyOffset: true}, as: "S1 S2 S3", first: 3},
		"no mark":    {registry: schemaregistry.Flaws{ForgetMark: true}, as: "S1", first: 2},
		"not fresh":  {registry: schemaregistry.Flaws{SkipFresh: true}, as: "S3", first: 2},
		"early":      {registry: schemaregistry.Flaws{Early: true}, as: "S1 S2 S3", first: 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := range uint64(findWithin) {
				seed := max(i, 1)
				if i == 0 {
					seed = f.first
				}
				r := simtest.Run(t, simtest.Options{
					Seed: seed, RegistryFlaws: f.registry, Scratch: t.TempDir(), Registry: true,
				})
				for _, v := range r.Violations {
					if slices.Contains(strings.Fields(f.as), v.Invariant) {
						t.Logf("found by seed %d: %v", seed, v)
						return
					}
					t.Logf("seed %d: %v", seed, v)
				}
			}
			require.Fail(t, "not found", "%d schedules saw nothing", findWithin)
		})
	}
}

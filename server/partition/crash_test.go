package partition_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/internal/ktag"
	"millrace/record"
	"millrace/server/partition"
	"millrace/storage"
	"millrace/storage/storagetest"
)

// sent is one batch of the workload. Its value is its identity.
type sent struct {
	id       int64 // producer, or -1
	sequence int32
	value    string
	acked    bool
	base     int64 // where it was acknowledged
}

// workload is batches of a counted producer, a named one, and nobody, in turn, large enough to fill
// a few segments.
func workload() []*sent {
	var all []*sent
	pad := strings.Repeat("x", 60)
	for i := range int32(6) {
		all = append(all,
			&sent{id: 1, sequence: i, value: fmt.Sprintf("counted %d %s", i, pad)},
			&sent{id: ktag.NamedProducerID("n"), sequence: i, value: fmt.Sprintf("named %d %s", i, pad)},
			&sent{id: -1, value: fmt.Sprintf("plain %d %s", i, pad)})
	}
	return all
}

// append sends a batch with acks=all and notes whether it was acknowledged.
func (s *sent) append(h *host, w *partition.Waiter) error {
	r := &partition.AppendRequest{
		Batch: batch(s.id, 0, s.sequence, h.now, s.value), AllInSync: true, Expected: -1, Epoch: -1,
	}
	a, err := h.leader.Append(context.Background(), r)
	if err != nil {
		return err
	}
	w.Start(time.Minute)
	defer w.Stop()
	if err := h.leader.AwaitCommitted(context.Background(), w, &a); err != nil {
		return err
	}
	s.acked, s.base = true, a.BaseOffset
	return nil
}

// log reads all values of the partition, by offset.
func (h *host) log() (values []string) {
	for offset := int64(0); ; {
		f, err := h.leader.Fetch(partition.FetchRequest{Offset: offset, LeaderEpoch: -1, MaxBytes: 1 << 20})
		require.NoError(h.t, err)
		if len(f.Records) == 0 {
			require.Equal(h.t, f.LogEnd, offset)
			return values
		}
		for rest := f.Records; len(rest) > 0; {
			b, after, err := record.Next(rest)
			require.NoError(h.t, err)
			require.NoError(h.t, b.Verify())
			require.Equal(h.t, int64(len(values)), b.BaseOffset())
			r := record.NewReader(b, 1<<20)
			var rec record.Record
			for r.Next(&rec) {
				values = append(values, string(rec.Value))
			}
			require.NoError(h.t, r.Err())
			r.Close()
			rest = after
		}
		offset = f.Next
	}
}

// crashRun runs the workload on a disk that stops at the k-th operation, restarts on what survived,
// and sends again what was not acknowledged, as a client would. It tells whether the disk stopped.
func crashRun(t *testing.T, k int, mode storagetest.Mode) bool {
	disk, rng := storagetest.New(), rand.New(rand.NewPCG(uint64(k), uint64(mode)))
	h := newHost(t)
	h.fs, h.policy = disk, storage.SyncAck
	h.settings.SegmentBytes = 500
	h.start()
	disk.StopAt(k, storagetest.Moment(k%2))
	all, w := workload(), partition.NewWaiter()
	for _, s := range all {
		if s.append(h, w) != nil {
			break
		}
	}
	stopped := disk.Stopped()
	_ = h.replica.Close()
	_ = h.dir.Close()

	h.fs = disk.Crash(mode, rng)
	h.start()
	values := h.log()
	for _, s := range all {
		if s.acked {
			require.Equal(t, s.value, values[s.base], "acknowledged at offset %d", s.base)
		}
	}
	for _, s := range all {
		if !s.acked {
			require.NoError(t, s.append(h, w), "%s sent again", s.value)
		}
	}
	values = h.log()
	for _, s := range all {
		count := 0
		for _, v := range values {
			if v == s.value {
				count++
			}
		}
		if s.id >= 0 {
			require.Equal(t, 1, count, "%s is %d times in the log", s.value, count)
		} else {
			require.Positive(t, count)
		}
	}
	h.checkProducers()
	h.stop()
	h.start()
	require.Equal(t, values, h.log(), "after another restart")
	h.checkProducers()
	h.stop()
	return stopped
}

// checkProducers compares what the leader remembers with the batches in the log.
func (h *host) checkProducers() {
	last := make(map[int64]int32)
	for _, v := range h.log() {
		var i int32
		switch {
		case strings.HasPrefix(v, "counted"):
			_, err := fmt.Sscanf(v, "counted %d", &i)
			require.NoError(h.t, err)
			last[1] = i
		case strings.HasPrefix(v, "named"):
			_, err := fmt.Sscanf(v, "named %d", &i)
			require.NoError(h.t, err)
			last[ktag.NamedProducerID("n")] = i
		}
	}
	states, err := h.leader.Producers(-1)
	require.NoError(h.t, err)
	got := make(map[int64]int32)
	for _, s := range states {
		got[s.ID] = s.LastSequence
	}
	require.Equal(h.t, last, got)
}

// Whenever the power goes: what was acknowledged is there, what is sent again is there once.
func TestCrashAtEveryOperation(t *testing.T) {
	for _, mode := range storagetest.Modes() {
		t.Run(mode.String(), func(t *testing.T) {
			k := 1
			for ; crashRun(t, k, mode); k++ {
				if testing.Short() {
					k += 6
				}
			}
			require.Greater(t, k, 40, "the workload does too little")
		})
	}
}

// A full disk refuses batches, and nothing else suffers; with room again it goes on.
func TestFullDisk(t *testing.T) {
	disk := storagetest.New()
	h := newHost(t)
	h.fs, h.policy = disk, storage.SyncAck
	h.start()
	w := partition.NewWaiter()
	one := &sent{id: 1, sequence: 0, value: "first"}
	require.NoError(t, one.append(h, w))
	disk.SetQuota(1)
	two := &sent{id: 1, sequence: 1, value: "second"}
	err := two.append(h, w)
	require.ErrorIs(t, err, storage.ErrDiskFull)
	r := partition.Explain(err)
	require.True(t, r.NotWritten)
	require.Equal(t, []string{"first"}, h.log())
	disk.SetQuota(0)
	require.NoError(t, two.append(h, w), "the sequence is still the next one")
	require.Equal(t, []string{"first", "second"}, h.log())
	h.stop()
}

// A sync that fails takes the partition offline: who waits is told at once, and that the outcome is
// open.
func TestFailedSync(t *testing.T) {
	disk := storagetest.New()
	h := newHost(t)
	h.fs, h.policy = disk, storage.SyncAck
	h.start()
	w := partition.NewWaiter()
	require.NoError(t, (&sent{id: -1, value: "first"}).append(h, w))
	disk.SetFault(func(op storagetest.Op, _ string) (time.Duration, error) {
		if op == storagetest.OpSync || op == storagetest.OpSyncAll {
			return 0, fmt.Errorf("the disk says no")
		}
		return 0, nil
	})
	start := time.Now()
	err := (&sent{id: -1, value: "second"}).append(h, w)
	require.ErrorIs(t, err, storage.ErrOffline)
	require.Less(t, time.Since(start), 30*time.Second, "the waiter was not told")
	require.False(t, partition.Explain(err).NotWritten)
	require.ErrorIs(t, h.leader.Offline(), storage.ErrOffline)
	err = (&sent{id: -1, value: "third"}).append(h, w)
	require.ErrorIs(t, err, storage.ErrOffline)
	require.ErrorIs(t, h.leader.Watch(w, 5), storage.ErrOffline)
	w.Leave()
	disk.SetFault(nil)
	_ = h.replica.Close()
	_ = h.dir.Close()
}

// A producer state rebuilt from the log alone equals the one kept up while writing, whatever was
// written (the snapshots are removed before the restart).
func TestStateFromScratch(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for round := range 20 {
		disk := storagetest.New()
		h := newHost(t)
		h.fs, h.policy = disk, storage.SyncNever
		h.settings.SegmentBytes = 400
		h.start()
		next := map[int64]int32{}
		for range 60 {
			id := []int64{-1, 1, 2, ktag.NamedProducerID("x")}[rng.IntN(4)]
			epoch := int16(rng.IntN(3) / 2 * round)
			values := slices.Repeat([]string{"v"}, 1+rng.IntN(3))
			r := &partition.AppendRequest{Batch: batch(id, epoch, next[id], h.now, values...), Expected: -1, Epoch: -1}
			if _, err := h.leader.Append(t.Context(), r); err == nil {
				next[id]++
				if !ktag.IsNamed(id) {
					next[id] += int32(len(values)) - 1
				}
			} else {
				next[id] = 0
			}
			h.now = h.now.Add(time.Millisecond)
		}
		kept, err := h.leader.Producers(-1)
		require.NoError(t, err)
		require.NotEmpty(t, kept)
		h.stop()
		for _, name := range disk.Files() {
			if strings.HasSuffix(name, ".snapshot") {
				require.NoError(t, disk.Remove(name))
			}
		}
		h.start()
		rebuilt, err := h.leader.Producers(-1)
		require.NoError(t, err)
		require.Equal(t, kept, rebuilt)
		h.stop()
	}
}

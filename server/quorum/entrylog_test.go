package quorum

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"millrace/storage/storagetest"
)

// modelLog is what a log must hold: entries from first on.
type modelLog struct {
	first uint64
	terms []uint64
}

func (m *modelLog) last() uint64 { return m.first + uint64(len(m.terms)) - 1 }

func entryOf(index, term uint64) *raft.Log {
	return &raft.Log{Index: index, Term: term, Data: bytes.Repeat([]byte{byte(index), byte(term)}, int(index*7%200))}
}

func openTestLog(disk *storagetest.FS) (*entryLog, error) {
	if err := errors.Join(makeFolders(disk), disk.SyncDir(folder)); err != nil {
		return nil, err
	}
	return openEntryLog(disk, logFolder, 2000, newLogger(nil))
}

// logStep is one call on a log: entries of a term, or a deletion of the oldest or the newest.
type logStep struct {
	store, head, tail int
}

func randomSteps(rng *rand.Rand) (steps []logStep) {
	for range 25 {
		switch rng.IntN(8) {
		case 0:
			steps = append(steps, logStep{head: 1 + rng.IntN(20)})
		case 1:
			steps = append(steps, logStep{tail: 1 + rng.IntN(20)})
		default:
			steps = append(steps, logStep{store: 1 + rng.IntN(8)})
		}
	}
	return steps
}

// run does a step on the log and on the model. before is the model when the step was not begun.
func (s logStep) run(l *entryLog, m *modelLog, term uint64) (err error) {
	n := len(m.terms)
	switch {
	case s.store > 0:
		var logs []*raft.Log
		for range s.store {
			m.terms = append(m.terms, term)
			logs = append(logs, entryOf(m.last(), term))
		}
		return l.StoreLogs(logs)
	case n == 0:
		return nil
	case s.head > 0:
		d := min(s.head, n)
		err = l.DeleteRange(m.first, m.first+uint64(d)-1)
		m.first, m.terms = m.first+uint64(d), m.terms[d:]
	default:
		d := min(s.tail, n)
		err = l.DeleteRange(m.last()-uint64(d)+1, m.last())
		m.terms = m.terms[:n-d]
	}
	return err
}

// holds reports how a log differs from a model, "" if it does not. Entries before the model's first may be there.
func holds(l *entryLog, m modelLog) string {
	first, _ := l.FirstIndex()
	last, _ := l.LastIndex()
	if len(m.terms) == 0 {
		if last >= m.first && last != 0 {
			return fmt.Sprintf("%d to %d instead of nothing", first, last)
		}
		return ""
	}
	if first > m.first || last != m.last() {
		return fmt.Sprintf("%d to %d instead of %d to %d", first, last, m.first, m.last())
	}
	for i, term := range m.terms {
		var got raft.Log
		index := m.first + uint64(i)
		if err := l.GetLog(index, &got); err != nil {
			return err.Error()
		}
		if want := entryOf(index, term); got.Term != term || !bytes.Equal(got.Data, want.Data) {
			return fmt.Sprintf("entry %d is another one", index)
		}
	}
	return ""
}

// TestLogSurvivesCrashes ends the disk at every file operation: then the log holds what it held before the step that
// was cut off, or after it, or for several entries some of them. And it takes more.
func TestLogSurvivesCrashes(t *testing.T) {
	for seed := range uint64(4) {
		steps := randomSteps(rand.New(rand.NewPCG(seed, 1)))
		for k := 1; ; k++ {
			mode := storagetest.Modes()[k%4]
			moment := storagetest.Moment(k / 4 % 2)
			if !crashLogAt(t, steps, k, mode, moment, seed) {
				break
			}
		}
	}
}

// crashLogAt reports whether the disk ended before the steps did.
func crashLogAt(t *testing.T, steps []logStep, k int, mode storagetest.Mode, moment storagetest.Moment,
	seed uint64) bool {
	where := fmt.Sprintf("seed %d, operation %d, %s", seed, k, mode)
	disk := storagetest.New()
	disk.StopAt(k, moment)
	now := modelLog{first: 1}
	before := now
	l, err := openTestLog(disk)
	for i := 0; err == nil && i < len(steps); i++ {
		before = modelLog{now.first, append([]uint64(nil), now.terms...)}
		err = steps[i].run(l, &now, uint64(i+1))
	}
	if l != nil {
		require.Empty(t, cmp(err == nil, l, now), where)
		require.NoError(t, l.close(), where)
	}
	crashed := err != nil
	rng := rand.New(rand.NewPCG(seed, uint64(k)))
	disk = disk.Crash(mode, rng)
	for range 2 { // and what is read after a crash is there after the next one, too
		l, err = openTestLog(disk)
		require.NoError(t, err, where)
		require.Empty(t, oneOf(l, before, now), where)
		require.NoError(t, l.close())
		disk = disk.Crash(storagetest.LoseAll, rng)
	}
	l, err = openTestLog(disk)
	require.NoError(t, err, where)
	if last, _ := l.LastIndex(); last > 0 {
		require.NoError(t, l.StoreLogs([]*raft.Log{entryOf(last+1, 99)}), where)
	}
	require.NoError(t, l.close())
	return crashed
}

func cmp(check bool, l *entryLog, m modelLog) string {
	if !check {
		return ""
	}
	return holds(l, m)
}

// oneOf reports how a log differs from all states that a step cut off may leave.
func oneOf(l *entryLog, before, now modelLog) string {
	diff := holds(l, before)
	if diff == "" || holds(l, now) == "" {
		return ""
	}
	if now.first == before.first && len(now.terms) > len(before.terms) { // some of the entries
		for n := range now.terms {
			if n >= len(before.terms) && holds(l, modelLog{now.first, now.terms[:n]}) == "" {
				return ""
			}
		}
	}
	if len(now.terms) == 0 && len(before.terms) > 0 { // some of the files
		for d := range before.terms {
			if holds(l, modelLog{before.first + uint64(d), before.terms[d:]}) == "" {
				return ""
			}
		}
	}
	if now.first == before.first && len(now.terms) < len(before.terms) {
		for n := len(now.terms); n < len(before.terms); n++ {
			if holds(l, modelLog{before.first, before.terms[:n]}) == "" {
				return ""
			}
		}
	}
	return diff
}

// Readers may meet an entry that is being deleted and written anew: they see one or the other, or none.
func TestReadersMeetTruncation(t *testing.T) {
	l, err := openTestLog(storagetest.New())
	require.NoError(t, err)
	require.NoError(t, l.StoreLogs([]*raft.Log{entryOf(1, 1), entryOf(2, 1)}))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				var got raft.Log
				if err := l.GetLog(2, &got); err != nil && err != raft.ErrLogNotFound {
					t.Error(err)
					return
				}
			}
		})
	}
	for term := range uint64(500) {
		require.NoError(t, l.DeleteRange(2, 2))
		require.NoError(t, l.StoreLogs([]*raft.Log{entryOf(2, 2+term)}))
	}
	close(stop)
	wg.Wait()
	require.NoError(t, l.close())
}

func TestLogRefusesGapsAndHoles(t *testing.T) {
	l, err := openTestLog(storagetest.New())
	require.NoError(t, err)
	for i := range uint64(30) {
		require.NoError(t, l.StoreLog(entryOf(100+i, 1)))
	}
	require.ErrorContains(t, l.StoreLog(entryOf(131, 1)), "cannot follow")
	require.ErrorContains(t, l.StoreLogs([]*raft.Log{entryOf(130, 1), entryOf(132, 1)}), "cannot follow")
	require.ErrorContains(t, l.DeleteRange(110, 120), "inside")
	require.NoError(t, l.DeleteRange(1, 99))
	require.NoError(t, l.DeleteRange(1, 109))
	var got raft.Log
	require.ErrorIs(t, l.GetLog(109, &got), raft.ErrLogNotFound)
	require.NoError(t, l.GetLog(110, &got))
	require.NoError(t, l.DeleteRange(0, 1000))
	require.NoError(t, l.StoreLog(entryOf(7, 1)), "an empty log begins anywhere")
	require.NoError(t, l.close())
}

// The entry that was read last is read from the file once, until something is deleted.
func TestReadingAnEntryAgain(t *testing.T) {
	disk := storagetest.New()
	l, err := openTestLog(disk)
	require.NoError(t, err)
	defer func() { require.NoError(t, l.close()) }()
	store := func(index, term uint64, size int) *raft.Log {
		e := entryOf(index, term)
		e.Data = bytes.Repeat([]byte{byte(index), byte(term)}, size/2)
		require.NoError(t, l.StoreLog(e))
		return e
	}
	all := []*raft.Log{store(1, 1, 10), store(2, 1, 10), store(3, 1, 100<<10)}
	reads := 0
	disk.SetFault(func(op storagetest.Op, _ string) (time.Duration, error) {
		if op == storagetest.OpRead {
			reads++
		}
		return 0, nil
	})
	get := func(want *raft.Log) int {
		before := reads
		var got raft.Log
		require.NoError(t, l.GetLog(want.Index, &got))
		require.Equal(t, want.Term, got.Term)
		require.Equal(t, want.Data, got.Data)
		return reads - before
	}
	require.Equal(t, 1, get(all[0]))
	require.Zero(t, get(all[0]))
	require.Equal(t, 1, get(all[1]))
	require.Zero(t, get(all[1]))
	require.Equal(t, 1, get(all[2]))
	require.Equal(t, 1, get(all[2]), "too large to be kept")
	require.Zero(t, get(all[1]))
	require.NoError(t, l.DeleteRange(2, 3))
	require.ErrorIs(t, l.GetLog(2, new(raft.Log)), raft.ErrLogNotFound)
	again := store(2, 5, 10)
	require.Equal(t, 1, get(again), "another one is there now")
	require.Zero(t, get(again))
}

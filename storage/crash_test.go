package storage_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/record"
	"millrace/storage"
	"millrace/storage/storagetest"
)

var (
	crashSeed    = flag.Uint64("crash.seed", 0, "run one seed of the random crash test")
	crashRuns    = flag.Int("crash.runs", 100, "how many seeds the random crash test runs")
	crashCourses = flag.Int("crash.courses", 1, "how many courses of events are crashed at every operation, up to 5")
)

// logModel is what a log must hold after a crash, by what was claimed before.
type logModel struct {
	name    storage.PartitionName
	config  storage.Config
	log     *storage.Log
	batches map[int64]record.Batch // by base offset, everything that may be there
	end     int64                  // log end
	synced  int64                  // claimed to be durable
	start   int64                  // the log start that was claimed
	starts  int64                  // the greatest that may be found
	restart int64                  // a full truncation to here was begun, -1 if not
	cutting bool                   // a truncation was begun
	epoch   int32
}

// world is a disk with logs on it that lives through crashes.
type world struct {
	t      *testing.T
	rng    *rand.Rand
	disk   *storagetest.FS
	dir    *storage.Dir
	logs   []*logModel
	now    int64 // ms
	topics byte
	trace  []string
}

func newWorld(t *testing.T, seed uint64) *world {
	return &world{t: t, rng: rand.New(rand.NewPCG(seed, 42)), disk: newDisk(), now: 1_000_000}
}

func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

// missing lists the kinds of steps that did not happen.
func (w *world) missing() (kinds []string) {
	for _, kind := range []string{"sync", "checkpoint", "truncate", "restart", "start", "retention", "snapshot",
		"delete", "close"} {
		if !slices.ContainsFunc(w.trace, func(s string) bool { return strings.HasPrefix(s, kind) }) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// check fails the test with what led there. What goes wrong because the disk has stopped is no fault.
func (w *world) check(ok bool, format string, args ...any) {
	w.t.Helper()
	if ok || w.disk.Stopped() {
		return
	}
	if w.dir != nil {
		w.dir.Close() // or its goroutines would hide the message
	}
	from := max(len(w.trace)-60, 0)
	for _, line := range w.trace[from:] {
		w.t.Log(line)
	}
	w.t.Fatalf(format, args...)
}

func (w *world) open() error {
	d, err := storage.OpenDir(storage.DirOptions{FS: w.disk, Rand: rand.New(rand.NewPCG(w.rng.Uint64(), 1))})
	w.dir = d
	return err
}

// create makes a log with a new topic id.
func (w *world) create(topic string) error {
	w.topics++
	m := &logModel{
		name:    storage.PartitionName{Topic: topic, TopicID: [16]byte{w.topics}},
		batches: map[int64]record.Batch{}, restart: -1,
	}
	m.config = storage.DefaultConfig()
	m.config.SegmentBytes = int64(500 + w.rng.IntN(3000))
	if w.rng.IntN(3) == 0 {
		m.config.SegmentBytes = 100_000 // with so many index entries that checkpoints write them
	}
	m.config.IndexInterval = w.rng.IntN(3) * 300
	m.config.RetentionTime = time.Minute
	m.config.FileDeleteDelay = time.Duration(w.rng.IntN(2)) * time.Hour
	w.note("create %s config %+v", m.name, m.config)
	w.logs = append(w.logs, m)
	var err error
	m.log, err = w.dir.CreateLog(m.name, m.config)
	return err
}

func (w *world) append(m *logModel) error {
	n, size := 1+w.rng.IntN(4), w.rng.IntN(300)
	if w.rng.IntN(20) == 0 {
		size = 5000
	}
	w.now += int64(w.rng.IntN(1000))
	if w.rng.IntN(15) == 0 {
		m.epoch += int32(1 + w.rng.IntN(3))
		if err := m.log.AssignEpoch(m.epoch, m.end); err != nil {
			return err
		}
	}
	b := makeBatch(m.end, m.epoch, w.now-int64(w.rng.IntN(5000)), n, size)
	m.batches[m.end] = b
	w.note("append %s %d..%d epoch %d, %d bytes", m.name, b.BaseOffset(), b.LastOffset(), m.epoch, len(b))
	_, err := m.log.Append(b)
	if err == nil {
		m.end = b.NextOffset()
	}
	return err
}

// edge draws the base offset of a batch in the log, or its end.
func (w *world) edge(m *logModel) int64 {
	edges := []int64{m.end}
	for o := range m.batches {
		if o >= m.log.StartOffset() && o < m.end {
			edges = append(edges, o)
		}
	}
	// The map gives no order to rely on, so take the one nearest to a drawn offset.
	target := m.log.StartOffset() + w.rng.Int64N(m.end-m.log.StartOffset()+1)
	best := m.end
	for _, e := range edges {
		if e >= target && e < best {
			best = e
		}
	}
	return best
}

func (w *world) truncate(m *logModel) error {
	to := w.edge(m)
	w.note("truncate %s to %d", m.name, to)
	m.synced, m.cutting = min(m.synced, to), true // from here on it may be gone
	if err := m.log.TruncateTo(to); err != nil {
		return err
	}
	m.end, m.cutting = to, false
	m.forget(to)
	return nil
}

func (m *logModel) forget(from int64) {
	for o := range m.batches {
		if o >= from {
			delete(m.batches, o)
		}
	}
}

func (w *world) restart(m *logModel) error {
	to := m.log.StartOffset() + int64(w.rng.IntN(int(m.end-m.log.StartOffset())+20))
	w.note("restart %s at %d", m.name, to)
	m.restart, m.synced, m.starts = to, min(m.synced, m.log.StartOffset()), max(m.starts, to)
	if err := m.log.TruncateFullyAndStartAt(to); err != nil {
		return err
	}
	m.restart, m.start, m.end, m.synced = -1, to, to, to
	m.starts = to
	m.forget(0)
	return nil
}

func (w *world) setStart(m *logModel) error {
	to := m.log.StartOffset() + w.rng.Int64N(m.end-m.log.StartOffset()+1)
	w.note("start %s at %d", m.name, to)
	m.starts = max(m.starts, to)
	if err := m.log.SetStart(to); err != nil {
		return err
	}
	m.start = max(m.start, to)
	return nil
}

func (w *world) retain(m *logModel) error {
	w.note("retention %s", m.name)
	m.starts = max(m.starts, m.end)
	w.now += int64(w.rng.IntN(20_000))
	_, err := m.log.ApplyRetention(time.UnixMilli(w.now), m.end)
	if err == nil {
		m.start = m.log.StartOffset()
	}
	return err
}

func (w *world) remove(m *logModel) error {
	w.note("delete %s", m.name)
	i := 0
	for w.logs[i] != m {
		i++
	}
	w.logs = append(w.logs[:i], w.logs[i+1:]...)
	if err := w.dir.DeleteLog(m.log); err != nil {
		return err
	}
	return w.create(m.name.Topic)
}

// restartClean closes the directory and opens it again.
func (w *world) restartClean() error {
	w.note("close")
	if err := w.dir.Close(); err != nil {
		return err
	}
	if err := w.open(); err != nil {
		return err
	}
	w.check(w.dir.WasClean(), "not clean after a clean stop")
	for _, m := range w.logs {
		m.synced = m.end
		l, err := w.dir.OpenLog(m.name, m.config)
		if err != nil {
			return err
		}
		m.log = l
	}
	return nil
}

// step does one random thing.
func (w *world) step() error {
	for _, topic := range []string{"a", "b-c"} { // a crash may have come between a deletion and the next life
		if !slices.ContainsFunc(w.logs, func(m *logModel) bool { return m.name.Topic == topic }) {
			return w.create(topic)
		}
	}
	m := w.logs[w.rng.IntN(len(w.logs))]
	switch n := w.rng.IntN(100); {
	case n < 60:
		return w.append(m)
	case n < 72:
		w.note("sync %s", m.name)
		return m.log.Sync(context.Background())
	case n < 76:
		for _, m := range w.logs { // one commit for all
			m.log.RequestSync()
		}
		return nil
	case n < 80:
		w.note("checkpoint")
		return w.dir.Checkpoint()
	case n < 84:
		return w.truncate(m)
	case n < 85:
		return w.restart(m)
	case n < 88:
		return w.setStart(m)
	case n < 92:
		return w.retain(m)
	case n < 95:
		w.note("snapshot %s", m.name)
		return m.log.SaveProducerSnapshot(m.end, fmt.Appendf(nil, "state at %d", m.end))
	case n < 97:
		return w.restartClean()
	case n < 98:
		return w.remove(m)
	default:
		for range 10 + w.rng.IntN(30) {
			if err := w.append(m); err != nil {
				return err
			}
		}
		return nil
	}
}

// claim takes down what the logs say is durable.
func (w *world) claim() {
	synctest.Wait()
	for _, m := range w.logs {
		if m.log != nil && m.restart < 0 && !m.cutting {
			m.synced = max(m.synced, min(m.log.SyncedOffset(), m.end))
		}
	}
}

// live runs until the disk stops or the steps are done.
func (w *world) live(steps int) {
	w.steps(steps, w.open())
}

func (w *world) steps(steps int, err error) {
	for i := 0; i < steps && err == nil; i++ {
		if err = w.step(); err == nil {
			w.claim()
		}
	}
	w.check(err == nil, "%v", err)
}

// crash ends the process and gives the disk that is left to the next.
func (w *world) crash(mode storagetest.Mode) {
	synctest.Wait()
	w.note("crash %s after %d operations", mode, w.disk.Ops())
	next := w.disk.Crash(mode, w.rng)
	if w.dir != nil {
		w.dir.Close()
	}
	for _, m := range w.logs {
		m.log = nil
	}
	w.dir, w.disk = nil, next
}

// recover opens everything and checks it against the claims.
func (w *world) recover() error {
	if err := w.open(); err != nil {
		return err
	}
	found, err := w.dir.Partitions()
	if err != nil {
		return err
	}
	present := map[storage.PartitionName]bool{}
	for _, n := range found {
		known := false
		for _, m := range w.logs {
			if m.name == n || n.TopicID == [16]byte{} && n.String() == m.name.String() {
				known, present[m.name] = true, true
			}
		}
		if !known { // deleted, and back again
			if err := w.dir.SetAside(n); err != nil {
				return err
			}
		}
	}
	for _, m := range w.logs {
		if !present[m.name] {
			w.check(m.synced == 0, "%s is gone, %d offsets were synced", m.name, m.synced)
			*m = logModel{name: m.name, config: m.config, batches: map[int64]record.Batch{}, restart: -1}
			m.log, err = w.dir.CreateLog(m.name, m.config)
		} else {
			m.log, err = w.dir.OpenLog(m.name, m.config)
		}
		if err != nil {
			return err
		}
		w.verify(m)
	}
	return nil
}

// verify checks a recovered log against the claims, and takes what is there for the model.
func (w *world) verify(m *logModel) {
	l := m.log
	start, end := l.StartOffset(), l.EndOffset()
	w.note("recovered %s: %d..%d, synced %d; claimed %d.. and synced %d", m.name, start, end, l.SyncedOffset(),
		m.start, m.synced)
	if m.restart >= 0 && start == m.restart && end == start {
		m.batches, m.synced = map[int64]record.Batch{}, start // the full truncation came to its end
	}
	w.check(start >= m.start && start <= max(m.starts, m.start), "%s starts at %d, not %d..%d",
		m.name, start, m.start, m.starts)
	w.check(end >= m.synced, "%s ends at %d, %d was synced", m.name, end, m.synced)
	w.check(end >= start, "%s: starts at %d, ends at %d", m.name, start, end)
	all, err := tryReadAll(l, start)
	w.check(err == nil, "%s: %v", m.name, err)
	for _, b := range all {
		want := m.batches[b.BaseOffset()]
		w.check(want != nil && string(want) == string(b), "%s: batch at %d is not the one appended",
			m.name, b.BaseOffset())
		for _, o := range []int64{b.BaseOffset(), b.LastOffset()} {
			if o < start {
				continue
			}
			epoch, err := l.EpochFor(o)
			w.check(err == nil && epoch == b.LeaderEpoch(), "%s: epoch at %d is %d, not %d: %v",
				m.name, o, epoch, b.LeaderEpoch(), err)
			r, err := l.Read(o, 1, end, nil)
			w.check(err == nil && string(r.Batches) == string(b), "%s: offset %d is not found: %v", m.name, o, err)
		}
	}
	w.verifyTimes(m, all)
	at, state, ok, err := l.LoadProducerSnapshot()
	w.check(err == nil, "%s: %v", m.name, err)
	w.check(!ok || at <= end && at >= start, "%s: snapshot at %d of %d..%d", m.name, at, start, end)
	if ok && string(state) == fmt.Sprintf("state at %d", at) {
		w.note("snapshot %d", at)
	}
	m.start, m.starts, m.end, m.restart, m.cutting = start, max(start, m.start), end, -1, false
	m.synced = min(l.SyncedOffset(), end)
	m.forget(end)
	if len(all) > 0 {
		m.epoch = max(m.epoch, all[len(all)-1].LeaderEpoch())
	}
}

// verifyTimes compares look-ups by timestamp with what is in the batches.
func (w *world) verifyTimes(m *logModel, all []record.Batch) {
	for range 5 {
		ts := w.now - int64(w.rng.IntN(30_000))
		want, found := searchRecords(all, m.log.StartOffset(), ts)
		got, ok, err := m.log.OffsetForTime(ts)
		w.check(err == nil && ok == found && got.Offset == want, "%s: time %d is at %d (%t), not %d (%t): %v",
			m.name, ts, got.Offset, ok, want, found, err)
	}
}

// searchRecords finds the first record with a timestamp or a later one.
func searchRecords(all []record.Batch, start, ts int64) (int64, bool) {
	for _, b := range all {
		r := record.NewReader(b, 1<<20)
		var rec record.Record
		for r.Next(&rec) {
			if rec.Offset >= start && rec.Timestamp >= ts {
				return rec.Offset, true
			}
		}
	}
	return 0, false
}

// twice crashes and recovers again without a change: the outcome must be the same.
func (w *world) twice(first storagetest.Mode) {
	before := w.dump()
	mode := storagetest.KeepAll
	if first != storagetest.KeepAll && w.rng.IntN(2) == 0 {
		mode = storagetest.LoseAll // all that recovery read was durable
	}
	w.crash(mode)
	w.check(w.recover() == nil, "second recovery failed")
	w.check(before == w.dump(), "recovering again gives\n%s\nnot\n%s", w.dump(), before)
}

// dump describes all logs.
func (w *world) dump() (s string) {
	for _, m := range w.logs {
		all, err := tryReadAll(m.log, m.log.StartOffset())
		s += fmt.Sprintf("%s %d..%d %v", m.name, m.log.StartOffset(), m.log.EndOffset(), err)
		for _, b := range all {
			s += fmt.Sprintf(" %d:%x", b.BaseOffset(), b.CRC())
		}
		s += "\n"
	}
	return s
}

// recoverThroughCrashes recovers, perhaps crashing while at it.
func (w *world) recoverThroughCrashes(mode storagetest.Mode) {
	for {
		stopped := w.rng.IntN(3) == 0
		if stopped {
			w.disk.StopAt(1+w.rng.IntN(10), storagetest.Moment(w.rng.IntN(2)))
		}
		err := w.recover()
		synctest.Wait() // for what goes on in the background
		if err == nil && !w.disk.Stopped() {
			w.disk.StopAt(1<<30, storagetest.Before)
			break
		}
		w.check(false, "recovery: %v", err)
		w.crash(mode)
	}
	w.twice(mode)
}

// Stop at the k-th operation of a fixed course of events, for every k, on both sides of it, with
// each way of losing what was not synced.
func TestCrashAtEveryOperation(t *testing.T) {
	const steps = 60
	courses := []uint64{578, 398, 216, 74, 498} // each has every kind of step in it
	for _, seed := range courses[:*crashCourses] {
		total := 0
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, seed)
			w.live(steps)
			require.Empty(t, w.missing(), "the course has not every kind of step")
			total = w.disk.Ops()
			require.NoError(t, w.dir.Close())
		})
		stride := 1
		if testing.Short() {
			stride = 23
		}
		for k := 1; k <= total+5; k += stride {
			for _, mode := range storagetest.Modes() {
				for _, when := range []storagetest.Moment{storagetest.Before, storagetest.After} {
					synctest.Test(t, func(t *testing.T) {
						w := newWorld(t, seed)
						w.disk.StopAt(k, when)
						w.live(steps)
						w.claim()
						w.note("seed %d, operation %d, moment %d", seed, k, when)
						w.crash(mode)
						w.check(w.recover() == nil, "recovery failed")
						w.twice(mode)
						w.check(w.dir.Close() == nil, "close failed")
					})
				}
			}
		}
	}
}

// Long lives with many crashes, also while recovering.
func TestRandomCrashes(t *testing.T) {
	first, runs := uint64(1), *crashRuns
	if testing.Short() {
		runs = min(runs, 20)
	}
	if *crashSeed != 0 {
		first, runs = *crashSeed, 1
	}
	for seed := first; seed < first+uint64(runs); seed++ {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, seed)
			w.note("run again with -run TestRandomCrashes -crash.seed=%d", seed)
			w.disk.StopAt(20+w.rng.IntN(200), storagetest.Moment(w.rng.IntN(2)))
			w.live(400)
			for range 8 {
				w.claim()
				mode := storagetest.Modes()[w.rng.IntN(4)]
				w.crash(mode)
				w.recoverThroughCrashes(mode)
				w.disk.StopAt(1+w.rng.IntN(300), storagetest.Moment(w.rng.IntN(2)))
				w.steps(150, nil)
			}
			stopped := w.disk.Stopped()
			if w.dir != nil {
				err := w.dir.Close()
				w.check(err == nil || stopped, "close: %v", err)
			}
		})
		if t.Failed() {
			return
		}
	}
}

package simtest

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"millrace/record"
	"millrace/storage/storagetest"
)

// What may rot.
const (
	rotLog        = "a log"
	rotMetadata   = "the metadata"
	rotCheckpoint = "a checkpoint"
	rotIndex      = "an index"
)

// rot flips a bit of the victim's disk: in what a log holds below the high watermark, in Raft's files, in what is
// beside the logs; while the node runs, or between two lives.
func (s *sim) rot(length time.Duration) {
	m := s.victim()
	what := pick(s.rng, rotLog, rotLog, rotLog, rotMetadata, rotCheckpoint, rotIndex)
	if s.rng.IntN(2) == 0 {
		s.note("%s", m.flip(what))
		return
	}
	s.note("kill %s, for %v, and damage %s", m.name, length, what)
	committed := m.committed()
	m.fence(modeKill, false)
	s.note("%s", m.flipBelow(what, committed))
	s.ends.Go(func() { m.kill(modeKill, false) })
	s.startLater(m, length)
}

// committed gives the high watermarks of the node's logs, by folder.
func (m *machine) committed() map[string]int64 {
	out := map[string]int64{}
	node := m.alive()
	if node == nil {
		return out
	}
	probe := node.Probe()
	for _, r := range probe.Replicas {
		if t := probe.Image.TopicByID(r.Name.TopicID); t != nil && t.Name != adminTopic {
			out[fmt.Sprintf("%s-%d", t.Name, r.Name.Partition)] = r.HighWatermark
		}
	}
	return out
}

func (m *machine) flip(what string) string { return m.flipBelow(what, m.committed()) }

// flipBelow flips a bit, and tells which. committed is how far logs are known to be committed.
func (m *machine) flipBelow(what string, committed map[string]int64) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	disk := m.disk
	if m.next != nil {
		disk = m.next
	}
	var spots []spot
	for _, name := range disk.Files() {
		data, err := disk.ReadFile(name)
		if err != nil || len(data) == 0 {
			continue
		}
		spots = append(spots, spotsOf(what, name, data, committed)...)
	}
	if len(spots) == 0 {
		return fmt.Sprintf("there is nothing of %s to damage at %s", what, m.name)
	}
	at := spots[m.rng.IntN(len(spots))]
	off := at.from + int64(m.rng.IntN(int(at.to-at.from)))
	bit := uint(m.rng.IntN(8))
	if err := disk.FlipBit(at.name, off, bit); err != nil {
		return err.Error()
	}
	if what == rotLog {
		m.rot[path.Dir(at.name)] = true
	} else {
		m.ruined.Store(true)
	}
	return fmt.Sprintf("bit %d of byte %d of %s at %s has flipped", bit, off, at.name, m.name)
}

// spot is a part of a file.
type spot struct {
	name     string
	from, to int64
}

// spotsOf are the places in a file where something may rot.
func spotsOf(what, name string, data []byte, committed map[string]int64) []spot {
	whole := []spot{{name, 0, int64(len(data))}}
	inside, ext := strings.HasPrefix(name, "metadata/"), path.Ext(name)
	switch {
	case what == rotMetadata && inside, what == rotIndex && !inside && (ext == ".index" || ext == ".timeindex"):
		return whole
	case what == rotCheckpoint && !inside && (strings.HasSuffix(name, "checkpoint") || ext == ".snapshot" ||
		ext == ".properties" || ext == ".metadata"):
		return whole
	case what == rotLog && ext == ".log":
		if end, known := committed[path.Dir(name)]; known {
			return batchesBelow(name, data, end)
		}
	}
	return nil
}

// batchesBelow are the batches below an offset, without their leader epochs: no checksum covers those, and they are not
// always known from the neighbours.
func batchesBelow(name string, data []byte, end int64) (out []spot) {
	const epoch, magic = 12, 16
	at := int64(0)
	for len(data) > 0 {
		b, rest, err := record.Next(data)
		if err != nil || b.NextOffset() > end {
			break
		}
		out = append(out, spot{name, at, at + epoch}, spot{name, at + magic, at + int64(len(b))})
		at += int64(len(b))
		data = rest
	}
	return out
}

// lie has the victim's syncs of logs do nothing for a time, at whose end it mostly loses its power.
func (s *sim) lie(length time.Duration) {
	m := s.victim()
	s.note("the disk of %s says that logs are synced, for %v", m.name, length)
	m.faults.lie(length)
	if s.rng.IntN(3) == 0 {
		return
	}
	mode, off := pick(s.rng, powerModes()...), around(s.rng, time.Second)
	s.ends.Go(func() {
		sleep(s.healing, length)
		s.note("power off %s, %s", m.name, mode)
		m.kill(mode, true)
		sleep(s.healing, off)
		m.tryStart()
		s.note("%s is started", m.name)
	})
}

// olderDisk has the victim run on what its disk held at the end of an earlier life.
func (s *sim) olderDisk(time.Duration) {
	m := s.victim()
	m.mu.Lock()
	older := m.older
	m.mu.Unlock()
	if older == nil {
		s.note("kill %s, start it, and keep a copy of its disk", m.name)
		m.kill(modeKill, false)
		m.mu.Lock()
		if m.next != nil {
			m.older = m.next.Copy()
		}
		m.mu.Unlock()
		m.tryStart()
		return
	}
	if m.ready(s.healing, 5*time.Second) { // so that the others know of a later life
		s.replaceDisk(m, older.Copy(), "an older one")
	}
}

// newDisk takes the victim's disk away.
func (s *sim) newDisk(time.Duration) { s.replaceDisk(s.victim(), storagetest.New(), "an empty one") }

// replaceDisk does so when everything is well, as it is told to: a majority of the voters has to remember.
func (s *sim) replaceDisk(m *machine, disk *storagetest.FS, what string) {
	s.ends.Wait()
	for _, o := range s.others(m) {
		if !o.ready(s.healing, 5*time.Second) {
			s.note("%s is not ready, so that %s keeps its disk", o.name, m.name)
			return
		}
	}
	s.note("kill %s, and replace its disk by %s", m.name, what)
	m.replace(disk)
	m.tryStart()
	s.note("%s is ready on its other disk: %t", m.name, m.ready(s.healing, 30*time.Second))
}

// replace ends a life, the next of which runs on another disk.
func (m *machine) replace(disk *storagetest.FS) {
	m.kill(modeKill, false)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next = disk
	if len(disk.Files()) == 0 { // an older disk may be as damaged
		clear(m.rot)
		m.ruined.Store(false)
	}
}

// ready waits until the node has joined the cluster.
func (m *machine) ready(ctx context.Context, wait time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	node := m.alive()
	return node != nil && node.AwaitReady(ctx) == nil
}

// startAll starts all machines for good. The victim's disk may be such that no node starts on it; then it gets an empty
// one when the others are there, as the refusal says.
func (s *sim) startAll() bool {
	order := slices.Clone(s.machines())
	slices.SortStableFunc(order, func(a, b *machine) int {
		if a == s.failing {
			return 1
		}
		if b == s.failing {
			return -1
		}
		return 0
	})
	for _, m := range order {
		err := m.start()
		if err == nil && m.ruined.Load() && !m.ready(context.Background(), 20*time.Second) {
			err = errors.New("it does not join")
		}
		if err != nil && m == s.failing && m.ruined.Load() {
			s.note("%s does not start on its damaged disk and gets an empty one: %v", m.name, err)
			for _, o := range s.others(m) {
				o.ready(context.Background(), 30*time.Second)
			}
			m.replace(storagetest.New())
			err = m.start()
		}
		if err != nil {
			s.violate("L1", "%s does not start: %v", m.name, err)
			return false
		}
	}
	return true
}

// changeMembers changes who is a member of the metadata quorum, and who votes.
func (s *sim) changeMembers(length time.Duration) {
	if s.spare.lives() == 0 {
		s.note("%s joins", s.spare.name)
		s.spare.tryStart()
		return
	}
	m := s.spare
	if !s.plan.damage { // of two voters neither may lose its disk
		m = pick(s.rng, append(s.machines(), s.spare)...)
	}
	where := fmt.Sprintf("/v1/cluster/members/%d", m.id)
	switch s.rng.IntN(5) {
	case 0, 1:
		s.operate("POST", where+"/promote", "")
	case 2:
		s.operate("POST", where+"/demote", "")
	default:
		s.note("stop %s in order, for %v, and remove it", m.name, length)
		m.failed.Store(true) // should it be removed late
		s.ends.Go(func() {
			if err := m.stopInOrder(); err != nil {
				s.note("%s does not stop in order: %v", m.name, err)
			}
			q := request{node: s.others(m)[0], method: "DELETE", path: where, wait: 20 * time.Second}
			r := s.operator.do(s.healing, q)
			s.note("%s answers %s %s: %d %v %.300s", q.node.name, q.method, q.path, r.status, r.err, r.body)
			sleep(s.healing, length)
			m.tryStart()
			s.note("%s is started", m.name)
		})
	}
}

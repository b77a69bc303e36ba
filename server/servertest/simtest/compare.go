package simtest

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"millrace/record"
	"millrace/server/partition"
	"millrace/server/servertest/history"
)

// diskLog is a partition's log as a disk holds it.
type diskLog struct {
	name    string // of the machine
	batches []record.Batch
}

func (l *diskLog) end() int64 {
	if len(l.batches) == 0 {
		return 0
	}
	return l.batches[len(l.batches)-1].NextOffset()
}

// skip leaves out what lies before an offset.
func (l *diskLog) skip(start int64) {
	for len(l.batches) > 0 && l.batches[0].NextOffset() <= start {
		l.batches = l.batches[1:]
	}
}

// compareDisks compares the logs of stopped nodes byte by byte. Everything was quiet before, so that all of every log
// is committed: D8, D9, and that epochs never decrease along a log (E1).
func (s *sim) compareDisks() {
	for _, folder := range s.compacted() {
		s.compareKeys(folder)
	}
	for _, t := range s.allTopics() {
		if t.keyed {
			continue
		}
		for number := range t.partitions {
			folder := fmt.Sprintf("%s-%d", t.name, number)
			var logs []diskLog
			for _, m := range s.nodes {
				l, err := m.readLog(folder)
				switch {
				case m.isRotten(folder): // nobody has read it since
				case err != nil:
					s.violate("D9", "%s: log of %s: %v", m.name, folder, err)
					return
				case l == nil && t.exact: // perhaps nobody has written to it
					logs = append(logs, diskLog{name: m.name})
				case l == nil:
					s.violate("D9", "%s does not hold %s", m.name, folder)
				default:
					logs = append(logs, *l)
				}
			}
			if t.exact {
				cutMarkers(logs)
			}
			s.compareLogs(folder, logs)
			if t.exact && len(logs) > 0 {
				s.facts(t, number, &logs[0])
				continue
			}
			if len(logs) > 0 && !t.unclean && !s.isExempt(t.name) {
				s.compareReigns(t.name, number, &logs[0])
			}
		}
	}
}

// cutMarkers leaves out the markers that lie behind the end of another log: a transaction that has a partition and has
// written nothing there may have ended while the nodes stopped one after the other.
func cutMarkers(logs []diskLog) {
	for i := range logs {
		for _, other := range logs {
			l := &logs[i]
			for n := len(l.batches); n > 0 && l.batches[n-1].IsControl() && l.batches[n-1].BaseOffset() >= other.end(); {
				n--
				l.batches = l.batches[:n]
			}
		}
	}
}

// isRotten says whether a bit of a log has flipped and the log may still be there.
func (m *machine) isRotten(folder string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rot[folder]
}

// compareReigns holds what leaders did to what came after them (E2): nothing that one showed as committed lies where a
// later one wrote, and one completes nothing that was sent when a later one led already.
func (s *sim) compareReigns(topic string, number int, l *diskLog) {
	name := partition.Name{TopicID: s.topicIDs[topic], Partition: int32(number)}
	for at, shown := range s.probe.shown {
		if at.partition != name {
			continue
		}
		for _, b := range l.batches {
			if b.LeaderEpoch() > at.epoch {
				if b.BaseOffset() < shown {
					s.violate("E2", "%s/%d: the leader of epoch %d showed offsets up to %d, and epoch %d begins at %d",
						topic, number, at.epoch, shown, b.LeaderEpoch(), b.BaseOffset())
				}
				break
			}
		}
	}
	for _, o := range s.h.Ops() {
		if o.Kind != history.Send || o.Outcome != history.OK || o.Acks >= 0 || o.Base < 0 || o.Doubled || o.Again ||
			o.Partition != (history.Partition{Topic: topic, Number: int32(number)}) {
			continue
		}
		epoch, there := l.epochOf(o.Base)
		for at, begun := range s.probe.begun {
			if there && at.partition == name && at.epoch > epoch && begun < o.Invoke {
				s.violate("E2", "epoch %d began at %.6f, and a leader of epoch %d completed %s",
					at.epoch, begun.Seconds(), epoch, o)
			}
		}
	}
}

// epochOf is the leader epoch of the record at an offset.
func (l *diskLog) epochOf(offset int64) (epoch int32, there bool) {
	for _, b := range l.batches {
		if b.BaseOffset() <= offset && offset < b.NextOffset() {
			return b.LeaderEpoch(), true
		}
	}
	return 0, false
}

// readLog reads all batches of a partition from the disk; nil when it is not there.
func (m *machine) readLog(folder string) (*diskLog, error) {
	m.mu.Lock()
	disk := m.disk
	if m.next != nil {
		disk = m.next
	}
	m.mu.Unlock()
	l := &diskLog{name: m.name}
	var names []string
	for _, name := range disk.Files() {
		if path.Dir(name) == folder && strings.HasSuffix(name, ".log") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		data, err := disk.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for len(data) > 0 {
			b, rest, err := record.Next(data)
			if err == nil {
				err = b.Verify()
			}
			if err != nil {
				return nil, fmt.Errorf("%s, %d bytes before its end: %w", name, len(data), err)
			}
			l.batches = append(l.batches, b)
			data = rest
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	return l, nil
}

func (s *sim) compareLogs(folder string, logs []diskLog) {
	for _, l := range logs {
		next, epoch := int64(-1), int32(-1)
		for _, b := range l.batches {
			if b.BaseOffset() < next || b.LeaderEpoch() < epoch {
				s.violate("E1", "%s: %s: offset %d of epoch %d follows offset %d of epoch %d",
					l.name, folder, b.BaseOffset(), b.LeaderEpoch(), next-1, epoch)
			}
			next, epoch = b.NextOffset(), b.LeaderEpoch()
		}
	}
	start := int64(0) // where all of them have begun
	for _, l := range logs {
		if len(l.batches) > 0 {
			start = max(start, l.batches[0].BaseOffset())
		}
	}
	for i := range logs {
		logs[i].skip(start)
	}
	for _, l := range logs[min(1, len(logs)):] {
		first := logs[0]
		for i := range max(len(first.batches), len(l.batches)) {
			if i >= len(first.batches) || i >= len(l.batches) {
				s.violate("D9", "%s: %s ends at %d, %s at %d", folder, first.name, first.end(), l.name, l.end())
				break
			}
			if a, b := first.batches[i], l.batches[i]; !bytes.Equal(a, b) {
				s.violate("D8", "%s: %s and %s differ: offset %d of epoch %d, offset %d of epoch %d",
					folder, first.name, l.name, a.BaseOffset(), a.LeaderEpoch(), b.BaseOffset(), b.LeaderEpoch())
				break
			}
		}
	}
}

// diskLines tells what the disks hold of the topics, a batch a line.
func (s *sim) diskLines() (lines []string) {
	for _, t := range s.allTopics() {
		for number := range t.partitions {
			folder := fmt.Sprintf("%s-%d", t.name, number)
			for _, m := range s.nodes {
				l, err := m.readLog(folder)
				if l == nil {
					lines = append(lines, fmt.Sprintf("%s has no %s: %v", m.name, folder, err))
					continue
				}
				for _, b := range l.batches {
					lines = append(lines, fmt.Sprintf("%s %s %d+%d epoch %d producer %d/%d/%d crc %08x", m.name, folder,
						b.BaseOffset(), b.Count(), b.LeaderEpoch(), b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.CRC()))
				}
			}
		}
	}
	return lines
}

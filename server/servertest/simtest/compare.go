package simtest

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"millrace/record"
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

// compareDisks compares the logs of stopped nodes byte by byte. Everything was quiet before, so that all of every log
// is committed: D8, D9, and that epochs never decrease along a log (E1).
func (s *sim) compareDisks() {
	for _, t := range s.topics {
		for number := range t.partitions {
			folder := fmt.Sprintf("%s-%d", t.name, number)
			var logs []diskLog
			for _, m := range s.nodes {
				l, err := m.readLog(folder)
				if err != nil {
					s.violate("D9", "%s: log of %s: %v", m.name, folder, err)
					return
				}
				if l != nil {
					logs = append(logs, *l)
				}
			}
			s.compareLogs(folder, logs)
		}
	}
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
	if len(logs) != len(s.nodes) {
		s.violate("D9", "%d nodes hold %s", len(logs), folder)
	}
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
	for _, t := range s.topics {
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

package simtest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"millrace/server/metadata"
	"millrace/server/partition"
	"millrace/server/servertest/history"
)

const (
	// leaderWithin is how long after everything is well each partition has a leader and takes and gives records, and
	// fullWithin how long until every replica is in sync.
	leaderWithin = 30 * time.Second
	fullWithin   = 60 * time.Second
	// pollWithin is how long after its acknowledgement a record is read, when nothing is wrong.
	pollWithin = 5 * time.Second
	// forgottenWithin is how long a node waits on a connection that the other end has forgotten: the keep-alive tells it.
	forgottenWithin = 16 * time.Second
)

// recover makes everything well, and holds the cluster to the times in which it is whole again (L1).
func (s *sim) recover() {
	s.heal()
	s.ends.Wait()
	s.net.Heal()
	for _, m := range s.machines() {
		m.setQuota(-1)
		sleep(context.Background(), m.faults.heal())
	}
	for _, m := range s.machines() {
		if m.failed.Load() { // an operator replaces the disk's cable, and starts the node again
			m.kill(modeKill, false)
		}
	}
	if !s.startAll() {
		return
	}
	s.note("all is well")
	since := s.h.Now()
	if !s.await(since+leaderWithin, s.whyNoLeader) {
		return
	}
	s.note("every partition has a leader")
	if s.spread(since+leaderWithin) && s.await(since+fullWithin, s.whyNotFull) {
		s.note("every replica is in sync")
	}
}

// spread gives every partition all nodes, and says whether that was done in time.
func (s *sim) spread(end time.Duration) bool {
	for s.everywhere(context.Background()) != http.StatusAccepted {
		if s.h.Now() > end {
			s.violate("L1", "partitions cannot be given all nodes")
			return false
		}
		sleep(context.Background(), 200*time.Millisecond)
	}
	return true
}

// await waits until nothing is wrong any more. It is a violation when something still is at a time.
func (s *sim) await(end time.Duration, why func(image *metadata.Image) string) bool {
	for {
		wrong := "no node is up"
		if image := s.image(); image != nil {
			if wrong = s.whyUnknown(image); wrong == "" {
				wrong = why(image)
			}
		}
		switch {
		case wrong == "":
			return true
		case s.h.Now() > end:
			s.violate("L1", "%s", wrong)
			return false
		}
		sleep(context.Background(), 100*time.Millisecond)
	}
}

// whyUnknown says which topic the newest metadata lacks still.
func (s *sim) whyUnknown(image *metadata.Image) string {
	for _, t := range s.allTopics() {
		if image.Topic(t.name) == nil {
			return "nobody knows of " + t.name
		}
	}
	return ""
}

func (s *sim) whyNoLeader(image *metadata.Image) string {
	for t := range image.Topics() {
		for i := range t.Partitions {
			if t.Partitions[i].Leader == metadata.NoLeader {
				return fmt.Sprintf("%s-%d has no leader: %+v", t.Name, i, t.Partitions[i])
			}
		}
	}
	return ""
}

func (s *sim) whyNotFull(image *metadata.Image) string {
	for t := range image.Topics() {
		for i := range t.Partitions {
			if p := &t.Partitions[i]; len(p.ISR) < len(p.Replicas) || p.Reassigning() {
				return fmt.Sprintf("%s-%d is not in sync: %+v", t.Name, i, *p)
			}
		}
	}
	return ""
}

// settle is how long what clients gave up may go on when nothing is wrong.
const settle = 3 * time.Second

// roundTrips has every partition take a record at one node and give it at another (L1, L2).
func (s *sim) roundTrips() {
	sleep(context.Background(), settle)
	c, end := s.operator, s.h.Now()+leaderWithin
	if !s.spread(end) { // those too that there are since the last time
		return
	}
	for _, t := range s.topics {
		for number := range t.partitions {
			w := &session{
				p: &producer{client: c}, name: fmt.Sprintf("last/%s/%d", t.name, number), api: "native", acks: -1,
				topic: t, partition: number, idempotent: true, calm: true,
			}
			for i := 0; w.native([]string{fmt.Sprintf("%s/0/0", w.name)}) != history.OK; i++ {
				if s.h.Now() > end {
					s.violate("L1", "%s-%d takes no record: %s", t.name, number, w.why)
					return
				}
				sleep(context.Background(), 100*time.Millisecond)
			}
		}
	}
}

// lastTrims deletes the first records of what may lose them.
func (s *sim) lastTrims() {
	for _, t := range s.topics {
		for number := range t.partitions {
			if t.trimmed {
				o := &history.Op{Partition: history.Partition{Topic: t.name, Number: int32(number)}}
				s.deleteBelow(context.Background(), s.nodes[number%len(s.nodes)], o, s.committed(o.Partition)/2)
			}
		}
	}
}

// converge waits until all replicas hold all of every log, and know that it is committed (D9).
func (s *sim) converge() {
	why := func(image *metadata.Image) string {
		if why := s.whyNotFull(image); why != "" {
			return why
		}
		return s.whyNotEqual()
	}
	s.await(s.h.Now()+fullWithin, why)
}

// whyNotEqual says which replica lacks something.
func (s *sim) whyNotEqual() string {
	first := map[partition.Name]partition.Probe{}
	for _, m := range s.nodes {
		node := m.alive()
		if node == nil {
			return m.name + " is down"
		}
		for _, p := range node.Probe().Replicas {
			was, known := first[p.Name]
			if !known {
				first[p.Name] = p
				was = p
			}
			if p.LogEnd != was.LogEnd || p.HighWatermark != p.LogEnd {
				return fmt.Sprintf("%s holds %s to %d, committed to %d; another node holds it to %d",
					m.name, p.Name, p.LogEnd, p.HighWatermark, was.LogEnd)
			}
		}
	}
	return ""
}

// finalReads has every node give every partition, from its start to its end.
func (s *sim) finalReads() {
	for _, m := range s.nodes {
		for _, t := range s.topics {
			for number := range t.partitions {
				s.finalRead(m, history.Partition{Topic: t.name, Number: int32(number)}, s.h.Now()+s.readWithin())
			}
			s.finalOthers(m, t)
		}
	}
}

// readWithin is how long after its acknowledgement a record is read at the end. Damage that nobody has met before takes
// the time that it takes to replace a leader and its log.
func (s *sim) readWithin() time.Duration {
	if s.plan.damage {
		return leaderWithin
	}
	return pollWithin
}

func finalSession(m *machine) string { return "final at " + m.name }

// finalOthers reads a topic in the other ways that there are, which all give the same: as pages of all partitions, as a
// live stream, and as what the compatible APIs say of where it ends.
func (s *sim) finalOthers(m *machine, t *topic) {
	next := "offset=earliest"
	for {
		r := s.operator.do(context.Background(), request{
			node: m, method: "GET", path: fmt.Sprintf("/v1/topics/%s/records?max_records=200&%s", t.name, next),
			header: map[string]string{"Accept": "application/json"}, wait: leaderWithin,
		})
		var page struct {
			Records []entry
			Next    string
		}
		if err := json.Unmarshal(r.body, &page); err != nil || r.status != http.StatusOK {
			s.violate("L2", "%s does not give %s page by page: %d %v %.300s", m.name, t.name, r.status, r.err, r.body)
			return
		}
		for i := range page.Records {
			s.addFinal(m, t, &page.Records[i])
		}
		if next = "from=" + page.Next; len(page.Records) == 0 {
			break
		}
	}
	left := map[int32]int64{}
	for number := range t.partitions {
		of := history.Partition{Topic: t.name, Number: int32(number)}
		left[of.Number] = s.reached[of]
		s.finalOffsets(m, of)
	}
	l := live{w: &watcher{client: s.operator}, session: "stream at " + m.name, topic: t.name, left: left}
	if l.follow(m, s.readWithin()+forgottenWithin); len(left) > 0 {
		s.violate("L2", "%s does not stream %s to its end: %v %.500s", m.name, t.name, left, l.farewell)
	}
}

func (s *sim) addFinal(m *machine, t *topic, e *entry) {
	now := s.h.Now()
	s.h.Add(&history.Op{
		Kind: history.Read, Client: s.operator.name, Session: "pages at " + m.name, Node: m.name, API: "native",
		Invoke: now, Return: now, Outcome: history.OK, Final: true,
		Partition: history.Partition{Topic: t.name, Number: e.Partition},
		Values:    []string{e.shown()}, Offsets: []int64{e.Offset},
	})
}

// finalOffsets compares where the compatible APIs say that a partition ends with where its records do.
func (s *sim) finalOffsets(m *machine, of history.Partition) {
	var v2 struct {
		End *int64 `json:"end_offset"`
	}
	var v3 struct {
		End *int64 `json:"latest_offset"`
	}
	end := s.reached[of]
	for path, into := range map[string]any{
		fmt.Sprintf("/topics/%s/partitions/%d/offsets", of.Topic, of.Number):                            &v2,
		fmt.Sprintf("/v3/clusters/%s/topics/%s/partitions/%d/offset", s.clusterID, of.Topic, of.Number): &v3,
	} {
		r := s.operator.do(context.Background(), request{node: m, method: "GET", path: path})
		if err := json.Unmarshal(r.body, into); err != nil {
			s.violate("API", "%s: %s: %d %v %.300s", m.name, path, r.status, r.err, r.body)
			return
		}
	}
	if v2.End == nil || v3.End == nil || *v2.End != end || *v3.End != end {
		s.violate("D9", "%s: %s ends at %d; v2 says %v, v3 says %v", m.name, of, end, v2.End, v3.End)
	}
}

// finalRead reads to the end, which lies behind the record that was produced last.
func (s *sim) finalRead(m *machine, of history.Partition, end time.Duration) {
	p := page{
		c: s.operator, ctx: context.Background(), session: finalSession(m), partition: of, records: 500,
		lines: s.rng.IntN(2) == 0, final: true,
	}
	for last := false; ; {
		o, ok := p.read(m)
		count := len(o.Values)
		for _, v := range o.Values {
			last = last || strings.HasPrefix(v, "last/")
		}
		switch {
		case last && ok && count == 0:
			s.reached[of] = p.next
			return
		case s.h.Now() > end+time.Duration(p.next)*time.Millisecond:
			s.violate("L2", "%s does not give %s to its end: %s", m.name, of, o)
			return
		case !ok || count == 0:
			sleep(context.Background(), 50*time.Millisecond)
		}
	}
}

// resurrected looks for records of earlier lives in the topic that was deleted again and again.
func (s *sim) resurrected() {
	life := fmt.Sprintf("%s/%d/", s.admin.name, s.admin.lives)
	for _, m := range s.nodes {
		p, o := page{c: s.operator}, history.Op{}
		q := request{node: m, method: "GET", path: "/v1/topics/" + adminTopic + "/partitions/0/records?offset=0"}
		r := s.operator.do(context.Background(), q)
		if r.status != http.StatusOK {
			continue // it is deleted
		}
		p.take(&o, &r)
		for _, v := range o.Values {
			if !strings.HasPrefix(v, life) && s.admin.murky == 0 {
				s.violate("R5", "%s: %q is there in life %s", m.name, v, life)
				return
			}
		}
	}
}

// compareNodes compares the metadata of the nodes (R3, R5) once nothing changes any more.
func (s *sim) compareNodes() {
	sleep(context.Background(), 2*time.Second)
	for _, m := range s.machines() {
		node := m.alive()
		if node == nil {
			s.violate("L1", "%s is down at the end", m.name)
			return
		}
	}
	s.probe.look(true)
	s.topicIDs = map[string]metadata.UUID{}
	for t := range s.image().Topics() {
		s.topicIDs[t.Name] = t.ID
	}
}

// stopNodes stops all nodes in order.
func (s *sim) stopNodes() {
	machines := s.machines()
	for i := range machines {
		m := machines[(i+int(s.opts.Seed))%len(machines)]
		began := s.h.Now()
		if err := m.stopInOrder(); err != nil {
			s.violate("stop", "%s: %v", m.name, err)
		}
		if took := s.h.Now() - began; took > time.Minute {
			s.violate("stop", "%s takes %v to stop", m.name, took)
		}
	}
}

package simtest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"millrace/server/servertest/history"
)

// operator is a client over which the nemesis uses the cluster's own operations.
func (s *sim) operate(method, path, body string) {
	m := s.nodes[s.rng.IntN(len(s.nodes))]
	s.note("ask %s to %s %s %s", m.name, method, path, body)
	s.ends.Go(func() {
		q := request{node: m, method: method, path: path, body: body, header: jsonBody(), wait: 20 * time.Second}
		r := s.operator.do(s.healing, q)
		s.note("%s answers %s %s: %d %v %.300s", m.name, method, path, r.status, r.err, r.body)
	})
}

// transfer hands the lead of the metadata quorum to some node.
func (s *sim) transfer(time.Duration) {
	s.operate("POST", "/v1/cluster/leadership:transfer", pick(s.rng, `{}`, `{"to":1}`, `{"to":2}`, `{"to":3}`))
}

// elect makes preferred replicas the leaders again.
func (s *sim) elect(time.Duration) { s.operate("POST", "/v1/cluster/leader-elections", `{}`) }

// reassign gives some partitions other replicas, two or three, or takes that back while it goes on.
func (s *sim) reassign(length time.Duration) {
	var parts []string
	for _, t := range s.allTopics() {
		for p := range t.partitions {
			if s.rng.IntN(2) == 0 {
				parts = append(parts, s.assignment(t, p))
			}
		}
	}
	if len(parts) == 0 {
		return
	}
	s.operate("POST", "/v1/cluster/reassignments", `{"reassignments":[`+strings.Join(parts, ",")+`]}`)
	if s.rng.IntN(3) == 0 && sleep(s.healing, length/8) {
		s.operate("DELETE", "/v1/cluster/reassignments", "")
	}
}

// trim deletes a partition's oldest records.
func (s *sim) trim(time.Duration) {
	s.mu.Lock()
	var trimmed []*topic
	for _, t := range s.topics {
		if t.trimmed {
			trimmed = append(trimmed, t)
		}
	}
	s.mu.Unlock()
	if len(trimmed) == 0 {
		return
	}
	t := trimmed[s.rng.IntN(len(trimmed))]
	of := history.Partition{Topic: t.name, Number: int32(s.rng.IntN(t.partitions))}
	before := s.rng.Int64N(s.committed(of) + 1)
	m := pick(s.rng, s.nodes...)
	s.note("ask %s to delete what is below %d of %s", m.name, before, of)
	s.ends.Go(func() { s.deleteBelow(s.healing, m, &history.Op{Partition: of}, before) })
}

// committed is the high watermark of a partition, as far as its leader is up.
func (s *sim) committed(of history.Partition) (hw int64) {
	for _, m := range s.leaders() {
		hw = max(hw, m.committed()[fmt.Sprintf("%s-%d", of.Topic, of.Number)])
	}
	return hw
}

// deleteBelow deletes the records of a partition below an offset. The operation says which partition that is.
func (s *sim) deleteBelow(ctx context.Context, m *machine, o *history.Op, before int64) {
	o.Kind, o.Client, o.Node, o.API, o.Invoke, o.Base = history.Trim, s.operator.name, m.name, "native", s.h.Now(), -1
	r := s.operator.do(ctx, request{
		node: m, method: "POST", path: "/v1/topics/" + o.Partition.Topic + "/records/delete", header: jsonBody(),
		body: fmt.Sprintf(`{"partitions":[{"partition":%d,"before_offset":%d}]}`, o.Partition.Number, before),
	})
	var answer struct {
		Partitions []struct {
			Start int64 `json:"log_start_offset"`
		}
	}
	o.Outcome, o.Note = nativeOutcome(&r)
	if o.Outcome == history.OK {
		if err := json.Unmarshal(r.body, &answer); err != nil || len(answer.Partitions) != 1 {
			s.violate("API", "%s: cannot read the answer %s", o, r.body)
			return
		}
		o.Base = answer.Partitions[0].Start
		if o.Base < before {
			s.violate("D11", "%s: asked to delete below %d, the log begins at %d", o, before, o.Base)
		}
		s.deleted(o.Partition, o.Base)
	}
	o.Return = s.h.Now()
	s.h.Add(o)
}

// assignment gives a partition all nodes but perhaps one, in some order. A topic that wants two replicas for every
// record has two at least.
func (s *sim) assignment(t *topic, partition int) string {
	machines := s.machines()
	ids := make([]string, len(machines))
	for i, n := range s.rng.Perm(len(machines)) {
		ids[i] = fmt.Sprint(machines[n].id)
	}
	if ids = ids[:min(len(ids), len(s.nodes))]; s.rng.IntN(2) == 0 && len(ids) > 2 {
		ids = ids[:2]
	}
	return fmt.Sprintf(`{"topic":%q,"partition":%d,"replicas":[%s]}`, t.name, partition, strings.Join(ids, ","))
}

// everywhere gives every partition all nodes again, and tells the answer's status.
func (s *sim) everywhere(ctx context.Context) (status int) {
	var parts []string
	image := s.image()
	for _, t := range s.allTopics() {
		for p := range image.Topic(t.name).Partitions {
			var ids []string
			for i := range s.nodes {
				ids = append(ids, fmt.Sprint(s.nodes[(i+p)%len(s.nodes)].id))
			}
			parts = append(parts, fmt.Sprintf(`{"topic":%q,"partition":%d,"replicas":[%s]}`, t.name, p, strings.Join(ids, ",")))
		}
	}
	q := request{
		node: s.nodes[0], method: "POST", path: "/v1/cluster/reassignments", header: jsonBody(), wait: 20 * time.Second,
		body: `{"reassignments":[` + strings.Join(parts, ",") + `]}`,
	}
	r := s.operator.do(ctx, q)
	if r.status != s.spreading {
		s.note("every partition goes to all nodes: %d %v %.300s", r.status, r.err, r.body)
	}
	s.spreading = r.status
	return r.status
}

package simtest

import (
	"context"
	"fmt"
	"strings"
	"time"
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
	s.mu.Lock()
	topics := append([]*topic(nil), s.topics...)
	s.mu.Unlock()
	for _, t := range topics {
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

// assignment gives a partition all nodes but perhaps one, in some order. A topic that wants two replicas for every
// record has two at least.
func (s *sim) assignment(t *topic, partition int) string {
	ids := make([]string, len(s.nodes))
	for i, n := range s.rng.Perm(len(s.nodes)) {
		ids[i] = fmt.Sprint(s.nodes[n].id)
	}
	if s.rng.IntN(2) == 0 && len(ids) > 2 {
		ids = ids[:2]
	}
	return fmt.Sprintf(`{"topic":%q,"partition":%d,"replicas":[%s]}`, t.name, partition, strings.Join(ids, ","))
}

// everywhere gives every partition all nodes again, and tells the answer's status.
func (s *sim) everywhere(ctx context.Context) (status int) {
	var parts []string
	image := s.image()
	for _, t := range s.topics {
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
	s.note("every partition goes to all nodes: %d %v %.300s", r.status, r.err, r.body)
	return r.status
}

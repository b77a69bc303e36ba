package simtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/record"
	"millrace/server/metadata"
	"millrace/server/servertest/history"
)

// The topics that transactions write to.
const (
	listTopic = "list"
	copyTopic = "copies"
)

func bankTopics() []string { return []string{"bank0", "bank1"} }

// exactPlan is what a run with groups and transactions is made of beside the rest.
type exactPlan struct {
	movers, appenders, copiers, readers, workers, keepers, posters int
	tellers                                                        int
	protocols                                                      []string // of the groups of readers
	copying                                                        string   // the protocol of the group of copiers
	partitions                                                     int      // of the list
	timeout                                                        time.Duration
	session                                                        time.Duration
	chaos                                                          float64
	minISR                                                         int
}

// makeExact turns a plan into one with groups and transactions.
func (p *plan) makeExact(seed uint64) {
	r := rand.New(rand.NewPCG(seed, 4))
	e := &exactPlan{
		movers: r.IntN(3), appenders: 1 + r.IntN(3), copiers: r.IntN(4), readers: r.IntN(4), workers: r.IntN(3),
		keepers: r.IntN(3), posters: r.IntN(3),
		copying: pick(r, history.Classic, history.Consumer), partitions: 1 + r.IntN(3),
		timeout: pick(r, 2*time.Second, 5*time.Second), session: pick(r, 1500*time.Millisecond, 3*time.Second),
		chaos: pick(r, 0, 0.03, 0.1), minISR: pick(r, 1, 2, 2),
	}
	e.protocols = []string{history.Classic, history.Consumer}
	more := rand.New(rand.NewPCG(seed, 5)) // a stream of its own, so that what others draw stays what it is
	e.tellers = pick(more, 0, 1, 2)
	p.exact = e
	p.producer, p.reader, p.live = 1, 1, 0
	p.shapes = []shape{{partitions: 1, minISR: e.minISR}}
	p.damage, p.racks = false, r.IntN(3) == 0
	p.kinds = slices.DeleteFunc(drawKinds(r), func(k faultKind) bool { return k.damages })
	p.kinds = append(p.kinds, kind("step", 10, (*sim).killAtStep))
	p.faults = pick(r, 0, 3, 5, 8)
	p.damageExact(more)
	p.think = min(p.think, 200*time.Millisecond)
	p.patience = min(p.patience, 8*time.Second)
	for name, value := range map[string]string{
		"log.cleaner.enable":                                          pick(r, "true", "true", "false"),
		"log.cleaner.backoff.ms":                                      pick(r, "200", "1000"),
		"log.cleaner.min.cleanable.ratio":                             pick(r, "0", "0.5"),
		"log.cleaner.delete.retention.ms":                             "86400000",
		"log.cleaner.dedupe.buffer.size":                              "1048576",
		"offsets.topic.num.partitions":                                fmt.Sprint(internalPartitions),
		"offsets.topic.segment.bytes":                                 pick(r, "4096", "1048576"),
		"transaction.state.log.num.partitions":                        fmt.Sprint(internalPartitions),
		"transaction.state.log.segment.bytes":                         pick(r, "4096", "1048576"),
		"transaction.state.log.min.isr":                               fmt.Sprint(e.minISR),
		"group.min.session.timeout.ms":                                "1000",
		"group.initial.rebalance.delay.ms":                            pick(r, "0", "300"),
		"group.consumer.assignment.interval.ms":                       pick(r, "0", "1000"),
		"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
		"min.insync.replicas":                                         fmt.Sprint(e.minISR),
	} {
		p.broker[name] = value
	}
	// A replica that is behind for longer than tombstones last never hears of them.
	if p.faults == 0 {
		p.broker["log.cleaner.delete.retention.ms"] = "0"
	}
}

// damageExact has bits rot on a node's disk, or the node go on with an older or an empty one, in some of the plans in
// which no record rests on one disk. After a disk that has lied anything goes, so none does.
func (p *plan) damageExact(r *rand.Rand) {
	if r.IntN(2) > 0 || p.exact.minISR < 2 {
		return
	}
	for _, k := range damageKinds() {
		if k.damages && k.name != "lie" && r.IntN(2) == 0 {
			p.kinds = append(p.kinds, k)
			p.damage = true
		}
	}
	if p.damage {
		p.faults = max(p.faults, 5)
	}
}

// workGroups are the groups of workers.
func (e *exactPlan) workGroups() []string { return []string{"auto", "manual"} }

// longest is how long a transaction may be open: those that are made for one request, for half a minute.
func (e *exactPlan) longest() time.Duration {
	if e.posters > 0 {
		return 30 * time.Second
	}
	return e.timeout
}

// String tells the plan on one line.
func (e *exactPlan) String() string {
	return fmt.Sprintf("%d movers, %d appenders, %d copiers (%s), %d readers, %d workers, %d keepers, %d posters, "+
		"%d tellers, %d partitions, timeout %v, session %v, chaos %v, min ISR %d", e.movers, e.appenders, e.copiers,
		e.copying, e.readers, e.workers, e.keepers, e.posters, e.tellers, e.partitions, e.timeout, e.session, e.chaos,
		e.minISR)
}

// exactTopics are the topics that transactions write to.
func (p *plan) exactTopics() (topics []*topic) {
	if p.exact == nil {
		return nil
	}
	for _, name := range append(bankTopics(), listTopic, copyTopic) {
		t := &topic{name: name, partitions: 1, minISR: p.exact.minISR, exact: true}
		if name == listTopic {
			t.partitions = p.exact.partitions
		}
		topics = append(topics, t)
	}
	return append(topics, &topic{name: keysTopic, partitions: 1, minISR: p.exact.minISR, exact: true, keyed: true})
}

// exactPlace draws a partition of a topic.
func (s *sim) exactPlace(r *rand.Rand, name string) history.Partition {
	return history.Partition{Topic: name, Number: int32(r.IntN(s.partitionsOf(name)))}
}

// partitionsOf is how many partitions a topic has.
func (s *sim) partitionsOf(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.exact {
		if t.name == name {
			return t.partitions
		}
	}
	panic("no topic " + name)
}

// idOf is the id of a topic.
func (s *sim) idOf(name string) [16]byte {
	if image := s.image(); image != nil {
		if t := image.Topic(name); t != nil {
			return t.ID
		}
	}
	return [16]byte{}
}

// startExact starts the clients of groups and transactions.
func (s *sim) startExact(begin func(kind string, count int, run func(c *client))) {
	e := s.plan.exact
	begin("b", e.movers, func(c *client) { mover{newTransactor(c, c.name)}.run() })
	begin("l", e.appenders, func(c *client) { appender{transactor: newTransactor(c, c.name)}.run() })
	begin("c", e.copiers, func(c *client) {
		(&copies{member: newMember(c, copyTopic, e.copying), t: newTransactor(c, c.name)}).run()
	})
	for _, protocol := range e.protocols {
		begin(protocol[:2], e.readers, func(c *client) { (&reads{member: newMember(c, protocol, protocol)}).run() })
	}
	for i, group := range e.workGroups() {
		begin("h"+group[:1], e.workers, func(c *client) { (&worker{client: c, group: group, auto: i == 0}).run() })
	}
	begin("i", e.posters, func(c *client) { (&poster{client: c}).run() })
	begin("k", e.keepers, func(c *client) { (&keeper{client: c}).run() })
	begin("o", min(e.workers, 1), func(c *client) { (&overseer{c}).run() })
	begin("t", e.tellers, func(c *client) { newTeller(c).run() })
}

// settleExact waits for what clients have left open to end by itself (T5), has all be copied that is not, and reads
// everything.
func (s *sim) settleExact() {
	if s.plan.exact == nil {
		return
	}
	s.await(s.h.Now()+s.plan.exact.longest()+10*time.Second, func(*metadata.Image) string { return s.whyOpen() })
	if s.broken() || !s.copyRest() {
		return
	}
	s.await(s.h.Now()+s.plan.exact.longest()+10*time.Second, func(*metadata.Image) string { return s.whyOpen() })
	s.plan.exact.chaos = 0
	s.lastOffsets()
	for _, m := range s.nodes {
		for _, t := range s.exact {
			if t.keyed {
				continue
			}
			for number := range t.partitions {
				s.exactRead(m, history.Partition{Topic: t.name, Number: int32(number)})
			}
		}
	}
}

// whyOpen says which partition has a transaction that is not decided.
func (s *sim) whyOpen() string {
	for _, t := range s.exact {
		for number := range t.partitions {
			p := history.Partition{Topic: t.name, Number: int32(number)}
			end, err := s.endOf(p, 0)
			stable, err2 := s.endOf(p, 1)
			if err != nil || err2 != nil {
				return fmt.Sprintf("T5: the ends of %s are not known: %v %v", p, err, err2)
			}
			if end != stable {
				return fmt.Sprintf("T5: %s ends at %d, and is decided up to %d", p, end, stable)
			}
		}
	}
	return ""
}

// endOf is where a partition ends at an isolation level.
func (s *sim) endOf(p history.Partition, isolation int8) (int64, error) {
	r := kmsg.NewPtrListOffsetsRequest()
	r.ReplicaID, r.IsolationLevel = -1, isolation
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = p.Topic
	tp := kmsg.NewListOffsetsRequestTopicPartition()
	tp.Partition, tp.Timestamp = p.Number, -1
	t.Partitions = append(t.Partitions, tp)
	r.Topics = append(r.Topics, t)
	resp, err := calmly[*kmsg.ListOffsetsResponse](s.operator, r)
	if err != nil {
		return 0, err
	}
	got := &resp.Topics[0].Partitions[0]
	return got.Offset, kerr.ErrorForCode(got.ErrorCode)
}

// calmly asks without anything happening on the way.
func calmly[R kmsg.Response](c *client, r kmsg.Request) (resp R, err error) {
	r.SetVersion(versionOf(kmsg.Key(r.Key())))
	ctx, cancel := context.WithTimeout(c.ctx, leaderWithin)
	defer cancel()
	got, err := c.exchange(ctx, r)
	if err != nil {
		return resp, err
	}
	return got.(R), nil
}

// copyRest copies what the copiers have left, and says whether that came to an end.
func (s *sim) copyRest() bool {
	if s.plan.exact.copiers == 0 {
		return true
	}
	s.plan.exact.chaos = 0
	c := &copies{member: newMember(s.operator, copyTopic, s.plan.exact.copying)}
	c.t = newTransactor(s.operator, "rest")
	for until := s.h.Now() + fullWithin; ; {
		left := ""
		for number := range s.partitionsOf(listTopic) {
			p := history.Partition{Topic: listTopic, Number: int32(number)}
			end, err := s.endOf(p, 1)
			if at, ok := c.committed(p); !ok || err != nil || at < end {
				left = fmt.Sprintf("%s is copied up to %d of %d, %v %v", p, at, end, err, c.why)
			}
		}
		if left == "" {
			c.depart()
			return true
		}
		if s.h.Now() > until {
			s.violate("L1", "nobody gets to copy: %s; %s has %v in %d: %v", left, c.id, c.assigned, c.epoch, c.why)
			return false
		}
		c.turn()
		sleep(context.Background(), 50*time.Millisecond)
	}
}

// groups are all groups.
func (e *exactPlan) groups() []string {
	return append(append(slices.Clone(e.protocols), copyTopic), e.workGroups()...)
}

// lastOffsets asks what the groups have committed in the end.
func (s *sim) lastOffsets() {
	s.committedAtEnd = map[string]map[history.Partition]int64{}
	for _, group := range s.plan.exact.groups() {
		m := newMember(s.operator, group, history.Consumer)
		s.committedAtEnd[group] = map[history.Partition]int64{}
		for number := range s.partitionsOf(listTopic) {
			p := history.Partition{Topic: listTopic, Number: int32(number)}
			at, ok := m.committed(p)
			for until := s.h.Now() + leaderWithin; !ok; at, ok = m.committed(p) {
				if s.h.Now() > until {
					s.violate("L1", "nobody says what %s has committed of %s: %v", group, p, m.why)
					return
				}
				sleep(context.Background(), 50*time.Millisecond)
			}
			s.committedAtEnd[group][p] = at
		}
	}
}

// exactRead has a node give a partition from its start to its end.
func (s *sim) exactRead(m *machine, p history.Partition) {
	end, err := s.endOf(p, 1)
	if err != nil {
		s.violate("L1", "the end of %s is not known: %v", p, err)
		return
	}
	for next, until := int64(0), s.h.Now()+leaderWithin; next < end; {
		o := &history.Op{
			Kind: history.Poll, Client: s.operator.name, Session: finalSession(m), Node: m.name, API: "native",
			Invoke: s.h.Now(), Partition: p, From: next, Final: true,
		}
		r := s.operator.do(context.Background(), request{
			node: m, method: "GET", header: map[string]string{"Accept": "application/x-ndjson"},
			path: fmt.Sprintf("/v1/topics/%s/partitions/%d/records?offset=%d&max_records=500", p.Topic, p.Number, next),
		})
		o.Return, o.Outcome = s.h.Now(), history.OK
		if r.status == http.StatusOK {
			g := page{c: s.operator, lines: true, next: next}
			g.take(o, &r)
			s.h.Add(o)
			if next = g.next; len(o.Values) == 0 {
				return // what follows is aborted, or markers
			}
		} else if s.h.Now() > until {
			s.violate("L2", "%s does not give %s: %d %v %.200s", m.name, p, r.status, r.err, r.body)
			return
		} else {
			sleep(context.Background(), 50*time.Millisecond)
		}
	}
}

// facts are what the disks hold in the end, where all transactions are decided.
func (s *sim) facts(t *topic, number int, l *diskLog) {
	var log []history.Stored
	pending := map[int64][]int{}
	for _, b := range l.batches {
		if m, ok := b.EndTxnMarker(); ok {
			for _, i := range pending[b.ProducerID()] {
				log[i].Committed = m.Type == record.ControlCommit
			}
			delete(pending, b.ProducerID())
			continue
		}
		r := record.NewReader(b, 1<<20)
		var rec record.Record
		for r.Next(&rec) {
			if b.IsTransactional() {
				pending[b.ProducerID()] = append(pending[b.ProducerID()], len(log))
			}
			log = append(log, history.Stored{Offset: rec.Offset, Value: unwire(&rec), Committed: !b.IsTransactional()})
		}
		if err := r.Err(); err != nil {
			s.violate("D9", "%s-%d at %d: %v", t.name, number, b.BaseOffset(), err)
		}
		r.Close()
	}
	s.logsAtEnd[history.Partition{Topic: t.name, Number: int32(number)}] = log
	for id, records := range pending {
		s.violate("T5", "%s-%d: the transaction of producer %d is open: %d records", t.name, number, id, len(records))
	}
}

// bank holds the accounts to their sum, which transfers do not change.
func (s *sim) bank() {
	sum := 0
	for _, name := range bankTopics() {
		for p, log := range s.logsAtEnd {
			if p.Topic != name {
				continue
			}
			for _, r := range log {
				_, text, _ := strings.Cut(r.Value, ": ")
				var amount int
				if _, err := fmt.Sscan(text, &amount); err == nil && r.Committed {
					sum += amount
				}
			}
		}
	}
	if sum != 0 {
		s.violate("T1", "the bank has %d too much", sum)
	}
}

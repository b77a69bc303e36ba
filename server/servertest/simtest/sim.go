// Package simtest runs whole clusters in fake time and throws faults at them: nodes with their real HTTP, Raft,
// replication and storage over a network and disks in memory, and clients that produce, read, follow live streams and
// change topics meanwhile. Everything the clients were told goes into a history, which is held to the invariants of
// package history; what the nodes hold is compared byte by byte at the end, and sampled on the way.
//
// All of a run is drawn from its seed: sizes, settings, workloads, faults and their times. The scheduler is not, so
// that two runs of a seed differ in how goroutines take turns; a seed that found something usually finds it again in a
// few tries.
package simtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"millrace/schemaregistry"
	"millrace/server/metadata"
	"millrace/server/partition"
	"millrace/server/servertest/history"
	"millrace/server/servertest/memnet"
)

// Options are what a run is given beside its seed.
type Options struct {
	Seed uint64
	// Nodes is how many nodes the cluster has; 0 means 3.
	Nodes int
	// Exact has groups and transactions at work too.
	Exact bool
	// Registry has the schema registry at work, and nothing else.
	Registry bool
	// Flaws are planted in every node.
	Flaws partition.Flaws
	// RegistryFlaws are planted in every node's schema registry.
	RegistryFlaws schemaregistry.Flaws
	// Scratch is a folder for what nodes insist to keep on the real disk.
	Scratch string
}

// Result is what came of a run.
type Result struct {
	Violations []*history.Violation
	History    *history.History
	// Trace is the last packets of the network, Logs the last lines of each node.
	Trace []string
	Logs  []string
	// Disks is the batches that each node holds, when something was wrong.
	Disks []string
	// Faults is what the nemesis did, one a line, and Begun how often it began a fault of each kind.
	Faults []string
	Begun  map[string]int
	Plan   string
	// Acked counts acknowledged records, Seen those that somebody read, Final those that are there at the end.
	Acked, Seen, Final int
	// Transactions counts those that were committed.
	Transactions int
	// Length is the length of the run in fake time.
	Length time.Duration
}

// Run runs one schedule. It starts a bubble, so t must not be in one.
func Run(t *testing.T, o Options) *Result {
	t.Helper()
	r := &Result{}
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, o)
		s.run()
		s.result(r)
	})
	return r
}

// sim is one run.
type sim struct {
	t     testing.TB
	opts  Options
	plan  *plan
	rng   *rand.Rand // of the nemesis; only the driver draws from it
	net   *memnet.Net
	h     *history.History
	nodes []*machine
	ctx   context.Context // of the clients
	stop  context.CancelFunc

	clients sync.WaitGroup
	remains sync.WaitGroup  // of lives that were ended
	ends    sync.WaitGroup  // of faults
	healing context.Context // ends when faults shall
	heal    context.CancelFunc

	mu        sync.Mutex
	topics    []*topic                       // guarded by mu
	exempted  []string                       // guarded by mu; topics whose life is not certain
	wrong     []*history.Violation           // guarded by mu; what was seen on the way
	deletions map[history.Partition]deletion // guarded by mu; those that were answered
	faults    []string                       // guarded by mu
	begun     map[string]int                 // of the driver
	probe     *prober
	clusterID string
	topicIDs  map[string]metadata.UUID    // at the end
	reached   map[history.Partition]int64 // where final reads ended
	spare     *machine                    // joins in the course of some runs
	failing   *machine                    // whose disk is damaged; of the nemesis
	admin     *admin                      // to be looked at when the clients have ended
	operator  *client                     // of the driver, after the clients and beside them
	spreading int                         // what was last answered when partitions were given all nodes; of the driver

	exact  []*topic // that transactions write to
	trap   *trap    // guarded by mu; nil when none is set
	tokens int      // guarded by mu; of commits
	// What groups have committed and what the logs hold at the end.
	committedAtEnd map[string]map[history.Partition]int64
	logsAtEnd      map[history.Partition][]history.Stored
}

// topic is a topic that clients use.
type topic struct {
	name       string // as in the history
	partitions int    // guarded by the simulation's mu; grows
	minISR     int
	unclean    bool
	trimmed    bool // its oldest records go
	exact      bool // transactions write to it, or it is compacted
	keyed      bool // it is compacted
}

func newSim(t testing.TB, o Options) *sim {
	p := newPlan(o.Seed)
	if o.Nodes > 0 {
		p.resize(o.Nodes)
	}
	if o.Exact {
		p.makeExact(o.Seed)
	}
	if o.Registry {
		p.makeRegistry(o.Seed)
	}
	s := &sim{
		t: t, opts: o, plan: p, rng: rand.New(rand.NewPCG(o.Seed, 2)),
		net: memnet.New(o.Seed, p.link), h: history.New(), topics: p.topics(),
		begun: map[string]int{}, reached: map[history.Partition]int64{},
		deletions: map[history.Partition]deletion{}, exact: append(p.exactTopics(), p.schemasTopics()...),
		logsAtEnd: map[history.Partition][]history.Stored{},
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.healing, s.heal = context.WithCancel(context.Background())
	s.probe = newProber(s)
	for i := range p.nodes {
		s.nodes = append(s.nodes, newMachine(s, int32(i+1)))
	}
	s.spare = newMachine(s, int32(p.nodes+1))
	s.operator = s.newClient("operator", 999)
	s.operator.ctx = context.Background()
	return s
}

// note takes something that the nemesis or the driver did into history and log.
func (s *sim) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	now := s.h.Now()
	s.h.Add(&history.Op{Kind: history.Fault, Client: "nemesis", Outcome: history.OK, Invoke: now, Return: now, Note: text})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, fmt.Sprintf("%11.6f %s", now.Seconds(), text))
}

// violate notes a broken invariant that was seen on the way.
func (s *sim) violate(invariant, format string, args ...any) {
	text := fmt.Sprintf("at %.6f: ", s.h.Now().Seconds()) + fmt.Sprintf(format, args...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.wrong) < 50 {
		s.wrong = append(s.wrong, &history.Violation{Invariant: invariant, Text: text})
	}
}

// allTopics are those that clients use.
func (s *sim) allTopics() []*topic {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(slices.Clone(s.topics), s.exact...)
}

// machines are all that are or were in the cluster.
func (s *sim) machines() []*machine {
	if s.spare.lives() == 0 {
		return s.nodes
	}
	return append(slices.Clone(s.nodes), s.spare)
}

// machine is the one of a name, nil for a client.
func (s *sim) machine(name string) *machine {
	for _, m := range append(slices.Clone(s.nodes), s.spare) {
		if m.name == name {
			return m
		}
	}
	return nil
}

// exempt takes a topic out of most rules.
func (s *sim) exempt(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exempted = append(s.exempted, topic)
}

// exemptAll does so with all topics that there are.
func (s *sim) exemptAll(format string, args ...any) {
	s.mu.Lock()
	known := slices.Clone(s.topics)
	s.mu.Unlock()
	for _, t := range known {
		if !s.isExempt(t.name) {
			s.exempt(t.name)
			s.note("%s: anything goes in %s", fmt.Sprintf(format, args...), t.name)
		}
	}
}

func (s *sim) isExempt(topic string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.exempted, topic)
}

// broken says whether something was seen on the way already.
func (s *sim) broken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.wrong) > 0
}

// sleep lets time pass, and says whether ctx goes on.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// run is the schedule: start, work under faults, heal, look at everything, stop.
func (s *sim) run() {
	defer s.end()
	if !s.start() {
		return
	}
	s.probe.start()
	s.startClients()
	s.nemesis()
	s.recover()
	s.stop()
	s.clients.Wait()
	s.probe.stop()
	if !s.broken() {
		s.roundTrips()
		s.lastTrims()
		s.settleExact()
		s.settleRegistry()
		s.converge()
	}
	if s.broken() {
		return
	}
	s.finalReads()
	s.resurrected()
	s.compareNodes()
	s.stopNodes()
	s.compareDisks()
	s.bank()
}

// end leaves nothing behind, however the run went.
func (s *sim) end() {
	s.stop()
	s.heal()
	s.clients.Wait()
	s.ends.Wait()
	s.probe.stop()
	s.net.Heal()
	for _, m := range s.machines() {
		m.faults.heal()
		m.kill(modeKill, false)
	}
	s.operator.close()
	s.net.Close()
	s.ends.Wait()
	s.awaitRemains()
}

// awaitRemains waits for the ends of all lives. One that does not end would have fake time go on for ever.
func (s *sim) awaitRemains() {
	done := make(chan struct{})
	s.ends.Go(func() {
		s.remains.Wait()
		close(done)
	})
	select {
	case <-done:
	case <-time.After(longest):
		panic(fmt.Sprintf("seed %d: the end of a node does not come; see where its goroutines are", s.opts.Seed))
	}
}

// longest is how long the end of a node may take whatever happens.
const longest = 3 * time.Minute

func (s *sim) result(r *Result) {
	ops := s.h.Ops()
	rules := history.Rules{Unclean: map[string]bool{}, Trimmed: map[string]bool{}}
	for _, t := range s.topics {
		rules.Unclean[t.name], rules.Trimmed[t.name] = t.unclean, t.trimmed
	}
	for _, name := range s.exempted {
		rules.Unclean[name] = true
	}
	r.Violations = append(history.Check(ops, rules), s.wrong...)
	if s.plan.exact != nil {
		facts := history.Facts{Offsets: s.committedAtEnd, Logs: s.logsAtEnd, Copies: map[string]string{}}
		if s.plan.exact.copiers > 0 {
			facts.Copies[listTopic] = copyTopic
		}
		if len(s.logsAtEnd) > 0 { // else the run has not come to its end
			r.Violations = append(history.CheckExact(ops, facts), r.Violations...)
		}
	}
	r.Violations = append(history.CheckSchemas(ops), r.Violations...)
	r.History, r.Trace, r.Faults, r.Plan = s.h, s.net.Trace(), s.faults, s.plan.String()
	r.Length, r.Begun = s.h.Now(), s.begun
	for _, m := range s.machines() {
		r.Logs = append(r.Logs, m.logs.lines()...)
	}
	if len(r.Violations) > 0 {
		r.Disks = s.diskLines()
	}
	seen := map[string]bool{}
	for _, o := range ops {
		switch {
		case o.Kind == history.Txn && o.Outcome == history.OK && o.Txn.Commit:
			r.Transactions++
			r.Acked += len(o.Txn.Sends)
		case o.Kind == history.Register && o.Outcome == history.OK:
			r.Acked++
		case o.Kind == history.Send && o.Outcome == history.OK:
			r.Acked += len(o.Values)
		case o.Kind == history.Read && o.Session == finalSession(s.nodes[0]):
			r.Final += len(o.Values)
		case o.Kind == history.Read:
			for _, v := range o.Values {
				seen[v] = true
			}
		}
	}
	r.Seen = len(seen)
}

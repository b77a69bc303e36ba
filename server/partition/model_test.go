package partition_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"millrace/record"
	"millrace/server/metadata"
	"millrace/server/partition"
	"millrace/storage"
	"millrace/storage/storagetest"
)

// Three replicas under a controller, with metadata that arrives late, answers that are lost, late or repeated,
// leaders that do not know that they are none, crashes and losses of power. The checks are named after the
// invariants of a replicated log: what was acknowledged stays (D1), what was said not to be written never is (D2),
// one offset has one value (D5), logs that agree at a place agree before it (D8), the high watermark is on the disks
// of the in-sync replicas (H1), never falls in an epoch nor for clients (H2), and lies within the log (H4).
func TestReplicasAgainstModel(t *testing.T) {
	settings := topicSettings(t)
	setFlag(t, "rapid.steps", "100")
	rapid.Check(t, func(rt *rapid.T) {
		runModel(t, rt, settings, partition.Flaws{})
	})
}

// The model finds each fault that can be planted: else it would find no other.
func TestModelFindsFlaws(t *testing.T) {
	settings := topicSettings(t)
	for flag, value := range map[string]string{
		"rapid.steps": "100", "rapid.checks": "2000", "rapid.nofailfile": "true", "rapid.shrinktime": "0s",
	} {
		setFlag(t, flag, value)
	}
	for name, flaws := range map[string]partition.Flaws{
		"acknowledge early": {AckEarly: true}, "skip syncs": {SkipSync: true}, "skip truncation": {SkipTruncation: true},
		"stale leader": {StaleLeader: true}, "advance the high watermark": {AdvanceHW: true},
		"last stable offset": {LSOOffByOne: true}, "aborted transactions": {SkipAbortedIndex: true},
	} {
		t.Run(name, func(t *testing.T) {
			found := &verdict{TB: t}
			func() {
				defer func() { recover() }() // verdict's FailNow
				rapid.Check(found, func(rt *rapid.T) { runModel(t, rt, settings, flaws) })
			}()
			require.True(t, found.failed)
		})
	}
}

// setFlag sets a flag of the test binary until the test ends.
func setFlag(t *testing.T, name, value string) {
	f := flag.Lookup(name)
	old := f.Value.String()
	require.NoError(t, f.Value.Set(value))
	t.Cleanup(func() { require.NoError(t, f.Value.Set(old)) })
}

// verdict is a test that may fail without the one around it.
type verdict struct {
	rapid.TB
	failed bool
}

func (v *verdict) Logf(string, ...any)   {}
func (v *verdict) Log(...any)            {}
func (v *verdict) Errorf(string, ...any) { v.failed = true }
func (v *verdict) Error(...any)          { v.failed = true }
func (v *verdict) Fail()                 { v.failed = true }
func (v *verdict) Failed() bool          { return v.failed }
func (v *verdict) FailNow()              { v.failed = true; panic("failed") }
func (v *verdict) Fatal(...any)          { v.FailNow() }
func (v *verdict) Fatalf(string, ...any) { v.FailNow() }

// runModel runs one drawn history in a bubble of its own.
func runModel(t *testing.T, rt *rapid.T, settings metadata.TopicSettings, flaws partition.Flaws) {
	var thrown any
	synctest.Test(t, func(*testing.T) {
		defer func() { thrown = recover() }() // or the bubble would take it for a crash of the test
		m := newModel(rt, settings, flaws)
		defer m.close()
		m.run()
	})
	if thrown != nil && rt.Failed() {
		rt.FailNow()
	}
	if thrown != nil {
		panic(thrown)
	}
}

// model is a cluster under test.
type model struct {
	*cluster
	rt      *rapid.T
	history []moment // of the metadata
	seen    []int    // by node: how much of the history it was told
	held    [][]*answer
	late    []*pending // appended, and not yet waited for
	waiting []*pending
	acked   []*pending
	refused []*pending
	modes   []storagetest.Mode

	known   map[int64]record.Batch // below a high watermark, by base offset
	marks   []mark                 // by node: the last high watermark
	latest  int64                  // the greatest latest offset that a client was told
	durable []int64                // by node: what was synced when it was last up
	guards  []lateGuard
}

// moment is a state of the metadata.
type moment struct {
	role    partition.Role
	brokers []brokerState
}

type brokerState struct {
	epoch  int64
	active bool
}

// mark is a high watermark in one epoch of one run of a node.
type mark struct {
	epoch int32
	hw    int64
}

// pending is a produce that waits to be committed.
type pending struct {
	leader *partition.Leader
	at     partition.Appended
	batch  record.Batch
	epoch  int32
	answer chan error
}

func newModel(rt *rapid.T, settings metadata.TopicSettings, flaws partition.Flaws) *model {
	settings.MinInsyncReplicas = rapid.IntRange(1, 2).Draw(rt, "min.insync.replicas")
	settings.SegmentBytes = 600
	m := &model{cluster: newCluster(rt, settings, 3), rt: rt, known: map[int64]record.Batch{}, latest: -1}
	m.flaws = flaws
	m.modes = storagetest.Modes()
	if rapid.Bool().Draw(rt, "never sync") { // then only a process may die, not the machine
		m.policy, m.modes = storage.SyncNever, []storagetest.Mode{storagetest.KeepAll}
	}
	m.held, m.marks = make([][]*answer, 3), make([]mark, 3)
	m.seen, m.durable = make([]int, 3), make([]int64, 3)
	for _, n := range m.nodes {
		n.states = m.stateFor(n)
		n.start()
	}
	m.elect(1)
	m.publish()
	return m
}

// stateFor is what a node knows of brokers: what the metadata said at the moment it was told last.
func (m *model) stateFor(n *replicaNode) func(int32) (int64, bool) {
	return func(id int32) (int64, bool) {
		seen := m.seen[n.id-1]
		if seen == 0 {
			return -1, false
		}
		b := m.history[seen-1].brokers[id-1]
		return b.epoch, b.active
	}
}

// publish makes the present metadata a moment of the history.
func (m *model) publish() {
	at := moment{role: m.meta}
	for _, n := range m.nodes {
		at.brokers = append(at.brokers, brokerState{n.epoch, n.active})
	}
	m.history = append(m.history, at)
}

func (m *model) run() {
	m.rt.Repeat(map[string]func(*rapid.T){
		"join":   m.joinAny,
		"append": m.append, "append a": m.append, "append b": m.append, "append c": m.append,
		"fetch": m.fetch, "fetch a": m.fetch, "fetch b": m.fetch, "fetch c": m.fetch,
		"tell": m.tell, "tell a": m.tell,
		"ask": m.ask, "ask a": m.ask,
		"take": m.take, "take a": m.take,
		"tell all":               m.tellAll,
		"propose":                m.propose,
		"elect":                  m.electAny,
		"crash":                  m.crashAny,
		"fence":                  m.fenceAny,
		"start":                  m.startAny,
		"wait":                   m.wait,
		"producers":              m.producers,
		"append transactional a": m.appendTxn, "append transactional b": m.appendTxn, "append late": m.appendLate,
		"mark": m.mark, "mark a": m.mark, "read committed": m.readAny,
		"settle": m.settle,
		"":       m.check,
	})
	m.heal()
	m.check(m.rt)
}

// drawNode draws one of the nodes that are up, or down.
func (m *model) drawNode(t *rapid.T, up bool) *replicaNode {
	return m.drawFit(t, func(n *replicaNode) bool { return (n.dir != nil) == up })
}

// drawLeader draws one of the nodes that lead, or believe so.
func (m *model) drawLeader(t *rapid.T) *replicaNode {
	return m.drawFit(t, func(n *replicaNode) bool { return n.dir != nil && n.replica.Leader() != nil })
}

// drawFollower draws one of the nodes that follow.
func (m *model) drawFollower(t *rapid.T) *replicaNode {
	return m.drawFit(t, func(n *replicaNode) bool { return n.dir != nil && n.replica.Follower() != nil })
}

func (m *model) drawFit(t *rapid.T, fits func(*replicaNode) bool) *replicaNode {
	var fit []*replicaNode
	for _, n := range m.nodes {
		if fits(n) {
			fit = append(fit, n)
		}
	}
	if len(fit) == 0 {
		t.Skip("no such node")
	}
	return rapid.SampledFrom(fit).Draw(t, "node")
}

func (m *model) append(t *rapid.T) {
	n := m.drawLeader(t)
	l := n.replica.Leader()
	id := rapid.Int64Range(-1, 1).Draw(t, "producer")
	seq := int32(0)
	if id >= 0 {
		states, err := l.Producers(id)
		require.NoError(t, err)
		if len(states) > 0 {
			seq = states[0].LastSequence + 1
		}
	}
	count := rapid.IntRange(1, 3).Draw(t, "records")
	values := make([]string, count)
	for i := range values {
		values[i] = fmt.Sprintf("%d of node %d in epoch %d", len(m.history), n.id, l.LeaderEpoch())
	}
	b := batch(id, 0, seq, time.Now(), values...)
	a, err := n.append(b, rapid.Bool().Draw(t, "acks=all"))
	if err != nil {
		require.True(t, partition.Explain(err).NotWritten, "%v", err)
		return
	}
	if a.Duplicate {
		return
	}
	p := &pending{leader: l, at: a, batch: slices.Clone(b), epoch: b.LeaderEpoch(), answer: make(chan error, 1)}
	if rapid.Bool().Draw(t, "waits late") {
		m.late = append(m.late, p)
	} else {
		m.join(p)
	}
}

// join has the producer of a batch wait.
func (m *model) join(p *pending) {
	m.waiting = append(m.waiting, p)
	go func() {
		w := partition.NewWaiter()
		w.Start(24 * time.Hour)
		defer w.Stop()
		p.answer <- p.leader.AwaitCommitted(context.Background(), w, &p.at)
	}()
}

func (m *model) joinAny(t *rapid.T) {
	if len(m.late) == 0 {
		t.Skip("all wait")
	}
	i := rapid.IntRange(0, len(m.late)-1).Draw(t, "batch")
	m.join(m.late[i])
	m.late = slices.Delete(m.late, i, i+1)
}

// settleAcks takes up what producers were told has become of their batches.
func (m *model) settleAcks() {
	synctest.Wait()
	m.waiting = slices.DeleteFunc(m.waiting, func(p *pending) bool {
		select {
		case err := <-p.answer:
			switch {
			case err == nil:
				m.acked = append(m.acked, p)
			case partition.Explain(err).NotWritten:
				m.refused = append(m.refused, p)
			}
			return true
		default:
			return false
		}
	})
}

func (m *model) ask(t *rapid.T) {
	n := m.drawFollower(t)
	a, err := n.ask()
	require.NoError(t, err)
	if a != nil {
		held := append(m.held[n.id-1], a)
		m.held[n.id-1] = held[max(len(held)-3, 0):]
	}
}

func (m *model) take(t *rapid.T) {
	n := m.drawFollower(t)
	held := m.held[n.id-1]
	if len(held) == 0 {
		t.Skip("nothing on its way")
	}
	_, err := n.take(rapid.SampledFrom(held).Draw(t, "answer"))
	m.ended(t, err)
}

func (m *model) fetch(t *rapid.T) {
	_, err := m.drawFollower(t).fetch()
	m.ended(t, err)
}

// ended allows the one error that a fetch may meet: that its role is over.
func (m *model) ended(t *rapid.T, err error) {
	if err != nil {
		require.ErrorIs(t, err, partition.ErrNotLeader)
	}
}

func (m *model) tellOne(n *replicaNode) bool {
	i := n.id - 1
	if n.dir == nil || m.seen[i] == len(m.history) {
		return false
	}
	m.seen[i]++
	n.told(m.history[m.seen[i]-1].role)
	return true
}

func (m *model) tell(t *rapid.T) { m.tellOne(m.drawNode(t, true)) }

func (m *model) tellAll(*rapid.T) {
	for _, n := range m.nodes {
		for m.tellOne(n) {
		}
	}
}

func (m *model) propose(t *rapid.T) {
	n := m.drawLeader(t)
	l := n.replica.Leader()
	p, ok := l.Propose()
	if !ok {
		return
	}
	arrives := rapid.Bool().Draw(t, "arrives")
	if !arrives {
		l.Proposed(p, partition.Unanswered, nil)
		return
	}
	before := m.meta.PartitionEpoch
	code, state := m.alter(n.id, &p)
	if m.meta.PartitionEpoch != before {
		m.publish()
	}
	if rapid.Bool().Draw(t, "answered") {
		l.Proposed(p, code, state)
	} else {
		l.Proposed(p, partition.Unanswered, nil)
	}
}

// electable are the in-sync replicas that are active.
func (m *model) electable() (ids []int32) {
	for _, id := range m.meta.ISR {
		if m.node(id).active {
			ids = append(ids, id)
		}
	}
	return ids
}

func (m *model) electAny(t *rapid.T) {
	ids := m.electable()
	if len(ids) == 0 {
		t.Skip("nobody is in sync")
	}
	m.elect(rapid.SampledFrom(ids).Draw(t, "leader"))
	m.publish()
}

func (m *model) crashAny(t *rapid.T) {
	n := m.drawNode(t, true)
	mode := rapid.SampledFrom(m.modes).Draw(t, "mode")
	synctest.Wait()
	m.settleAcks()
	m.durable[n.id-1] = n.replica.Synced()
	n.crash(mode)
	m.held[n.id-1] = nil
}

// fence takes a broker out of the ISR, as the controller does when it is silent or comes back: but as the last
// member it stays, and leads no more.
func (m *model) fence(n *replicaNode) {
	if !n.active {
		return
	}
	n.active = false
	if len(m.meta.ISR) > 1 {
		m.meta.ISR = slices.DeleteFunc(slices.Clone(m.meta.ISR), func(id int32) bool { return id == n.id })
	}
	if ids := m.electable(); m.meta.Leader == n.id {
		m.elect(append(ids, -1)[0])
	} else {
		m.meta.PartitionEpoch++
	}
	m.publish()
}

func (m *model) fenceAny(t *rapid.T) { m.fence(m.drawNode(t, false)) }

func (m *model) startAny(t *rapid.T) { m.startNode(m.drawNode(t, false)) }

func (m *model) startNode(n *replicaNode) {
	m.fence(n)
	n.start()
	m.marks[n.id-1] = mark{}
	m.seen[n.id-1] = len(m.history) // it begins with an image that is up to date
	n.told(m.meta)
	n.epoch += 100
	n.active = true
	if m.meta.Leader < 0 && slices.Contains(m.meta.ISR, n.id) {
		m.elect(n.id)
	}
	m.publish()
}

func (m *model) wait(t *rapid.T) {
	time.Sleep(time.Duration(rapid.IntRange(1, 40).Draw(t, "seconds")) * time.Second)
	for _, n := range m.nodes {
		if n.dir != nil && n.replica.Leader() != nil {
			n.replica.Leader().CheckLag(time.Now())
		}
	}
}

// settle lets everything that is up catch up.
func (m *model) settle(t *rapid.T) {
	m.tellAll(t)
	for range 8 {
		for _, n := range m.nodes {
			if n.dir != nil {
				_, err := n.fetch()
				m.ended(t, err)
			}
		}
	}
}

// heal brings everything back and makes sure that it comes to rest in full order.
func (m *model) heal() {
	for _, n := range m.nodes {
		if n.dir == nil {
			m.startNode(n)
		}
	}
	for range 6 {
		m.settle(m.rt)
		synctest.Wait()
		time.Sleep(time.Second)
		if m.meta.Leader < 0 {
			continue
		}
		leader := m.node(m.meta.Leader)
		if p, ok := leader.replica.Leader().Propose(); ok {
			code, state := m.alter(leader.id, &p)
			if code == 0 {
				m.publish()
			}
			leader.replica.Leader().Proposed(p, code, state)
		}
	}
	m.settle(m.rt)
	m.settleAcks()
	require.Empty(m.rt, m.waiting, "not all producers were answered")
	require.NotEqual(m.rt, int32(-1), m.meta.Leader, "no leader after all came back")
	require.Len(m.rt, m.meta.ISR, 3, "not all are in sync")
	want := m.node(m.meta.Leader).replica
	all, err := want.Batches()
	require.NoError(m.rt, err)
	require.Equal(m.rt, want.Bounds().LogEnd, want.Bounds().HighWatermark)
	for _, n := range m.nodes {
		got, err := n.replica.Batches()
		require.NoError(m.rt, err)
		require.Equal(m.rt, all, got, "node %d", n.id)
		bounds, err := want.StableBounds()
		require.NoError(m.rt, err)
		own, err := n.replica.StableBounds()
		require.NoError(m.rt, err)
		require.Equal(m.rt, bounds, own)
		m.readCommitted(m.rt, n)
	}
	m.producers(m.rt)
}

// producers compares what replicas with equal logs know of producers, and what a replica would know that has but
// the log.
func (m *model) producers(t *rapid.T) {
	type memory struct {
		log    []record.Batch
		states []partition.ProducerState
	}
	var all []memory
	for _, n := range m.nodes {
		if n.dir == nil {
			continue
		}
		log, err := n.replica.Batches()
		require.NoError(t, err)
		states, err := n.replica.Producers(-1)
		require.NoError(t, err)
		require.Equal(t, foldProducers(log), states, "node %d", n.id)
		all = append(all, memory{log, states})
	}
	for _, a := range all {
		for _, b := range all {
			if slices.EqualFunc(a.log, b.log, func(x, y record.Batch) bool { return bytes.Equal(x, y) }) {
				require.Equal(t, a.states, b.states)
			}
		}
	}
}

// check looks at everything after each step.
func (m *model) check(t *rapid.T) {
	synctest.Wait()
	m.settleAcks()
	logs := map[int32][]record.Batch{}
	for _, n := range m.nodes {
		if n.dir == nil {
			continue
		}
		log, err := n.replica.Batches()
		require.NoError(t, err)
		logs[n.id] = log
		m.checkLog(t, n, log)
		m.checkMark(t, n)
	}
	for a, log := range logs {
		for b, other := range logs {
			if a < b {
				checkMatch(t, a, b, log, other)
			}
		}
	}
	m.checkAcked(t, logs)
	m.checkRefused(t, logs)
	m.checkLeader(t, logs)
}

// checkLog checks H4, the order of offsets and epochs, and D5: what lies below a high watermark is known to
// everybody.
func (m *model) checkLog(t *rapid.T, n *replicaNode, log []record.Batch) {
	b := n.replica.Bounds()
	require.True(t, b.LogStart <= b.HighWatermark && b.HighWatermark <= b.LogEnd, "H4: node %d: %+v", n.id, b)
	next, epoch := b.LogStart, int32(0)
	for _, batch := range log {
		require.Equal(t, next, batch.BaseOffset(), "node %d has a gap", n.id)
		require.GreaterOrEqual(t, batch.LeaderEpoch(), epoch, "node %d", n.id)
		next, epoch = batch.NextOffset(), batch.LeaderEpoch()
		if next > b.HighWatermark {
			continue
		}
		if known := m.known[batch.BaseOffset()]; known != nil {
			require.Equal(t, known, batch, "D5: node %d has another batch at offset %d", n.id, batch.BaseOffset())
		} else {
			m.known[batch.BaseOffset()] = batch
		}
	}
	require.Equal(t, b.LogEnd, next)
}

// checkMark checks H2 on one replica.
func (m *model) checkMark(t *rapid.T, n *replicaNode) {
	now := mark{epoch: n.role.LeaderEpoch, hw: n.replica.Bounds().HighWatermark}
	if last := m.marks[n.id-1]; last.epoch == now.epoch {
		require.GreaterOrEqual(t, now.hw, last.hw, "H2: node %d in epoch %d", n.id, now.epoch)
	}
	m.marks[n.id-1] = now
}

// checkMatch checks D8.
func checkMatch(t *rapid.T, a, b int32, log, other []record.Batch) {
	for i := min(len(log), len(other)) - 1; i >= 0; i-- {
		if log[i].BaseOffset() != other[i].BaseOffset() || log[i].LeaderEpoch() != other[i].LeaderEpoch() {
			continue
		}
		require.Equal(t, log[:i+1], other[:i+1], "D8: nodes %d and %d agree at offset %d", a, b, log[i].BaseOffset())
		return
	}
}

// checkAcked checks D1: below a high watermark, and with the leader of the newest epoch, is all that was
// acknowledged.
func (m *model) checkAcked(t *rapid.T, logs map[int32][]record.Batch) {
	for id, log := range logs {
		n := m.node(id)
		leads := m.meta.Leader == id && n.role.LeaderEpoch == m.meta.LeaderEpoch
		for _, p := range m.acked {
			if !leads && n.replica.Bounds().HighWatermark < p.at.Next {
				continue
			}
			i, ok := slices.BinarySearchFunc(log, p.at.BaseOffset, func(b record.Batch, o int64) int {
				return int(b.BaseOffset() - o)
			})
			require.True(t, ok, "D1: node %d lacks offset %d, acknowledged in epoch %d", id, p.at.BaseOffset, p.epoch)
			require.Equal(t, p.batch, log[i], "D1: node %d has another batch at offset %d", id, p.at.BaseOffset)
		}
	}
}

// checkRefused checks D2: no leader of the newest epoch has a batch that is said not to be written, and nobody has it
// below a high watermark.
func (m *model) checkRefused(t *rapid.T, logs map[int32][]record.Batch) {
	for id, log := range logs {
		n := m.node(id)
		leads := m.meta.Leader == id && n.role.LeaderEpoch == m.meta.LeaderEpoch
		for _, p := range m.refused {
			if !leads && n.replica.Bounds().HighWatermark < p.at.Next {
				continue
			}
			for _, b := range log {
				require.False(t, bytes.Equal(b, p.batch), "D2: node %d has offset %d of epoch %d", id, p.at.BaseOffset, p.epoch)
			}
		}
	}
}

// checkLeader checks H1 and, for clients, H2 with the leader of the newest epoch.
func (m *model) checkLeader(t *rapid.T, logs map[int32][]record.Batch) {
	if m.meta.Leader < 0 || logs[m.meta.Leader] == nil && m.node(m.meta.Leader).dir == nil {
		return
	}
	n := m.node(m.meta.Leader)
	l := n.replica.Leader()
	if l == nil || l.LeaderEpoch() != m.meta.LeaderEpoch {
		return
	}
	if m.policy == storage.SyncAck {
		for _, id := range m.meta.ISR {
			synced := m.durable[id-1]
			if r := m.node(id).replica; r != nil {
				synced = r.Synced()
			}
			require.LessOrEqual(t, l.Bounds().HighWatermark, synced, "H1: node %d is in sync", id)
		}
	}
	if p, err := l.OffsetAt(partition.OffsetQuery{Timestamp: -1, LeaderEpoch: -1}); err == nil {
		require.GreaterOrEqual(t, p.Offset, m.latest, "H2: the latest offset falls for clients")
		m.latest = p.Offset
	}
}

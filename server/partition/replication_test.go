package partition_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"millrace/server/partition"
	"millrace/storage"
	"millrace/storage/storagetest"
)

// The scripts in testdata/replication drive several replicas of one partition. After each command they show
// what changed. Commands:
//
//	new [nodes=3] [policy=ack|never] [min-in-sync=1] [segment=]   all nodes up, nobody told of a leader
//	elect leader=N [isr=1,2] [recovering] [to=1,2]     a new epoch; told to those nodes, or all that are up
//	tell [to=1,2]                                      the present metadata
//	append [at=N] [n=1] [acks=1] [id= seq=]            at the leader
//	fetch by=N [times=1] [hold=NAME]                   rounds of a follower; hold keeps the answer back
//	deliver name=NAME by=N                             gives a follower an answer that was kept back
//	settle                                             rounds of all followers until nothing changes
//	propose [at=N] [answer=lost|moved|CODE]            what the leader proposes, and the controller's answer; moved: what
//	                                                   that completes begins a new epoch, which nobody is told of yet
//	fence id=N / activate id=N / register id=N         what the metadata says of a broker
//	wait DURATION                                      let time pass
//	lag [at=N]                                         look for followers that lag
//	list [at=N]                                        the latest offset, as a client asks
//	read at=N offset=                                  what a consumer gets
//	committed next= [at=N]                             what a produce that waits for that is told
//	await name=NAME                                    a produce waits for the last batch; its answer shows when it comes
//	crash id=N [mode=LoseAll] / start id=N / stop id=N
//	producers at=N
//	restart id=N                                       a damaged replica begins anew
//	damage id=N                                        a bit of its first batch
//	damaged id=N                                       whether it was noticed
//	shrink isr=1,2                                     another ISR in the same epoch, told to all
//	swap name=NAME by=N                                what was kept back is asked for again, at the same position
//	trim to=                                           DeleteRecords at the leader
//	state                                              all nodes
func TestReplication(t *testing.T) {
	settings := topicSettings(t)
	datadriven.Walk(t, "testdata/replication", func(t *testing.T, path string) {
		synctest.Test(t, func(t *testing.T) {
			s := &replication{
				t: t, cluster: newCluster(t, settings, 3), held: map[string]*answer{}, sent: map[int64]partition.Appended{},
				told: make(chan string, 100),
			}
			defer func() { s.close() }()
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
				out := s.run(d)
				return out + s.changes()
			})
		})
	})
}

// replication is one script.
type replication struct {
	*cluster
	t     *testing.T
	held  map[string]*answer
	shown []string

	sent   map[int64]partition.Appended // by where they end
	last   partition.Appended
	lastAt *partition.Leader
	told   chan string // what produces that wait are told
}

// changes shows the nodes that are not as they were last shown.
func (s *replication) changes() (out string) {
	synctest.Wait()
	for len(s.told) > 0 {
		out += <-s.told
	}
	for i, n := range s.nodes {
		now := n.show()
		if i >= len(s.shown) {
			s.shown = append(s.shown, "")
		}
		if s.shown[i] != now {
			s.shown[i] = now
			out += now + "\n"
		}
	}
	return out
}

func (s *replication) run(d *datadriven.TestData) string {
	do, ok := map[string]func(d *datadriven.TestData) string{
		"new": s.runNew, "elect": s.runElect, "tell": s.runTell, "append": s.runAppend, "fetch": s.runFetch,
		"deliver": s.runDeliver, "settle": s.runSettle, "propose": s.runPropose, "fence": s.runBroker,
		"activate": s.runBroker, "register": s.runBroker, "wait": s.runWait, "lag": s.runLag, "list": s.runList,
		"read": s.runRead, "committed": s.runCommitted, "crash": s.runCrash, "start": s.runStart, "stop": s.runStop,
		"producers": s.runProducers, "state": s.runState, "damage": s.runDamage, "restart": s.runRestart,
		"trim": s.runTrim, "shrink": s.runShrink, "await": s.runAwait, "swap": s.runSwap, "damaged": s.runDamaged,
	}[d.Cmd]
	if !ok {
		s.t.Fatalf("unknown command %s", d.Cmd)
	}
	return do(d)
}

// at is the node of a command: the one it names, or the leader.
func (s *replication) at(d *datadriven.TestData, key string) *replicaNode {
	return s.node(int32(int64Arg(d, key, int64(max(s.meta.Leader, 1)))))
}

func textArg(d *datadriven.TestData, key, otherwise string) string {
	for _, a := range d.CmdArgs {
		if a.Key == key && len(a.Vals) > 0 {
			return strings.Join(a.Vals, ",")
		}
	}
	return otherwise
}

func (s *replication) ids(d *datadriven.TestData, key string) (ids []int32) {
	for _, f := range strings.FieldsFunc(textArg(d, key, ""), func(r rune) bool { return r == ',' }) {
		id, err := strconv.Atoi(f)
		require.NoError(s.t, err)
		ids = append(ids, int32(id))
	}
	return ids
}

func (s *replication) runNew(d *datadriven.TestData) string {
	s.close()
	settings := s.settings
	settings.MinInsyncReplicas = int(int64Arg(d, "min-in-sync", 1))
	settings.SegmentBytes = int64Arg(d, "segment", settings.SegmentBytes)
	s.cluster, s.shown = newCluster(s.t, settings, int(int64Arg(d, "nodes", 3))), nil
	if textArg(d, "policy", "never") == "never" {
		s.policy = storage.SyncNever
	}
	for _, n := range s.nodes {
		n.start()
	}
	return ""
}

func (s *replication) runElect(d *datadriven.TestData) string {
	if isr := s.ids(d, "isr"); isr != nil {
		s.meta.ISR = isr
	}
	s.meta.Recovering = d.HasArg("recovering")
	s.elect(int32(int64Arg(d, "leader", 1)))
	return s.runTell(d)
}

func (s *replication) runTell(d *datadriven.TestData) string {
	to := s.ids(d, "to")
	for _, n := range s.nodes {
		if to == nil || slices.Contains(to, n.id) {
			n.told(s.meta)
		}
	}
	return ""
}

func (s *replication) runAppend(d *datadriven.TestData) string {
	values := make([]string, int64Arg(d, "n", 1))
	for i := range values {
		values[i] = fmt.Sprintf("epoch %d", s.meta.LeaderEpoch)
	}
	b := batch(int64Arg(d, "id", -1), int16(int64Arg(d, "pepoch", 0)), int32(int64Arg(d, "seq", 0)), time.Now(), values...)
	a, err := s.at(d, "at").append(b, int64Arg(d, "acks", -1) == -1)
	if err == nil {
		s.sent[a.Next], s.last, s.lastAt = a, a, s.at(d, "at").leader
	}
	return s.said(err, "base=%d next=%d", a.BaseOffset, a.Next)
}

// said prints an error by its Kafka name.
func (s *replication) said(err error, format string, args ...any) string {
	h := host{}
	text := h.outcome(err, format, args...)
	if err != nil && partition.Explain(err).NotWritten {
		text += " (not written)"
	}
	return text + "\n"
}

func (s *replication) runFetch(d *datadriven.TestData) (out string) {
	n := s.at(d, "by")
	if name := textArg(d, "hold", ""); name != "" {
		a, err := n.ask()
		s.held[name] = a
		return s.said(err, "held")
	}
	for range int64Arg(d, "times", 1) {
		outcome, err := n.fetch()
		out += s.said(err, "%s", outcomeName(outcome))
	}
	return out
}

func (s *replication) runDeliver(d *datadriven.TestData) string {
	outcome, err := s.at(d, "by").take(s.held[textArg(d, "name", "")])
	return s.said(err, "%s", outcomeName(outcome))
}

func (s *replication) runSettle(*datadriven.TestData) string {
	for round := range 100 {
		before := s.state()
		for _, n := range s.nodes {
			if n.dir != nil && n.replica.Follower() != nil {
				_, err := n.fetch()
				require.NoError(s.t, err)
			}
		}
		if s.state() == before && round > 0 {
			return ""
		}
	}
	return "no rest\n"
}

func (s *replication) state() (out string) {
	for _, n := range s.nodes {
		out += n.show() + "\n"
	}
	return out
}

func (s *replication) runState(*datadriven.TestData) string {
	s.shown = nil
	return ""
}

func (s *replication) runPropose(d *datadriven.TestData) string {
	n := s.at(d, "at")
	l := n.replica.Leader()
	wanting := ""
	if !n.wanting {
		wanting = "not asked to; "
	}
	n.wanting = false
	p, ok := l.Propose()
	if !ok {
		return wanting + "nothing\n"
	}
	var members []string
	for _, m := range p.ISR {
		members = append(members, fmt.Sprintf("%d@%d", m.ID, m.Epoch))
	}
	out := fmt.Sprintf("%sisr=[%s] of epochs %d/%d recovering=%t", wanting, strings.Join(members, " "), p.LeaderEpoch,
		p.PartitionEpoch, p.Recovering)
	var code int16
	var state *partition.Role
	switch answer := textArg(d, "answer", ""); answer {
	case "":
		code, state = s.alter(n.id, &p)
	case "lost": // the controller took it, and nobody heard
		s.alter(n.id, &p)
		code = partition.Unanswered
	case "moved":
		s.alter(n.id, &p)
		s.meta.LeaderEpoch++
		now := s.meta
		state = &now
	case "never":
		return out + ": on its way\n"
	default:
		code = int16(int64Arg(d, "answer", 0))
	}
	l.Proposed(p, code, state)
	return fmt.Sprintf("%s: %d\n", out, code)
}

func (s *replication) runBroker(d *datadriven.TestData) string {
	n := s.at(d, "id")
	switch d.Cmd {
	case "fence":
		n.active = false
	case "activate":
		n.active = true
	case "register":
		n.epoch += 100
	}
	return ""
}

func (s *replication) runWait(d *datadriven.TestData) string {
	by, err := time.ParseDuration(d.CmdArgs[0].Key)
	require.NoError(s.t, err)
	time.Sleep(by)
	return ""
}

func (s *replication) runLag(d *datadriven.TestData) string {
	n := s.at(d, "at")
	n.replica.Leader().CheckLag(time.Now())
	return fmt.Sprintf("wanting=%t\n", n.wanting)
}

func (s *replication) runList(d *datadriven.TestData) string {
	l := s.at(d, "at").replica.Leader()
	if l == nil {
		return s.said(partition.ErrNotLeader, "")
	}
	p, err := l.OffsetAt(partition.OffsetQuery{Timestamp: -1, LeaderEpoch: -1})
	return s.said(err, "latest=%d", p.Offset)
}

func (s *replication) runRead(d *datadriven.TestData) string {
	n := s.at(d, "at")
	r := partition.FetchRequest{
		Offset: int64Arg(d, "offset", 0), LeaderEpoch: int32(int64Arg(d, "epoch", -1)), MaxBytes: 1 << 20,
	}
	fetch := func() (partition.Fetched, error) { return partition.Fetched{}, partition.ErrNotLeader }
	if l := n.replica.Leader(); l != nil {
		fetch = func() (partition.Fetched, error) { return l.Fetch(r) }
	} else if f := n.replica.Follower(); f != nil {
		fetch = func() (partition.Fetched, error) { return f.Fetch(r) }
	}
	got, err := fetch()
	return s.said(err, "%d bytes, next=%d hw=%d", len(got.Records), got.Next, got.HighWatermark)
}

func (s *replication) runCommitted(d *datadriven.TestData) string {
	w := partition.NewWaiter()
	w.Start(0)
	defer w.Stop()
	l, next := s.at(d, "at").leader, int64Arg(d, "next", 0)
	a, ok := s.sent[next]
	if !ok {
		a = partition.Appended{Next: next, Epoch: l.LeaderEpoch()}
	}
	return s.said(l.AwaitCommitted(context.Background(), w, &a), "committed")
}

func (s *replication) runAwait(d *datadriven.TestData) string {
	a, l, name := s.last, s.lastAt, textArg(d, "name", "")
	go func() {
		w := partition.NewWaiter()
		w.Start(time.Hour)
		defer w.Stop()
		s.told <- name + ": " + s.said(l.AwaitCommitted(context.Background(), w, &a), "committed")
	}()
	return ""
}

func (s *replication) runCrash(d *datadriven.TestData) string {
	mode := storagetest.LoseAll
	for _, m := range storagetest.Modes() {
		if m.String() == textArg(d, "mode", "") {
			mode = m
		}
	}
	s.at(d, "id").crash(mode)
	return ""
}

func (s *replication) runStart(d *datadriven.TestData) string {
	s.at(d, "id").start()
	return ""
}

func (s *replication) runStop(d *datadriven.TestData) string {
	s.at(d, "id").stop()
	return ""
}

func (s *replication) runProducers(d *datadriven.TestData) (out string) {
	states, err := s.at(d, "at").replica.Producers(-1)
	require.NoError(s.t, err)
	for _, p := range states {
		out += fmt.Sprintf("%d: epoch=%d last=%d\n", p.ID, p.Epoch, p.LastSequence)
	}
	return out
}

// runDamage flips a bit of the first batch on a node's disk.
func (s *replication) runDamage(d *datadriven.TestData) string {
	n := s.at(d, "id")
	require.NoError(s.t, n.disk.FlipBit("t-0/00000000000000000000.log", 70, 3))
	return ""
}

func (s *replication) runRestart(d *datadriven.TestData) string {
	n := s.at(d, "id")
	r, err := n.replica.SetAsideAndRestart()
	require.NoError(s.t, err)
	n.replica = r
	n.told(n.role)
	return ""
}

func (s *replication) runTrim(d *datadriven.TestData) string {
	low, err := s.at(d, "at").replica.Leader().DeleteRecords(int64Arg(d, "to", -1))
	return s.said(err, "low=%d", low)
}

func (s *replication) runShrink(d *datadriven.TestData) string {
	s.meta.ISR = s.ids(d, "isr")
	s.meta.PartitionEpoch++
	return s.runTell(d)
}

// runSwap makes an answer that was kept back one of the leader as it is now, as if that had changed while it was
// answering.
func (s *replication) runSwap(d *datadriven.TestData) string {
	a, n := s.held[textArg(d, "name", "")], s.node(s.meta.Leader)
	got, err := n.replica.Leader().FetchFollower(partition.FollowerFetch{
		Replica: s.at(d, "by").id, BrokerEpoch: s.at(d, "by").epoch, Offset: a.pos.Offset, LeaderEpoch: -1,
		LastFetchedEpoch: -1, MaxBytes: 1 << 20,
	})
	a.got.Records = slices.Clone(got.Records)
	return s.said(err, "%d bytes", len(got.Records))
}

func (s *replication) runDamaged(d *datadriven.TestData) string {
	return fmt.Sprintf("%t\n", s.at(d, "id").damage != nil)
}

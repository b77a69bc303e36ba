package partition_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/internal/ktag"
	"millrace/record"
	"millrace/server/metadata"
	"millrace/server/partition"
	"millrace/storage"
)

// host is one data directory with one partition on it, that can be stopped and started.
type host struct {
	t        testing.TB
	fs       storage.FS
	dir      *storage.Dir
	store    *partition.Store
	replica  *partition.Replica
	leader   *partition.Leader
	now      time.Time
	asked    func() // is called when the partition asks for the time; may be nil
	policy   storage.SyncPolicy
	settings metadata.TopicSettings
	role     partition.Role
}

func newHost(t testing.TB) *host {
	fs, err := storage.OSFS(t.TempDir())
	require.NoError(t, err)
	m, err := metadata.NewMachine(metadata.Options{NodeID: 1})
	require.NoError(t, err)
	h := &host{
		t: t, fs: fs, now: time.UnixMilli(1_700_000_000_000),
		role: soloRole(0, 1, 1),
	}
	h.settings = *defaults(t, m)
	return h
}

// defaults are the settings of a topic that sets none.
func defaults(t testing.TB, m *metadata.Machine) *metadata.TopicSettings {
	for i, c := range []metadata.Command{
		&metadata.RegisterBroker{NewClusterID: "c", ID: 1, Incarnation: metadata.UUID{1: 1}, PreviousEpoch: -1},
		&metadata.CreateTopics{Limits: metadata.DefaultLimits(), Topics: []metadata.NewTopic{
			{Name: "t", ID: testTopicID(), Partitions: [][]int32{{1}}},
		}},
	} {
		entry, err := metadata.Encode(c)
		require.NoError(t, err)
		_, err = m.Apply(uint64(i+1), entry)
		require.NoError(t, err)
	}
	return m.Image().Topic("t").Settings
}

func testTopicID() metadata.UUID { return metadata.UUID{0: 1, 6: 0x40, 8: 0x80} }

// start opens the directory and the partition on it.
func (h *host) start() {
	dir, err := storage.OpenDir(storage.DirOptions{
		FS: h.fs, Now: func() time.Time { return h.now }, SyncPolicy: h.policy, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(h.t, err)
	h.dir = dir
	h.store = partition.NewStore(partition.Config{
		Dir: dir, CommitSynced: h.policy == storage.SyncAck,
		Now: h.clock, Logger: slog.New(slog.DiscardHandler),
	})
	h.replica, err = h.store.Open(partition.Name{Topic: "t", TopicID: testTopicID()}, partition.NewSettings(&h.settings))
	require.NoError(h.t, err)
	h.leader = h.replica.Lead(h.role)
}

func (h *host) clock() time.Time {
	if h.asked != nil {
		h.asked()
	}
	return h.now
}

// soloRole is the role of the leader 1, with so many in-sync replicas of so many.
func soloRole(epoch int32, inSync, replicas int64) partition.Role {
	all := []int32{1, 2, 3, 4, 5}
	return partition.Role{Leader: 1, LeaderEpoch: epoch, ISR: all[:inSync], Replicas: all[:replicas]}
}

func (h *host) stop() {
	require.NoError(h.t, h.replica.Close())
	require.NoError(h.t, h.dir.Close())
}

// append writes a batch and waits until it is committed.
func (h *host) append(r *partition.AppendRequest) (partition.Appended, error) {
	a, err := h.leader.Append(context.Background(), r)
	if err != nil {
		return a, err
	}
	w := partition.NewWaiter()
	w.Start(time.Minute)
	defer w.Stop()
	return a, h.leader.AwaitCommitted(context.Background(), w, &a)
}

// The sweep of a node may come upon a partition that is being closed.
func TestSweepDuringClose(t *testing.T) {
	h := newHost(t)
	h.start()
	_, err := h.append(&partition.AppendRequest{Batch: batch(7, 0, 0, h.now, "v"), Expected: -1, Epoch: -1})
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() { err = h.replica.Close() })
	for range 100 {
		h.leader.ExpireProducers(time.Hour)
		require.NoError(t, h.leader.ApplyRetention())
	}
	wg.Wait()
	require.NoError(t, err)
	require.Zero(t, h.leader.ExpireProducers(0), "who has the log for himself is not disturbed")
	require.NoError(t, h.dir.Close())
}

// batch builds a batch of values; of no producer when id is -1.
func batch(id int64, epoch int16, sequence int32, at time.Time, values ...string) record.Batch {
	var b record.Builder
	if id >= 0 {
		b.SetProducer(id, epoch, sequence)
	}
	for _, v := range values {
		b.Append(&record.Record{Timestamp: at.UnixMilli(), Key: []byte("k"), Value: []byte(v)})
	}
	return b.Build()
}

// The scripts in testdata/leader drive one partition. Commands:
//
//	append [n=1] [id= name= epoch= seq=] [expected=] [strict] [acks=1]   append a batch of n records
//	fetch offset= [max=] [epoch=]     what a consumer gets
//	bounds                            log start, high watermark, end
//	list at= [epoch=]                 ListOffsets
//	epoch-end of=                     OffsetForLeaderEpoch
//	delete to=                        DeleteRecords
//	producers [name=]                 what is remembered
//	lead epoch= [in-sync=1] [replicas=1]
//	settings [min-in-sync=] [append-time] [policy=] [segment=] [max-message=]
//	clock +DURATION                   move the clock
//	expire after=DURATION             forget silent producers
//	retain                            apply retention
//	restart [epoch=]                  close cleanly, open again, under that leader epoch
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/leader", func(t *testing.T, path string) {
		h := newHost(t)
		h.policy = storage.SyncNever // the high watermark moves at once, not when the disk is done
		h.start()
		defer func() { h.stop() }()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return h.run(t, d) })
	})
}

func (h *host) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "append":
		return h.runAppend(t, d)
	case "fetch":
		return h.runFetch(t, d)
	case "bounds":
		b := h.leader.Bounds()
		return fmt.Sprintf("start=%d stable=%d hw=%d end=%d", b.LogStart, b.LastStable, b.HighWatermark, b.LogEnd)
	case "list":
		p, err := h.leader.OffsetAt(partition.OffsetQuery{
			Timestamp: int64Arg(d, "at", 0), LeaderEpoch: int32(int64Arg(d, "epoch", -1)), ReadCommitted: d.HasArg("committed"),
		})
		return h.outcome(err, "offset=%d timestamp=%s epoch=%d", p.Offset, h.ago(p.Timestamp), p.LeaderEpoch)
	case "epoch-end":
		epoch, end, err := h.leader.EpochEnd(int32(int64Arg(d, "of", 0)), -1)
		return h.outcome(err, "epoch=%d end=%d", epoch, end)
	case "delete":
		low, err := h.leader.DeleteRecords(int64Arg(d, "to", -1))
		return h.outcome(err, "low=%d", low)
	case "producers":
		return h.runProducers(d)
	case "lead":
		r := soloRole(int32(int64Arg(d, "epoch", 0)), int64Arg(d, "in-sync", 1), int64Arg(d, "replicas", 1))
		r.PartitionEpoch = h.role.PartitionEpoch + 1
		h.replica.Lead(r)
		if h.leader.LeaderEpoch() == r.LeaderEpoch {
			h.role = r
		}
		return fmt.Sprintf("epoch=%d", h.leader.LeaderEpoch())
	case "settings":
		return h.runSettings(d)
	case "clock":
		by, err := time.ParseDuration(strings.TrimPrefix(d.CmdArgs[0].Key, "+"))
		require.NoError(t, err)
		h.now = h.now.Add(by)
		return "ok"
	case "expire":
		var after string
		d.ScanArgs(t, "after", &after)
		lifetime, err := time.ParseDuration(after)
		require.NoError(t, err)
		return fmt.Sprintf("forgot %d", h.leader.ExpireProducers(lifetime))
	case "retain":
		return h.outcome(h.leader.ApplyRetention(), "ok")
	case "restart":
		h.role.LeaderEpoch = int32(int64Arg(d, "epoch", int64(h.role.LeaderEpoch)))
		h.stop()
		h.start()
		return "ok"
	}
	t.Fatalf("unknown command %s", d.Cmd)
	return ""
}

func (h *host) runAppend(t *testing.T, d *datadriven.TestData) string {
	id := int64Arg(d, "id", -1)
	if d.HasArg("name") {
		var name string
		d.ScanArgs(t, "name", &name)
		id = ktag.NamedProducerID(name)
	}
	values := make([]string, int64Arg(d, "n", 1))
	for i := range values {
		values[i] = strings.Repeat("v", int(int64Arg(d, "size", 1)))
	}
	r := &partition.AppendRequest{
		Batch:     batch(id, int16(int64Arg(d, "epoch", 0)), int32(int64Arg(d, "seq", 0)), h.now, values...),
		AllInSync: int64Arg(d, "acks", -1) == -1,
		Expected:  int64Arg(d, "expected", -1),
		Epoch:     -1,
		Strict:    d.HasArg("strict"),
	}
	do := h.append
	if !r.AllInSync {
		do = func(r *partition.AppendRequest) (partition.Appended, error) { return h.leader.Append(t.Context(), r) }
	}
	a, err := do(r)
	out := fmt.Sprintf("base=%d next=%d", a.BaseOffset, a.Next)
	if a.AppendTime != -1 {
		out += " append-time=" + h.ago(a.AppendTime)
	}
	if a.Duplicate {
		out += " duplicate of " + h.ago(a.FirstTimestamp)
	}
	return h.outcome(err, "%s", out)
}

func (h *host) runFetch(t *testing.T, d *datadriven.TestData) string {
	f, err := h.leader.Fetch(partition.FetchRequest{
		Offset: int64Arg(d, "offset", 0), LeaderEpoch: int32(int64Arg(d, "epoch", -1)),
		MaxBytes: int(int64Arg(d, "max", 1<<20)),
	})
	if err != nil {
		return h.outcome(err, "")
	}
	var batches []string
	for rest := f.Records; len(rest) > 0; {
		b, after, err := record.Next(rest)
		require.NoError(t, err)
		require.NoError(t, b.Verify())
		batches = append(batches, fmt.Sprintf("%d..%d@%d", b.BaseOffset(), b.LastOffset(), b.LeaderEpoch()))
		rest = after
	}
	return fmt.Sprintf("[%s] next=%d hw=%d", strings.Join(batches, " "), f.Next, f.HighWatermark)
}

func (h *host) runProducers(d *datadriven.TestData) string {
	id := int64Arg(d, "id", -1)
	states, err := h.leader.Producers(id)
	var lines []string
	for _, s := range states {
		name := fmt.Sprint(s.ID)
		if ktag.IsNamed(s.ID) {
			name = "named"
		}
		at := h.ago(s.LastTimestamp)
		lines = append(lines, fmt.Sprintf("%s: epoch=%d last=%d at=%s", name, s.Epoch, s.LastSequence, at))
	}
	slices.Sort(lines)
	return h.outcome(err, "%s", strings.Join(lines, "\n"))
}

func (h *host) runSettings(d *datadriven.TestData) string {
	s := h.settings
	s.MinInsyncReplicas = int(int64Arg(d, "min-in-sync", int64(s.MinInsyncReplicas)))
	s.SegmentBytes = int64Arg(d, "segment", s.SegmentBytes)
	s.MaxMessageBytes = int(int64Arg(d, "max-message", int64(s.MaxMessageBytes)))
	s.RetentionBytes = int64Arg(d, "retention-bytes", s.RetentionBytes)
	s.LogAppendTime = s.LogAppendTime || d.HasArg("append-time")
	if d.HasArg("compact") || d.HasArg("delete") {
		s.CleanupCompact, s.CleanupDelete = d.HasArg("compact"), d.HasArg("delete")
	}
	h.settings = s
	h.replica.Reconfigure(partition.NewSettings(&s))
	return "ok"
}

// outcome prints an error by its Kafka name and message.
func (h *host) outcome(err error, format string, args ...any) string {
	if err == nil {
		return fmt.Sprintf(format, args...)
	}
	r := partition.Explain(err)
	return fmt.Sprintf("%s: %s", kerr.TypedErrorForCode(r.Code).Message, r.Message)
}

// ago prints a timestamp by the test's clock.
func (h *host) ago(ms int64) string {
	if ms == -1 {
		return "none"
	}
	if d := h.now.Sub(time.UnixMilli(ms)); d != 0 {
		return "now-" + d.String()
	}
	return "now"
}

func int64Arg(d *datadriven.TestData, key string, otherwise int64) int64 {
	for _, a := range d.CmdArgs {
		if a.Key == key && len(a.Vals) == 1 {
			var v int64
			if _, err := fmt.Sscan(a.Vals[0], &v); err == nil {
				return v
			}
			if at, ok := strings.CutPrefix(a.Vals[0], "now"); ok {
				back, _ := time.ParseDuration(at)
				return time.UnixMilli(1_700_000_000_000).Add(back).UnixMilli()
			}
		}
	}
	return otherwise
}

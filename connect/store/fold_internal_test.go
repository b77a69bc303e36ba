package store

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/client"
	"millrace/record"
)

func mustUnderstand(t *testing.T) skip {
	return func(what string, _ int32, offset int64, err error) {
		t.Errorf("%s at %d is skipped: %v", what, offset, err)
	}
}

// writer appends changes as Update does.
type writer struct {
	fold *configFold
	now  *Configs
	log  []taken
}

func newWriter(t *testing.T) *writer {
	w := &writer{fold: newConfigFold(mustUnderstand(t)), now: &Configs{}}
	w.fold.settle()
	w.fold.snapshot(w.now)
	return w
}

func (w *writer) update(changes ...Change) {
	var some []taken
	for _, r := range w.now.records(changes) {
		some = append(some, taken{offset: int64(len(w.log) + len(some)), key: []byte(r.key), value: r.value})
	}
	w.log = append(w.log, some...)
	w.fold.take(some)
	next := &Configs{Offset: int64(len(w.log))}
	w.fold.snapshot(next)
	w.now = next
}

// anyChange is a change by chance.
func anyChange(chance *rand.Rand) []Change {
	name := []string{"a", "a-1", "task-a", "b-0-1"}[chance.IntN(4)]
	value := func() map[string]string { return map[string]string{"v": fmt.Sprint(chance.IntN(3))} }
	tasks := make([]map[string]string, chance.IntN(4))
	for i := range tasks {
		tasks[i] = value()
	}
	switch chance.IntN(10) {
	case 0, 1:
		return []Change{PutConnector(name, value())}
	case 2:
		return []Change{PutConnector(name, value()), SetTarget(name, Paused)}
	case 3:
		return []Change{PutTasks(name, tasks), PutConnector(name, value())}
	case 4, 5:
		return []Change{PutTasks(name, tasks)}
	case 6:
		return []Change{DeleteConnector(name)}
	case 7:
		return []Change{SetTarget(name, Stopped), PutTasks(name, nil)}
	case 8:
		return []Change{SetFenced(name, chance.IntN(3))}
	default:
		r := Restart{OnlyFailed: chance.IntN(2) == 0}
		return []Change{RequestRestart(name, r), RequestTaskRestart(name, chance.IntN(3))}
	}
}

// compact drops records below an offset as compaction does: those with a later record of their key below it, and some
// nulls.
func compact(log []taken, below int64, chance *rand.Rand) (out []taken) {
	last := map[string]int64{}
	for i := range log {
		if log[i].offset < below {
			last[string(log[i].key)] = log[i].offset
		}
	}
	for i := range log {
		r := &log[i]
		gone := r.offset < below && (last[string(r.key)] != r.offset || r.value == nil && chance.IntN(2) == 0)
		if !gone {
			out = append(out, *r)
		}
	}
	return out
}

// replay reads a log anew, in pieces.
func replay(t *testing.T, log []taken, chance *rand.Rand) *Configs {
	f := newConfigFold(mustUnderstand(t))
	c := &Configs{}
	for len(log) > 0 {
		n := 1 + chance.IntN(len(log))
		f.take(log[:n])
		c.Offset = log[n-1].offset + 1
		log = log[n:]
		f.snapshot(c)
	}
	f.settle()
	return c
}

// told is what a snapshot says that does not depend on when its reader began.
func told(c *Configs) map[string]Connector {
	out := map[string]Connector{}
	for name, known := range c.Connectors {
		bare := *known
		bare.Restart, bare.TaskRestarts, bare.restarts, bare.keys = nil, nil, nil, nil
		if len(bare.Tasks) == 0 {
			bare.Tasks = nil
		}
		out[name] = bare
	}
	return out
}

// Who reads the log from its start knows what those do who have read it all along, however much of it was compacted.
func TestConfigsAfterReplay(t *testing.T) {
	for seed := range uint64(300) {
		chance := rand.New(rand.NewPCG(seed, 7))
		w := newWriter(t)
		for range 60 {
			w.update(anyChange(chance)...)
		}
		require.Equal(t, told(w.now), told(replay(t, w.log, chance)), "seed %d", seed)
		log := w.log
		for range 3 {
			log = compact(log, chance.Int64N(int64(len(w.log))+1), chance)
			require.Equal(t, told(w.now), told(replay(t, log, chance)), "seed %d, compacted", seed)
		}
	}
}

// Nothing of a connector that was deleted stays in a log that is compacted.
func TestDeletionLeavesNothing(t *testing.T) {
	for seed := range uint64(100) {
		chance := rand.New(rand.NewPCG(seed, 11))
		w := newWriter(t)
		for _, name := range []string{"a", "a-1", "task-a", "b-0-1"} {
			w.update(PutConnector(name, nil))
		}
		for range 40 {
			w.update(anyChange(chance)...)
		}
		deleted := w.now.Connectors
		for name := range deleted {
			w.update(DeleteConnector(name))
		}
		require.Empty(t, w.now.Connectors)
		for _, r := range compact(w.log, int64(len(w.log)), chance) {
			if name := readConfigKey(string(r.key)).name; r.value != nil {
				require.NotContains(t, deleted, name, "seed %d: %s", seed, r.key)
			}
		}
	}
}

// Every key is read as what it was made of.
func TestKeysAreReadAsWritten(t *testing.T) {
	names := []string{"a", "a-1", "-", "0", "task-1", "connector-x", "ü/ %", "a-", "s-fencing-"}
	for kind := connectorKey; kind <= loggerKey; kind++ {
		for _, name := range names {
			for _, task := range []int{0, 10, 2147483647} {
				k := configKey{kind: kind, name: name}
				if kind.hasTask() {
					k.task = task
				}
				require.Equal(t, k, readConfigKey(k.String()))
			}
		}
	}
	for _, key := range []string{
		"", "session-key", "task-a", "task-a-01", "task-a-+1", "task-a-x", "task-a-2147483648", "what",
	} {
		require.Equal(t, otherKey, readConfigKey(key).kind, key)
	}
}

func FuzzRecords(f *testing.F) {
	f.Add("connector-a", `{"properties":{"a":"b"}}`)
	f.Add("commit-a", `{"tasks":99999999}`)
	f.Add("status-task-a-1", `{"state":"RUNNING"}`)
	f.Add("status-topic-t:connector-a", `{}`)
	f.Add(`["a",{"b":1}]`, `{"c":[1,2.5,null]}`)
	f.Fuzz(func(t *testing.T, key, value string) {
		none := func(string, int32, int64, error) {}
		records := []taken{
			{key: []byte("connector-a"), value: []byte(`{"properties":{}}`)},
			{offset: 1, key: []byte(key), value: []byte(value)},
		}
		configs := newConfigFold(none)
		configs.settle()
		configs.take(records)
		c := &Configs{}
		configs.snapshot(c)
		require.LessOrEqual(t, len(c.Connectors), 2)
		newStatusFold(none).take(records)
		offsets := newOffsetFold(none)
		offsets.take(records)
		for _, all := range offsets.names {
			for partition, st := range all {
				_, again, err := readOffsetKey([]byte(st.key))
				require.NoError(t, err)
				require.Equal(t, partition, again)
			}
		}
	})
}

// batchOf is a batch at an offset.
func batchOf(base, producer int64, keys ...string) record.Batch {
	var b record.Builder
	if producer >= 0 {
		b.SetProducer(producer, 0, 0)
		b.SetTransactional()
	}
	for _, key := range keys {
		b.Append(&record.Record{Key: []byte(key), Value: []byte(fmt.Sprint(base))})
	}
	out := b.Build()
	out.SetBaseOffset(base)
	return out
}

func marker(base, producer int64, kind record.ControlType) record.Batch {
	out := record.Batch(record.AppendEndTxnMarker(nil, record.EndTxnMarker{Type: kind, ProducerID: producer}))
	out.SetBaseOffset(base)
	return out
}

// Records of transactions count from their marker on, and never if that is an abort; a cut batch is read next time.
func TestSift(t *testing.T) {
	var log []byte
	for _, b := range []record.Batch{
		batchOf(0, 7, "a", "b"), batchOf(2, -1, "c"), batchOf(3, 8, "d"), batchOf(4, 7, "a"),
		marker(5, 7, record.ControlCommit), marker(6, 8, record.ControlAbort), batchOf(7, 8, "e"),
		marker(8, 9, record.ControlCommit),
		marker(9, 8, record.ControlCommit), batchOf(10, -1, "f"),
	} {
		log = append(log, b...)
	}
	want := []string{"c@2=2", "a@4=4", "b@1=0", "e@7=7"}
	for cut := 1; cut <= len(log); cut += 13 {
		var s sift
		var got []string
		next, at := int64(0), 0
		for _, part := range [][]byte{log[:cut], log} {
			rest := part
			for len(rest) > 0 { // a fetch begins with the batch that has the offset
				b, after, err := record.Next(rest)
				if err != nil || b.NextOffset() > next {
					break
				}
				rest = after
			}
			out, err := s.take(nil, 0, &client.FetchResult{Batches: rest, HighWatermark: 10}, &next, mustUnderstand(t))
			require.NoError(t, err)
			for _, r := range out {
				got = append(got, fmt.Sprintf("%s@%d=%s", r.key, r.offset, r.value))
			}
			at++
		}
		require.Equal(t, want, got, "cut at %d", cut)
		require.Equal(t, int64(10), next)
		require.Empty(t, s.open)
	}
}

// The newest of an offset's spellings counts, whatever the order in which partitions are read.
func TestSpellingsOfOffsets(t *testing.T) {
	one := taken{partition: 1, offset: 9, timestamp: 100, key: []byte(`["c",{"a":1,"b":2}]`), value: []byte(`{"v":1}`)}
	two := taken{partition: 2, offset: 3, timestamp: 200, key: []byte(`["c",{"b":2,"a":1}]`), value: []byte(`{"v":2}`)}
	for _, order := range [][]taken{{one, two}, {two, one}, {one, two, one}} {
		f := newOffsetFold(mustUnderstand(t))
		f.take(order)
		require.Equal(t, string(two.key), f.find("c", `{"a":1,"b":2}`).key)
	}
	f := newOffsetFold(mustUnderstand(t))
	late := two
	late.offset, late.value = 2, []byte(`{"v":0}`) // of a transaction that was committed later, but is before in the log
	f.take([]taken{two, late})
	require.JSONEq(t, `{"v":2}`, string(f.find("c", `{"a":1,"b":2}`).value))
	gone := two
	gone.offset, gone.value = 4, nil
	f.take([]taken{gone})
	require.Nil(t, f.find("c", `{"a":1,"b":2}`))
	require.Empty(t, f.names)
}

// All who ask for the end of a topic before the question is put share one, and none after that.
func TestQuestionsAreShared(t *testing.T) {
	s, err := New(Options{Client: client.New(nil, client.Options{})})
	require.NoError(t, err)
	first := s.configs.ask()
	require.Same(t, first, s.configs.ask())
	require.Same(t, first, s.configs.takeAsk(false))
	later := s.configs.ask()
	require.NotSame(t, first, later)
	require.Same(t, later, s.configs.takeAsk(true))
	refused := s.configs.ask()
	<-refused.done
	require.ErrorIs(t, refused.err, errStopped)
}

// The fold of offsets and of configs, a record after the other.
func BenchmarkFolds(b *testing.B) {
	var offsets, configs []taken
	for i := range 10_000 {
		key, value := fmt.Sprintf(`["c%d",{"server":"s%d"}]`, i%10, i%100), fmt.Sprintf(`{"lsn":%d,"txId":7}`, i)
		offsets = append(offsets, taken{offset: int64(i), key: []byte(key), value: []byte(value)})
		key, value = fmt.Sprintf("connector-c%d", i%1000), fmt.Sprintf(`{"properties":{"name":"c","n":"%d"}}`, i)
		configs = append(configs, taken{offset: int64(i), key: []byte(key), value: []byte(value)})
	}
	none := func(string, int32, int64, error) {}
	b.Run("offsets", func(b *testing.B) {
		for b.Loop() {
			newOffsetFold(none).take(offsets)
		}
	})
	b.Run("configs", func(b *testing.B) {
		for b.Loop() {
			f := newConfigFold(none)
			f.take(configs)
			f.snapshot(&Configs{})
		}
	})
}

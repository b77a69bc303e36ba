package store

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/client/statetopic"
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
	log  []statetopic.Record
}

func newWriter(t *testing.T) *writer {
	w := &writer{fold: newConfigFold(mustUnderstand(t)), now: &Configs{}}
	w.fold.settle()
	w.fold.snapshot(w.now)
	return w
}

func (w *writer) update(changes ...Change) {
	var some []statetopic.Record
	for _, r := range w.now.records(changes) {
		some = append(some, statetopic.Record{Offset: int64(len(w.log) + len(some)), Key: []byte(r.key), Value: r.value})
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
func compact(log []statetopic.Record, below int64, chance *rand.Rand) (out []statetopic.Record) {
	last := map[string]int64{}
	for i := range log {
		if log[i].Offset < below {
			last[string(log[i].Key)] = log[i].Offset
		}
	}
	for i := range log {
		r := &log[i]
		gone := r.Offset < below && (last[string(r.Key)] != r.Offset || r.Value == nil && chance.IntN(2) == 0)
		if !gone {
			out = append(out, *r)
		}
	}
	return out
}

// replay reads a log anew, in pieces.
func replay(t *testing.T, log []statetopic.Record, chance *rand.Rand) *Configs {
	f := newConfigFold(mustUnderstand(t))
	c := &Configs{}
	for len(log) > 0 {
		n := 1 + chance.IntN(len(log))
		f.take(log[:n])
		c.Offset = log[n-1].Offset + 1
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
			if name := readConfigKey(string(r.Key)).name; r.Value != nil {
				require.NotContains(t, deleted, name, "seed %d: %s", seed, r.Key)
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
		records := []statetopic.Record{
			{Key: []byte("connector-a"), Value: []byte(`{"properties":{}}`)},
			{Offset: 1, Key: []byte(key), Value: []byte(value)},
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

// The newest of an offset's spellings counts, whatever the order in which partitions are read.
func TestSpellingsOfOffsets(t *testing.T) {
	one := statetopic.Record{Partition: 1, Offset: 9, Timestamp: 100}
	one.Key, one.Value = []byte(`["c",{"a":1,"b":2}]`), []byte(`{"v":1}`)
	two := statetopic.Record{Partition: 2, Offset: 3, Timestamp: 200}
	two.Key, two.Value = []byte(`["c",{"b":2,"a":1}]`), []byte(`{"v":2}`)
	for _, order := range [][]statetopic.Record{{one, two}, {two, one}, {one, two, one}} {
		f := newOffsetFold(mustUnderstand(t))
		f.take(order)
		require.Equal(t, string(two.Key), f.find("c", `{"a":1,"b":2}`).key)
	}
	f := newOffsetFold(mustUnderstand(t))
	late := two
	late.Offset, late.Value = 2, []byte(`{"v":0}`) // of a transaction that was committed later, but is before in the log
	f.take([]statetopic.Record{two, late})
	require.JSONEq(t, `{"v":2}`, string(f.find("c", `{"a":1,"b":2}`).value))
	gone := two
	gone.Offset, gone.Value = 4, nil
	f.take([]statetopic.Record{gone})
	require.Nil(t, f.find("c", `{"a":1,"b":2}`))
	require.Empty(t, f.names)
}

// The fold of offsets and of configs, a record after the other.
func BenchmarkFolds(b *testing.B) {
	var offsets, configs []statetopic.Record
	for i := range 10_000 {
		key, value := fmt.Sprintf(`["c%d",{"server":"s%d"}]`, i%10, i%100), fmt.Sprintf(`{"lsn":%d,"txId":7}`, i)
		offsets = append(offsets, statetopic.Record{Offset: int64(i), Key: []byte(key), Value: []byte(value)})
		key, value = fmt.Sprintf("connector-c%d", i%1000), fmt.Sprintf(`{"properties":{"name":"c","n":"%d"}}`, i)
		configs = append(configs, statetopic.Record{Offset: int64(i), Key: []byte(key), Value: []byte(value)})
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

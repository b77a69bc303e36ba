package schemaregistry

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/client/statetopic"
	"millrace/record"
	"millrace/schemaregistry/schema"
)

// bigText is a schema of about 300 bytes.
func bigText(i int) string {
	return fmt.Sprintf(`{"type":"record","name":"Order","namespace":"com.example.orders","fields":[`+
		`{"name":"id","type":"long"},{"name":"customer","type":["null","string"],"default":null},`+
		`{"name":"amount","type":"double"},{"name":"field%d","type":["null","string"],"default":null},`+
		`{"name":"created","type":{"type":"long","logicalType":"timestamp-millis"}}]}`, i)
}

const loaded = 100_000

// fill is a log with so many schemas, each in a subject of its own.
func fill(count int) *fakeLog {
	log := newFakeLog()
	var records []string
	for i := range count {
		s := Subject{DefaultContext, fmt.Sprintf("orders.topic-%d-value", i)}
		c := &content{Content: schema.Content{Type: schema.Avro, Text: bigText(i)}, id: i + 1}
		c.identity = contentOf(c.Content)
		t := target{s, 1}
		k := schemaKey(t)
		records = append(records, string(k.append(nil)), string(encode(schemaRecord(t, held{number: 1, content: c}))))
	}
	log.put(records...)
	return log
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// recordsOf reads batches as a fetch brings them.
func recordsOf(b *testing.B, part []byte) (out []statetopic.Record) {
	for len(part) > 0 {
		batch, rest, err := record.Next(part)
		require.NoError(b, err)
		part = rest
		reader := record.NewReader(batch, 1<<30)
		for rec := (record.Record{}); reader.Next(&rec); {
			out = append(out, statetopic.Record{Timestamp: rec.Timestamp, Key: rec.Key, Value: rec.Value})
		}
	}
	return out
}

// BenchmarkStart folds a log of 100,000 schemas, in the parts in which it is fetched.
func BenchmarkStart(b *testing.B) {
	raw := fill(loaded).batches(0)
	r := run(b, newFakeLog(), nil)
	var parts [][]byte
	for from, at := 0, 0; at < len(raw); {
		batch, rest, err := record.Next(raw[at:])
		require.NoError(b, err)
		if at += len(batch); at-from > 4<<20 || len(rest) == 0 {
			parts = append(parts, raw[from:at])
			from = at
		}
	}
	before := heap()
	for b.Loop() {
		f := &folding{r: r, fresh: newState()}
		for _, part := range parts {
			f.Take(recordsOf(b, part))
		}
		require.Equal(b, loaded, f.fresh.versions)
		b.StopTimer()
		b.ReportMetric(float64(heap()-before)/(1<<20), "MiB-state")
		runtime.KeepAlive(f)
		b.StartTimer()
	}
}

func BenchmarkByID(b *testing.B) {
	log := fill(loaded)
	r := run(b, log, nil)
	require.NoError(b, r.AwaitRead(b.Context()))
	id := 0
	for b.Loop() {
		id = id%loaded + 1
		v, err := r.ByID(b.Context(), id, nil)
		if err != nil || v.ID != id {
			b.Fatal(err)
		}
	}
}

// BenchmarkKnown registers a schema again and again from many clients.
func BenchmarkKnown(b *testing.B) {
	r := run(b, fill(1000), nil)
	require.NoError(b, r.AwaitRead(b.Context()))
	var once sync.Once
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			_, ok, err := r.Known(context.Background(), fmt.Sprintf("orders.topic-%d-value", i%1000), RegisterRequest{
				Content: schema.Content{Text: bigText(i % 1000)},
			})
			if err != nil || !ok {
				once.Do(func() { b.Errorf("known=%t: %v", ok, err) })
			}
		}
	})
}

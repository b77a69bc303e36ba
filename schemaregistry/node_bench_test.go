package schemaregistry_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/client"
	"millrace/record"
	"millrace/schemaregistry"
	"millrace/schemaregistry/schema"
	"millrace/server/servertest"
)

// loadNode starts a node whose registry has so many schemas of about 300 bytes.
func loadNode(b *testing.B, count int) *servertest.Node {
	n := servertest.Start(b, servertest.Options{Uncoded: true})
	c := client.New(n.Requestor(), client.Options{})
	policy := "compact"
	_, err := c.CreateTopic(b.Context(), client.NewTopic{
		Name: "_schemas", Partitions: 1, ReplicationFactor: 1,
		Configs: []client.NewConfig{{Name: "cleanup.policy", Value: &policy}},
	})
	require.NoError(b, err)
	topic, err := c.Renew(b.Context(), "_schemas")
	require.NoError(b, err)
	for from := 0; from < count; from += 1000 {
		var builder record.Builder
		for i := from; i < min(from+1000, count); i++ {
			builder.Append(&record.Record{
				Timestamp: time.Now().UnixMilli(),
				Key:       fmt.Appendf(nil, `{"keytype":"SCHEMA","subject":"topic-%d-value","version":1,"magic":1}`, i),
				Value:     fmt.Appendf(nil, `{"id":%d,"schema":%q}`, i+1, order(i)),
			})
		}
		results, err := c.Produce(b.Context(), client.ProduceRequest{
			Acks: client.AcksAll, Timeout: time.Minute,
			Batches: []client.Batch{{Topic: topic, Bytes: builder.Build()}},
		})
		require.NoError(b, err)
		require.NoError(b, results[0].Err)
	}
	return n
}

func order(i int) string {
	return fmt.Sprintf(`{"type":"record","name":"Order","namespace":"com.example.orders","fields":[`+
		`{"name":"id","type":"long"},{"name":"customer","type":["null","string"],"default":null},`+
		`{"name":"amount","type":"double"},{"name":"field%d","type":["null","string"],"default":null},`+
		`{"name":"created","type":{"type":"long","logicalType":"timestamp-millis"}}]}`, i)
}

// BenchmarkNodeRegister registers on a real node with 100,000 schemas, from one client and from many: a new version of
// some subject each time, with its check of compatibility.
func BenchmarkNodeRegister(b *testing.B) {
	const loaded = 100_000
	n := loadNode(b, loaded)
	r, err := schemaregistry.New(schemaregistry.Config{Client: client.New(n.Requestor(), client.Options{})})
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	defer running.Wait()
	defer cancel()
	began := time.Now()
	require.NoError(b, r.AwaitRead(b.Context()))
	b.Logf("read %d schemas in %v", loaded, time.Since(began))
	var next atomic.Int64
	for _, clients := range []int{1, 16} {
		b.Run(fmt.Sprint("clients=", clients), func(b *testing.B) {
			var mu sync.Mutex
			var took []time.Duration
			b.SetParallelism(max(clients/2, 1))
			one := func() {
				i := loaded + int(next.Add(1))
				began := time.Now()
				_, err := r.Register(ctx, fmt.Sprintf("topic-%d-value", i%loaded), schemaregistry.RegisterRequest{
					Content: schema.Content{Text: order(i)},
				})
				if err != nil {
					b.Error(err)
				}
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
			}
			if clients == 1 {
				for b.Loop() {
					one()
				}
			} else {
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						one()
					}
				})
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		})
	}
}

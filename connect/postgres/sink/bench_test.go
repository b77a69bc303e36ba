package sink_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"millrace/client"
	"millrace/connect/data"
	"millrace/connect/plugin"
)

const benchTable = "CREATE TABLE b (id bigint PRIMARY KEY, customer bigint, name text, note text, " +
	"amount numeric(12,2), ok boolean, at timestamp(3))"

var benchSchema = data.NewStruct("b",
	data.Field{Name: "id", Schema: schema(data.Int64)},
	data.Field{Name: "customer", Schema: schema(data.Int64)},
	data.Field{Name: "name", Schema: optional(data.String)},
	data.Field{Name: "note", Schema: optional(data.String)},
	data.Field{Name: "amount", Schema: named(data.Bytes, data.Decimal, "scale", "2")},
	data.Field{Name: "ok", Schema: optional(data.Boolean)},
	data.Field{Name: "at", Schema: named(data.Int64, "io.debezium.time.Timestamp")})

// benchRow is a row of about 200 bytes.
func benchRow(id int64) data.Record {
	v := data.New(benchSchema)
	v.Values = []any{id, id * 7, fmt.Sprintf("customer number %d", id), strings.Repeat("note ", 26), []byte{0x12, 0x34},
		id%2 == 0, int64(1700000000000) + id}
	return data.Record{KeySchema: idSchema, Key: idKey(id), ValueSchema: benchSchema, Value: v}
}

// benchBatches are batches over rows, each of which comes about twice in all.
func benchBatches(size int) []*plugin.SinkBatch {
	const rows = 50000
	at := tp("b", 0)
	var out []*plugin.SinkBatch
	offset := int64(0)
	for len(out)*size < 2*rows {
		b := &plugin.SinkBatch{Next: map[client.TopicPartition]int64{}}
		for range size {
			r := benchRow(offset * 7919 % rows)
			r.Topic, r.Offset = "b", offset
			b.Records = append(b.Records, &plugin.SinkRecord{Record: r, Origin: plugin.Origin{TopicPartition: at,
				Offset: offset}})
			offset++
		}
		b.Next[at] = offset
		out = append(out, b)
	}
	return out
}

// BenchmarkUpsert writes batches of 5,000 and fewer, by the sink and, for comparison, by COPY and a merge alone.
func BenchmarkUpsert(b *testing.B) {
	for _, size := range []int{500, 1000, 2000, 5000} {
		batches := benchBatches(size)
		b.Run(fmt.Sprintf("sink/%d", size), func(b *testing.B) { benchSink(b, batches, "on") })
		b.Run(fmt.Sprintf("copy/%d", size), func(b *testing.B) { benchCopy(b, batches) })
	}
}

func benchSink(b *testing.B, batches []*plugin.SinkBatch, ledger string) {
	d := newDB(b, benchTable)
	r := newRunner(b, newTopics(), settings(native, d.url, "offset.ledger", ledger))
	rows := 0
	for b.Loop() {
		require.NoError(b, r.start(context.Background()))
		b.StopTimer()
		d.exec("TRUNCATE b", "UPDATE connect.sink_offset SET next_offset = 0")
		b.StartTimer()
		require.NoError(b, r.open(context.Background(), tp("b", 0)))
		for _, batch := range batches {
			require.NoError(b, r.task.Put(context.Background(), batch))
			rows += len(batch.Records)
		}
		r.stop()
	}
	b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
}

// benchCopy is the fastest way there is by hand: binary COPY to a temporary table, and a merge.
func benchCopy(b *testing.B, batches []*plugin.SinkBatch) {
	d := newDB(b, benchTable)
	ctx := context.Background()
	columns := []string{"id", "customer", "name", "note", "amount", "ok", "at"}
	d.exec("CREATE TEMP TABLE s (LIKE b) ON COMMIT DELETE ROWS")
	rows := 0
	for b.Loop() {
		d.exec("TRUNCATE b")
		for _, batch := range batches {
			tx, err := d.conn.Begin(ctx)
			require.NoError(b, err)
			_, err = tx.CopyFrom(ctx, pgx.Identifier{"s"}, columns, pgx.CopyFromSlice(len(batch.Records), func(i int) (
				[]any, error) {
				v := batch.Records[i].Value.(*data.StructValue).Values
				at := v[6].(int64)
				return []any{v[0], v[1], v[2], v[3], "46.60", v[5], fmt.Sprintf("2023-11-14 22:13:%02d", at%60)}, nil
			}))
			require.NoError(b, err)
			_, err = tx.Exec(ctx, `INSERT INTO b SELECT * FROM s ON CONFLICT (id) DO UPDATE SET customer = EXCLUDED.customer,
				name = EXCLUDED.name, note = EXCLUDED.note, amount = EXCLUDED.amount, ok = EXCLUDED.ok, at = EXCLUDED.at`)
			require.NoError(b, err)
			require.NoError(b, tx.Commit(ctx))
			rows += len(batch.Records)
		}
	}
	b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
}

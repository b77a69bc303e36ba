package sink_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"millrace/connect/data"
)

// Points in time arrive as they were, whichever way they are put, over all years that the server has.
func TestTimesArriveAsTheyWere(t *testing.T) {
	const first, last = -210866803200, 9224318016000 // seconds: 4713 BC, and 294277
	d := newDB(t, "CREATE TABLE t (id bigint PRIMARY KEY, micros timestamp, nanos timestamptz, "+
		"millis timestamp, day date, words timestamptz, plain timestamp)")
	s := data.NewStruct("v", data.Field{Name: "id", Schema: schema(data.Int64)},
		data.Field{Name: "micros", Schema: named(data.Int64, "io.debezium.time.MicroTimestamp")},
		data.Field{Name: "nanos", Schema: named(data.Int64, "io.debezium.time.NanoTimestamp")},
		data.Field{Name: "millis", Schema: named(data.Int64, data.Timestamp)},
		data.Field{Name: "day", Schema: named(data.Int32, data.Date)},
		data.Field{Name: "words", Schema: named(data.String, "io.debezium.time.ZonedTimestamp")},
		data.Field{Name: "plain", Schema: optional(data.String)})
	rnd := rand.New(rand.NewPCG(5, 6))
	ts := newTopics()
	const n = 2000
	var micros, nanos, millis, days, words [n]int64
	for i := range n {
		sec := first + rnd.Int64N(last-first)
		if i%2 == 0 {
			sec = rnd.Int64N(8e9) - 4e9
		}
		millis[i] = sec*1000 + rnd.Int64N(1000)
		micros[i] = min(max(millis[i], -9223372036854775), 9223371244800000)*1000 + rnd.Int64N(1000)
		nanos[i] = (rnd.Int64N(1<<62) - 1<<61) / 1000 * 1000
		days[i] = millis[i] / 86400000
		at := time.UnixMicro(rnd.Int64N(6e16) - 3e16)
		words[i] = at.UnixMicro()
		text := at.In(time.FixedZone("", 60*(rnd.IntN(1600)-800))).Format(time.RFC3339Nano)
		v := data.New(s)
		v.Values = []any{int64(i), micros[i], nanos[i], millis[i], int32(days[i]), text, text}
		ts.add("t", 0, data.Record{KeySchema: idSchema, Key: idKey(int64(i)), ValueSchema: s, Value: v})
	}
	require.Empty(t, run(t, ts, settings(native, d.url)).reasons)
	d.exec("SET TimeZone = UTC")
	us := func(column string) string { return "(extract(epoch FROM " + column + ") * 1000000)::numeric::bigint" }
	rows, err := d.conn.Query(t.Context(), fmt.Sprintf("SELECT id, %s, %s, "+
		"(extract(epoch FROM millis) * 1000)::numeric::bigint, day - '1970-01-01', %s, %s FROM t", us("micros"), us(
		"nanos"), us("words"), us("plain")))
	require.NoError(t, err)
	var i, got0, got1, got2, got3, got4, got5 int64
	count := 0
	_, err = pgx.ForEachRow(rows, []any{&i, &got0, &got1, &got2, &got3, &got4, &got5}, func() error {
		count++
		require.Equal(t, []int64{micros[i], nanos[i] / 1000, millis[i], days[i], words[i], words[i]},
			[]int64{got0, got1, got2, got3, got4, got5})
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, n, count)
}

// A time zone moves Connect's own timestamps in columns without a zone, and nothing else.
func TestTimeZone(t *testing.T) {
	d := newDB(t, "CREATE TABLE t (id bigint PRIMARY KEY, a timestamp, b timestamptz, c time, d date, e timestamp)")
	s := data.NewStruct("v", data.Field{Name: "id", Schema: schema(data.Int64)},
		data.Field{Name: "a", Schema: named(data.Int64, data.Timestamp)},
		data.Field{Name: "b", Schema: named(data.Int64, data.Timestamp)},
		data.Field{Name: "c", Schema: named(data.Int32, data.Time)},
		data.Field{Name: "d", Schema: named(data.Int32, data.Date)},
		data.Field{Name: "e", Schema: named(data.Int64, "io.debezium.time.MicroTimestamp")})
	at := time.Date(2024, 7, 1, 2, 0, 0, 0, time.UTC)
	v := data.New(s)
	v.Values = []any{int64(1), at.UnixMilli(), at.UnixMilli(), int32(2 * 3600 * 1000), int32(at.Unix() / 86400),
		at.UnixMicro()}
	ts := newTopics()
	ts.add("t", 0, data.Record{KeySchema: idSchema, Key: idKey(1), ValueSchema: s, Value: v})
	props := settings(confluent, d.url, "insert.mode", "upsert", "pk.mode", "record_key", "db.timezone",
		"America/New_York")
	require.Empty(t, run(t, ts, props).reasons)
	d.exec("SET TimeZone = UTC")
	require.Equal(t, "1|2024-06-30 22:00:00|2024-07-01 02:00:00+00|21:00:00|2024-07-01|2024-07-01 02:00:00\n",
		d.text("SELECT * FROM t"))
}

// Numbers that a setting says are timestamps.
func TestTimestampFields(t *testing.T) {
	d := newDB(t)
	s := data.NewStruct("v", data.Field{Name: "id", Schema: schema(data.Int64)},
		data.Field{Name: "at", Schema: optional(data.Int64)})
	ts := newTopics()
	v := data.New(s).Set("id", int64(1)).Set("at", int64(1700000000123456000))
	ts.add("t", 0, data.Record{KeySchema: idSchema, Key: idKey(1), ValueSchema: s, Value: v})
	props := settings(confluent, d.url, "insert.mode", "upsert", "pk.mode", "record_key", "auto.create", "true",
		"timestamp.fields.list", "at", "timestamp.precision.mode", "nanoseconds")
	require.Empty(t, run(t, ts, props).reasons)
	require.Equal(t, "2023-11-14 22:13:20.123456\n", d.text("SELECT at FROM t"))
}

package native_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/record"
	"millrace/server/servertest"
)

// transact produces values in a transaction.
func (e *reads) transact(how kgo.TransactionEndTry, partition int32, values ...string) {
	e.t.Helper()
	p, err := kgo.NewClient(kgo.SeedBrokers(e.cluster.ListenAddrs()[0]), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.TransactionalID("tx"))
	require.NoError(e.t, err)
	defer p.Close()
	require.NoError(e.t, p.BeginTransaction())
	for _, v := range values {
		r := &kgo.Record{Topic: "t", Partition: partition, Value: []byte(v)}
		require.NoError(e.t, p.ProduceSync(e.t.Context(), r).FirstErr())
	}
	require.NoError(e.t, p.EndTransaction(e.t.Context(), how))
}

func TestReadIsolation(t *testing.T) {
	e := newReads(t, 1, "t")
	l := e.live("/v1/topics/t/records")
	dirty := e.live("/v1/topics/t/records?isolation=read_uncommitted")
	e.putValues("t", 0, 1, 1)              // offset 0
	e.transact(kgo.TryAbort, 0, "2", "3")  // 1, 2, marker 3
	e.transact(kgo.TryCommit, 0, "4", "5") // 4, 5, marker 6
	e.transact(kgo.TryAbort, 0, "6")       // 7, marker 8
	e.putValues("t", 0, 7, 1)              // 9
	e.transact(kgo.TryAbort, 0, "8", "9")  // 10, 11, marker 12
	committed, all := []string{"1", "4", "5", "7"}, []string{"1", "2", "3", "4", "5", "6", "7", "8", "9"}
	p := e.page("/v1/topics/t/records")
	require.Equal(t, committed, values(p.Records))
	require.True(t, strings.HasPrefix(p.Next, "13~"), p.Next)
	require.Equal(t, all, values(e.page("/v1/topics/t/records?isolation=read_uncommitted").Records))
	require.Equal(t, committed[:2], values(e.page("/v1/topics/t/records?max_records=2").Records))
	require.Equal(t, committed[2:], values(e.page("/v1/topics/t/records?offset=5").Records))
	require.Equal(t, committed[1:], values(e.page("/v1/topics/t/records?offset=2&max_bytes=1000").Records))
	require.Equal(t, committed, values(l.take(4)))
	require.Equal(t, all, values(dirty.take(9)))
	e.putValues("t", 0, 10, 1)
	require.Equal(t, []string{"10"}, values(l.take(1)))
	for _, from := range []string{"0", "1", "3", "4", "8", "12", "13"} {
		late := e.live("/v1/topics/t/records?offset=" + from)
		var last string
		for last != "10" {
			last = string(late.take(1)[0].Value)
		}
		require.True(t, strings.HasPrefix(late.lastID, "14~"), late.lastID)
		late.close()
	}
}

// A page goes past stretches that hold nothing for the reader, and waits only at the end.
func TestReadOverGaps(t *testing.T) {
	e := newReads(t, 1, "t")
	for range 30 {
		e.transact(kgo.TryAbort, 0, `"`+strings.Repeat("x", 1000)+`"`)
	}
	e.putValues("t", 0, 7, 1)
	p := e.page("/v1/topics/t/records?max_bytes=1")
	require.Equal(t, []string{"7"}, values(p.Records))
	require.Equal(t, int64(60), p.Records[0].Offset)
}

// failPartition makes fetches of a partition fail.
func failPartition(partition int32, err *kerr.Error, from *requestors) {
	from.after = func(resp kmsg.Response) {
		f, ok := resp.(*kmsg.FetchResponse)
		if !ok {
			return
		}
		for i := range f.Topics {
			for j := range f.Topics[i].Partitions {
				if p := &f.Topics[i].Partitions[j]; p.Partition == partition {
					p.ErrorCode, p.RecordBatches = err.Code, nil
				}
			}
		}
	}
}

// An answer that an offset is outside bounds within which it lies reaches no reader, whether the bounds come with it or
// are asked for: it is to read again, and a stream does.
func TestReadThatContradictsItself(t *testing.T) {
	for _, told := range []bool{true, false} {
		e := newReads(t, 1, "t")
		e.putValues("t", 0, 0, 3)
		outside := func(resp kmsg.Response) {
			if f, ok := resp.(*kmsg.FetchResponse); ok {
				p := &f.Topics[0].Partitions[0]
				p.ErrorCode, p.RecordBatches = kerr.OffsetOutOfRange.Code, nil
				if !told {
					p.LogStartOffset, p.HighWatermark = -1, -1
				}
			}
		}
		e.cl.after = outside
		for _, accept := range []string{"", "application/x-ndjson", "application/vnd.apache.kafka.recordbatch"} {
			for _, query := range []string{"offset=1", "offset=1&wait=1ms", "offset=3"} {
				r := e.get("/v1/topics/t/records?"+query, accept)
				require.Equal(t, 503, r.status, r.body)
				require.Contains(t, r.body, "OFFSET_NOT_AVAILABLE")
			}
		}
		if !told {
			continue // a stream is ended by what such an answer leaves open, and goes on at the next connection
		}
		refusals := 3
		e.cl.after = func(resp kmsg.Response) {
			if _, ok := resp.(*kmsg.FetchResponse); ok && refusals > 0 {
				refusals--
				outside(resp)
			}
		}
		l := e.live("/v1/topics/t/records?offset=1")
		require.Equal(t, []string{"1", "2"}, values(l.take(2)))
	}
}

// A partition that cannot be read does not hide the others, and is told when it is all that is left.
func TestReadBesideFaultyPartition(t *testing.T) {
	e := newReads(t, 3, "t")
	for p := range int32(3) {
		e.putValues("t", p, int(p)*10, 2)
	}
	failPartition(1, kerr.KafkaStorageError, e.cl)
	p := e.page("/v1/topics/t/records")
	require.ElementsMatch(t, []string{"0", "1", "20", "21"}, values(p.Records))
	require.True(t, strings.HasPrefix(p.Next, "2,0,2~"), p.Next)
	r := e.get("/v1/topics/t/records?from="+p.Next, "")
	require.Equal(t, 503, r.status)
	require.Contains(t, r.body, `"partition":1`)
}

// A stored batch that cannot be read is told with its place, after what comes before it.
func TestReadDamagedBatch(t *testing.T) {
	e := newReads(t, 1, "t")
	e.putValues("t", 0, 0, 3)
	e.cl.after = func(resp kmsg.Response) {
		f, ok := resp.(*kmsg.FetchResponse)
		if !ok {
			return
		}
		for rest := f.Topics[0].Partitions[0].RecordBatches; ; {
			b, next, err := record.Next(rest)
			if err != nil {
				return
			}
			if b.BaseOffset() == 1 {
				b[len(b)-3] = 0x7f // a length that leads nowhere
			}
			rest = next
		}
	}
	p := e.page("/v1/topics/t/records")
	require.Equal(t, []string{"0"}, values(p.Records))
	r := e.get("/v1/topics/t/records?from="+p.Next, "")
	require.Equal(t, 500, r.status)
	require.Contains(t, r.body, `"partition":0,"offset":1`)
	require.Equal(t, []string{"2"}, values(e.page("/v1/topics/t/records?offset=2").Records))
	l := e.live("/v1/topics/t/records?offset=0")
	require.Equal(t, []string{"0"}, values(l.take(1)))
	ev, err := l.next()
	require.NoError(t, err)
	require.Equal(t, "error", ev.kind)
	require.Contains(t, ev.data, `"offset":1`)
}

// What was remembered of a batch changes nothing of how it is shown.
func TestReadTwice(t *testing.T) {
	e := newReads(t, 1, "t")
	put := func(values ...string) {
		var records []*kgo.Record
		for i, v := range values {
			r := &kgo.Record{Value: []byte(v), Key: []byte(v)}
			if i == 1 {
				r.Key = nil
			}
			records = append(records, r)
		}
		e.put("t", 0, records...)
	}
	put(`1`, `{"a":[]}`, `"x"`)
	put(`1`, `text`)
	put("[1,\n2]", `3`)
	put(` 1`, `2`)
	put(`null`, `2`)
	e.put("t", 0, &kgo.Record{Value: []byte("1")}, &kgo.Record{}, &kgo.Record{Value: []byte("2")})
	for _, c := range []struct{ accept, query string }{
		{"application/json", ""}, {"application/x-ndjson", ""}, {"application/json", "?format=text"},
		{"application/json", "?format=base64&key_format=base64"}, {"application/json", "?format=json&key_format=json"},
		{"application/cloudevents-batch+json", ""}, {"application/json", "?max_records=2"},
	} {
		first := e.get("/v1/topics/t/records"+c.query, c.accept)
		require.Equal(t, http.StatusOK, first.status)
		for range 3 {
			require.Equal(t, first.body, e.get("/v1/topics/t/records"+c.query, c.accept).body)
		}
		if c.accept == "application/x-ndjson" {
			for line := range strings.Lines(first.body) {
				require.True(t, json.Valid([]byte(line)), line)
			}
		}
	}
}

// A stop ends long polls with an answer, not with a fault.
func TestReadWaitEndsOnStop(t *testing.T) {
	n := servertest.Start(t, servertest.Options{})
	e := &reads{t: t, url: n.URL(), http: n.Client}
	resp, err := e.http.Post(e.url+"/v1/topics", "application/json", strings.NewReader(`{"name":"t"}`))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	got := e.later("/v1/topics/t/records?wait=60s")
	until(t, func() bool { return strings.Contains(e.get("/metrics", "").body, "streams 1") })
	n.Stop()
	r := got()
	require.Equal(t, http.StatusOK, r.status, r.body)
	require.Contains(t, r.body, `{"records":[],"next":"0~`)
}

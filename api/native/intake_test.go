package native

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/api"
	"millrace/client"
	"millrace/record"
)

// FuzzProduceBody reads any body in any form: it never panics, and what it takes is what encoding/json
// finds in the same body.
func FuzzProduceBody(f *testing.F) {
	for _, seed := range []string{
		`{"a":1}`, "1\n{\"b\": [2]}\n\nnull", `[{"key":1,"value_text":"x","headers":[{"name":"a","value_base64":"AA=="}]}]`,
		`[{"timestamp":"2026-01-02T03:04:05Z","partition":3}]`, "\xff", `[{"value_base64":"AAAA"},{}]`,
		`{"specversion":"1.0","id":"a","source":"/","type":"t","partitionkey":"k","data":{}}`,
	} {
		for form := range bodyBatches {
			f.Add([]byte(seed), uint8(form))
		}
	}
	var none kmsg.Requestor
	edge, err := api.NewEdge(api.Options{
		Client: client.New(none, client.Options{}), Pool: record.NewPool(1 << 20), Limits: api.Limits{Records: 100},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte, form uint8) {
		q := produceRequest{topic: "t", partition: client.AnyPartition, form: bodyForm(form) % bodyBatches}
		r := httptest.NewRequest("POST", "/", strings.NewReader(string(data)))
		body, err := edge.ReadBody(httptest.NewRecorder(), r, 0)
		require.NoError(t, err)
		defer body.Free()
		var in intake
		in.begin(edge, &q, &body)
		if err := in.read(); err != nil {
			require.Less(t, api.FromError(err).Fault.Status, 500, "%v", err)
			return
		}
		require.LessOrEqual(t, len(in.records), 100)
		require.Len(t, in.partitions, len(in.records))
		checkAgainstLibrary(t, q.form, data, in.records)
	})
}

// checkAgainstLibrary compares the records with what encoding/json makes of the body.
func checkAgainstLibrary(t *testing.T, form bodyForm, data []byte, records []record.Record) {
	t.Helper()
	switch form {
	case bodyText, bodyBytes:
		require.Equal(t, string(data), string(records[0].Value))
		return
	case bodyBinaryEvent:
		return
	case bodyJSON, bodyEvent:
		require.Len(t, records, 1)
	}
	require.True(t, utf8.Valid(data))
	if form == bodyJSONLines || form == bodyRecordLines {
		n := 0
		for line := range strings.Lines(string(data)) {
			if line = strings.TrimSpace(line); line != "" {
				require.True(t, json.Valid([]byte(line)), "%q", line)
				n++
			}
		}
		require.Len(t, records, n)
		return
	}
	require.True(t, json.Valid(data))
	if form == bodyRecords || form == bodyEvents {
		var elements []json.RawMessage
		require.NoError(t, json.Unmarshal(data, &elements))
		require.Len(t, records, len(elements))
	}
}

// What a request does not say.
func TestProduceRequestDefaults(t *testing.T) {
	q := produceRequest{topic: "t"}
	now := time.UnixMilli(1767323045678)
	r := httptest.NewRequest("POST", "/v1/topics/t/records", nil)
	require.NoError(t, q.parse(r, func() time.Time { return now }))
	require.Equal(t, now.UnixMilli(), q.timestamp)
	require.Equal(t, client.AcksAll, q.acks)
	require.Equal(t, client.AnyPartition, q.partition)
}

func TestRoomIsNotShared(t *testing.T) {
	edge, err := api.NewEdge(api.Options{Client: client.New(nil, client.Options{}), Pool: record.NewPool(1 << 20)})
	require.NoError(t, err)
	body, err := edge.ReadBody(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader("abc")), 0)
	require.NoError(t, err)
	defer body.Free()
	var in intake
	in.begin(edge, &produceRequest{}, &body)
	var parts [][]byte
	for i := range 100 {
		p := in.room(i * 7)
		for k := range p {
			p[k] = byte(i)
		}
		require.Equal(t, len(p), cap(p))
		parts = append(parts, p)
	}
	for i, p := range parts {
		for _, b := range p {
			require.Equal(t, byte(i), b)
		}
	}
}

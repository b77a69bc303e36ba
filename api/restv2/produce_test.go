package restv2_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/record"
)

func TestProduceJSONStoresTheTextSent(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		before := time.Now().UnixMilli()
		got := f.produced("/topics/orders/partitions/2", jsonType, `{"records":[
		{"key":"k","value":{"a": [1, 2],
			"b" : "x y"}},
		{"value":12345678901234567890123},
		{"key":null,"value":null},
		{},
		{"key":"","value":"\u0041\n"},
		{"value":1.0e2},
		{"value":{"d":1,"d":2}},
		{"key": [ ] ,"value":"naïve ☃ 𝄞"}
	]}`)
		require.Len(t, got, 8)
		for i, o := range got {
			require.Equal(t, int32(2), *o.Partition)
			require.Equal(t, int64(i), *o.Offset)
			require.Nil(t, o.ErrorCode)
			require.Nil(t, o.Error)
		}
		want := []record.Record{
			{Key: []byte(`"k"`), Value: []byte(`{"a":[1,2],"b":"x y"}`)},
			{Value: []byte(`12345678901234567890123`)},
			{}, {},
			{Key: []byte(`""`), Value: []byte(`"\u0041\n"`)},
			{Value: []byte(`1.0e2`)},
			{Value: []byte(`{"d":1,"d":2}`)},
			{Key: []byte(`[]`), Value: []byte(`"naïve ☃ 𝄞"`)},
		}
		for i, r := range f.stored("orders", 2) {
			require.GreaterOrEqual(t, r.Timestamp, before)
			require.Equal(t, want[i].Key, r.Key)
			require.Equal(t, want[i].Value, r.Value)
		}
	})
}

func TestProduceBinaryStoresTheBytes(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		escaped := strings.ReplaceAll(base64.StdEncoding.EncodeToString([]byte("\xff\xef\xbf?>")), "/", `\/`)
		for _, contentType := range []string{binaryType, genericType} {
			f.produced("/topics/orders/partitions/0", contentType,
				`{"records":[{"key":"a2V5","value":"dmFsdWU="},{"key":"","value":null},{"value":"`+escaped+`"}]}`)
		}
		got := f.stored("orders", 0)
		require.Len(t, got, 6)
		require.Equal(t, "key", string(got[0].Key))
		require.Equal(t, "value", string(got[0].Value))
		require.Equal(t, []byte{}, got[1].Key)
		require.Nil(t, got[1].Value)
		require.Equal(t, "\xff\xef\xbf?>", string(got[2].Value))
		require.Equal(t, "key", string(got[3].Key))
	})
}

func TestProducePlacesRecords(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		got := f.produced("/topics/orders", jsonType,
			`{"records":[{"key":"a","value":1},{"value":2,"partition":1},{"key":"a","value":3},{"value":4},{"value":5}]}`)
		byKey := record.KeyPartition([]byte(`"a"`), 3)
		require.Equal(t, byKey, *got[0].Partition)
		require.Equal(t, int32(1), *got[1].Partition)
		require.Equal(t, byKey, *got[2].Partition)
		require.Equal(t, *got[3].Partition, *got[4].Partition, "keyless records of one request stay together")

		got = f.produced("/topics/orders/partitions/0", jsonType,
			`{"records":[{"key":"a","value":1},{"value":2,"partition":2}]}`)
		require.Equal(t, int32(0), *got[0].Partition)
		require.Equal(t, int32(2), *got[1].Partition)
	})
}

func TestProduceSendsOneBatchAPartition(t *testing.T) {
	f := start(t)
	batches := 0
	f.cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.cluster.KeepControl()
		for _, topic := range req.(*kmsg.ProduceRequest).Topics {
			batches += len(topic.Partitions)
		}
		return nil, nil, false
	})
	var records []string
	for i := range 300 {
		records = append(records, fmt.Sprintf(`{"value":%d,"partition":%d}`, i, i%3))
	}
	got := f.produced("/topics/orders", jsonType, `{"records":[`+strings.Join(records, ",")+`]}`)
	require.Equal(t, 3, batches)
	for i, o := range got {
		require.Equal(t, int32(i%3), *o.Partition)
		require.Equal(t, int64(i/3), *o.Offset)
	}
}

func TestProduceCreatesTopics(t *testing.T) {
	f := start(t, kfake.AllowAutoTopicCreation())
	got := f.produced("/topics/fresh", jsonType, `{"records":[{"value":1}]}`)
	require.Equal(t, int64(0), *got[0].Offset)
}

func TestProduceAnswersFaultsByRecord(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		for _, c := range []struct {
			name, path, body string
			codes            []int // 0: stored
		}{
			{"illegal topic", "/topics/a%20b", `{"records":[{"value":1}]}`, []int{50002}},
			{"unknown partition", "/topics/orders",
				`{"records":[{"value":1,"partition":7},{"value":2,"partition":0}]}`, []int{50003, 0}},
			{"unknown partition in the path", "/topics/orders/partitions/7", `{"records":[{"value":1}]}`, []int{50003}},
			{"too large", "/topics/orders", `{"records":[{"value":1,"partition":0},{"value":"` +
				strings.Repeat("x", 2<<20) + `","partition":1}]}`, []int{0, 50002}},
		} {
			t.Run(c.name, func(t *testing.T) {
				f := *f
				f.t = t
				got := f.produced(c.path, jsonType, c.body)
				require.Len(t, got, len(c.codes))
				for i, code := range c.codes {
					if code == 0 {
						require.Nil(t, got[i].ErrorCode)
						require.NotNil(t, got[i].Offset)
						continue
					}
					require.Equal(t, code, *got[i].ErrorCode, *got[i].Error)
					require.NotEmpty(t, *got[i].Error)
					require.Nil(t, got[i].Offset)
					require.Nil(t, got[i].Partition)
				}
			})
		}
	})
}

// Records that share a batch share its fate; which one is at fault is told by its place in the request.
func TestProduceNamesRecordsByTheirPlace(t *testing.T) {
	f := startNode(t)
	compact := "compact"
	_, err := f.client.CreateTopic(t.Context(), client.NewTopic{
		Name: "latest", Partitions: 1, ReplicationFactor: -1,
		Configs: []client.NewConfig{{Name: "cleanup.policy", Value: &compact}},
	})
	require.NoError(t, err)
	got := f.produced("/topics/latest", jsonType, `{"records":[{"partition":9},{"key":1},{"value":2},{"key":3}]}`)
	require.Contains(t, *got[0].Error, "partition 0 only")
	require.Contains(t, *got[1].Error, "Not stored, since record 2 was refused: a compacted topic's records need a key")
	require.Contains(t, *got[2].Error, "A compacted topic's records need a key")
	require.Equal(t, *got[1].Error, *got[3].Error)
}

func TestProduceToATopicThatIsNotCreated(t *testing.T) {
	f := start(t)
	for _, o := range f.produced("/topics/none", jsonType, `{"records":[{"value":1},{"value":2}]}`) {
		require.Equal(t, 50003, *o.ErrorCode)
	}
}

func TestProduceStatusTellsALackOfRights(t *testing.T) {
	for _, c := range []struct {
		err          *kerr.Error
		status, code int
	}{
		{kerr.TopicAuthorizationFailed, 403, 40301},
		{kerr.SaslAuthenticationFailed, 401, 40101},
		{kerr.NotEnoughReplicas, 200, 50003},
		{kerr.InvalidTimestamp, 200, 50002},
	} {
		t.Run(c.err.Message, func(t *testing.T) {
			f := start(t)
			f.cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
				f.cluster.KeepControl()
				resp := req.ResponseKind().(*kmsg.ProduceResponse)
				for _, from := range req.(*kmsg.ProduceRequest).Topics {
					to := kmsg.NewProduceResponseTopic()
					to.Topic, to.TopicID = from.Topic, from.TopicID
					for _, p := range from.Partitions {
						rp := kmsg.NewProduceResponseTopicPartition()
						if rp.Partition = p.Partition; p.Partition == 1 {
							rp.ErrorCode = c.err.Code
						}
						to.Partitions = append(to.Partitions, rp)
					}
					resp.Topics = append(resp.Topics, to)
				}
				return resp, nil, true
			})
			a := f.call("POST", "/topics/orders", jsonType, `{"records":[{"value":1,"partition":0},{"value":2,"partition":1}]}`)
			require.Equal(t, c.status, a.status, a.text)
			require.Contains(t, a.text, fmt.Sprintf(`"error_code":%d`, c.code))
			require.Contains(t, a.text, `{"partition":0,"offset":0,"error_code":null,"error":null}`)
		})
	}
}

func TestProduceRefusesBodies(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		deep := strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001)
		for _, c := range []struct {
			name, contentType, body string
			status, code            int
			text                    string
		}{
			{"empty", jsonType, ``, 422, 422, "empty"},
			{"blank", jsonType, "\n ", 422, 422, "empty"},
			{"null", jsonType, `null`, 422, 422, "empty"},
			{"array", jsonType, `[]`, 400, 400, "object"},
			{"no records", jsonType, `{}`, 422, 422, "records"},
			{"null records", jsonType, `{"records":null}`, 422, 422, "records"},
			{"empty records", jsonType, `{"records":[]}`, 422, 422, "records"},
			{"records not an array", jsonType, `{"records":{}}`, 400, 400, "array"},
			{"record not an object", jsonType, `{"records":[1]}`, 400, 400, "object"},
			{"cut", jsonType, `{"records":[{"value":1}`, 400, 400, "ends too early"},
			{"not JSON", jsonType, `{"records":[{"value":tru}]}`, 400, 400, "byte"},
			{"text behind", jsonType, `{"records":[{"value":1}]}{}`, 400, 400, "after the value"},
			{"unknown field", jsonType, `{"records":[{"value":1}],"headers":[]}`, 422, 422, "Unrecognized field: headers"},
			{"unknown field of a record", jsonType,
				`{"records":[{"value":1,"timestamp":1}]}`, 422, 422, "Unrecognized field: timestamp"},
			{"other case", jsonType, `{"Records":[{"value":1}]}`, 422, 422, "Unrecognized field: Records"},
			{"records twice", jsonType,
				`{"records":[{"value":1}],"records":[{"value":1}]}`, 400, 400, "Duplicate field: records"},
			{"value twice", jsonType, `{"records":[{"value":1,"value":2}]}`, 400, 400, "Duplicate field: value"},
			{"schema a number", jsonType, `{"key_schema":1,"records":[{"value":1}]}`, 400, 400, "key_schema=1 is not a string"},
			{"schema id a text", jsonType, `{"value_schema_id":"1","records":[{"value":1}]}`, 400, 400, "value_schema_id"},
			{"schema id too large", jsonType, `{"key_schema_id":2147483648,"records":[{"value":1}]}`, 400, 400, "32-bit"},
			{"partition text", jsonType, `{"records":[{"value":1,"partition":"0"}]}`, 400, 400, "partition"},
			{"partition fraction", jsonType, `{"records":[{"value":1,"partition":0.5}]}`, 400, 400, "partition"},
			{"partition too large", jsonType, `{"records":[{"value":1,"partition":4294967296}]}`, 400, 400, "partition"},
			{"partition negative", jsonType, `{"records":[{"value":1,"partition":-1}]}`, 404, 40402, "Partition not found"},
			{"not UTF-8", jsonType, "{\"records\":[{\"value\":\"\xff\"}]}", 400, 400, "UTF-8"},
			{"too deep", jsonType, `{"records":[{"value":` + deep + `}]}`, 400, 400, "nested too deeply"},
			{"not base64", binaryType, `{"records":[{"value":"a"},{"value":"YQ=="}]}`, 400, 400, "base64"},
			{"base64 of another alphabet", binaryType, `{"records":[{"value":"_-8="}]}`, 400, 400, "base64"},
			{"number as binary", binaryType, `{"records":[{"value":1}]}`, 400, 400, "1 is not a base64 string"},
			{"object as binary key", binaryType, `{"records":[{"key":{}}]}`, 400, 400, "base64"},
			{"surrogate in base64", binaryType, `{"records":[{"value":"\ud800"}]}`, 400, 400, "base64"},
		} {
			t.Run(c.name, func(t *testing.T) {
				f := *f
				f.t = t
				f.refused(f.call("POST", "/topics/orders", c.contentType, c.body), c.status, c.code, c.text)
			})
		}
		for p := range int32(3) {
			require.Empty(t, f.stored("orders", p), "nothing of a refused body is stored")
		}
		for _, path := range []string{"/topics/orders/partitions/x", "/topics/orders/partitions/1.5"} {
			f.refused(f.call("POST", path, jsonType, `{"records":[{"value":1}]}`), 404, 404, "not a number")
		}
		f.refused(f.call("POST", "/topics/orders/partitions/-1", jsonType, `{"records":[{"value":1}]}`), 404, 40402, "")
	})
}

func TestProduceBoundsRecords(t *testing.T) {
	f := start(t)
	body := `{"records":[` + strings.Repeat(`{"value":1},`, 9_999) + `{"value":1}]}`
	require.Len(t, f.produced("/topics/orders", jsonType, body), 10_000)
	body = `{"records":[` + strings.Repeat(`{"value":1},`, 10_000) + `{"value":1}]}`
	f.refused(f.call("POST", "/topics/orders", jsonType, body), 413, 413, "10000 records")
}

func TestProduceNegotiates(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		body := `{"records":[{"value":null}]}`
		for _, c := range []struct {
			contentType string
			status      int
		}{
			{jsonType, 200}, {binaryType, 200}, {genericType, 200},
			{jsonType + "; charset=utf-8", 200}, {"Application/VND.kafka.JSON.v2+json", 200},
			{"application/json", 415}, {"", 415}, {"text/plain", 415}, {"application/vnd.kafka.v1+json", 415},
			{"application/vnd.kafka.json.v1+json", 415}, {"application/x-www-form-urlencoded", 415},
		} {
			a := f.call("POST", "/topics/orders", c.contentType, body)
			require.Equal(t, c.status, a.status, c.contentType)
			if c.status == 415 {
				f.refused(a, 415, 415, "HTTP 415 Unsupported Media Type")
			}
		}
		for _, schema := range []string{"avro", "jsonschema", "protobuf"} {
			a := f.call("POST", "/topics/orders", "application/vnd.kafka."+schema+".v2+json", body)
			if f.cluster != nil { // a foreign cluster, beside which no registry runs here
				f.refused(a, 415, 415, "schema registry")
			}
		}
		f.refused(f.call("POST", "/topics/orders", jsonType, body, "Accept", "text/html"), 406, 406, "")
	})
}

// More than fits in one batch goes out in several, in order; a partition's records stay in theirs.
func TestProduceSplitsLargeRequests(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		value := strings.Repeat("x", 600_000)
		var records []string
		for i := range 5 {
			records = append(records, fmt.Sprintf(`{"value":"%d%s","partition":0}`, i, value))
		}
		got := f.produced("/topics/orders", jsonType, `{"records":[`+strings.Join(records, ",")+`]}`)
		stored := f.stored("orders", 0)
		require.Len(t, stored, 5)
		for i, o := range got {
			require.Equal(t, int64(i), *o.Offset)
			require.Equal(t, byte('0'+i), stored[i].Value[1])
		}
	})
}

func TestProduceExpandsBodies(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, err := z.Write([]byte(`{"records":[{"value":"packed","partition":0}]}`))
		require.NoError(t, err)
		require.NoError(t, z.Close())
		a := f.call("POST", "/topics/orders", jsonType, packed.String(), "Content-Encoding", "gzip")
		require.Equal(t, 200, a.status, a.text)
		require.Equal(t, `"packed"`, string(f.stored("orders", 0)[0].Value))
		f.refused(f.call("POST", "/topics/orders", jsonType, "zzz", "Content-Encoding", "gzip"), 400, 400, "gzip")
		f.refused(f.call("POST", "/topics/orders", jsonType, "{}", "Content-Encoding", "br"), 415, 415, "")
	})
}

func TestProduceKeepsLargeKeys(t *testing.T) {
	f := start(t, kfake.BrokerConfigs(map[string]string{"message.max.bytes": "8000000"}))
	key := `"` + strings.Repeat("k", 1<<20) + `"`
	f.produced("/topics/orders/partitions/0", jsonType, `{"records":[{"key":`+key+`,"value":1}]}`)
	require.Equal(t, key, string(f.stored("orders", 0)[0].Key))
}

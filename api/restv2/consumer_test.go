package restv2_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/client"
)

// post makes a call with a body of the generic type.
func (f *fixture) post(path, body string) answer {
	f.t.Helper()
	if body == "" {
		return f.call("POST", path, "", "")
	}
	return f.call("POST", path, genericType, body)
}

// created makes an instance and gives its path.
func (f *fixture) created(group, body string) string {
	f.t.Helper()
	a := f.post("/consumers/"+url.PathEscape(group), body)
	require.Equal(f.t, 200, a.status, a.text)
	require.Equal(f.t, genericType, a.header.Get("Content-Type"))
	var out struct {
		ID  string `json:"instance_id"`
		URI string `json:"base_uri"`
	}
	a.decode(f.t, &out)
	path := "/consumers/" + url.PathEscape(group) + "/instances/" + url.PathEscape(out.ID)
	require.Equal(f.t, f.url+path, out.URI)
	return path
}

// done requires a call without anything to tell.
func (f *fixture) done(a answer) {
	f.t.Helper()
	require.Equal(f.t, 204, a.status, a.text)
	require.Empty(f.t, a.text)
}

func (f *fixture) subscribed(group, body string, topics ...string) string {
	f.t.Helper()
	path := f.created(group, body)
	list, err := json.Marshal(topics)
	require.NoError(f.t, err)
	f.done(f.post(path+"/subscription", `{"topics":`+string(list)+`}`))
	return path
}

// given is one record of a read.
type given struct {
	Topic       string
	Key, Value  json.RawMessage
	Partition   int32
	Offset      int64
	DecodeError string `json:"decode_error"`
}

func (f *fixture) read(path string, header ...string) []given {
	f.t.Helper()
	a := f.get(path, header...)
	require.Equal(f.t, 200, a.status, a.text)
	var out []given
	a.decode(f.t, &out)
	require.NotNil(f.t, out, a.text)
	return out
}

// readAll reads until so many records came.
func (f *fixture) readAll(path string, n int) []given {
	f.t.Helper()
	var out []given
	for len(out) < n {
		got := f.read(path + "/records?timeout=1000")
		require.NotEmpty(f.t, got, "%d of %d records", len(out), n)
		out = append(out, got...)
	}
	require.Len(f.t, out, n)
	return out
}

// store stores JSON values in partition 0 of a topic.
func (f *fixture) store(topic string, values ...string) {
	f.t.Helper()
	var records []string
	for _, v := range values {
		records = append(records, `{"value":`+v+`}`)
	}
	body := `{"records":[` + strings.Join(records, ",") + `]}`
	for _, o := range f.produced("/topics/"+topic+"/partitions/0", jsonType, body) {
		require.Nil(f.t, o.Error)
	}
}

func values(list []given) []string {
	out := []string{}
	for _, g := range list {
		out = append(out, string(g.Value))
	}
	return out
}

func offsets(list []given) []int64 {
	out := []int64{}
	for _, g := range list {
		out = append(out, g.Offset)
	}
	return out
}

const earliestJSON = `{"format":"json","auto.offset.reset":"earliest","auto.commit.enable":"false"}`

func TestConsumerCreate(t *testing.T) {
	f := startNode(t)
	for name, c := range map[string]struct {
		body string
		id   string // what it begins with
	}{
		"no body":            {"", "rest-consumer-"},
		"null":               {"null", "rest-consumer-"},
		"nothing":            {"{}", "rest-consumer-"},
		"a name":             {`{"name":"n1"}`, "n1"},
		"an id":              {`{"id":"i1"}`, "i1"},
		"the id wins":        {`{"name":"n2","id":"i2"}`, "i2"},
		"an odd name":        {`{"name":"a b/c%2F?ü🙂"}`, "a b/c%2F?ü🙂"},
		"binary":             {`{"format":"BINARY"}`, ""},
		"json":               {`{"format":"Json"}`, ""},
		"earliest":           {`{"auto.offset.reset":"earliest"}`, ""},
		"none":               {`{"auto.offset.reset":"none"}`, ""},
		"commit as text":     {`{"auto.commit.enable":"false"}`, ""},
		"commit as a bool":   {`{"auto.commit.enable":true}`, ""},
		"least bytes":        {`{"fetch.min.bytes":-1}`, ""},
		"most bytes":         {`{"fetch.min.bytes":10000000}`, ""},
		"bytes as text":      {`{"fetch.min.bytes":"1024"}`, ""},
		"bytes by the alias": {`{"responseMinBytes":1}`, ""},
		"a timeout":          {`{"consumer.request.timeout.ms":3000}`, ""},
		"a timeout as text":  {`{"consumer.request.timeout.ms":"3000"}`, ""},
		"the alias":          {`{"requestWaitMs":100}`, ""},
		"all null": {`{"name":null,"id":null,"format":null,"auto.offset.reset":null,"auto.commit.enable":null,` +
			`"fetch.min.bytes":null,"consumer.request.timeout.ms":null}`, "rest-consumer-"},
	} {
		t.Run(name, func(t *testing.T) {
			path := (&fixture{t: t, url: f.url, http: f.http}).created("g", c.body)
			id, err := url.PathUnescape(path[strings.LastIndexByte(path, '/')+1:])
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(id, c.id), id)
			f.done(f.call("DELETE", path, "", ""))
		})
	}
}

func TestConsumerCreateRefusals(t *testing.T) {
	f := startNode(t)
	for body, want := range map[string]struct {
		status, code int
		part         string
	}{
		`{"format":"string"}`:                         {422, 422, "Invalid format type."},
		`{"format":"xml"}`:                            {422, 422, "Invalid format type."},
		`{"format":""}`:                               {422, 422, "Invalid format type."},
		`{"format":"avr"}`:                            {422, 422, "avro, jsonschema or protobuf"},
		`{"auto.offset.reset":"first"}`:               {422, 42204, "auto.offset.reset"},
		`{"auto.commit.enable":"maybe"}`:              {422, 42204, "auto.commit.enable"},
		`{"auto.commit.enable":1}`:                    {422, 42204, "auto.commit.enable"},
		`{"fetch.min.bytes":-2}`:                      {422, 40001, "fetch.min.bytes"},
		`{"fetch.min.bytes":10000001}`:                {422, 40001, "fetch.min.bytes"},
		`{"fetch.min.bytes":"many"}`:                  {422, 40001, "fetch.min.bytes"},
		`{"responseMinBytes":1.5}`:                    {422, 40001, "fetch.min.bytes"},
		`{"consumer.request.timeout.ms":-1}`:          {422, 42204, "consumer.request.timeout.ms"},
		`{"requestWaitMs":"soon"}`:                    {422, 42204, "consumer.request.timeout.ms"},
		`{"name":""}`:                                 {422, 42204, "name"},
		`{"name":".."}`:                               {422, 42204, "name"},
		`{"id":"` + strings.Repeat("x", 256) + `"}`:   {422, 42204, "name"},
		`{"auto.commit.interval.ms":1}`:               {422, 422, "auto.commit.interval.ms"},
		`{"name":"a","name":"b"}`:                     {400, 400, "twice"},
		`{"name":1}`:                                  {400, 400, "name"},
		`{`:                                           {400, 400, ""},
		`[]`:                                          {400, 400, ""},
		`{"name":"x"} y`:                              {400, 400, ""},
		`{"name":"\ud800"}`:                           {400, 400, "surrogate"},
		`{"consumer.request.timeout.ms":{"a":[1,2]}}`: {422, 42204, ""},
	} {
		f.refused(f.post("/consumers/g", body), want.status, want.code, want.part)
	}
	f.refused(f.call("POST", "/consumers/g", "application/json", `{}`), 415, 415, genericType)
	f.refused(f.call("POST", "/consumers/g", "application/vnd.kafka.v1+json", `{}`), 415, 415, genericType)
	f.refused(f.call("POST", "/consumers/g", "", `{}`), 415, 415, genericType)
	f.refused(f.call("POST", "/consumers/g", genericType, `{}`, "Accept", "text/plain"), 406, 406, genericType)
	f.refused(f.post("/consumers/"+strings.Repeat("g", 256), ""), 422, 422, "group id")
	f.refused(f.post("/consumers/%ff", ""), 422, 422, "group id")
	a := f.call("POST", "/consumers/g", jsonType+"; charset=utf-8", `{}`, "Accept", jsonType)
	require.Equal(t, 200, a.status, a.text)
	require.Equal(t, jsonType, a.header.Get("Content-Type"))

	f.created("g", `{"name":"c1"}`)
	f.refused(f.post("/consumers/g", `{"name":"c1"}`), 409, 40902, "already exists")
	f.refused(f.post("/consumers/g", `{"id":"c1"}`), 409, 40902, "already exists")
	f.created("other", `{"name":"c1"}`)
}

// Every call on an instance that is not there says so, whichever way it is not.
func TestConsumerNotFound(t *testing.T) {
	f := startNode(t)
	f.created("g", `{"name":"c1"}`)
	gone := f.created("g", `{"name":"gone"}`)
	f.done(f.call("DELETE", gone, "", ""))
	joined := f.get("/v1/groups/g/records?topics=orders&member=native&wait=0s")
	require.Equal(t, 200, joined.status, joined.text)
	for _, path := range []string{
		gone, "/consumers/g/instances/never", "/consumers/other/instances/c1", "/consumers/g/instances/native",
	} {
		for _, call := range []struct{ method, path, body string }{
			{"DELETE", "", ""},
			{"POST", "/subscription", `{"topics":["orders"]}`}, {"GET", "/subscription", ""}, {"DELETE", "/subscription", ""},
			{"POST", "/assignments", `{"partitions":[]}`}, {"GET", "/assignments", ""},
			{"POST", "/positions", `{"offsets":[]}`}, {"POST", "/positions/beginning", `{"partitions":[]}`},
			{"POST", "/positions/end", `{"partitions":[]}`},
			{"GET", "/records", ""}, {"POST", "/offsets", ""}, {"GET", "/offsets", ""},
		} {
			t.Run(call.method+" "+path+call.path, func(t *testing.T) {
				f.refused(f.call(call.method, path+call.path, genericType, call.body), 404, 40403, "Consumer instance not found.")
			})
		}
	}
}

func TestConsumerLifeCycle(t *testing.T) {
	f := startNode(t)
	f.store("orders", `{"n": 1}`, `[2]`, `"three"`)
	c := f.created("g", `{"name":"c1","format":"json","auto.offset.reset":"earliest"}`)
	require.JSONEq(t, `{"topics":[]}`, f.get(c+"/subscription").text)
	require.JSONEq(t, `{"partitions":[]}`, f.get(c+"/assignments").text)
	f.done(f.post(c+"/subscription", `{"topics":["orders"]}`))
	require.JSONEq(t, `{"topics":["orders"]}`, f.get(c+"/subscription").text)

	got := f.read(c + "/records") // the first read has its partitions
	require.Equal(t, []string{`{"n":1}`, `[2]`, `"three"`}, values(got))
	require.Equal(t, []int64{0, 1, 2}, offsets(got))
	require.Equal(t, "orders", got[0].Topic)
	require.Equal(t, "null", string(got[0].Key))
	require.Equal(t, `{"partitions":[{"topic":"orders","partition":0},{"topic":"orders","partition":1},`+
		`{"topic":"orders","partition":2}]}`, f.get(c+"/assignments").text)
	require.Empty(t, f.read(c+"/records?timeout=20"))
	f.store("orders", `4`)
	require.Equal(t, []int64{3}, offsets(f.read(c+"/records")))
	f.done(f.call("DELETE", c, "", ""))

	next := f.subscribed("g", `{"format":"json","auto.offset.reset":"earliest"}`, "orders")
	f.store("orders", `5`)
	require.Equal(t, []string{`5`}, values(f.readAll(next, 1)), "the group goes on where the deleted instance was")
}

func TestConsumerSubscription(t *testing.T) {
	f := startNode(t, "order-a", "order-b", "reorder-c")
	c := f.created("g", "")
	f.done(f.post(c+"/subscription", `{"topics":["later","orders"]}`))
	require.JSONEq(t, `{"topics":["later","orders"]}`, f.get(c+"/subscription").text)
	f.done(f.post(c+"/subscription", `{"topics":["orders"],"topic_pattern":"("}`)) // topics win
	f.refused(f.post(c+"/subscription", `{"topic_pattern":"o.*"}`), 409, 40903, "mutually exclusive")
	f.refused(f.post(c+"/assignments", `{"partitions":[{"topic":"orders","partition":0}]}`), 409, 40903, "mutually")
	f.done(f.call("DELETE", c+"/subscription", "", ""))
	require.JSONEq(t, `{"topics":[]}`, f.get(c+"/subscription").text)
	f.refused(f.get(c+"/records"), 409, 40903, "neither a subscription nor assigned")

	f.done(f.post(c+"/subscription", `{"topic_pattern":"^order-.*"}`))
	require.JSONEq(t, `{"topics":["order-a","order-b"]}`, f.get(c+"/subscription").text)
	require.Eventually(t, func() bool {
		return f.get(c+"/assignments").text == `{"partitions":[{"topic":"order-a","partition":0},`+
			`{"topic":"order-b","partition":0}]}`
	}, time.Minute, 20*time.Millisecond)
	f.refused(f.post(c+"/subscription", `{"topics":["orders"]}`), 409, 40903, "mutually exclusive")
	f.done(f.post(c+"/subscription", `{"topics":[]}`))

	f.done(f.post(c+"/assignments", `{"partitions":[{"topic":"orders","partition":1}]}`))
	require.JSONEq(t, `{"partitions":[{"topic":"orders","partition":1}]}`, f.get(c+"/assignments").text)
	f.refused(f.post(c+"/subscription", `{"topics":["orders"]}`), 409, 40903, "mutually exclusive")
	f.done(f.post(c+"/assignments", `{"partitions":[{"topic":"orders","partition":2},{"topic":"orders","partition":2}]}`))
	require.JSONEq(t, `{"partitions":[{"topic":"orders","partition":2}]}`, f.get(c+"/assignments").text)
	f.refused(f.post(c+"/assignments", `{"partitions":[{"topic":"nobody","partition":0}]}`), 404, 40403, "topic")
	f.refused(f.post(c+"/assignments", `{"partitions":[{"topic":"orders","partition":7}]}`), 404, 40403, "partition")
	f.done(f.post(c+"/assignments", `{"partitions":[]}`))
	f.done(f.post(c+"/subscription", `{"topics":["orders"]}`))
}

// What is wrong with a body is told before anything is done.
func TestConsumerBodies(t *testing.T) {
	f := startNode(t)
	c := f.created("g", "")
	f.done(f.post(c+"/assignments", `{"partitions":[{"topic":"orders","partition":0}]}`))
	const tp = `"topic":"orders","partition":0`
	for _, x := range []struct {
		path, body   string
		status, code int
	}{
		{"/subscription", ``, 422, 422}, {"/subscription", `{}`, 422, 422}, {"/subscription", `null`, 422, 422},
		{"/subscription", `{"topics":"orders"}`, 400, 400}, {"/subscription", `{"topics":[1]}`, 400, 400},
		{"/subscription", `{"topic_pattern":"("}`, 422, 422}, {"/subscription", `{"topic_pattern":""}`, 422, 422},
		{"/subscription", `{"topic_pattern":"a(?=b)"}`, 422, 422}, {"/subscription", `{"topic":["orders"]}`, 422, 422},
		{"/assignments", ``, 422, 422}, {"/assignments", `{}`, 422, 422}, {"/assignments", `{"partitions":null}`, 422, 422},
		{"/assignments", `{"partitions":[{"topic":"","partition":0}]}`, 422, 422},
		{"/assignments", `{"partitions":[{"topic":"orders"}]}`, 422, 422},
		{"/assignments", `{"partitions":[{"topic":"orders","partition":-1}]}`, 422, 422},
		{"/assignments", `{"partitions":[{"topic":"orders","partition":2147483648}]}`, 400, 400},
		{"/positions", ``, 422, 422}, {"/positions", `{}`, 422, 422},
		{"/positions", `{"offsets":[{` + tp + `}]}`, 422, 422},
		{"/positions", `{"offsets":[{` + tp + `,"offset":-1}]}`, 422, 422},
		{"/positions", `{"offsets":[{` + tp + `,"offset":9223372036854775808}]}`, 400, 400},
		{"/positions", `{"timestamps":[{` + tp + `}]}`, 422, 422},
		{"/positions", `{"timestamps":[{` + tp + `,"timestamp":"yesterday"}]}`, 400, 400},
		{"/positions", `{"timestamps":[{` + tp + `,"timestamp":12}]}`, 400, 400},
		{"/positions/beginning", ``, 422, 422}, {"/positions/end", `{"partitions":7}`, 400, 400},
		{"/offsets", `{}`, 422, 422}, {"/offsets", `{"offsets":[{"topic":"","partition":0,"offset":1}]}`, 422, 422},
		{"/offsets", `{"offsets":[{` + tp + `,"offset":-1}]}`, 422, 422},
		{"/offsets", `{"offsets":[{` + tp + `,"offset":9223372036854775807}]}`, 422, 422},
		{"/offsets", `{"offsets":[{"topic":"orders","partition":-1,"offset":1}]}`, 422, 422},
		{"/offsets", `{"offsets":[{"topic":"orders","partition":1,"offset":1}]}`, 500, 50002},
		{"/offsets", `{"offsets":[{` + tp + `,"offset":1,"metadata":"` + strings.Repeat("m", 5000) + `"}]}`, 500, 50002},
		{"/positions", `{"offsets":[{"topic":"orders","partition":1,"offset":1}]}`, 409, 40903},
		{"/positions", `{"timestamps":[{"topic":"orders","partition":1,"timestamp":"2026-01-02T03:04:05Z"}]}`, 409, 40903},
		{"/positions/beginning", `{"partitions":[{"topic":"orders","partition":1}]}`, 409, 40903},
		{"/positions/end", `{"partitions":[{"topic":"nobody","partition":0}]}`, 409, 40903},
	} {
		t.Run(x.path+" "+x.body[:min(len(x.body), 60)], func(t *testing.T) {
			a := f.post(c+x.path, x.body)
			f.refused(a, x.status, x.code, "")
		})
	}
	require.JSONEq(t, `{"partitions":[{"topic":"orders","partition":0}]}`, f.get(c+"/assignments").text)
	require.JSONEq(t, `{"offsets":[]}`, f.get(c+"/offsets").text)
	f.refused(f.get(c+"/records?timeout=x"), 400, 400, "timeout")
	f.refused(f.get(c+"/records?max_bytes=1e3"), 400, 400, "max_bytes")
	f.refused(f.get(c+"/records?undecodable=no"), 400, 400, "undecodable")
	f.refused(f.get(c+"/offsets?topic=orders"), 400, 400, "pairs")
	f.refused(f.get(c+"/offsets?topic=orders&partition=x"), 400, 400, "number")
	f.refused(f.get(c+"/offsets?topic=orders&partition=-1"), 422, 422, "partition")
	f.refused(f.call("PUT", c, genericType, "{}"), 405, 405, "")
	f.refused(f.get(c+"/topics/orders"), 404, 404, "")
}

func TestConsumerAccept(t *testing.T) {
	f := startNode(t)
	f.store("orders", `1`)
	c := map[string]string{}
	for _, format := range []string{"binary", "json"} {
		c[format] = f.subscribed("g-"+format, `{"format":"`+format+`","auto.offset.reset":"earliest"}`, "orders")
	}
	own := map[string]string{"binary": binaryType, "json": jsonType}
	for _, x := range []struct {
		accept       string
		binary, json int // the number, 200 for success
	}{
		{"", 200, 200}, {"*/*", 200, 200}, {"application/*", 200, 200}, {genericType, 200, 200},
		{genericType + "; q=0.5, text/html", 200, 200},
		{binaryType, 200, 40601}, {jsonType, 40601, 200}, {jsonType + ";charset=utf-8", 40601, 200},
		{jsonType + ", " + binaryType + ";q=0.1", 200, 200}, {jsonType + ", */*;q=0.1", 200, 200},
		{strings.ToUpper(jsonType), 40601, 200},
		{"application/vnd.kafka.avro.v2+json", 40601, 40601}, {"application/vnd.kafka.jsonschema.v2+json", 40601, 40601},
		{"application/vnd.kafka.protobuf.v2+json", 40601, 40601},
		{"application/json", 406, 406}, {"text/plain", 406, 406}, {"application/vnd.kafka.v1+json", 406, 406},
		{"application/vnd.kafka.binary.v1+json", 406, 406},
	} {
		for format, want := range map[string]int{"binary": x.binary, "json": x.json} {
			t.Run(format+" "+x.accept, func(t *testing.T) {
				var a answer
				if x.accept == "" {
					a = f.get(c[format] + "/records?timeout=1")
				} else {
					a = f.get(c[format]+"/records?timeout=1", "Accept", x.accept)
				}
				if want == 200 {
					require.Equal(t, 200, a.status, a.text)
					require.Equal(t, own[format], a.header.Get("Content-Type"))
					return
				}
				f.refused(a, 406, want, "")
			})
		}
	}
	for _, accept := range []string{
		genericType, "application/json", jsonType, binaryType, "*/*", "application/vnd.kafka.v1+json, application/json",
	} {
		require.Equal(t, 200, f.get(c["json"]+"/subscription", "Accept", accept).status, accept)
	}
	f.refused(f.get(c["json"]+"/subscription", "Accept", "text/html"), 406, 406, "")
}

func TestConsumerBinary(t *testing.T) {
	f := startNode(t)
	f.produced("/topics/orders/partitions/0", binaryType, `{"records":[{"key":"azE=","value":"djE="},{"value":"/v8="},`+
		`{"key":"","value":null}]}`)
	c := f.subscribed("g", `{"auto.offset.reset":"earliest"}`, "orders")
	a := f.get(c + "/records")
	require.Equal(t, `[{"topic":"orders","key":"azE=","value":"djE=","partition":0,"offset":0},`+
		`{"topic":"orders","key":null,"value":"/v8=","partition":0,"offset":1},`+
		`{"topic":"orders","key":"","value":null,"partition":0,"offset":2}]`, a.text)
	require.Equal(t, binaryType, a.header.Get("Content-Type"))
}

// A record that is not JSON stops a JSON instance before it, and nothing is skipped.
func TestConsumerUndecodable(t *testing.T) {
	f := startNode(t)
	f.store("orders", `1`, `2`)
	f.produced("/topics/orders/partitions/0", binaryType, `{"records":[{"key":"e30=","value":"eA=="}]}`) // x
	f.store("orders", `4`)
	f.produced("/topics/orders/partitions/0", binaryType, `{"records":[{"key":"aw==","value":"NQ=="}]}`) // k: 5
	c := f.subscribed("g", earliestJSON, "orders")
	require.Equal(t, []int64{0, 1}, offsets(f.read(c+"/records")))
	for range 3 {
		f.refused(f.get(c+"/records"), 408, 40801, "the value of the record at offset 2 of orders-0 is not JSON")
	}
	f.done(f.post(c+"/positions", `{"offsets":[{"topic":"orders","partition":0,"offset":3}]}`))
	require.Equal(t, []int64{3}, offsets(f.read(c+"/records")))
	f.refused(f.get(c+"/records"), 408, 40801, "the key of the record at offset 4 of orders-0 is not JSON")

	f.done(f.post(c+"/positions", `{"offsets":[{"topic":"orders","partition":0,"offset":2}]}`))
	got := f.read(c + "/records?undecodable=base64")
	require.Equal(t, []string{`"eA=="`, `4`, `5`}, values(got))
	require.Equal(t, "not JSON, and so in base64: value", got[0].DecodeError)
	require.Equal(t, "{}", string(got[0].Key))
	require.Empty(t, got[1].DecodeError)
	require.Equal(t, `"aw=="`, string(got[2].Key))
	require.Equal(t, "not JSON, and so in base64: key", got[2].DecodeError)
}

// Partitions beside one that is stuck go on, and the fault is told all the same.
func TestConsumerUndecodableBesideOthers(t *testing.T) {
	f := startNode(t)
	f.produced("/topics/orders/partitions/1", binaryType, `{"records":[{"value":"eA=="}]}`)
	c := f.subscribed("g", earliestJSON, "orders")
	told, read := 0, 0
	for i := range 12 {
		f.store("orders", fmt.Sprint(i))
		if a := f.get(c + "/records"); a.status == 200 {
			var got []given
			a.decode(t, &got)
			require.NotEmpty(t, got)
			for _, g := range got {
				require.Equal(t, int64(read), g.Offset)
				read++
			}
			continue
		} else {
			f.refused(a, 408, 40801, "offset 0 of orders-1")
			told++
		}
	}
	require.Greater(t, told, 1)
	require.Greater(t, read, 5)
}

func TestConsumerMaxBytes(t *testing.T) {
	f := startNode(t)
	big := `"` + strings.Repeat("x", 1000) + `"`
	f.store("orders", `"aaaaaaaa"`, `"bbbbbbbb"`, `"cccccccc"`, big, `1`) // 10, 10, 10, 1002 and 1 bytes
	c := f.subscribed("g", earliestJSON, "orders")
	back := func() {
		f.done(f.post(c+"/positions/beginning", `{"partitions":[]}`))
	}
	for _, x := range []struct {
		max  string
		want []int64
	}{
		{"1", []int64{0}}, {"10", []int64{0}}, {"20", []int64{0}}, {"21", []int64{0, 1}}, {"31", []int64{0, 1, 2}},
		{"0", []int64{0, 1, 2, 3, 4}}, {"-5", []int64{0, 1, 2, 3, 4}}, {"99999999999", []int64{0, 1, 2, 3, 4}},
	} {
		back()
		require.Equal(t, x.want, offsets(f.read(c+"/records?max_bytes="+x.max)), x.max)
	}
	back()
	f.read(c + "/records?max_bytes=31")
	require.Equal(t, []int64{3}, offsets(f.read(c+"/records?max_bytes=5")), "a record that is too large comes alone")
	require.Equal(t, []int64{4}, offsets(f.read(c+"/records?max_bytes=5")))
}

// A read that is to collect some bytes waits for them, and hands out what it has at the end.
func TestConsumerMinBytes(t *testing.T) {
	f := startNode(t)
	f.store("orders", `"aaaaaaaa"`)
	c := f.subscribed("g", `{"format":"json","auto.offset.reset":"earliest","fetch.min.bytes":30,`+
		`"consumer.request.timeout.ms":30000}`, "orders")
	require.Equal(t, []int64{0}, offsets(f.read(c+"/records?timeout=300")), "what there is after the wait")
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 3 {
			f.store("orders", `"bbbbbbbb"`)
		}
	})
	start := time.Now()
	require.Equal(t, []int64{1, 2, 3}, offsets(f.read(c+"/records")), "in one answer")
	require.Less(t, time.Since(start), 25*time.Second)
	wg.Wait()
	f.store("orders", `"cccccccc"`, `"dddddddd"`, `"eeeeeeee"`)
	require.Equal(t, []int64{4, 5}, offsets(f.read(c+"/records?max_bytes=25")), "the bound comes first")
}

func TestConsumerWait(t *testing.T) {
	f := startNode(t)
	for _, x := range []struct {
		config, query string
		least, most   time.Duration
	}{
		{`{}`, "", time.Second, 3 * time.Second},
		{`{}`, "?timeout=50", 50 * time.Millisecond, 900 * time.Millisecond},
		{`{}`, "?timeout=9000", time.Second, 3 * time.Second}, // the query can only shorten it
		{`{"consumer.request.timeout.ms":200}`, "?timeout=0", 200 * time.Millisecond, 900 * time.Millisecond},
		{`{"consumer.request.timeout.ms":200}`, "?timeout=-7", 200 * time.Millisecond, 900 * time.Millisecond},
		{`{"consumer.request.timeout.ms":0}`, "", 0, 900 * time.Millisecond},
	} {
		c := f.created("g", x.config)
		f.done(f.post(c+"/assignments", `{"partitions":[{"topic":"orders","partition":0}]}`))
		for took, tries := x.most, 0; took >= x.most; tries++ { // a machine may stand still now and then
			require.Less(t, tries, 20, x)
			start := time.Now()
			require.Empty(t, f.read(c+"/records"+x.query))
			took = time.Since(start)
			require.GreaterOrEqual(t, took, x.least, x)
		}
	}
	c := f.subscribed("waiting", `{"consumer.request.timeout.ms":30000,"auto.offset.reset":"earliest"}`, "orders")
	require.Empty(t, f.read(c+"/records?timeout=1"))
	var wg sync.WaitGroup
	wg.Go(func() { f.store("orders", `1`) })
	start := time.Now()
	require.Len(t, f.read(c+"/records"), 1)
	require.Less(t, time.Since(start), 25*time.Second)
	wg.Wait()
}

func TestConsumerReset(t *testing.T) {
	f := startNode(t)
	f.store("orders", `1`)
	latest := f.subscribed("latest", `{"format":"json"}`, "orders")
	require.Empty(t, f.read(latest+"/records?timeout=50"))
	f.store("orders", `2`)
	require.Equal(t, []string{`2`}, values(f.read(latest+"/records")))
	none := f.subscribed("none", `{"format":"json","auto.offset.reset":"none"}`, "orders")
	f.refused(f.get(none+"/records"), 500, 50002, "orders-0")
	f.done(f.post(none+"/positions/beginning", `{"partitions":[]}`))
	require.Equal(t, []string{`1`, `2`}, values(f.read(none+"/records")))
}

func TestConsumerPositions(t *testing.T) {
	f := startNode(t)
	at := func(ms int64) time.Time { return time.UnixMilli(1767319445678 + ms).UTC() }
	for i := range 4 { // a second apart
		a := f.call("POST", "/v1/topics/orders/records?partition=1&timestamp="+url.QueryEscape(at(int64(i)*1000).
			Format(time.RFC3339Nano)), "application/json", fmt.Sprint(i))
		require.Equal(t, 200, a.status, a.text)
	}
	c := f.subscribed("g", earliestJSON, "orders")
	const tp = `"topic":"orders","partition":1`
	position := func(path, body string, want ...int64) {
		t.Helper()
		f.done(f.post(c+path, body))
		if want == nil {
			want = []int64{}
		}
		require.Equal(t, want, offsets(f.read(c+"/records?timeout=50")), path+body)
	}
	position("/positions/end", `{"partitions":[{`+tp+`}]}`)
	position("/positions/beginning", `{"partitions":[{`+tp+`}]}`, 0, 1, 2, 3)
	position("/positions/end", `{"partitions":[]}`)
	position("/positions/beginning", `{"partitions":[]}`, 0, 1, 2, 3)
	position("/positions", `{"offsets":[{`+tp+`,"offset":2,"metadata":"m"}]}`, 2, 3)
	position("/positions", `{"offsets":[{`+tp+`,"offset":0},{`+tp+`,"offset":3}]}`, 3)
	position("/positions", `{"offsets":[{`+tp+`,"offset":4}]}`)
	position("/positions", `{"offsets":[{`+tp+`,"offset":99}]}`, 0, 1, 2, 3) // past the end: auto.offset.reset
	position("/positions", `{"offsets":[]}`)
	when := func(ms float64) string {
		return `{"timestamps":[{` + tp + `,"timestamp":"` +
			at(0).Add(time.Duration(ms*float64(time.Millisecond))).Format(time.RFC3339Nano) + `"}]}`
	}
	position("/positions", when(-5000), 0, 1, 2, 3)
	position("/positions", when(0), 0, 1, 2, 3)
	position("/positions", when(0.5), 1, 2, 3)
	position("/positions", when(1000), 1, 2, 3)
	position("/positions", when(1001), 2, 3)
	position("/positions", when(99000)) // past the end: the end
	position("/positions", `{"timestamps":[{`+tp+`,"timestamp":"2026-01-02T05:04:06.678+03:00"}]}`, 1, 2, 3)
	position("/positions", `{"offsets":[{"topic":"orders","partition":0,"offset":0}],"timestamps":[{`+tp+
		`,"timestamp":"1970-01-01T00:00:00Z"}]}`, 0, 1, 2, 3)
}

// What was fetched before a seek does not come after it.
func TestConsumerSeekDropsWhatWasThere(t *testing.T) {
	f := startNode(t)
	f.store("orders", `1`, `2`, `3`, `4`)
	c := f.subscribed("g", earliestJSON, "orders")
	require.Equal(t, []int64{0}, offsets(f.read(c+"/records?max_bytes=2")))
	f.done(f.post(c+"/positions", `{"offsets":[{"topic":"orders","partition":0,"offset":3}]}`))
	require.Equal(t, []int64{3}, offsets(f.read(c+"/records")))
}

func TestConsumerOffsets(t *testing.T) {
	f := startNode(t)
	f.store("orders", `1`, `2`, `3`)
	c := f.subscribed("g", earliestJSON, "orders")
	const tp = `"topic":"orders","partition":0`
	commit := func(path, body string) {
		t.Helper()
		a := f.post(c+path, body)
		require.Equal(t, 200, a.status, a.text)
		require.Equal(t, "[]", a.text)
		require.Equal(t, genericType, a.header.Get("Content-Type"))
	}
	require.JSONEq(t, `{"offsets":[]}`, f.get(c+"/offsets").text)
	commit("/offsets", "") // nothing was given
	require.JSONEq(t, `{"offsets":[]}`, f.get(c+"/offsets").text)
	require.Equal(t, []int64{0, 1}, offsets(f.read(c+"/records?max_bytes=3")))
	require.JSONEq(t, `{"offsets":[]}`, f.get(c+"/offsets").text, "auto.commit.enable is false")
	commit("/offsets", "") // of what was given, and no more; where nothing was, of where reading begins
	require.JSONEq(t, `{"offsets":[{`+tp+`,"offset":2,"metadata":""},{"topic":"orders","partition":1,"offset":0,`+
		`"metadata":""},{"topic":"orders","partition":2,"offset":0,"metadata":""}]}`, f.get(c+"/offsets").text)
	commit("/offsets", `{"offsets":[{`+tp+`,"offset":0,"metadata":"mine"}]}`)
	want := `{"offsets":[{` + tp + `,"offset":1,"metadata":"mine"}]}`
	require.JSONEq(t, want, f.get(c+"/offsets?topic=orders&partition=0").text)
	require.JSONEq(t, want, f.call("GET", c+"/offsets", genericType, `{"partitions":[{`+tp+`},`+
		`{"topic":"nobody","partition":0}]}`).text)
	require.JSONEq(t, want, f.get(c+"/offsets?topic=nobody&partition=2&topic=orders&partition=0").text)
	require.JSONEq(t, `{"offsets":[]}`, f.get(c+"/offsets?topic=nobody&partition=2").text)
	commit("/offsets?async=true", `{"offsets":[{`+tp+`,"offset":0},{`+tp+`,"offset":1}]}`)
	require.JSONEq(t, `{"offsets":[{`+tp+`,"offset":2,"metadata":""}]}`,
		f.get(c+"/offsets?topic=orders&partition=0").text, "the last one counts")
	commit("/offsets", `{"offsets":[]}`)
	commit("/offsets", `{"offsets":[{`+tp+`,"offset":9007199254740993}]}`)
	require.Equal(t, `{"offsets":[{`+tp+`,"offset":9007199254740994,"metadata":""}]}`,
		f.get(c+"/offsets?topic=orders&partition=0").text)
	commit("/offsets", `{"offsets":[{`+tp+`,"offset":0}]}`)
	f.done(f.call("DELETE", c, "", ""))
	next := f.subscribed("g", earliestJSON, "orders")
	require.Equal(t, []int64{1, 2}, offsets(f.read(next+"/records")), "a new instance goes on behind the commit")
}

// With auto.commit.enable what was given is committed by the next read, or when the instance is deleted.
func TestConsumerAutoCommit(t *testing.T) {
	f := startNode(t)
	f.store("orders", `1`, `2`, `3`)
	c := f.subscribed("g", `{"format":"json","auto.offset.reset":"earliest"}`, "orders")
	require.Equal(t, []int64{0}, offsets(f.read(c+"/records?max_bytes=2")))
	require.Contains(t, f.get(c+"/offsets").text, `"partition":0,"offset":0,`, "the client may not have it yet")
	require.Equal(t, []int64{1}, offsets(f.read(c+"/records?max_bytes=2")))
	require.Contains(t, f.get(c+"/offsets").text, `"partition":0,"offset":1,`)
	f.done(f.call("DELETE", c, "", ""))
	found, err := f.client.Committed(t.Context(), "g", true, client.TopicPartition{Topic: "orders"})
	require.NoError(t, err)
	require.Equal(t, int64(2), found[0].Offset)
}

// Reads of one instance at the same time share its records: each comes once.
func TestConsumerConcurrentReads(t *testing.T) {
	f := startNode(t)
	const n = 300
	var list []string
	for i := range n {
		list = append(list, fmt.Sprint(i))
	}
	f.store("orders", list...)
	c := f.subscribed("g", earliestJSON, "orders")
	seen, mu := map[int64]int{}, sync.Mutex{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				a := f.get(c + "/records?max_bytes=30&timeout=200")
				var got []given
				if a.status != 200 || json.Unmarshal([]byte(a.text), &got) != nil || len(got) == 0 {
					return
				}
				mu.Lock()
				for _, g := range got {
					seen[g.Offset]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for { // who waited for another read in vain stopped early
		got := f.read(c + "/records?timeout=400")
		if len(got) == 0 {
			break
		}
		for _, g := range got {
			seen[g.Offset]++
		}
	}
	require.Len(t, seen, n)
	for offset, times := range seen {
		require.Equal(t, 1, times, offset)
	}
}

// Two instances of a group share its partitions, and one that is deleted leaves them to the other at once.
func TestConsumerGroupShares(t *testing.T) {
	f := startNode(t)
	a := f.subscribed("g", earliestJSON, "orders")
	require.Equal(t, 3, strings.Count(f.get(a+"/assignments").text, "topic"))
	b := f.subscribed("g", earliestJSON, "orders")
	count := func(path string) int { return strings.Count(f.get(path+"/assignments").text, "topic") }
	require.Eventually(t, func() bool { return count(a)+count(b) == 3 && count(b) > 0 }, time.Minute,
		20*time.Millisecond)
	f.done(f.call("DELETE", a, "", ""))
	require.Eventually(t, func() bool { return count(b) == 3 }, time.Minute, 20*time.Millisecond)
}

// HEAD takes no records away.
func TestConsumerHead(t *testing.T) {
	f := startNode(t)
	f.store("orders", `1`)
	c := f.subscribed("g", earliestJSON, "orders")
	a := f.call("HEAD", c+"/records", "", "")
	require.Equal(t, 200, a.status)
	require.Equal(t, jsonType, a.header.Get("Content-Type"))
	require.Equal(t, []string{`1`}, values(f.read(c+"/records")))
}

// Large answers come whole, in several reads.
func TestConsumerLargeReads(t *testing.T) {
	f := startNode(t)
	value := `"` + strings.Repeat("v", 500_000) + `"`
	for range 24 {
		f.store("orders", value)
	}
	c := f.subscribed("g", earliestJSON, "orders")
	got := f.readAll(c, 24)
	for i, g := range got {
		require.Equal(t, int64(i), g.Offset)
		require.Equal(t, value, string(g.Value))
	}
	binary := f.subscribed("g2", `{"auto.offset.reset":"earliest"}`, "orders")
	want, err := json.Marshal(base64.StdEncoding.EncodeToString([]byte(value)))
	require.NoError(t, err)
	for _, g := range f.readAll(binary, 24) {
		require.JSONEq(t, string(want), string(g.Value))
	}
}

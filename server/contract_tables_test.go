package server_test

import (
	"net/http"
	"strings"
)

// particulars are the faults that the contract tells of in words only, and the status of each.
var particulars = []struct {
	op, what string
	params   map[string]string // by name; what is no parameter is a header
	body     string
	status   int
}{
	{op: "createTopic", what: "there already", body: `{"name":"orders"}`, status: http.StatusConflict},
	{op: "createTopic", what: "more replicas than brokers", body: `{"name":"n","replication_factor":2}`, status: 400},
	{op: "createTopic", what: "an unknown config", body: `{"name":"n","configs":{"no.such":"1"}}`, status: 400},
	{op: "createTopic", what: "a bad config", body: `{"name":"n","configs":{"retention.ms":"soon"}}`, status: 400},
	{op: "createTopic", what: "an illegal name", body: `{"name":".."}`, status: 400},
	{op: "createTopic", what: "too many partitions", body: `{"name":"n","partitions":2147483647}`, status: 409},
	{op: "createTopic", what: "only checked, a bad config", params: map[string]string{"validate_only": "true"},
		body: `{"name":"n","configs":{"retention.ms":"soon"}}`, status: 400},

	{op: "updateTopic", what: "nothing", body: `{}`, status: 400},
	{op: "updateTopic", what: "fewer partitions", body: `{"partitions":1}`, status: 400},
	{op: "updateTopic", what: "too many partitions", body: `{"partitions":2147483647}`, status: 409},
	{op: "updateTopic", what: "an unknown config", body: `{"configs":{"no.such":"1"}}`, status: 400},
	{op: "updateTopic", what: "a bad config beside good partitions",
		body: `{"partitions":4,"configs":{"retention.ms":"soon"}}`, status: 400},

	{op: "deleteRecords", what: "no such partition", body: `{"partitions":[{"partition":7}]}`, status: 404},
	{op: "deleteRecords", what: "beyond the end", body: `{"partitions":[{"partition":0,"before_offset":99}]}`, status: 416},
	{op: "deleteRecords", what: "a partition twice", body: `{"partitions":[{"partition":0},{"partition":0}]}`, status: 400},

	{op: "produceRecords", what: "no such partition", params: map[string]string{"partition": "7"}, status: 404},
	{op: "produceRecords", what: "another offset", params: map[string]string{"Expected-Offset": "99"},
		status: http.StatusPreconditionFailed},
	{op: "produceRecords", what: "a gap in the sequence", status: http.StatusConflict,
		params: map[string]string{"Producer-Id": "till-9", "Producer-Epoch": "3", "Producer-Seq": "7"}},
	{op: "produceRecords", what: "an old epoch", status: http.StatusForbidden,
		params: map[string]string{"Producer-Id": "till-9", "Producer-Epoch": "2", "Producer-Seq": "0"}},
	{op: "produceRecords", what: "an id without a sequence", params: map[string]string{"Producer-Id": "till-9"}, status: 400},
	{op: "produceRecords", what: "a sequence without an id", params: map[string]string{"Producer-Seq": "0"}, status: 400},
	{op: "produceRecords", what: "two ways to be idempotent", status: 400,
		params: map[string]string{"Producer-Id": "till-9", "Producer-Seq": "1", "Idempotency-Key": "k"}},
	{op: "produceRecords", what: "a record too large", body: `"` + strings.Repeat("a", 3<<20) + `"`,
		status: http.StatusRequestEntityTooLarge},
	{op: "produceRecords", what: "a charset that is not UTF-8", params: map[string]string{
		"Content-Type": "text/plain; charset=latin1"}, status: http.StatusUnsupportedMediaType},
	{op: "produceRecords", what: "two keys", params: records, body: `[{"key":1,"key_text":"1"}]`, status: 400},
	{op: "produceRecords", what: "two values", params: records, body: `[{"value":1,"value_base64":"MQ=="}]`, status: 400},
	{op: "produceRecords", what: "two values of a header", params: records,
		body: `[{"headers":[{"name":"a","value":"1","value_base64":"MQ=="}]}]`, status: 400},
	{op: "produceRecords", what: "no records", params: records, body: `[]`, status: 400},
	{op: "produceRecords", what: "a bad record behind a good one", params: records,
		body: `[{"value":1},{"value":2,"partition":9}]`, status: 404},
	{op: "produceRecords", what: "a record of another topic", params: records, body: `[{"topic":"payments"}]`, status: 400},
	{op: "produceRecords", what: "no page's request", params: map[string]string{
		"Sec-Fetch-Site": "cross-site", "Origin": "http://elsewhere.example"}, status: http.StatusForbidden},

	{op: "listErrors", what: "an unknown name", params: map[string]string{"name": "NO_SUCH_ERROR"}, status: 404},

	{op: "createKafkaTopic", what: "there already", body: `{"topic_name":"orders"}`, status: 400},
	{op: "createKafkaTopic", what: "an illegal name", body: `{"topic_name":".."}`},
	{op: "createKafkaTopic", what: "no such broker", body: `{"topic_name":"n","replicas_assignments":{"0":[9]}}`, status: 400},
	{op: "createKafkaTopic", what: "a gap in the assignments",
		body: `{"topic_name":"n","replicas_assignments":{"1":[1]}}`, status: 400},
	{op: "createKafkaTopic", what: "no partitions", body: `{"topic_name":"n","partitions_count":0}`, status: 400},
	{op: "createKafkaTopic", what: "an unknown config",
		body: `{"topic_name":"n","configs":[{"name":"no.such","value":"1"}]}`, status: 400},
	{op: "updateKafkaTopicPartitions", what: "fewer", body: `{"partitions_count":1}`, status: 400},
	{op: "updateKafkaTopicPartitions", what: "none", body: `{"partitions_count":0}`, status: 400},
	{op: "alterKafkaTopicConfigs", what: "a bad value", body: `{"data":[{"name":"retention.ms","value":"soon"}]}`, status: 400},
	{op: "alterKafkaTopicConfigs", what: "a good change and an unknown one",
		body: `{"data":[{"name":"retention.ms","value":"7"},{"name":"no.such","value":"1"}]}`},
	{op: "alterKafkaTopicsConfigs", what: "a good topic and an unknown one", status: 404,
		body: `{"data":[{"topic_name":"orders","configs":[{"name":"retention.ms","value":"7"}]},` +
			`{"topic_name":"nobody","configs":[]}]}`},
	{op: "alterKafkaTopicsConfigs", what: "a bad value",
		body: `{"data":[{"topic_name":"orders","configs":[{"name":"retention.ms","value":"soon"}]}]}`},
	{op: "updateKafkaTopicConfig", what: "a bad value", body: `{"value":"soon"}`, status: 400},
	{op: "updateKafkaBrokerConfig", what: "a bad value", body: `{"value":"soon"}`, status: 400},
	{op: "updateKafkaClusterConfig", what: "a bad value", body: `{"value":"soon"}`, status: 400},
	{op: "produceKafkaRecords", what: "no such partition", body: `{"partition_id":7,"value":{"type":"JSON","data":1}}`},
	{op: "produceKafkaRecords", what: "a schema", body: `{"value":{"schema_id":1,"data":{}}}`},
	{op: "produceKafkaRecords", what: "no object", body: `[]`},
	{op: "produceKafkaRecordsBatch", what: "no such partition", body: `{"entries":[{"id":"a","partition_id":7}]}`},
	{op: "produceKafkaRecordsBatch", what: "an id twice", body: `{"entries":[{"id":"a"},{"id":"a"}]}`, status: 422},

	{op: "produceV2Records", what: "no such partition", params: v2JSON, body: `{"records":[{"partition":7,"value":1}]}`},
	{op: "produceV2Records", what: "no base64", body: `{"records":[{"value":"%%%"}]}`},
	{op: "produceV2Records", what: "no string", body: `{"records":[{"value":1}]}`},
	{op: "produceV2PartitionRecords", what: "no base64", body: `{"records":[{"value":"%%%"}]}`},
}

var (
	records = map[string]string{"Content-Type": "application/vnd.millrace.records+json"}
	v2JSON  = map[string]string{"Content-Type": "application/vnd.kafka.json.v2+json"}
)

// leniencies are the places where more is accepted than the contract promises: faults of the operations whose id
// contains op, whose description contains what.
var leniencies = []struct{ op, what, why string }{
	{"produceRecords", ": half a surrogate pair", "the value of a record is the JSON text exactly as it was sent"},
	{"produceRecords", ": a field twice", "the value of a record is the JSON text exactly as it was sent"},
	{"produceRecords", "timestamp is no string: 7", "a time may be milliseconds since 1970, which OpenAPI 3.0 cannot say well"},
	{"produceRecords", "offset is ", "what was read can be posted back: how it was read is passed over, whatever it says"},
	{"produceRecords", "decode_error is ", "what was read can be posted back: how it was read is passed over, whatever it says"},
	{"produceKafkaRecords", "cluster_id=another", "the REST Proxy does not compare the cluster id when it produces"},
}

// unmet are the listed statuses that no request of these tests brings about, and why.
var unmet = map[string]string{
	"getRoot 504":        "needs a cluster that does not answer",
	"produceRecords 504": "needs a cluster that does not answer",
	"getReadiness 503":   "needs a node that is not ready",
}

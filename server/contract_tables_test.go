package server_test

import (
	"net/http"
	"strings"
)

// by gives parameters values by their names; what is no parameter is a header.
type by = map[string]string

// particular is a fault that the contract tells of in words only, and its status.
type particular struct {
	op, what string
	params   by
	body     string
	status   int
}

var particulars = []particular{
	{op: "createTopic", what: "there already", body: `{"name":"orders"}`, status: http.StatusConflict},
	{op: "createTopic", what: "more replicas than brokers", body: `{"name":"n","replication_factor":2}`, status: 400},
	{op: "createTopic", what: "an unknown config", body: `{"name":"n","configs":{"no.such":"1"}}`, status: 400},
	{op: "createTopic", what: "a bad config", body: `{"name":"n","configs":{"retention.ms":"soon"}}`, status: 400},
	{op: "createTopic", what: "an illegal name", body: `{"name":".."}`, status: 400},
	{op: "createTopic", what: "too many partitions", body: `{"name":"n","partitions":2147483647}`, status: 409},
	{op: "createTopic", what: "only checked, a bad config", params: by{"validate_only": "true"},
		body: `{"name":"n","configs":{"retention.ms":"soon"}}`, status: 400},

	{op: "updateTopic", what: "nothing", body: `{}`, status: 400},
	{op: "updateTopic", what: "no partitions", body: `{"partitions":0}`, status: 400},
	{op: "updateTopic", what: "too many partitions", body: `{"partitions":2147483647}`, status: 409},
	{op: "updateTopic", what: "an unknown config", body: `{"configs":{"no.such":"1"}}`, status: 400},
	{op: "updateTopic", what: "a bad config beside good partitions",
		body: `{"partitions":4,"configs":{"retention.ms":"soon"}}`, status: 400},

	{op: "deleteRecords", what: "no such partition", body: `{"partitions":[{"partition":7}]}`, status: 404},
	{op: "deleteRecords", what: "beyond the end", status: 416,
		body: `{"partitions":[{"partition":0,"before_offset":99}]}`},
	{op: "deleteRecords", what: "a partition twice", status: 400,
		body: `{"partitions":[{"partition":0},{"partition":0}]}`},

	{op: "produceRecords", what: "no such partition", params: by{"partition": "7"}, status: 404},
	{op: "produceRecords", what: "another offset", params: by{"Expected-Offset": "99"},
		status: http.StatusPreconditionFailed},
	{op: "produceRecords", what: "a gap in the sequence", status: http.StatusConflict,
		params: by{"Producer-Id": "till-9", "Producer-Epoch": "3", "Producer-Seq": "7"}},
	{op: "produceRecords", what: "an old epoch", status: http.StatusForbidden,
		params: by{"Producer-Id": "till-9", "Producer-Epoch": "2", "Producer-Seq": "0"}},
	{op: "produceRecords", what: "an id without a sequence", params: by{"Producer-Id": "till-9"}, status: 400},
	{op: "produceRecords", what: "a sequence without an id", params: by{"Producer-Seq": "0"}, status: 400},
	{op: "produceRecords", what: "two ways to be idempotent", status: 400,
		params: by{"Producer-Id": "till-9", "Producer-Seq": "1", "Idempotency-Key": "k"}},
	{op: "produceRecords", what: "a record too large", body: `"` + strings.Repeat("a", 3<<20) + `"`,
		status: http.StatusRequestEntityTooLarge},
	{op: "produceRecords", what: "a charset that is not UTF-8", params: by{
		"Content-Type": "text/plain; charset=latin1"}, status: http.StatusUnsupportedMediaType},
	{op: "produceRecords", what: "two keys", params: records, body: `[{"key":1,"key_text":"1"}]`, status: 400},
	{op: "produceRecords", what: "two values", status: 400,
		params: records, body: `[{"value":1,"value_base64":"MQ=="}]`},
	{op: "produceRecords", what: "two values of a header", params: records,
		body: `[{"headers":[{"name":"a","value":"1","value_base64":"MQ=="}]}]`, status: 400},
	{op: "produceRecords", what: "no records", params: records, body: `[]`, status: 400},
	{op: "produceRecords", what: "a bad record behind a good one", params: records,
		body: `[{"value":1},{"value":2,"partition":9}]`, status: 404},
	{op: "produceRecords", what: "a record of another topic", status: 400,
		params: records, body: `[{"topic":"payments"}]`},
	{op: "produceRecords", what: "no page's request", params: by{
		"Sec-Fetch-Site": "cross-site", "Origin": "http://elsewhere.example"}, status: http.StatusForbidden},

	{op: "readKey", what: "a topic that is not compacted", params: by{"topic": "orders"}, status: http.StatusConflict},
	{op: "readKey", what: "a key that nobody wrote", params: by{"key": "customer-9"}, status: 404},
	{op: "readKey", what: "no such partition", params: by{"partition": "7"}, status: 404},
	{op: "readKey", what: "a key that is not base64", params: by{"key_encoding": "base64", "key": "!"}, status: 400},
	{op: "deleteKey", what: "a topic that is not compacted", params: by{"topic": "orders"}, status: http.StatusConflict},
	{op: "deleteKey", what: "no such partition", params: by{"partition": "7"}, status: 404},

	{op: "readRecords", what: "beyond the end", params: by{"offset": "99"}, status: 416},
	{op: "readRecords", what: "two places to start", params: by{"offset": "0", "from": "0"}, status: 400},
	{op: "readRecords", what: "another topic's position", params: by{"from": "0~AAAA"}, status: 404},
	{op: "readRecords", what: "a position of more partitions", params: by{"from": "0,0"}, status: 400},
	{op: "readRecords", what: "too long a wait", params: by{"wait": "1h"}, status: 400},
	{op: "readRecords", what: "a bound on a live stream", status: 400,
		params: by{"max_records": "1", "Accept": "text/event-stream"}},
	{op: "readRecords", what: "a live stream from nowhere", status: 416,
		params: by{"offset": "99", "Accept": "text/event-stream"}},
	{op: "readPartitionRecords", what: "beyond the end", params: by{"offset": "99"}, status: 416},
	{op: "readPartitionRecords", what: "another partition's position", params: by{"from": "1:0"}, status: 400},
	{op: "readPartitionRecords", what: "batches from nowhere", status: 416,
		params: by{"offset": "99", "Accept": "application/vnd.apache.kafka.recordbatch"}},
	{op: "readPartitionRecords", what: "a negative wait", params: by{"wait": "-1s"}, status: 400},

	{op: "readGroupRecords", what: "a bound on a live stream", status: 400,
		params: by{"max_records": "1", "Accept": "text/event-stream"}},
	{op: "readGroupRecords", what: "too short a session", params: by{"session": "1ms"}, status: 400},
	{op: "readGroupRecords", what: "too long a session", params: by{"session": "31m"}, status: 400},
	{op: "readGroupRecords", what: "no expression", params: by{"pattern": "a(", "member": "new-2"}, status: 400},
	{op: "readGroupRecords", what: "nowhere to start", params: by{
		"group": "starters", "auto_offset_reset": "none", "wait": "5s"}, status: 416},
	{op: "commitGroupOffsets", what: "no such member", body: `{"member":"nobody"}`, status: http.StatusConflict},
	{op: "commitGroupOffsets", what: "no such topic", status: 404, params: by{"group": "nobody-2"},
		body: `{"offsets":[{"topic":"nobody","partition":0,"offset":1}]}`},
	{op: "commitGroupOffsets", what: "a partition twice", status: 400, body: `{"member":"a","offsets":[` +
		`{"topic":"orders","partition":0,"offset":1},{"topic":"orders","partition":0,"offset":2}]}`},
	{op: "commitGroupOffsets", what: "neither member nor offsets", body: `{}`, status: 400},
	{op: "leaveGroup", what: "no such member", params: by{"member": "nobody"}, status: http.StatusConflict},

	{op: "getGroup", what: "no such group", params: by{"group": "nobody"}, status: 404},
	{op: "getGroupLag", what: "no such group", params: by{"group": "nobody"}, status: 404},
	{op: "getGroupOffsets", what: "no such group", params: by{"group": "nobody"}, status: 404},
	{op: "deleteGroup", what: "no such group", params: by{"group": "nobody"}, status: 404},
	{op: "deleteGroup", what: "a member", params: by{"group": "audit"}, status: http.StatusConflict},
	{op: "deleteGroupOffsets", what: "no such group", params: by{"group": "nobody"}, status: 404},
	{op: "deleteGroupOffsets", what: "a subscription", params: by{"group": "audit"}, status: http.StatusConflict},
	{op: "resetGroupOffsets", what: "a member", params: by{"group": "audit"}, body: `{"to":"latest"}`,
		status: http.StatusConflict},
	{op: "resetGroupOffsets", what: "nothing to reset", params: by{"group": "nobody"}, body: `{"to":"latest"}`,
		status: http.StatusUnprocessableEntity},
	{op: "resetGroupOffsets", what: "nothing to shift", params: by{"group": "nobody"},
		body: `{"shift":1,"topics":["orders"]}`, status: http.StatusUnprocessableEntity},
	{op: "resetGroupOffsets", what: "no goal", body: `{"topics":["orders"]}`, status: 400},
	{op: "resetGroupOffsets", what: "two goals", body: `{"to":"latest","offset":1}`, status: 400},
	{op: "resetGroupOffsets", what: "no such topic", body: `{"to":"latest","topics":["nobody"]}`, status: 404},
	{op: "resetGroupOffsets", what: "no such partition", status: 404,
		body: `{"to":"latest","partitions":[{"topic":"orders","partition":7}]}`},
	{op: "resetGroupOffsets", what: "a partition twice", status: 400,
		body: `{"to":"latest","topics":["orders"],"partitions":[{"topic":"orders","partition":0}]}`},

	{op: "listErrors", what: "an unknown name", params: by{"name": "NO_SUCH_ERROR"}, status: 404},

	{op: "addMember", what: "no URL", body: `{"id":4,"url":"h4:8082"}`, status: 400},
	{op: "addMember", what: "a path in the URL", body: `{"id":4,"url":"http://h4:8082/v1"}`, status: 400},
	{op: "drainBroker", what: "no such broker", params: by{"broker_id": "9"}, status: 404},
	{op: "startReassignments", what: "no such broker", status: 400,
		body: `{"reassignments":[{"topic":"orders","partition":0,"replicas":[9]}]}`},
	{op: "startReassignments", what: "a broker twice", status: 400,
		body: `{"reassignments":[{"topic":"orders","partition":0,"replicas":[1,1]}]}`},
	{op: "startReassignments", what: "a partition twice", status: 400,
		body: `{"reassignments":[{"topic":"orders","partition":0,"replicas":[1]},` +
			`{"topic":"orders","partition":0,"replicas":[1]}]}`},
	{op: "startReassignments", what: "no such partition", status: 404,
		body: `{"reassignments":[{"topic":"orders","partition":7,"replicas":[1]}]}`},
	{op: "electLeaders", what: "an unclean election everywhere", body: `{"unclean":true}`, status: 400},
	{op: "electLeaders", what: "no such topic", status: 404, body: `{"partitions":[{"topic":"nobody","partition":0}]}`},

	{op: "createKafkaTopic", what: "there already", body: `{"topic_name":"orders"}`, status: 400},
	{op: "createKafkaTopic", what: "an illegal name", body: `{"topic_name":".."}`},
	{op: "createKafkaTopic", what: "no such broker", status: 400,
		body: `{"topic_name":"n","replicas_assignments":{"0":[9]}}`},
	{op: "createKafkaTopic", what: "a gap in the assignments",
		body: `{"topic_name":"n","replicas_assignments":{"1":[1]}}`, status: 400},
	{op: "createKafkaTopic", what: "no partitions", body: `{"topic_name":"n","partitions_count":0}`, status: 400},
	{op: "createKafkaTopic", what: "an unknown config",
		body: `{"topic_name":"n","configs":[{"name":"no.such","value":"1"}]}`, status: 400},
	{op: "updateKafkaTopicPartitions", what: "fewer", body: `{"partitions_count":1}`, status: 400},
	{op: "updateKafkaTopicPartitions", what: "none", body: `{"partitions_count":0}`, status: 400},
	{op: "alterKafkaTopicConfigs", what: "a bad value", status: 400,
		body: `{"data":[{"name":"retention.ms","value":"soon"}]}`},
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
	{op: "getKafkaConsumerGroup", what: "no such group", params: by{"consumer_group_id": "nobody"}, status: 404},
	{op: "listKafkaConsumers", what: "no such group", params: by{"consumer_group_id": "nobody"}, status: 404},
	{op: "getKafkaConsumer", what: "no such consumer", params: by{"consumer_id": "nobody"}, status: 404},
	{op: "listKafkaConsumerAssignments", what: "no such consumer", params: by{"consumer_id": "nobody"}, status: 404},
	{op: "getKafkaConsumerAssignment", what: "not its partition", params: by{"partition_id": "1"}, status: 404},
	{op: "getKafkaConsumerGroupLagSummary", what: "no such group", params: by{"consumer_group_id": "nobody"},
		status: 404},
	{op: "listKafkaConsumerLags", what: "no such group", params: by{"consumer_group_id": "nobody"}, status: 404},
	{op: "getKafkaConsumerLag", what: "no offset", params: by{"partition_id": "1"}, status: 404},
	{op: "produceKafkaRecords", what: "no such partition", body: `{"partition_id":7,"value":{"type":"JSON","data":1}}`},
	{op: "produceKafkaRecords", what: "a schema", body: `{"value":{"schema_id":1,"data":{}}}`},
	{op: "produceKafkaRecords", what: "no object", body: `[]`},
	{op: "produceKafkaRecordsBatch", what: "no such partition", body: `{"entries":[{"id":"a","partition_id":7}]}`},
	{op: "produceKafkaRecordsBatch", what: "an id twice", body: `{"entries":[{"id":"a"},{"id":"a"}]}`, status: 422},

	{op: "produceV2Records", what: "no such partition", params: v2JSON, body: `{"records":[{"partition":7,"value":1}]}`},
	{op: "produceV2Records", what: "no base64", body: `{"records":[{"value":"%%%"}]}`},
	{op: "produceV2Records", what: "no string", body: `{"records":[{"value":1}]}`},
	{op: "produceV2PartitionRecords", what: "no base64", body: `{"records":[{"value":"%%%"}]}`},

	{op: "createV2Instance", what: "a name that is taken", body: `{"name":"c1"}`, status: http.StatusConflict},
	{op: "createV2Instance", what: "no such format", body: `{"format":"string"}`, status: 422},
	{op: "createV2Instance", what: "too many bytes", body: `{"fetch.min.bytes":10000001}`, status: 422},
	{op: "createV2Instance", what: "no number", body: `{"requestWaitMs":"soon"}`, status: 422},
	{op: "subscribeV2Instance", what: "a pattern beside topics", body: `{"topic_pattern":"a"}`, status: 409},
	{op: "subscribeV2Instance", what: "no expression", body: `{"topic_pattern":"("}`, status: 422},
	{op: "subscribeV2Instance", what: "nothing", body: `{}`, status: 422},
	{op: "assignV2Instance", what: "beside a subscription", status: 409,
		body: `{"partitions":[{"topic":"orders","partition":0}]}`},
	{op: "seekV2Instance", what: "a partition of another", status: 409,
		body: `{"offsets":[{"topic":"orders","partition":7,"offset":0}]}`},
	{op: "seekV2Instance", what: "nothing", body: `{}`, status: 422},
	{op: "seekV2ToBeginning", what: "a partition of another", status: 409,
		body: `{"partitions":[{"topic":"orders","partition":7}]}`},
	{op: "seekV2ToEnd", what: "a partition of another", status: 409,
		body: `{"partitions":[{"topic":"orders","partition":7}]}`},
	{op: "readV2Records", what: "another format", status: http.StatusNotAcceptable,
		params: by{"Accept": "application/vnd.kafka.json.v2+json"}},
	{op: "getV2Committed", what: "a topic without a partition", params: by{"topic": "orders"}, status: 400},
}

var (
	records = by{"Content-Type": "application/vnd.millrace.records+json"}
	v2JSON  = by{"Content-Type": "application/vnd.kafka.json.v2+json"}
)

// leniencies are the places where more is accepted than the contract promises: faults of the operations whose id
// contains op, whose description contains what.
var leniencies = []struct{ op, what, why string }{
	{"", "which may be absent, is null", "a member that is null is as one that is absent"},
	{"produceRecords", ": half a surrogate pair", "the value of a record is the JSON text exactly as it was sent"},
	{"produceRecords", ": a field twice", "the value of a record is the JSON text exactly as it was sent"},
	{"produceRecords", "timestamp is no string: 7", "a time may be milliseconds since 1970, which OpenAPI 3.0 says badly"},
	{"produceRecords", "offset is ", "what was read can be posted back, and how it was read is passed over"},
	{"produceRecords", "decode_error is ", "what was read can be posted back, and how it was read is passed over"},
	{"listGroups", "cursor=Li4", "a group may be named .."},
	{"createV2Instance", ": empty", "an instance may be made without a body"},
	{"createV2Instance", ": blank", "an instance may be made without a body"},
	{"commitV2Offsets", ": empty", "without a body all is committed that was given"},
	{"commitV2Offsets", ": blank", "without a body all is committed that was given"},
	{"getV2Committed", "query topic=", "a group has committed nothing for a topic that is not there"},
	{"listKafkaTopicReassignments", "topic_name=nobody",
		"the REST Proxy lists no reassignments of a topic that does not exist"},
	{"produceKafkaRecords", "cluster_id=another", "the REST Proxy does not compare the cluster id when it produces"},
}

// unmet are the listed statuses that no request of these tests brings about, and why.
var unmet = by{
	"getRoot 503":          "needs a cluster that does not answer",
	"produceRecords 504":   "needs a cluster that does not answer",
	"runTransaction 504":   "needs a coordinator that does not answer",
	"getReadiness 503":     "needs a node that is not ready",
	"getConnectHealth 500": "needs a worker that was well before",
	"getConnectHealth 503": "needs a worker that is starting",
	"readV2Records 409":    "needs an instance without a subscription",

	"readGroupRecords 409": "needs a member that the group went on without",

	"addMember 201":            "needs a cluster of several nodes",
	"addMember 503":            "needs a quorum without a leader",
	"listMembers 503":          "needs a quorum that cannot tell",
	"removeMember 204":         "needs a cluster of several nodes",
	"removeMember 404":         "needs a cluster of several nodes",
	"removeMember 503":         "needs a quorum without a leader",
	"promoteMember 204":        "needs a cluster of several nodes",
	"promoteMember 404":        "needs a cluster of several nodes",
	"promoteMember 503":        "needs a quorum without a leader",
	"demoteMember 204":         "needs a cluster of several nodes",
	"demoteMember 404":         "needs a cluster of several nodes",
	"demoteMember 503":         "needs a quorum without a leader",
	"transferLeadership 204":   "needs a cluster of several nodes",
	"transferLeadership 503":   "needs a quorum without a leader",
	"decommissionBroker 204":   "needs a cluster of several nodes",
	"drainBroker 202":          "needs a cluster of several nodes",
	"getKafkaReassignment 200": "needs a cluster of several nodes",
}

package server_test

import (
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"
)

// TestContract holds one node against the contract: every example succeeds as the contract says, every request that
// breaks the contract is refused as it says, and every status that it lists was met on the way.
func TestContract(t *testing.T) {
	g := newRig(t)
	t.Run("examples", g.testExamples)
	t.Run("keys", g.testKeys)
	t.Run("transactions", g.testTransactions)
	if testing.Short() {
		t.Skip("leaves out some three thousand faults")
	}
	t.Run("faults", g.testFaults)
	t.Run("statuses", g.testStatuses)
}

// testExamples sends every example of every operation, each to the node as restore leaves it, and checks every answer.
func (g *rig) testExamples(t *testing.T) {
	for _, op := range g.ops {
		t.Run(op.OperationID, func(t *testing.T) {
			for _, s := range g.samples(t, op) {
				if absent := needsAbsent[op.OperationID]; absent {
					g.clear(t)
				} else {
					g.restore(t)
				}
				if _, ok := s.path["transactional_id"]; ok {
					s.path["transactional_id"] = g.txn
				}
				if prepare := preparations[op.OperationID+" "+s.what]; prepare != nil {
					prepare(t, g, s.request)
				}
				a := g.send(t, s.request)
				if want := ofSeveral[op.OperationID+" "+s.what]; want != 0 {
					require.Equal(t, want, a.status, "%s: %s\nanswered with %s", s.what, s.request, a.body)
				} else if a.status >= 300 && a.status != http.StatusNotModified {
					t.Errorf("%s: %s\nanswered with %d %s", s.what, s.request, a.status, a.body)
				}
				g.note(t, s.request, a, s.what)
			}
		})
	}
}

// note checks an answer and remembers that its status was met.
func (g *rig) note(t *testing.T, q *request, a *answer, what string) {
	t.Helper()
	if err := g.check(q.op, a); err != nil {
		t.Errorf("%s: %s\n%v", what, q, err)
	}
	name, _ := responseFor(q.op, a.status)
	g.seen[q.op.OperationID+" "+name] = true
}

// needsAbsent are the operations whose examples make what restore makes.
var needsAbsent = map[string]bool{"createTopic": true, "createKafkaTopic": true, "createConnector": true}

// ofSeveral are the examples that only a cluster of several nodes can follow, and the status by which one node by
// itself refuses them.
var ofSeveral = map[string]int{
	"addMember body application/json example":        http.StatusConflict,
	"removeMember plain":                             http.StatusConflict,
	"promoteMember plain":                            http.StatusConflict,
	"demoteMember plain":                             http.StatusConflict,
	"transferLeadership body application/json any":   http.StatusConflict,
	"transferLeadership body application/json named": http.StatusConflict,
	"decommissionBroker plain":                       http.StatusConflict,
	"drainBroker body application/json start":        http.StatusConflict,
	"getKafkaReassignment plain":                     http.StatusNotFound,
}

// preparations are what single examples need beyond it.
var preparations = map[string]func(*testing.T, *rig, *request){
	"produceRecords header Expected-Offset": func(t *testing.T, g *rig, _ *request) { // of an empty log
		g.clear(t)
		g.call(t, "POST", "/v1/topics", map[string]any{"name": "orders"}, nil)
	},
	"produceRecords query value_schema_id":                bySchema(`{"id":7}`, ""),
	"produceRecords query value_schema":                   bySchema(`{"id":7,"note":""}`, ""),
	"produceRecords query key_schema_id":                  bySchema(`1`, `{"id":7}`),
	"produceRecords query key_schema":                     bySchema(`1`, `"k"`),
	"produceRecords header Content-Encoding":              func(t *testing.T, _ *rig, q *request) { q.compress(t) },
	"readRecords header If-None-Match":                    ask,
	"produceRecordsInTransaction header Content-Encoding": func(t *testing.T, _ *rig, q *request) { q.compress(t) },
	"readPartitionRecords header If-None-Match":           ask,
	"readKey header If-None-Match":                        askAgain,
	"readRecords header Last-Event-ID":                    comeBack,
	"readPartitionRecords header Last-Event-ID":           comeBack,

	"putConnectorConfig body application/json referring": newName,

	"deleteRegistrySubject query permanent the other way": softly,
	"deleteSchemaVersion query permanent the other way":   softly,

	"createV2Instance body application/vnd.kafka.v2+json named":      withoutC1,
	"subscribeV2Instance body application/vnd.kafka.v2+json pattern": bare,
	"assignV2Instance body application/vnd.kafka.v2+json example":    bare,
	"readV2Records Accept application/vnd.kafka.json.v2+json":        of("json"),
	"readV2Records Accept application/vnd.kafka.avro.v2+json":        of("avro"),
	"readV2Records Accept application/vnd.kafka.jsonschema.v2+json":  of("jsonschema"),
	"readV2Records Accept application/vnd.kafka.protobuf.v2+json":    of("protobuf"),

	"readGroupRecords Accept text/event-stream":          func(_ *testing.T, _ *rig, q *request) { q.query.Del("wait") },
	"leaveGroup plain":                                   work,
	"commitGroupOffsets header Idempotency-Key":          work,
	"commitGroupOffsets body application/json delivered": work,
	"commitGroupOffsets body application/json named":     work,
	"commitGroupOffsets body application/json without members": func(_ *testing.T, _ *rig, q *request) {
		q.path["group"] = "nobody"
	},
}

// work makes a member of a group, which then leaves or commits. The group has no other: it would have the partition.
func work(t *testing.T, g *rig, q *request) {
	q.path["group"] = "workers-" + strconv.Itoa(rand.Int())
	g.call(t, "GET", "/v1/groups/"+q.path["group"]+
		"/records?topics=orders&member=worker-1&auto_offset_reset=earliest", nil, nil)
}

// ask asks for what will not change, and makes the request ask again with the tag of the answer.
func ask(t *testing.T, g *rig, q *request) {
	q.query.Set("max_records", "1")
	askAgain(t, g, q)
}

// askAgain makes the request ask with the tag of its own answer.
func askAgain(t *testing.T, g *rig, q *request) {
	q.header.Del("If-None-Match")
	a := g.send(t, q)
	require.NotEmpty(t, a.header.Get("ETag"), "%s: no ETag", q)
	q.header.Set("If-None-Match", a.header.Get("ETag"))
}

// comeBack makes the request one of a browser whose live stream was cut.
func comeBack(_ *testing.T, _ *rig, q *request) { q.header.Set("Accept", "text/event-stream") }

// sample is a good request and which example it sends.
type sample struct {
	*request
	what string
}

// samples are the requests by which every example of an operation is sent: each body, each optional parameter by
// itself, and each form of the answer.
func (g *rig) samples(t *testing.T, op *operation) []sample {
	t.Helper()
	plain := g.request(t, op)
	out := []sample{{plain, "plain"}}
	if op.RequestBody != nil {
		out = nil
		content := op.RequestBody.Value.Content
		for _, mediaType := range slices.Sorted(maps.Keys(content)) {
			for _, b := range bodies(t, mediaType, content[mediaType]) {
				q := plain.clone()
				q.header.Set("Content-Type", mediaType)
				q.body = b.text
				if p := op.param("partition"); p != nil && strings.HasSuffix(mediaType, "recordbatch") {
					g.set(t, q, p)
				}
				out = append(out, sample{q, "body " + mediaType + " " + b.name})
			}
		}
	}
	for _, p := range op.params {
		if !p.Required && (p.Example != nil || len(p.Examples) > 0) {
			q := plain.clone()
			g.set(t, q, p)
			out = append(out, sample{q, p.In + " " + p.Name})
			if p.Schema.Value.Type.Is("boolean") { // both of its values, whichever the example is
				other := q.clone()
				other.put(p, map[string]string{"true": "false", "false": "true"}[g.example(t, p)])
				out = append(out, sample{other, p.In + " " + p.Name + " the other way"})
			}
		}
	}
	return append(out, g.forms(t, op)...)
}

// forms are requests for each media type that an operation's success comes in, where there are several.
func (g *rig) forms(t *testing.T, op *operation) []sample {
	t.Helper()
	var out []sample
	for _, status := range slices.Sorted(maps.Keys(op.Responses.Map())) {
		content := op.Responses.Value(status).Value.Content
		if status[0] != '2' || len(content) < 2 && content["text/event-stream"] == nil {
			continue
		}
		for _, mediaType := range slices.Sorted(maps.Keys(content)) {
			q := g.request(t, op)
			q.header.Set("Accept", mediaType)
			if op.param("offset") != nil {
				q.query.Set("offset", "earliest") // a live stream begins at the end by itself
			}
			out = append(out, sample{q, "Accept " + mediaType})
		}
	}
	return out
}

// The examples of answers name nothing that the schema does not, and those of streams fit item by item. The rest of
// their schemas is checked when the contract is loaded.
func TestExamplesOfAnswers(t *testing.T) {
	c := loadContract(t)
	for _, op := range c.ops {
		for status, r := range op.Responses.Map() {
			for mediaType, m := range r.Value.Content {
				if m.Schema.Value.Format == "binary" {
					continue
				}
				for _, e := range answerExamples(t, mediaType, m) {
					err := c.checkMedia(mediaType, m, e.text, several(op))
					require.NoError(t, err, "%s %s %s %s", op, status, mediaType, e.name)
				}
			}
		}
	}
}

func answerExamples(t *testing.T, mediaType string, m *openapi3.MediaType) []example {
	t.Helper()
	if m.Example != nil || len(m.Examples) > 0 {
		return bodies(t, mediaType, m)
	}
	if m.Schema.Value.Example == nil {
		return nil
	}
	return bodies(t, mediaType, &openapi3.MediaType{Schema: m.Schema, Example: m.Schema.Value.Example})
}

// testStatuses checks that every status the contract lists by its number was met.
func (g *rig) testStatuses(t *testing.T) {
	for _, op := range g.ops {
		for status := range op.Responses.Map() {
			if status == "default" || strings.HasSuffix(status, "XX") {
				continue
			}
			at := op.OperationID + " " + status
			if _, excused := unmet[at]; excused == g.seen[at] {
				t.Errorf("%s: met %v, listed as unmet %v", at, g.seen[at], excused)
			}
		}
	}
}

package server_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"millrace/api"
)

// fault is a request that breaks the contract in one way.
type fault struct {
	*request
	what string
	want int // the status to answer with; 0 is any 4xx
}

// testFaults sends every operation requests that break the contract in one place, in every place that it constrains.
// Each must be refused in the form of its API, and leave the node as it was.
func (g *rig) testFaults(t *testing.T) {
	excused, sent := map[string]bool{}, 0
	for _, op := range g.ops {
		t.Run(op.OperationID, func(t *testing.T) {
			var before []json.RawMessage
			for _, f := range g.faults(t, op) {
				if !g.clean || before == nil {
					g.restore(t)
					before = g.settled(t)
				}
				a := g.send(t, f.request)
				sent++
				g.seen[op.OperationID+" "+strconv.Itoa(a.status)] = true
				if why := leniency(op, f.what); why != "" && a.status < 400 {
					excused[why] = true
					require.NoError(t, g.check(op, a), "%s: %s", f.what, f.request)
					continue
				}
				if err := g.refused(&f, a); err != nil {
					t.Errorf("%s: %s\nanswered with %d %.300s\n%v", f.what, f.request, a.status, a.body, err)
					continue
				}
				g.note(t, f.request, a, f.what)
				if f.method == http.MethodGet {
					continue
				}
				after := g.state(t)
				g.clean = reflect.DeepEqual(before, after)
				if !g.clean && op.OperationID != "produceKafkaRecords" { // which stores the records before the fault
					t.Errorf("%s changed the node: %s\n%s", f.what, f.request, changes(before, after))
				}
			}
		})
	}
	t.Logf("%d faults", sent)
	for _, l := range leniencies {
		require.True(t, excused[l.why], "nothing is lenient any more about: %s", l.why)
	}
}

// state is all that a request could have changed.
func (g *rig) state(t *testing.T) []json.RawMessage {
	t.Helper()
	v3 := "/v3/clusters/" + g.cluster
	paths := []string{
		"/v1/topics?internal=true", "/v1/topics/orders", v3 + "/brokers/1/configs",
		"/schemas?deleted=true&subjectPrefix=:*:", "/contexts", "/config", "/mode",
		"/config/orders-value", "/mode/orders-value",
		"/connectors?expand=info", "/connectors/orders-stopped/offsets", "/admin/loggers",
		"/v1/groups/reports/offsets", v3 + "/consumer-groups/audit", v3 + "/consumer-groups/audit/lags",
	}
	out := make([]json.RawMessage, len(paths))
	for i, path := range paths {
		g.call(t, "GET", path, nil, &out[i])
	}
	return out
}

// settled is the state once nothing changes any more of what was restored.
func (g *rig) settled(t *testing.T) []json.RawMessage {
	t.Helper()
	last := g.state(t)
	await(t, "nothing changes any more", func() bool {
		now := g.state(t)
		same := reflect.DeepEqual(last, now)
		last = now
		return same
	})
	return last
}

// changes shows what differs between two states.
func changes(before, after []json.RawMessage) (out string) {
	for i := range before {
		if string(before[i]) != string(after[i]) {
			out += fmt.Sprintf("%s\n%s\n", before[i], after[i])
		}
	}
	return out
}

// refused says what is wrong with the answer to a fault.
func (g *rig) refused(f *fault, a *answer) error {
	if a.status < 400 {
		tell := tellings[f.op.OperationID]
		if tell == nil {
			return errors.New("it was not refused")
		}
		return tell(a.body)
	}
	if a.status >= 500 {
		return errors.New("the server took the fault for its own")
	}
	if f.want != 0 && a.status != f.want {
		return fmt.Errorf("want status %d", f.want)
	}
	if f.op.native() {
		return problem(a)
	}
	var e struct {
		ErrorCode int    `json:"error_code"`
		Message   string `json:"message"`
	}
	if err := json.Unmarshal(a.body, &e); err != nil {
		return err
	}
	if api.CompatStatus(e.ErrorCode) != a.status || e.Message == "" {
		return errors.New("error_code does not belong to the status, or there is no message")
	}
	return nil
}

// problem says what is wrong with an answer that should be a problem.
func problem(a *answer) error {
	var p struct {
		Type, Title, Detail, Outcome string
		Status                       int
		ErrorCode                    int `json:"error_code"`
	}
	if err := json.Unmarshal(a.body, &p); err != nil {
		return err
	}
	name, known := strings.CutPrefix(p.Type, "/v1/errors#")
	i := slices.IndexFunc(api.Catalogue(), func(f *api.Fault) bool { return f.Name == name })
	if !known || i < 0 {
		return fmt.Errorf("type %s is not in the catalogue", p.Type)
	}
	f := api.Catalogue()[i]
	if p.Status != a.status || p.Status != f.Status || p.ErrorCode != f.Code || p.Title != f.Title || p.Detail == "" ||
		p.Outcome != string(api.Failed) {
		return fmt.Errorf("the problem is not the catalogue's %s", name)
	}
	return nil
}

// tellings are the operations that tell of faults in the body of a success, and how.
var tellings = map[string]func(body []byte) error{
	"produceKafkaRecords": func(body []byte) error {
		receipts, err := decodeAll(body)
		if err != nil || len(receipts) == 0 {
			return fmt.Errorf("no receipts: %w", err)
		}
		last := receipts[len(receipts)-1].(map[string]any)
		return isClientFault(last["error_code"])
	},
	"produceKafkaRecordsBatch": func(body []byte) error {
		var r struct {
			Failures []map[string]any
		}
		if err := json.Unmarshal(body, &r); err != nil || len(r.Failures) == 0 {
			return fmt.Errorf("no failures: %w", err)
		}
		return isClientFault(r.Failures[0]["error_code"])
	},
	"alterKafkaTopicsConfigs": func(body []byte) error {
		var r struct {
			Failures []map[string]any
		}
		if err := json.Unmarshal(body, &r); err != nil || len(r.Failures) != 1 {
			return fmt.Errorf("no failure of the one topic: %w", err)
		}
		return isClientFault(r.Failures[0]["error_code"])
	},
	"checkSchemas": func(body []byte) error {
		var r struct {
			Results []struct {
				Compatible bool `json:"is_compatible"`
				Messages   []string
			}
		}
		if err := json.Unmarshal(body, &r); err != nil || len(r.Results) == 0 {
			return fmt.Errorf("no results: %w", err)
		}
		if r.Results[0].Compatible || len(r.Results[0].Messages) == 0 {
			return errors.New("the schema fits, or nothing says why not")
		}
		return nil
	},
	"produceV2Records":          v2Tells,
	"produceV2PartitionRecords": v2Tells,
}

func isClientFault(code any) error {
	n, _ := code.(float64)
	if s := api.CompatStatus(int(n)); s < 400 || s >= 500 {
		return fmt.Errorf("error_code %v is not one of a client's fault", code)
	}
	return nil
}

// v2Tells accepts any number: version 2 knows but one for all that is final.
func v2Tells(body []byte) error {
	var r struct {
		Offsets []struct {
			ErrorCode *int `json:"error_code"`
		}
	}
	if err := json.Unmarshal(body, &r); err != nil || len(r.Offsets) != 1 || r.Offsets[0].ErrorCode == nil {
		return fmt.Errorf("no error of the one record: %w", err)
	}
	return nil
}

// leniency says why a fault may pass, "" if it may not.
func leniency(op *operation, what string) string {
	for _, l := range leniencies {
		if strings.Contains(op.OperationID, l.op) && strings.Contains(what, l.what) {
			return l.why
		}
	}
	return ""
}

// faults are the ways to break an operation's contract.
func (g *rig) faults(t *testing.T, op *operation) []fault {
	t.Helper()
	var out []fault
	plain := g.request(t, op)
	for _, p := range op.params {
		for _, v := range wrongParameter(p, autoCreates[op.OperationID]) {
			q := plain.clone()
			for _, name := range companionsOf(op, p) {
				q.put(op.param(name), g.example(t, op.param(name)))
			}
			q.put(p, v)
			out = append(out, fault{q, fmt.Sprintf("%s %s=%.40s", p.In, p.Name, v), 0})
		}
		if p.In == "query" && op.Tags[0] == "native" && p.Example != nil {
			q := plain.clone()
			g.set(t, q, p)
			q.query[p.Name] = append(q.query[p.Name], q.query[p.Name]...)
			out = append(out, fault{q, "query " + p.Name + " twice", http.StatusBadRequest})
		}
	}
	out = append(out, g.requestFaults(t, plain)...)
	if op.RequestBody != nil {
		for mediaType, m := range op.RequestBody.Value.Content {
			out = append(out, g.bodyFaults(t, plain, mediaType, m)...)
		}
	}
	return append(out, g.particularFaults(t, op)...)
}

// autoCreates are the operations that create an unknown topic.
var autoCreates = map[string]bool{
	"produceRecords": true, "produceRecordsInTransaction": true, "produceKafkaRecords": true,
	"produceKafkaRecordsBatch": true, "produceV2Records": true,
	"produceV2PartitionRecords": true,
}

// wrongParameter lists values that a parameter may not have.
func wrongParameter(p *openapi3.Parameter, creates bool) []string {
	s := p.Schema.Value
	var out []string
	switch {
	case s.Type.Is("integer"):
		out = append(out, "x", "1.5", "0x1", "9223372036854775808")
		if s.Format == "int32" {
			out = append(out, "2147483648")
		}
		if s.Min != nil {
			out = append(out, strconv.FormatInt(int64(*s.Min)-1, 10))
		}
		if s.Max != nil && *s.Max < math.MaxInt32 {
			out = append(out, strconv.FormatInt(int64(*s.Max)+1, 10))
		}
		if p.In == "path" {
			out = append(out, "-1", "77")
		}
	case s.Type.Is("boolean"):
		out = append(out, "maybe", "2", "")
	case len(s.Enum) > 0:
		out = append(out, "no-such-value", strings.ToUpper(s.Enum[0].(string)))
	}
	if s.Pattern != "" {
		out = append(out, "!", strings.Repeat("a", 300))
	}
	if s.MaxLength != nil {
		out = append(out, strings.Repeat("a", int(*s.MaxLength)+1))
	}
	switch p.Name {
	case "topic", "topic_name":
		out = append(out, ".", "..", "a/b", "a b", "ä", strings.Repeat("a", 250), "a\x00b", "\xff")
		if !creates {
			out = append(out, "nobody")
		}
	case "cluster_id":
		out = append(out, "another")
	case "name":
		out = append(out, "no.such.name")
	case "timestamp":
		out = append(out, "yesterday", "2026-13-01T00:00:00Z", "-5")
	case "cursor":
		out = append(out, "!", "Li4")
	case "offset":
		if s.Type.Is("integer") {
			break
		}
		out = append(out, "", "first", "-1", "01", "1.0", "9223372036854775808")
	case "wait":
		out = append(out, "", "soon", "-1s", "61s", "NaN")
	case "from", "Last-Event-ID":
		out = append(out, "x", "1,", "-1", "1:2:3", "1~", "9223372036854775808")
	}
	return out
}

// requestFaults are those that any operation may meet.
func (g *rig) requestFaults(t *testing.T, plain *request) []fault {
	t.Helper()
	var out []fault
	item := g.doc.Paths.Value(plain.op.path)
	for _, m := range []string{"DELETE", "PATCH", "POST", "PUT", "TRACE"} {
		if item.GetOperation(m) == nil {
			q := plain.clone()
			q.method = m
			want := http.StatusMethodNotAllowed
			if alsoVersion(plain.op) {
				want = 0
			}
			out = append(out, fault{q, "method " + m, want})
		}
	}
	if plain.op.Responses.Value("406") != nil {
		q := plain.clone()
		q.header.Set("Accept", "application/xml, image/*;q=0.5")
		out = append(out, fault{q, "Accept", http.StatusNotAcceptable})
	}
	if plain.op.Tags[0] == "native" {
		q := plain.clone()
		q.query.Set("no_such_parameter", "1")
		out = append(out, fault{q, "an unknown parameter", http.StatusBadRequest})
	}
	if plain.op.RequestBody == nil {
		return out
	}
	for _, v := range []string{"application/xml", "application/json+x", "application", "multipart/form-data; boundary=x"} {
		q := plain.clone()
		q.header.Set("Content-Type", v)
		out = append(out, fault{q, "Content-Type " + v, http.StatusUnsupportedMediaType})
	}
	for _, v := range []string{"br", "gzip, gzip", "x"} {
		q := plain.clone()
		q.header.Set("Content-Encoding", v)
		out = append(out, fault{q, "Content-Encoding " + v, http.StatusUnsupportedMediaType})
	}
	for _, v := range []string{"gzip", "zstd"} {
		q := plain.clone()
		q.header.Set("Content-Encoding", v)
		out = append(out, fault{q, "Content-Encoding " + v + " of a plain body", http.StatusBadRequest})
	}
	bomb := plain.clone()
	bomb.header.Set("Content-Encoding", "gzip")
	bomb.body = bytes.Repeat([]byte(" "), 9<<20)
	bomb.compress(t)
	out = append(out, fault{bomb, "a bomb", tooLarge(plain.op)})
	if tag := plain.op.Tags[0]; !plain.op.native() && tag != "registry" && tag != "connectors" {
		// There a body of no type is what curl sends: JSON.
		q := plain.clone()
		q.header.Del("Content-Type")
		out = append(out, fault{q, "no Content-Type", http.StatusUnsupportedMediaType})
	}
	return out
}

// tooLarge is the status of a body that is too large. The schema registry has a number of its own for schemas.
func tooLarge(op *operation) int {
	isSmall := strings.HasSuffix(op.OperationID, "Config") || strings.HasSuffix(op.OperationID, "Mode")
	if op.Tags[0] == "registry" && !isSmall {
		return http.StatusUnprocessableEntity
	}
	return http.StatusRequestEntityTooLarge
}

// bodyFaults are bodies of one media type that cannot be read, or not as the schema says.
func (g *rig) bodyFaults(t *testing.T, plain *request, mediaType string, m *openapi3.MediaType) []fault {
	t.Helper()
	base := plain.clone()
	base.header.Set("Content-Type", mediaType)
	base.body = bodies(t, mediaType, m)[0].text
	if p := base.op.param("partition"); p != nil && p.In == "query" && strings.HasSuffix(mediaType, "recordbatch") {
		g.set(t, base, p)
	}
	var out []fault
	add := func(what string, body []byte) {
		q := base.clone()
		q.body = body
		out = append(out, fault{q, mediaType + ": " + what, 0})
	}
	items, streamed, err := g.itemSchema(m)
	require.NoError(t, err)
	switch {
	case streamed:
		line, _, _ := bytes.Cut(base.body, []byte("\n"))
		for _, f := range textFaults(line) {
			if len(bytes.TrimSpace(f.text)) > 0 { // an empty line is none
				add("line 2: "+f.name, slices.Concat(line, []byte("\n"), f.text, []byte("\n"), line))
			}
		}
		add("no line", []byte("\n \n"))
		for _, f := range schemaFaults(t, items, line) {
			add("line 2: "+f.name, slices.Concat(line, []byte("\n"), f.text))
		}
	case strings.HasSuffix(mediaType, "json"), mediaType == "application/x-www-form-urlencoded":
		for _, f := range textFaults(base.body) {
			add(f.name, f.text)
		}
		if mediaType != "application/x-www-form-urlencoded" {
			for _, f := range schemaFaults(t, m.Schema.Value, base.body) {
				add(f.name, f.text)
			}
		}
	case mediaType == "text/plain":
		add("not UTF-8", []byte("a\xffb"))
	case strings.HasSuffix(mediaType, "recordbatch"):
		for name, b := range batchFaults() {
			add(name, b)
		}
	}
	return out
}

// textFaults are texts that are not JSON, or not JSON that anyone should send.
func textFaults(good []byte) []example {
	out := []example{
		{"empty", []byte{}}, {"blank", []byte(" \n")}, {"cut", good[:len(good)-1]}, {"half", good[:len(good)/2]},
		{"text behind", slices.Concat(good, []byte("x"))}, {"a bracket behind", slices.Concat(good, []byte("}"))},
		{"a comma behind", slices.Concat(good, []byte(","))}, {"a word", []byte("nul")}, {"a quote", []byte(`"`)},
		{"a byte order mark", slices.Concat([]byte("\xef\xbb\xbf"), good)}, {"not UTF-8", []byte("{\"a\":\"\xff\"}")},
		{"a control character", []byte("{\"a\":\"\x01\"}")}, {"half a surrogate pair", []byte(`{"\ud800":1}`)},
		{"a leading zero", []byte(`{"a":01}`)}, {"a comment", []byte(`{"a":1/**/}`)}, {"single quotes", []byte(`{'a':1}`)},
		{"not a number", []byte(`{"a":NaN}`)}, {"deep", bytes.Repeat([]byte("["), 50_000)},
		{"deep and whole", slices.Concat(bytes.Repeat([]byte("["), 50_000), bytes.Repeat([]byte("]"), 50_000))},
	}
	if good[0] == '{' {
		name, _, _ := bytes.Cut(good, []byte(":"))
		out = append(out, example{"a field twice", slices.Concat(name, []byte(":null,"), good[1:])})
	}
	return out
}

// schemaFaults are JSON texts that break a schema.
func schemaFaults(t *testing.T, s *openapi3.Schema, good []byte) []example {
	t.Helper()
	var v any
	require.NoError(t, json.Unmarshal(good, &v))
	var out []example
	for _, m := range mutants(s, v, "") {
		text, err := json.Marshal(m.value)
		require.NoError(t, err)
		out = append(out, example{m.what, text})
	}
	return out
}

// batchFaults are bodies that are not one good record batch.
func batchFaults() map[string][]byte {
	good := batch("value")
	crc, magic, length := bytes.Clone(good), bytes.Clone(good), bytes.Clone(good)
	crc[len(crc)-2] ^= 1
	magic[16] = 1
	length[11]++
	return map[string][]byte{
		"empty": {}, "garbage": []byte("this is no batch, though it is longer than the header of one would be, by far"),
		"cut": good[:len(good)-1], "header cut": good[:30], "bad checksum": crc, "old format": magic, "bad length": length,
		"bytes behind": append(bytes.Clone(good), 0),
	}
}

// particularFaults are those that only words in the contract tell of.
func (g *rig) particularFaults(t *testing.T, op *operation) []fault {
	t.Helper()
	var out []fault
	for _, p := range slices.Concat(particulars, registryParticulars, connectParticulars) {
		if p.op != op.OperationID {
			continue
		}
		q := g.request(t, op)
		if p.body != "" {
			q.body = []byte(p.body)
		}
		for _, name := range slices.Sorted(maps.Keys(p.params)) {
			if param := op.param(name); param != nil {
				q.put(param, p.params[name])
			} else {
				q.header.Set(name, p.params[name])
			}
		}
		out = append(out, fault{q, p.what, p.status})
	}
	return out
}

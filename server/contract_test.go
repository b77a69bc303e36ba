package server_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"millrace"
	"millrace/server"
)

// contract is openapi.yaml. The tests in the contract files hold a real node against it: what it routes, what it
// answers to every example, and what it answers to requests that break the contract.
type contract struct {
	doc *openapi3.T
	ops []*operation // by path and method
}

// operation is one operation of the contract.
type operation struct {
	*openapi3.Operation
	method, path string
	params       []*openapi3.Parameter
}

func (o *operation) String() string { return o.OperationID }

// native says whether faults of the operation are told as problems.
func (o *operation) native() bool { return o.Tags[0] == "native" || o.Tags[0] == "operations" }

func (o *operation) param(name string) *openapi3.Parameter {
	i := slices.IndexFunc(o.params, func(p *openapi3.Parameter) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return o.params[i]
}

func loadContract(t *testing.T) *contract {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(millrace.OpenAPI)
	require.NoError(t, err)
	require.NoError(t, doc.Validate(t.Context(), openapi3.EnableExamplesValidation()))
	for _, s := range doc.Components.Schemas {
		// OpenAPI 3.0.3 lets a schema without a type take null, and forbids to say so; the validator wants it said.
		s.Value.Nullable = s.Value.Nullable || s.Value.Type == nil && len(s.Value.AllOf) == 0
	}
	c := &contract{doc: doc}
	for _, path := range slices.Sorted(maps.Keys(doc.Paths.Map())) {
		item := doc.Paths.Value(path)
		methods := item.Operations()
		for _, method := range slices.Sorted(maps.Keys(methods)) {
			op := &operation{Operation: methods[method], method: method, path: path}
			for _, p := range append(slices.Clone(item.Parameters), op.Parameters...) {
				op.params = append(op.params, p.Value)
			}
			c.ops = append(c.ops, op)
		}
	}
	return c
}

// op is the operation with an id.
func (c *contract) op(t *testing.T, id string) *operation {
	t.Helper()
	i := slices.IndexFunc(c.ops, func(o *operation) bool { return o.OperationID == id })
	require.GreaterOrEqual(t, i, 0, "openapi.yaml has no operation %s", id)
	return c.ops[i]
}

// A node serves what the contract lists, and nothing else. All of version 3 is served under /kafka too.
func TestRoutesAreTheContract(t *testing.T) {
	listed := map[string]bool{}
	for _, op := range loadContract(t).ops {
		listed[op.method+" "+op.path] = true
		if strings.HasPrefix(op.path, "/v3/") {
			listed[op.method+" /kafka"+op.path] = true
		}
	}
	cfg := server.DefaultConfig()
	cfg.Listen, cfg.DataDir = "127.0.0.1:0", t.TempDir()
	n, err := server.Open(cfg)
	require.NoError(t, err)
	defer func() { require.NoError(t, n.Close()) }()
	served := map[string]bool{}
	walk := func(method, path string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		served[method+" "+path] = true
		if !listed[method+" "+path] {
			t.Errorf("%s %s is served, but openapi.yaml does not list it", method, path)
		}
		return nil
	}
	require.NoError(t, chi.Walk(server.Routes(n), walk))
	for at := range listed {
		if !served[at] {
			t.Errorf("%s is in openapi.yaml, but nothing serves it", at)
		}
	}
}

// HEAD answers wherever the contract has a GET, with the same head and at once, also where the GET would wait or go on
// without end. OPTIONS names what the contract lists for a path, and these two.
func TestHeadAndOptionsFollowTheContract(t *testing.T) {
	g := newRig(t)
	g.restore(t)
	for _, op := range g.ops {
		methods := []string{"HEAD", "OPTIONS"}
		for m := range g.doc.Paths.Value(op.path).Operations() {
			methods = append(methods, m)
		}
		if !slices.Contains(methods, "GET") {
			methods = methods[1:]
		}
		if alsoVersion(op) {
			methods = append(methods, "DELETE", "GET", "HEAD")
		}
		slices.Sort(methods)
		q := g.request(t, op)
		q.method, q.body = http.MethodOptions, nil
		a := g.send(t, q)
		require.Equal(t, http.StatusNoContent, a.status, "%s", q)
		require.Equal(t, strings.Join(methods, ", "), a.header.Get("Allow"), "%s", q)
		if op.method != http.MethodGet {
			continue
		}
		get := g.request(t, op)
		want := g.send(t, get)
		head := g.request(t, op)
		head.method = http.MethodHead
		a = g.send(t, head)
		require.Equal(t, want.status, a.status, "%s", head)
		require.Equal(t, want.header.Get("Content-Type"), a.header.Get("Content-Type"), "%s", head)
		if op.OperationID != "readGroupRecords" && op.OperationID != "readV2Records" { // a head takes no records away
			require.Equal(t, want.header.Get("Content-Length"), a.header.Get("Content-Length"), "%s", head)
		}
		require.Empty(t, a.body, "%s", head)
	}
	endless := g.request(t, g.op(t, "readRecords"))
	endless.method = http.MethodHead
	endless.header.Set("Accept", "text/event-stream")
	a := g.send(t, endless)
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, "text/event-stream", a.header.Get("Content-Type"))
	waiting := g.request(t, g.op(t, "readRecords"))
	waiting.method = http.MethodHead
	waiting.query.Set("offset", "latest")
	waiting.query.Set("wait", "60s")
	require.Equal(t, http.StatusOK, g.send(t, waiting).status, "and before patience ends")
	await(t, "no stream is open", func() bool { return strings.Contains(metricsOf(t, g), "millrace_http_streams 0") })
}

func metricsOf(t *testing.T, g *rig) string {
	t.Helper()
	return string(g.send(t, g.request(t, g.op(t, "getMetrics"))).body)
}

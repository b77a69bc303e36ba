package tidy

import (
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"
)

// operation is one operation of openapi.yaml with its place in it.
type operation struct {
	*openapi3.Operation
	at string // METHOD path
}

func operations(t *testing.T) (*openapi3.T, []operation) {
	t.Helper()
	tree := load(t)
	l := openapi3.NewLoader()
	doc, err := l.LoadFromFile(filepath.Join(tree.Root, "openapi.yaml"))
	require.NoError(t, err)
	var ops []operation
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			ops = append(ops, operation{op, method + " " + path})
		}
	}
	slices.SortFunc(ops, func(a, b operation) int { return strings.Compare(a.at, b.at) })
	return doc, ops
}

// The contract is a valid OpenAPI 3.0.3 document, its own examples included.
func TestSpecIsValid(t *testing.T) {
	doc, _ := operations(t)
	require.Equal(t, "3.0.3", doc.OpenAPI)
	require.NoError(t, doc.Validate(t.Context()))
}

// An operation's id is the name of a method in every client ever generated: lowerCamel, unique, never changed.
func TestSpecNamesOperations(t *testing.T) {
	_, ops := operations(t)
	lowerCamel := regexp.MustCompile(`^[a-z][a-z0-9]*([A-Z][a-z0-9]*)+$`)
	seen := map[string]string{}
	for _, op := range ops {
		if !lowerCamel.MatchString(op.OperationID) {
			t.Errorf("%s: operationId %q is not a verb and a noun in lowerCamel", op.at, op.OperationID)
		}
		if was, ok := seen[op.OperationID]; ok {
			t.Errorf("%s: operationId %s belongs to %s", op.at, op.OperationID, was)
		}
		seen[op.OperationID] = op.at
	}
}

// An operation belongs to one API, and says in a line and in a paragraph what it does.
func TestSpecDescribesOperations(t *testing.T) {
	doc, ops := operations(t)
	tags := map[string]bool{}
	for _, tag := range doc.Tags {
		tags[tag.Name] = true
		if tag.Description == "" {
			t.Errorf("tag %s has no description", tag.Name)
		}
	}
	for _, op := range ops {
		if len(op.Tags) != 1 || !tags[op.Tags[0]] {
			t.Errorf("%s: tags %v; want exactly one that the document declares", op.at, op.Tags)
		}
		if n := utf8.RuneCountInString(op.Summary); n == 0 || n > 60 {
			t.Errorf("%s: summary of %d characters; want 1 to 60", op.at, n)
		}
		if strings.TrimSpace(op.Description) == "" {
			t.Errorf("%s: no description", op.at)
		}
		for _, p := range op.Parameters {
			if p.Value.Description == "" {
				t.Errorf("%s: parameter %s has no description", op.at, p.Value.Name)
			}
		}
	}
}

// A caller learns from the contract what a fault looks like: at least one 4xx and the default answer.
func TestSpecDescribesFaults(t *testing.T) {
	_, ops := operations(t)
	for _, op := range ops {
		if op.Responses.Default() == nil {
			t.Errorf("%s: no default response", op.at)
		}
		if !slices.ContainsFunc(op.Responses.Keys(), isClientError) {
			t.Errorf("%s: no 4xx response", op.at)
		}
	}
}

func isClientError(status string) bool {
	n, err := strconv.Atoi(status)
	return err == nil && n >= 400 && n < 500 || status == "4XX"
}

// Examples are sent by a test and shown by the docs page: each body in and each body out has one, but for bytes and for
// what a node tells of itself.
func TestSpecShowsExamples(t *testing.T) {
	_, ops := operations(t)
	for _, op := range ops {
		if op.RequestBody != nil {
			for ctype, m := range op.RequestBody.Value.Content {
				if !hasExample(m) {
					t.Errorf("%s: request %s has no example", op.at, ctype)
				}
			}
		}
		for status, r := range op.Responses.Map() {
			if status[0] != '2' || op.Tags[0] == "operations" {
				continue
			}
			for ctype, m := range r.Value.Content {
				if !hasExample(m) {
					t.Errorf("%s: response %s %s has no example", op.at, status, ctype)
				}
			}
		}
	}
}

func hasExample(m *openapi3.MediaType) bool {
	if m.Example != nil || len(m.Examples) > 0 {
		return true
	}
	if m.Schema == nil || m.Schema.Value == nil {
		return false
	}
	return m.Schema.Value.Example != nil || m.Schema.Value.Format == "binary"
}

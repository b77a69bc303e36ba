package registry_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/api"
	"millrace/server/servertest"
)

// fixture is a registry over HTTP: that of a real node.
type fixture struct {
	t    testing.TB
	url  string
	http *http.Client
}

// start starts a node by itself.
func start(t testing.TB) *fixture {
	t.Helper()
	n := servertest.Start(t, servertest.Options{})
	return &fixture{t, n.URL(), n.Client}
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	text   string
}

// code is the number of an error.
func (a *answer) code() int {
	var e struct {
		Code int `json:"error_code"`
	}
	_ = json.Unmarshal([]byte(a.text), &e) // a body without one has the code 0
	return e.Code
}

func (a *answer) message() string {
	var e struct{ Message string }
	_ = json.Unmarshal([]byte(a.text), &e) // likewise
	return e.Message
}

// send sends a request with a body, unless that is empty, and headers in pairs.
func (f *fixture) send(method, path, body string, headers ...string) *answer {
	f.t.Helper()
	var sent io.Reader
	if body != "" {
		sent = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.url+path, sent)
	require.NoError(f.t, err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := f.http.Do(r)
	require.NoError(f.t, err, "%s %s", method, path)
	defer func() { require.NoError(f.t, resp.Body.Close()) }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(f.t, err)
	return &answer{resp.StatusCode, resp.Header, string(text)}
}

// step is a request and what is wanted of its answer: the number of an error, a status alone if it has three digits,
// or JSON that the answer to a success has. Of an object only the members that are wanted count.
type step struct{ request, body, want string }

// run sends requests one after the other. Each is a method and a path.
func (f *fixture) run(steps ...step) {
	f.t.Helper()
	for i, s := range steps {
		method, path, _ := strings.Cut(s.request, " ")
		a := f.send(method, path, s.body)
		at := fmt.Sprintf("step %d: %s %s\nanswered with %d %s", i, s.request, s.body, a.status, a.text)
		number, err := strconv.Atoi(s.want)
		switch {
		case err == nil && len(s.want) == 3 && number < 300:
			require.Equal(f.t, number, a.status, at)
		case err == nil && len(s.want) == 3, err == nil && len(s.want) == 5:
			require.Equal(f.t, api.CompatStatus(number), a.status, at)
			require.Equal(f.t, number, a.code(), at)
			require.NotEmpty(f.t, a.message(), at)
			require.Equal(f.t, api.RegistryType, a.header.Get("Content-Type"), at)
		default:
			require.Equal(f.t, http.StatusOK, a.status, at)
			require.Equal(f.t, api.RegistryType, a.header.Get("Content-Type"), at)
			var want, got any
			require.NoError(f.t, json.Unmarshal([]byte(s.want), &want), s.want)
			require.NoError(f.t, json.Unmarshal([]byte(a.text), &got), at)
			require.True(f.t, has(got, want), "%s\nwant %s", at, s.want)
		}
	}
}

// has says whether a value has all that is wanted. A wanted null stands for a member that is not there.
func has(got, want any) bool {
	if list, ok := want.([]any); ok {
		there, ok := got.([]any)
		if !ok || len(there) != len(list) {
			return false
		}
		for i := range list {
			if !has(there[i], list[i]) {
				return false
			}
		}
		return true
	}
	w, ok := want.(map[string]any)
	if !ok {
		return reflect.DeepEqual(got, want)
	}
	g, ok := got.(map[string]any)
	if !ok {
		return false
	}
	for name, member := range w {
		if there, ok := g[name]; member == nil && ok || member != nil && !has(there, member) {
			return false
		}
	}
	return true
}

// body is a request's body with a schema, and further members as JSON.
func body(text string, more ...string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string has a JSON form
	}
	return `{"schema":` + string(quoted) + strings.Join(append([]string{""}, more...), ",") + `}`
}

// record is an Avro record with fields, which are JSON.
func record(fields ...string) string {
	return `{"type":"record","name":"R","fields":[` + strings.Join(fields, ",") + `]}`
}

const (
	fieldA  = `{"name":"a","type":"int"}`
	fieldB  = `{"name":"b","type":"int","default":0}`
	fieldC  = `{"name":"c","type":"int","default":0}`
	needful = `{"name":"n","type":"int"}`
)

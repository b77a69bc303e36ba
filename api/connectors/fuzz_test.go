package connectors_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever a body is, a request is refused in the form of the API or answered in its own, and is never the server's
// fault.
func FuzzBodies(f *testing.F) {
	for _, seed := range []string{
		`{"name":"c","config":{` + source + `}}`, `{` + source + `}`,
		`{"offsets":[{"partition":{"share":"0"},"offset":null}]}`,
		`{"level":"DEBUG"}`, `{"name":"c","config":{"a":1e400,"b":true,"c":-0.0}}`, `{"a":"\ud800"}`, `{"":""}`, `[]`, `null`,
		`{"connector.class":"CountSource","transforms":"a,b","transforms.a.type":"Cast","predicates":"p","topic":"${x:y}"}`,
		`{"connector.class":"NullSink","topics":",,","topics.regex":"(?i)","name":"` + strings.Repeat("é", 200) + `"}`,
		`{"offsets":[{"partition":{"a":9223372036854775808},"offset":{"b":-1.5}}]}`,
		`{"name":"../..","config":{"connector.class":"CountSource","topic":"\u0000","url":"a://b:c@d?password=e"}}`,
	} {
		f.Add(seed)
	}
	x := start(f)
	x.run(step{"POST /connectors", `{"name":"stopped","config":{` + source + `},"initial_state":"STOPPED"}`, 201, ``})
	f.Fuzz(func(t *testing.T, body string) {
		g := &fixture{t, x.url, x.http}
		for _, request := range []string{
			"POST /connectors", "PUT /connectors/stopped/config", "PATCH /connectors/stopped/config",
			"PATCH /connectors/stopped/offsets", "PUT /connector-plugins/CountSource/config/validate",
			"PUT /connector-plugins/NullSink/config/validate", "PUT /admin/loggers/x",
		} {
			method, path, _ := strings.Cut(request, " ")
			a := g.send(method, path, body, "Content-Type", "application/json")
			require.Less(t, a.status, 500, "%s %q: %s", request, body, a.text)
			require.True(t, json.Valid([]byte(a.text)), "%s %q: %s", request, body, a.text)
			if a.status == 201 {
				var info struct{ Name string }
				require.NoError(t, json.Unmarshal([]byte(a.text), &info))
				at := strings.TrimPrefix(a.header.Get("Location"), x.url)
				require.Equal(t, 204, g.send("DELETE", at, "").status, "%q at %s", info.Name, at)
			}
		}
	})
}

package registry_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/api"
	"millrace/api/registry"
)

func TestPaths(t *testing.T) {
	for from, to := range map[string]string{
		"/subjects":                                "/subjects",
		"/subjects/":                               "/subjects",
		"/subjects/a%2Fb%20c+d/versions/":          "/subjects/a%2Fb%20c+d/versions",
		"/subjects//versions":                      "/subjects/:.:/versions",
		"/compatibility/subjects//versions/latest": "/compatibility/subjects/:.:/versions/latest",
		"/subjects/a%2Fb/versions/1":               "/subjects/a%2Fb/versions/1",
		"/contexts":                                "/contexts",
		"/contexts/":                               "/contexts",
		"/contexts/ctx":                            "/contexts/ctx",
		"/contexts/ctx/":                           "/contexts/ctx",

		"/contexts/.ctx/subjects/s/versions":        "/subjects/:.ctx:s/versions",
		"/contexts/ctx/subjects/s/versions/":        "/subjects/:.ctx:s/versions",
		"/contexts/:.ctx:/subjects/s":               "/subjects/:.ctx:s",
		"/contexts/%3A.ctx%3A/subjects/s":           "/subjects/:.ctx:s",
		"/contexts/.ctx/subjects/:.other:s":         "/subjects/:.other:s",
		"/contexts/.ctx/subjects/%3A.ctx%3As":       "/subjects/:.ctx:s",
		"/contexts/.ctx/subjects/a%2Fb%25/versions": "/subjects/:.ctx:a%2Fb%25/versions",
		"/contexts/.ctx/subjects/a+b/versions":      "/subjects/:.ctx:a+b/versions",
		"/contexts/.ctx/subjects//versions":         "/subjects/:.ctx:/versions",
		"/contexts/./subjects/s/versions":           "/subjects/s/versions",
		"/contexts/:.:/subjects/s/versions":         "/subjects/s/versions",

		"/contexts/.ctx/subjects":                          "/subjects?subjectPrefix=%3A.ctx%3A",
		"/contexts/.ctx/subjects?deleted=true":             "/subjects?deleted=true&subjectPrefix=%3A.ctx%3A",
		"/contexts/.ctx/subjects?subjectPrefix=a":          "/subjects?subjectPrefix=%3A.ctx%3Aa",
		"/contexts/.ctx/subjects?subjectPrefix=:.other:":   "/subjects?subjectPrefix=%3A.other%3A",
		"/contexts/.ctx/subjects?subjectPrefix=:*:":        "/subjects?subjectPrefix=%3A%2A%3A",
		"/contexts/.ctx/schemas/":                          "/schemas?subjectPrefix=%3A.ctx%3A",
		"/contexts/.ctx/schemas/ids/7":                     "/schemas/ids/7?subject=%3A.ctx%3A",
		"/contexts/.ctx/schemas/ids/7/versions?subject=s":  "/schemas/ids/7/versions?subject=%3A.ctx%3As",
		"/contexts/.ctx/schemas/types":                     "/schemas/types",
		"/contexts/.ctx/schemas/guids/x":                   "/schemas/guids/x",
		"/contexts/.ctx/config":                            "/config/:.ctx:",
		"/contexts/.ctx/config/":                           "/config/:.ctx:",
		"/contexts/.ctx/config/s":                          "/config/:.ctx:s",
		"/contexts/.ctx/mode":                              "/mode/:.ctx:",
		"/contexts/.ctx/mode/s":                            "/mode/:.ctx:s",
		"/contexts/:.:/config":                             "/config/:.:",
		"/contexts/.ctx/contexts":                          "/contexts",
		"/contexts/.ctx/compatibility/subjects/s/versions": "/compatibility/subjects/:.ctx:s/versions",
		"/contexts/.ctx/v1/metadata/id":                    "/v1/metadata/id",

		// What belongs to other APIs has no context.
		"/contexts/.ctx/topics/t":           "/contexts/.ctx/topics/t",
		"/contexts/.ctx/v1/schemas:batch":   "/contexts/.ctx/v1/schemas:batch",
		"/contexts/.ctx/v3/clusters":        "/contexts/.ctx/v3/clusters",
		"/contexts/.ctx/internal/kafka/0":   "/contexts/.ctx/internal/kafka/0",
		"/contexts/.a/contexts/.b/subjects": "/contexts/.b/subjects", // one step, which leads nowhere
	} {
		r, err := http.NewRequest(http.MethodGet, from, nil)
		require.NoError(t, err)
		got, err := registry.Rewritten(r)
		require.NoError(t, err, from)
		require.Equal(t, to, got.URL.String(), from)
		require.Equal(t, from, r.URL.String(), "the request that came is as it was")
	}
	for _, from := range []string{"/contexts/a:b/subjects", "/contexts/:.a:b:/subjects", "/contexts/:a/config"} {
		r, err := http.NewRequest(http.MethodGet, from, nil)
		require.NoError(t, err)
		_, err = registry.Rewritten(r)
		require.Error(t, err, from)
		require.Equal(t, http.StatusBadRequest, api.FromError(err).Fault.Code, from)
	}
}

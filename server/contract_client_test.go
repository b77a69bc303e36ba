package server_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"millrace/server/servertest"
)

// The Go client that oapi-codegen makes of the contract compiles, and produces and reads. The generated package is laid
// over the module for the one build, so that nothing of it is in the tree. `make test-clients` checks TypeScript's.
func TestGeneratedClient(t *testing.T) {
	if testing.Short() {
		t.Skip("generates and builds a client")
	}
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	dir := t.TempDir()
	code := filepath.Join(dir, "sdk.gen.go")
	config := "package: sdk\noutput: " + code + `
generate: {client: true, models: true}
output-options:
  include-tags: [native, restv3]
  prefer-skip-optional-pointer-on-container-types: true
`
	require.NoError(t, os.WriteFile(filepath.Join(dir, "oapi.yaml"), []byte(config), 0o600))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(root, "server", "testdata", "client", "sdk", "sdk.gen.go"): code,
	}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
	run := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = root
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		require.NoError(t, err, "go %v: %s", args, &stderr)
		return string(out)
	}
	run("tool", "oapi-codegen", "-config", filepath.Join(dir, "oapi.yaml"), "openapi.yaml")
	n := servertest.Start(t, servertest.Options{})
	got := run("run", "-overlay", filepath.Join(dir, "overlay.json"), "./server/testdata/client", n.URL())
	require.Equal(t, "0 {\"id\":9007199254740993}\n1 {\"id\":2}\n", got)
}

// Where an operation takes several kinds of JSON, openapi-python-client's code finds out by isinstance which one it was
// given. That fails for anything and for lists, and with it every call: so no such schema may stand there directly. One
// behind an allOf is left out of its client.
func TestBodiesSuitGenerators(t *testing.T) {
	several := 0
	for _, op := range loadContract(t).ops {
		if op.RequestBody == nil || len(op.RequestBody.Value.Content) < 2 {
			continue
		}
		several++
		for mediaType, body := range op.RequestBody.Value.Content {
			if body.Schema == nil || !strings.HasSuffix(mediaType, "json") {
				continue
			}
			s := body.Schema.Value
			if len(s.AllOf) > 0 {
				continue
			}
			for _, one := range append(openapi3.SchemaRefs{body.Schema}, s.AnyOf...) {
				untyped := one.Value.Type == nil && len(one.Value.AnyOf) == 0
				require.False(t, untyped || one.Value.Type.Is("array"), "%s: %s", op, mediaType)
			}
		}
	}
	require.NotZero(t, several)
}

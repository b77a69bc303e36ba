package tidy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What `go generate` makes from openapi.yaml is what the tree holds, byte for byte.
func TestGeneratedCodeIsCurrent(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the generator")
	}
	tree := load(t)
	for _, name := range tree.Names {
		if filepath.Base(name) != "oapi.yaml" {
			continue
		}
		dir := filepath.Join(tree.Root, filepath.Dir(name))
		fresh := filepath.Join(t.TempDir(), "api.gen.go")
		config, err := os.ReadFile(filepath.Join(dir, "oapi.yaml"))
		require.NoError(t, err)
		elsewhere := strings.Replace(string(config), "output: api.gen.go", "output: "+fresh, 1)
		require.Contains(t, elsewhere, fresh, "%s: want output: api.gen.go", name)
		other := filepath.Join(t.TempDir(), "oapi.yaml")
		require.NoError(t, os.WriteFile(other, []byte(elsewhere), 0o600))
		cmd := exec.Command("go", "tool", "oapi-codegen", "-config", other, filepath.Join(tree.Root, "openapi.yaml"))
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
		want, err := os.ReadFile(fresh)
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(dir, "api.gen.go"))
		require.NoError(t, err)
		if string(want) != string(got) {
			t.Errorf("%s: api.gen.go is not what openapi.yaml says: run make generate", filepath.Dir(name))
		}
	}
}

// Every generated file says how it is made, beside it.
func TestGeneratedFilesHaveADirective(t *testing.T) {
	tree := load(t)
	directive := map[string]bool{}
	for _, f := range tree.Files {
		if !f.Generated && strings.Contains(string(f.Source), "\n//go:generate ") {
			directive[f.Dir] = true
		}
	}
	for _, f := range tree.Files {
		if f.Generated && !directive[f.Dir] {
			t.Errorf("%s: generated, but no go:generate line in %s says how", f.Path, f.Dir)
		}
	}
}

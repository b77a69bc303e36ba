package tidy

import (
	"bytes"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// isText says which files of the tree are ours to read as text.
func isText(name string) bool {
	switch filepath.Ext(name) {
	case ".go", ".md", ".yaml", ".yml", ".json", ".txt", ".mod", ".txtar", ".sh", ".html", ".css", ".js":
		return true
	}
	return filepath.Base(name) == "Makefile" || name == ".ci/run" || name == "NOTICE"
}

// Unfinished work is an issue, not a comment.
func TestNothingIsLeftForLater(t *testing.T) {
	marks := []string{"TO" + "DO", "FIX" + "ME", "XX" + "X"}
	tree := load(t)
	tree.eachLine(t, func(name string, n int, line string) {
		for _, m := range marks {
			if i := strings.Index(line, m); i >= 0 && !letter(line, i-1) && !letter(line, i+len(m)) {
				t.Errorf("%s:%d: says %s", name, n, m)
			}
		}
	})
}

func letter(s string, i int) bool {
	return i >= 0 && i < len(s) && (s[i]|0x20 >= 'a' && s[i]|0x20 <= 'z' || s[i] == '_')
}

// A file of ours names no path of the machine it was written on, and no package registry that the machine uses.
func TestNoMachineInTheText(t *testing.T) {
	tree := load(t)
	bad := []string{filepath.ToSlash(filepath.Dir(tree.Root)) + "/"}
	if home, err := os.UserHomeDir(); err == nil && len(home) > 2 {
		bad = append(bad, home+"/")
	}
	bad = append(bad, registryHosts()...)
	tree.eachLine(t, func(name string, n int, line string) {
		for _, b := range bad {
			if b != "//" && strings.Contains(line, b) {
				t.Errorf("%s:%d: names %s, which belongs to one machine", name, n, b)
			}
		}
	})
}

// registryHosts lists the hosts that this machine's Go and npm clients ask.
func registryHosts() (hosts []string) {
	urls := ""
	for _, c := range [][]string{{"go", "env", "GOPROXY"}, {"npm", "config", "get", "registry"}} {
		out, err := exec.Command(c[0], c[1:]...).Output()
		if err == nil {
			urls += "," + string(out)
		}
	}
	for _, s := range strings.FieldsFunc(urls, func(r rune) bool { return strings.ContainsRune(",|\n ", r) }) {
		if u, err := url.Parse(s); err == nil && u.Host != "" {
			hosts = append(hosts, u.Host)
		}
	}
	return hosts
}

// eachLine walks the lines of every text file that is ours.
func (t *Tree) eachLine(tt *testing.T, fn func(name string, n int, line string)) {
	tt.Helper()
	for _, name := range t.Names {
		if !isText(name) || strings.Contains(name, "/testdata/fuzz/") || strings.HasSuffix(name, ".gen.go") {
			continue
		}
		src, err := os.ReadFile(filepath.Join(t.Root, filepath.FromSlash(name)))
		if errors.Is(err, fs.ErrNotExist) {
			continue // another test had it for a moment
		}
		require.NoError(tt, err)
		for i, line := range bytes.Split(src, []byte("\n")) {
			fn(name, i+1, string(line))
		}
	}
}

// The documents every reader is sent to exist.
func TestDocumentsExist(t *testing.T) {
	tree := load(t)
	have := map[string]bool{}
	for _, n := range tree.Names {
		have[n] = true
	}
	for _, n := range []string{"README.md", "ARCHITECTURE.md", "CHANGELOG.md", "LICENSE", "NOTICE", "openapi.yaml",
		"docs/formats.md", "docs/compatibility.md", "docs/configuration.md", "docs/performance.md", "docs/running.md"} {
		if !have[n] {
			t.Errorf("%s is missing", n)
		}
	}
}

// A link to a file of the repository leads somewhere.
func TestLinksLead(t *testing.T) {
	tree := load(t)
	tree.eachLine(t, func(name string, n int, line string) {
		if filepath.Ext(name) != ".md" || strings.Contains(name, "/testdata/") {
			return
		}
		for rest := line; ; {
			_, after, ok := strings.Cut(rest, "](")
			if !ok {
				return
			}
			target, tail, ok := strings.Cut(after, ")")
			if !ok {
				return
			}
			rest = tail
			target, _, _ = strings.Cut(target, "#")
			if target == "" || strings.Contains(target, "://") || strings.HasPrefix(target, "/") {
				continue
			}
			if _, err := os.Stat(filepath.Join(tree.Root, filepath.Dir(name), target)); err != nil {
				t.Errorf("%s:%d: links to %s, which does not exist", name, n, target)
			}
		}
	})
}

// Formatted source, so that a diff shows only what changed.
func TestSourceIsFormatted(t *testing.T) {
	tree := load(t)
	out, err := exec.Command("gofmt", "-l", tree.Root).CombinedOutput()
	require.NoError(t, err, string(out))
	for line := range strings.Lines(string(out)) {
		if !strings.Contains(line, ".gen.go") {
			t.Errorf("%s is not formatted: run gofmt -w", strings.TrimSpace(line))
		}
	}
}

package provider_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/connect/provider"
)

// folder has files below an allowed folder and beside it.
func folder(t *testing.T) (allowed, beside string) {
	root := t.TempDir()
	root, err := filepath.EvalSymlinks(root)
	require.NoError(t, err)
	allowed, beside = filepath.Join(root, "allowed"), filepath.Join(root, "allowed-not")
	for _, dir := range []string{allowed, beside, filepath.Join(allowed, "sub")} {
		require.NoError(t, os.MkdirAll(dir, 0o700))
	}
	write(t, filepath.Join(allowed, "db.properties"), "user=me\n# password=old\npassword = s3cret=with:signs \n"+
		"long = a\\\n   b\nescaped\\ key: \\u0041\\t\\ud83d\\ude00\\q\nempty\n!x=y\n")
	write(t, filepath.Join(allowed, "sub", "token"), "tok\nen")
	write(t, filepath.Join(beside, "other.properties"), "password=hidden")
	write(t, filepath.Join(beside, "token"), "hidden")
	return allowed, beside
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func environment(name string) (string, bool) {
	all := map[string]string{"DB_PASSWORD": "from env", "PATH": "/bin", "EMPTY": "", "DB_X": "${env:PATH}"}
	v, ok := all[name]
	return v, ok
}

func TestResolve(t *testing.T) {
	allowed, _ := folder(t)
	p, err := provider.New(provider.Options{
		Paths: []string{allowed}, EnvAllow: "DB_.*|EMPTY|MISSING", Environment: environment,
	})
	require.NoError(t, err)
	file := "${file:" + allowed + "/db.properties:"
	for text, want := range map[string]string{
		"plain":                                "plain",
		file + "user}":                         "me",
		"a" + file + "user}-" + file + "user}": "ame-me",
		file + "password}":                     "s3cret=with:signs ",
		file + "long}":                         "ab",
		file + "escaped key}":                  "A\t😀q",
		file + "empty}":                        "",
		"${dir:" + allowed + "/sub:token}":     "tok\nen",
		"${env:DB_PASSWORD}":                   "from env",
		"${env::DB_PASSWORD}":                  "from env",
		"${env:EMPTY}":                         "",
		"${env:DB_X}":                          "${env:PATH}", // what was put in is not looked at again
		"${topic}":                             "${topic}",
		"${other:a:b}":                         "${other:a:b}",
		"${${env:DB_PASSWORD}":                 "${from env",
		"${":                                   "${",
		"$x ${} ${env:} }":                     "$x ${} ${env:} }",
	} {
		props := map[string]string{"k": text}
		out, problems := p.Resolve(props)
		require.Equal(t, want, out["k"], text)
		require.Empty(t, problems, text)
		require.Equal(t, text, props["k"], "what was given stays")
	}
}

func TestRefused(t *testing.T) {
	allowed, beside := folder(t)
	require.NoError(t, os.Symlink(filepath.Join(beside, "other.properties"), filepath.Join(allowed, "link.properties")))
	require.NoError(t, os.Symlink(beside, filepath.Join(allowed, "link")))
	require.NoError(t, os.Symlink(filepath.Join(allowed, "db.properties"), filepath.Join(allowed, "good")))
	p, err := provider.New(provider.Options{
		Paths: []string{"", allowed}, EnvAllow: "DB_.*|GONE", Environment: environment,
	})
	require.NoError(t, err)
	for _, text := range []string{
		"${file:" + beside + "/other.properties:password}",
		"${file:" + allowed + "/../allowed-not/other.properties:password}",
		"${file:" + allowed + "/link.properties:password}",
		"${file:" + allowed + "/link/other.properties:password}",
		"${file:" + allowed + "/none.properties:password}",
		"${file:" + allowed + "/db.properties:none}",
		"${file:" + allowed + ":password}",
		"${file:db.properties:password}",
		"${file:password}",
		"${file:/etc/passwd:root}",
		"${dir:" + beside + ":token}",
		"${dir:" + allowed + ":../allowed-not/token}",
		"${dir:" + allowed + "/link:token}",
		"${dir:" + allowed + ":sub}",
		"${dir:" + allowed + ":..}",
		"${env:PATH}",
		"${env:xDB_PASSWORD}",
		"${env:GONE}",
	} {
		out, problems := p.Resolve(map[string]string{"k": "before " + text})
		require.Equal(t, "before "+text, out["k"])
		require.Len(t, problems, 1, text)
		require.Equal(t, "k", problems[0].Setting)
		require.Equal(t, text, problems[0].Reference)
		require.NotEmpty(t, problems[0].Why)
	}
	out, problems := p.Resolve(map[string]string{"k": "${file:" + allowed + "/good:user}"})
	require.Equal(t, "me", out["k"], "a link that stays below what is allowed")
	require.Empty(t, problems)
}

func TestNothingAllowed(t *testing.T) {
	allowed, _ := folder(t)
	p, err := provider.New(provider.Options{Environment: environment})
	require.NoError(t, err)
	for _, text := range []string{
		"${file:" + allowed + "/db.properties:user}", "${dir:" + allowed + "/sub:token}", "${env:PATH}",
	} {
		out, problems := p.Resolve(map[string]string{"k": text})
		require.Equal(t, text, out["k"])
		require.Len(t, problems, 1)
	}
	_, err = provider.New(provider.Options{EnvAllow: "("})
	require.Error(t, err)
}

func TestAllowedFile(t *testing.T) {
	allowed, _ := folder(t)
	path := filepath.Join(allowed, "db.properties")
	p, err := provider.New(provider.Options{Paths: []string{path}})
	require.NoError(t, err)
	out, problems := p.Resolve(map[string]string{
		"a": "${file:" + path + ":user}", "b": "${dir:" + allowed + "/sub:token}",
	})
	require.Equal(t, "me", out["a"])
	require.Len(t, problems, 1)
	require.Equal(t, "b", problems[0].Setting)
}

func TestHas(t *testing.T) {
	require.True(t, provider.Has("x${env:A}"))
	require.True(t, provider.Has("${file:/a:b}"))
	require.False(t, provider.Has("${topic}"))
	require.False(t, provider.Has("${other:x}"))
	require.False(t, provider.Has("plain"))
}

func TestLargeFile(t *testing.T) {
	allowed, _ := folder(t)
	path := filepath.Join(allowed, "large")
	write(t, path, string(make([]byte, 1<<20+1)))
	p, err := provider.New(provider.Options{Paths: []string{allowed}})
	require.NoError(t, err)
	_, problems := p.Resolve(map[string]string{"k": "${dir:" + allowed + ":large}"})
	require.Len(t, problems, 1)
	require.Equal(t, "the file is larger than 1 MiB", problems[0].Why)
}

// A file that is referred to over and over does not make settings without bound.
func TestManyReferences(t *testing.T) {
	allowed, _ := folder(t)
	write(t, filepath.Join(allowed, "large"), string(make([]byte, 1<<20)))
	p, err := provider.New(provider.Options{Paths: []string{allowed}})
	require.NoError(t, err)
	ref := "${dir:" + allowed + ":large}"
	out, problems := p.Resolve(map[string]string{"k": strings.Repeat(ref, 20)})
	require.Len(t, problems, 4)
	require.Contains(t, problems[0].Why, "more than 16 MiB")
	require.Len(t, out["k"], 16<<20+4*len(ref))
}

// What is no file that ends is not waited for.
func TestPipe(t *testing.T) {
	allowed, _ := folder(t)
	require.NoError(t, syscall.Mkfifo(filepath.Join(allowed, "pipe"), 0o600))
	p, err := provider.New(provider.Options{Paths: []string{allowed}})
	require.NoError(t, err)
	_, problems := p.Resolve(map[string]string{"k": "${dir:" + allowed + ":pipe}"})
	require.Len(t, problems, 1)
	require.Equal(t, "it is no regular file", problems[0].Why)
}

package connect

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/connect/plugin"
	"millrace/connect/provider"
)

func TestMaskURL(t *testing.T) {
	for in, want := range map[string]string{
		"postgresql://u:pw@h:1/d":                      "postgresql://u:[hidden]@h:1/d",
		"postgresql://u:p@w@h/d":                       "postgresql://u:[hidden]@h/d",
		"postgresql://u@h/d":                           "postgresql://u@h/d",
		"postgresql://h:5432/d?user=u&password=pw&x=y": "postgresql://h:5432/d?user=u&password=[hidden]&x=y",
		"jdbc:postgresql://h/d?PASSWORD=pw":            "jdbc:postgresql://h/d?PASSWORD=[hidden]",
		"jdbc:postgresql://h/d?sslpassword=pw#x":       "jdbc:postgresql://h/d?sslpassword=[hidden]#x",
		"jdbc:postgresql://h/d?p%61ssword=pw&a=b":      "jdbc:postgresql://h/d?p%61ssword=[hidden]&a=b",
		"jdbc:postgresql://h/d?a=b&%53SLpassword=p=w":  "jdbc:postgresql://h/d?a=b&%53SLpassword=[hidden]",
		"jdbc:postgresql://h/d?p%61ssword=${env:PW}":   "jdbc:postgresql://h/d?p%61ssword=${env:PW}",
		"jdbc:postgresql://h/d?passwords=1&%zz=2":      "jdbc:postgresql://h/d?passwords=1&%zz=2",
		"postgresql://u:${env:PW}@h/d":                 "postgresql://u:${env:PW}@h/d",
		"postgresql://u:${env:PW}x@h/d":                "postgresql://u:[hidden]@h/d",
		"postgresql://u:@h/d":                          "postgresql://u:@h/d",
		"http://h/a:b@c":                               "http://h/a:b@c",
		"SELECT a FROM b WHERE password='x'":           "SELECT a FROM b WHERE password='x'",
		"a:b@c":                                        "a:b@c",
		" x://u:pw@h/d":                                " x://u:[hidden]@h/d",
		"":                                             "",
	} {
		require.Equal(t, want, maskURL(in))
	}
}

func TestReferences(t *testing.T) {
	require.Equal(t, []string{"${env:A}", "${file:/p:k}"}, references("x${env:A}y${file:/p:k}z${no:x}${"))
	require.Equal(t, []string{"${env:A}"}, references("${ ${env:A} }"))
	require.Empty(t, references("${}"))
	require.True(t, onlyRefers(" ${env:A} ${env:B}"))
	require.False(t, onlyRefers("${env:A}x"))
	require.False(t, onlyRefers("${topic}"))
}

func maskedWorker() *Worker {
	return &Worker{catalog: newCatalog([]plugin.Class{{Info: plugin.Info{
		Class: "C", Kind: plugin.SourceKind, Defs: plugin.Defs{
			{Name: "pw", Type: plugin.Password}, {Name: "token.kind", Type: plugin.String}, {Name: "url", Type: plugin.String},
		},
	}}})}
}

// Passwords are hidden by what defines them, and what nothing defines by its name.
func TestMasked(t *testing.T) {
	w := maskedWorker()
	stored := map[string]string{
		"connector.class": "C", "pw": "a", "token.kind": "b", "other.password": "c", "url": "x://u:d@h", "plain": "e",
		"key.converter.basic.auth.user.info": "u:f", "pw.ref": "g",
	}
	shown := w.masked(stored)
	require.Equal(t, map[string]string{
		"connector.class": "C", "pw": "[hidden]", "token.kind": "b", "other.password": "[hidden]", "url": "x://u:[hidden]@h",
		"plain": "e", "key.converter.basic.auth.user.info": "[hidden]", "pw.ref": "g",
	}, shown)
	back, problems := w.unmask(shown, stored)
	require.Empty(t, problems)
	require.Equal(t, stored, back)

	task := w.masked(map[string]string{"task.class": "C", "pw": "a"})
	require.Equal(t, "[hidden]", task["pw"])
	gone := w.masked(map[string]string{"connector.class": "Gone", "db.password": "a", "pw": "b"})
	require.Equal(t, "[hidden]", gone["db.password"])
	w.cfg.Settings.RevealSecrets = true
	require.Equal(t, stored, w.masked(stored))
}

// A mask stands for nothing but what it masks, and not where the password would go elsewhere.
func TestUnmaskRefuses(t *testing.T) {
	w := maskedWorker()
	stored := map[string]string{"connector.class": "C", "pw": "a", "url": "x://u:d@h"}
	for _, c := range []struct {
		props map[string]string
		key   string
	}{
		{map[string]string{"connector.class": "C", "pw": "[hidden]", "url": "x://u:d@evil"}, "pw"},
		{map[string]string{"connector.class": "C", "url": "x://u:[hidden]@evil"}, "url"},
		{map[string]string{"connector.class": "C", "other": "[hidden]"}, "other"},
		{map[string]string{"connector.class": "C", "pw": "x[hidden]"}, "pw"},
	} {
		out, problems := w.unmask(c.props, stored)
		require.Len(t, problems, 1)
		require.Equal(t, c.key, problems[0].Key)
		require.Equal(t, c.props, out)
		require.NotContains(t, problems[0].Message, "x://u:d")
	}
	_, problems := w.unmask(map[string]string{"connector.class": "C", "pw": "[hidden]"}, nil)
	require.Len(t, problems, 1)
}

// Whatever a message says of secrets, and however it quotes them, is put out of it.
func TestScrub(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "token"), []byte("a\"b\\c\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "long"), []byte("a\"b\\c-and-more"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "count"), []byte("1"), 0o600))
	p, err := provider.New(provider.Options{Paths: []string{dir}})
	require.NoError(t, err)
	ref := func(name string) string { return "${dir:" + dir + ":" + name + "}" }
	w := maskedWorker()
	class, err := w.Class("C")
	require.NoError(t, err)
	c := w.assemble(class, map[string]string{
		"pw": "open sesame", "x": ref("token"), "y": "is " + ref("long"), "z": ref("count"), "other.secret": "word",
	})
	c.references(p)
	require.Empty(t, c.problems)
	for _, message := range []string{
		`cannot read "a\"b\\c\n"`, "cannot read a\"b\\c: no number", `"a\"b\\c-and-more" is odd`, "open sesame is wrong",
		"1 word",
	} {
		c.bad("x", "%s", message)
	}
	c.scrub()
	var got []string
	for i := range c.problems {
		got = append(got, c.problems[i].Message)
	}
	require.Equal(t, []string{
		`cannot read "` + ref("token") + `\n"`, "cannot read " + ref("token") + ": no number", `"` + ref("long") + `" is odd`,
		"[hidden] is wrong", "1 word",
	}, got)
}

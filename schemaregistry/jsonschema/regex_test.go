package jsonschema_test

import (
	"encoding/json"
	"testing"

	"github.com/dlclark/regexp2"
	"github.com/stretchr/testify/require"
)

func TestRegex(t *testing.T) {
	for _, r := range []struct {
		pattern   string
		good, bad []string
	}{
		{``, []string{"", "a"}, nil},
		{`b`, []string{"abc"}, []string{"ac", ""}},
		{`^b`, []string{"bc"}, []string{"ab", "a\nb"}},
		{`b$`, []string{"ab"}, []string{"ba", "b\n"}},
		{`^a.c$`, []string{"abc", "aéc", "a😀c"}, []string{"a\nc", "a\u2028c", "ac"}},
		{`^a|b$`, []string{"ax", "xb"}, []string{"xa", "bx"}},
		{`^(?:a|bc)*$`, []string{"", "abcbca"}, []string{"ab"}},
		{`^a{2}$`, []string{"aa"}, []string{"a", "aaa"}},
		{`^a{2,}$`, []string{"aa", "aaaa"}, []string{"a"}},
		{`^a{1,2}b{0,1}$`, []string{"a", "aab"}, []string{"aaab", "abb"}},
		{`^(ab){1,2}$`, []string{"ab", "abab"}, []string{"", "ababab"}},
		{`^.{1,30000}$`, []string{"é"}, []string{"", "\n"}},
		{`^.{2,4}?b$`, []string{"aab", "bbb"}, []string{"ab", "aaaaab"}},
		{`^é{2,3}é$`, []string{"ééé", "éééé"}, []string{"éé"}},
		{`a{,2}{`, []string{"a{,2}{"}, []string{"aa"}},
		{`^[a-c^]+$`, []string{"abc^"}, []string{"d", ""}},
		{`^[^a-c]$`, []string{"d", "é"}, []string{"a", ""}},
		{`^[\d\-x\]]+$`, []string{"0-]x"}, []string{"a"}},
		{`^[]`, nil, []string{"", "a"}},
		{`^[^]$`, []string{"a", "\n"}, []string{""}},
		{`^\d\w\s$`, []string{"1_ ", "9é\u00a0"[:1] + "a\u00a0"}, []string{"١a ", "1é "}},
		{`^\D\W\S$`, []string{"a-b"}, []string{"1-b", "aab", "a- "}},
		{`\bfoo\b`, []string{"a foo b", "foo"}, []string{"afoo", "foo1"}},
		{`\Boo`, []string{"foo"}, []string{"oo"}},
		{`^(a)(b)?\1$`, []string{"aa", "aba"}, []string{"ab"}},
		{`^(?<x>a|b)\k<x>$`, []string{"aa", "bb"}, []string{"ab"}},
		{`^(?=.*\d)(?=.*[a-z]).{4,}$`, []string{"abc1"}, []string{"abcd", "a1"}},
		{`^(?!foo).*$`, []string{"bar"}, []string{"foobar"}},
		{`(?<=a)b`, []string{"ab"}, []string{"cb", "b"}},
		{`(?<!a)b`, []string{"cb", "b"}, []string{"ab"}},
		{`^(a*)*$`, []string{"", "aaa"}, []string{"b"}},
		{`^(a*?)*?b$`, []string{"b", "aab"}, []string{"a"}},
		{`^(|a)+$`, []string{"", "a"}, []string{"b"}},
		{`^\u0041\x42\u{43}\cJ\0$`, []string{"ABC\n\x00"}, nil},
		{`^\p{Lu}\p{Greek}\P{L}$`, []string{"Éα1"}, []string{"éα1", "Éaa"}},
		{`^[\p{L}\d]+$`, []string{"é1"}, []string{"-"}},
		{`(?i)^straße[a-c]$`, []string{"STRAßEC"}, []string{"strassea"}},
		{`\Aa\z`, []string{"a"}, []string{"ba"}},
		{`^\/\.\-\$$`, []string{"/.-$"}, nil},
		{`^a++b$`, []string{"aab"}, []string{"b"}},
	} {
		p, err := json.Marshal(r.pattern)
		require.NoError(t, err)
		s, err := parse(`{"pattern":` + string(p) + `}`)
		require.NoError(t, err, r.pattern)
		for _, v := range r.good {
			b, _ := json.Marshal(v)
			require.NoError(t, check(t, s, string(b)), "%s: %q", r.pattern, v)
		}
		for _, v := range r.bad {
			b, _ := json.Marshal(v)
			require.Error(t, check(t, s, string(b)), "%s: %q", r.pattern, v)
		}
	}
}

// Expressions match what another implementation of ECMA's says.
func FuzzRegex(f *testing.F) {
	for _, p := range []string{
		`^(a|b)*c$`, `a{1,3}?b`, `(a)\1`, `(?=a)(?!b).`, `[^a-c]+`, `(a*)*b`, `^(?:a?){3}a{3}$`, `\bx\B`,
	} {
		f.Add(p, "aabbcabc")
	}
	f.Fuzz(func(t *testing.T, pattern, s string) {
		if len(pattern) > 30 || len(s) > 30 {
			return
		}
		for _, c := range []byte(pattern + s) { // where there is but one opinion
			if c < ' ' || c > '~' {
				return
			}
		}
		p, err := json.Marshal(pattern)
		require.NoError(t, err)
		ours, err := parse(`{"pattern":` + string(p) + `}`)
		if err != nil {
			return
		}
		v, err := json.Marshal(s)
		require.NoError(t, err)
		err = check(t, ours, string(v))
		if regexMeansOther(pattern) || err != nil && !json.Valid(v) {
			return
		}
		theirs, e := regexp2.Compile(pattern, regexp2.ECMAScript)
		if e != nil {
			return
		}
		hit, e := theirs.MatchString(s)
		require.NoError(t, e)
		require.Equal(t, hit, err == nil, "%q in %q", pattern, s)
	})
}

// regexMeansOther says whether a pattern has what the implementations read differently: escapes, groups with a mark,
// classes within classes, and captures that a repetition resets.
func regexMeansOther(pattern string) bool {
	for i := range len(pattern) - 1 {
		switch pattern[i] {
		case '\\', '[', '{':
			return true
		case '(':
			if pattern[i+1] == '?' {
				return true
			}
		case '*', '+', '?':
			if pattern[i+1] == '+' {
				return true
			}
		}
	}
	return false
}

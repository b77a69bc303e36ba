package protobuf

import (
	"encoding/base64"
	"fmt"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/schemaregistry/schema"
)

const (
	proto3 = "syntax = \"proto3\";\n"
	mib    = 1 << 20
)

// custom declares options of every kind.
const custom = `import "google/protobuf/descriptor.proto";
message O { O o = 1; int32 n = 2; repeated int32 l = 3; map<int32, O> m = 4; }
extend google.protobuf.MessageOptions { O o = 50001; repeated O r = 50002; repeated int32 q = 50003; }
extend google.protobuf.FieldOptions { O f = 50001; }
`

// heaviest repeats what fn makes until the text between is as large as a text may be.
func heaviest(before string, fn func(i int) string, after string) string {
	limits := Limits{}.withDefaults()
	text := func(n int) string { return before + many(n, fn) + after }
	n := sort.Search(limits.Tokens, func(n int) bool {
		b := budget{limits: limits}
		return b.spend(text(n)) != nil
	})
	return text(n - 1)
}

// fieldNumber is the i-th field number, without those that the language keeps.
func fieldNumber(i int) int {
	if i >= 18999 {
		i += 1000
	}
	return i + 1
}

func times(s string) func(int) string { return func(int) string { return s } }

// numbered makes texts with the number of the part in place of each # and its field number in place of each $.
func numbered(s string) func(int) string {
	return func(i int) string {
		return strings.NewReplacer("#", fmt.Sprint(i), "$", fmt.Sprint(fieldNumber(i))).Replace(s)
	}
}

// refused are texts beyond a limit.
func refused() map[string]string {
	return map[string]string{
		"nested messages":                 proto3 + strings.Repeat("message A {", 10000) + strings.Repeat("}", 10000),
		"nested messages that do not end": proto3 + strings.Repeat("message A {", 10000),
		"brackets":                        proto3 + "option x = " + strings.Repeat("[", mib/2),
		"angles":                          proto3 + "option x = " + strings.Repeat("<a:", mib/4),
		"braces":                          strings.Repeat("{", mib-1),
		"parentheses":                     strings.Repeat("(", mib-1),
		"words":                           strings.Repeat("a ", mib/2),
		"dots":                            proto3 + "package a" + strings.Repeat(".a", mib/2-20) + ";",
		"semicolons":                      proto3 + strings.Repeat(";", mib-100),
		"strings":                         proto3 + `option java_package = ` + strings.Repeat(`"a" `, mib/4-20) + `;`,
		"more than a text may have":       proto3 + strings.Repeat(" ", mib),
		"enum values":                     proto3 + "enum E {" + many(60000, numbered("A#=#;")) + "}",
		"reserved numbers":                proto3 + "message M {reserved 1" + strings.Repeat(",5", 20000) + ";}",
		"a dangling import of many":       proto3 + many(15000, numbered("import \"a#\";")),
		"not UTF-8":                       strings.Repeat("\xff", mib-1),
		"zeros":                           strings.Repeat("\x00", mib-1),
		"one long word":                   strings.Repeat("a", mib-1),
		"a comment that does not end":     proto3 + "/*" + strings.Repeat("x", mib-100),
		"a string that does not end":      proto3 + `option java_package = "` + strings.Repeat("x", mib-100),
		"a string after a backslash":      proto3 + `option java_package = "\`,
		"base64 of empty messages": base64.StdEncoding.EncodeToString([]byte(strings.Repeat("\x22\x00",
			mib/4))),
		"base64 of nested messages": base64.StdEncoding.EncodeToString(nestedDescriptor(5000)),
		"base64 of nothing":         strings.Repeat("A", mib-4),
	}
}

func many(n int, fn func(int) string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(fn(i))
	}
	return b.String()
}

// heavy are texts as large as they may be, of everything that the compiler has more work with than their size shows.
var heavy = sync.OnceValue(func() map[string]string {
	indexes := func(i int) string { return fmt.Sprintf("A%d a%d=%d;", i%2, i, fieldNumber(i)) }
	return map[string]string{
		"a long comment":   proto3 + "/*" + strings.Repeat("x", mib-100) + "*/ message A {}",
		"comments":         proto3 + strings.Repeat("/**/", mib/4-20),
		"lines of comment": proto3 + strings.Repeat("//\n", mib/3-20),
		"blanks":           proto3 + strings.Repeat(" ", mib-100),
		"a long string":    proto3 + `option java_package = "` + strings.Repeat("x", mib-100) + `";`,
		"escapes":          proto3 + `option java_package = "` + strings.Repeat(`\001`, mib/4-20) + `";`,
		"enum values":      heaviest(proto3+"enum E {", numbered("A#=#;"), "}"),
		"enum values of one number": heaviest(proto3+"enum E { option allow_alias = true;",
			numbered("A#=0;"), "}"),
		"fields":                     heaviest(proto3+"message M {", numbered("int32 a#=$;"), "}"),
		"fields on lines":            heaviest(proto3+"message M {\n", numbered("int32 a#=$;\n"), "}"),
		"maps":                       heaviest(proto3+"message M {", numbered("map<int32,string> a#=$;"), "}"),
		"messages":                   heaviest(proto3, numbered("message A#{}"), ""),
		"messages that hold another": heaviest(proto3, numbered("message A#{A0 a=1;}"), ""),
		"fields of messages":         heaviest(proto3+"message A0{} message A1 {", indexes, "}"),
		"oneofs":                     heaviest(proto3+"message M {", numbered("oneof o# {int32 a#=$;}"), "}"),
		"a oneof":                    heaviest(proto3+"message M { oneof o {", numbered("int32 a#=$;"), "}}"),
		"optional fields":            heaviest(proto3+"message M {", numbered("optional int32 a#=$;"), "}"),
		"reserved numbers": heaviest(proto3+"message M {reserved 1",
			func(i int) string { return fmt.Sprintf(",%d", 2*i+10) }, ";}"),
		"reserved names": heaviest(proto3+"message M {reserved \"a\"", numbered(",\"b#\""), ";}"),
		"reserved statements": heaviest(proto3+"message M {",
			func(i int) string { return fmt.Sprintf("reserved %d;", 2*i+10) }, "}"),
		"extension ranges": heaviest("message M {extensions 1",
			func(i int) string { return fmt.Sprintf(",%d", 2*i+10) }, ";}"),
		"extensions": heaviest("message M {extensions 1 to max;} extend M {",
			numbered("optional int32 a#=$;"), "}"),
		"groups":                    heaviest("message M {", numbered("optional group A#=$ {}"), "}"),
		"options that are custom":   heaviest(proto3+custom+"message A {", times("option (q) = 1;"), "}"),
		"options that are messages": heaviest(proto3+custom+"message A {", times("option (r) = {n:1};"), "}"),
		"one option often":          heaviest(proto3+custom+"message A {", times("option (o).n = 1;"), "}"),
		"options of fields": heaviest(proto3+custom+"message A {",
			numbered("int32 a#=$ [(f)={n:1}];"), "}"),
		"deep options of fields": heaviest(proto3+custom+"message A {",
			numbered("int32 a#=$ [(f).o.o.o.o.o={n:1}];"), "}"),
		"plain options of fields": heaviest(proto3+"message A {",
			numbered("int32 a#=$ [deprecated=true];"), "}"),
		"an option often": heaviest(proto3+"message M {int32 a = 1 [deprecated=true",
			times(",deprecated=true"), "];}"),
		"an option with a list": heaviest(proto3+custom+"message A { option (o) = {l: [1", times(",1"),
			"]};}"),
		"an option with a map": heaviest(proto3+custom+"message A { option (o) = {",
			numbered("m:{key:#}"), "};}"),
		"an option in many parts": heaviest(proto3+custom+"message A { option (o)", times(".o"), " = {};}"),
		"an option within options": proto3 + custom + "message A { option (o) = " + strings.Repeat("{o:",
			90) + "{}" + strings.Repeat("}", 90) + ";}",
		"one import often": heaviest(proto3, times(`import "google/protobuf/any.proto";`), ""),
		"imports":          heaviest(proto3, numbered(`import "a#";`), ""),
		"services": heaviest(proto3+"message A{}",
			numbered("service S#{rpc B(A)returns(A);}"), ""),
		"methods": heaviest(proto3+"message A{} service S {",
			numbered("rpc B#(A)returns(A);"), "}"),
		"long names": heaviest(proto3+"message M {",
			func(i int) string {
				return fmt.Sprintf("int32 %s%d=%d;", strings.Repeat("a", 1000), i,
					fieldNumber(i))
			}, "}"),
		"long names of messages": heaviest(proto3,
			func(i int) string { return fmt.Sprintf("message %s%d{}", strings.Repeat("a", 1000), i) }, ""),
		"names in many parts": heaviest(proto3+"message M {", times(strings.Repeat("a.",
			100)+"b c=1;"), "}"),
		"nested messages of long name": heaviest(proto3, times(strings.Repeat("message "+strings.Repeat("a",
			200)+"{", 30)+strings.Repeat("}", 30)), ""),
	}
})

// nestedDescriptor is a descriptor with messages within messages.
func nestedDescriptor(n int) []byte {
	var raw []byte
	for range n {
		raw = append(appendLength([]byte{0x1a}, len(raw)), raw...)
	}
	return append(appendLength([]byte{0x22}, len(raw)), raw...)
}

func appendLength(b []byte, n int) []byte {
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

// soon runs fn until a run is quick enough, and reports the best: other tests may be running.
func soon(most time.Duration, fn func()) time.Duration {
	best := time.Hour
	for range 20 {
		start := time.Now()
		fn()
		if best = min(best, time.Since(start)); best < most {
			break
		}
	}
	return best
}

// cheap is ten times what the worst text takes where nothing else runs. What costs more than its size shows takes a
// hundred times as long.
const cheap = 500 * time.Millisecond

func TestHostileTextsCostLittle(t *testing.T) {
	f := New(Limits{})
	for name, text := range refused() {
		var err error
		took := soon(cheap, func() { _, err = f.Parse(text, nil, schema.ParseOptions{}) })
		require.Less(t, took, cheap*slowdown, name)
		require.ErrorIs(t, err, schema.ErrInvalid, name)
	}
	for name, text := range heavy() {
		for _, o := range []schema.ParseOptions{{Strict: true, Normalize: true}, {Normalize: true}, {}} {
			var err error
			took := soon(cheap, func() { _, err = f.Parse(text, nil, o) })
			require.Less(t, took, cheap*slowdown, "%s: %v", name, err)
			if err != nil {
				require.NotContains(t, err.Error(), "too large", name)
			}
		}
	}
}

// Comparing and the rest is bounded by what the text may hold.
func TestHostileTextsCostLittleOnceRead(t *testing.T) {
	f := New(Limits{})
	for name, text := range heavy() {
		s, err := f.Parse(text, nil, schema.ParseOptions{})
		require.NoError(t, err, name)
		other, err := f.Parse(proto3+"message Other {} enum Others { Z = 0; }", nil, schema.ParseOptions{})
		require.NoError(t, err)
		for what, fn := range map[string]func(){
			"from nothing": func() { _, err = f.Compare(s, other, schema.CompareOptions{}) },
			"to nothing":   func() { _, err = f.Compare(other, s, schema.CompareOptions{}) },
			"with itself":  func() { _, err = f.Compare(s, s, schema.CompareOptions{}) },
			"entities":     func() { s.Entities() },
			"name":         func() { s.Name() },
			"serialized":   func() { s.Format("serialized") },
			"plain":        func() { s.Format("ignore_extensions") },
		} {
			took := soon(cheap, fn)
			require.Less(t, took, cheap*slowdown, "%s, %s", name, what)
			require.NoError(t, err, "%s, %s", name, what)
		}
		took := soon(4*cheap, func() { // of a schema of its own: it is kept
			s, err := f.Parse(text, nil, schema.ParseOptions{})
			require.NoError(t, err, name)
			if c, err := s.Codec(); err == nil {
				_ = c.Check([]byte("\x08\x01"))
			}
		})
		require.Less(t, took, 4*cheap*slowdown, "%s, codec", name)
	}
}

// Messages of imports hold each other in every way; comparing looks at each pair once.
func TestHostileImportsCostLittle(t *testing.T) {
	f := New(Limits{})
	const n = 60
	file := func(typ string) string {
		return proto3 + "package p; " + many(n, func(i int) string {
			return fmt.Sprintf("message A%d { %s x = 1; %s }", i, typ, many(n, func(j int) string {
				return fmt.Sprintf("A%d a%d = %d;", j, j, j+2)
			}))
		})
	}
	main := proto3 + "import \"i.proto\"; message M { p.A0 a = 1; }"
	read := func(typ string, version int) schema.Schema {
		s, err := f.Parse(main, []schema.Dependency{{Name: "i.proto", Subject: "i", Version: version,
			Text: file(typ)}},
			schema.ParseOptions{Strict: true})
		require.NoError(t, err)
		return s
	}
	older, newer := read("int32", 1), read("string", 2)
	var got schema.Comparison
	took := soon(cheap, func() {
		var err error
		got, err = f.Compare(newer, older, schema.CompareOptions{})
		require.NoError(t, err)
	})
	require.Less(t, took, cheap*slowdown)
	require.False(t, got.Compatible())

	var deps []schema.Dependency
	for i := range 5 {
		text := fmt.Sprintf(proto3+"message M%d {", i) + many(7000, numbered("int32 a#=$;")) + "}"
		deps = append(deps, schema.Dependency{Name: fmt.Sprint(i), Text: text})
	}
	_, err := f.Parse(proto3+"message M {}", deps, schema.ParseOptions{Strict: true})
	require.ErrorIs(t, err, schema.ErrInvalid)
	require.ErrorContains(t, err, "too large")
}

func TestHostileValuesCostLittle(t *testing.T) {
	s, err := New(Limits{}).Parse(proto3+"import \"google/protobuf/any.proto\"; message M { M m = 1; repeated M l = 2;"+
		" repeated int32 n = 3;"+
		" google.protobuf.Any a = 4; map<int32, M> map = 5; string s = 6; }", nil, schema.ParseOptions{Strict: true})
	require.NoError(t, err)
	c, err := s.Codec()
	require.NoError(t, err)
	for name, raw := range map[string][]byte{
		"empty messages":     []byte(strings.Repeat("\x12\x00", mib/2)),
		"pieces of one":      []byte(strings.Repeat("\x0a\x00", mib/2)),
		"numbers":            []byte(strings.Repeat("\x18\x00", mib/2)),
		"empty Anys":         []byte(strings.Repeat("\x22\x00", mib/2)),
		"entries":            []byte(strings.Repeat("\x2a\x00", mib/2)),
		"unknown fields":     []byte(strings.Repeat("\xf8\x01\x00", mib/3)),
		"groups":             []byte(strings.Repeat("\xfb\x01", mib/2)),
		"tags that go on":    []byte(strings.Repeat("\xff", mib)),
		"nested without end": []byte(strings.Repeat("\x0a\xff\xff\x3f", mib/4)),
	} {
		took := soon(cheap, func() { _ = c.Check(raw) })
		require.Less(t, took, cheap*slowdown, name)
	}
}

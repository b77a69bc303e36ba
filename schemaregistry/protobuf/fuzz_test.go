package protobuf_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"

	"millrace/schemaregistry/protobuf"
	"millrace/schemaregistry/schema"
)

func seeds(f *testing.F, add func(text string)) {
	f.Helper()
	for _, c := range canonicalCases() {
		add(c.in)
	}
	for _, c := range pairs() {
		add(source(c.new))
	}
	add(order)
	add(source(all))
	add("CgdkZWZhdWx0")
}

// Any text is refused, or printed so that it reads back as the same.
func FuzzParse(f *testing.F) {
	seeds(f, func(text string) { f.Add(text) })
	f.Fuzz(func(t *testing.T, text string) {
		for _, o := range []schema.ParseOptions{{}, {Strict: true}, {Strict: true, Normalize: true}} {
			s, err := format().Parse(text, nil, o)
			if err != nil {
				require.ErrorIs(t, err, schema.ErrInvalid)
				continue
			}
			again, err := format().Parse(s.Text(), nil, o)
			require.NoError(t, err, s.Text())
			require.Equal(t, s.Text(), again.Text())
			s.Entities()
			s.Name()
			s.Format("serialized")
			if plain := s.Format("ignore_extensions"); plain != "" {
				_, err = format().Parse(plain, nil, schema.ParseOptions{})
				require.NoError(t, err)
			}
			if c, err := s.Codec(); err == nil {
				_ = c.Check([]byte("\x0a\x00"))
			}
		}
	})
}

// Any two texts compare without harm, and a text with itself without a difference.
func FuzzCompare(f *testing.F) {
	for _, c := range pairs() {
		f.Add(source(c.old), source(c.new))
	}
	f.Fuzz(func(t *testing.T, one, two string) {
		a, err := format().Parse(one, nil, schema.ParseOptions{})
		if err != nil {
			return
		}
		c, err := format().Compare(a, a, schema.CompareOptions{})
		require.NoError(t, err)
		require.Empty(t, c.Differences)
		b, err := format().Parse(two, nil, schema.ParseOptions{})
		if err != nil {
			return
		}
		_, err = format().Compare(a, b, schema.CompareOptions{})
		require.NoError(t, err)
	})
}

// Any bytes are refused, or become JSON that can be read back; Check agrees with the library.
func FuzzDecode(f *testing.F) {
	s, err := format().Parse(source(all), nil, schema.ParseOptions{Strict: true})
	require.NoError(f, err)
	c, err := s.Codec()
	require.NoError(f, err)
	file, err := protodesc.NewFile(descriptorOf(f, s), protoregistry.GlobalFiles)
	require.NoError(f, err)
	for _, in := range []string{`{"small":1,"list":[1,2],"byName":{"a":{}},"at":"2026-01-01T00:00:00Z",` +
		`"value":[1,{"a":null}]}`,
		`{"any":{"@type":"type.googleapis.com/All","textValue":"x"},"mask":"a.b","took":"1s","raw":"AA=="}`} {
		raw, err := c.Encode(nil, []byte(in))
		require.NoError(f, err)
		f.Add(raw)
	}
	f.Add(groups(99, 5))
	f.Add(nested(17, 5))
	f.Fuzz(func(t *testing.T, raw []byte) {
		_, rest, err := protobuf.ReadIndex(raw)
		require.True(t, err != nil || len(rest) < len(raw))
		err = c.Check(raw)
		out, decodeErr := c.Decode(nil, raw)
		if err != nil {
			require.ErrorIs(t, err, schema.ErrMismatch)
			require.Error(t, decodeErr)
		}
		agreeButForAny(t, c, file.Messages().ByName("All"), raw)
		if decodeErr == nil {
			require.LessOrEqual(t, len(out), 16*len(raw)+1<<20)
			_, err := c.Encode(nil, out)
			require.NoError(t, err, "%s", out)
		}
		_, _ = c.Encode(nil, raw)
	})
}

package avro_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/schemaregistry/avro"
	"millrace/schemaregistry/schema"
)

// limits keep what a fuzzer finds small.
func limits() avro.Limits {
	return avro.Limits{TextBytes: 1 << 16, Depth: 100, Nodes: 10_000, CompareSteps: 100_000, OutputBytes: 1 << 20}
}

func FuzzParse(f *testing.F) {
	for _, e := range entries(f, "testdata/parse.txt") {
		f.Add(e.first("text"))
	}
	f.Fuzz(func(t *testing.T, text string) {
		format := avro.New(limits())
		for _, o := range []schema.ParseOptions{{}, {Strict: true}, {Normalize: true}} {
			s, err := format.Parse(text, nil, o)
			if err != nil {
				require.ErrorIs(t, err, schema.ErrInvalid)
				continue
			}
			require.True(t, json.Valid([]byte(s.Text())), s.Text())
			again, err := format.Parse(s.Text(), nil, o)
			require.NoError(t, err, s.Text())
			require.Equal(t, s.Text(), again.Text())
			require.Equal(t, s.Name(), again.Name())
			require.Equal(t, s.Entities(), again.Entities())
			c, err := format.Compare(s, again, schema.CompareOptions{})
			if err == nil {
				for _, d := range c.Differences { // a field may stand for several by its aliases
					require.Contains(t, d.Info, "one of", d.Description)
				}
			}
		}
	})
}

func FuzzCompare(f *testing.F) {
	for _, e := range entries(f, "testdata/compare.txt") {
		f.Add(e.first("old"), e.first("new"))
	}
	f.Fuzz(func(t *testing.T, older, newer string) {
		format := avro.New(limits())
		writer, err := format.Parse(older, nil, schema.ParseOptions{})
		if err != nil {
			return
		}
		reader, err := format.Parse(newer, nil, schema.ParseOptions{})
		if err != nil {
			return
		}
		c, err := format.Compare(reader, writer, schema.CompareOptions{ReaderName: "new", WriterName: "old"})
		if err != nil {
			require.ErrorIs(t, err, schema.ErrInvalid)
			return
		}
		require.Equal(t, len(c.Differences) == 0, c.Compatible())
		again, err := format.Compare(reader, writer, schema.CompareOptions{ReaderName: "new", WriterName: "old"})
		require.NoError(t, err)
		require.Equal(t, c, again)
	})
}

func FuzzDecode(f *testing.F) {
	for _, h := range hostile() {
		f.Add(h.schema, []byte(h.bytes))
	}
	f.Add(`{"type":"map","values":["null","string","double"]}`, []byte("\x02\x02k\x02\x02x\x00"))
	f.Fuzz(func(t *testing.T, text string, data []byte) {
		s, err := avro.New(limits()).Parse(text, nil, schema.ParseOptions{})
		if err != nil {
			return
		}
		codec, err := s.Codec()
		require.NoError(t, err)
		checked := codec.Check(data)
		out, err := codec.Decode(nil, data)
		if checked != nil || err != nil {
			require.ErrorIs(t, err, schema.ErrMismatch)
			return
		}
		require.LessOrEqual(t, len(out), 3<<20)
		require.True(t, json.Valid(out), "%q", out)
		b, err := codec.Encode(nil, out)
		if err != nil { // JSON nests twice as deep, and members of a record may share a name that is not valid
			return
		}
		require.NoError(t, codec.Check(b))
		again, err := codec.Decode(nil, b)
		require.NoError(t, err)
		require.Equal(t, string(out), string(again))
	})
}

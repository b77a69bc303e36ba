package jsonschema_test

import (
	"encoding/json"
	"errors"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/schemaregistry/jsonschema"
	"millrace/schemaregistry/schema"
)

// small limits make the fuzzer meet them.
func small() *jsonschema.Format {
	return jsonschema.New(jsonschema.Limits{
		Text: 4000, Depth: 40, Nodes: 200, CompareSteps: 5000, ValueDepth: 20, CheckSteps: 5000,
	})
}

// A text that is taken is taken again as it is printed, and means the same.
func FuzzParse(f *testing.F) {
	for _, p := range allPairs()[:60] {
		f.Add(p.old)
	}
	for _, v := range validity {
		f.Add(v.content)
	}
	f.Fuzz(func(t *testing.T, content string) {
		format := small()
		s, err := format.Parse(content, nil, schema.ParseOptions{})
		if err != nil {
			require.ErrorIs(t, err, schema.ErrInvalid)
			return
		}
		require.True(t, json.Valid([]byte(s.Text())))
		if len(s.Text()) > 4000 {
			return // escapes can make it longer
		}
		again, err := format.Parse(s.Text(), nil, schema.ParseOptions{})
		require.NoError(t, err)
		require.Equal(t, s.Text(), again.Text())
		normal, err := format.Parse(content, nil, schema.ParseOptions{Normalize: true})
		require.NoError(t, err)
		require.Len(t, normal.Text(), len(s.Text()))
		c, err := format.Compare(again, s, schema.CompareOptions{})
		if err != nil {
			require.ErrorIs(t, err, schema.ErrInvalid)
			return
		}
		require.Empty(t, c.Differences)
		tags := s.Entities()
		untagged, err := s.WithTags(nil, tags)
		require.NoError(t, err)
		require.True(t, json.Valid([]byte(untagged)))
	})
}

// Comparing two schemas ends, whatever they are, and lists an incompatible difference if the verdict is one.
func FuzzCompare(f *testing.F) {
	for _, p := range allPairs() {
		f.Add(p.old, p.new)
	}
	for seed := range int64(20) {
		m := maker{rand.New(rand.NewSource(seed)), seed%2 == 0}
		s := m.schema(3)
		f.Add(m.whole(s, doc{}), m.whole(m.changed(s, 3), doc{}))
	}
	f.Fuzz(func(t *testing.T, old, updated string) {
		format := small()
		w, err := format.Parse(old, nil, schema.ParseOptions{})
		if err != nil {
			return
		}
		r, err := format.Parse(updated, nil, schema.ParseOptions{})
		if err != nil {
			return
		}
		strict, err := format.Compare(r, w, schema.CompareOptions{})
		if err != nil {
			require.ErrorIs(t, err, schema.ErrInvalid)
			return
		}
		for _, d := range strict.Differences {
			require.NotEmpty(t, d.Description)
		}
	})
}

// Checking a value ends, and only refuses it for a reason.
func FuzzCheck(f *testing.F) {
	for _, c := range checks {
		for _, v := range c.good {
			f.Add(c.content, v)
		}
		for _, v := range c.bad {
			f.Add(c.content, v[0])
		}
	}
	f.Fuzz(func(t *testing.T, content, value string) {
		s, err := small().Parse(content, nil, schema.ParseOptions{})
		if err != nil {
			return
		}
		c, err := s.Codec()
		require.NoError(t, err)
		err = c.Check([]byte(value))
		if err != nil {
			require.True(t, errors.Is(err, schema.ErrMismatch))
			require.NotEmpty(t, err.Error())
			return
		}
		require.True(t, json.Valid([]byte(value)))
	})
}

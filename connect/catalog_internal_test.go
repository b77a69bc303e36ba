package connect

import (
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/connect/plugin"
)

func TestFind(t *testing.T) {
	infos := []plugin.Info{
		{Class: "a.b.ThingConnector", Aliases: []string{"old.Thing", "old.GizmoConnector"}, Kind: plugin.SourceKind},
		{Class: "a.c.ThingConnector", Kind: plugin.SinkKind},
		{Class: "Native", Kind: plugin.SinkKind},
		{Class: "x.JsonConverter", Kind: plugin.ConverterKind},
		{Class: "x.JsonConverter", Kind: plugin.HeaderConverterKind},
		{Class: "x.Cast$Value", Kind: plugin.TransformKind},
		{Class: "x.MyTransformation", Kind: plugin.TransformKind},
		{Class: "x.MyPredicate", Kind: plugin.PredicateKind},
	}
	for name, want := range map[string]int{
		"a.b.ThingConnector": 0, "old.Thing": 0, "Gizmo": 0, "GizmoConnector": 0, "a.c.ThingConnector": 1, "Native": 2,
		"Json": 3, "JsonConverter": 3, "Cast$Value": 5,
	} {
		at, err := find(infos, name, "plugin")
		require.NoError(t, err, name)
		require.Equal(t, want, at, name)
	}
	for name, want := range map[string]string{
		"ThingConnector": "may mean a.b.ThingConnector or a.c.ThingConnector", "Thing": "may mean",
		"My": "may mean x.MyTransformation or x.MyPredicate", "": "there is no plugin", "native": "there is no plugin",
		"Connector": "there are Native, a.b.ThingConnector",
	} {
		_, err := find(infos, name, "plugin")
		require.ErrorContains(t, err, want, name)
	}
	_, err := find(infos[1:], "Thing", "plugin")
	require.NoError(t, err)
}

// A class of the caller's goes before one of the same name.
func TestCatalogHasTheFirstOfAName(t *testing.T) {
	c := newCatalog([]plugin.Class{
		{Info: plugin.Info{Class: "b", Version: "1"}}, {Info: plugin.Info{Class: "a"}},
		{Info: plugin.Info{Class: "b", Version: "2"}},
	})
	require.Len(t, c.classes, 2)
	got, err := c.class("b")
	require.NoError(t, err)
	require.Equal(t, "1", got.Version)
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"topic", "topic", 0}, {"topic", "topics", 1}, {"tpoic", "topic", 2}, {"", "ab", 2}, {"abcdef", "topic", 3},
		{"a", "abcdefgh", 3},
	} {
		require.Equal(t, c.want, distance(c.a, c.b, 3), "%s %s", c.a, c.b)
	}
}

// Every setting of the runner has what the REST API tells, and a default that is good by its own check.
func TestFrameDefsAreWhole(t *testing.T) {
	for _, kind := range []plugin.Kind{plugin.SourceKind, plugin.SinkKind} {
		seen := map[string]bool{}
		for _, d := range frameDefs(kind) {
			require.False(t, seen[d.Name], "%s is there twice", d.Name)
			seen[d.Name] = true
			require.NotEmpty(t, d.Type, d.Name)
			require.NotEmpty(t, d.Importance, d.Name)
			require.NotEmpty(t, d.Doc, d.Name)
			require.NotEmpty(t, d.Group, d.Name)
			require.NotEmpty(t, d.Display, d.Name)
			if !d.Required && !d.Null && d.Default != "" {
				require.Empty(t, plugin.Defs{d}.Check(map[string]string{d.Name: d.Default}), d.Name)
			}
		}
	}
}

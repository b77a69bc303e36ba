package data_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/connect/data"
)

// A struct's default is of the schema that it is the default of; comparing such schemas ends.
func TestEqualOfDefaultsThatAreStructs(t *testing.T) {
	make := func(x int32) *data.Schema {
		s := data.NewStruct("s", data.Field{Name: "x", Schema: &data.Schema{Type: data.Int32}})
		s.Default = &data.StructValue{Schema: s, Values: []any{x}}
		return s
	}
	require.True(t, make(1).Equal(make(1)))
	require.False(t, make(1).Equal(make(2)))
	a, b := make(1), make(1)
	require.True(t, data.EqualValues(a.Default, b.Default))
	b.Fields[0].Name = "y"
	require.False(t, data.EqualValues(a.Default, b.Default))
}

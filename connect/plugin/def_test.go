package plugin_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/connect/plugin"
)

// A value is checked as it is read: without the space around it.
func TestCheckTrims(t *testing.T) {
	d := plugin.Defs{
		{Name: "mode", Type: plugin.String, Values: []string{"move", "copy"}},
		{Name: "n", Type: plugin.Int, Check: func(v string) error {
			if v != "7" {
				return errors.New("it must be 7")
			}
			return nil
		}},
		{Name: "pw", Type: plugin.Password, Values: []string{"x"}},
	}
	props := map[string]string{"mode": " Move ", "n": " 7\n", "pw": " x"}
	require.Empty(t, d.Check(props))
	s := d.Settings(props)
	require.Equal(t, "move", s.Lower("mode"))
	require.Equal(t, 7, s.Int("n"))

	problems := d.Check(map[string]string{"mode": "steal", "n": "x", "pw": "secret"})
	require.Len(t, problems, 3)
	require.Contains(t, problems[0].Message, "Invalid value steal for configuration mode: it must be one of move, copy")
	require.Contains(t, problems[1].Message, "a number of type INT")
	require.NotContains(t, problems[2].Message, "secret")
}
